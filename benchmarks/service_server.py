"""The digits service, as one of the sides of the load test.

`python -m benchmarks.service_server SIDE WEIGHTS` prints its port when it serves. All sides are
examples/service itself: the same application, batcher, learner and server. They differ in what a
step of learning and a prediction are computed with, and where.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn

from examples.service.app import Settings, create_app
from examples.service.model import DIGITS, PIXELS
from examples.service.trainer import Trainer

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

#: The number of digits in a batch of the learner.
BATCH = 256


def torch_model() -> Any:
    """The service's model."""
    from torch import nn

    return nn.Sequential(
        nn.Linear(PIXELS, 128), nn.ReLU(), nn.LayerNorm(128),
        nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, DIGITS),
    )  # fmt: skip


@dataclass(frozen=True)
class TorchPublished:
    """Weights that answer."""

    model: Any
    step: int
    learnt: tuple[str, ...] = ()
    undone: tuple[str, ...] = ()

    def probabilities(self, images: np.ndarray) -> np.ndarray:
        """Of each digit: float32 (n, 10). It takes a tenth of a millisecond: on the loop."""
        import torch

        with torch.no_grad():
            return torch.softmax(self.model(torch.from_numpy(images)), dim=-1).numpy()


class TorchTrainer:
    """The same steps, with PyTorch.

    Args:
        run: awaits a blocking function: where it stands, or in a thread.
    """

    def __init__(self, run: Callable[..., Any]) -> None:
        import torch

        # One thread is the fastest for so small a model, and leaves a core to the loop.
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self._run = run
        self._model = torch_model()
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=2e-3)

    async def learn(self, images: np.ndarray, labels: np.ndarray) -> float:
        """One step; returns the loss."""
        return await self._run(self._step, images, labels)

    def _step(self, images: np.ndarray, labels: np.ndarray) -> float:
        import torch

        logits = self._model(torch.from_numpy(images))
        loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels))
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        return loss.item()

    async def state(self) -> Any:
        """A copy of the weights and of the optimiser's state."""
        parts = self._model.state_dict(), self._optimizer.state_dict()
        return await self._run(copy.deepcopy, parts)

    async def publish(self, step: int, *names: tuple[str, ...]) -> TorchPublished:
        """The weights as they are now."""
        return await self._run(self._copy, step, *names)

    def _copy(self, step: int, *names: tuple[str, ...]) -> TorchPublished:
        model = torch_model()
        model.load_state_dict(self._model.state_dict())
        return TorchPublished(model.eval().requires_grad_(False), step, *names)

    async def save(self, published: TorchPublished, path: Path) -> None:
        """Keep weights, as safely as the service does."""
        await self._run(self._save, published, path)

    def _save(self, published: TorchPublished, path: Path) -> None:
        from safetensors.numpy import save

        from examples.service import checkpoint

        state = {name: value.numpy() for name, value in published.model.state_dict().items()}
        checkpoint.replace(path, lambda part: part.write_bytes(save(state)))

    async def load(self, path: Path) -> None:
        """There is nothing to go on from: each run of the load test begins anew."""


async def inline(function: Callable[..., Any], *args: Any) -> Any:
    """Compute on the loop; let it turn once, as any learner that means well does."""
    result = function(*args)
    await asyncio.sleep(0)
    return result


#: The trainer of each side of the load test.
SIDES: dict[str, Callable[[], Any]] = {
    "asyncgrad": Trainer,
    "inline": lambda: TorchTrainer(inline),
    "to_thread": lambda: TorchTrainer(asyncio.to_thread),
}


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service_server")
    parser.add_argument("side", choices=SIDES)
    parser.add_argument("weights", type=Path)
    parser.add_argument("--learn", action="store_true")
    parser.add_argument("--batch", type=int, default=BATCH)
    args = parser.parse_args()
    settings = Settings(
        args.weights, first_steps=100, batch=args.batch, rehearse=args.learn, freeze=True
    )
    listening = socket.create_server(("127.0.0.1", 0), backlog=1_000)
    print(listening.getsockname()[1], flush=True)
    config = uvicorn.Config(
        create_app(settings, SIDES[args.side]()), loop="uvloop", log_level="warning"
    )
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
