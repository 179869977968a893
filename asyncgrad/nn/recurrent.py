"""Recurrent layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import groupby
from typing import Any

from asyncgrad.choices import RecurrentActivation
from asyncgrad.core.frames import warn
from asyncgrad.creation import zeros
from asyncgrad.nn import functional as F
from asyncgrad.nn.cells import GATES, advance, check_nonlinearity, reset, state_and_memory
from asyncgrad.nn.function_module import FunctionModule, unusual
from asyncgrad.nn.utils.rnn import PackedSequence
from asyncgrad.ops.api.index import index_select
from asyncgrad.ops.api.shape import cat, flip, reshape, stack, transpose
from asyncgrad.types import DeviceLike, DTypeLike, Tensor


class RNNBase(FunctionModule, shown=()):
    """Stacked layers of recurrent cells, in one direction or both."""

    #: The kind of cell, a key of `GATES`.
    mode: str

    def __init__(
        self, mode: str, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        proj_size: int = 0, device: DeviceLike | None = None, dtype: DTypeLike | None = None,
    ) -> None:  # fmt: skip
        self._keep(locals())

    def _keep(self, given: Mapping[str, Any]) -> None:
        """Check and keep the options, and create the parameters."""
        _check_options(given)
        super()._keep({"proj_size": 0, **given})
        self.bias, self.dropout = given["bias"], float(given["dropout"])
        size = self.hidden_size
        width, out = GATES[self.mode] * size, self.proj_size or size
        for layer in range(self.num_layers):
            below = out * (1 + self.bidirectional) if layer else self.input_size
            for ending in self._endings(layer):
                shapes: dict[str, tuple[int, ...]]
                shapes = {"weight_ih": (width, below), "weight_hh": (width, out)}
                if self.bias:
                    shapes |= {"bias_ih": (width,), "bias_hh": (width,)}
                if self.proj_size:
                    shapes["weight_hr"] = (self.proj_size, size)
                named = {name + ending: shape for name, shape in shapes.items()}
                self._add_parameters(named, given["device"], given["dtype"])
        self.reset_parameters()

    def _endings(self, layer: int) -> tuple[str, ...]:
        """The suffixes of the names of a layer's parameters, one for each direction."""
        first = f"_l{layer}"
        return (first, f"{first}_reverse") if self.bidirectional else (first,)

    def _weights(self, ending: str) -> dict[str, Any]:
        """The weights of a layer in one direction, which may be computed ones."""
        names = ["weight_ih", "weight_hh"]
        names += ["bias_ih", "bias_hh"] if self.bias else []
        names += ["weight_hr"] if self.proj_size else []
        return {name: getattr(self, name + ending) for name in names}

    def reset_parameters(self) -> None:
        """Redraw the parameters, uniform in +-1/sqrt(hidden_size)."""
        reset(self, self.hidden_size)

    def flatten_parameters(self) -> None:
        """Do nothing: parameters need no contiguous memory. Exists for PyTorch compatibility."""

    @property
    def all_weights(self) -> list[list[Any]]:
        """A list of parameters for each layer and direction."""
        return [
            [*self._weights(ending).values()]
            for layer in range(self.num_layers)
            for ending in self._endings(layer)
        ]

    def _run(
        self, input: Tensor | PackedSequence, hx: tuple[Tensor, ...] | None
    ) -> tuple[Any, tuple[Any, ...]]:
        """Run over a tensor or a packed sequence; return the outputs and the final states."""
        if isinstance(input, PackedSequence):
            return self._packed(input, hx)
        self._check_input(input)
        batched = input.ndim == 3
        x = input if batched else reshape(input, (input.shape[0], 1, input.shape[1]))
        if batched and self.batch_first:
            x = transpose(x, 0, 1)
        if not x.shape[0]:
            raise RuntimeError(
                f"{self._get_name()}: Expected sequence length to be larger than 0 in RNN"
            )
        hx = self._first_state(x, x.shape[1], hx, batched)
        x, final = self._layers(x, hx, _over)
        if not batched:
            return x[:, 0], tuple(part[:, 0] for part in final)
        return (transpose(x, 0, 1) if self.batch_first else x), final

    def _packed(
        self, input: PackedSequence, hx: tuple[Tensor, ...] | None
    ) -> tuple[PackedSequence, tuple[Any, ...]]:
        """Run over a packed sequence; return the outputs and the final states."""
        data, sizes, order, back = input
        self._check_input(data, packed=True)
        first = self._first_state(data, int(sizes[0]), hx, True)
        if hx is not None and order is not None:
            first = tuple(index_select(part, 1, order) for part in first)
        x, final = self._layers(data, first, partial(_over_packed, segments(sizes.tolist())))
        if back is not None:
            final = tuple(index_select(part, 1, back) for part in final)
        return PackedSequence(x, sizes, order, back), final

    def _layers(
        self, x: Tensor, hx: tuple[Any, ...], over: Callable[..., tuple[Tensor, tuple[Tensor, ...]]]
    ) -> tuple[Any, tuple[Any, ...]]:
        """Run all layers; `over` runs one layer in one direction."""
        directions = 1 + self.bidirectional
        last: list[tuple[Any, ...]] = []
        for layer in range(self.num_layers):
            outputs = []
            for direction, ending in enumerate(self._endings(layer)):
                state = tuple(part[layer * directions + direction] for part in hx)
                out, state = over(self.mode, x, state, self._weights(ending), direction)
                outputs.append(out)
                last.append(state)
            x = outputs[0] if len(outputs) == 1 else cat(outputs, -1)
            if self.dropout and self.training and layer < self.num_layers - 1:
                x = F.dropout(x, self.dropout)
        return x, tuple(stack(parts) for parts in zip(*last, strict=True))

    def _check_input(self, input: Tensor, *, packed: bool = False) -> None:
        """Raise if the input's dimensions, dtype or features do not match the layer."""
        if input.ndim not in ({2} if packed else {2, 3}):
            raise (RuntimeError if packed else ValueError)(
                f"{self._get_name()}: Expected input to be {'2D' if packed else '2D or 3D'}, got "
                f"{input.ndim}D instead"
            )
        weight = self.weight_ih_l0
        if input.dtype != weight.dtype:
            raise ValueError(
                f"{self._get_name()}: input must have the type {weight.dtype}, got type "
                f"{input.dtype}. Convert it with .to()."
            )
        if input.shape[-1] != self.input_size:
            raise RuntimeError(
                f"{self._get_name()}: input.size(-1) must be equal to input_size. Expected "
                f"{self.input_size}, got {input.shape[-1]}"
            )

    def _first_state(
        self, x: Tensor, count: int, hx: tuple[Any, ...] | None, batched: bool
    ) -> tuple[Any, ...]:
        """The initial states with a batch axis: `hx`, or zeros if it is None."""
        sizes = [self.proj_size or self.hidden_size]
        if self.mode == "LSTM":
            sizes.append(self.hidden_size)
        lead = self.num_layers * (1 + self.bidirectional)
        if hx is None:
            return tuple(zeros(lead, count, size, dtype=x.dtype, device=x.device) for size in sizes)
        for place, (part, size) in enumerate(zip(hx, sizes, strict=True)):
            if part.ndim != (3 if batched else 2):
                raise RuntimeError(
                    f"For {'batched 3-D' if batched else 'unbatched 2-D'} input, hx should also "
                    f"be {3 if batched else 2}-D but got {part.ndim}-D tensor"
                )
            wanted = (lead, count, size) if batched else (lead, size)
            if part.shape != wanted:
                raise RuntimeError(
                    f"{self._get_name()}: Expected hidden[{place}] size {wanted}, got "
                    f"{tuple(part.shape)}"
                )
            if part.dtype != x.dtype:
                raise RuntimeError(
                    f"{self._get_name()}: hx must have the type {x.dtype}, got type {part.dtype}. "
                    f"Convert it with .to()."
                )
        if batched:
            return hx
        return tuple(reshape(part, (lead, 1, part.shape[1])) for part in hx)

    def extra_repr(self) -> str:
        """The sizes, and the options that differ from the defaults."""
        usual = {
            "proj_size": 0, "num_layers": 1, "bias": True, "batch_first": False, "dropout": 0,
            "bidirectional": False,
        }  # fmt: skip
        return ", ".join([f"{self.input_size}, {self.hidden_size}", *unusual(self, usual)])


