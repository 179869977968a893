"""The classifier: weights that answer are never changed, only exchanged."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import anyio
import numpy as np

import asyncgrad as ag

PIXELS = 64
DIGITS = 10
#: The number of points between an empty image and the digit at which gradients are averaged.
STEPS = 24


def make_model(seed: int = 0) -> ag.nn.Sequential:
    """Three layers from the 8x8 pixels, between 0 and 1, to the digits' logits."""
    ag.manual_seed(seed)
    return ag.nn.Sequential(
        ag.nn.Linear(PIXELS, 128),
        ag.nn.ReLU(),
        ag.nn.LayerNorm(128),
        ag.nn.Linear(128, 64),
        ag.nn.ReLU(),
        ag.nn.Linear(64, DIGITS),
    )


_LAYERS = make_model()


@ag.compile
async def _slopes(weights: dict[str, ag.Tensor], x: ag.Tensor, digit: ag.Tensor) -> ag.Tensor:
    """How a digit's logits change with the pixels.

    Weights are arguments: so what is recorded with some serves all that are published later.
    """
    x = x.detach().requires_grad_()
    logits = ag.func.functional_call(_LAYERS, weights, (x,))
    (slopes,) = await ag.grad(logits.index_select(1, digit).sum(), x)
    return slopes


@dataclass(frozen=True)
class Published:
    """Weights that answer. Whoever holds one sees the same weights until the answer is complete."""

    model: ag.nn.Sequential
    #: The number of steps that led to the weights.
    step: int = 0
    #: The names of the last corrections that the weights have learnt.
    learnt: tuple[str, ...] = ()
    #: The names of the last corrections that were undone.
    undone: tuple[str, ...] = ()

    @classmethod
    def of(cls, model: ag.nn.Sequential, *facts: Any) -> Published:
        """A copy of a model that is being trained, and its other fields."""
        return cls(copy.deepcopy(model).eval().requires_grad_(False), *facts)

    @cached_property
    def _weights(self) -> dict[str, ag.Tensor]:
        return dict(self.model.named_parameters())

    @property
    def facts(self) -> dict[str, str]:
        """The metadata of the weights' file."""
        names = {"learnt": " ".join(self.learnt), "undone": " ".join(self.undone)}
        return {"step": str(self.step), **names}

    def probabilities(self, images: np.ndarray) -> np.ndarray:
        """The probability of each digit: float32 (n, 10)."""
        with ag.no_grad():
            logits = self.model(ag.from_numpy(images))
            return ag.softmax(logits, dim=-1).numpy()

    async def input_gradient(self, image: np.ndarray, digit: int) -> np.ndarray:
        """How the digit's logit changes with each pixel: float32 (64,)."""
        return (await _slopes(self._weights, ag.tensor(image[None]), ag.tensor([digit]))).numpy()[0]

    async def integrated_gradients(self, image: np.ndarray, digit: int) -> np.ndarray:
        """What each pixel adds to the digit's logit, against an empty image: float32 (64,).

        Source: Sundararajan, Taly and Yan, "Axiomatic Attribution for Deep Networks", 2017. All
        points are in one pass.
        """
        share = (np.arange(STEPS, dtype=np.float32) + 0.5) / STEPS
        points = ag.tensor(share[:, None] * image)
        gradients = await _slopes(self._weights, points, ag.tensor([digit]))
        return image * gradients.numpy().mean(axis=0)

    async def adapt(self, image: np.ndarray, steps: int = 6) -> np.ndarray:
        """The probabilities after the norm's scale and shift have adapted to the image.

        The entropy of what the model says of slightly shifted copies is made smaller, in a copy of
        two of the weights that is this request's alone.
        Source: Wang et al., "Tent: Fully Test-Time Adaptation by Entropy Minimization", 2021.
        """
        model = copy.deepcopy(self.model)
        norm = model[2]
        norm.requires_grad_(True)
        optimizer = ag.optim.SGD(norm.parameters(), lr=0.05)
        images = ag.from_numpy(shifts(image))
        for _ in range(steps):
            # A deadline takes effect here, even if the steps never suspend.
            await anyio.lowlevel.checkpoint()
            probabilities = ag.softmax(model(images), dim=-1).mean(dim=0)
            entropy = -(probabilities * ag.log(probabilities + 1e-9)).sum()
            optimizer.zero_grad()
            await entropy.backward()
            await optimizer.step_async()
        with ag.no_grad():
            return ag.softmax(model(images), dim=-1).mean(dim=0).numpy()


def shifts(image: np.ndarray) -> np.ndarray:
    """The image, and its copies moved by a pixel: float32 (5, 64)."""
    square = np.pad(image.reshape(8, 8), 1)
    corners = ((1, 1), (0, 1), (2, 1), (1, 0), (1, 2))
    return np.stack([square[y : y + 8, x : x + 8].reshape(-1) for y, x in corners])


def facts_of(path: Any) -> dict[str, str]:
    """The metadata of a file of weights."""
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        return file.metadata() or {}
