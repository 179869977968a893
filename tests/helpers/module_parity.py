"""Layers beside PyTorch's: the same state, the same outputs and gradients."""

import copy
import pickle

import numpy as np
import pytest

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

X = np.random.default_rng(0).standard_normal


def layers(make):
    """Equal layers of both libraries, in float64."""
    ag.manual_seed(0)
    mine, other = make(ag.nn).double(), make(torch.nn).double()
    mine.load_state_dict(
        {name: ag.from_numpy(t.numpy().copy()) for name, t in other.state_dict().items()}
    )
    return mine, other


def tensors(value, library):
    """Arrays, and containers of them, as tensors of a library; floating ones require grad."""
    if isinstance(value, np.ndarray):
        made = library.from_numpy(value.copy())
        return made.requires_grad_() if value.dtype.kind == "f" else made
    if isinstance(value, (tuple, list)):
        return type(value)(tensors(part, library) for part in value)
    if isinstance(value, dict):
        return {key: tensors(part, library) for key, part in value.items()}
    return value


def flat(value):
    if isinstance(value, (tuple, list)):
        return [part for item in value for part in flat(item)]
    if isinstance(value, dict):
        return flat(list(value.values()))
    return [value]


def assert_close(mine, other, tolerance=1e-10):
    if other is None:
        assert mine is None
        return
    mine, other = mine.detach().numpy(), other.detach().numpy()
    assert mine.shape == other.shape
    assert mine.dtype == other.dtype
    scale = max(1.0, float(np.abs(other).max(initial=0.0))) if other.dtype.kind == "f" else 1
    np.testing.assert_allclose(mine, other, rtol=0, atol=tolerance * scale)


def check(make, *args, train=True, **kwargs):
    """Compare outputs, gradients and buffers of equal layers; then of their copies."""
    mine, other = layers(make)
    assert [*mine.state_dict()] == [*other.state_dict()]
    assert [n for n, _ in mine.named_parameters()] == [n for n, _ in other.named_parameters()]
    mine.train(train)
    other.train(train)
    for candidate in (mine, copy.deepcopy(mine), pickle.loads(pickle.dumps(mine))):
        reference = copy.deepcopy(other)
        given, known = (tensors((args, kwargs), library) for library in (ag, torch))
        found = flat(candidate(*given[0], **given[1]))
        expected = flat(reference(*known[0], **known[1]))
        assert len(found) == len(expected)
        random = np.random.default_rng(1)
        total = total_known = 0.0
        for a, b in zip(found, expected, strict=True):
            assert_close(a, b)
            if b is not None and b.requires_grad:
                weight = random.standard_normal(tuple(b.shape))
                total = total + (a * ag.from_numpy(weight)).sum()
                total_known = total_known + (b * torch.from_numpy(weight)).sum()
        total.backward()
        total_known.backward()
        for a, b in zip(flat(given), flat(known), strict=True):
            if isinstance(b, torch.Tensor):
                assert_close(a.grad, b.grad)
        for a, b in zip(candidate.parameters(), reference.parameters(), strict=True):
            assert_close(a.grad, b.grad)
        for a, b in zip(candidate.buffers(), reference.buffers(), strict=True):
            assert_close(a, b)


def with_buffers(make):
    """Give a maker the `from_numpy` of the library that it makes a layer of."""

    def made(nn):
        return make(nn, (ag if nn is ag.nn else torch).from_numpy)

    return made


def refusal(run):
    """The class of the error that a call raises."""
    try:
        run()
    except Exception as error:
        return type(error)
    raise AssertionError("nothing was raised")
