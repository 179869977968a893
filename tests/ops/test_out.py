"""The argument `out`: what is written, and what is refused, is PyTorch's."""

import functools

import numpy as np
import oracle
import pytest

import asyncgrad as ag
from asyncgrad.ops.registry import OPS

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = pytest.mark.torch


def _found(library, name):
    """The function of a name, or None."""
    return functools.reduce(lambda at, part: getattr(at, part, None), name.split("."), library)


_X = np.random.default_rng(0).random((3, 3)).astype(np.float32) + 0.5
_I = np.array([[0, 1, 2], [2, 0, 1], [1, 1, 0]])
#: The functions that are made from rows, and that PyTorch has, too, by their number of operands.
_ROWS = {
    count: [
        (op.public or op.name).split()[0]
        for op in OPS.values()
        if op.doc and op.out and len(op.inputs) == count
        if _found(torch, (op.public or op.name).split()[0])
    ]
    for count in (1, 2)
}
_UNARY = (
    *_ROWS[1], "round", "logical_not", "tril", "triu", "diag", "all", "any", "max", "min",
    "nonzero", "argmax",
)  # fmt: skip
_BINARY = (*_ROWS[2], "add", "sub", "div", "pow", "mm", "floor_divide", "matmul", "inner")
_ALONG = (
    "sum", "mean", "var", "std", "prod", "amax", "amin", "argmax", "argmin", "logsumexp",
    "cumsum", "cumprod", "softmax", "clamp_min", "clamp_max",
)  # fmt: skip
#: Arguments by function; arrays become tensors.
CALLS = {
    **dict.fromkeys(_UNARY, (_X - 0.4,)),
    **dict.fromkeys(_BINARY, (_X, _X + 1)),
    **dict.fromkeys(_ALONG, (_X, 0)),
    "clamp": (_X, 0.6, 0.9), "where": (_X > 1, _X, -_X), "norm": (_X,), "outer": (_X[0], _X[1]),
    "isin": (_X, _X[0]), "dot": (_X[0], _X[1]),
    "mv": (_X, _X[0]), "bmm": (_X[None], _X[None]), "addmm": (_X, _X, _X),
    **{f"clamp_{end}, by a tensor": (_X, _X - 0.1) for end in ("min", "max")},
    "clamp, by tensors": (_X, _X - 0.1, _X), "cat": ([_X, _X], 1),
    **dict.fromkeys(("stack", "hstack", "vstack", "dstack", "column_stack"), ([_X, _X],)),
    "index_select": (_X, 0, _I[0]),
    "gather": (_X, 0, _I), "take_along_dim": (_X, _I, 0), "index_add": (_X, 0, _I[0], _X),
    "scatter": (_X, 0, _I, _X), "scatter_add": (_X, 0, _I, _X), "masked_select": (_X, _X > 1),
    "linalg.vector_norm": (_X, 3), "complex": (_X, _X), "polar": (_X, _X),
    "nn.functional.linear": (_X, _X, _X[0]), "nn.functional.avg_pool2d": (_X[None], 2, 1),
    "nn.functional.gelu": (_X,), "nn.functional.softplus": (_X,),
    "nn.functional.logsigmoid": (_X,),
    "special.polygamma": (1, _X), "slice_scatter": (_X, _X[:1], 0, 0, 1),
    "addmv": (_X[0], _X, _X[0]), "baddbmm": (_X[None], _X[None], _X[None]),
    "addbmm": (_X, _X[None], _X[None]), "vdot": (_X[0], _X[1]), "renorm": (_X, 2, 0, 1.0),
    **dict.fromkeys(
        ("frac", "nan_to_num", "msort", "nn.functional.softshrink", "hardshrink",
         "inverse", "linalg.inv", "linalg.det", "linalg.matrix_norm", "linalg.svdvals",
         "linalg.eigvalsh"),
        (_X - 0.4,),
    ),
    "logcumsumexp": (_X, 0), "histc": (_X, 4), "heaviside": (_X - 1, _X),
    "quantile": (_X, 0.3), "nanquantile": (_X, 0.3, 0),
    "searchsorted": (_I[1], _I[2]), "bucketize": (_X, np.sort(_X[0])),
    "cross": (_X, _X.T, 0), "linalg.cross": (_X, _X.T), "linalg.vecdot": (_X, _X),
    "matrix_power": (_X, 3), "linalg.matrix_power": (_X, -2), "linalg.multi_dot": ([_X, _X, _X],),
    "linalg.solve": (_X, _X[0]), "linalg.cholesky": (_X @ _X.T + np.eye(3, dtype=np.float32),),
    "index_copy": (_X, 0, _I[0], _X), "take": (_X, _I), "bitwise_not": (_I,),
    "scatter_reduce": (_X, 0, _I, _X, "sum"),
    "linalg.lu_solve": (_X, np.arange(1, 4, dtype=np.int32), _X),
    "zeros": (2, 3), "ones": ((2, 3),), "full": ((2,), 1.5), "empty": (0,), "eye": (2, 3),
    "arange": (1, 4), "linspace": (0, 1, 5), "logspace": (0, 1, 5),
}  # fmt: skip


