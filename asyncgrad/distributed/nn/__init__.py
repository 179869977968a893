"""Modules whose gradients are reduced over workers."""

from asyncgrad.distributed.nn import parallel

__all__ = ["parallel"]
