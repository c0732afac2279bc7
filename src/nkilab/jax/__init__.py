"""Kernels inside JAX: under jit, vmap, grad and shard_map."""

from __future__ import annotations

from ..frameworks.jax_calls import JaxKernel, wrap

__all__ = ["JaxKernel", "wrap"]
