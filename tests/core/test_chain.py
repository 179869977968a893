"""Passes along a chain run without a `GraphTask`, and differ from others in nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import asyncgrad as ag
from asyncgrad.autograd import new_pass
from asyncgrad.core.chain import is_chain

if TYPE_CHECKING:
    from collections.abc import Callable


def _leaves(count: int) -> list[Any]:
    random = np.random.default_rng(count)
    return [ag.tensor(random.uniform(0.5, 1.5, (3, 3)), requires_grad=True) for _ in range(count)]


def _deep(x: Any, length: int) -> Any:
    for _ in range(length):
        x = x.sin()
    return x


CHAINS: dict[str, Callable[..., Any]] = {
    "one node": lambda x, y: x.exp(),
    "two leaves": lambda x, y: x * y,
    "leaves along the way": lambda x, y: ((x @ y).tanh() * 2).sum(),
    "a rule that gives what it gets": lambda x, y: (x + y).sum(),
    "a gradient that is not defined": lambda x, y: (x * ag.sign(y.exp())).floor().sum(),
    "a constant": lambda x, y: (ag.ones(3, 3) - x).pow(3).mean(),
    "broadcast": lambda x, y: (x * 2 + ag.ones(3)).sum(),
}
OTHERS: dict[str, Callable[..., Any]] = {
    "a leaf twice": lambda x, y: (x * x).sum(),
    "a leaf twice along the way": lambda x, y: ((x * y).exp() * x).sum(),
    "a branch": lambda x, y: (x.exp() * y.exp()).sum(),
    "a branch that joins": lambda x, y: x.exp().square().mul(y).sum() * x.exp().sum(),
    "a shared node": lambda x, y: x.unbind()[0],
    "many nodes": lambda x, y: _deep(x, 100).sum(),
    "a node in Python": lambda x, y: ag.utils.checkpoint.checkpoint(ag.exp, x, use_reentrant=False),
}


def _by_general_pass(root: Any, gradient: Any, **options: Any) -> None:
    """The same pass with a mode in force, of which nodes notice nothing."""
    with ag.request(priority=1):
        root.backward(gradient, **options)


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in CHAINS.items()])
@pytest.mark.parametrize("before", [False, True])
def test_a_chain_gives_the_bits_of_any_other_pass(
    case: Callable[..., Any], before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    grads = []
    for run in (lambda root, g: root.backward(g), _by_general_pass):
        leaves = _leaves(2)
        if before:
            for leaf in leaves:
                leaf.grad = ag.full((3, 3), 0.1, dtype=ag.float64)
        root = case(*leaves)
        gradient = ag.full(root.shape, 1.5, dtype=root.dtype)
        assert is_chain(root._edge)
        with monkeypatch.context() as patched:
            if run is not _by_general_pass:
                patched.setattr(new_pass, "GraphTask", None)
            run(root, gradient)
        grads.append([None if x.grad is None else x.grad.numpy().tobytes() for x in leaves])
    assert grads[0] == grads[1]


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in OTHERS.items()])
def test_other_graphs_are_no_chains(case: Callable[..., Any]) -> None:
    """Their passes need sums, an order, or code that is not a rule."""
    x, y = _leaves(2)
    root = case(x, y)
    assert not is_chain(root._edge)
    root.backward(ag.ones_like(root))
    assert x.grad is not None


def test_hooks_take_the_general_way() -> None:
    (x,) = _leaves(1)
    seen: list[Any] = []
    x.register_hook(seen.append)
    y = x.exp()
    assert not is_chain(y._edge)
    y.sum().backward()
    z = x.exp()
    z.register_hook(seen.append)
    z.sum().backward()
    assert len(seen) == 3


def test_the_gradient_of_a_scalar_is_one() -> None:
    for _ in range(2):
        (x,) = _leaves(1)
        x.sum().backward()
        assert x.grad is not None
        assert x.grad.tolist() == [[1.0] * 3] * 3


def test_saved_values_are_released_unless_they_are_kept() -> None:
    """The error says where the first pass was started."""
    (x,) = _leaves(1)
    y = x.exp().sum()
    y.backward(retain_graph=True)
    y.backward(retain_graph=None)
    with pytest.raises(RuntimeError, match=r"second time.*test_chain\.py"):
        y.backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * np.exp(x.detach().numpy()))


def test_a_value_that_was_changed_fails_the_pass_and_touches_no_grad() -> None:
    x, y = _leaves(2)
    middle = x.exp()
    root = (middle * y).sum()
    with ag.no_grad():
        y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace") as info:
        root.backward()
    assert info.value.__notes__ == [
        "raised by MulBackward0, whose forward output was float64[3, 3] on cpu"
    ]
    assert x.grad is None
    assert y.grad is None


def test_the_frames_of_an_error_hold_nothing_of_the_pass() -> None:
    """Whatever keeps the error would keep gradients and saved arrays alive."""
    x, y = _leaves(2)
    root = (x.exp() * y).sum()
    with ag.no_grad():
        y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace") as info:
        root.backward()
    frames = [entry.frame for entry in info.traceback]
    ours = [f for f in frames if f.f_globals["__name__"].startswith("asyncgrad.core")]
    assert ours
    assert not any(frame.f_locals for frame in ours)


def test_a_commit_that_fails_touches_no_grad() -> None:
    x, y = _leaves(2)
    x.grad = ag.zeros(3, 3, dtype=ag.float64)
    y.grad = ag.zeros(3, 3, dtype=ag.float64)
    y.grad._array.flags.writeable = False
    with pytest.raises((RuntimeError, ValueError), match="read-only"):
        (x * y).sum().backward()
    assert not x.grad.any()


def test_arguments_are_checked_as_ever() -> None:
    (x,) = _leaves(1)
    with pytest.raises(RuntimeError, match="scalar outputs"):
        x.exp().backward()
    with pytest.raises(RuntimeError, match="Mismatch in shape"):
        x.exp().backward(ag.ones(3, dtype=ag.float64))
    with pytest.raises(TypeError):
        x.exp().sum().backward(retain_graph="yes")  # type: ignore[arg-type]
    assert x.grad is None
