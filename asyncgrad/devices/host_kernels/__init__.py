"""Kernels that Numba compiles for the host.

`declared` compiles those of `devices/kernels.py` and gathers all: the other modules have what the
host computes in a way of its own, in `FUNCTIONS`, by the names that `ops` calls them by.
"""
