"""The base that all share, and a tenant's adapters on it."""

from __future__ import annotations

from typing import Any

import numpy as np

import asyncgrad as ag

INPUTS, HIDDEN, CLASSES = 64, 256, 10
RANK = 8


class Base:
    """Frozen weights: a network of random features, the same for everybody."""

    def __init__(self, seed: int = 0) -> None:
        # A generator of its own: the weights do not depend on what else draws numbers.
        rng = np.random.default_rng(seed)
        self.layers = ag.nn.ModuleList([
            ag.nn.Linear(INPUTS, HIDDEN), ag.nn.Linear(HIDDEN, HIDDEN),
            ag.nn.Linear(HIDDEN, CLASSES),
        ]).requires_grad_(False)  # fmt: skip
        for layer in self.layers:
            bound = layer.in_features**-0.5
            for values in layer.parameters():
                values.copy_(ag.from_numpy(rng.uniform(-bound, bound, values.shape)))

    def parameters(self) -> list[Any]:
        """All weights of the base."""
        return list(self.layers.parameters())


class Adapter(ag.nn.Module):
    """What a tenant trains: to each layer's weights, the product of two narrow matrices is added.

    Source: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021.
    """

    def __init__(self, base: Base, seed: int) -> None:
        super().__init__()
        rng = np.random.default_rng(seed)
        self._base = [base]  # in a list, so that it is no submodule: its weights are not trained
        self.down, self.up = ag.nn.ParameterList(), ag.nn.ParameterList()
        for layer in base.layers:
            narrow = rng.normal(0, layer.in_features**-0.5, (RANK, layer.in_features))
            self.down.append(ag.nn.Parameter(ag.tensor(narrow.astype(np.float32))))
            self.up.append(ag.nn.Parameter(ag.zeros(layer.out_features, RANK)))

    def forward(self, x: Any) -> Any:
        """The logits: (n, CLASSES) of (n, INPUTS)."""
        layers = self._base[0].layers
        for place, (layer, down, up) in enumerate(zip(layers, self.down, self.up, strict=True)):
            x = layer(x) + (x @ down.T) @ up.T
            if place < len(layers) - 1:
                x = ag.relu(x)
        return x
