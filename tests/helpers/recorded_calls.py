"""Calls of every entry of the table, as PyTorch's samples of the promised functions make them.

Nobody writes down arguments for an entry: its calls are recorded while the functions, their
gradients and the gradients' gradients are computed. An entry without a recorded call is one that no
promised function needs.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from typing import Any, NamedTuple

import numpy as np
import oracle
from promised import MUST

import asyncgrad as ag
from asyncgrad.autograd import forward_ad
from asyncgrad.core.variable import view_of
from asyncgrad.devices import CPU
from asyncgrad.ops import namespace
from asyncgrad.ops.api.random import standard_gamma
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.registry import OPS
from asyncgrad.ops.table.in_place import Route

#: Groups of functions that PyTorch has no samples of, that are not differentiable, or random.
_SILENT = {"not_in_op_db", "random", "creation"}
DIFFERENTIABLE = [name for group, names in MUST.items() if group not in _SILENT for name in names]
_I = ag.tensor([[0, 1, 1, 2], [2, 2, 0, 1], [1, 0, 2, 2]])


def _change_a_view(x: Any) -> Any:
    y = x * 1
    y[:, 1].mul_(y[:, 2])
    return y * y


def _put_a_tangent(x: Any) -> Any:
    with forward_ad.dual_level():
        y = forward_ad.make_dual(x.detach(), ag.ones_like(x.detach()))
        return ag.index_put(x, (_I[0], _I[1]), y[0])


def _copy_slices(x: Any) -> Any:
    """Compute with an entry that assignments only differentiate with."""
    view = x.detach()[:, 1:]
    return R.copy_slices(x, x[:, 1:], Route(view_of(view).path, x))


#: Programs with the calls that are missing in PyTorch's samples.
FURTHER = (
    lambda x: (2.5**x, 2.5 ** (x * 1j), (x * 1j) ** 3),
    lambda x: ag.fmod(x, 0.4),
    lambda x: x % 0.4,
    lambda x: x != 1.5,
    lambda x: (ag.as_strided(x, (3, 3), (2, 1), 1), ag.as_strided(x.expand(2, 3, 4), (4,), (1,))),
    lambda x: ag.as_strided_scatter(x, x[:2, :2], (2, 2), (5, 2), 1),
    lambda x: R.pin_memory(x, ag.device("sim:0")),
    lambda x: (ag.asinh(x), ag.acosh(x + 1), ag.atanh(x / 9), ag.polygamma(2, x), ag.lgamma(x)),
    lambda x: (ag.erfc(x), ag.erfinv(x / 9), ag.xlogy(x, x + 1), ag.hypot(x, x + 1)),
    lambda x: (ag.copysign(x, -x), ag.nextafter(x, x + 1)),
    lambda x: ag.logcumsumexp(x, 1),
    lambda x: ag.cumprod(x, 1),
    lambda x: ag.nn.functional.adaptive_avg_pool1d(x[None], 3),
    lambda x: (ag.logaddexp(x, 2 * x), ag.logaddexp2(x, 2 * x), ag.logit(x / 9)),
    lambda x: (ag.nn.functional.hardswish(x), ag.nn.functional.mish(x)),
    *[
        getattr(ag.special, name)
        for name in (
            "entr",
            "ndtr",
            "log_ndtr",
            "erfcx",
            "i0",
            "i0e",
            "i1",
            "i1e",
            "bessel_j0",
            "bessel_j1",
            "bessel_y0",
            "bessel_y1",
            "modified_bessel_k0",
            "modified_bessel_k1",
            "scaled_modified_bessel_k0",
            "scaled_modified_bessel_k1",
        )
    ],
    lambda x: (ag.special.ndtri(x / 9), ag.special.xlog1py(x, x), ag.special.zeta(2.0, x)),
    lambda x: ag.cdist(x, x.detach() + 1, compute_mode="use_mm_for_euclid_dist"),
    lambda x: ag.scatter_reduce(x, 0, _I[:2], x[1:], "amax"),
    lambda x: (_I ^ _I, _I << _I, _I >> _I, ag.gcd(_I, _I), ag.lcm(_I, _I)),
    lambda x: (ag.igamma(x.detach() + 1, x), ag.igammac(x.detach() + 1, x), standard_gamma(x)),
    lambda x: ag.scatter(x, 0, _I[:2], x[1:], reduce="multiply").detach() + x,
    lambda x: ag.scatter_reduce(x, 0, _I[:2], x[1:], "prod"),
    lambda x: ag.nn.functional.embedding(_I[0], x, padding_idx=1, scale_grad_by_freq=True),
    lambda x: ag.nn.functional.embedding(_I[0], x, sparse=True).to_dense(),
    lambda x: ag.nn.functional.leaky_relu(x - 1, -0.5),
    lambda x: ag.nn.functional.elu(x - 1, -0.5),
    _change_a_view,
    _put_a_tangent,
    _copy_slices,
    lambda x: (ag.bernoulli(x / 2), ag.poisson(x), ag.binomial(x.floor() + 3, x / 2)),
    lambda x: (ag.normal(x, 1.0), ag.normal(0.0, x), ag.normal(x, x)),
    lambda x: (x.median(), x.nanmedian(), x.median(1).values, x.nanmedian(1).values),
    lambda x: (x.mode(1).values, x.kthvalue(2, 1).values),
    lambda x: ag.complex(x, 2 * x),
    lambda x: ag.angle(ag.complex(x, 2 * x)),
    lambda x: ag.view_as_complex((x * 1)[:, :2]),
    lambda x: ag.nn.RNN(4, 2, dtype=ag.float64)(x)[0],
    lambda x: ag.nn.RNN(4, 2, nonlinearity="relu", dtype=ag.float64)(x)[0],
    lambda x: ag.nn.LSTM(4, 2, dtype=ag.float64)(x)[0],
    lambda x: ag.nn.GRU(4, 2, dtype=ag.float64)(x)[0],
    lambda x: (ag.fft.rfft(x), ag.fft.irfft(ag.complex(x, x + 1)), ag.fft.fft2(ag.complex(x, x))),
    lambda x: tuple(ag.linalg.svd(x)),
    lambda x: tuple(ag.linalg.svd(x.mT)),
    lambda x: tuple(ag.linalg.qr(x.mT)),
    lambda x: ag.linalg.qr(x.detach().mT, "complete").Q,
    lambda x: tuple(ag.linalg.eigh(x[:, :3] + x[:, :3].mT)),
    lambda x: tuple(ag.linalg.eig(x[:, :3] + ag.tensor([[0.0, 2, 0], [-2, 0, 1], [0, 1, 5]]))),
    lambda x: (ag.linalg.pinv(x), ag.linalg.det(x[:, 1:]), tuple(ag.linalg.slogdet(x[:, 1:]))),
    lambda x: ag.linalg.cholesky(x @ x.mT + 0.1 * ag.eye(3, dtype=x.dtype)),
    lambda x: ag.linalg.solve(x[:, :3] + 2 * ag.eye(3, dtype=x.dtype), x),
    lambda x: (ag.linalg.lu(x), ag.linalg.lu(x.mT), ag.matrix_exp(x[:, :3])),
    ag.unique,
    ag.unique_consecutive,
    lambda x: ag.heaviside(x, x),
    lambda x: ag.linalg.inv(x[:, :3] + 2 * ag.eye(3, dtype=x.dtype)),
)
#: A call is kept if none of its arrays has more elements.
_LARGEST = 400


class Call(NamedTuple):
    """One call of an entry's raw function."""

    inputs: tuple[np.ndarray, ...]
    attributes: tuple[Any, ...]

    @property
    def size(self) -> int:
        return max(x.size for x in self.inputs)

    @property
    def kind(self) -> str:
        """The kinds of the inputs' dtypes."""
        return "".join(sorted({x.dtype.kind for x in self.inputs}))


