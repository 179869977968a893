"""The tables in the documents take the figures of a run."""

import pytest

pytest.importorskip("torch")

from benchmarks.page import refreshed

TABLE = """Machine: an older one, load 1.00 before, 2.00 after.

| case | asyncgrad | beside | result | aim | |
| --- | --- | --- | --- | --- | --- |
| import | 200 ms | torch 800; numpy 60.0 | 0.25 of torch | ≤ 0.2 | **no** |
| import | 200 ms | numpy 60.0 | 3.33 of numpy |  |  |
| lag | 2.00 ms | idle 1.00 | 2.00 ms | ≤ 1 ms | **no** |
| | another table | | | | |
"""


def figure(name, ours, unit, *, beside, result, to=None, to_reach, reached):
    """One row of a run's figures."""
    return {
        "case": "any", "figure": name, "unit": unit, "ours": {"median": ours},
        "beside": {side: {"median": value} for side, value in beside.items()},
        "ratio": None if to is None else {"median": result}, "result": result, "to": to,
        "to_reach": to_reach, "at_least": False, "reached": reached,
    }  # fmt: skip


def test_rows_that_were_measured_take_their_new_figures():
    """By the figure's name and what it is a ratio to; all else stays."""
    rows = [
        figure(
            "import", 100.0, "ms", beside={"torch": 1000.0, "numpy": 50.0}, result=0.1, to="torch",
            to_reach=0.2, reached=True,
        ),
        figure("lag", 0.5, "ms", beside={"idle": 0.25}, result=0.5, to_reach=1.0, reached=True),
        {"case": "other", "reason": "was not run"},
    ]  # fmt: skip
    machine = {
        "cpu": "Abacus", "cores": 2, "system": "Linux", "python": "3.11.0", "numpy": "2",
        "torch": "2.13", "uvloop": None,
    }  # fmt: skip
    runs = [{"machine": machine, "load": {"before": 0.1, "after": 0.2}, "rows": rows}]
    lines = refreshed(TABLE, runs).split("\n")
    old = TABLE.split("\n")
    assert lines[0] == (
        "Machine: Abacus, 2 cores, Linux; Python 3.11.0, NumPy 2, PyTorch 2.13, uvloop None; load "
        "0.10 before, 0.20 after."
    )
    assert lines[4] == "| import | 100 ms | torch 1000; numpy 50.0 | 0.10 of torch | ≤ 0.2 | yes |"
    assert lines[6] == "| lag | 0.500 ms | idle 0.250 | 0.500 ms | ≤ 1 ms | yes |"
    for place in (1, 2, 3, 5, 7, 8):
        assert lines[place] == old[place]
    runs[0]["machine"]["numba"] = "0.61.0"
    assert "PyTorch 2.13, Numba 0.61.0, uvloop None" in refreshed(TABLE, runs)
