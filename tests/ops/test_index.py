"""Functions that pick elements by index."""

import itertools
import sys
from types import SimpleNamespace

import numpy as np
import oracle
import pytest
from promised import MUST

import asyncgrad as ag
from asyncgrad.autograd import gradcheck, gradgradcheck
from asyncgrad.ops.table.index import _add_rows

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

NAMES = MUST["index"]


test_samples = oracle.as_in_pytorch(
    NAMES,
    small={"dtypes": ("float16", "bfloat16", "uint8"), "limit": 4, "tolerance": 1e-2},
    errors=False,
    dtypes=("float64", "complex128", "int64", "bool"),
    limit=12,
)


@pytest.mark.parametrize("shape", [(2, 0, 3), (3, 0, 9), (0, 3, 1)])
@pytest.mark.parametrize("name", ["gather", "scatter", "scatter_add", "scatter_reduce"])
def test_an_index_without_elements_may_have_any_lengths(name, shape):
    for T in (torch, ag):
        x, index = T.ones(1, 3, 1), T.zeros(shape, dtype=T.int64)
        values = () if name == "gather" else (T.zeros(shape),)
        more = ("sum",) if name == "scatter_reduce" else ()
        out = getattr(T, name)(x, 1, index, *values, *more)
        assert tuple(out.shape) == (shape if name == "gather" else (1, 3, 1))


def test_what_arrays_pick_lies_in_memory_as_with_pytorch():
    """Axes stay in their place in memory, so that what is picked can be viewed as one axis."""

    def picks(m):
        x, i = m.arange(120).reshape(2, 3, 4, 5), m.tensor([0, 1, 1])
        mask = m.tensor([True, False, True])
        part = x[:, :, ::2, 1:]
        yield from (x[:, i], x[:, :, i], x[..., i], x[:, i, i], x[:, i, :, i], x[:, mask])
        yield from (x[:, i, None, :2], part[:, i], part[..., i], x.index_select(2, i))
        yield from (x[i[:2], :, i[:2]], x[:, i[None]], x[0, :, i])
        yield from (m.nn.functional.pad(x * 1.0, (1, 2, 0, 1), "reflect"), x.topk(2, 2).indices)
        yield from (x.topk(2, 1).values, x.masked_select(x > 3))

    for theirs, ours in zip(picks(torch), picks(ag), strict=True):
        assert ours.stride() == theirs.stride()
        assert ours.view(-1).tolist() == theirs.view(-1).tolist()


@pytest.mark.parametrize("factors", [[[1.5, 2, 3], [4, 0.5, 6]], [[1.5, 2, 0], [4, 0, 6]]])
@pytest.mark.parametrize("dtype", [ag.float64, ag.complex128])
def test_scattered_factors_have_derivatives(factors, dtype):
    """Where there are several factors, zeros among them count."""
    places = ag.tensor([[0, 1, 1], [2, 1, 1]])
    x = (ag.arange(1.0, 10.0).reshape(3, 3) * 0.3).to(dtype).requires_grad_()
    y = ag.tensor(factors, dtype=dtype, requires_grad=True)

    def scattered(x, y):
        return ag.scatter_reduce(x, 0, places, y, "prod")

    assert gradcheck(scattered, (x, y), check_forward_ad=True, check_batched_grad=True)
    if 0 not in factors[0]:
        assert gradgradcheck(scattered, (x, y))


