"""The loop tree: what a kernel does, tile by tile, before it is spelled."""
