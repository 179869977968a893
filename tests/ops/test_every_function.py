"""Every promised function over PyTorch's samples: values, derivatives, tangents, errors.

The chapters' own tests go into depth. Here no name can be forgotten: a promised function that
neither is compared nor stands below with a reason fails.
"""

import contextlib
import math

import numpy as np
import oracle
import pytest
from promised import MUST
from recorded_calls import DIFFERENTIABLE as NAMES

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402  after the check

pytestmark = pytest.mark.torch


def _ties(sample):
    return sample.input.unique().numel() < sample.input.numel()


#: Samples that are left out, with the reason.
SKIP = {
    **{name: {"ties come in any order": _ties} for name in ("sort", "argsort", "topk")},
    "nn.functional.dropout": {"random": lambda s: 0 < s.kwargs.get("p", 0.5) < 1
                              and s.kwargs.get("training", True)},
    "nn.functional.scaled_dot_product_attention": {
        "random": lambda s: s.kwargs.get("dropout_p", 0.0) > 0
    },
}  # fmt: skip
#: They say nothing of memory that is walked backwards.
STRIDES = {"view", "reshape", "ravel", "contiguous", "clone"}
#: Constants and integers have no tangents, and PyTorch's attention has none of its own.
WITHOUT_TANGENTS = {
    "isnan", "isinf", "isfinite", "logical_not", "floor_divide", "eq", "ne", "lt", "le", "gt", "ge",
    "logical_and", "logical_or", "logical_xor", "argmax", "argmin", "all", "any", "float",
    "nonzero", "nn.functional.one_hot", "nn.functional.scaled_dot_product_attention", "argsort",
}  # fmt: skip


def test_dropout_that_is_not_random_is_pytorchs():
    name = "nn.functional.dropout"
    oracle.check(name, dtypes=("float64", "complex128"), limit=4, skip=SKIP[name])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*degrees of freedom", "ignore:reduction. 'mean' divides")
@pytest.mark.parametrize("name", NAMES)
def test_values_and_derivatives_are_pytorchs_over_all_samples(name):
    with _pytorchs_own_attention():
        oracle.check(
            name,
            limit=10_000,
            skip=SKIP.get(name),
            awkward=name not in STRIDES,
        )


def _pytorchs_own_attention():
    """PyTorch's fused attention has no second derivative."""
    return sdpa_kernel(SDPBackend.MATH)


@pytest.mark.filterwarnings("ignore:.*degrees of freedom", "ignore:reduction. 'mean' divides")
@pytest.mark.parametrize("name", NAMES)
def test_tangents_are_pytorchs(name):
    count = oracle.check_forward(name, limit=2, skip=SKIP.get(name))
    assert (count > 0) == (name not in WITHOUT_TANGENTS)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*degrees of freedom", "ignore:reduction. 'mean' divides")
@pytest.mark.parametrize("name", [name for name in NAMES if name not in WITHOUT_TANGENTS])
def test_tangents_are_pytorchs_over_all_samples(name):
    oracle.check_forward(
        name,
        dtypes=("float64", "complex128", "float32"),
        limit=10_000,
        skip=SKIP.get(name),
    )


def _zeros(sample):
    return int((sample.input == 0).sum()) > 1


#: PyTorch's own tangents of gradients are wrong here, or there are none.
SKIP_OF_GRADIENTS = {"prod": {"PyTorch gives 0 for products of two zeros": _zeros}}
WITHOUT_TANGENTS_OF_GRADIENTS = WITHOUT_TANGENTS - {
    "nn.functional.scaled_dot_product_attention"
} | {"nn.functional.silu", "nn.functional.mse_loss", "nn.functional.huber_loss"}


@pytest.mark.filterwarnings("ignore:.*degrees of freedom", "ignore:reduction. 'mean' divides")
@pytest.mark.parametrize("name", NAMES)
def test_tangents_of_gradients_are_pytorchs(name):
    """Forward over reverse: what nodes have saved keeps its tangents."""
    skip = {**SKIP.get(name, {}), **SKIP_OF_GRADIENTS.get(name, {})}
    count = oracle.check_forward(name, dtypes=("float64",), limit=1, skip=skip, of_gradients=True)
    assert (count > 0) == (name not in WITHOUT_TANGENTS_OF_GRADIENTS)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*degrees of freedom", "ignore:reduction. 'mean' divides")
@pytest.mark.parametrize("name", [n for n in NAMES if n not in WITHOUT_TANGENTS_OF_GRADIENTS])
def test_tangents_of_gradients_are_pytorchs_over_many_samples(name):
    skip = {**SKIP.get(name, {}), **SKIP_OF_GRADIENTS.get(name, {})}
    oracle.check_forward(name, limit=60, skip=skip, of_gradients=True)


