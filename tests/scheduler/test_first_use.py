"""What is made when it is first needed, by two threads at the same time: both have the same.

Nothing waits here and there is no other thread: what it would do is done where Python may let it
run, which is while the first one makes the thing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from passes import leaf

import asyncgrad as ag
from asyncgrad.core.hooks import NodeExtras
from asyncgrad.core.variable import AutogradMeta, VersionCounter, autograd_meta

if TYPE_CHECKING:
    from collections.abc import Callable

Meanwhile = "Callable[[type, Callable[[], Any]], None]"


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    """Has a function called while the next object of a class is made."""

    def arrange(kind: Any, other: Callable[[], Any]) -> None:
        make = kind.__init__

        def preempted(self: Any) -> None:
            monkeypatch.undo()
            other()
            make(self)

        monkeypatch.setattr(kind, "__init__", preempted)

    return arrange


def test_a_step_knows_of_the_graphs_of_both(meanwhile: Meanwhile) -> None:
    """It changes no values that the other one's graph has saved."""
    x, w = leaf(), leaf()
    losses: list[Any] = []
    meanwhile(VersionCounter, lambda: losses.append((x * w).sum()))
    (x * w).sum()
    w.grad = ag.ones_like(w)
    ag.optim.SGD([w], lr=0.5).step()
    losses[0].backward()
    assert w.tolist() == [0.5, 0.5, 0.5]
    assert x.grad.tolist() == [1.0, 1.0, 1.0]


def test_a_change_of_a_result_is_seen_by_the_graphs_of_both(meanwhile: Meanwhile) -> None:
    x = leaf()
    y = x * 2.0
    losses: list[Any] = []
    meanwhile(VersionCounter, lambda: losses.append((y * y).sum()))
    (y * y).sum()
    y.mul_(3.0)
    with pytest.raises(RuntimeError, match=r"in.?place"):
        losses[0].backward()


def test_fields_that_both_set_are_all_there(meanwhile: Meanwhile) -> None:
    y = leaf() * 2.0

    def name() -> None:
        autograd_meta(y).name = "y"

    meanwhile(AutogradMeta, name)
    y.retain_grad()
    y.sum().backward()
    assert y.grad.tolist() == [1.0, 1.0, 1.0]
    assert autograd_meta(y).name == "y"


def test_hooks_that_both_register_are_all_called(meanwhile: Meanwhile) -> None:
    y = leaf() * 2.0
    called: list[str] = []
    meanwhile(NodeExtras, lambda: y.register_hook(lambda gradient: called.append("first")))
    y.register_hook(lambda gradient: called.append("second"))
    y.sum().backward()
    assert called == ["first", "second"]
