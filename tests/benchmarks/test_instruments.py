"""What the benchmark of instruments that are off takes out: them, and nothing else."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import asyncgrad

pytest.importorskip("torch", reason="benchmarks need PyTorch")

from benchmarks.instruments import _MODULES, strip


def test_branches_that_ask_for_them_are_taken_out() -> None:
    source = """
if careful or node.extras is not None:
    slowly()
elif rule is None and node.extras is None:
    leaf()
if task.observer is not None:
    look()
if node.extras is None:
    quickly()
careful = other
"""
    stripped, count = strip(source)
    assert stripped == ast.unparse(
        ast.parse("if rule is None:\n    leaf()\npass\nquickly()\ncareful = other")
    )
    assert count == 5


def test_all_else_stays() -> None:
    source = "if (a or b) and (not c):\n    if node.rule is None:\n        x = z or y()"
    assert strip(source) == (source, 0)


@pytest.mark.parametrize("module", _MODULES)
def test_there_are_some(module: str) -> None:
    source = (Path(asyncgrad.__file__).parent / module).read_text(encoding="utf-8")
    stripped, count = strip(source)
    assert count
    assert len(stripped) < len(source)
    compile(stripped, module, "exec")
