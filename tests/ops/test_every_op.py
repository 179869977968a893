"""What every entry of the table owes, over recorded calls of it."""

from __future__ import annotations

import itertools
import weakref

import numpy as np
import pytest
from adjoint import check_entry
from recorded_calls import Call, recorded_calls

import asyncgrad as ag
from asyncgrad.core.variable import gradient_edge, wrap
from asyncgrad.devices import CPU
from asyncgrad.ops.namespace import RECORDED, metadata_of
from asyncgrad.ops.op import Refused, operation
from asyncgrad.ops.registry import OPS
from asyncgrad.ops.table import activation, elementwise, loss, transcendental

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

#: Their results are found before and handed in, so a difference of two values says nothing.
HANDED_IN = {
    "max_along", "min_along", "sort", "topk", "cross_entropy", "bernoulli", "poisson", "normal",
    "normal_of_mean", "normal_of_std", "binomial", "median_along", "nanmedian_along", "kthvalue",
    "mode", "standard_gamma",
}  # fmt: skip
#: Called where they jump, by relu: on its zeros.
JUMPING = {"rectified"}
#: The gradient is not the derivative's: PyTorch's embedding scales it, and its tangents not.
SCALED = {"scale_gradient"}
#: Of Hermitian matrices: the gradients are Hermitian, the tangents need not be. What is compared is
#: a function of such matrices, in `test_matrices.py`.
HERMITIAN = {"cholesky", "eigh_values", "eigh_vectors"}
#: The phase of an eigenvector is any: only gradients that do not turn it are taken.
OF_ANY_PHASE = {"eig_vectors"}
#: What these take and give is no array: `test_sparse.py` is about them.
SPARSE = {"lookup", "rows", "to_dense"}
#: They have no derivative, or not by each input.
REFUSED = {
    name
    for name, entry in OPS.items()
    if any(isinstance(part.function, Refused) for part in entry.pulls.values())
}
DIFFERENTIABLE = [
    name for name, entry in OPS.items() if entry.pulls and name not in SPARSE | REFUSED
]
SEQUENCES = [name for name, entry in OPS.items() if entry.inputs == ("*xs",)]


def floating(name: str) -> list[Call]:
    """The calls in which all inputs that have derivatives are of one floating kind."""
    entry = OPS[name]
    return [
        call
        for call in recorded_calls()[name]
        if len({x.dtype for x in call.inputs if x.dtype.kind != "b"}) == 1
        and all(
            x.dtype.kind in "fc"
            for key, x in zip(entry.inputs, call.inputs, strict=False)
            if key in entry.pulls or key == "*xs"
        )
    ]


@pytest.mark.parametrize("name", OPS)
def test_an_entry_is_used_by_a_promised_function(name):
    """Whoever adds an entry adds samples that reach it, in `recorded_calls.FURTHER` if need be."""
    assert recorded_calls()[name], f"no sample of any function has called the entry {name!r}"


@pytest.mark.parametrize(
    "name", [n for n in DIFFERENTIABLE if n not in {*SEQUENCES, *SCALED, *HERMITIAN, *OF_ANY_PHASE}]
)
def test_pull_and_push_are_adjoint_and_the_derivative(name):
    calls = floating(name)
    assert calls, f"no call of {name!r} has inputs that can be differentiated"
    sloping = name not in HANDED_IN | JUMPING
    for call in calls:
        check_entry(name, call.inputs, call.attributes, slope=sloping)


@pytest.mark.parametrize("name", [n for n in DIFFERENTIABLE if n not in SEQUENCES])
def test_a_recorded_pass_gives_what_a_plain_one_gives(name):
    """For each choice of inputs that require grad: the same values, from rules and kernels."""
    entry = OPS[name]
    keys = [place for place, key in enumerate(entry.inputs) if key in entry.pulls]
    for call in floating(name):
        out = np.asarray(_raw(name, call))
        g = np.random.default_rng(0).standard_normal(out.shape).astype(out.dtype)
        if name in OF_ANY_PHASE:
            g = g - 1j * out * (out.conj() * g).imag.sum(-2, keepdims=True).astype(out.real.dtype)
        for count in range(1, len(keys) + 1):
            for wanted in itertools.combinations(keys, count):
                tensors = [
                    ag.from_numpy(x.copy()).requires_grad_(place in wanted)
                    for place, x in enumerate(call.inputs)
                ]
                result = getattr(RECORDED, name)(*tensors, *call.attributes)
                np.testing.assert_array_equal(result.detach().numpy(), out)
                leaves = [tensors[place] for place in wanted]
                options = {"retain_graph": True, "allow_unused": True}
                plain = ag.grad(result, leaves, ag.from_numpy(g), **options)
                recorded = ag.grad(
                    result, leaves, ag.from_numpy(g), create_graph=True, allow_unused=True
                )
                for leaf, one, other in zip(leaves, plain, recorded, strict=True):
                    assert (one is None) == (other is None)
                    if one is not None and other is not None:
                        assert one.shape == other.shape == leaf.shape
                        assert one.dtype == other.dtype == leaf.dtype
                        _compare(one.numpy(), other.detach().numpy())


