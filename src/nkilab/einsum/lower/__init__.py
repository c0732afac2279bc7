"""One module per class of nests: from an Einsum to tile statements."""
