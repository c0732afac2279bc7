"""The language of Einsum cascades: operators, expressions, specifications and where they are read from."""
