"""Every promised function over PyTorch's samples gives on devices what it gives on the CPU.

It runs in another stream than the library's own, and on a library that refuses what CuPy refuses:
what enters no stream, or asks for what CuPy has not, fails.
"""

import warnings

import numpy as np
import pytest

import asyncgrad as ag

pytest.importorskip("torch", reason="PyTorch is not installed")
import oracle
from promised import MUST

pytestmark = pytest.mark.torch

#: They have no values, are random, or say themselves where their result is.
_WITHOUT = {"empty_like", "to"}
NAMES = [
    name
    for group, names in MUST.items()
    if group not in {"not_in_op_db", "random", "creation"}
    for name in names
    if name not in _WITHOUT
]
#: A few of them always run: they keep this file from rotting.
CASES = [
    pytest.param(name, marks=pytest.mark.slow if place % 16 else ())
    for place, name in enumerate(NAMES)
]
#: Functions that compute partly on the host, or have several implementations, always run, too.
CASES += [
    "cummax", "isin", "linalg.lstsq", "linalg.lu", "linalg.lu_factor", "linalg.lu_solve",
    "linalg.matrix_rank", "lu_unpack", "matrix_exp", "median", "mode",
    "nn.functional.adaptive_avg_pool3d", "nn.functional.adaptive_max_pool3d",
    "nn.functional.avg_pool3d", "nn.functional.grid_sample", "nn.functional.max_pool3d", "quantile",
    "scatter_reduce", "searchsorted", "unique", "unique_consecutive",
]  # fmt: skip


def placed(value, device, known):
    """Arguments on a device; leaves stay leaves."""
    if isinstance(value, ag.Tensor):
        if id(value) not in known:
            moved = value.detach().to(device)
            known[id(value)] = moved.requires_grad_() if value.requires_grad else moved
        return known[id(value)]
    if isinstance(value, (list, tuple)):
        return type(value)(placed(part, device, known) for part in value)
    if isinstance(value, dict):
        return {key: placed(part, device, known) for key, part in value.items()}
    return value


def derived(function, args, kwargs, leaves):
    """Values, gradients, and the gradients of a pass that records itself."""
    found = oracle.tensors_of(function(*args, **kwargs), ag.Tensor)
    values = [x for x in found if x.requires_grad]
    found = [x.detach() for x in found]
    if values and leaves:
        ones = [ag.ones_like(x) for x in values]
        for create_graph in (False, True):
            found += ag.grad(
                values, leaves, ones, allow_unused=True, retain_graph=True,
                create_graph=create_graph,
            )  # fmt: skip
    return found


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name, accelerator):
    function = oracle.resolve(name)
    for op in oracle.infos(name):
        backward = {oracle.dtype_name(d) for d in op.supported_backward_dtypes("cpu")}
        possible = backward or {oracle.dtype_name(d) for d in op.supported_dtypes("cpu")}
        # Integers where nothing is differentiated.
        dtypes = [d for d in ("int64", "float64", "complex128") if d in possible]
        if not dtypes:
            continue
        dtype = dtypes[0]
        for sample in oracle.first_samples(op, dtype, 2, requires_grad=bool(backward)):
            twins = oracle.Twins(copy=True)
            args = twins.of([sample.input, *sample.args])[1]
            kwargs = twins.of(sample.kwargs)[1]
            leaves = [ours for _, ours in twins.leaves]
            known = {}
            there = [placed(part, accelerator, known) for part in (args, kwargs, leaves)]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ag.manual_seed(0)
                expected = derived(function, args, kwargs, leaves)
                ag.manual_seed(0)
                found = derived(function, *there)
            assert len(found) == len(expected)
            for one, other in zip(found, expected, strict=True):
                assert (one is None) == (other is None)
                if other is not None:
                    assert one.device is ag.device(accelerator)
                    assert one.dtype == other.dtype
                    np.testing.assert_allclose(
                        one.detach().cpu().numpy(), other.detach().numpy(), rtol=1e-9, atol=1e-12
                    )


def test_what_is_computed_beside_the_table_is_launched_in_the_callers_stream(accelerator):
    """Operators and methods of arrays are in the library's own stream otherwise."""
    rows = ag.tensor([[1.0, 2.0, 4.0], [0.0, 2.0, 3.0]])
    for call in (
        lambda x: ag.searchsorted(x, x),
        lambda x: ag.all((x * 9).to(ag.uint8), 1),
        lambda x: ag.bincount(x[0].long(), x[1]),
        lambda x: ag.unique_consecutive(x, True, True, 0),
        lambda x: ag.unique(x > 1, return_inverse=True),
    ):
        for expected, found in zip(call(rows), call(rows.to(accelerator)), strict=True):
            assert found.device is ag.device(accelerator)
            assert found.tolist() == expected.tolist()
