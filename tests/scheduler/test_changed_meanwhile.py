"""A tensor that is changed in place while a thread's node reads it: the pass says so."""

from __future__ import annotations

import asyncio
import threading
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from passes import HEAVY, assert_nothing_runs, calls, until

import asyncgrad as ag
from asyncgrad.core.node import Freed
from asyncgrad.errors import SavedTensorModifiedError
from asyncgrad.scheduler.helpers import Helpers

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.asyncio


class Held:
    """Rules that have read what they need, and do not return before they are told to."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.go_on = threading.Event()

    def hold(self, value: ag.Tensor) -> ag.Tensor:
        """Have the rule of a tensor's node wait in a thread, the first time."""
        node = value.grad_fn
        rule = node.rule = copy(node.rule)
        rule.run = partial(self._run, rule.run)
        if rule.pulls is not None:
            rule.pulls = tuple(partial(self._run, pull) for pull in rule.pulls)
            rule.apart = None if rule.apart is None else rule.pulls
        node.cost = HEAVY
        return value

    def _run(self, rule: Callable[..., Any], *facts: Any) -> Any:
        received = rule(*facts)
        self.entered.set()
        assert self.go_on.wait(20)
        return received

    async def change(self, change: Callable[[], Any]) -> None:
        """Change something while they wait, in another task: this one has a pass to await."""

        async def change_here() -> None:
            with ag.no_grad():
                change()

        await until(self.entered.is_set)
        try:
            await asyncio.create_task(change_here())
        finally:
            self.go_on.set()


def tensor(values: Any = 0.5, requires_grad: bool = False) -> ag.Tensor:
    return ag.tensor(np.full(4, values), requires_grad=requires_grad)


def load(w: ag.Tensor) -> None:
    module = ag.nn.Module()
    module.register_buffer("w", w)
    module.load_state_dict({"w": tensor(0.25)})


def move(w: ag.Tensor) -> None:
    ag.nn.functional.batch_norm(ag.ones(2, 4, dtype=ag.float64), w, tensor(), training=True)


CHANGES: dict[str, Callable[[ag.Tensor], Any]] = {
    "an operator": lambda w: w.__isub__(1.0),
    "an index": lambda w: w.__setitem__(0, 2.0),
    "a mask": lambda w: w.__setitem__(w > 0, 2.0),
    "a view": lambda w: w[1:].zero_(),
    "an alias": lambda w: w.detach().zero_(),
    "out": lambda w: ag.add(tensor(), tensor(), out=w),
    "initialisation": ag.nn.init.ones_,
    "load_state_dict": load,
    "batch_norm": move,
    "clip_grad_norm_": lambda w: clip(w, ag.nn.utils.clip_grad_norm_),
    "clip_grad_value_": lambda w: clip(w, ag.nn.utils.clip_grad_value_),
}


def clip(w: ag.Tensor, how: Callable[..., Any]) -> None:
    parameter = tensor(requires_grad=True)
    parameter.grad = w
    how([parameter], 0.1)


def methods() -> dict[str, Callable[[ag.Tensor], Any]]:
    """Every method that changes a tensor in place and takes nothing, a number or a tensor."""
    found: dict[str, Callable[[ag.Tensor], Any]] = {}
    for name in dir(ag.Tensor):
        if not name.endswith("_") or name.endswith("__") or name.startswith("_"):
            continue
        for arguments in ((), (0.25,), (tensor(0.25),), (0, 1), (0, ag.tensor([1]), 0.25)):
            probe = tensor()
            try:
                with ag.no_grad():
                    getattr(probe, name)(*arguments)
            except Exception:
                continue
            if probe._version and probe.shape == (4,):
                found[name] = lambda w, name=name, facts=arguments: getattr(w, name)(*facts)
                break
    return found


async def test_a_change_of_any_kind_fails_the_pass() -> None:
    """By every method of a tensor that changes it, and by all else that does."""
    changes = CHANGES | methods()
    assert len(changes) > 60
    for name, change in changes.items():
        held = Held()
        x, w = tensor(requires_grad=True), tensor()
        future = held.hold(x * w).sum().backward()
        await held.change(partial(change, w))
        with pytest.raises(SavedTensorModifiedError, match="modified by an inplace"):
            await future
        assert x.grad is None, name
    await assert_nothing_runs()


@pytest.mark.parametrize("way", ["plain", "hook", "create_graph", "trimmed", "lent", "split"])
async def test_whichever_way_the_node_is_run(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held()
    x, w = tensor(requires_grad=True), tensor(requires_grad=True)
    y = x * w
    if way == "hook":
        y.register_hook(lambda gradient: None)
    if way == "split":
        monkeypatch.setattr(Helpers, "splits", lambda self: True)
    held.hold(y)
    if way == "lent":
        y = y + calls(x, lambda: None, HEAVY)
    loss = y.sum()
    future = ag.grad(loss, x) if way == "trimmed" else loss.backward(create_graph=way[0] == "c")
    await held.change(w.zero_)
    with pytest.raises(SavedTensorModifiedError):
        await future
    assert (x.grad, w.grad) == (None, None)
    await assert_nothing_runs()


@pytest.mark.parametrize("op", [ag.square, ag.mul, ag.tanh, ag.sum])
@pytest.mark.parametrize("way", ["plain", "hook", "create_graph", "lent"])
async def test_what_another_pass_releases_meanwhile_is_used(
    op: Callable[..., Any], way: str
) -> None:
    """It was there when the rule began. In PyTorch the other pass waits until the node has run."""
    held = Held()
    x = tensor(requires_grad=True)
    y = op(x, tensor()) if op is ag.mul else op(x)
    node = y.grad_fn
    if way == "hook":
        y.register_hook(lambda gradient: None)
    held.hold(y)
    if way == "lent":
        y = y + calls(x, lambda: None, HEAVY)
    future = y.sum().backward(retain_graph=True, create_graph=way[0] == "c")
    await held.change(lambda: node.release_saved(Freed().remember()))
    await future
    assert x.grad is not None
    await assert_nothing_runs()


async def test_what_is_not_read_may_be_changed() -> None:
    held = Held()
    x, w = tensor(requires_grad=True), tensor()
    future = held.hold(x + w).sum().backward()
    await held.change(w.zero_)
    await future
    assert x.grad.tolist() == [1.0] * 4


async def test_a_gradient_that_is_read_while_another_pass_adds_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its version is another before the first value is."""
    x = ag.tensor(np.ones(3), requires_grad=True)
    x.grad = ag.ones_like(x)
    weight = ag.tensor(np.ones(3), requires_grad=True)
    loss = (weight * x.grad).sum()
    F, errors = x._metadata.F, []
    add = F.add_into

    def add_later(*args: Any) -> None:
        monkeypatch.undo()
        try:
            ag.sync.grad(loss, [weight], retain_graph=True)
        except SavedTensorModifiedError as error:
            errors.append(error)
        add(*args)

    monkeypatch.setattr(F, "add_into", add_later)
    await (x * 2.0).sum().backward()
    assert len(errors) == 1


async def test_the_version_is_another_before_the_first_value_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thread that reads while the loop writes looks at the version when it has read."""
    w = tensor()
    assign = w._metadata.F.assign
    seen: list[int] = []

    def watched(*facts: Any) -> Any:
        seen.append(w._version)
        return assign(*facts)

    monkeypatch.setattr(w._metadata.F, "assign", watched)
    w.copy_(tensor(1.0))
    assert seen == [1]