def _over(
    mode: str, x: Tensor, state: tuple[Any, ...], weights: dict[str, Any], backwards: int
) -> tuple[Any, tuple[Any, ...]]:
    """Run a layer in one direction; return the outputs and the final state."""
    out, state = advance(mode, flip(x, (0,)) if backwards else x, state, weights)
    return (flip(out, (0,)) if backwards else out), state


def segments(batch_sizes: list[int]) -> list[tuple[int, int, int]]:
    """Consecutive steps with equal batch sizes: (first row, number of steps, batch size)."""
    found = []
    start = 0
    for rows, steps in groupby(batch_sizes):
        count = len(list(steps))
        found.append((start, count, rows))
        start += count * rows
    return found


def _over_packed(
    pieces: list[tuple[int, int, int]], mode: str, x: Tensor, state: tuple[Any, ...],
    weights: dict[str, Any], backwards: int,
) -> tuple[Any, tuple[Any, ...]]:  # fmt: skip
    """Run a layer in one direction over a packed sequence, one segment of equal batch size a time.

    Forwards, states of ended sequences are set aside. Backwards, states join as sequences begin.
    """
    outputs: list[Any] = []
    waiting: list[tuple[Any, ...]] = []
    if backwards:
        first, state = state, tuple(part[:0] for part in state)
    for start, steps, rows in reversed(pieces) if backwards else pieces:
        held = state[0].shape[0]
        if backwards:
            pairs = zip(state, first, strict=True)
            state = tuple(cat([part, begun[held:rows]]) for part, begun in pairs)
        elif rows < held:
            waiting.append(tuple(part[rows:] for part in state))
            state = tuple(part[:rows] for part in state)
        piece = reshape(x[start : start + steps * rows], (steps, rows, x.shape[1]))
        out, state = _over(mode, piece, state, weights, backwards)
        outputs.append(reshape(out, (steps * rows, out.shape[2])))
    if backwards:
        outputs.reverse()
    if waiting:
        state = tuple(cat(parts) for parts in zip(state, *reversed(waiting), strict=True))
    return cat(outputs), state


