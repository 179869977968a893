"""The training: what a PyTorch user would write, with some awaits.

None of them holds the event loop: the forward pass and the optimiser's step are offloaded to a
thread, and the backward pass is awaited.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from examples.digits.data import shifted

if TYPE_CHECKING:
    from examples.digits.data import Digits
    from examples.digits.variants import Variant


class Training:
    """Trains a model step by step, with the whole training set as the batch."""

    def __init__(
        self, variant: Variant, model: Any, digits: Digits, learning_rate: float, seed: int
    ) -> None:
        library = variant.library
        self._variant, self._model, self._digits = variant, model, digits
        self._labels = library.from_numpy(digits.train_labels)
        self._optimizer = library.optim.Adam(model.parameters(), lr=learning_rate)
        self._rng = np.random.default_rng(seed)
        self.losses: list[float] = []
        self.backward_seconds: list[float] = []

    def _forward(self) -> Any:
        library = self._variant.library
        images = library.from_numpy(shifted(self._digits.train_images, self._rng))
        return library.nn.functional.cross_entropy(self._model(images), self._labels)

    async def step(self) -> None:
        """Make one step of gradient descent."""
        loss = await self._variant.offload(self._forward)
        self._optimizer.zero_grad()
        started = time.perf_counter()
        await self._variant.backward(loss)  # with asyncgrad: await loss.backward()
        self.backward_seconds.append(time.perf_counter() - started)
        await self._variant.offload(self._optimizer.step)
        self.losses.append(loss.item())

    async def accuracy(self) -> float:
        """The fraction of the held-out digits that the model gets right."""
        library, digits = self._variant.library, self._digits

        def evaluate() -> float:
            with library.no_grad():
                guesses = self._model(library.from_numpy(digits.test_images)).argmax(1)
            return float((guesses.numpy() == digits.test_labels).mean())

        return await self._variant.offload(evaluate)