def _call(library, name, out):
    function = _found(library, name.partition(",")[0])
    tensor = library.from_numpy

    def made(value):
        if isinstance(value, list):
            return [made(part) for part in value]
        return tensor(value.copy()) if isinstance(value, np.ndarray) else value

    return function(*map(made, CALLS[name]), out=out)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "bool"])
@pytest.mark.parametrize("name", CALLS)
def test_results_are_written_as_pytorch_writes_them(name, dtype):
    theirs = torch.empty(0, dtype=getattr(torch, dtype))
    ours = ag.empty(0, dtype=getattr(ag, dtype))
    try:
        expected = _call(torch, name, theirs)
    except Exception as error:
        named = name.partition(",")[0].rpartition(".")[2]
        with pytest.raises(oracle.error_class(error), match=named):
            _call(ag, name, ours)
        assert ours.shape == (0,)
        return
    assert expected is theirs
    assert _call(ag, name, ours) is ours
    assert ours.dtype == getattr(ag, dtype)
    tolerance = 2e-3 if dtype == "float16" else 2e-5
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["histogram", "linalg.lstsq"])
def test_named_results_are_written_into_several_tensors(name):
    found = {}
    for library in (torch, ag):
        x = library.from_numpy(_X.copy())
        function, argument = _found(library, name), 4 if name == "histogram" else x
        outs = [library.empty(0, dtype=part.dtype) for part in function(x, argument)]
        found[library] = function(x, argument, out=tuple(outs))
        assert all(one is out for one, out in zip(found[library], outs, strict=True))
    for theirs, ours in zip(*found.values(), strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", ["max", "min", "sort", "topk"])
def test_several_results_are_written_into_several_tensors(name):
    argument = 2 if name == "topk" else 1
    outs = ag.empty(0), ag.empty(0, dtype=ag.int64)
    found = getattr(ag, name)(ag.from_numpy(_X), argument, out=outs)
    expected = getattr(torch, name)(torch.from_numpy(_X), argument)
    assert found.values is outs[0]
    assert found.indices is outs[1]
    assert found.indices.tolist() == expected.indices.tolist()
    for bad in ((ag.empty(0, dtype=ag.float64), outs[1]), (outs[0], ag.empty(0, dtype=ag.int32))):
        with pytest.raises(RuntimeError, match="Expected out tensor to have dtype"):
            getattr(ag, name)(ag.from_numpy(_X), argument, out=bad)
    with pytest.raises(TypeError, match="tuple of 2"):
        getattr(ag, name)(ag.from_numpy(_X), argument, out=outs[0])


def test_the_memory_of_the_tensor_is_used():
    """A part of a tensor is written, and views of it see what is written."""
    table = ag.zeros(2, 3)
    before = table._version
    row = table[1]
    assert ag.mul(ag.ones(3), 2.0, out=row) is row
    assert table.tolist() == [[0, 0, 0], [2, 2, 2]]
    assert table._version > before
    x = ag.arange(4.0)
    assert ag.add(x, x, out=x) is x
    assert x.tolist() == [0, 2, 4, 6]


def test_another_shape_is_taken_with_a_warning_unless_it_was_empty():
    out = ag.zeros(5)
    with pytest.warns(UserWarning, match="was resized"):
        ag.exp(ag.zeros(2, 2), out=out)
    assert out.tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize("which", ["input", "out"])
@pytest.mark.parametrize("name", ["exp", "add", "sum", "mm", "cat", "softmax", "where"])
def test_no_gradient_flows_into_out(name, which):
    x = ag.ones(2, 2, requires_grad=which == "input")
    out = ag.zeros(2, 2, requires_grad=which == "out")
    calls = {
        "exp": (x,), "add": (x, x), "sum": (x, 0), "mm": (x, x), "cat": ([x],), "softmax": (x, 0),
        "where": (x > 0, x, x),
    }  # fmt: skip
    with pytest.raises(RuntimeError, match=rf"{name}\(\): .*automatic differentiation"):
        getattr(ag, name)(*calls[name], out=out)
    assert out.tolist() == [[0, 0], [0, 0]]
    with ag.no_grad(), oracle._quiet():
        assert getattr(ag, name)(*calls[name], out=out) is out


@pytest.mark.parametrize(
    ("name", "args"),
    [(n, (0,)) for n in ("sum", "nansum", "mean", "prod", "cumsum", "cumprod", "softmax")],
)
def test_a_dtype_that_the_caller_chooses_is_that_of_out(name, args):
    """Without one, some functions compute in the dtype of `out`."""
    for m in (ag, torch):
        x, out = m.ones(3), m.zeros(3) if name[:3] in {"cum", "sof"} else m.zeros(())
        with pytest.raises(RuntimeError, match=r"dtype"):
            getattr(m, name)(x, *args, dtype=m.float64, out=out)
        assert not out.any()
        getattr(m, name)(x, *args, dtype=m.float32, out=out)
        assert out.any()


def test_solutions_with_a_triangle_are_not_converted():
    for T in (torch, ag):
        with pytest.raises(RuntimeError, match="xpected"):
            T.linalg.solve_triangular(
                T.eye(2), T.eye(2), upper=True, out=T.empty(0, dtype=T.float64)
            )


def test_what_has_no_gradient_writes_beside_one():
    x = ag.ones(2, requires_grad=True)
    assert ag.eq(x, x, out=ag.empty(0, dtype=ag.bool)).tolist() == [True, True]


def test_bad_tensors_are_refused_and_left_alone():
    x = ag.ones(2, 2)
    with pytest.raises(TypeError, match=r"exp\(\): argument 'out' must be Tensor, not int"):
        ag.exp(x, out=3)
    with pytest.raises(RuntimeError, match="single memory location"):
        ag.exp(x, out=ag.empty(1, 2).expand(2, 2))
    part = ag.zeros(4)[:2]
    with pytest.raises(RuntimeError, match="is a view"):
        ag.exp(x, out=part)
    assert part.tolist() == [0, 0]
    with pytest.raises(RuntimeError, match="does not match dtype of out"):
        ag.zeros(2, out=ag.empty(0), dtype=ag.float64)
    with pytest.raises(RuntimeError, match="layout"):
        ag.zeros(2, layout=torch.sparse_coo)
    assert ag.zeros(2, layout=ag.strided, pin_memory=False).tolist() == [0, 0]


def _empty(T, dtype):
    return T.empty(0, dtype=dtype)


@pytest.mark.parametrize("call", [
    lambda T, as_: T.abs(T.ones(2) * 1j, out=as_(T.float64)),
    lambda T, as_: T.abs(T.ones(2) * 1j, out=as_(T.complex64)),
    lambda T, as_: T.linalg.eig(T.eye(2), out=(as_(T.complex128), as_(T.complex128))),
    lambda T, as_: T.linalg.lstsq(
        T.eye(2), T.eye(2), out=(as_(T.float64), as_(T.float64), as_(T.int32), as_(T.float64))
    ),
])  # fmt: skip
def test_dtypes_are_converted_where_pytorch_converts_them(call):
    torch = pytest.importorskip("torch")
    found, expected = (call(T, functools.partial(_empty, T)) for T in (ag, torch))
    several = isinstance(expected, tuple)
    pairs = zip(found, expected, strict=True) if several else [(found, expected)]
    for ours, theirs in pairs:
        assert ours.dtype.name == str(theirs.dtype).removeprefix("torch.")
        np.testing.assert_allclose(ours.numpy(), theirs.numpy())
