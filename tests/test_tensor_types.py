"""Tensors by PyTorch's older constructors, and their types."""

import numpy as np
import pytest

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = pytest.mark.torch

#: How each of them is found; a constructor that takes what the others take, too.
CONSTRUCTORS = {
    "Tensor": lambda L: L.Tensor,
    "FloatTensor": lambda L: L.FloatTensor,
    "LongTensor": lambda L: L.LongTensor,
    "BoolTensor": lambda L: L.BoolTensor,
    "new of float32": lambda L: L.ones(1).new,
    "new of int64": lambda L: L.ones(1, dtype=L.int64).new,
    "subclass": lambda L: type("Mine", (L.Tensor,), {}),
}
ARGUMENTS = {
    "none": lambda L: (),
    "lengths": lambda L: (2, 3),
    "a length": lambda L: (3,),
    "NumPy's length": lambda L: (np.int64(3),),
    "no length": lambda L: (0,),
    "a negative length": lambda L: (-1,),
    "a size": lambda L: (L.Size([2, 3]),),
    "a shape": lambda L: (L.ones(2, 3).shape,),
    "a list": lambda L: ([1, 2],),
    "a tuple": lambda L: ((2, 3),),
    "nothing in a list": lambda L: ([],),
    "fractions": lambda L: ([1.5, 2],),
    "truths": lambda L: ([True, False],),
    "lists": lambda L: ([[1, 2], [3, 4]],),
    "ragged lists": lambda L: ([[1, 2], [3]],),
    "a range": lambda L: (range(3),),
    "tensors in a list": lambda L: ([L.tensor(1), 2],),
    "an array": lambda L: (np.ones(2, np.int64),),
    "an array of fractions": lambda L: (np.array([1.5]),),
    "a number": lambda L: (3.5,),
    "a truth": lambda L: (True,),
    "nothing": lambda L: (None,),
    "a word": lambda L: ("a",),
    "a length and a fraction": lambda L: (2, 3.0),
    "a length and a list": lambda L: (1, [2]),
    "a tensor": lambda L: (L.ones(2),),
    "a tensor of integers": lambda L: (L.ones(2, dtype=L.int64),),
}


def _outcome(make, library):
    """Facts of what comes out; values where they are given, or the error."""
    try:
        found = make(library)
    except Exception as error:
        return type(error)
    dtype = str(found.dtype).rpartition(".")[2]
    return type(found).__name__, dtype, tuple(found.shape), found.requires_grad


@pytest.mark.parametrize("arguments", ARGUMENTS)
@pytest.mark.parametrize("constructor", CONSTRUCTORS)
def test_they_take_what_pytorchs_take(constructor, arguments):
    def make(library):
        return CONSTRUCTORS[constructor](library)(*ARGUMENTS[arguments](library))

    assert _outcome(make, ag) == _outcome(make, torch)
    if not isinstance(_outcome(make, torch), type) and "length" not in arguments:
        given = ARGUMENTS[arguments](torch)
        if given and not isinstance(given[0], torch.Size):
            assert make(ag).tolist() == make(torch).tolist()


@pytest.mark.parametrize("name", [n for n in ag.tensor_types.__all__ if n.endswith("Tensor")])
def test_each_is_a_type(name):
    mine, theirs = getattr(ag, name), getattr(torch, name)
    assert mine is getattr(ag, mine([1, 0]).type().rpartition(".")[2])
    assert mine([1, 0]).type().replace("asyncgrad", "torch") == theirs([1, 0]).type()
    for dtype in ("float32", "int64", "bool", "bfloat16"):
        for library, kind in ((ag, mine), (torch, theirs)):
            x = library.ones(2, dtype=getattr(library, dtype))
            assert isinstance(x, kind) == (x.type() == kind([]).type())
            assert x.type(kind).type() == x.type(f"torch.{name}").type() == kind([]).type()


