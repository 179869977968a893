"""One program, run in PyTorch and here, in each of the ways a pass can be run.

A program is a generator function `program(T, log)`: `T` is `torch` or `asyncgrad`, and `log(...)`
notes what is to be compared. The program yields what asyncgrad has to await and PyTorch returns:
`gradients = yield T.autograd.grad(...)`.
"""

import asyncio
import functools
import inspect
import logging
import re

import numpy as np
import pytest

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

WAYS = ("inline", "asyncio", "asyncio-debug", "uvloop", "blocking")


def both(program):
    """A test: the program's notes are the same in PyTorch and here, whichever way it is run."""
    # What awaits nothing does the same on all loops.
    ways = WAYS if inspect.isgeneratorfunction(program) else ("inline", "asyncio")

    @pytest.mark.torch
    @pytest.mark.parametrize("way", ways)
    def test(way):
        assert _ours(program, way) == _theirs(program)

    test.__name__ = program.__name__
    test.__doc__ = program.__doc__
    return test


def leaf(T, *values):
    """A vector of these numbers that requires grad, in either library."""
    return T.tensor(values, dtype=T.float64, requires_grad=True)


def attempt(log, function, *args, **kwargs):
    """Note what a call returns, or the class of its error."""
    try:
        result = function(*args, **kwargs)
    except Exception as error:
        log(error)
        return None
    log(result)
    return result


def raised(log, function, *args, **kwargs):
    """Steps that note the class of the error that a call, or awaiting what it returns, raises."""
    try:
        yield function(*args, **kwargs)
    except Exception as error:
        log(error)
    else:
        log("nothing raised")


@functools.lru_cache
def _theirs(program):
    notes = []
    try:
        _drive(program(torch, _logger(notes)))
    finally:
        # When PyTorch has recorded a checkpoint, its logger does not propagate. pytest would then
        # add a handler to it, which can't format the messages of the next record.
        logging.getLogger("LoggingTensor").propagate = True
    return notes


def _ours(program, way):
    notes = []
    log = _logger(notes)
    if way == "inline":
        _drive(program(ag, log))
        return notes

    async def main():
        if way == "blocking":
            with ag.blocking():
                _drive(program(ag, log))
        else:
            await _drive_awaiting(program(ag, log))

    if way == "uvloop":
        uvloop = pytest.importorskip("uvloop", reason="uvloop is not installed")
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())
    else:
        asyncio.run(main(), debug=way == "asyncio-debug")
    return notes


def _drive(steps):
    """Run a program whose calls have ended when they return."""
    if not inspect.isgenerator(steps):
        return
    value = None
    while True:
        try:
            value = steps.send(value)
        except StopIteration:
            return


async def _drive_awaiting(steps):
    """Run a program, awaiting what it yields."""
    if not inspect.isgenerator(steps):
        return
    value, error = None, None
    while True:
        try:
            waiting = steps.send(value) if error is None else steps.throw(error)
        except StopIteration:
            return
        value = error = None
        if inspect.isawaitable(waiting) and not isinstance(waiting, ag.Tensor):
            try:
                value = await waiting
            except Exception as caught:
                error = caught
        else:
            value = waiting


def _logger(notes):
    def log(*values):
        notes.extend(_plain(value) for value in values)

    return log


def _plain(value):
    """A value of either library in a form that can be compared."""
    if isinstance(value, BaseException):
        return next(
            kind.__name__
            for kind in type(value).__mro__
            if kind.__module__ in {"builtins", "warnings"} or kind.__name__ == "GradcheckError"
        )
    if isinstance(value, (torch.Tensor, ag.Tensor)):
        dtype = str(value.dtype).rpartition(".")[2]
        data = value.detach()
        if isinstance(value, torch.Tensor):
            data = data.resolve_conj().resolve_neg()
        array = np.asarray(data.numpy())
        rounded = np.round(array.astype(complex), 5) + 0.0
        return ("tensor", dtype, tuple(array.shape), rounded.tolist())
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if value is None or isinstance(value, (bool, int, float, complex, str)):
        return value
    if hasattr(value, "next_functions"):
        return re.sub(r"\d+$", "", value.name().removeprefix("torch::autograd::"))
    return type(value).__name__
