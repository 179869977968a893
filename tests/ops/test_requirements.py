"""Conditions on arguments: what is checked, and what errors say."""

from __future__ import annotations

import builtins
import re

import numpy as np
import pytest

import asyncgrad as ag
from asyncgrad.ops.converted import converted
from asyncgrad.ops.requirements import requires, unmet
from asyncgrad.types import Tensor

SIZES = {3, 4}


@converted
@requires("input.ndim in SIZES", "input.dtype in {float32, float64}", "groups > 0")
@requires("weight.shape == input.shape[1:2]  # one weight per row", "weight is None or groups < 9")
@requires("'sum' != word  # no sums. Add the results", error=ValueError)
def of_relations(
    input: Tensor, groups: int = 1, weight: Tensor | None = None, word: str = ""
) -> Tensor:
    """What the function gets."""
    return input


@pytest.mark.parametrize(("arguments", "error", "message"), [
    ({"input": ag.ones(2)}, RuntimeError,
     "expected input.ndim in SIZES, but got input.shape = (2,)."),
    ({"input": ag.ones(1, 1, 1).long()}, RuntimeError,
     "expected input.dtype in {float32, float64}, but got input.dtype = int64. Convert it with "
     ".to()."),
    ({"groups": 0}, RuntimeError, "expected groups > 0, but got groups = 0."),
    ({"weight": ag.ones(4)}, RuntimeError,
     "one weight per row, but got weight.shape = (4,), input.shape = (2, 3, 4)."),
    ({"weight": ag.ones(3), "groups": 9}, RuntimeError,
     "expected weight is None or groups < 9, but got weight.shape = (3,), groups = 9."),
    ({"word": "sum"}, ValueError, "no sums, but got word = 'sum'. Add the results."),
])  # fmt: skip
def test_an_unmet_condition_is_named_with_its_values(arguments, error, message):
    x = ag.ones(2, 3, 4)
    assert of_relations(x, 8, ag.ones(3)) is x
    with pytest.raises(error) as caught:
        of_relations(**{"input": x, **arguments})
    assert str(caught.value) == f"of_relations(): {message}"


def test_what_was_found_is_said_by_the_arguments_names():
    error = unmet("fold", "as many blocks as counts", counts=np.ones(1), k=1, shape=ag.Size([2]))
    assert str(error) == (
        "fold(): as many blocks as counts, but got counts = [1.0], k = 1, shape = (2,)."
    )
    assert str(unmet("fold", "fold takes 3. Did you unfold?")) == "fold takes 3. Did you unfold?"
    kinds = {"dtype": np.dtype("int64"), "x": ag.ones(2).dtype, "parts": [ag.ones(1), None]}
    assert str(unmet("fold", "no reals", ValueError, **kinds)) == (
        "fold(): no reals, but got dtype = int64, x.dtype = float32, parts of shapes [(1,), ()]. "
        "Convert it with .to()."
    )


def test_each_condition_names_arguments_and_what_is_known():
    """Functions compile their conditions at the first call, and evaluate some only for errors."""
    seen = 0
    for space in (ag, ag.linalg, ag.fft, ag.special, ag.nn.functional, ag.Tensor):
        for function in vars(space).values():
            bare = getattr(function, "__wrapped__", None)
            if not hasattr(bare, "requirements"):
                continue
            finish = function.__globals__.get("finished", lambda made=function: made)
            code = finish().__code__
            unknown = set(code.co_names) - function.__globals__.keys() - vars(builtins).keys()
            conditions = " ".join([text.partition("  # ")[0] for text, _ in bare.requirements])
            assert not {x for x in unknown if re.search(rf"(?<!\.)\b{x}\b", conditions)}
            seen += 1
    assert seen > 100
