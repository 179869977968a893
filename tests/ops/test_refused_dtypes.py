"""Bools are no sizes, and integers and complex numbers no operands, where PyTorch says so."""

import oracle
import pytest

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = pytest.mark.torch


def _x(T):
    return T.arange(24.0).reshape(2, 3, 4)


CALLS = {
    "ones": lambda T: T.ones(True),
    "ones of a sequence": lambda T: T.ones((True, 2)),
    "zeros, the second": lambda T: T.zeros(2, True),
    "full": lambda T: T.full((True,), 1.0),
    "rand": lambda T: T.rand(True),
    "randint": lambda T: T.randint(5, (True,)),
    "randint, the bound": lambda T: T.randint(True, (2,)),
    "new_zeros": lambda T: _x(T).new_zeros(True),
    "reshape": lambda T: _x(T).reshape(True, -1),
    "view": lambda T: _x(T).view((True, -1)),
    "expand": lambda T: _x(T).expand(True, 2, 3, 4),
    "repeat": lambda T: _x(T).repeat(True, 2, 3),
    "tile": lambda T: _x(T).tile((True, 2)),
    "resize_": lambda T: T.ones(3).resize_(True),
    "as_strided": lambda T: _x(T).as_strided((True,), (1,)),
    "unflatten": lambda T: _x(T).unflatten(2, (True, 4)),
    "topk": lambda T: _x(T).topk(True),
    "kthvalue": lambda T: _x(T).kthvalue(True),
    "split": lambda T: _x(T).split(True),
    "split at": lambda T: _x(T).split([True, 1]),
    "chunk": lambda T: _x(T).chunk(True),
    "tensor_split": lambda T: _x(T).tensor_split(True),
    "narrow, length": lambda T: _x(T).narrow(0, 0, True),
    "narrow, start": lambda T: _x(T).narrow(0, True, 1),
    "select": lambda T: _x(T).select(0, True),
    "roll": lambda T: _x(T).roll(True),
    "flip": lambda T: _x(T).flip(True),
    "permute": lambda T: _x(T).permute(True, 0, 2),
    "rot90": lambda T: T.rot90(_x(T), True),
    "tril": lambda T: _x(T).tril(True),
    "diagonal": lambda T: _x(T).diagonal(True),
    "diag": lambda T: T.diag(_x(T)[0, 0], True),
    "diag_embed": lambda T: _x(T).diag_embed(True),
    "unfold, size": lambda T: _x(T).unfold(0, True, 1),
    "unfold, step": lambda T: _x(T).unfold(0, 1, True),
    "eye": lambda T: T.eye(True),
    "tril_indices": lambda T: T.tril_indices(True, 2),
    "linspace": lambda T: T.linspace(0, 1, True),
    "randperm": lambda T: T.randperm(True),
    "multinomial": lambda T: T.multinomial(T.ones(3), True),
    "repeat_interleave": lambda T: _x(T).repeat_interleave(True),
    "diff": lambda T: _x(T).diff(True),
    "round": lambda T: _x(T).round(decimals=True),
    "matrix_power": lambda T: T.linalg.matrix_power(T.eye(2), True),
    "vander": lambda T: T.linalg.vander(T.ones(3), N=True),
    "fft": lambda T: T.fft.fft(_x(T), True),
    "polygamma": lambda T: T.polygamma(True, _x(T)),
    "mvlgamma": lambda T: T.mvlgamma(_x(T) + 9, True),
    "one_hot": lambda T: T.nn.functional.one_hot(T.tensor([0]), True),
    "embedding": lambda T: T.nn.functional.embedding(T.tensor([0]), T.ones(2, 2), True),
    "norms of integers": lambda T: T.nn.functional.embedding(
        T.tensor([0]), T.ones(2, 2, dtype=T.int64), max_norm=1.0
    ),
    "stride": lambda T: T.nn.functional.conv1d(_x(T), T.ones(1, 3, 2), stride=True),
    "padding": lambda T: T.nn.functional.conv1d(_x(T), T.ones(1, 3, 2), padding=True),
    "max_pool1d": lambda T: T.nn.functional.max_pool1d(_x(T), True),
    "avg_pool2d": lambda T: T.nn.functional.avg_pool2d(_x(T), 2, True),
    "adaptive_avg_pool1d": lambda T: T.nn.functional.adaptive_avg_pool1d(_x(T), True),
    "pad": lambda T: T.nn.functional.pad(_x(T), (True, 1)),
    "pixel_shuffle": lambda T: T.nn.functional.pixel_shuffle(_x(T), True),
    "channel_shuffle": lambda T: T.nn.functional.channel_shuffle(_x(T)[None], True),
    "unfold of images": lambda T: T.nn.functional.unfold(_x(T)[None], True),
    "interpolate": lambda T: T.nn.functional.interpolate(_x(T), True),
    "group_norm": lambda T: T.nn.functional.group_norm(_x(T), True),
    "hstack of one tensor": lambda T: T.hstack(T.ones(2)),
    "vstack of a number": lambda T: T.vstack(2.0),
    "a slice that is a number": lambda T: _x(T).select_scatter(1.0, 0, 0),
    "several slices that are a number": lambda T: _x(T).slice_scatter(1.0),
    "group_norm by a number": lambda T: T.nn.functional.group_norm(_x(T), 1, 2.0),
    "a window that is a number": lambda T: T.stft(T.ones(8), 4, window=3, return_complex=True),
    "negative power of booleans": lambda T: T.tensor([True]) ** -1,
    "searchsorted in complex": lambda T: T.searchsorted(T.ones(2) * 1j, T.ones(2)),
    "searchsorted for complex": lambda T: T.searchsorted(T.ones(2), 1j),
    "relu of complex": lambda T: T.relu(_x(T) * 1j),
    "relu of one complex": lambda T: T.relu(T.tensor(1j)),
    "relu of complex, in place": lambda T: (_x(T) * 1j).relu_(),
    "F.relu of complex": lambda T: T.nn.functional.relu(_x(T) * 1j),
    **{
        f"avg_pool{ndim}d of {dtype}": lambda T, ndim=ndim, dtype=dtype: getattr(
            T.nn.functional, f"avg_pool{ndim}d"
        )(T.ones([1] * 2 + [2] * ndim, dtype=getattr(T, dtype)), 2)
        for ndim in (1, 2, 3)
        for dtype in ("uint8", "int8", "int32", "int64", "bool", "complex64")
    },
    **{
        f"{name} of booleans": lambda T, call=call: call(T, T.ones(2, 2) > 0)
        for name, call in {
            "mm": lambda T, x: T.mm(x, x),
            "bmm": lambda T, x: T.bmm(x[None], x[None]),
            "mv": lambda T, x: T.mv(x, x[0]),
            "dot": lambda T, x: T.dot(x[0], x[0]),
            "vdot": lambda T, x: T.vdot(x[0], x[0]),
            "addmm": lambda T, x: T.addmm(x, x, x),
            "addmv": lambda T, x: T.addmv(x[0], x, x[0]),
            "baddbmm": lambda T, x: T.baddbmm(x[None], x[None], x[None]),
            "matmul": lambda T, x: x @ x[:, 0],
            "inner": lambda T, x: T.inner(x, x),
            "tensordot": lambda T, x: T.tensordot(x, x, 1),
            "einsum": lambda T, x: T.einsum("ij,jk->ik", x, x),
            "linear": lambda T, x: T.nn.functional.linear(x, x),
        }.items()
    },
    **{
        f"{name}{ndim}d of {dtype}": lambda T, name=name, ndim=ndim, dtype=dtype: getattr(
            T.nn.functional, f"{name}{ndim}d"
        )(*[T.ones([1] * 2 + [n] * ndim, dtype=getattr(T, dtype)) for n in (4, 2)])
        for name, dtypes in {
            "conv": ("bool",),
            "conv_transpose": ("bool", "uint8", "int8", "int16", "int32"),
        }.items()
        for ndim in (1, 2, 3)
        for dtype in dtypes
    },
    **{
        f"{name} of {dtype}": lambda T, name=name, dtype=dtype: getattr(T, name)(
            *[T.ones(2, dtype=getattr(T, dtype))] * 2
        )
        for name in ("hypot", "nextafter")
        for dtype in ("bool", "int32")
    },
    **{
        f"{mode} resize of {dtype}, {ndim}": lambda T, mode=mode, dtype=dtype, ndim=ndim: (
            T.nn.functional.interpolate(
                T.ones([1, 1] + [4] * ndim, dtype=getattr(T, dtype)), 2, mode=mode
            )
        )
        for mode in ("nearest", "nearest-exact")
        for dtype in ("uint8", "int64", "bool", "complex64")
        for ndim in (1, 2, 3)
    },
    **{
        f"{mode} padding of {dtype}, {shape}": lambda T, mode=mode, dtype=dtype, shape=shape: (
            T.nn.functional.pad(T.ones(shape, dtype=getattr(T, dtype)), (1, 1), mode)
        )
        for mode in ("reflect", "replicate", "circular")
        for dtype, shape in (
            ("bool", (2, 3)),
            ("int64", (2, 3)),
            ("float32", (0, 3)),
            ("float32", (0, 2, 3)),
            ("float32", (2, 0, 3)),
        )
    },
    **{
        f"max_pool1d of {dtype}, {indices}": lambda T, dtype=dtype, indices=indices: (
            T.nn.functional.max_pool1d(
                T.ones(1, 1, 4, dtype=getattr(T, dtype)), 2, return_indices=indices
            )
        )
        for dtype in ("uint8", "int64", "bool")
        for indices in (False, True)
    },
    **{
        f"{name} of complex{', by axis' if axis else ''}": lambda T, name=name, axis=axis: getattr(
            T, name
        )(T.ones(2) * 1j, **axis)
        for name in ("unique", "unique_consecutive")
        for axis in ({}, {"dim": 0})
    },
    "unique along no axis": lambda T: T.unique(T.tensor(1.0), dim=0),
    "runs along no axis": lambda T: T.unique_consecutive(T.tensor(1.0), dim=0),
    "isin of booleans": lambda T: T.isin(T.ones(2) > 0, T.ones(2) > 0),
    "addcmul of booleans": lambda T: T.addcmul(*[T.ones(2) > 0] * 3),
    "fftshift without axes": lambda T: T.fft.fftshift(T.tensor(1.0)),
    "powers up to none": lambda T: T.linalg.vander(T.ones(3, 1)),
    "powers of a number": lambda T: T.linalg.vander(T.tensor(1.0)),
    "repetitions by a float": lambda T: T.repeat_interleave(T.ones(2), 1.5),
    "repetitions by floats": lambda T: T.repeat_interleave(T.ones(2), T.ones(2)),
    "counts that are floats": lambda T: T.repeat_interleave(T.tensor(1.0)),
    "one count": lambda T: T.repeat_interleave(T.tensor(1)),
    "a matrix of counts": lambda T: T.repeat_interleave(T.tensor([[1]])),
    "cross of two dtypes": lambda T: T.linalg.cross(T.ones(3), T.ones(3, dtype=T.float64)),
    "cross by its older name": lambda T: T.cross(T.ones(3), T.ones(3, dtype=T.int64), 0),
    "linspace beyond bytes": lambda T: T.linspace(0, 300, 4, dtype=T.uint8),
    "linspace beyond int32": lambda T: T.linspace(0, 2**40, 3, dtype=T.int32),
    "linspace to infinity": lambda T: T.linspace(0, float("inf"), 4, dtype=T.int64),
    "linspace beyond halves": lambda T: T.linspace(0, 70000, 4, dtype=T.float16),
    "abs into integers": lambda T: T.abs(T.ones(2) * 1j, out=T.ones(2, dtype=T.int64)),
    "a complex frame of real numbers": lambda T: T.constant_pad_nd(T.ones(2), (1, 1), 1j),
    "nuclear norm of integers": lambda T: T.norm(T.ones(2, 2, dtype=T.int64), "nuc"),
    "nuclear norm in half precision": lambda T: T.norm(T.ones(2, 2, dtype=T.float16), "nuc"),
    "nuclear norm of NaN": lambda T: T.norm(T.full((2, 2), float("nan")), "nuc"),
    "logaddexp2 of integers": lambda T: T.logaddexp2(T.tensor([1]), T.tensor([2])),
    "lerp of integers": lambda T: T.lerp(T.tensor([1]), T.tensor([2]), 0.5),
    "prelu of integers": lambda T: T.nn.functional.prelu(T.tensor([1]), T.tensor([2])),
    **{
        f"index_reduce of {dtype} by {kind}, {own}": lambda T, dtype=dtype, kind=kind, own=own: (
            T.ones(2, 2, dtype=getattr(T, dtype)).index_reduce(
                0, T.tensor([0]), T.ones(1, 2, dtype=getattr(T, dtype)), kind, include_self=own
            )
        )
        for dtype in ("bool", "complex64", "uint8")
        for kind in ("prod", "mean", "amax", "amin")
        for own in (True, False)
    },
    "an axis that a number has not": lambda T: T.tensor(1.0).chunk(2, 1),
    "an axis that a number has not, by parts": lambda T: T.tensor(1.0).split([1], 2),
    "max_unpool1d of integers": lambda T: T.nn.functional.max_unpool1d(
        T.tensor([[[1]]]), T.tensor([[[0]]]), 2
    ),
    "cosine_similarity of complex": lambda T: T.cosine_similarity(_x(T) * 1j, _x(T) * 1j),
    "vecdot of integers": lambda T: T.linalg.vecdot(T.tensor([1]), T.tensor([2])),
    "nll_loss of complex": lambda T: T.nn.functional.nll_loss(T.ones(1, 2) * 1j, T.tensor([0])),
    "local_response_norm of complex": lambda T: T.nn.functional.local_response_norm(_x(T) * 1j, 2),
    "isin of complex": lambda T: T.isin(T.ones(2) * 1j, T.ones(2)),
    "isin for complex": lambda T: T.isin(T.ones(2), T.ones(2) * 1j),
    "isin for a word": lambda T: T.isin(T.ones(2), "a"),
    "softshrink by NaN": lambda T: T.nn.functional.softshrink(_x(T), float("nan")),
    "a tensor as dtype": lambda T: T.cumsum(_x(T), 0, dtype=_x(T)),
    "a tensor as dtype of a new tensor": lambda T: T.ones(2, dtype=_x(T)),
    **{
        f"logits of {one}, targets of {other}": lambda T, one=one, other=other: (
            T.nn.functional.binary_cross_entropy_with_logits(
                T.ones(3, dtype=getattr(T, one)), T.ones(3, dtype=getattr(T, other))
            )
        )
        for one in ("int64", "bool", "float32", "complex64")
        for other in ("int64", "bool", "float32")
    },
}


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("name", CALLS)
def test_what_pytorch_refuses_is_refused(name):
    try:
        CALLS[name](torch)
    except Exception as error:
        with pytest.raises(oracle.error_class(error)):
            CALLS[name](ag)
    else:
        CALLS[name](ag)


