"""The graphs that are timed, written once for both libraries.

Each builder takes the library as `lib` (`torch` or `asyncgrad`), whose names are the same, and
NumPy arrays made once, so that both sides compute the same thing from the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

if TYPE_CHECKING:
    from types import ModuleType

#: The elementwise operations of a chain, in turn.
MIX = ("mul", "tanh", "add", "neg")


def leaf(lib: ModuleType, array: np.ndarray) -> Any:
    """A tensor that wants a gradient, over a copy of the array."""
    return lib.from_numpy(array.copy()).requires_grad_()


@dataclass(frozen=True)
class Chain:
    """Elementwise operations one after another on 16 float64, as of either library."""

    lib: ModuleType
    #: The second operand of mul and add: tensors that want no gradient.
    factor: Any
    term: Any
    start: np.ndarray

    @classmethod
    def of(cls, lib: ModuleType) -> Self:
        """The chain's constants, as tensors of the library."""
        factor = np.linspace(0.99, 1.01, 16)
        term = np.linspace(-0.1, 0.1, 16)
        return cls(lib, lib.from_numpy(factor), lib.from_numpy(term), np.linspace(-0.9, 1.2, 16))

    def leaf(self) -> Any:
        """A fresh leaf at the beginning of a chain."""
        return leaf(self.lib, self.start)

    def forward(self, x: Any, nodes: int, kind: str = "mix") -> Any:
        """Apply `nodes` operations; the loops hold nothing but the operations."""
        factor, term, tanh = self.factor, self.term, self.lib.tanh
        if kind == "mix":
            for _ in range(nodes // 4):
                x = -(tanh(x * factor) + term)
        elif kind == "mul":
            for _ in range(nodes):
                x = x * factor
        elif kind == "tanh":
            for _ in range(nodes):
                x = tanh(x)
        elif kind == "add":
            for _ in range(nodes):
                x = x + term
        elif kind == "neg":
            for _ in range(nodes):
                x = -x
        else:
            raise ValueError(f"Chain.forward: kind is {kind!r}. Use 'mix' or one of {MIX}.")
        return x

    def loss(self, x: Any, nodes: int, kind: str = "mix") -> Any:
        """A scalar at the end of a chain; the sum is the last of `nodes + 1` operations."""
        return self.forward(x, nodes, kind).sum()


@dataclass(frozen=True)
class Layers:
    """Several layers `tanh(x @ W)` in float32, without bias, as of either library."""

    lib: ModuleType
    x: Any
    weights: list[Any]

    @classmethod
    def of(cls, lib: ModuleType, batch: int, width: int, depth: int, seed: int = 0) -> Self:
        """Weights that keep the activations' scale; the same for both libraries."""
        draw = np.random.default_rng(seed).standard_normal
        x = draw((batch, width)).astype(np.float32)
        scale = 1.0 / np.sqrt(width)
        weights = [(draw((width, width)) * scale).astype(np.float32) for _ in range(depth)]
        return cls(lib, lib.from_numpy(x), [leaf(lib, weight) for weight in weights])

    def loss(self) -> Any:
        """The forward pass, summed to a scalar."""
        h, tanh = self.x, self.lib.tanh
        for weight in self.weights:
            h = tanh(h @ weight)
        return h.sum()

    def forget(self) -> None:
        """Drop the gradients of the last pass, as `zero_grad` does."""
        for weight in self.weights:
            weight.grad = None

    def gradients(self) -> list[np.ndarray]:
        """The gradients of the last pass."""
        return [weight.grad.numpy() for weight in self.weights]
