"""Sequences of several lengths in one tensor: padded, or packed without padding.

In a packed sequence the first step's rows of all sequences come first, then those of the second
step, and so on. `batch_sizes` holds for each step the number of sequences that have not ended. The
sequences are sorted by falling length; `sorted_indices` is that order, `unsorted_indices` its
inverse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from asyncgrad.choices import Side, words
from asyncgrad.core.variable import Variable
from asyncgrad.ops.api.creation import full
from asyncgrad.ops.api.data import tensor
from asyncgrad.ops.api.index import index_put, index_select
from asyncgrad.ops.api.shape import reshape, transpose
from asyncgrad.records import NamedTuple
from asyncgrad.types import Tensor


def _converter(name: str, dtype: str) -> Callable[[PackedSequence], PackedSequence]:
    def convert(self: PackedSequence) -> PackedSequence:
        return self.to(dtype)

    convert.__name__, convert.__qualname__ = name, f"PackedSequence.{name}"
    convert.__doc__ = f"The sequence in {dtype}."
    return convert


class _Packed(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class PackedSequence(_Packed):
    """Packed sequences, made by `pack_padded_sequence` and used by recurrent layers.

    Args:
        data: of shape (rows, ...).
        batch_sizes: int64, of shape (steps,), on the CPU.
        sorted_indices: the order of the sequences; None if they were sorted already.
    """

    __slots__ = ()

    def __new__(
        cls, data: Tensor, batch_sizes: Tensor, sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> PackedSequence:  # fmt: skip
        """Compute the inverse of the order if it is not given."""
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """Convert the data to another dtype or device; the arguments are those of `Tensor.to`."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        orders = [None if x is None else x.to(data.device) for x in self[2:]]
        return type(self)(data, self.batch_sizes, *orders)

    def cpu(self) -> PackedSequence:
        """The sequence in host memory."""
        return self.to("cpu")

    float = _converter("float", "float32")
    double = _converter("double", "float64")
    half = _converter("half", "float16")
    long = _converter("long", "int64")
    int = _converter("int", "int32")
    short = _converter("short", "int16")
    char = _converter("char", "int8")
    byte = _converter("byte", "uint8")

    def pin_memory(self) -> PackedSequence:
        """The sequence in pinned memory: see `Tensor.pin_memory`."""
        orders = [None if x is None else x.pin_memory() for x in self[2:]]
        return type(self)(self.data.pin_memory(), self.batch_sizes, *orders)

    def is_pinned(self) -> bool:
        """Whether the data are in pinned memory."""
        return self.data.is_pinned()

    @property
    def is_cuda(self) -> bool:
        """Whether the data are on a CUDA device."""
        return self.data.is_cuda


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The inverse of a permutation; None for None."""
    if permutation is None:
        return None
    return tensor(np.argsort(permutation.numpy(force=True)), device=permutation.device)


def pack_padded_sequence(
    input: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False,
    enforce_sorted: bool = True,
) -> PackedSequence:  # fmt: skip
    """Pack padded sequences into one tensor without padding.

    Args:
        input: of shape (length, n, ...), or (n, length, ...) with `batch_first`.
        lengths: the length of each sequence: a sequence of integers, or a tensor on the CPU.
        enforce_sorted: require falling lengths; otherwise the sequences are sorted.

    Example:
        >>> rnn = ag.nn.utils.rnn
        >>> rnn.pack_padded_sequence(ag.tensor([[1, 4], [2, 5], [3, 0]]), [3, 2]).data
        tensor([1, 4, 2, 5, 3])
    """
    numbers = np.asarray(lengths)
    if not input.numel():
        raise RuntimeError("pack_padded_sequence: Cannot pack empty tensors.")
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise RuntimeError("pack_padded_sequence: `lengths` should be a 1D int64 tensor on the CPU")
    x = transpose(input, 0, 1) if batch_first else input
    steps, count = x.shape[:2]
    if len(numbers) != count:
        raise RuntimeError(
            f"pack_padded_sequence: Expected `len(lengths)` to be equal to batch_size, but got "
            f"{len(numbers)} (batch_size={count})"
        )
    if numbers.min() <= 0 or numbers.max() > steps:
        raise RuntimeError(
            f"pack_padded_sequence: Length of all samples has to be greater than 0 and at most "
            f"{steps}, but found an element in `lengths` that is not: {numbers.tolist()}"
        )
    order: Any = None
    if not enforce_sorted:
        order = np.argsort(-numbers, kind="stable")
        numbers = numbers[order]
        order = tensor(order, device=input.device)
        x = index_select(x, 1, order)
    elif np.any(np.diff(numbers) > 0):
        raise RuntimeError(
            "pack_padded_sequence: `lengths` array must be sorted in decreasing order when "
            "`enforce_sorted` is True. You can pass `enforce_sorted=False`."
        )
    there = np.arange(numbers[0])[:, None] < numbers
    rows = tensor(np.flatnonzero(there), device=input.device)
    data = index_select(reshape(x, (steps * count, *x.shape[2:])), 0, rows)
    return PackedSequence(data, tensor(there.sum(1)), order)


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Undo `pack_padded_sequence`: return the padded sequences and their lengths.

    Args:
        batch_first: the result is (n, length, ...) instead of (length, n, ...).
        total_length: the length of the result; that of the longest sequence if None.
    """
    data, sizes = sequence.data, sequence.batch_sizes.numpy()
    longest, count = len(sizes), int(sizes[0])
    steps = longest if total_length is None else total_length
    if steps < longest:
        raise ValueError(
            f"Expected total_length to be at least the length of the longest sequence in input, "
            f"but got total_length={steps} and max sequence length being {longest}"
        )
    there = np.arange(count) < sizes[:, None]
    rows = tensor(np.flatnonzero(there), device=data.device)
    rest = data.shape[1:]
    out = full((steps * count, *rest), padding_value, dtype=data.dtype, device=data.device)
    out = reshape(index_put(out, (rows,), data), (steps, count, *rest))
    lengths = tensor(there.sum(0))
    if sequence.unsorted_indices is not None:
        out = index_select(out, 1, sequence.unsorted_indices)
        lengths = lengths[sequence.unsorted_indices.cpu()]
    return (transpose(out, 0, 1) if batch_first else out), lengths


