"""Recurrent cells, and how they run over a sequence."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from asyncgrad.choices import RecurrentActivation, words
from asyncgrad.creation import zeros
from asyncgrad.nn import functional as F
from asyncgrad.nn import init
from asyncgrad.nn.function_module import FunctionModule, unusual
from asyncgrad.nn.module import Module
from asyncgrad.ops.api.shape import clone, reshape, stack
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.types import DeviceLike, DTypeLike, Tensor

#: The number of gates of each kind of cell.
GATES = {"RNN_TANH": 1, "RNN_RELU": 1, "LSTM": 4, "GRU": 3}


def advance(mode: str, x: Tensor, state: tuple[Any, ...], weights: dict[str, Any]) -> Any:
    """Run a cell over a sequence; return the states after all steps, and the final state's tensors.

    Args:
        mode: the kind of cell.
        x: of shape (length, n, input_size).
        state: the initial state's tensors, of shape (n, size).
        weights: by name: `weight_ih`, `weight_hh`, and if present `bias_ih`, `bias_hh`,
            `weight_hr`.
    """
    w, bias, second = weights["weight_hh"], weights.get("bias_ih"), weights.get("bias_hh")
    h = state[0]
    if mode == "GRU":
        z = F.linear(x, weights["weight_ih"], bias)
        out = R.gru(z, h, w, _no_bias(w) if second is None else second, [])
        return out, (out[-1],)
    if mode != "LSTM":
        z = F.linear(x, weights["weight_ih"], None if bias is None else bias + second)
        out = R.rnn_tanh(z, h, w) if mode == "RNN_TANH" else R.rnn_relu(z, h, w)
        return out, (out[-1],)
    c = state[1]
    rest = (weights["weight_ih"], w, _no_bias(w) if bias is None else bias + second)
    projection = weights.get("weight_hr")
    if projection is None:
        both = R.lstm(x, h, c, *rest, [])
        return both[:-1], (both[-2], both[-1])
    states = []
    for t in range(x.shape[0]):
        h, c = R.lstm(x[t : t + 1], h, c, *rest, [])
        h = F.linear(h, projection)
        states.append(h)
    return stack(states), (h, c)


def _no_bias(w: Tensor) -> Any:
    return zeros(len(w), dtype=w.dtype, device=w.device)


def reset(module: Module, hidden_size: int) -> None:
    """Redraw all parameters, uniform in +-1/sqrt(hidden_size)."""
    bound = 1 / math.sqrt(hidden_size) if hidden_size > 0 else 0
    for parameter in module.parameters():
        init.uniform_(parameter, -bound, bound)


def check_nonlinearity(nonlinearity: RecurrentActivation, error: type[Exception]) -> None:
    """Raise for an unknown nonlinearity; in PyTorch, layers and cells raise different classes."""
    if nonlinearity not in words(RecurrentActivation):
        raise error(f"Unknown nonlinearity {nonlinearity!r}. Select from 'tanh' or 'relu'.")


def state_and_memory(module: Module, hx: Iterable[Any] | None) -> tuple[Any, ...] | None:
    """Those that an LSTM was called with; raises PyTorch's RuntimeError unless there are two."""
    given = None if hx is None else tuple(hx)
    if given is not None and len(given) != 2:
        raise RuntimeError(
            f"{module._get_name()} expects two hidden states, as a tuple (hx, cx), but got "
            f"{len(given)}"
        )
    return given


class RNNCellBase(FunctionModule, shown=()):
    """One step of a recurrent layer."""

    #: One of `GATES`.
    _mode: str

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True,
        device: DeviceLike | None = None, dtype: DTypeLike | None = None,
    ) -> None:  # fmt: skip
        self._keep(locals())
        self.bias = bias
        width = GATES[self._mode] * hidden_size
        added = (width,) if bias else None
        self._add_parameters(
            {
                "weight_ih": (width, input_size), "weight_hh": (width, hidden_size),
                "bias_ih": added, "bias_hh": added,
            },
            device, dtype,
        )  # fmt: skip
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Redraw the parameters, uniform in +-1/sqrt(hidden_size)."""
        reset(self, self.hidden_size)

    def _step(self, input: Tensor, hx: tuple[Any, ...] | None) -> tuple[Any, ...]:
        """The state's tensors after one step."""
        name = self._get_name()
        if input.ndim not in {1, 2}:
            raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.ndim}D instead")
        batched = input.ndim == 2
        if input.shape[-1] != self.input_size:
            raise RuntimeError(
                f"{name}: input has inconsistent input_size: got {input.shape[-1]}, expected "
                f"{self.input_size}"
            )
        x = reshape(input, (1, *((1,) * (not batched)), *input.shape))
        if hx is None:
            count = 2 if self._mode == "LSTM" else 1
            hx = (zeros(x.shape[1], self.hidden_size, dtype=x.dtype, device=x.device),) * count
        else:
            for place, part in enumerate(hx):
                if part.ndim not in {1, 2}:
                    raise ValueError(
                        f"{name}: Expected hx[{place}] to be 1D or 2D, got {part.ndim}D instead"
                    )
            hx = tuple(part if batched else reshape(part, (1, *part.shape)) for part in hx)
        for place, part in enumerate(hx):
            if part.shape != (x.shape[1], self.hidden_size):
                raise RuntimeError(
                    f"{name}: Expected hx[{place}] size {(x.shape[1], self.hidden_size)}, got "
                    f"{part.shape}"
                )
            if part.dtype != x.dtype or self.weight_hh.dtype != x.dtype:
                raise RuntimeError(
                    f"{name}: expected input, hx and weights to have the same dtype, but got "
                    f"{x.dtype}, {part.dtype} and {self.weight_hh.dtype}. Convert them with .to()."
                )
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        weights = {key: getattr(self, key) for key in names}
        _, last = advance(self._mode, x, hx, weights)
        return tuple(part if batched else part[0] for part in last)

    def extra_repr(self) -> str:
        """The sizes, and the options that differ from the defaults."""
        usual = {"bias": True, "nonlinearity": "tanh"}
        return ", ".join([f"{self.input_size}, {self.hidden_size}", *unusual(self, usual)])


class _OneStateCell(RNNCellBase):
    """The base of cells whose state is one tensor."""

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """The state after an input of shape (n, input_size), or without n; `hx` is that before."""
        state: Tensor = self._step(input, None if hx is None else (hx,))[0]
        return state


class RNNCell(_OneStateCell):
    """An Elman cell: `h' = tanh(x @ weight_ih.T + h @ weight_hh.T + biases)`.

    Args:
        input_size: the features of the input.
        hidden_size: the size of the state.
        nonlinearity: "tanh" or "relu".
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True,
        nonlinearity: RecurrentActivation = "tanh", device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:  # fmt: skip
        check_nonlinearity(nonlinearity, RuntimeError)
        self._mode = f"RNN_{nonlinearity.upper()}"
        super().__init__(input_size, hidden_size, bias, device, dtype)
        self.nonlinearity = nonlinearity


class GRUCell(_OneStateCell, mode="GRU"):
    """A gated recurrent unit. The arguments are those of `RNNCell`, without `nonlinearity`."""


class LSTMCell(RNNCellBase, mode="LSTM"):
    """An LSTM cell. The arguments are those of `RNNCell`, without `nonlinearity`."""

    def forward(  # type: ignore[override]
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """State and memory after an input of shape (n, input_size), or without n."""
        state, memory = self._step(input, state_and_memory(self, hx))
        # Both are parts of one tensor. What changes one in place must not concern the other.
        return clone(state), clone(memory)
