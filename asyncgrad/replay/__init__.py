"""Calls that repeat: recorded once, replayed at NumPy's own speed. See docs/compile.md."""

from asyncgrad.replay.public import compile

__all__ = ["compile"]
