"""Passes that cross workers: several with one commit."""

from typing import TYPE_CHECKING

from asyncgrad.distributed.staging import context
from asyncgrad.remedies import remedies

__all__ = ["context"]

if not TYPE_CHECKING:
    __getattr__ = remedies(__name__, {
        "`await loss.backward()` goes through parts on workers": "backward",
        "gradients are in `.grad` on the workers: `await part.apply(function)` reads them there": (
            "get_gradients"
        ),
    })  # fmt: skip
