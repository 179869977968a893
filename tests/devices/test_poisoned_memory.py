"""What is still seen keeps its values, in memory that is NaN as soon as it may be lent again."""

from __future__ import annotations

import ctypes
import gc
import pickle
import random
import threading
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.lib import stride_tricks

import asyncgrad as ag
from asyncgrad.core.variable import view_of
from asyncgrad.devices.pool import POOL, Lease
from asyncgrad.ops.registry import OPS
from asyncgrad.testing import poisoned_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Views of an array of four rows and six columns of float64.
OF_ARRAYS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda a: a,
    "slice": lambda a: a[1:, ::2],
    "slice of a slice": lambda a: a[1:][:, 1:][::2],
    "one row": lambda a: a[2],
    "element": lambda a: a[1, 2:3],
    "turned": lambda a: a.T,
    "reshaped": lambda a: a.reshape(-1),
    "bytes": lambda a: a.view(np.uint8),
    "diagonal": lambda a: a.diagonal(),
    "real": lambda a: a.view(np.complex128).imag,
    "matrix": lambda a: a.view(np.matrix),
    "record": lambda a: a.view([("x", "f8"), ("y", "f8")])["y"],
    "masked": lambda a: np.ma.asarray(a).data,
    "as_strided": lambda a: stride_tricks.as_strided(a, (3, 3), (8, 16)),
    "sliding_window_view": lambda a: stride_tricks.sliding_window_view(a, (2, 2)),
    "broadcast_to": lambda a: np.broadcast_to(a, (2, 4, 6)),
    "broadcast_arrays": lambda a: np.broadcast_arrays(a, np.ones((3, 1, 1)))[0],
    "frombuffer": lambda a: np.frombuffer(a),
    "memoryview": memoryview,
    "part of a memoryview": lambda a: memoryview(a)[1:],
    "bytes of a memoryview": lambda a: memoryview(a).cast("B")[8:],
    "array of a memoryview": lambda a: np.asarray(memoryview(a)),
    "buffer of an ndarray": lambda a: np.ndarray((6,), np.float64, a, 8),
    "pickle buffer": lambda a: pickle.PickleBuffer(a).raw(),
    "pickled out of band": lambda a: _pickled(a),
    "dlpack": lambda a: np.from_dlpack(a),
    "ctypes": lambda a: np.ctypeslib.as_array(np.ctypeslib.as_ctypes(a)),
    "ctypes pointer": lambda a: np.ctypeslib.as_array(
        a.ctypes.data_as(ctypes.POINTER(ctypes.c_double)), (24,)
    ),
    "interface": lambda a: np.asarray(_Interface(a)),
    "struct": lambda a: np.asarray(_Struct(a)),
    "base": lambda a: np.frombuffer(a.base),
    "base of a view": lambda a: np.asarray(a[1:].base),
    "memoryview of the base": lambda a: memoryview(a.base).cast("B"),
    "part of the base": lambda a: np.frombuffer(a.base)[3:][1:],
    "deepest base": lambda a: np.asarray(_deepest(a[1:][:, 1:])),
    "tensor": lambda a: ag.from_numpy(a).numpy(),
    "tensor by dlpack": lambda a: ag.from_dlpack(a).numpy(),
    "tensor's dlpack": lambda a: np.from_dlpack(ag.from_numpy(a)[1:]),
    "asarray": lambda a: np.asarray(ag.asarray(a)),
}
#: Views of a tensor of four rows and six columns, by the function of the table that makes them.
OF_TENSORS: dict[str, tuple[Callable[[Any], Any], ...]] = {
    "expand": (lambda x: x[:, None].expand(4, 2, 6), lambda x: ag.broadcast_to(x, (2, 4, 6))),
    "reshape": (lambda x: x.view(-1), lambda x: x.flatten(), lambda x: x.unflatten(1, (2, 3))),
    "permute": (lambda x: x.t(), lambda x: x.movedim(0, 1), lambda x: x.swapaxes(0, 1)),
    "unsqueeze": (lambda x: x.unsqueeze(1), lambda x: x[..., None]),
    "squeeze": (lambda x: x[:, :1].squeeze(), lambda x: x[:1].squeeze(0)),
    "narrow": (
        lambda x: x.narrow(1, 1, 2), lambda x: x.chunk(3, 1)[1], lambda x: x.split(2)[1],
        lambda x: ag.tensor_split(x, 4, 1)[2], lambda x: ag.hsplit(x, 2)[1],
    ),
    "diagonal": (lambda x: x.diagonal(), lambda x: ag.linalg.diagonal(x, offset=1)),
    "view_as_real": (lambda x: ag.view_as_real(ag.complex(x, x) * 1),),
    "view_as_complex": (lambda x: ag.view_as_complex(x.view(4, 3, 2)),),
    "as_strided": (
        lambda x: x.as_strided((3, 3), (1, 2), 2), lambda x: x.unfold(1, 3, 1),
        lambda x: x.view(-1).unfold(0, 3, 1), lambda x: x.t().as_strided((4,), (6,)),
    ),
    "getitem": (lambda x: x[1], lambda x: x[:, ::2], lambda x: x.select(0, 2), lambda x: x[1:][1:]),
    "adjoint": (lambda x: x.mH, lambda x: ag.adjoint(ag.complex(x, x))),
}  # fmt: skip
#: Views of matrices that are matrices, to be put one on the other.
ALIKE: tuple[Callable[[Any], Any], ...] = (
    lambda x: x.mT,
    lambda x: x.as_strided((x.shape[0], 2), (1, 1)),
    lambda x: x[1:] if len(x) > 1 else x,
    lambda x: x.unfold(-1, 2, 1).select(-1, 0) if x.shape[-1] > 1 else x,
    lambda x: x.unsqueeze(0).squeeze(0),
    lambda x: x.view_as(x),
    lambda x: x.expand(3, *x.shape)[1],
    lambda x: x.flatten().unfold(0, 2, 1) if x.is_contiguous() else x[:, ::2],
)


