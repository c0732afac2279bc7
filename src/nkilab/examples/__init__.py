"""Kernels that the demo runs and the documentation shows."""
