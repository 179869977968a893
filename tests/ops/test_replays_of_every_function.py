"""PyTorch's samples of every function, compiled: replays with other values are as eager calls.

A function that looks at values, or changes something, without telling recorders of it is found
here. Which functions are never replayed is written down, with what `explain()` says.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import asyncgrad as ag

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

import oracle  # noqa: E402  it imports PyTorch

#: Without functions whose results are arbitrary memory.
NAMES = sorted({op.name for op in oracle.op_db if "empty" not in op.name})
#: Samples of each function.
SAMPLES = 1
#: Functions of which no call is replayed, and why: parts of what `explain()` says.
REFUSED = {
    **dict.fromkeys(("argwhere", "nonzero", "nonzero_static"), ("nonzero() is not repeated",)),
    **dict.fromkeys(
        ("combinations", "logspace", "stft", "unique", "unique_consecutive"),
        (" is not repeated", "Python sees values"),
    ),
    **dict.fromkeys(
        (
            "allclose", "bincount", "equal", "histogram", "linspace", "masked_scatter",
            "nn.functional.embedding_bag", "nn.functional.gaussian_nll_loss", "tensor_split",
        ),
        ("Python sees values",),
    ),
    **dict.fromkeys(
        (
            "frexp", "isreal", "nn.functional.max_unpool1d", "nn.functional.max_unpool2d",
            "nn.functional.max_unpool3d",
        ),
        ("values that no recorded operation has made",),
    ),
    "masked_select": ("the shape of its result depends on values",),
    "resize_": ("resizes a tensor",),
    # PyTorch's samples have functions of PyTorch's.
    "nn.functional.triplet_margin_with_distance_loss": ("its code uses dir()",),
    "nn.functional.one_hot": ("one_hot() is not repeated",),
}  # fmt: skip
#: Every so manieth function together. Those of the first test keep this file from rotting.
STEP = 16


def other(value: Any, seed: int) -> Any:
    """Arguments with other values in the same layouts; seed 0 keeps the values.

    With seed 2 the last of some integers is no index, nor a class.
    """
    if isinstance(value, ag.Tensor):
        array = value.detach().numpy()
        made = np.empty_like(array)
        made[...] = array
        random = np.random.default_rng(seed)
        if seed and array.dtype.kind == "f":
            made *= random.choice([-0.9, 0.9], array.shape)
        elif seed and array.dtype.kind == "b":
            made[...] = random.random(array.shape) < 0.5
        elif seed and array.dtype.kind in "iu" and array.size:
            made[...] = np.maximum(array - 1, 0) if array.min() >= 0 else array + 1
            if seed == 2:
                made.reshape(-1)[-1] = 97
        tensor = ag.from_numpy(made)
        return tensor.requires_grad_() if value.requires_grad else tensor
    if isinstance(value, dict):
        return {key: other(part, seed) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(other(part, seed) for part in value)
    return value


def plain(value: Any) -> Any:
    """Results that can be compared bit by bit."""
    if isinstance(value, ag.Tensor):
        if value.is_sparse:
            return "sparse"
        array = value.detach().numpy()
        return array.tobytes(), array.shape, array.dtype, value.requires_grad
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    return [plain(part) for part in value] if isinstance(value, (list, tuple)) else repr(value)


def outcome(call: Any, args: Any, kwargs: Any) -> Any:
    """What a call returns or raises."""
    ag.manual_seed(3)
    try:
        return plain(call(args, kwargs))
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize(
    "first", [0, *[pytest.param(first, marks=pytest.mark.slow) for first in range(1, STEP)]]
)
def test_replays_of_every_function(first: int) -> None:
    """Two calls with the same values, two with others: all but the first may be replays."""
    for name in NAMES[first::STEP]:
        try:
            function = oracle.resolve(name)
        except AssertionError:
            continue

        def call(args: Any, kwargs: Any, function: Any = function) -> Any:
            return copied(function(*args, **kwargs))

        reasons: list[str] = []
        method = hasattr(ag.Tensor, name) and "." not in name

        def by_method(args: Any, kwargs: Any, name: str = name) -> Any:
            return copied(getattr(args[0], name)(*args[1:], **kwargs))

        for info in oracle.infos(name):
            for dtype in (torch.float64, torch.int64):
                if dtype not in info.supported_dtypes("cpu"):
                    continue
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    reasons += check(name, call, info, dtype)
                    if method:
                        reasons += check(name, by_method, info, dtype)
        refused = [reason for reason in reasons if reason]
        assert bool(refused) == (name in REFUSED), (name, refused)
        assert all(any(why in reason for why in REFUSED[name]) for reason in refused), refused


def copied(value: Any) -> Any:
    """Results with memory of their own: a view of an argument can't be returned by a replay."""
    if isinstance(value, ag.Tensor):
        return value if value.is_sparse else value.clone()
    if type(value) in {list, tuple}:
        return type(value)([copied(part) for part in value])
    return value


def check(name: str, call: Any, info: Any, dtype: Any) -> list[str]:
    """Compare the calls with the first samples of a function.

    Returns:
        For each sample of which calls succeed: why none of them is replayed, or nothing.
    """
    reasons = []
    for number, sample in enumerate(info.sample_inputs("cpu", dtype, requires_grad=False)):
        if number == SAMPLES:
            break
        twins = oracle.Twins(copy=True)
        args, kwargs = twins.of((sample.input, *sample.args))[1], twins.of(sample.kwargs)[1]
        fast = ag.compile(call)
        for seed in (0, 0, 1, 2):
            ours = outcome(fast, other(args, seed), other(kwargs, seed))
            theirs = outcome(call, other(args, seed), other(kwargs, seed))
            assert ours == theirs, (name, number, seed, fast.explain())
        words = fast.explain().splitlines()
        if words[0].endswith(" 0 replayed") and len(words) > 1:
            reasons.append(words[1].partition(": ")[2])
        else:
            reasons.append("")
    return reasons
