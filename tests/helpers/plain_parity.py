"""Programs of calls that have ended when they return, in PyTorch and here.

A program is a function `program(T, log)`, as in `both`, but nothing in it is awaited: it is run
where no loop runs, and on a running loop within `asyncgrad.blocking()`.
"""

import re

import numpy as np
import parity
import pytest


def plainly(program):
    """A test: the program's notes are the same in PyTorch and here."""

    @pytest.mark.torch
    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize("way", ["inline", "blocking"])
    def test(way):
        theirs = parity._theirs(program)
        assert theirs, "the program has noted nothing"
        assert parity._ours(program, way) == theirs

    test.__name__ = program.__name__
    test.__doc__ = program.__doc__
    return test


def attempted(log, pattern, function, *args, **kwargs):
    """Note what a call returns, or the class of its error and whether it says what it should."""
    try:
        result = function(*args, **kwargs)
    except Exception as error:
        log(error, re.search(pattern, str(error)) is not None)
    else:
        log("returned", result)


def numbers(T, *shape, seed=0, dtype="float64", leaf=False):
    """The same normal numbers in both libraries."""
    draw = np.random.default_rng(seed).standard_normal
    array = draw(shape) + 1j * draw(shape) if dtype.startswith("complex") else draw(shape)
    tensor = T.tensor(array.tolist(), dtype=getattr(T, dtype)).reshape(shape)
    return tensor.requires_grad_() if leaf else tensor
