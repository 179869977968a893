"""Dtypes and shapes as PyTorch's programs and NumPy's take them."""

import copy
import operator
import pickle

import numpy as np
import pytest
from oracle import dtype_name

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = pytest.mark.torch

NAMES = (
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16",
    "bfloat16", "float32", "float64", "complex64", "complex128",
)  # fmt: skip
ALIASES = ("half", "float", "double", "cfloat", "cdouble", "short", "int", "long")


def _outcome(compute, library):
    """What comes out, in words that both libraries have in common."""
    try:
        found = compute(library)
    except Exception as error:
        return type(error)
    return str(found).replace("torch.", "asyncgrad."), type(found).__name__.lower()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "fact", ["is_complex", "is_floating_point", "is_signed", "itemsize", "to_real", "to_complex"]
)
def test_facts_of_dtypes_are_pytorchs(name, fact):
    def asked(library):
        found = getattr(getattr(library, name), fact)
        found = found() if callable(found) else found
        return dtype_name(found)

    if (name, fact) == ("float16", "to_complex"):
        with pytest.raises(RuntimeError, match="Unknown Complex ScalarType"):
            ag.float16.to_complex()  # NumPy has no complex number of two halves.
        return
    assert _outcome(asked, ag) == _outcome(asked, torch)


def test_other_names_are_the_same_dtypes():
    for alias in ALIASES:
        assert dtype_name(getattr(ag, alias)) == dtype_name(getattr(torch, alias))
        assert getattr(ag, alias) is getattr(ag, getattr(ag, alias).name)


@pytest.mark.parametrize("name", NAMES)
def test_numpy_takes_them_for_its_own(name):
    """As an argument, in comparisons from either side, and as a key."""
    mine = getattr(ag, name)
    array = np.zeros(3, dtype=mine)
    assert isinstance(mine, ag.dtype)
    assert repr(mine) == str(mine) == repr(getattr(torch, name)).replace("torch", "asyncgrad")
    assert array.dtype == mine
    assert mine == array.dtype
    assert np.dtype(mine) is array.dtype
    assert {mine: 1}[array.dtype] == 1
    assert hash(mine) == hash(array.dtype)
    assert ag.from_numpy(array).dtype is mine
    assert ag.zeros(3, dtype=mine).numpy().dtype == mine
    assert ag.zeros(2).to(array.dtype).dtype is ag.ones(2).to(mine).dtype is mine
    assert mine != "no dtype"
    assert mine != getattr(ag, NAMES[NAMES.index(name) - 1])


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_there_is_one_object_of_each(copied):
    assert copied(ag.float32) is ag.float32
    size = ag.ones(2, 3).shape
    assert copied(size) == size
    assert type(copied(size)) is ag.Size


@pytest.mark.parametrize("dtype", ["<f8", ">f8", ">i4", ">c8", ">u2"])
def test_new_tensors_have_the_native_byte_order(dtype):
    """In which kernels read them, and DLPack's consumers."""
    for made in (ag.zeros(2, dtype=dtype), ag.ones(2).to(dtype=dtype), ag.tensor([1], dtype=dtype)):
        assert made.numpy().dtype.isnative
        assert made.dtype == np.dtype(dtype).newbyteorder("=")


@pytest.mark.parametrize("dtype", [None, "g", "m8[s]", int, 3])
def test_what_is_no_floating_dtype_does_not_become_the_default(dtype):
    with pytest.raises(TypeError, match="only floating-point dtypes are supported"):
        ag.set_default_dtype(dtype)
    assert ag.get_default_dtype() is ag.float32


def test_what_gives_a_dtype_gives_the_users():
    x = ag.ones(2, requires_grad=True)
    found = [
        x.dtype,
        x.grad_dtype,
        ag.get_default_dtype(),
        ag.result_type(x, 1),
        ag.nn.Linear(1, 1).weight.dtype,
    ]
    assert all(dtype is ag.float32 for dtype in found)
    assert ag.promote_types(ag.int8, ag.float64) is ag.float64
    x.grad_dtype = ag.float64
    assert x.grad_dtype is ag.float64
    with pytest.raises(TypeError, match="can't have the dtype"):
        ag.dtype("longdouble")


SIZES = {
    "shape": lambda L: L.ones(2, 3).shape,
    "size": lambda L: L.ones(2, 3).size(),
    "of nothing": lambda L: L.Size(),
    "empty": lambda L: L.Size(()),
    "of tensors": lambda L: L.Size((2, L.tensor(3))),
    "of NumPy's numbers": lambda L: L.Size([np.int64(3), True]),
    "of a fraction": lambda L: L.Size([1.5]),
    "of a word": lambda L: L.Size("ab"),
    "of a number": lambda L: L.Size(2),
    "one": lambda L: L.Size([2, 3])[-1],
    "some": lambda L: L.Size([2, 3, 4])[1:],
    "every other": lambda L: L.Size([2, 3, 4])[::2].numel(),
    "beyond": lambda L: L.Size([2])[1],
    "numel": lambda L: (L.Size([2, 3]).numel(), L.Size().numel(), L.ones(2, 0).shape.numel()),
    "followed": lambda L: operator.add(L.Size([2, 3]), (1,)),
    "preceded": lambda L: operator.add((1,), L.Size([2, 3])),
    "and a list": lambda L: operator.add(L.Size([2, 3]), [1]),
    "after a list": lambda L: operator.add([1], L.Size([2, 3])),
    "twice": lambda L: L.Size([2, 3]) * 2,
    "twice from the left": lambda L: 2 * L.Size([2, 3]),
    "half": lambda L: L.Size([2, 3]) * 0.5,
    "equal": lambda L: L.Size([2, 3]) == (2, 3) and hash(L.Size([2, 3])) == hash((2, 3)),
    "an index": lambda L: L.Size([2, 3]).index(3),
    "unpacked": lambda L: [*L.ones(2, 3).shape],
    "in a text": lambda L: f"{L.ones(2, 3).shape}",
    "to make a tensor of": lambda L: L.zeros(L.Size([2, 3])).new_ones(L.Size([4])).shape,
    "of a view": lambda L: L.ones(4, 3).view(L.ones(2, 6).shape).shape[:-1],
}  # fmt: skip


@pytest.mark.parametrize("name", SIZES)
def test_sizes_are_pytorchs(name):
    assert _outcome(SIZES[name], ag) == _outcome(SIZES[name], torch)


def test_the_shape_of_an_example_is_a_size():
    seen = []
    ag.func.vmap(lambda x: seen.append((x.shape, x.dtype)) or x)(ag.ones(4, 2, 3))
    assert seen == [(ag.Size([2, 3]), ag.float32)]
    assert type(seen[0][0]) is ag.Size