def test_gradients_without_axes_may_be_scalars():
    """NumPy answers arrays without axes with scalars, and a pass hands those on as they are."""
    tried = set()
    chapters = (activation, elementwise, loss, transcendental)
    names = {entry.name for chapter in chapters for entry in chapter.OPS}
    for name in sorted(names.intersection(DIFFERENTIABLE)):
        # What has an axis to go along takes no tensor without one: its function sees to that.
        calls = [] if "dim" in OPS[name].attributes else floating(name)
        for call in calls[:1]:
            gradients = []
            for shape in ((), (1,)):
                leaves = [
                    ag.from_numpy(x.ravel()[:1].reshape(shape).copy())
                    for x in call.inputs
                    if x.size
                ]
                for place, key in enumerate(OPS[name].inputs[: len(leaves)]):
                    leaves[place].requires_grad_(key in OPS[name].pulls)
                try:
                    out = getattr(RECORDED, name)(*leaves, *call.attributes)
                except Exception:
                    break  # It needs axes.
                if out._metadata.shape != shape or not out.requires_grad:
                    break
                wanted = [leaf for leaf in leaves if leaf.requires_grad]
                gradients.append(ag.grad((out * 2).abs().sum(), wanted, allow_unused=True))
            if len(gradients) == 2:
                tried.add(name)
                for one, other in zip(*gradients, strict=True):
                    assert (one is None) == (other is None), name
                    if one is not None:
                        _compare(one.reshape(1).numpy(), other.numpy())
    assert {"maximum", "exp", "where", "div", "sigmoid", "huber_loss"} <= tried


def _raw(name, call):
    F = metadata_of(call.inputs[0], CPU).F
    return getattr(F, name)(*[x.copy() for x in call.inputs], *call.attributes)


def _compare(found, expected):
    finite = np.abs(expected[np.isfinite(expected)])
    near = 1e-5 if expected.dtype.itemsize < 8 else 1e-10
    scale = finite.max(initial=1.0)
    np.testing.assert_allclose(found, expected, rtol=near, atol=near * scale)


@pytest.mark.parametrize("name", [n for n in DIFFERENTIABLE if n not in SEQUENCES])
def test_nothing_but_what_the_rules_name_is_kept(name):
    """The arrays of inputs that no needed rule asks for die with their tensors."""
    entry = OPS[name]
    keys = [place for place, key in enumerate(entry.inputs) if key in entry.pulls]
    call = floating(name)[0]
    for count in range(1, len(keys) + 1):
        for wanted in itertools.combinations(keys, count):
            leaf = ag.ones(1, requires_grad=True)
            tensors = []
            for place, x in enumerate(call.inputs):
                array = x.copy()
                edge = gradient_edge(leaf) if place in wanted else None
                tensors.append(wrap(array, metadata_of(array, CPU), edge))
            out = getattr(RECORDED, name)(*tensors, *call.attributes)
            rule = out.grad_fn.rule
            declared = {n for place in wanted for n in entry.pulls[entry.inputs[place]].names}
            shapes = {f"{key}_shape" for key in entry.inputs} if entry.broadcasts else set()
            assert set(rule.names) <= declared | shapes
            shared = [np.shares_memory(out._array, x._array) for x in tensors]
            references = [weakref.ref(x._array) for x in tensors]
            del tensors, array, x
            for place, key in enumerate(entry.inputs):
                if not shared[place]:
                    alive = references[place]() is not None
                    assert alive == (key in declared), f"{key} with gradients of {wanted}"
            if "out" not in declared and not any(shared) and name not in HANDED_IN:
                reference, node = weakref.ref(out._array), out.grad_fn
                del out
                assert reference() is None, f"{node.name()} keeps its output"


def test_an_op_that_renews_its_output_has_one_pull():
    """Two could run in two threads, and each would replace what the node has saved."""
    pulls = {"x": lambda F, g, y, out: g * y, "y": lambda F, g, x, out: g * x}
    with pytest.raises(ValueError, match=r"product: .* one pull"):
        operation("product", "multiply", "x y", pulls=pulls, renews=True)


