"""The demo as a whole, in its short form. What it promises of time is for it to say, not for us."""

from __future__ import annotations

import json

import pytest
from programs import EXAMPLES, ROOT, run, said_until_ctrl_c

pytest.importorskip("rich", reason="rich is not installed")


def _figures(tmp_path, *options: str, program=("-m", "examples.digits"), cwd=ROOT) -> dict:
    path = tmp_path / "figures.json"
    said = run(*program, "--quick", "--json", path, *options, cwd=cwd)
    assert "One asyncio program that serves and trains" in said
    assert "test accuracy" in said
    return json.loads(path.read_text())


@pytest.mark.parametrize("loop", ["asyncio", pytest.param("uvloop", marks=pytest.mark.slow)])
def test_demo_trains_while_it_answers(tmp_path, loop):
    """On uvloop it is run by its path, from elsewhere."""
    if loop == "asyncio":
        figures = _figures(tmp_path, "--only", "asyncgrad")
    else:
        pytest.importorskip("uvloop", reason="uvloop is not installed")
        by_path = (EXAMPLES / "digits" / "__main__.py",)
        figures = _figures(
            tmp_path, "--only", "asyncgrad", "--uvloop", program=by_path, cwd=tmp_path
        )
    (result,) = figures["results"]
    assert result["accuracy"] >= 0.97
    assert len(result["losses"]) == 152  # two of them are made while everything warms up
    assert result["losses"][-1] < 0.2 < 2.0 < result["losses"][0]
    without, beside = result["without_training"], result["with_training"]
    assert without["requests"] > 0
    assert without["steps_seen"] == 1
    assert without["right"] < 0.5  # before training
    assert beside["requests"] > 0
    assert beside["steps_seen"] > 1  # answers came from weights of many steps
    assert beside["right"] > 0.6
    assert result["answered"] >= without["requests"] + beside["requests"]
    for phase in (without, beside):
        assert 0.0 < phase["p50_ms"] <= phase["p99_ms"] <= phase["max_ms"]


@pytest.mark.slow
@pytest.mark.torch
def test_demo_compares_with_pytorch_and_learns_the_same(tmp_path):
    figures = _figures(tmp_path)
    ours, inline, threaded = figures["results"]
    assert [r["variant"] for r in figures["results"]] == [
        "asyncgrad",
        "torch-inline",
        "torch-thread",
    ]
    assert inline["losses"] == threaded["losses"]
    assert ours["losses"][:20] == pytest.approx(inline["losses"][:20], rel=1e-3)
    assert len(figures["checks"]) == 5


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["--only", "asyncgrad"], marks=pytest.mark.slow),
        pytest.param(["--only", "asyncgrad", "--quick", "--uvloop"], marks=pytest.mark.slow),
        ["--quick"],
    ],
    ids=["asyncio", "uvloop", "all variants"],
)
def test_ctrl_c_ends_the_demo_cleanly(options):
    """Typed on its terminal in the midst of training: no traceback, status 130, nothing left."""
    if "--uvloop" in options:
        pytest.importorskip("uvloop", reason="uvloop is not installed")
    said = said_until_ctrl_c(b"loss", "-m", "examples.digits", *options)
    for word in (b"Traceback", b"Error", b"Warning", b"xception", b"accuracy"):
        assert word not in said, said.decode()