_ROWS, _PLACES = [0, 0, 2], [[0, 0, 1], [1, 1, 1], [0, 0, 0]]
#: What puts numbers where others have been put, by `x`, one number `v` and many, `s`.
REPEATED = {
    "index_fill": lambda T, x, v, s: x.index_fill(1, T.tensor(_ROWS), v),
    "index_fill_": lambda T, x, v, s: (x * 1).index_fill_(0, T.tensor(_ROWS), v),
    "index_put": lambda T, x, v, s: x.index_put((T.tensor(_ROWS),), s),
    "index_put of one": lambda T, x, v, s: x.index_put((T.tensor(_ROWS), T.tensor(_ROWS)), v),
    "index_put, adding": lambda T, x, v, s: x.index_put((T.tensor(_ROWS),), s, True),
    "index_copy": lambda T, x, v, s: x.index_copy(0, T.tensor(_ROWS), s),
    "index_add": lambda T, x, v, s: x.index_add(1, T.tensor(_ROWS), s, alpha=2),
    "scatter": lambda T, x, v, s: x.scatter(0, T.tensor(_PLACES), s),
    "scatter of one": lambda T, x, v, s: x.scatter(1, T.tensor(_PLACES), 2.0),
    "scatter_add": lambda T, x, v, s: x.scatter_add(0, T.tensor(_PLACES), s),
    "put": lambda T, x, v, s: x.put(T.tensor(_ROWS), s[0]),
    "put, adding": lambda T, x, v, s: x.put(T.tensor(_ROWS), s[0], True),
    "masked_fill": lambda T, x, v, s: x.masked_fill(T.tensor([True, False, True]), v),
    "masked_scatter": lambda T, x, v, s: x.masked_scatter(T.tensor([True, False, True]), s),
    "select_scatter": lambda T, x, v, s: x.select_scatter(s[0], 0, 1),
    "slice_scatter": lambda T, x, v, s: x.slice_scatter(s[:2], 0, 0, 3, 2),
    **{
        f"{name} {kind} {own}": lambda T, x, v, s, name=name, at=at, kind=kind, own=own: getattr(
            x, name
        )(0, T.tensor(at), s, kind, include_self=own)
        for name, at in (("scatter_reduce", _PLACES), ("index_reduce", _ROWS))
        for kind in ("prod", "mean", "amax", "amin")
        for own in (True, False)
    },
}


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("name", REPEATED)
def test_places_that_are_named_twice_have_pytorchs_gradients(name):
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(shape) for shape in ((3, 3), (), (3, 3))]
    leaves = [[T.tensor(value, requires_grad=True) for value in values] for T in (torch, ag)]
    results = [REPEATED[name](T, *own) for T, own in zip((torch, ag), leaves, strict=True)]
    oracle.compare_derivatives(*results, list(zip(*leaves, strict=True)), 2)


def _set(T, index, value, dtype):
    x = T.ones(2, 2, dtype=getattr(T, dtype))
    x[index(T)] = value
    return x


@pytest.mark.filterwarnings("ignore:Casting complex values")
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float32", "complex64"])
def test_what_is_put_at_an_index_is_converted_as_pytorch_does(dtype):
    """One number of any dtype where one mask holds, and by slices; else only of the same dtype."""
    indices = [
        lambda T: 0, lambda T: True, lambda T: T.tensor([True, False]), lambda T: T.tensor([0, 1]),
        lambda T: (slice(None), T.tensor([True, True])), lambda T: (T.tensor([True, True]),) * 2,
    ]  # fmt: skip
    values = [
        lambda T, kind=kind, shape=shape: T.ones(shape, dtype=getattr(T, kind))
        for kind in ("bool", "uint8", "int64", "float32", "float64", "complex64")
        for shape in ((), (1,), (2,))
    ]
    for index, value in itertools.product(indices, values):
        try:
            expected = _set(torch, index, value(torch), dtype)
        except RuntimeError:
            with pytest.raises(RuntimeError):
                _set(ag, index, value(ag), dtype)
        else:
            oracle.compare(expected, _set(ag, index, value(ag), dtype))


#: Numbers in the place of tensors.
NUMBERS = {
    "where": lambda T, n: T.where(T.tensor([True, False]), n, 2),
    "copy_": lambda T, n: T.zeros(2).copy_(n),
    "copy_ of integers": lambda T, n: T.zeros(2, dtype=T.uint8).copy_(n),
    "real": lambda T, n: setattr(z := T.zeros(2, dtype=T.complex64), "real", n) or z,
    "imag": lambda T, n: setattr(z := T.zeros(2, dtype=T.complex64), "imag", n) or z,
    "scatter_": lambda T, n: T.zeros(2, dtype=T.uint8).scatter_(0, T.tensor([0]), n),
    "index_fill_": lambda T, n: T.zeros(2).index_fill_(0, T.tensor([0]), n),
}


@pytest.mark.parametrize("number", [True, -1, 2.5, 1 + 2j])
@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.filterwarnings("ignore:Casting complex values")
def test_numbers_count_as_tensors_where_pytorch_takes_them(name, number):
    try:
        expected = NUMBERS[name](torch, number)
    except RuntimeError:
        with pytest.raises(RuntimeError):
            NUMBERS[name](ag, number)
    else:
        oracle.compare(expected, NUMBERS[name](ag, number))


@pytest.mark.parametrize(
    "name",
    ["permute", "view", "reshape", "expand", "repeat", "flip", "tile", "sum_to_size", "resize_"],
)
def test_shapes_are_not_left_out(name):
    for shape in ((), (2,)):
        oracle.check_refused(lambda T, shape=shape: getattr(T.ones(shape), name)())


def test_a_tensor_without_axes_is_scattered_into():
    for T in (torch, ag):
        assert T.ones(()).masked_scatter_(T.tensor(True), T.zeros(1)).item() == 0