@functools.cache
def recorded_calls() -> dict[str, list[Call]]:
    """Some calls of every entry that the promised functions use, by the entry's name."""
    recorded: dict[str, list[Call]] = {name: [] for name in OPS}
    with _recording(recorded):
        for name in DIFFERENTIABLE:
            function = oracle.resolve(name)
            for op in oracle.infos(name):
                backward = {oracle.dtype_name(d) for d in op.supported_backward_dtypes("cpu")}
                for dtype in ("float64", "complex128"):
                    if dtype in backward or (dtype == "float64" and not backward):
                        derive = bool(backward)
                        for sample in oracle.first_samples(op, dtype, 12, requires_grad=derive):
                            twins = oracle.Twins(copy=True)
                            arguments = twins.of([sample.input, *sample.args])[1]
                            call = functools.partial(function, **twins.of(sample.kwargs)[1])
                            _differentiate(call, arguments, [ours for _, ours in twins.leaves])
        for function in FURTHER:
            x = ag.from_numpy(np.random.default_rng(0).random((3, 4)) + 0.5).requires_grad_()
            _differentiate(function, [x], [x])
        # PyTorch does not have these functions.
        for op in OPS.values():
            if op.doc and not recorded[op.name]:
                x = np.random.default_rng(0).random((len(op.inputs), 3, 4)) + 0.5
                inputs = [ag.from_numpy(values).requires_grad_() for values in x]
                _differentiate(getattr(R, op.name), inputs, inputs)
    return {name: _chosen(calls) for name, calls in recorded.items()}


