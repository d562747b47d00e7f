"""Switches of the libraries behind operations (torch.backends).

Scripts set these; what a switch cannot change here it only remembers, so that it reads back as it was set.
"""

from __future__ import annotations

from . import cpu, cuda, cudnn, mkl, mkldnn, mps, openmp, opt_einsum

__all__ = ["cpu", "cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp", "opt_einsum"]
