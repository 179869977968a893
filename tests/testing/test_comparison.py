"""Comparisons of results, and tensors to test with, beside PyTorch's."""

import math
import re
from collections import OrderedDict

import numpy as np
import pytest

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = pytest.mark.torch

NAN, INF = float("nan"), float("inf")

#: What is compared, and how.
PAIRS = {
    "close": lambda T: (T([1.0, 2.0]), T([1.0, 2.0 + 1e-6])),
    "not close": lambda T: (T([1.0, 2.0, 3.0]), T([1.0, 2.0, 4.0])),
    "all of a matrix": lambda T: (T([[2.0, 2.0]]), T([[1.0, 1.0]])),
    "integers": lambda T: (T([1, 2, 3]), T([1, 2, 4])),
    "large integers": lambda T: (T([2**62 + 1]), T([2**62])),
    "truths": lambda T: (T([True, False]), T([True, True])),
    "complex": lambda T: (T([1 + 1j]), T([1 + 2j])),
    "about zero": lambda T: (T([0.0]), T([1e-6])),
    "not quite zero": lambda T: (T([0.0]), T([1e-4])),
    "over zero": lambda T: (T([0.0, 1.0]), T([0.0, 0.0])),
    "a scalar": lambda T: (T(1.0), T(2.0)),
    "nothing": lambda T: (T([]), T([])),
    "NaN": lambda T: (T([1.0, NAN]), T([1.0, NAN])),
    "NaN by agreement": lambda T: (T([NAN]), T([NAN]), {"equal_nan": True}),
    "a tolerance in a tensor": lambda T: (T([1.0]), T([2.0]), {"rtol": 0, "atol": T(0.5)}),
    "a sufficient one": lambda T: (T([1.0]), T([2.0]), {"rtol": 0, "atol": T(1.5)}),
    "NaN and a number": lambda T: (T([1.0, NAN]), T([1.0, 1.0])),
    "infinity": lambda T: (T([INF, -INF]), T([INF, -INF])),
    "infinity and a number": lambda T: (T([INF]), T([1.0])),
    "what requires grad": lambda T: (T([1.0], requires_grad=True), T([1.0])),
    "shapes": lambda T: (T([1.0]), T([1.0, 2.0])),
    "dtypes": lambda T: (T([1.0]), T([1.0]).double()),
    "dtypes that may differ": lambda T: (T([1.0]), T([1.0]).double(), {"check_dtype": False}),
    "an integer": lambda T: (T([1, 2]), T([1.0, 2.5]), {"check_dtype": False}),
    "strides": lambda T: (T([[1.0, 1], [1, 1]]).t(), T([[1.0, 1], [1, 1]]), {"check_stride": True}),
    "halves": lambda T: (T([1.0]).half(), T([1.01]).half()),
    "tolerances": lambda T: (T([1.0]), T([2.0]), {"rtol": 0, "atol": 1.5}),
    "tolerances that are too small": lambda T: (T([1.0]), T([2.0]), {"rtol": 0.1, "atol": 0.5}),
    "one tolerance": lambda T: (T([1.0]), T([1.0]), {"rtol": 1}),
    "the other tolerance": lambda T: (T([1.0]), T([1.0]), {"atol": 1}),
    "a message": lambda T: (T([1.0]), T([2.0]), {"msg": "mine"}),
    "a message made of another": lambda T: (T([1]), T([2]), {"msg": lambda text: f"mine: {text}"}),
    "numbers": lambda T: (1.0, 2.0),
    "whole numbers": lambda T: (1, 2),
    "a whole number and another": lambda T: (1, 1.0),
    "complex numbers": lambda T: (1 + 1j, 1 + 2j),
    "NaN as a number": lambda T: (NAN, NAN),
    "NumPy's numbers": lambda T: (np.float32(1), np.float32(2)),
    "True": lambda T: (True, False),
    "True as a tensor": lambda T: (T(True), T(False)),
    "a number of more than 64 bits": lambda T: (2**70, 2**70, {"equal_nan": True}),
    "None": lambda T: (None, None),
    "None and a number": lambda T: (None, 1),
    "words": lambda T: ("a", "a"),
    "a tensor and a number": lambda T: (T(1.0), 1.0),
    "arrays": lambda T: (np.ones(2), np.ones(2)),
    "arrays that differ": lambda T: (np.ones(2), np.zeros(2)),
    "an array and a tensor": lambda T: (np.ones(2), T([1.0, 1.0])),
    "a list": lambda T: ([T([1.0]), 2.0], [T([1.0]), 3.0]),
    "a list and a tuple": lambda T: ([1, 2], (1, 2)),
    "a shorter list": lambda T: ([1], [1, 2]),
    "a list and a word": lambda T: (["a"], "a"),
    "a word and a list": lambda T: ("a", ["a"]),
    "a list of words": lambda T: ([1.0, "a"], [1.0, "a"]),
    "mappings": lambda T: (OrderedDict(a=1), {"a": 1}),
    "keys": lambda T: ({"a": 1}, {"b": 1}),
    "lists in mappings": lambda T: ({"a": [1.0, T([1.0])]}, {"a": [1.0, T([2.0])]}),
}