def _pickled(array: np.ndarray[Any, Any]) -> Any:
    buffers: list[Any] = []
    data = pickle.dumps(array, 5, buffer_callback=buffers.append)
    return pickle.loads(data, buffers=buffers)


def _deepest(array: Any) -> Any:
    """What owns the memory, as programs look for it."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


class _Interface:
    """An object that NumPy knows by its `__array_interface__`."""

    def __init__(self, array: Any) -> None:
        self._array, self.__array_interface__ = array, array.__array_interface__


class _Struct:
    """And by its `__array_struct__`."""

    def __init__(self, array: Any) -> None:
        self._array, self.__array_struct__ = array, array.__array_struct__


def fill_the_pool() -> list[Any]:
    """Have blocks of every small size and several dtypes lent, and set."""
    return [
        POOL.take((size // dtype.itemsize,), dtype).fill(7)
        for dtype in (np.dtype("f8"), np.dtype("f4"), np.dtype("i8"), np.dtype("u1"))
        for size in range(16, 700, 16)
    ]


@pytest.fixture
def poisoned() -> Iterator[None]:
    """Memory that is NaN."""
    with poisoned_memory():
        yield


def unused_blocks() -> list[int]:
    """The addresses of the blocks that may be lent."""
    return [b.address for shelf in list(POOL._shelves.values()) for b in shelf.blocks]


@pytest.mark.parametrize("look", OF_ARRAYS.values(), ids=list(OF_ARRAYS))
@pytest.mark.usefixtures("poisoned")
def test_an_arrays_memory_is_lent_again_when_nothing_looks_at_it(look):
    """Whatever way it is looked at: not before, and then once."""
    own = np.arange(24.0).reshape(4, 6)
    array = POOL.take((4, 6), own.dtype)
    array[...] = own
    address = array.ctypes.data
    seen = look(array)
    expected = np.array(seen)
    del array
    assert address not in unused_blocks()
    fill_the_pool()
    np.testing.assert_array_equal(np.array(seen), expected)
    del seen
    # ctypes' pointers hold themselves.
    gc.collect(1)
    assert unused_blocks().count(address) == 1


@pytest.mark.usefixtures("poisoned")
def test_memory_that_is_given_back_is_nan():
    """In every dtype with a NaN; where it is not set yet, too."""
    for dtype in ("f2", "f4", "f8", "c8", "c16", "g"):
        array = POOL.take((40,), np.dtype(dtype))
        assert np.isnan(array).all()
        address, nbytes = array.ctypes.data, array.nbytes
        array.fill(1)
        del array
        assert set(ctypes.string_at(address, nbytes)) == {0xFF}


def test_small_results_lie_there_within_the_context_alone():
    """Whether or not tensors of their shape were there before."""
    lent = []
    for context in (nullcontext, poisoned_memory, nullcontext):
        with context():
            lent.append(isinstance((ag.ones(5) * 2)._array.base, Lease))
    assert lent == [False, True, False]


@pytest.mark.usefixtures("poisoned")
def test_a_lease_is_over_once():
    """Whoever calls what the interpreter calls gives nothing back twice."""
    array = POOL.take((40,), np.dtype("f8"))
    address, lease = array.ctypes.data, array.base
    lease.__del__()
    del array, lease
    assert unused_blocks().count(address) == 1


def test_every_function_that_makes_views_is_drawn():
    """A new one in the table has to be among these."""
    marked = {name for name, entry in OPS.items() if entry.view}
    assert marked == OF_TENSORS.keys()
    for name, looks in OF_TENSORS.items():
        x = ag.arange(24.0).reshape(4, 6).clone()
        paths = []
        for look in looks:
            view, path = view_of(look(x)), None
            path = None if view is None else view.path
            while path is not None:
                paths.append(path[1])
                path = path[0]
        assert name in paths or name in {"view_as_real", "adjoint"}, (name, paths)


def leave(seen: Any, how: str, leaf: Any) -> list[Any]:
    """What is seen of a view when its tensor is gone and memory has been lent many times over."""
    if how == "changed":
        seen = seen.detach().clone()
        seen[:1].mul_(3)
        seen.add_(seen)
    elif how == "out":
        out = ag.empty_like(seen.detach())
        ag.mul(seen.detach(), 2, out=out)
        seen = out
    elif how == "array":
        seen = seen.detach().resolve_conj().numpy()
    elif how == "detached":
        seen = seen.detach()
    fill_the_pool()
    if how not in {"saved", "retained"}:
        return [np.array(seen.detach().resolve_conj() if isinstance(seen, ag.Tensor) else seen)]
    if how == "retained":
        seen.retain_grad()
    squares = seen * seen.conj()
    loss = (squares.real if squares.is_complex() else squares).sum()
    held = seen if how == "retained" else None
    del seen, squares
    fill_the_pool()
    loss.backward()
    del loss
    fill_the_pool()
    return [x.grad.numpy() for x in (leaf, held) if x is not None and not x.is_complex()]


HOWS = ("tensor", "detached", "array", "changed", "out", "saved", "retained")


def program(looks: tuple[Callable[[Any], Any], ...], how: str) -> list[Any]:
    """Views of a result, one on the other."""
    leaf = (ag.arange(24.0, dtype=ag.float64) + 1).reshape(4, 6).clone().requires_grad_()
    seen = leaf * 2
    for look in looks:
        seen = look(seen)
    return leave(seen, how, leaf)


def check(looks: tuple[Callable[[Any], Any], ...], how: str, expected: list[Any]) -> None:
    """Compare a program's results in poisoned memory with those that were expected."""
    for ours, theirs in zip(program(looks, how), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", OF_TENSORS)
@pytest.mark.parametrize("how", HOWS)
def test_a_view_of_a_result_keeps_its_values(name, how):
    """Of every function that makes views, whatever becomes of the view."""
    for look in OF_TENSORS[name]:
        expected = program((look,), how)
        with poisoned_memory():
            check((look,), how, expected)


def test_views_of_views_keep_their_values_in_several_threads():
    """While all of them lend from one pool."""
    draw = random.Random(0)
    drawn = [
        (tuple(draw.choices(ALIKE, k=draw.randint(1, 4))), draw.choice(HOWS)) for _ in range(120)
    ]
    expected = [program(some, how) for some, how in drawn]
    errors: list[BaseException] = []

    def run(mine: int) -> None:
        try:
            for (some, how), one in list(zip(drawn, expected, strict=True))[mine::4]:
                check(some, how, one)
        except BaseException as error:
            errors.append(error)

    with poisoned_memory():
        threads = [threading.Thread(target=run, args=(mine,)) for mine in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not errors, errors[0]


def test_a_window_over_a_large_result_shares_no_memory_with_what_comes_later():
    """Without any poison."""
    windows = (ag.ones(60000, dtype=ag.float64) * 2).unfold(0, 3, 1)
    others = [(ag.zeros(60000, dtype=ag.float64) + float(k)).numpy() for k in range(12)]
    assert (windows.numpy() == 2).all()
    assert len({other.ctypes.data for other in others}) == len(others)