def test_attention_has_tangents():
    """PyTorch's composition of the same has them."""
    F = torch.autograd.forward_ad
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((2, 5, 4)) for _ in range(6)]
    with sdpa_kernel(SDPBackend.MATH), F.dual_level():
        q, k, v = [F.make_dual(torch.tensor(a), torch.tensor(t)) for a, t in _pairs(arrays)]
        scores = torch.softmax(q @ k.transpose(-1, -2) / 2, -1)
        expected = F.unpack_dual(scores @ v).tangent
    F = ag.autograd.forward_ad
    with F.dual_level():
        q, k, v = [F.make_dual(ag.tensor(a), ag.tensor(t)) for a, t in _pairs(arrays)]
        found = F.unpack_dual(ag.nn.functional.scaled_dot_product_attention(q, k, v)).tangent
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-9)


def _pairs(arrays):
    return zip(arrays[:3], arrays[3:], strict=True)


# -- zero-size and one-element axes ---------------------------------------------------------------

#: Functions of one tensor on shapes that PyTorch's samples may leave out.
OF_ANY_SHAPE = (
    *MUST["unary"], "relu", "sum", "mean", "prod", "cumsum", "flip", "clone", "logsumexp",
    "softmax", "log_softmax", "sort",
)  # fmt: skip
ARGUMENTS = {
    "clamp": (-0.5, 0.5), "cumsum": (0,), "flip": ((0,),), "logsumexp": (0,), "softmax": (0,),
    "log_softmax": (0,), "sort": (0,),
}  # fmt: skip


@pytest.mark.parametrize("name", OF_ANY_SHAPE)
@pytest.mark.parametrize("shape", [(0,), (1,), (3, 0), (0, 3), (1, 3), (3, 1), (2, 0, 1)])
def test_empty_and_one_element_axes(name, shape):
    array = np.random.default_rng(0).random(shape) * 0.8 + 0.1
    arguments = ARGUMENTS.get(name, ())
    theirs = torch.tensor(array, requires_grad=True)
    ours = ag.tensor(array, requires_grad=True)
    try:
        expected = getattr(torch, name)(theirs, *arguments)
    except Exception as error:
        with pytest.raises(oracle.error_class(error)):
            getattr(ag, name)(ours, *arguments)
        return
    found = getattr(ag, name)(ours, *arguments)
    oracle.compare(expected, found)
    oracle.compare_derivatives(expected, found, [(theirs, ours)], 2)


# -- memory of results ----------------------------------------------------------------------------

#: Results whose elements lie apart, or in another order, each with the reason.
APART = {
    "nonzero": "with `as_tuple`, vectors are the columns of one array",
    "svd": "LAPACK's matrices of no columns",
    "linalg.svd": "the same",
    "linalg.lu_solve": "solved from the right, it is transposed",
}


def _there(name):
    with contextlib.suppress(AssertionError):
        return oracle.resolve(name)
    return None


@pytest.mark.parametrize("name", sorted({op.name for op in oracle.op_db if _there(op.name)}))
def test_results_are_contiguous_and_can_change_where_pytorchs_are(name):
    """Programs call `view` on a result, or change it in place."""
    function = oracle.resolve(name)
    for op in oracle.infos(name):
        if not op.supports_dtype(torch.float64, "cpu"):
            continue
        for sample in oracle.first_samples(op, "float64", 3, requires_grad=False):
            (theirs, theirs_more, options), (ours, ours_more, ours_options) = oracle.Twins(
                copy=True
            ).of((sample.input, list(sample.args), sample.kwargs))
            with oracle._quiet():
                try:
                    expected = op(theirs, *theirs_more, **options)
                    found = function(ours, *ours_more, **ours_options)
                except Exception:  # what is refused has tests of its own
                    continue
            for one, other in zip(
                oracle.tensors_of(expected, torch.Tensor),
                oracle.tensors_of(found, ag.Tensor),
                strict=False,
            ):
                assert other.is_contiguous() or name in APART or not one.is_contiguous()
                if one.is_contiguous() and one.numel():
                    other.zero_()


