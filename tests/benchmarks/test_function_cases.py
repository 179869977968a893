"""The functions that are timed beside PyTorch: all that are promised, with equal results."""

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

from promised import MUST

from benchmarks.functions import CASES, TINY
from benchmarks.reasons import AT_LARGE, AT_TINY
from benchmarks.table import both_sides

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_gives_what_pytorch_gives(case):
    """A comparison of speed is one of the same work."""
    for work in both_sides(case, TINY).values():
        work()


def test_every_promised_function_has_a_case():
    """Each name alone or with a remark in brackets."""
    timed = {case.name.partition(" (")[0] for case in CASES}
    assert {name for names in MUST.values() for name in names} <= timed


def test_a_reason_belongs_to_a_case():
    """Reasons outlive no case."""
    assert {*AT_TINY, *AT_LARGE} <= {case.name for case in CASES}