def pad_sequence(
    sequences: Tensor | Sequence[Tensor], batch_first: bool = False, padding_value: float = 0.0,
    padding_side: Side = "right",
) -> Tensor:  # fmt: skip
    """Pad sequences of several lengths and stack them in one tensor.

    Args:
        sequences: tensors of shapes (length, ...), equal but for the length.
        batch_first: the result is (n, length, ...) instead of (length, n, ...).
        padding_side: "right" to pad behind the sequences, "left" to pad before them.
    """
    if isinstance(sequences, Variable):
        sequences = sequences.unbind(0)
    if not isinstance(sequences, Iterable):
        raise RuntimeError(
            f"pad_sequence: Expected iterable for input sequences, but got arg of type: "
            f"{type(sequences)}"
        )
    sequences = list(sequences)
    if not sequences:
        raise RuntimeError("pad_sequence: received an empty list of sequences")
    if padding_side not in words(Side):
        raise RuntimeError(
            f"pad_sequence: Expected padding_side to be one of left or right, but got "
            f"{padding_side}."
        )
    first = sequences[0]
    rest = first.shape[1:]
    if any(x.shape[1:] != rest for x in sequences):
        raise RuntimeError(
            f"pad_sequence: the sequences' shapes have to be alike but for the first axis, got "
            f"{[tuple(x.shape) for x in sequences]}"
        )
    steps = max(len(x) for x in sequences)
    out = full((len(sequences), steps, *rest), padding_value, dtype=first.dtype,
               device=first.device)  # fmt: skip
    for place, x in enumerate(sequences):
        out[place, steps - len(x) if padding_side == "left" else 0 :][: len(x)] = x
    return out if batch_first else transpose(out, 0, 1)


def unpad_sequence(
    padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False
) -> list[Tensor]:
    """The sequences of a padded tensor, each without its padding.

    Args:
        padded_sequences: of shape (length, n, ...), or (n, length, ...) with `batch_first`.
    """
    x = padded_sequences if batch_first else transpose(padded_sequences, 0, 1)
    pairs = zip(x, np.asarray(lengths).tolist(), strict=True)
    return [part[:length] for part, length in pairs]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack sequences of several lengths, as `pad_sequence` and `pack_padded_sequence` do."""
    lengths = [len(x) for x in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The list of sequences in a packed sequence."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
