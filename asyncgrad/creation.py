"""Tensors from data, from shapes, and at random."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncgrad.core.locks import Lock
from asyncgrad.core.modes import current
from asyncgrad.core.variable import Variable, autograd_meta, wrap
from asyncgrad.devices import CPU
from asyncgrad.ops.arguments import one_shape
from asyncgrad.ops.namespace import metadata_of
from asyncgrad.ops.promotion import category, default_complex_dtype, default_dtype
from asyncgrad.tensor import Tensor  # noqa: TC001  before a function takes the module's name


class Generator:
    """A source of random numbers, safe to draw from in several threads and tasks."""

    def __init__(self) -> None:
        """Start from seed 0."""
        self._lock = Lock()
        self._random = np.random.default_rng(0)

    def manual_seed(self, seed: int) -> Generator:
        """Start anew from a seed."""
        with self._lock:
            self._random = np.random.default_rng(seed)
        return self

    def draw(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """What a method of NumPy's generator gives."""
        with self._lock:
            return getattr(self._random, method)(*args, **kwargs)


default_generator = Generator()


def manual_seed(seed: int) -> Generator:
    """Seed the default generator."""
    return default_generator.manual_seed(seed)


def _make(array: Any, requires_grad: bool, name: str) -> Any:
    """A leaf of an array."""
    if array.dtype.kind not in "biufc":
        raise TypeError(
            f"{name}: can't make a tensor of dtype {array.dtype}. The supported kinds are bool, "
            f"integer, floating and complex."
        )
    out = wrap(array, metadata_of(array, CPU))
    if current().inference:
        autograd_meta(out).inference = True
    if requires_grad:
        if category(array.dtype) < 2:
            raise RuntimeError(
                f"Only Tensors of floating point and complex dtype can require gradients, got "
                f"{array.dtype}. Pass dtype=asyncgrad.float32."
            )
        autograd_meta(out).requires_grad = True
    return out


def tensor(data: Any, *, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor with a copy of some data: numbers, nested sequences of them, an array or a tensor.

    Args:
        data: the values. Python floats become the default dtype, arrays keep theirs.
        dtype: the dtype; taken from the data if None.
        requires_grad: the tensor is a leaf to accumulate gradients for.

    Raises:
        ValueError: if nested sequences are ragged.
        TypeError: if the data are no numbers.
        RuntimeError: if a dtype without gradients is to require them.
    """
    if isinstance(data, Variable):
        data = data._array
    elif isinstance(data, (list, tuple)):
        data = [part._array if isinstance(part, Variable) else part for part in data]
    plain = not isinstance(data, (np.ndarray, np.generic))
    array = np.array(data, dtype=dtype)
    if dtype is None and plain:
        if array.dtype == np.float64:
            array = array.astype(default_dtype())
        elif array.dtype == np.complex128:
            array = array.astype(default_complex_dtype())
    return _make(array, requires_grad, "tensor")  # type: ignore[no-any-return]


def as_tensor(data: Any, *, dtype: Any = None) -> Tensor:
    """A tensor of some data, sharing their memory where they are an array of the dtype."""
    if isinstance(data, Variable):
        return data if dtype is None else data.to(dtype)  # type: ignore[attr-defined, return-value]
    if isinstance(data, np.ndarray) and (dtype is None or data.dtype == dtype):
        return from_numpy(data)
    return tensor(data, dtype=dtype)


def from_numpy(array: np.ndarray[Any, Any]) -> Tensor:
    """A tensor that shares an array's memory.

    Raises:
        TypeError: if it is no array, or one of a dtype without arithmetic.
    """
    if not isinstance(array, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(array).__name__})")
    return _make(array.view(np.ndarray), False, "from_numpy")  # type: ignore[no-any-return]


def zeros(*size: Any, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor of zeros."""
    array = np.zeros(one_shape("zeros", size), dtype=dtype or default_dtype())
    return _make(array, requires_grad, "zeros")  # type: ignore[no-any-return]


def ones(*size: Any, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor of ones."""
    array = np.ones(one_shape("ones", size), dtype=dtype or default_dtype())
    return _make(array, requires_grad, "ones")  # type: ignore[no-any-return]


def full(size: Any, fill_value: Any, *, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor with one value everywhere."""
    like = tensor(fill_value, dtype=dtype)
    array = np.full(one_shape("full", (size,)), fill_value, dtype=like.dtype)
    return _make(array, requires_grad, "full")  # type: ignore[no-any-return]


def zeros_like(input: Tensor, *, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """Zeros of the shape and dtype of another tensor."""
    return zeros(input.shape, dtype=dtype or input.dtype, requires_grad=requires_grad)


def ones_like(input: Tensor, *, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """Ones of the shape and dtype of another tensor."""
    return ones(input.shape, dtype=dtype or input.dtype, requires_grad=requires_grad)


def arange(start: Any, end: Any = None, step: Any = 1, *, dtype: Any = None) -> Tensor:
    """Numbers from `start` up to `end`, which is left out."""
    if end is None:
        start, end = 0, start
    array = np.arange(start, end, step, dtype=dtype)
    if dtype is None and array.dtype == np.float64:
        array = array.astype(default_dtype())
    return _make(array, False, "arange")  # type: ignore[no-any-return]


def randn(
    *size: Any, generator: Generator | None = None, dtype: Any = None, requires_grad: bool = False
) -> Tensor:
    """Standard normal numbers."""
    source = generator or default_generator
    array = source.draw("standard_normal", one_shape("randn", size))
    return _make(  # type: ignore[no-any-return]
        np.asarray(array, dtype=dtype or default_dtype()), requires_grad, "randn"
    )


def rand(
    *size: Any, generator: Generator | None = None, dtype: Any = None, requires_grad: bool = False
) -> Tensor:
    """Numbers uniform in [0, 1)."""
    source = generator or default_generator
    array = source.draw("random", one_shape("rand", size))
    return _make(  # type: ignore[no-any-return]
        np.asarray(array, dtype=dtype or default_dtype()), requires_grad, "rand"
    )


def randint(
    low: int, high: int, size: Any, *, generator: Generator | None = None, dtype: Any = None
) -> Tensor:
    """Integers uniform in [low, high)."""
    source = generator or default_generator
    array = source.draw("integers", low, high, one_shape("randint", (size,)))
    return _make(np.asarray(array, dtype=dtype or np.int64), False, "randint")  # type: ignore[no-any-return]


def randperm(n: int, *, generator: Generator | None = None) -> Tensor:
    """The numbers below `n` in random order."""
    source = generator or default_generator
    return _make(np.asarray(source.draw("permutation", n)), False, "randperm")  # type: ignore[no-any-return]
