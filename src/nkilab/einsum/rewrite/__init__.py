"""Cascade to cascade: forms that mean the same and are faster to compute."""
