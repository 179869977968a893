"""Random graphs beside PyTorch: values, first and second derivatives."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import asyncgrad as ag
import asyncgrad.sync

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

SHAPES = ((3, 4), (4,), (3, 1), ())
UNARY = ("tanh", "sigmoid", "exp", "neg", "square")
BINARY = ("add", "sub", "mul", "div")
SHAPING = ("transpose", "reshape", "sum0", "mean", "matmul", "index", "cat", "softmax", "max")
#: Their gradients are the arrays that come in, or views of them.
PASSING = ("transpose", "reshape", "unsqueeze", "plus", "minus")

Step = tuple[str, int, int]


def steps() -> st.SearchStrategy[list[Step]]:
    """Operations on any of the values so far: depth, fan-out and shared parts as they come."""
    names = st.sampled_from(UNARY + BINARY + SHAPING)
    return st.lists(
        st.tuples(names, st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=12
    )


def apply(lib: Any, name: str, x: Any, y: Any) -> Any:
    """One operation, in the words that both libraries share; bounded, so that nothing overflows."""
    if name == "exp":
        return lib.exp(lib.tanh(x))
    if name == "square":
        return x * x
    if name == "plus":
        return x + 1
    if name == "minus":
        return x - 2.5
    if name in UNARY:
        return getattr(lib, name)(x)
    if name == "div":
        y = lib.tanh(y) + 2.5
    if name in BINARY:
        try:
            return getattr(lib, name)(x, y)
        except RuntimeError:
            return getattr(lib, name)(x, y.sum())
    return shape(lib, name, x, y)


def shape(lib: Any, name: str, x: Any, y: Any) -> Any:
    """Operations that change the shape; scalars are left as they are."""
    if not x.shape:
        return x * 2
    if name == "transpose":
        return x.T if len(x.shape) == 2 else x
    if name == "reshape":
        return x.reshape(-1)
    if name == "unsqueeze":
        return x.unsqueeze(0).squeeze(0)
    if name == "sum0":
        return x.sum(0)
    if name == "mean":
        return x.mean()
    if name == "matmul":
        return x @ x.T if len(x.shape) == 2 else x @ x
    if name == "index":
        return x[lib.tensor([0, 0, x.shape[0] - 1])]
    if name == "cat":
        return lib.cat([x, x * 3])
    if name == "softmax":
        return lib.softmax(x, -1)
    return x.max(0).values


def build_values(lib: Any, arrays: list[np.ndarray], program: list[Step]) -> tuple[Any, Any]:
    """All that is computed, the leaves first, and the scalar at the end."""
    values = [lib.tensor(array, requires_grad=True) for array in arrays]
    for name, i, j in program:
        values.append(apply(lib, name, values[i % len(values)], values[j % len(values)]))
    total = values[-1].sum()
    for value in values[len(arrays) :: 2]:
        total = total + value.sum() * 0.5
    return values, total


def build(lib: Any, arrays: list[np.ndarray], program: list[Step]) -> tuple[list[Any], Any]:
    """The leaves and the scalar at the end."""
    values, total = build_values(lib, arrays, program)
    return values[: len(arrays)], total


def arrays(seed: int) -> list[np.ndarray]:
    """Values of the leaves."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape) for shape in SHAPES]


def close(ours: Any, theirs: Any) -> None:
    """Compare tensors, or their absence."""
    if theirs is None:
        assert ours is None
    else:
        ours, theirs = ours.detach().numpy(), theirs.detach().numpy()
        scale = max(1.0, float(np.abs(theirs).max(initial=0)))
        np.testing.assert_allclose(ours / scale, theirs / scale, rtol=1e-9, atol=1e-11)


@settings(max_examples=150, deadline=None)
@given(program=steps(), seed=st.integers(0, 5))
def test_values_and_accumulated_gradients(program: list[Step], seed: int) -> None:
    """`backward()`, blocking: every leaf's `.grad`, also none where nothing arrives."""
    ours, total = build(ag, arrays(seed), program)
    theirs, expected = build(torch, arrays(seed), program)
    close(total, expected)
    asyncgrad.sync.backward(total)
    expected.backward()
    for x, y in zip(ours, theirs, strict=True):
        close(x.grad, y.grad)


@settings(max_examples=150, deadline=None)
@given(program=steps(), seed=st.integers(0, 5))
def test_second_derivatives(program: list[Step], seed: int) -> None:
    """The gradient of a function of the gradients."""
    results = []
    for lib, grad in ((ag, asyncgrad.sync.grad), (torch, torch.autograd.grad)):
        leaves, total = build(lib, arrays(seed), program)
        first = grad(total, leaves, create_graph=True, allow_unused=True)
        mixed = sum((lib.tanh(g).sum() for g in first if g is not None), total * 0)
        second = grad(mixed, leaves, allow_unused=True) if mixed.requires_grad else ()
        results.append((first, second))
    (first, second), (first_expected, second_expected) = results
    for ours, theirs in zip(first, first_expected, strict=True):
        close(ours, theirs)
    for ours, theirs in zip(second, second_expected, strict=True):
        if ours is None or theirs is None:
            # Zero and "not used" are the same statement; the two libraries prune differently.
            known = ours if theirs is None else theirs
            assert known is None or not np.any(known.detach().numpy())
        else:
            close(ours, theirs)


@settings(max_examples=150, deadline=None)
@given(
    program=st.lists(
        st.tuples(
            st.sampled_from((*PASSING, "mul", "add")), st.integers(0, 30), st.integers(0, 30)
        ),
        min_size=2,
        max_size=12,
    ),
    requested=st.lists(st.integers(0, 30), min_size=1, max_size=6),
    retained=st.sets(st.integers(0, 30), max_size=3),
    keep=st.booleans(),
)
def test_gradients_of_what_lies_between(
    program: list[Step], requested: list[int], retained: set[int], keep: bool
) -> None:
    """What is captured is the user's: nothing that the pass goes on to compute changes it."""
    results = []
    for lib, grad in ((ag, asyncgrad.sync.grad), (torch, torch.autograd.grad)):
        values, total = build_values(lib, arrays(0)[:2], program)
        kept = [values[i % len(values)] for i in sorted(retained)]
        for value in kept:
            value.retain_grad()
        inputs = [values[i % len(values)] for i in requested]
        first = grad(total, inputs, retain_graph=True, allow_unused=True)
        copies = [None if g is None else g.clone() for g in first]
        again = grad(total, inputs, retain_graph=keep, allow_unused=True)
        results.append([*first, *copies, *again, *(value.grad for value in kept)])
    for ours, theirs in zip(*results, strict=True):
        close(ours, theirs)


@pytest.mark.asyncio
async def test_awaited_passes_side_by_side_give_the_same_bits() -> None:
    """Twenty graphs at once, against one after the other without a loop."""
    rng = np.random.default_rng(0)
    names = UNARY + BINARY + SHAPING
    programs = [
        [(str(rng.choice(names)), int(i), int(j)) for i, j in rng.integers(0, 30, (12, 2))]
        for _ in range(20)
    ]
    graphs = [build(ag, arrays(k), program) for k, program in enumerate(programs)]
    await asyncio.gather(*(total.backward() for _, total in graphs))
    for k, program in enumerate(programs):
        leaves, total = build(ag, arrays(k), program)
        asyncgrad.sync.backward(total)
        for awaited, blocking in zip(graphs[k][0], leaves, strict=True):
            if blocking.grad is None:
                assert awaited.grad is None
            else:
                assert np.array_equal(awaited.grad.numpy(), blocking.grad.numpy())