def _outcome(name, library):
    actual, expected, *options = PAIRS[name](library.tensor)
    try:
        library.testing.assert_close(actual, expected, **(options[0] if options else {}))
    except Exception as error:
        text = str(error).replace("torch.", "asyncgrad.")
        return type(error), re.sub(r"'asyncgrad\.[a-z.]*Tensor'", "'Tensor'", text)
    return None


@pytest.mark.parametrize("name", PAIRS)
def test_errors_and_what_they_say_are_pytorchs(name):
    mine, theirs = _outcome(name, ag), _outcome(name, torch)
    assert mine == theirs


@pytest.mark.parametrize(("one", "other"), [(2**62, -(2**62)), (2**63 - 1, -(2**63))])
@pytest.mark.parametrize("options", [{}, {"rtol": 0.5, "atol": 1}])
def test_integers_may_differ_by_more_than_int64_holds(one, other, options):
    with pytest.raises(AssertionError, match=f"Greatest absolute difference: {one - other} at"):
        ag.testing.assert_close(ag.tensor([one]), ag.tensor([other]), **options)
    with pytest.raises(AssertionError, match=f"Greatest absolute difference: {one - other} at"):
        ag.testing.assert_close(ag.tensor([other]), ag.tensor([one]), **options)


def test_tolerances_are_not_negative():
    """Nothing would be close; PyTorch's error is one about itself."""
    with pytest.raises(RuntimeError, match="greater than or equal to zero, but got -1 and 0"):
        ag.testing.assert_close(ag.tensor([1.0]), ag.tensor([1.0]), rtol=-1, atol=0)
    with pytest.raises(RuntimeError, match="but got 0 and nan"):
        ag.testing.assert_close(ag.tensor([1.0]), ag.tensor([1.0]), rtol=0, atol=float("nan"))


def test_gradients_of_rows_are_compared_as_what_they_stand_for():
    table = ag.ones(3, 2, requires_grad=True)
    ag.nn.functional.embedding(ag.tensor([1]), table, sparse=True).sum().backward()
    dense = ag.tensor([[0.0, 0], [1, 1], [0, 0]])
    ag.testing.assert_close(table.grad, dense, check_layout=False)
    with pytest.raises(AssertionError, match="attribute 'layout'"):
        ag.testing.assert_close(table.grad, dense)


FLOATING = ("float16", "bfloat16", "float32", "float64", "complex64")
MADE = {
    "a sequence": ((2, 3), {}),
    "a noncontiguous one": ((2, 3), {"noncontiguous": True}),
    "one that can't be": ((1,), {"noncontiguous": True}),
    "an empty one": ((0, 3), {"noncontiguous": True}),
    "a leaf": ((3,), {"requires_grad": True, "noncontiguous": True}),
    "no dimensions": ((), {}),
    "between": ((50,), {"low": 0, "high": 2}),
    "beyond": ((50,), {"low": -1e9, "high": 1e9}),
    "outside": ((3,), {"low": 1e308, "high": INF}),
    "no interval": ((3,), {"low": 2, "high": 1}),
    "NaN": ((3,), {"low": NAN}),
    "infinite": ((3,), {"low": -INF, "high": INF}),
    "no zero": ((200,), {"exclude_zero": True, "low": 0, "high": 2}),
}


@pytest.mark.parametrize("dtype", [*FLOATING, "bool", "uint8", "int8", "int64"])
@pytest.mark.parametrize("name", MADE)
def test_tensors_are_made_as_pytorchs(name, dtype):
    """Other numbers, of the same interval."""
    shape, options = MADE[name]

    def made(library):
        kind = getattr(library, dtype)
        try:
            x = library.testing.make_tensor(shape, dtype=kind, device="cpu", **options)
        except Exception as error:
            return type(error)
        # NumPy gives arrays without elements other strides.
        strides = x.stride() if x.numel() else None
        return str(x.dtype).rpartition(".")[2], tuple(x.shape), strides, x.requires_grad

    assert made(ag) == made(torch)
    if not isinstance(made(ag), type) and dtype != "complex64":
        x = ag.testing.make_tensor(*shape, dtype=getattr(ag, dtype), **options).detach().double()
        low, high = options.get("low", -9), options.get("high", 10)
        assert ((x >= low) & (x <= high)).all()
        assert not math.isnan(x.sum().item())
        assert (x != 0).all() or "exclude_zero" not in options