@contextlib.contextmanager
def _recording(recorded: dict[str, list[Call]]) -> Any:
    """Append the calls of all raw functions to `recorded` in this block."""
    kinds = ("small", "large", "complex", "bfloat16")
    spaces = [namespace._space(CPU, kind) for kind in kinds]
    found = [dict(vars(F)) for F in spaces]
    for F in spaces:
        for name in OPS:
            setattr(F, name, _recorder(name, getattr(F, name), recorded[name]))
    try:
        yield
    finally:
        for F, functions in zip(spaces, found, strict=True):
            vars(F).update(functions)


def _recorder(name: str, function: Any, calls: list[Call]) -> Any:
    entry = OPS[name]
    arity = len(entry.inputs)

    def record(*arguments: Any) -> Any:
        inputs = arguments[0] if entry.inputs == ("*xs",) else arguments[:arity]
        arrays = all(isinstance(x, np.ndarray) for x in inputs)
        if arrays and all(0 < x.size <= _LARGEST and x.dtype.kind in "fcbi" for x in inputs):
            # Copied, because some functions write into their first input.
            attributes = [list(a) if isinstance(a, list) else a for a in arguments[arity:]]
            calls.append(Call(tuple([np.array(x) for x in inputs]), tuple(attributes)))
        return function(*arguments)

    return record


def _differentiate(function: Any, arguments: list[Any], leaves: list[Any]) -> None:
    """Call a function and differentiate it twice, as far as that is possible."""
    with warnings.catch_warnings(), contextlib.suppress(RuntimeError):
        warnings.simplefilter("ignore")
        values = oracle.tensors_of(function(*arguments), ag.Tensor)
        values = [x for x in values if x.requires_grad]
        if not values:
            return
        ones = [ag.ones_like(x).requires_grad_() for x in values]
        options = {"allow_unused": True, "retain_graph": True}
        ag.grad(values, leaves, ones, **options)
        first = ag.grad(values, leaves, ones, create_graph=True, **options)
        first = [x for x in first if x is not None and x.requires_grad]
        if first:
            ones_again = [ag.ones_like(x) for x in first]
            ag.grad(first, [*leaves, *ones], ones_again, **options)


def _chosen(calls: list[Call]) -> list[Call]:
    """Few calls that differ: for each kind of numbers a small, a middling and a large one."""
    chosen = []
    for kind in sorted({call.kind for call in calls}):
        distinct = {_signature(call): call for call in calls if call.kind == kind}
        ordered = sorted(distinct.values(), key=lambda call: call.size)
        places = sorted({len(ordered) // 4, len(ordered) // 2, len(ordered) - 1})
        chosen += [ordered[place] for place in places]
    return chosen


def _signature(call: Call) -> tuple[Any, ...]:
    shapes = tuple([x.shape for x in call.inputs])
    return (shapes, repr([a for a in call.attributes if not isinstance(a, np.ndarray)]))
