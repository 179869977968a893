"""Functions that move elements."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np
import oracle
import pytest
from promised import MUST

import asyncgrad as ag

if TYPE_CHECKING:
    from collections.abc import Callable

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

NAMES = MUST["shape"]


test_samples = oracle.as_in_pytorch(
    [name for name in NAMES if name != "view"],
    small={"dtypes": ("float16", "bfloat16", "uint8"), "limit": 4, "tolerance": 1e-2},
    errors=False,
    dtypes=("float64", "complex128", "int64", "bool"),
    limit=12,
)


def test_views_are_pytorchs():
    """Whether one is possible depends on the strides."""
    for dtypes in (("float64", "complex128"), ("int64", "bool", "float16", "bfloat16")):
        oracle.check("view", dtypes=dtypes, limit=12, awkward=False)


# -- several views of one tensor ------------------------------------------------------------------

PARTS = {
    "unbind": (lambda x: x.unbind(0), "UnbindBackward0"),
    "unbind, last": (lambda x: x.unbind(-1), "UnbindBackward0"),
    "split": (lambda x: x.split(2), "SplitBackward0"),
    "split, uneven": (lambda x: x.split([1, 3, 0], 0), "SplitWithSizesBackward0"),
    "split, last": (lambda x: x.split(1, -1), "SplitBackward0"),
    "chunk": (lambda x: x.chunk(3, 1), "SplitBackward0"),
}


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("used", [slice(None), slice(1), slice(1, None)])
def test_parts_share_one_node_and_gradients_are_pytorchs(name, used):
    function, node = PARTS[name]
    array = np.arange(12.0).reshape(4, 3)
    ours, theirs = ag.tensor(array, requires_grad=True), torch.tensor(array, requires_grad=True)
    for x in (ours, theirs):
        parts = function(x * 1)
        assert {part.grad_fn.name() for part in parts} == {node}
        assert len({id(part.grad_fn) for part in parts}) == 1
        assert [part.output_nr for part in parts] == list(range(len(parts)))
        chosen = parts[used]
        loss = sum((part**3).sum() * (i + 2) for i, part in enumerate(chosen))
        loss.backward()
    np.testing.assert_array_equal(ours.grad.numpy(), theirs.grad.numpy())
    second = []
    for m, x in ((ag, ours), (torch.autograd, theirs)):
        chosen = function(x * 1)[used]
        loss = sum((part**3).sum() * (i + 2) for i, part in enumerate(chosen))
        (g,) = m.grad(loss, x, create_graph=True)
        second.append(m.grad((g * g).sum(), x)[0].numpy())
    np.testing.assert_allclose(*second, rtol=1e-14)


def test_parts_made_in_a_thread_of_the_engine_share_one_node():
    """So their gradient is made once there, too."""
    x = ag.ones(4, 3, requires_grad=True)

    async def parts():
        return await ag.offload(x.split, 2)

    first, second = asyncio.run(parts())
    assert first.grad_fn.name() == "SplitBackward0"
    assert first.grad_fn is second.grad_fn


def test_gradient_of_many_parts_is_made_once():
    """What is delivered grows with the parts, and what is computed with the tensor alone."""
    x = ag.ones(500, 3, requires_grad=True)
    parts = x.unbind(0)
    made = []
    parts[0].grad_fn.register_hook(lambda inputs, outputs: made.append(len(outputs)))
    sum(part.sum() for part in parts).backward()
    assert made == [500]
    assert x.grad.tolist() == [[1, 1, 1]] * 500


def test_parts_of_what_has_changed_lead_nowhere():
    for m in (ag, torch):
        x = m.ones(4, requires_grad=True) * 1
        first, _ = x.split(2)
        x.mul_(3)
        assert first.tolist() == [3, 3]
        with pytest.raises(RuntimeError, match="multiple views"):
            first.sum().backward()


def test_hooks_and_retained_gradients_of_parts():
    x = ag.ones(4, requires_grad=True) * 1
    first, second = x.split(2)
    first.retain_grad()
    second.register_hook(lambda g: g * 10)
    x.retain_grad()
    (first * 2 + second).sum().backward()
    assert first.grad.tolist() == [2, 2]
    assert x.grad.tolist() == [2, 2, 10, 10]


def test_nothing_joined_gets_no_gradient_but_a_place_in_the_graph():
    for m in (ag, torch):
        nothing, x = m.ones(0, requires_grad=True), m.ones(2, 3)
        m.cat([nothing, x], 1).sum().backward()
        assert tuple(nothing.grad.shape) == (0,)
        # Where there is nothing else, no axis is asked for.
        assert tuple(m.cat([nothing, nothing], dim=1).shape) == (0,)


@pytest.mark.parametrize("function", [lambda x: x.split(2), lambda x: x.chunk(2), ag.unbind])
def test_the_gradients_of_parts_take_the_short_way(
    function: Callable[[ag.Tensor], tuple[ag.Tensor, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their node is no user's code, so a pass without hooks calls it and nothing else."""
    monkeypatch.setattr("asyncgrad.core.graph_task.run_node", None)
    x = ag.ones(4, 2, requires_grad=True)
    parts = function(x)
    ag.autograd.backward(parts[:2], [ag.full_like(part, 2) for part in parts[:2]])
    assert x.grad is not None
    assert x.grad.sum().item() == 2 * sum(part.numel() for part in parts[:2])


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize("widths", [(2, 1), (0, 2, 3, 0), (-1, 2, 2, -1), (-2, -1), (1,) * 6])
def test_frames_of_own_elements(mode, widths):
    """With first and second derivatives; a negative width cuts elements off."""
    random = np.random.default_rng(0)
    values = random.standard_normal((1, 2, 4, 5, 4)[: 2 + len(widths) // 2])
    found = []
    for m in (torch, ag):
        x = m.tensor(values, requires_grad=True)
        padded = m.nn.functional.pad(x, widths, mode)
        weights = m.arange(float(np.prod(padded.shape))).double().reshape(padded.shape)
        weights.requires_grad_()
        (slope,) = m.autograd.grad(padded, x, weights, create_graph=True)
        (back,) = m.autograd.grad(slope, weights, x.detach())
        found.append([t.detach().numpy() for t in (padded, slope, back)])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-14)


def test_elements_that_were_cut_off_do_not_come_round():
    for m in (torch, ag):
        with pytest.raises(RuntimeError, match="wrapping around" if m is ag else None):
            m.nn.functional.pad(m.arange(5.0)[None], (-3, 4), "circular")


@pytest.mark.parametrize("call", [
    lambda T, x: T.broadcast_tensors(x, T.ones(3))[0],
    lambda T, x: T.broadcast_tensors(x, T.ones(1, 3))[0],
    lambda T, x: T.einsum("ij", x), lambda T, x: T.einsum("ij->ji", x),
    lambda T, x: T.einsum("", x[0, 0]),
])  # fmt: skip
def test_whether_a_result_is_the_operand_itself_is_as_in_pytorch(call):
    """Or a view of it, whose changes in place are recorded by themselves."""
    found = []
    for T in (torch, ag):
        x = T.ones(2, 3, requires_grad=True)
        out = call(T, x)
        found.append((out is x, out.is_leaf, out._is_view()))
    assert found[0] == found[1]


def test_a_frame_of_complex_numbers():
    x = ag.tensor([1j])
    assert ag.constant_pad_nd(x, (1, 2), 2 - 1j).tolist() == [2 - 1j, 1j, 2 - 1j, 2 - 1j]
    with pytest.raises(TypeError, match="must be float"):
        ag.nn.functional.pad(x, (1, 1), value=2j)
