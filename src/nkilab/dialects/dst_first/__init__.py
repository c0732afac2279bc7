"""The `nki` spelling: the destination is given and nothing is returned."""
