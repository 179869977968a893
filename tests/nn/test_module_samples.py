"""Every module over PyTorch's database of modules: their options, inputs and errors."""

import copy
import pickle
import warnings

import numpy as np
import pytest
import torch_samples
from module_parity import assert_close, flat

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

with torch_samples.importing():
    from torch.testing._internal.common_modules import module_db

INFOS = {
    info.name.removeprefix("nn."): info
    for info in module_db
    if hasattr(ag.nn, info.module_cls.__name__)
}
#: How far results may be apart, and how many samples are taken, the same ones in every run.
DTYPES = {
    torch.float64: (1e-10, 4),
    torch.float32: (1e-4, 1),
    torch.complex64: (1e-4, 1),
    torch.complex128: (1e-10, 1),
}


def test_one_module_alone_is_missing():
    """A linear layer and a cross entropy in one, for the sake of memory: a composition here."""
    assert {i.name for i in module_db} == {f"nn.{n}" for n in (*INFOS, "LinearCrossEntropyLoss")}


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
    if isinstance(value, torch.nn.TransformerEncoderLayer):
        return ag.nn.TransformerEncoderLayer(
            value.self_attn.embed_dim,
            value.self_attn.num_heads,
            value.linear1.out_features,
            value.dropout.p,
            batch_first=value.self_attn.batch_first,
            norm_first=value.norm_first,
            activation=value.activation.__name__,
            bias=value.linear1.bias is not None,
        )
    if callable(value):
        return getattr(ag.nn.functional, value.__name__)
    return value


def _samples(info, dtype, training):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        found = info.module_inputs_func(
            info, device="cpu", dtype=dtype, requires_grad=True, training=training
        )
    drops = [sample for sample in found if not sample.constructor_input.kwargs.get("dropout")]
    return drops[:: max(1, len(drops) // DTYPES[dtype][1])]


def _twins(info, sample, dtype, training):
    """The module in both libraries, with the same parameters."""
    given = sample.constructor_input
    theirs = info.module_cls(*given.args, **given.kwargs).to(dtype).train(training)
    make = getattr(ag.nn, info.module_cls.__name__)
    ours = make(*_ours(given.args, []), **_ours(given.kwargs, [])).to(_ours(dtype, []))
    ours.train(training)
    assert repr(ours) == repr(theirs)
    if info.module_cls.__name__.startswith("Lazy"):
        # They have no state to be copied before their first input.
        shown = [argument.detach() for argument in sample.forward_input.args]
        theirs(*shown)
        ours(*_ours(shown, []))
        assert repr(ours) == repr(theirs)
    ours.load_state_dict(_ours(dict(theirs.state_dict()), []))
    _assert_close(ours.state_dict(), theirs.state_dict(), 0)
    return ours, theirs


def _assert_close(mine, other, tolerance):
    if isinstance(other, dict):
        assert [*mine] == [*other]
    for a, b in zip(flat(mine), flat(other), strict=True):
        assert_close(a, b, tolerance)


def _total(values, known, library):
    """A number whose gradients tell all elements apart that PyTorch has a graph for."""
    random = np.random.default_rng(0)
    total = library.zeros((), dtype=library.float64)
    for value, other in zip(values, known, strict=True):
        if other is not None and other.requires_grad:
            weight = library.from_numpy(np.asarray(random.standard_normal(tuple(other.shape))))
            # What does not depend on anything has no graph with us, and a useless one there.
            if value is not None and value.requires_grad:
                weighted = (value * weight).sum()
                total = total + (weighted.abs() if weighted.is_complex() else weighted)
    return total


def _derivatives(outputs, known, tensors, library):
    """The gradients of a number by some tensors, with graphs."""
    total = _total(outputs, known, library)
    found = [None] * len(tensors)
    if total.requires_grad and tensors:
        found = library.autograd.grad(total, tensors, create_graph=True, allow_unused=True)
    # Where one has zeros the other may have none.
    zeros = [library.zeros_like(tensor) for tensor in tensors]
    return [zero if g is None else g + zero for zero, g in zip(zeros, found, strict=True)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", INFOS)
def test_outputs_and_derivatives_are_pytorchs(name, training):
    info = INFOS[name]
    for dtype in (dtype for dtype in DTYPES if dtype in info.dtypes):
        tolerance = DTYPES[dtype][0]
        for number, sample in enumerate(_samples(info, dtype, training)):
            thorough = dtype == torch.float64 and number < 2
            ours, theirs = _twins(info, sample, dtype, training)
            args, kwargs = sample.forward_input.args, sample.forward_input.kwargs
            copies = (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours)))
            leaves = []
            given = _ours((args, kwargs), leaves)
            found, expected = ours(*given[0], **given[1]), theirs(*args, **kwargs)
            _assert_close(found, expected, tolerance)
            _assert_close([*ours.buffers()], [*theirs.buffers()], tolerance)
            if thorough:
                for twin in copies:
                    _assert_close(twin(*given[0], **given[1]), expected, tolerance)
            leaves += zip(ours.parameters(), theirs.parameters(), strict=True)
            own, other = map(list, zip(*leaves, strict=True)) if leaves else ([], [])
            known = flat(expected)
            first = _derivatives(flat(found), known, own, ag)
            expected = _derivatives(known, known, other, torch)
            _assert_close(first, expected, 10 * tolerance)
            if thorough:
                try:
                    second = _derivatives(expected, expected, other, torch)
                except (NotImplementedError, RuntimeError):
                    continue  # PyTorch has no derivative of this derivative.
                _assert_close(_derivatives(first, expected, own, ag), second, 1000 * tolerance)


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
