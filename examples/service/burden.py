"""Training that is heavy on purpose, so that its effect on requests can be seen."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from typing import Literal, Self

import asyncgrad as ag

#: The widths of the layers, and the rows of a batch: a backward pass takes tens of milliseconds.
WIDTHS, ROWS = (64, 1024, 1024, 10), 256
#: Seconds after which the burden ends by itself.
LONGEST = 30.0

Manner = Literal["awaited", "blocking"]


class Burden:
    """Passes of a model that nobody needs, awaited or blocking.

    An asynchronous context manager: at its end the passes end, too.
    """

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self.manner: Manner | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self, manner: Manner, seconds: float = LONGEST) -> None:
        """Start to train for so many seconds; earlier training stops."""
        await self.stop()
        self.manner = manner
        self._task = asyncio.create_task(self._train(manner, seconds), name="burden")

    async def stop(self) -> None:
        """Stop training."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._task = self.manner = None

    async def _train(self, manner: Manner, seconds: float) -> None:
        layers = [
            layer
            for inputs, outputs in itertools.pairwise(WIDTHS)
            for layer in (ag.nn.Linear(inputs, outputs), ag.nn.ReLU())
        ]
        model = ag.nn.Sequential(*layers[:-1])
        images = ag.rand(ROWS, WIDTHS[0])
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            model.zero_grad()
            if manner == "awaited":
                with ag.request(priority=-10):
                    loss = (await ag.offload(model, images)).square().mean()
                    await loss.backward()
            else:
                with ag.blocking():
                    model(images).square().mean().backward()
                # The loop gets a turn between two passes, and none within one.
                await asyncio.sleep(0)
        self.manner = None
