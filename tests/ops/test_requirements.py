"""Conditions on arguments: what is checked, and what errors say."""

from __future__ import annotations

import ast
import builtins
import re
from pathlib import Path

import numpy as np
import pytest

import asyncgrad as ag
from asyncgrad.ops.converted import converted
from asyncgrad.ops.requirements import requires, unmet
from asyncgrad.types import Tensor

SIZES = {3, 4}


@converted
@requires("input.ndim in SIZES", "input.dtype in {float32, float64}", "groups > 0")
@requires("weight.shape == input.shape[1:2]", "weight is None or groups < 9")
@requires("'sum' != word", error=ValueError)
def of_relations(
    input: Tensor, groups: int = 1, weight: Tensor | None = None, word: str = ""
) -> Tensor:
    """What the function gets."""
    return input


@pytest.mark.parametrize(("arguments", "error", "message"), [
    ({"input": ag.ones(2)}, RuntimeError, "input.ndim in SIZES, but got input.shape = (2,)"),
    ({"input": ag.ones(1, 1, 1).long()}, RuntimeError,
     "input.dtype in {float32, float64}, but got input.dtype = int64"),
    ({"groups": 0}, RuntimeError, "groups > 0, but got groups = 0"),
    ({"weight": ag.ones(4)}, RuntimeError,
     "weight.shape == input.shape[1:2], but got weight.shape = (4,), input.shape = (2, 3, 4)."),
    ({"weight": ag.ones(3), "groups": 9}, RuntimeError, "weight is None or groups < 9, but got"),
    ({"word": "sum"}, ValueError, "'sum' != word, but got word = 'sum'"),
])  # fmt: skip
def test_an_unmet_condition_is_named_with_its_values(arguments, error, message):
    x = ag.ones(2, 3, 4)
    assert of_relations(x, 8, ag.ones(3)) is x
    with pytest.raises(error, match=re.escape(f"of_relations(): expected {message}")):
        of_relations(**{"input": x, **arguments})


def test_values_that_a_function_computes_are_named_as_it_names_them():
    found = np.zeros((2, 3))
    error = unmet("fold", "found.size >= len(counts)", {"found": found, "counts": [7], "k": 1})
    assert str(error) == (
        "fold(): expected found.size >= len(counts), but got found.shape = (2, 3), counts = [7]."
    )
    assert str(unmet("fold", "something else", {})) == "fold(): expected something else"
    kinds = {"dtype": np.dtype("int64"), "x": ag.ones(2), "parts": [ag.ones(1), None]}
    assert str(unmet("fold", "a real dtype of parts, or of x", kinds)) == (
        "fold(): expected a real dtype of parts, or of x, but got dtype = dtype('int64'), "
        "parts of shapes [(1,), ()], x.dtype = float32. Convert it with .to()."
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
            assert not {x for x in unknown if re.search(rf"(?<!\.)\b{x}\b", str(bare.requirements))}
            seen += 1
    assert seen > 100


def _errors():
    """The conditions that functions state with `unmet`, with the names that they know."""
    for path in sorted(Path(ag.__file__).parent.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "unmet(" not in text or path.name == "requirements.py":
            continue
        functions = [one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.FunctionDef)]
        for function in functions:
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and ast.unparse(call.func) == "unmet":
                    around = [one for one in functions if call in ast.walk(one)]
                    inside = [part for one in around for part in ast.walk(one)]
                    known = {one.arg for one in inside if isinstance(one, ast.arg)}
                    stored = [
                        one for one in inside if isinstance(getattr(one, "ctx", None), ast.Store)
                    ]
                    known |= {one.id for one in stored if isinstance(one, ast.Name)}
                    yield f"{path.name}:{call.lineno}", ast.unparse(call.args[1]), known


def test_conditions_name_values_that_their_functions_know():
    """A value that is renamed would no longer be shown."""
    found = list(_errors())
    assert len(found) > 150
    for place, condition, known in found:
        words = set(re.findall(r"(?<![\w.])[a-zA-Z_]\w*", condition))
        attributes = set(re.findall(r"(?<![\w.{])([a-zA-Z_]\w*)\.(?:shape|ndim|dtype)", condition))
        assert attributes <= known, f"{place}: {condition}"
        of_kind = "sparse" in condition or "coalesced" in condition
        assert words & known or of_kind, f"{place}: {condition}"
