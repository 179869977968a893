"""Functions made of the table's, over PyTorch's samples: values, derivatives, errors."""

import itertools

import oracle
import pytest

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = pytest.mark.torch

DIFFERENTIABLE = (
    "addbmm", "addcdiv", "addcmul", "addmv", "addr", "angle", "atleast_1d", "atleast_2d",
    "atleast_3d", "baddbmm", "block_diag", "column_stack", "conj", "conj_physical", "cumprod",
    "diff", "dist", "dsplit", "dstack", "expand_as", "fliplr", "flipud", "float_power", "frac",
    "hsplit", "hstack", "imag", "index_copy", "index_fill", "lerp", "logaddexp", "masked_scatter",
    "mH", "H", "nan_to_num", "nanmean", "nansum", "real", "repeat_interleave",
    "resolve_conj", "resolve_neg", "rot90", "select_scatter", "slice_scatter", "split_with_sizes",
    "std_mean", "take", "tensor_split", "trace", "unsafe_chunk", "unsafe_split", "var_mean", "vdot",
    "vsplit", "vstack", "aminmax", "acosh", "asinh", "atanh", "copysign", "deg2rad",
    "digamma", "erfc", "erfinv", "fmax", "fmin", "hypot", "lgamma", "logaddexp2", "logit",
    "nextafter", "rad2deg", "sinc", "xlogy",
)  # fmt: skip
FUNCTIONAL = tuple(
    f"nn.functional.{name}"
    for name in (
        "celu", "glu", "group_norm", "hardshrink", "hardswish", "hardtanh", "mish",
        "normalize", "pairwise_distance", "pixel_shuffle", "pixel_unshuffle", "prelu", "relu6",
        "selu", "softmin", "softshrink", "softsign", "tanhshrink", "threshold",
        "bilinear", "channel_shuffle", "cosine_embedding_loss", "gaussian_nll_loss",
        "hinge_embedding_loss", "instance_norm", "interpolate", "local_response_norm",
        "margin_ranking_loss", "multi_margin_loss", "multilabel_margin_loss",
        "multilabel_soft_margin_loss", "poisson_nll_loss", "soft_margin_loss",
        "triplet_margin_loss", "unfold", "upsample_bilinear", "upsample_nearest",
    )
)  # fmt: skip
CONSTANT = (
    "allclose", "argwhere", "bincount", "bucketize", "count_nonzero", "equal", "isclose", "isin",
    "heaviside", "isneginf", "isposinf", "isreal", "nonzero_static", "searchsorted", "signbit",
    "unique",
)  # fmt: skip


# PyTorch has no derivatives of some forms in place, and changes the shape of others' tensors.
_silently = pytest.mark.filterwarnings(
    "ignore:.*degrees of freedom", "ignore:Implicit dimension", "ignore:.*upsample.*deprecated"
)
test_samples = _silently(
    oracle.as_in_pytorch(
        DIFFERENTIABLE + FUNCTIONAL,
        in_place=False,
        dtypes=("float64", "complex128", "int64"),
        limit=3,
    )
)
# What they do depends on the strides.
test_views = oracle.as_in_pytorch(["view_as", "reshape_as"], limit=3, awkward=False)
# PyTorch multiplies with a sixth in single precision.
test_sixths = oracle.as_in_pytorch(["nn.functional.hardsigmoid"], limit=3, tolerance=1e-7)
test_answers = oracle.as_in_pytorch(
    CONSTANT, dtypes=("float64", "int64", "complex128", "bool"), limit=5
)


@pytest.mark.parametrize("dtypes", list(itertools.product(("int64", "float64"), repeat=3)))
def test_factors_and_operands_of_mixed_dtypes(dtypes):
    """A factor with a fraction counts as an integer where everything else is one."""
    results = []
    for T in (torch, ag):
        x, y, z = [T.tensor([2, 3]).to(getattr(T, dtype)) for dtype in dtypes]
        found = [T.addcmul(x, y, z, value=1.5)]
        if "float64" in dtypes[:2]:
            found.append(T.logaddexp(x, y))
            found.append(T.sub(x[0], y, alpha=0.5))
        results.append(found)
    oracle.compare(*results)


X = [[0.5, -1.0, 2.0, 0.1], [1.5, 0.3, -0.2, 0.7]]
OLDER = {
    "chain_matmul": lambda T, x: T.chain_matmul(x, x.t(), x),
    "fix": lambda T, x: (T.fix(x), x.fix(), (x * 1).fix_()),
    "is_signed": lambda T, x: x * T.is_signed(x) * (1 - T.is_signed(T.tensor([True]))),
    "get_device": lambda T, x: x * T.get_device(x),
    "dropout": lambda T, x: (T.dropout(x, 0.5, False), T.alpha_dropout(x, 0.5, False)),
    "embedding": lambda T, x: (T.embedding(x, T.tensor([1, 1, 0])),
                               T.embedding(x, T.tensor([1, 0]), 0, True)),
    "layer_norm": lambda T, x: T.layer_norm(x, (4,), x[0], None, 1e-3, False),
    "group_norm": lambda T, x: T.group_norm(x, 2, x[0], x[1], 1e-3, False),
    "prelu": lambda T, x: (T.prelu(x, x[0]), x.prelu(x[0]), x.hardshrink(), T.hardshrink(x, 0.2)),
    "split_with_sizes": lambda T, x: T.split_with_sizes(x, [1, 3], 1),
    "narrow_copy": lambda T, x: (T.narrow_copy(x, 1, -2, 1), x.narrow_copy(0, 1, length=1)),
    "constant_pad_nd": lambda T, x: T.constant_pad_nd(x, (1, 0, 2, -1), value=2),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:torch.chain_matmul is deprecated")
@pytest.mark.parametrize("name", OLDER)
def test_forms_at_the_top_level_are_pytorchs(name):
    leaves = [T.tensor(X, dtype=T.float64, requires_grad=True) for T in (torch, ag)]
    found = [OLDER[name](T, x) for T, x in zip((torch, ag), leaves, strict=True)]
    oracle.compare(*found)
    oracle.compare_derivatives(*found, [tuple(leaves)], 2)


def test_an_axis_is_looked_for_before_shapes_are_compared():
    for T in (torch, ag):
        with pytest.raises(IndexError, match="Dimension out of range"):
            T.stack([T.ones(()), T.ones(2)], 1)
