"""Kernels of the ledger, written as a user writes them; each stands for a published one of that structure."""
