"""A tenant's adapter and optimiser, in the process that computes."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncgrad as ag
from examples.training_api.model import Adapter, Base


class Trainer(ag.nn.Module):
    """An adapter with its optimiser: it gives the loss of a batch, and how many rows were right."""

    def __init__(self, base: Base, seed: int, state: Any = None) -> None:
        super().__init__()
        self.adapter = Adapter(base, seed)
        self.optimizer = ag.optim.Adam(self.adapter.parameters(), lr=1e-2)
        if state is not None:
            self.adapter.load_state_dict(state["adapter"])
            self.optimizer.load_state_dict(state["optimizer"])
            for parameter, gradient in zip(
                self.adapter.parameters(), state["gradients"], strict=True
            ):
                parameter.grad = gradient

    def state(self) -> dict[str, Any]:
        """The state from which another trainer can go on."""
        return {
            "adapter": self.adapter.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "gradients": [parameter.grad for parameter in self.adapter.parameters()],
        }

    def forward(self, inputs: Any, labels: Any) -> tuple[Any, int]:
        """The mean loss of a batch, from which a pass can start, and how many rows were right."""
        logits = self.adapter(inputs)
        right = (logits.detach().argmax(dim=-1) == labels).sum().item()
        return ag.nn.functional.cross_entropy(logits, labels), right

    async def step(self, lr: float) -> None:
        """Take a step by the accumulated gradients, and clear them."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        await self.optimizer.step_async()
        self.optimizer.zero_grad()

    async def predict(self, inputs: Any) -> list[int]:
        """The likeliest classes."""
        with ag.no_grad():
            logits = await ag.offload(self.adapter, inputs)
        return logits.argmax(dim=-1).tolist()


async def ended(running: ag.BackwardFuture[None]) -> None:
    """Wait for a pass. One that is cancelled too late has succeeded, and this does not raise."""
    try:
        await running
    except asyncio.CancelledError:
        if not running.committed():
            raise


class Training:
    """A tenant's training in this process."""

    def __init__(self, base: Base, seed: int) -> None:
        self._base, self._seed = base, seed
        self.reset()

    def reset(self) -> None:
        """Begin anew with an adapter that changes nothing."""
        self.trainer = Trainer(self._base, self._seed)

    async def forward_backward(self, inputs: Any, labels: Any) -> tuple[float, int]:
        """Add a batch's gradients; all or nothing: cancelled, it leaves no part of them."""
        loss, right = await ag.offload(self.trainer, inputs, labels)
        await ended(loss.backward())
        return loss.item(), right

    async def step(self, lr: float) -> None:
        """Take a step."""
        await self.trainer.step(lr)

    async def predict(self, inputs: Any) -> list[int]:
        """The likeliest classes."""
        return await self.trainer.predict(inputs)