def test_numbers_of_numpy_are_sizes():
    numpy = pytest.importorskip("numpy")
    assert ag.ones(numpy.int64(2), numpy.int32(1)).shape == (2, 1)


def test_numbers_of_numpy_are_axes_of_nothing():
    numpy = pytest.importorskip("numpy")
    for T in (torch, ag):
        assert T.zeros(0, 5).amax(numpy.int64(1)).shape == (0,)
        assert T.aminmax(T.zeros(0, 5), dim=numpy.int32(1)).min.shape == (0,)
    assert ag.arange(4.0).topk(numpy.int64(1)).values.tolist() == [3.0]


#: Calls that are wrong in another way, too, which PyTorch names first.
BEFORE_DTYPES = {
    "mm": lambda T: T.mm(T.ones(3).bool(), T.ones(3, 3).bool()),
    "bmm": lambda T: T.bmm(T.ones(3, 3).bool(), T.ones(3, 3).bool()),
    "mv": lambda T: T.mv(T.ones(2, 3).bool(), T.ones(2).bool()),
    "dot": lambda T: T.dot(T.ones(2).bool(), T.ones(3).bool()),
    "addmm": lambda T: T.addmm(*[T.ones(2, 3).bool()] * 3),
    "matmul": lambda T: T.ones(2, 3).bool() @ T.ones(2, 3).bool(),
    "tensordot": lambda T: T.tensordot(T.ones(3).bool(), T.ones(3).bool()),
    "addcmul": lambda T: T.addcmul(*[T.ones(n).bool() for n in (2, 2, 3)]),
    "repeat_interleave": lambda T: _x(T).repeat_interleave(T.ones(2, 2)),
    "grid_sample": lambda T: T.nn.functional.grid_sample(_x(T).long(), _x(T).long(), "sum"),
    "interpolate": lambda T: T.nn.functional.interpolate(_x(T).long(), 0),
    "max_pool1d": lambda T: T.nn.functional.max_pool1d(_x(T).long(), (1, 2)),
    "conv1d": lambda T: T.nn.functional.conv1d(*[_x(T).bool()] * 2, padding=(1, 2)),
    "ctc_loss": lambda T: T.nn.functional.ctc_loss(
        _x(T).long(), _x(T)[0].long(), T.ones(3), T.ones(3).long()
    ),
    "conv_transpose1d": lambda T: T.nn.functional.conv_transpose1d(_x(T).bool(), _x(T).bool()),
}


@pytest.mark.parametrize("name", BEFORE_DTYPES)
def test_what_pytorch_names_before_a_dtype_is_named_first(name):
    with pytest.raises((RuntimeError, ValueError)) as expected:
        BEFORE_DTYPES[name](torch)
    assert expected.type is not NotImplementedError
    with pytest.raises(oracle.error_class(expected.value)) as found:
        BEFORE_DTYPES[name](ag)
    assert not isinstance(found.value, NotImplementedError)


def test_the_bias_of_a_bilinear_function_has_the_dtype_of_the_others():
    oracle.check_refused(
        lambda T: T.nn.functional.bilinear(
            T.ones(2, 2), T.ones(2, 2), T.ones(1, 2, 2), T.ones(1, dtype=T.float64)
        )
    )