#: Functions whose result is contiguous also where their operand is not.
IN_ORDER = {
    "softmax": lambda T, x: x.softmax(1),
    "softmax of halves": lambda T, x: x.half().softmax(1),
    "log_softmax": lambda T, x: x.log_softmax(0),
    "batch_norm": lambda T, x: T.nn.functional.batch_norm(x, None, None, training=True),
    "batch_norm by moments": lambda T, x: T.nn.functional.batch_norm(
        x, T.zeros(4).double(), T.ones(4).double()
    ),
    "instance_norm": lambda T, x: T.nn.functional.instance_norm(x),
    "cat": lambda T, x: T.cat([x, x]),
    "stack": lambda T, x: T.stack([x, x]),
    "an index": lambda T, x: x[:, T.tensor([0, 2])],
    "index_select": lambda T, x: x.index_select(2, T.tensor([0, 2])),
    "repeat_interleave": lambda T, x: x.repeat_interleave(2, 1),
    "roll": lambda T, x: x.roll(1, 0),
    "tril": lambda T, x: x.tril(),
    "triu": lambda T, x: x.triu(),
    **{
        f"{name} over {axes}": lambda T, x, name=name, axes=axes: getattr(T, name)(x, axes)
        for name in ("sum", "mean", "std", "amax", "logsumexp", "nansum", "all", "count_nonzero")
        for axes in (0, 1)
    },
    "prod": lambda T, x: x.prod(0),
    "norm": lambda T, x: T.linalg.vector_norm(x, 3, dim=0, keepdim=True),
    "greatest size": lambda T, x: T.linalg.vector_norm(x, math.inf, dim=1),
    "cosine_similarity": lambda T, x: T.nn.functional.cosine_similarity(x, x, 0),
    "cumsum": lambda T, x: x.cumsum(0),
    "cumprod": lambda T, x: x.cumprod(1),
    "logcumsumexp": lambda T, x: x.logcumsumexp(1),
    "cummax": lambda T, x: x.cummax(0).indices,
    "layer_norm": lambda T, x: T.nn.functional.layer_norm(x, x.shape[2:]),
    "layer_norm of a matrix": lambda T, x: T.nn.functional.layer_norm(x[0], x.shape[2:]),
    "matmul": lambda T, x: (
        T.stack([x, x], 3).permute(3, 0, 1, 2) @ T.stack([x, x], 3).permute(3, 0, 2, 1)
    ),
    "rfft": lambda T, x: T.fft.rfft(x),
    "irfft": lambda T, x: T.fft.irfft(x + 0j),
    "masked_fill": lambda T, x: x.masked_fill(x[0, 0] > 0, 1),
    "scatter": lambda T, x: x.scatter(0, T.tensor([[[1]]]), 2.0),
    "index_add": lambda T, x: x.index_add(0, T.tensor([1]), x[:1]),
    "index_copy": lambda T, x: x.index_copy(0, T.tensor([1]), x[:1]),
    "repeat": lambda T, x: x.repeat(1, 2, 1),
    "one_hot": lambda T, x: T.nn.functional.one_hot((x > 0.5).long(), 2),
}


@pytest.mark.parametrize("name", IN_ORDER)
@pytest.mark.parametrize("length", [3, 3000])
def test_results_are_contiguous_whatever_the_operand_is(name, length):
    """Programs call `view` on the result of a transposed operand."""
    array = np.random.default_rng(0).random((2, length, 4))
    expected, found = (IN_ORDER[name](T, T.tensor(array).transpose(1, 2)) for T in (torch, ag))
    assert expected.is_contiguous()
    assert found.is_contiguous()
    oracle.compare(expected, found, 1e-3 if "halves" in name else None)


@pytest.mark.parametrize("convert", [
    lambda x: x.float(),
    lambda x: x.half(),
    lambda x: x.bool(),
    lambda x: x.to(x.dtype, copy=True),
    lambda x: x.sqrt(),
    lambda x: x[:, :, :1].expand(4, 2, 3).double(),
])  # fmt: skip
def test_what_is_converted_is_contiguous_if_elements_were_repeated(convert):
    """Programs call `view` on a mask that was expanded."""
    expected, found = (convert(T.arange(6).view(2, 3).expand(4, 2, 3)) for T in (torch, ag))
    assert found.is_contiguous()
    oracle.compare(expected, found)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_resized_bytes_are_contiguous(mode):
    image = ag.ones(2, 3, 4, 4, dtype=ag.uint8)
    assert ag.nn.functional.interpolate(image, (5, 6), mode=mode).is_contiguous()


# -- bad input ------------------------------------------------------------------------------------

#: Called as operators they are never given a number as `self`, which is all that PyTorch's samples
#: do to them.
OPERATORS = {"__radd__", "__rsub__", "__rmul__", "__rdiv__", "__rpow__"}
#: All that is refused is an argument `out`, which no function here takes.
REFUSES_OUT = {
    "add", "sub", "mul", "div", "floor_divide", "where", "T", "index_select", "masked_select",
}  # fmt: skip


@pytest.mark.parametrize("name", [n for n in NAMES if oracle.has_errors(n) and n not in OPERATORS])
def test_what_pytorch_refuses_is_refused(name):
    """With its class and a message."""
    count = oracle.check_errors(name)
    assert (count > 0) == (name not in REFUSES_OUT)
