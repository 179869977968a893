"""Every module over PyTorch's samples of its options and inputs."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from beside import assert_close, flat

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_modules import module_db

#: Samples of a module for each manner, the same ones in every run.
LIMIT = 4
#: They drop at random, or what they are given is a module of PyTorch's.
SKIPPED = {"RReLU", "FractionalMaxPool2d", "FractionalMaxPool3d"}
INFOS = {
    info.name.removeprefix("nn."): info
    for info in module_db
    if info.module_cls.__module__.startswith("torch.nn.modules")
    and hasattr(ag.nn, info.module_cls.__name__)
    and info.module_cls.__name__ not in SKIPPED
    # They have no state to be copied before their first input: see `test_lazy.py`.
    and not info.module_cls.__name__.startswith("Lazy")
}


class _OtherModuleError(Exception):
    """A module of PyTorch's among the arguments."""


def _ours(value, leaves):
    """The argument for us; tensors that require grad are noted."""
    if isinstance(value, torch.Tensor):
        known = [made for made, tensor in leaves if tensor is value]
        if known:
            return known[0]
        made = ag.from_numpy(value.detach().numpy().copy())
        if value.requires_grad:
            made.requires_grad_()
            leaves.append((made, value))
        return made
    if isinstance(value, (list, tuple)):
        return type(value)(_ours(part, leaves) for part in value)
    if isinstance(value, dict):
        return {key: _ours(part, leaves) for key, part in value.items()}
    if isinstance(value, torch.dtype):
        return getattr(ag, str(value).removeprefix("torch."))
    if isinstance(value, torch.nn.Module):
        raise _OtherModuleError
    if callable(value):
        return getattr(ag.nn.functional, value.__name__)
    return value


def _samples(info, training):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        found = info.module_inputs_func(
            info, device="cpu", dtype=torch.float64, requires_grad=True, training=training
        )
    drops = [s for s in found if not s.constructor_input.kwargs.get("dropout")]
    step = max(1, len(drops) // LIMIT)
    return drops[::step]


def _twins(info, given, training):
    """The module in both libraries, with the same parameters."""
    theirs = info.module_cls(*given.args, **given.kwargs).to(torch.float64).train(training)
    make = getattr(ag.nn, info.module_cls.__name__)
    ours = make(*_ours(given.args, []), **_ours(given.kwargs, [])).to(ag.float64).train(training)
    assert repr(ours) == repr(theirs)
    ours.load_state_dict(_ours(dict(theirs.state_dict()), []))
    return ours, theirs


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", INFOS)
def test_outputs_and_gradients_are_pytorchs(name, training):
    info = INFOS[name]
    for sample in _samples(info, training):
        if sample.forward_input is None:
            continue
        try:
            ours, theirs = _twins(info, sample.constructor_input, training)
        except _OtherModuleError:
            continue
        leaves = []
        args, kwargs = sample.forward_input.args, sample.forward_input.kwargs
        found = flat(ours(*_ours(args, leaves), **_ours(kwargs, leaves)))
        expected = flat(theirs(*args, **kwargs))
        if "Dropout" in name and training:
            continue
        leaves += zip(ours.parameters(), theirs.parameters(), strict=True)
        random = np.random.default_rng(0)
        total = total_known = 0.0
        for a, b in zip(found, expected, strict=True):
            assert_close(a, b)
            if b is not None and b.requires_grad:
                weight = random.standard_normal(tuple(b.shape))
                total = total + (a * ag.from_numpy(weight)).sum()
                total_known = total_known + (b * torch.from_numpy(weight)).sum()
        if leaves and not isinstance(total, float):
            known = torch.autograd.grad(total_known, [b for _, b in leaves], allow_unused=True)
            own = ag.autograd.grad(total, [a for a, _ in leaves], allow_unused=True)
            for a, b in zip(own, known, strict=True):
                assert_close(a, b, 1e-8)
        for a, b in zip(ours.buffers(), theirs.buffers(), strict=True):
            assert_close(a, b)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [n for n in INFOS if INFOS[n].module_error_inputs_func])
def test_what_pytorch_refuses_is_refused(name):
    info = INFOS[name]
    samples = info.module_error_inputs_func(
        info, device="cpu", dtype=torch.float64, requires_grad=False, training=True
    )
    for sample in samples:
        given, call = (getattr(sample.module_error_input, f"{k}_input") for k in
                       ("constructor", "forward"))  # fmt: skip
        try:
            theirs = info.module_cls(*given.args, **given.kwargs)
            theirs(*call.args, **call.kwargs)
        except Exception as error:
            kind = type(error)
        else:
            raise AssertionError("PyTorch takes it")
        with pytest.raises(kind):
            _compute(getattr(ag.nn, info.module_cls.__name__), given, call)


def _compute(make, given, call):
    ours = make(*_ours(given.args, []), **_ours(given.kwargs, []))
    ours(*_ours(call.args, []), **_ours(call.kwargs, []))
