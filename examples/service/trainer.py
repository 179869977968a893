"""The weights that learn: one step of Adam at a time, beside the requests."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import asyncgrad as ag
from examples.service import checkpoint
from examples.service.model import Published, make_model

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

#: Less urgent than any request.
BACKGROUND = -10


class Trainer:
    """A model and its optimiser. The learner calls one method at a time."""

    def __init__(self) -> None:
        self._model = make_model()
        self._optimizer = ag.optim.Adam(self._model.parameters(), lr=2e-3)

    async def learn(self, images: np.ndarray, labels: np.ndarray) -> float:
        """One step on images, float32 (n, 64), and what they are, int64 (n,); returns the loss."""
        with ag.request(priority=BACKGROUND):
            await ag.cooperate()
            logits = self._model(ag.from_numpy(images))
            loss = ag.nn.functional.cross_entropy(logits, ag.from_numpy(labels))
            await ag.cooperate()
            self._optimizer.zero_grad()
            await loss.backward()
            await ag.cooperate()
            await self._optimizer.step_async()
        return loss.item()

    async def publish(self, step: int, *names: tuple[str, ...]) -> Published:
        """The weights as they are now, for answers; the names are of what is learnt and undone."""
        return await ag.offload(Published.of, self._model, step, *names)

    async def state(self) -> Any:
        """What `restore` returns to: a copy of the weights and of the optimiser's state."""
        parts = self._model.state_dict(), self._optimizer.state_dict()
        return await ag.offload(copy.deepcopy, parts)

    async def restore(self, state: Any) -> None:
        """Return to a state."""
        weights, optimizer = await ag.offload(copy.deepcopy, state)
        self._model.load_state_dict(weights)
        self._optimizer.load_state_dict(optimizer)

    async def save(self, published: Published, path: Path) -> None:
        """Write weights to a file."""
        await ag.offload(checkpoint.save, published, path)

    async def load(self, path: Path) -> Published | None:
        """Go on from the weights that were kept; None if there are none."""
        return await ag.offload(checkpoint.load, path, self._model)

    def kept_fields(self, path: Path) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
        """The step of the kept weights, and what they have learnt and undone. It blocks."""
        return checkpoint.fields_of(path)
