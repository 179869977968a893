"""The demo as a whole, in its short form. What it promises of time is for it to say, not for us."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time

import pytest
from programs import EXAMPLES, ROOT, run

pytest.importorskip("rich", reason="rich is not installed")


def _figures(tmp_path, *options: str, program=("-m", "examples.digits"), cwd=ROOT) -> dict:
    path = tmp_path / "figures.json"
    said = run(*program, "--quick", "--json", path, *options, cwd=cwd)
    assert "await loss.backward()" in said
    assert "test accuracy" in said
    return json.loads(path.read_text())


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
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


def _on_a_terminal() -> None:
    os.login_tty(0)
    # Whoever runs the tests in the background may have had Ctrl-C ignored.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize(
    "options",
    [["--only", "asyncgrad"], ["--only", "asyncgrad", "--quick", "--uvloop"], ["--quick"]],
    ids=["asyncio", "uvloop", "all variants"],
)
def test_ctrl_c_ends_the_demo_cleanly(options):
    """Typed on its terminal in the midst of training: no traceback, status 130, nothing left.

    All its processes have the terminal open. Its end shows when the last of them is gone.
    """
    if "--uvloop" in options:
        pytest.importorskip("uvloop", reason="uvloop is not installed")
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-W", "always", "-m", "examples.digits", *options],
        cwd=ROOT,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "100"},
        preexec_fn=_on_a_terminal,
    )
    os.close(theirs)
    said, typed, give_up = b"", False, time.monotonic() + 110
    try:
        while select.select([ours], [], [], give_up - time.monotonic())[0]:
            try:
                part = os.read(ours, 65536)
            except OSError:  # how Linux says that the terminal has no other end any more
                part = b""
            if not part:
                break
            said += part
            if not typed and b"loss" in said:
                os.write(ours, b"\x03")
                typed = True
        else:
            pytest.fail(f"a process is still there: {said.decode()}")
        assert typed, said.decode()
        assert process.wait(100) == 130, said.decode()
        for word in (b"Traceback", b"Error", b"Warning", b"xception", b"accuracy"):
            assert word not in said, said.decode()
    finally:
        process.kill()
        process.wait()
        os.close(ours)
