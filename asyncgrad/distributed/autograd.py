"""Passes that cross workers: several with one commit."""

from asyncgrad.distributed.staging import context

__all__ = ["context"]