@pytest.mark.filterwarnings("ignore:The reduce argument")
@pytest.mark.parametrize("program", [
    lambda x, at, src: x.scatter(0, at, src), lambda x, at, src: x.scatter(0, at, 5.0),
    lambda x, at, src: x.detach().scatter(0, at, src.detach(), reduce="add") + x,
    lambda x, at, src: x.detach().scatter(0, at, 5.0, reduce="multiply") + x,
    lambda x, at, src: x.scatter_add(0, at, src), lambda x, at, src: (x * 1).scatter_(0, at, src),
    lambda x, at, src: x.scatter_reduce(0, at, src, "prod"),
])  # fmt: skip
def test_several_elements_are_scattered_into_one(program):
    found = []
    for T in (torch, ag):
        x, src = T.tensor(2.0, requires_grad=True), T.tensor([3.0, 4.0], requires_grad=True)
        out = program(x, T.tensor([0, 0]), src)
        gradients = T.autograd.grad(out, [x, src], allow_unused=True)
        found.append([None if part is None else part.tolist() for part in (out, *gradients)])
    assert found[0] == found[1]


@pytest.mark.parametrize("name", ["scatter", "scatter_add"])
def test_one_element_is_not_scattered_to_several_places(name):
    oracle.check_refused(lambda T: getattr(T.ones(3), name)(0, T.tensor([0, 1, 2]), T.tensor(2.0)))


@pytest.mark.parametrize("chosen", [True, False])
def test_a_mask_without_axes_puts_values_everywhere_or_nowhere(chosen):
    for T in (torch, ag):
        mask, x, two = T.tensor(chosen), T.zeros(2, 3), T.tensor(2.0)
        assert T.index_put(x, (mask,), two).sum().item() == 12 * chosen
    if chosen:
        assert ag.index_put(x, (mask, ag.tensor([1, 0])), two).sum().item() == 12
    leaf = ag.tensor(2.0, requires_grad=True)
    ag.index_put(x, (mask,), leaf).sum().backward()
    assert leaf.grad.item() == 6 * chosen


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize(
    ("shape", "index", "values"),
    [
        ((), (True,), ()), ((3,), (True, [0]), ()), ((3,), ([0], True), ()),
        ((3,), (True,), (1, 3)), ((3, 4), (False,), (1, 3, 4)), ((3, 4), ([0, 1],), (1, 2, 4)),
        ((3,), (0,), (1,)), ((3,), ([True, False, True],), (1, 2)), ((3, 4), (0, [0, 1]), (1, 2)),
    ],
)  # fmt: skip
def test_values_with_more_axes_than_what_is_indexed_and_too_many_masks_are_refused(
    shape, index, values, accumulate
):
    oracle.check_refused(
        lambda T: T.index_put(
            T.zeros(shape), tuple(map(T.tensor, index)), T.ones(values), accumulate
        )
    )


def test_any_tuple_is_an_index_for_several_axes():
    for T in (torch, ag):
        assert T.arange(6).reshape(2, 3)[T.Size([1, 2])].item() == 5


def test_indices_may_differ_from_example_to_example():
    at = [[0, 0], [1, 2]]
    for T in (torch, ag):
        filled = T.func.vmap(lambda i, T=T: T.zeros(3).index_fill(0, i, 2.0))(T.tensor(at))
        assert filled.tolist() == [[2.0, 0.0, 0.0], [0.0, 2.0, 2.0]]
        rows = T.func.vmap(lambda i, T=T: T.zeros(3).index_copy(0, i, T.ones(2)))(T.tensor(at))
        assert rows.tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]]


@pytest.mark.parametrize("put", [
    lambda x, i: x.__setitem__(i, 1.0), lambda x, i: x.__setitem__((slice(None), i), 1.0),
    lambda x, i: x.index_put_((i,), ag.tensor(1.0)),
    lambda x, i: x.index_put_((i,), ag.tensor(1.0), accumulate=True),
    lambda x, i: x.put_(i, ag.ones(1)), lambda x, i: x.index_add_(0, i, ag.ones(1, 4)),
    lambda x, i: x.index_copy_(0, i, ag.ones(1, 4)), lambda x, i: x.index_fill_(0, i, 1.0),
    lambda x, i: x.scatter_(0, i[None], 1.0),
])  # fmt: skip
@pytest.mark.parametrize("inference", [False, True])
def test_an_index_out_of_range_changes_nothing(put, inference):
    """Neither the values nor how often they count as changed, so that passes go on."""
    with ag.inference_mode(inference):
        x = ag.ones(3, 4)
        with pytest.raises((IndexError, RuntimeError)):
            put(x, ag.tensor([100]))
        assert (x == 1).all()
    assert inference or x._version == 0


