"""What PyTorch answers, as the expectation of what asyncgrad answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import asyncgrad as ag

if TYPE_CHECKING:
    from collections.abc import Callable

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


def check_answer(call: Callable[[Any], object]) -> None:
    """Raise unless a call with either library returns equal values, or errors of one class."""
    try:
        expected = call(torch)
    except Exception as error:
        with pytest.raises(type(error)):
            call(ag)
    else:
        assert call(ag) == expected
