"""The one thing of `threading` that the graph needs."""

from threading import Lock

__all__ = ["Lock"]
