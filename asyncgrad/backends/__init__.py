"""PyTorch's switches of libraries: programs may set them, and nothing here depends on them.

asyncgrad computes with NumPy and CuPy, which have switches of their own.
"""

from asyncgrad.backends import cuda, cudnn, mkl, mkldnn, mps, openmp

__all__ = ["cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp"]
