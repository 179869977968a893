"""The reference page, which is written by a tool."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

import asyncgrad as ag

ROOT = Path(__file__).parent.parent
_SPEC = importlib.util.spec_from_file_location("make_reference", ROOT / "tools/make_reference.py")
make_reference = importlib.util.module_from_spec(_SPEC)
sys.modules["make_reference"] = make_reference
_SPEC.loader.exec_module(make_reference)


def test_the_page_is_up_to_date():
    """Otherwise run `python tools/make_reference.py`."""
    assert make_reference.PAGE.read_text(encoding="utf-8") == make_reference.page()


def test_every_entry_stands_on_the_page_once():
    page = make_reference.page()
    rows = re.findall(r"^\| `(\w+)` \|", page[page.index("## The table") :], re.MULTILINE)
    names = [entry.name for chapter in make_reference.registry.CHAPTERS for entry in chapter.OPS]
    assert rows == names


def test_chapters_that_share_a_title_lose_no_function():
    """A second function of one name would take the place of the first."""
    found = {id(f) for rows in make_reference.functions().values() for _, f in rows.values()}
    for chapter in make_reference.CHAPTERS:
        for name in {*chapter.__all__, *chapter.METHODS}:
            assert id(getattr(chapter, name)) in found, name


def _tensors(result):
    if isinstance(result, ag.Tensor):
        yield result
    elif isinstance(result, tuple | list):
        for part in result:
            yield from _tensors(part)


def test_what_has_no_derivative_on_the_page_gives_none():
    """Tried with arguments that most of them take."""
    x = ag.rand(3, 3, requires_grad=True)
    tried = 0
    for rows in make_reference.functions().values():
        for name, (_, function) in rows.items():
            if make_reference.derivative(name, function)[0] != "none":
                continue
            for arguments in ((x,), (x, 1), (x, x), ([x, x],), (x, (3, 3))):
                try:
                    results = [y for y in _tensors(function(*arguments)) if y.grad_fn is not None]
                except Exception:  # It takes other arguments.
                    continue
                tried += 1
                for result in results:
                    with pytest.raises(RuntimeError, match="not differentiable|derivative"):
                        ag.grad(result.sum(), x)
    assert tried > 50


def test_differences_are_of_functions_that_there_are():
    named = {name for rows in make_reference.functions().values() for name in rows}
    assert set(make_reference.DIFFERENCES) <= named
    assert set(make_reference.NAMED) <= named


@pytest.mark.torch
def test_what_has_a_derivative_in_pytorch_has_one_on_the_page():
    """And the other way round."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    import oracle
    import recorded_calls

    pages = make_reference.functions()
    known = {name: f for rows in pages.values() for name, (_, f) in rows.items()}
    compared = 0
    for name in recorded_calls.DIFFERENTIABLE:
        short = name.rpartition(".")[2]
        if short not in known:
            continue
        theirs = any(
            op.supports_autograd and any(d.is_floating_point for d in op.supported_dtypes("cpu"))
            for op in oracle.infos(name)
        )
        ours, _ = make_reference.derivative(short, known[short])
        assert (ours != "none") == theirs, name
        compared += 1
    assert compared > 140
