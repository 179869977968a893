"""Switches of libraries.

Those of PyTorch may be set, and change nothing: asyncgrad computes with NumPy and CuPy, which have
switches of their own. That of `numba` is asyncgrad's: it has kernels compiled for the CPU.
"""

from asyncgrad.backends import cuda, cudnn, mkl, mkldnn, mps, numba, openmp

__all__ = ["cuda", "cudnn", "mkl", "mkldnn", "mps", "numba", "openmp"]