@pytest.mark.parametrize("shape", [(), (3,), (3, 2)])
def test_errors_of_slices_that_are_added_out_of_range_have_pytorchs_class(shape):
    """PyTorch raises an IndexError only where the slices are elements."""
    raised = []
    for T in (torch, ag):
        x = T.ones(shape)
        with pytest.raises((IndexError, RuntimeError), match=r"out of (range|bounds)") as caught:
            x.index_add_(0, T.tensor([5]), T.ones((1, *shape[1:]) if shape else ()))
        raised.append(isinstance(caught.value, IndexError))
    assert raised == [len(shape) < 2] * 2


def test_the_error_of_an_index_out_of_range_names_the_shape():
    x, at = ag.ones(3, 4), ag.tensor([100])
    for write in (
        lambda: x.__setitem__(at, 1.0),
        lambda: x.index_put_((at,), ag.tensor(1.0)),
        lambda: x[at],
    ):
        with pytest.raises(IndexError, match=r"of shape \(3, 4\): index 100 .* dimension 0"):
            write()


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_an_integer_tensor_without_axes_is_a_number(dtype):
    """Of any integer dtype, as in PyTorch."""
    place = ag.tensor(1, dtype=getattr(ag, dtype))
    x = ag.arange(6.0).reshape(2, 3)
    assert x[place].tolist() == [3.0, 4.0, 5.0]
    x[place, place] = 0.0
    assert x[1].tolist() == [3.0, 0.0, 5.0]


def test_rows_of_a_large_gradient_are_added_in_their_order():
    """Some of them at a time, which needs less memory than the numbers of all elements."""
    random = np.random.default_rng(0)
    places = random.integers(-7, 7, (30, 50))
    gradient = random.standard_normal((30, 50, 60)).astype(np.float32)
    weight = ag.zeros(7, 60, requires_grad=True)
    weight[ag.tensor(places)].backward(ag.tensor(gradient))
    wanted = np.zeros((7, 60), np.float32)
    np.add.at(wanted, places, gradient)
    assert weight.grad.numpy().tobytes() == wanted.tobytes()


@pytest.mark.parametrize("name", ["scatter_add", "scatter_reduce", "put"])
def test_many_places_are_changed_part_by_part(name):
    """NumPy keeps the GIL until such a call ends: an event loop would wait for all elements."""
    index = ag.tensor(np.random.default_rng(0).integers(0, 1000, 100_000))
    x = ag.randn(1000)
    values = ag.randn(100_000)
    calls = {
        "scatter_add": lambda: x.scatter_add(0, index, values),
        "scatter_reduce": lambda: x.scatter_reduce(0, index, values, "amax"),
        "put": lambda: x.index_put((index,), values, accumulate=True),
    }
    whole = x.numpy().copy()
    (np.maximum if name == "scatter_reduce" else np.add).at(whole, index.numpy(), values.numpy())
    lengths = []

    def note(frame, event, function):
        if event == "c_call" and function.__name__ == "at":
            lengths.append(len(frame.f_locals["values"][frame.f_locals["some"]]))

    sys.setprofile(note)
    try:
        changed = calls[name]()
    finally:
        sys.setprofile(None)
    assert changed.numpy().tobytes() == whole.tobytes()
    assert sum(lengths) == 100_000
    assert max(lengths) < 20_000


@pytest.mark.parametrize("shape", [(10,), (10, 3), (10, 300)])
def test_an_index_that_does_not_fit_adds_nothing(shape):
    """Many rows are added part by part, and only the last place is wrong."""
    x = ag.zeros(*shape)
    index = ag.ones(70_000 if shape[-1] < 300 else 600, dtype=ag.int64)
    index[-1] = 99
    with pytest.raises(IndexError, match="99"):
        x.index_put_((index,), ag.ones(len(index), *shape[1:]), accumulate=True)
    assert x.sum() == 0


def test_many_places_are_numbered_without_numbering_all_rows_for_each_part():
    """A long index into a large tensor would take quadratic time."""
    places = np.random.default_rng(0).integers(-1000, 1000, 300_000)
    out, lengths = np.zeros(1000), []

    def arange(length):
        lengths.append(length)
        return np.arange(length)

    library = SimpleNamespace(arange=arange, add=np.add, ndarray=np.ndarray)
    _add_rows(library, out, places, np.ones(300_000))
    assert lengths == [1000]
    assert (out == np.bincount(places % 1000, minlength=1000)).all()
