"""Kernels inside PyTorch: operators for torch.compile and autograd, and what of a model deserves a kernel."""

from __future__ import annotations

from ..frameworks.torch_operators import TorchKernel, wrap
from .ranking import Candidate, Candidates, candidates

__all__ = ["Candidate", "Candidates", "TorchKernel", "candidates", "wrap"]
