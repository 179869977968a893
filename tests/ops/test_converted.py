"""Public functions convert their arguments as their annotations say."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import asyncgrad as ag
from asyncgrad.choices import QrMode, SampleMode
from asyncgrad.ops.converted import converted, one_node, writes
from asyncgrad.types import (
    Alike,
    AtLeast2D,
    Axis,
    ByExample,
    Floating,
    InPlace,
    Mask,
    Matrix,
    Number,
    SquareMatrices,
    Tensor,
    Truth,
    Vector,
)

F = ag.nn.functional


@converted
def given(
    input: Tensor, k: int, flag: bool = False, p: float = 0.5, scale: Number = 1,
    word: str | None = None, *, count: int | None = None,
):  # fmt: skip
    """What the function gets."""
    return k, flag, p, scale, word, count


@pytest.mark.parametrize(("arguments", "expected"), [
    ({"k": np.int32(3)}, 3), ({"k": ag.tensor(3)}, 3), ({"count": np.uint8(3)}, 3),
    ({"p": np.float64(2)}, 2.0), ({"p": ag.tensor(0.5)}, 0.5), ({"p": True}, 1.0),
    ({"scale": np.complex64(1j)}, 1j), ({"word": "a"}, "a"), ({"word": None}, None),
])  # fmt: skip
def test_a_function_gets_arguments_of_plain_types(arguments, expected):
    ((name, _),) = arguments.items()
    found = dict(zip(("k", "flag", "p", "scale", "word", "count"),
                     given(ag.ones(1), **{"k": 1, **arguments}), strict=True))[name]  # fmt: skip
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize("arguments", [
    {"k": True}, {"k": 1.0}, {"k": "1"}, {"k": None}, {"k": [1]}, {"k": ag.tensor(True)},
    {"k": ag.tensor(1.0)}, {"count": 1.0}, {"flag": 1}, {"flag": None}, {"flag": np.True_},
    {"p": "1"}, {"p": None}, {"p": 1j}, {"p": ag.ones(1)},
    {"p": ag.tensor(1.0, requires_grad=True)}, {"scale": None}, {"scale": [1]}, {"word": 1},
    {"input": 1.0}, {"input": None},
])  # fmt: skip
def test_other_arguments_are_refused_by_name(arguments):
    ((name, _),) = arguments.items()
    name = "argument 1" if name == "input" else f"argument '{name}'"
    with pytest.raises(TypeError, match=rf"given\(\): {name} must be \w+, not \w+"):
        given(**{"input": ag.ones(1), "k": 1, **arguments})


@converted
def of_kinds(input: Floating, dim: Axis = -1, other: Axis | None = None, flag: Truth = False):
    """What the function gets."""
    return dim, other, flag


def test_an_axis_is_counted_from_the_front_and_a_truth_may_be_any_object():
    x, flag = ag.ones(2, 3), object()
    assert of_kinds(x) == (1, None, False)
    assert of_kinds(x, -2, np.int64(-1), flag) == (0, 1, flag)
    assert of_kinds(x, axis=ag.tensor(0), other=1) == (0, 1, False)
    assert of_kinds(ag.ones(()), 0, -1) == (0, 0, False)
    with pytest.raises(IndexError, match="of_kinds: Dimension out of range"):
        of_kinds(x, 0, 2)
    with pytest.raises(TypeError, match=r"of_kinds\(\): argument 'dim' must be int, not bool"):
        of_kinds(x, True)


def test_a_tensor_of_another_kind_is_refused():
    with pytest.raises(NotImplementedError, match="of_kinds"):
        of_kinds(ag.ones(2).long())
    with pytest.raises(TypeError, match=r"of_kinds\(\): argument 1 must be Tensor, not float"):
        of_kinds(1.0)

    @converted
    def of_matrices(A: SquareMatrices) -> Tensor:
        return A

    for refused in (ag.ones(2), ag.ones(2, 3), ag.ones(2, 2).long(), ag.ones(2, 2).half()):
        with pytest.raises(RuntimeError, match="of_matrices: "):
            of_matrices(refused)


@converted
def of_tensors(
    input: AtLeast2D, line: Vector | None = None, square: Matrix | None = None,
    mask: Mask | None = None, like: Alike | None = None,
):  # fmt: skip
    """What the function gets."""
    return input


@pytest.mark.parametrize("arguments", [
    {"input": ag.ones(2)}, {"line": ag.ones(2, 2)}, {"line": ag.tensor(1.0)},
    {"square": ag.ones(2)}, {"square": ag.ones(2, 2, 2)}, {"mask": ag.ones(2)},
    {"like": ag.ones(2).double()},
])  # fmt: skip
def test_axes_and_dtypes_of_tensors_are_checked(arguments):
    x = ag.ones(1, 1, 1)
    assert of_tensors(x, ag.ones(0), ag.ones(0, 2), ag.ones(()) > 0, ag.ones(3)) is x
    with pytest.raises(RuntimeError, match="of_tensors"):
        of_tensors(**{"input": x, **arguments})
    ((name, _),) = arguments.items()
    with pytest.raises(TypeError, match=r"of_tensors\(\): argument \d must be Tensor, not float"):
        of_tensors(**{"input": x, name: 1.0})


@converted
def of_words(input: Tensor, mode: QrMode = "r", place: SampleMode | None = None):
    """What the function gets."""
    return mode, place


def test_words_are_checked():
    assert of_words(ag.ones(1), "complete", "nearest") == ("complete", "nearest")
    with pytest.raises(RuntimeError, match=r"'mode' must be one of .*'complete'.* but got 'all'"):
        of_words(ag.ones(1), "all")
    with pytest.raises(TypeError, match="'mode' must be str, not int"):
        of_words(ag.ones(1), 1)
    for word in ("cubic", 1):
        with pytest.raises(ValueError, match="'place' must be one of"):
            of_words(ag.ones(1), place=word)


def test_a_function_that_reads_values_is_called_for_each_example():
    seen = []

    @converted
    def reads(input: Tensor, at: ByExample, *, level: ByExample | float = 0.0) -> Tensor:
        seen.append((at.item(), float(level)))
        return input * at.item()

    x, at = ag.ones(2, 3), ag.tensor([[2.0, 3.0], [4.0, 5.0]])
    inner = ag.func.vmap(lambda at: reads(x[0], at, level=at))
    assert ag.func.vmap(inner)(at).tolist() == [[[k] * 3 for k in row] for row in at.tolist()]
    assert sorted(seen) == [(k, k) for k in (2.0, 3.0, 4.0, 5.0)]
    assert reads(x, at[0, 0]).tolist() == [[2.0] * 3] * 2
    with pytest.raises(TypeError, match=r"reads\(\): argument 2 must be Tensor, not float"):
        reads(x, 1.0)


def test_users_see_types_and_not_kinds():
    assert str(inspect.signature(of_kinds)) == (
        "(input: 'Tensor', dim: 'int' = -1, other: 'int | None' = None, flag: 'bool' = False)"
    )


def test_the_last_node_gets_the_name_of_the_whole_function():
    @one_node("WholeBackward0", writes)
    def whole(input: Tensor) -> Tensor:
        return input.exp() * 2

    assert whole(ag.ones(2, requires_grad=True)).grad_fn.name() == "WholeBackward0"
    assert whole(ag.ones(2), out=ag.empty(2)).tolist() == whole(ag.ones(2)).tolist()


def test_the_result_overwrites_the_input_where_the_caller_asks_for_it():
    @one_node("WholeBackward0")
    def whole(input: Tensor, factor: float = 2.0, over: InPlace = False) -> Tensor:
        return input.exp() * factor

    x = ag.ones(2, requires_grad=True)
    y, z = x * 1, x * 1
    assert whole(y, 3.0, over=True) is y
    assert whole(z, 3.0) is not z
    assert y.grad_fn.name() == "WholeBackward0"
    assert y.tolist() == whole(z, 3.0).tolist()
    assert ag.autograd.grad(y.sum(), x)[0].tolist() == y.tolist()
    with pytest.raises(RuntimeError, match="whole_: a leaf Variable that requires grad"):
        whole(x, over=True)


def test_an_argument_may_be_given_by_numpys_name_and_once():
    @writes
    def picked(input: Tensor, dim: int, index: int, keepdim: bool = False) -> Tensor:
        return input.select(dim, index)

    x = ag.arange(6).reshape(2, 3)
    assert picked(x, axis=1, index=2).tolist() == [2, 5]
    assert picked(x, axis=1, index=2, out=ag.zeros(2).long()).tolist() == [2, 5]
    with pytest.raises(TypeError, match="axis= is another name of dim="):
        picked(x, 1, 2, axis=1)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'dim'"):
        picked(x, index=2)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'index'"):
        picked(x, 1)
    # That is said before the other arguments are looked at.
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'index'"):
        ag.gather(ag.ones(2), 9)
    assert str(inspect.signature(picked)).startswith(
        "(input: 'Tensor', dim: 'int', index: 'int', k"
    )


def test_a_warning_names_the_users_line_from_the_first_call_on():
    @converted
    def warns(x: int) -> None:
        F.mse_loss(ag.ones(1), ag.ones(x))

    for _ in range(2):
        with pytest.warns(UserWarning, match="target size") as caught:
            warns(2)
        assert caught[0].filename == __file__


#: They are fast and take `out` without a decorator, or change only the axes: they check by hand.
BY_HAND = {"normalize", "swapaxes_", "swapdims_", "transpose_", "unsqueeze_"}


def _is_made(function):
    while function is not None:
        if function.__code__.co_filename.startswith("<asyncgrad arguments"):
            return True
        function = getattr(function, "__wrapped__", None)
    return False


def test_every_flag_and_number_of_a_public_function_is_converted():
    """A function that gets any number of arguments, or makes a tensor, converts them by hand."""
    by_hand = set()
    for space in (ag, ag.linalg, ag.fft, F):
        for function in vars(space).values():
            code = getattr(inspect.unwrap(function), "__globals__", {"__name__": ""})
            if not code["__name__"].startswith("asyncgrad.ops.api."):
                continue
            parameters = inspect.signature(function).parameters.values()
            kinds = {str(one.annotation) for one in parameters}
            free = any(one.kind in {one.VAR_POSITIONAL, one.VAR_KEYWORD} for one in parameters)
            makes = "pin_memory" in {one.name for one in parameters}
            if kinds & {"bool", "int", "float"} and not (free or makes or _is_made(function)):
                by_hand.add(function.__name__)
    assert by_hand == BY_HAND


CALLS = {
    "tril": (lambda T, x, v: T.tril(x, v), "int"),
    "cumsum": (lambda T, x, v: T.cumsum(x, v), "int"),
    "topk": (lambda T, x, v: T.topk(x, v), "int"),
    "mvlgamma": (lambda T, x, v: T.mvlgamma(x + 1, v), "int"),
    "tensor_split": (lambda T, x, v: T.tensor_split(x[0], v), "int"),
    "pixel_shuffle": (lambda T, x, v: T.nn.functional.pixel_shuffle(x[None, None], v), "int"),
    "glu": (lambda T, x, v: T.nn.functional.glu(x, v), "int"),
    "sum": (lambda T, x, v: T.sum(x, 1, v), "bool"),
    "topk, largest": (lambda T, x, v: T.topk(x, 1, largest=v), "bool"),
    "sort": (lambda T, x, v: T.sort(x, 1, v), "bool"),
    "avg_pool1d": (lambda T, x, v: T.nn.functional.avg_pool1d(x, 2, ceil_mode=v), "bool"),
    "cholesky": (lambda T, x, v: T.linalg.cholesky(T.eye(2), upper=v), "bool"),
    "mse_loss": (lambda T, x, v: T.nn.functional.mse_loss(x, x + 1, v), "bool"),
    "max_pool1d": (
        lambda T, x, v: T.nn.functional.max_pool1d(x, 2, return_indices=v), "bool"
    ),
    "layer_norm": (lambda T, x, v: T.nn.functional.layer_norm(x, (4,), eps=v), "float"),
    "dropout": (lambda T, x, v: T.nn.functional.dropout(x, v, False), "float"),
    "cdist": (lambda T, x, v: T.cdist(x, x, v), "float"),
    "renorm": (lambda T, x, v: T.renorm(x, v, 0, 1.0), "float"),
    "div": (lambda T, x, v: T.div(x, x + 1, rounding_mode=v), "str"),
    "fft": (lambda T, x, v: T.fft.fft(x, norm=v), "str"),
    "gelu": (lambda T, x, v: T.nn.functional.gelu(x, approximate=v), "str"),
    "eigh": (lambda T, x, v: T.linalg.eigvalsh(x[:, :2], UPLO=v), "str"),
}  # fmt: skip
VALUES = {
    "int": lambda T: [
        1, np.int64(1), np.int32(1), True, np.True_, 1.0, np.float64(1), 1j, "1", [1], [],
        T.tensor(1), T.tensor(1.0), T.tensor(1.0, requires_grad=True), object(), 2**63,
        -(2**63) - 1,
    ],
    "bool": lambda T: [True, False, 1, 0, np.True_, None, 1.0, "a", [], T.tensor(True)],
    "float": lambda T: [
        1, 0.5, np.float32(0.5), np.int64(1), T.tensor(0.5), T.tensor(1), "1", [0.5],
        T.tensor(0.5, requires_grad=True), object(),
    ],
    "str": lambda T: [1, True, "other", [], 1.0, object()],
}  # fmt: skip


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CALLS)
def test_arguments_of_any_type_are_taken_and_refused_as_pytorch_does(name):
    oracle = pytest.importorskip("oracle")
    call, kind = CALLS[name]
    for theirs, ours in zip(VALUES[kind](oracle.torch), VALUES[kind](ag), strict=True):
        found = []
        for T, value in ((oracle.torch, theirs), (ag, ours)):
            try:
                found.append(call(T, T.arange(8.0).reshape(2, 4), value))
            except Exception as error:
                found.append(oracle.error_class(error))
        if isinstance(found[0], type):
            assert found[1] is found[0], ours
        else:
            oracle.compare(*found)
