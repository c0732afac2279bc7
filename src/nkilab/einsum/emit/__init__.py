"""Printing loop trees, in either spelling."""
