"""The `neuronxcc.nki` spelling (Beta 1): instructions return new tiles."""
