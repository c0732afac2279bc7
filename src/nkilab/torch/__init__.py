"""Kernels inside PyTorch: operators for torch.compile and autograd."""

from __future__ import annotations

from ..frameworks.torch_operators import TorchKernel, wrap

__all__ = ["TorchKernel", "wrap"]
