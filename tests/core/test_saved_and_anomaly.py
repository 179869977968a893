"""What nodes keep: packed by hooks, read by name, checked for changes; and anomaly mode."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import asyncgrad as ag
from asyncgrad.core.modes import Mode
from asyncgrad.core.saved import SavedHooks
from asyncgrad.errors import GraphFreedError


def packing(log: list[str]) -> Mode:
    """Hooks that keep twice the value and give it back."""

    def pack(tensor: ag.Tensor) -> Any:
        log.append("pack")
        return (tensor * 2).detach()

    def unpack(packed: Any) -> ag.Tensor:
        log.append("unpack")
        return packed / 2

    return Mode(saved_hooks=SavedHooks(pack, unpack))


def test_hooks_pack_each_saved_tensor_and_unpack_it_at_each_use() -> None:
    """`x * x` saves twice, as in PyTorch; a retained graph unpacks again."""
    log: list[str] = []
    x = ag.tensor([2.0, 3.0], requires_grad=True)
    with packing(log):
        loss = (x * x).sum()
    assert log == ["pack", "pack"]
    loss.backward(retain_graph=True)
    assert log == ["pack", "pack", "unpack", "unpack"]
    loss.backward()
    assert log[4:] == ["unpack", "unpack"]
    assert x.grad is not None
    assert x.grad.tolist() == [8.0, 12.0]


def test_packed_values_lead_into_the_graph_under_create_graph() -> None:
    """The second derivative is right, for inputs and for outputs that were packed."""
    x = ag.tensor([0.5], requires_grad=True)
    with packing([]):
        y = ag.exp(x * x)
        loss = y.sum()
    (first,) = ag.grad(loss, [x], create_graph=True)
    (second,) = ag.grad(first.sum(), [x])
    value = 2.718281828459045**0.25
    assert abs(first.item() - value) < 1e-6
    assert abs(second.item() - (2 + 1) * value) < 1e-5


@pytest.mark.asyncio
async def test_an_unpack_hook_may_be_a_coroutine_function() -> None:
    """The pass goes on when the value is there."""
    x = ag.tensor([2.0], requires_grad=True)

    async def unpack(packed: Any) -> ag.Tensor:
        await asyncio.sleep(0)
        return packed

    with Mode(saved_hooks=SavedHooks(lambda tensor: tensor.detach(), unpack, waits=True)):
        loss = (x * x).sum()
    await loss.backward()
    assert x.grad is not None
    assert x.grad.item() == 4.0


def test_hooks_that_misbehave_are_named() -> None:
    """Something else than a tensor, and a change of what is packed."""
    x = ag.tensor([2.0], requires_grad=True)
    with Mode(saved_hooks=SavedHooks(lambda tensor: tensor, lambda packed: "no tensor")):
        loss = (x * x).sum()
    with pytest.raises(TypeError, match="unpack_hook expected to be a Tensor"):
        loss.backward()
    assert x.grad is None

    def change(tensor: ag.Tensor) -> ag.Tensor:
        with ag.no_grad():
            tensor += 1
        return tensor

    with (
        Mode(saved_hooks=SavedHooks(change, lambda packed: packed)),
        pytest.raises(RuntimeError, match="modifying its input in place"),
    ):
        ag.exp(x)


def test_saved_values_are_read_by_name_until_they_are_released() -> None:
    """As tensors that lead into the graph; attributes outlive them."""
    x = ag.tensor([[1.0, 2.0]], requires_grad=True)
    y = ag.exp(x)
    node = y.grad_fn
    assert node is not None
    assert node._saved_result.tolist() == y.tolist()
    assert node._saved_result.grad_fn is node
    product = x * y
    assert product.grad_fn._saved_self is x
    total = product.sum(dim=1)
    total.sum().backward()
    with pytest.raises(GraphFreedError):
        _ = node._saved_result
    with pytest.raises(AttributeError, match="_saved_nothing"):
        _ = node._saved_nothing


def test_hooks_for_one_saved_value() -> None:
    """`_raw_saved_*` packs just that one, once."""
    x = ag.tensor([3.0], requires_grad=True)
    loss = (x * x).sum()
    node = loss.grad_fn.next_functions[0][0]
    log: list[str] = []

    def unpack(packed: ag.Tensor) -> ag.Tensor:
        log.append("unpack")
        return packed

    raw = node._raw_saved_self
    raw.register_hooks(lambda tensor: tensor.detach(), unpack)
    with pytest.raises(RuntimeError, match="already been set"):
        node._raw_saved_self.register_hooks(lambda tensor: tensor, unpack)
    assert node._saved_self.item() == 3.0
    loss.backward()
    assert log == ["unpack", "unpack"]
    assert x.grad is not None
    assert x.grad.item() == 6.0
    with pytest.raises(GraphFreedError):
        raw.register_hooks(lambda tensor: tensor, unpack)


def test_a_saved_tensor_changed_in_place_is_refused() -> None:
    """And `.grad` is untouched; an alias made by `.data` goes unseen, as in PyTorch."""
    x = ag.tensor([2.0], requires_grad=True)
    w = ag.tensor([5.0])
    loss = (x * w).sum()
    w += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    assert x.grad is None
    loss = (x * w).sum()
    data = w.data
    data += 1
    loss.backward()
    assert x.grad is not None
    assert x.grad.item() == 7.0


def test_anomaly_mode_finds_nan_and_says_where_the_node_was_made() -> None:
    """As a warning, and as a note on the error."""
    x = ag.tensor([0.0], requires_grad=True)
    with Mode(anomaly=True):
        loss = (ag.sqrt(x) * 0).sum()
        with (
            np.errstate(all="ignore"),
            pytest.warns(UserWarning, match="Traceback of forward call"),
            pytest.raises(RuntimeError, match="returned nan values in its 0th output") as caught,
        ):
            loss.backward()
    assert any("test_saved_and_anomaly" in note for note in caught.value.__notes__)
    assert x.grad is None
    assert loss.grad_fn.metadata["traceback_"]


def test_anomaly_mode_without_a_forward_trace_says_so() -> None:
    """The graph was made outside of it."""
    x = ag.tensor([0.0], requires_grad=True)
    loss = (ag.sqrt(x) * 0).sum()
    with (
        np.errstate(all="ignore"),
        Mode(anomaly=True),
        pytest.warns(UserWarning, match="No forward pass information"),
        pytest.raises(RuntimeError, match="nan"),
    ):
        loss.backward()
    with Mode(anomaly=True, check_nan=False):
        (ag.exp(x) * 2).sum().backward()
    assert x.grad is not None
    assert x.grad.item() == 2.0


def test_node_hooks_replace_gradients_and_are_checked() -> None:
    """Before the node and after it; a wrong type, number, shape or dtype is named."""
    x = ag.tensor([1.0, 2.0], requires_grad=True)

    def run(register: str, hook: Any) -> list[float]:
        x.grad = None
        y = x * 3.0
        handle = getattr(y.grad_fn, register)(hook)
        y.sum().backward()
        handle.remove()
        handle.remove()
        assert x.grad is not None
        return x.grad.tolist()

    assert run("register_prehook", lambda outputs: (outputs[0] * 2,)) == [6.0, 6.0]
    assert run("register_prehook", lambda outputs: None) == [3.0, 3.0]
    assert run("register_hook", lambda inputs, outputs: (inputs[0] + 1, *inputs[1:])) == [
        4.0,
        4.0,
    ]
    with pytest.raises(TypeError, match="expected tuple, but hook returned"):
        run("register_prehook", lambda outputs: outputs[0])
    with pytest.raises(RuntimeError, match="incorrect number of values"):
        run("register_prehook", lambda outputs: outputs * 2)

    def on_tensor(hook: Any) -> None:
        y = x * 3.0
        y.register_hook(hook)
        y.sum().backward()

    with pytest.raises(TypeError, match="expected Variable, but hook returned 'int'"):
        on_tensor(lambda gradient: 3)
    with pytest.raises(RuntimeError, match="has changed the size"):
        on_tensor(lambda gradient: gradient[:1])
    with pytest.raises(RuntimeError, match="has changed the type"):
        on_tensor(lambda gradient: gradient.double())


def test_post_accumulate_hooks_run_when_the_gradient_is_there() -> None:
    """They may take it away; what they return is an error."""
    x = ag.tensor([1.0], requires_grad=True)
    seen: list[float] = []

    def take(leaf: ag.Tensor) -> None:
        assert leaf.grad is not None
        seen.append(leaf.grad.item())
        leaf.grad = None

    handle = x.register_post_accumulate_grad_hook(take)
    (x * 3.0).sum().backward()
    assert seen == [3.0]
    assert x.grad is None
    handle.remove()
    x.register_post_accumulate_grad_hook(lambda leaf: leaf * 3)
    with pytest.raises(RuntimeError, match="should return None"):
        (x * 3.0).sum().backward()
    with pytest.raises(RuntimeError, match="non-leaf"):
        (x * 3.0).register_post_accumulate_grad_hook(take)


def test_retain_grad_and_inputs() -> None:
    """A computed tensor keeps its gradient, over several passes; nothing else is touched."""
    x = ag.tensor([1.0], requires_grad=True)
    y = x * 2.0
    y.retain_grad()
    y.retain_grad()
    loss = (y * y).sum()
    loss.backward(retain_graph=True)
    assert y.grad is not None
    assert y.grad.item() == 4.0
    loss.backward(inputs=[y])
    assert y.grad.item() == 8.0
    assert x.grad is not None
    assert x.grad.item() == 8.0
