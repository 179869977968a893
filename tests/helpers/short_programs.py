"""Programs of a line each, run in PyTorch and here.

A program is an expression, perhaps after statements, separated by semicolons. It has the library as
`T`, its namespaces by the names of `_NAMESPACES`, and `t`, which makes a tensor.
"""

import copy
import importlib
import pickle
import warnings

import numpy as np
import pytest

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

_NAMESPACES = {
    "D": "distributions", "F": "nn.functional", "func": "func", "nn": "nn", "optim": "optim",
    "prune": "nn.utils.prune", "P": "nn.utils.parametrize", "S": "optim.lr_scheduler",
    "data": "utils.data", "utils": "nn.utils",
}  # fmt: skip


def differences(programs, before=""):
    """What differs, for each program that ends in another way here than in PyTorch.

    Args:
        programs: the programs, in lines; empty lines and comments are left out.
        before: statements that are run before each program.
    """
    lines = [line for line in map(str.strip, programs.splitlines()) if line and line[0] != "#"]
    found = []
    for line in lines:
        theirs, ours = _outcome(torch, line, before), _outcome(ag, line, before)
        raised = isinstance(theirs, type) and isinstance(ours, type) and issubclass(ours, theirs)
        if not raised and not _same(theirs, ours):
            found.append(f"{line}\n    PyTorch: {theirs}\n    here:    {ours}")
    return found


def _outcome(library, program, before):
    """The value of a program as plain data, or the class of its error."""
    names = {"T": library, "t": library.tensor, "np": np, "copy": copy, "pickle": pickle}
    names |= {
        name: importlib.import_module(f"{library.__name__}.{path}")
        for name, path in _NAMESPACES.items()
    }
    *statements, last = program.split("; ")
    library.manual_seed(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec("\n".join([before, *statements]), names)
            return _plain(eval(last, names), library)
    except Exception as error:
        return type(error)


def _plain(value, library):
    if isinstance(value, library.Tensor):
        value = value.detach()
        return str(value.dtype).rpartition(".")[2], np.array(value.numpy())
    if isinstance(value, (tuple, list)):
        return [_plain(part, library) for part in value]
    if isinstance(value, dict):
        return {key: _plain(part, library) for key, part in value.items()}
    if value is None or isinstance(value, (bool, int, float, complex, bytes)):
        return value
    words = value if isinstance(value, str) else repr(value)
    return words.replace("torch.", "").replace("asyncgrad.", "")


def _same(one, other):
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.shape == other.shape and np.allclose(one, other, 1e-4, 1e-6, equal_nan=True)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, float) and isinstance(other, float):
        return one == pytest.approx(other, rel=1e-5, nan_ok=True)
    return type(one) is type(other) and one == other