@pytest.mark.parametrize("name", SEQUENCES)
def test_a_function_of_a_sequence_pulls_and_pushes(name):
    """Each tensor gets its part; what pushes all tangents is the function itself."""
    entry = OPS[name]
    rng = np.random.default_rng(0)
    for call in floating(name):
        leaves = [ag.from_numpy(x.copy()).requires_grad_() for x in call.inputs]
        out = getattr(RECORDED, name)(leaves, *call.attributes)
        g, *tangents = [
            rng.standard_normal(x.shape).astype(x.dtype) for x in (out._array, *call.inputs)
        ]
        pulled = ag.grad(out, leaves, ag.from_numpy(g))
        F = metadata_of(call.inputs[0], CPU).F
        push = entry.pushes["*xs"]
        values = dict(zip(entry.attributes, call.attributes, strict=True))
        pushed = push.function(F, tangents, *[values[n] for n in push.names])
        np.testing.assert_allclose(
            np.vdot(g, pushed),
            sum(np.vdot(p.numpy(), t) for p, t in zip(pulled, tangents, strict=True)),
            rtol=1e-9,
        )


# -- fused kernels --------------------------------------------------------------------------------


def _normalised(x, dims, eps, centred=True):
    off = x - x.mean(dims, keepdim=True) if centred else x
    return off / ag.sqrt((off * off).mean(dims, keepdim=True) + eps)


def _softmax(x, dim):
    e = ag.exp(x - x.detach().amax(dim, keepdim=True))
    return e / e.sum(dim, keepdim=True)


def _normal_cdf(x):
    return 0.5 * (1 + ag.erf(x * 0.5**0.5))


N = ag.nn.functional
#: The fused function, and what it is made of: of a matrix and of two vectors.
COMPOSITIONS = {
    "softmax": (lambda x, w, b: ag.softmax(x, 1), lambda x, w, b: _softmax(x, 1)),
    "log_softmax": (
        lambda x, w, b: ag.log_softmax(x, 1), lambda x, w, b: ag.log(_softmax(x, 1)),
    ),
    "logsumexp": (
        lambda x, w, b: ag.logsumexp(x, 1), lambda x, w, b: ag.log(ag.exp(x).sum(1)),
    ),
    "layer_norm": (
        lambda x, w, b: N.layer_norm(x, x.shape[1:], w, b),
        lambda x, w, b: _normalised(x, 1, 1e-5) * w + b,
    ),
    "rms_norm": (
        lambda x, w, b: N.rms_norm(x, x.shape[1:], w, 1e-5),
        lambda x, w, b: _normalised(x, 1, 1e-5, centred=False) * w,
    ),
    "batch_norm": (
        lambda x, w, b: N.batch_norm(x, None, None, w, b, training=True),
        lambda x, w, b: _normalised(x, 0, 1e-5) * w + b,
    ),
    "cross_entropy": (
        lambda x, w, b: N.cross_entropy(x, ag.arange(len(x)) % x.shape[1], w.detach().abs()),
        lambda x, w, b: (
            lambda picked: -(ag.log(_softmax(x, 1)) * w.detach().abs() * picked).sum()
            / (w.detach().abs() * picked).sum()
        )(ag.nn.functional.one_hot(ag.arange(len(x)) % x.shape[1], x.shape[1])),
    ),
    "gelu": (lambda x, w, b: N.gelu(x), lambda x, w, b: x * _normal_cdf(x)),
    "gelu, tanh": (
        lambda x, w, b: N.gelu(x, approximate="tanh"),
        lambda x, w, b: 0.5 * x * (1 + ag.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3))),
    ),
    "silu": (lambda x, w, b: N.silu(x), lambda x, w, b: x / (1 + ag.exp(-x))),
    "sigmoid": (lambda x, w, b: ag.sigmoid(x), lambda x, w, b: 1 / (1 + ag.exp(-x))),
    "attention": (
        lambda x, w, b: N.scaled_dot_product_attention((x * w)[None], (x + b)[None], x[None])[0],
        lambda x, w, b: _softmax((x * w) @ (x + b).T / x.shape[1] ** 0.5, 1) @ x,
    ),
}  # fmt: skip


@pytest.mark.parametrize("shape", [(5, 7), (700, 120)])
@pytest.mark.parametrize("name", COMPOSITIONS)
def test_a_fused_kernel_is_its_composition(name, shape):
    """The larger shape takes several blocks or tiles."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s) for s in (shape, shape[1], shape[1])]
    found = []
    for function in COMPOSITIONS[name]:
        leaves = [ag.tensor(a, requires_grad=True) for a in arrays]
        out = function(*leaves)
        g = ag.from_numpy(np.random.default_rng(1).standard_normal(out.shape))
        gradients = ag.grad(out, leaves, g, allow_unused=True)
        found.append([out.detach(), *gradients])
    for ours, expected in zip(*found, strict=True):
        assert (ours is None) == (expected is None)
        if ours is not None:
            np.testing.assert_allclose(ours.numpy(), expected.numpy(), rtol=1e-8, atol=1e-10)