@pytest.mark.parametrize("default", ["float32", "float64"])
def test_tensor_is_the_type_of_the_default_dtype(default):
    for library in (ag, torch):
        before = library.get_default_dtype()
        library.set_default_dtype(getattr(library, default))
        try:
            for kind in (library.Tensor, f"{library.__name__}.Tensor"):
                x = library.ones(2, dtype=library.int32).type(kind)
                assert x.dtype is getattr(library, default)
        finally:
            library.set_default_dtype(before)


def test_a_type_of_tensors_that_is_no_dtypes_is_refused():
    for library in (ag, torch):
        with pytest.raises(ValueError, match=r"invalid type: .*Parameter"):
            library.ones(2).type(library.nn.Parameter)


NAMED = {
    "size": lambda L: L.Tensor(size=(2, 3)),
    "data": lambda L: L.Tensor(data=[1.0, 2.0]),
    "other": lambda L: L.Tensor(other=L.ones(2)),
    "device": lambda L: L.Tensor(2, device="cpu"),
    "new's device": lambda L: L.ones(1).new(2, device="cpu"),
    "dtype": lambda L: L.Tensor(2, dtype=L.int64),
    "size and data": lambda L: L.Tensor([1.0], size=(2,)),
    "too large": lambda L: L.ByteTensor([300]),
}


@pytest.mark.parametrize("name", NAMED)
def test_arguments_by_name_are_pytorchs(name):
    assert _outcome(NAMED[name], ag) == _outcome(NAMED[name], torch)


@pytest.mark.parametrize("library", [ag, torch], ids=["ag", "torch"])
def test_data_that_fit_share_their_memory(library):
    array, x = np.ones(2, np.float32), library.ones(2)
    for made in (library.Tensor(array), library.Tensor(x), library.FloatTensor(x), x.new(x)):
        made.add_(1)
    assert array.tolist() == [2, 2]
    assert x.tolist() == [4, 4]
    leaf = library.ones(2, requires_grad=True)
    made = library.Tensor(leaf)
    assert made is not leaf
    assert made.grad_fn.name() == "AliasBackward0"
    (made * 3).sum().backward()
    assert leaf.grad.tolist() == [3, 3]


@pytest.mark.filterwarnings("ignore:.*set_default_tensor_type.*deprecated")
@pytest.mark.parametrize("library", [ag, torch], ids=["ag", "torch"])
def test_the_default_dtype_is_that_of_tensor(library):
    try:
        for kind in (library.DoubleTensor, "torch.HalfTensor", library.FloatTensor):
            library.set_default_tensor_type(kind)
            assert library.Tensor([1]).type() == library.Tensor(2).type() == library.ones(1).type()
            assert library.FloatTensor(1).dtype == library.float32
        with pytest.raises((TypeError, ValueError)):
            library.set_default_tensor_type(library.LongTensor)
    finally:
        library.set_default_dtype(library.float32)


def _subclasses(library):
    class Tagged(library.Tensor):
        def __new__(cls, data, tag="none"):
            made = super().__new__(cls, data)
            made.tag = tag
            return made

        def __init__(self, data, tag="none"):
            super().__init__()

    tagged = Tagged([1.0, 2.0], tag="mine")
    other = library.Tensor._make_subclass(Tagged, library.ones(2), True)
    x = library.ones(2, requires_grad=True)
    (x * 2).as_subclass(Tagged).sum().backward()
    return (
        tagged.tag, tagged.tolist(), isinstance(tagged, library.Tensor), type(other) is Tagged,
        other.requires_grad, other.is_leaf, x.grad.tolist(), (tagged + 1).tolist(),
        isinstance(library.nn.Parameter(library.Tensor(2)), library.FloatTensor),
    )  # fmt: skip


def test_it_is_there_to_be_subclassed():
    assert _subclasses(ag) == _subclasses(torch)
    with pytest.raises(TypeError, match="must be a type that inherits from Tensor"):
        ag.ones(1).as_subclass(int)
