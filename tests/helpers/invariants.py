"""The invariants of a pass, which hold between any two of its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncgrad.core.states import DRAINING, ENDED, RUNNING

if TYPE_CHECKING:
    from asyncgrad.core.pass_state import PassState


def validate(task: PassState) -> None:
    """Raise AssertionError where an invariant of a pass is broken."""
    waiting, buffers = task.dependencies, task.not_ready
    ready = [entry[2] for entry in task.ready]
    assert all(count > 0 for count in waiting.values()), "a ready node still waits"
    assert buffers.keys() <= waiting.keys(), "a node has gradients but waits for none"
    assert len(set(ready)) == len(ready), "a node is ready twice"
    assert not set(ready) & waiting.keys(), "a node is ready and waits"
    assert not set(ready) & task.launched.keys(), "a node is ready and handed out"
    assert not task.launched.keys() & waiting.keys(), "a node is handed out and waits"
    if task.state in ENDED or task.state is DRAINING:
        assert not ready, "a pass that ends has ready nodes"
    if task.state in ENDED:
        assert not task.launched, "a pass has ended while nodes run"
    if task.state is RUNNING and not ready and not task.launched and not task.walk:
        assert not waiting, "nodes wait for what never comes"