def _check_options(given: Mapping[str, Any]) -> None:
    """Raise if an option is invalid."""
    dropout, hidden_size = given["dropout"], given["hidden_size"]
    if not isinstance(dropout, (int, float)) or isinstance(dropout, bool) or not 0 <= dropout <= 1:
        raise ValueError(
            "dropout should be a number in range [0, 1] representing the probability of an element "
            "being zeroed"
        )
    if dropout > 0 and given["num_layers"] == 1:
        warn(
            f"dropout option adds dropout after all but last recurrent layer, so non-zero dropout "
            f"expects num_layers greater than 1, but got dropout={dropout} and num_layers=1"
        )
    for name in ("input_size", "hidden_size", "num_layers"):
        if not isinstance(given[name], int):
            raise TypeError(f"{name} should be of type int, got: {type(given[name]).__name__}")
        if given[name] <= 0:
            raise ValueError(f"{name} must be greater than zero, got {given[name]}")
    proj_size = given.get("proj_size", 0)
    if proj_size < 0:
        raise ValueError("proj_size should be a positive integer or zero to disable projections")
    if proj_size >= hidden_size:
        raise ValueError(
            f"proj_size has to be smaller than hidden_size, got {proj_size} and {hidden_size}"
        )
    for name in ("bias", "batch_first"):
        if not isinstance(given[name], bool):
            raise TypeError(f"{name} should be of type bool, got: {type(given[name]).__name__}")


class _OneState(RNNBase):
    """The base of layers whose state is one tensor."""

    def forward(  # type: ignore[override]
        self, input: Tensor | PackedSequence, hx: Tensor | None = None
    ) -> tuple[Any, Tensor]:
        """The states of the last layer for all steps, and the last states of all layers.

        Args:
            input: of shape (length, n, input_size), or as `batch_first` says, or without n; or a
                packed sequence, and so are the outputs then.
            hx: the initial states, of shape (layers * directions, n, hidden_size); zeros if
                None.
        """
        out, (last,) = self._run(input, None if hx is None else (hx,))
        return out, last


class RNN(_OneState):
    """Stacked Elman layers: `h' = tanh(x @ weight_ih.T + h @ weight_hh.T + biases)`.

    Args:
        input_size: the features of the input.
        hidden_size: the size of the state.
        nonlinearity: "tanh" or "relu".
        batch_first: inputs are (n, length, features) instead of (length, n, features).
        dropout: the probability of dropout between layers, in training.
        bidirectional: each layer also runs backwards over the sequence.
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1,
        nonlinearity: RecurrentActivation = "tanh", bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:  # fmt: skip
        check_nonlinearity(nonlinearity, ValueError)
        self._keep({**locals(), "mode": f"RNN_{nonlinearity.upper()}"})
        self.nonlinearity = nonlinearity


class GRU(_OneState):
    """Stacked layers of gated recurrent units, with a reset and an update gate.

    The arguments are those of `RNN`, without `nonlinearity`.
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: DeviceLike | None = None, dtype: DTypeLike | None = None,
    ) -> None:  # fmt: skip
        self._keep({**locals(), "mode": "GRU"})


class LSTM(RNNBase):
    """Stacked layers of long short-term memory cells.

    The arguments are those of `RNN` without `nonlinearity`, and `proj_size`: the size that states
    are projected to, less than `hidden_size`, or 0 for no projection.
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        proj_size: int = 0, device: DeviceLike | None = None, dtype: DTypeLike | None = None,
    ) -> None:  # fmt: skip
        self._keep({**locals(), "mode": "LSTM"})

    def forward(  # type: ignore[override]
        self, input: Tensor | PackedSequence, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Any, tuple[Tensor, Tensor]]:
        """The last layer's states for all steps, and all layers' final states and memories.

        The arguments are those of `RNN`, but `hx` is a pair. Its states have the size `proj_size`,
        if that is not 0.
        """
        out, (state, memory) = self._run(input, state_and_memory(self, hx))
        return out, (state, memory)
