"""A tenant's notebook: fine-tune on the digits, from a few lines of asyncio.

Run `python -m examples.training_api.script TOKEN`, with the service running.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

import httpx
import numpy as np

from examples.digits.data import load
from examples.training_api.client import TrainingClient, TrainingError


async def train(token: str, url: str = "http://127.0.0.1:8001") -> float:
    """Train for six epochs; returns the accuracy on held-out digits."""
    digits = load()
    rng = np.random.default_rng(0)
    async with TrainingClient(url, token) as client:
        await client.reset()
        for epoch in range(6):
            order = rng.permutation(len(digits.train_labels))
            losses = []
            for start in range(0, len(order), 128):
                chosen = order[start : start + 128]
                # Both halves of a batch are sent at once: gradients add up until the step.
                halves = await asyncio.gather(*(
                    client.forward_backward(digits.train_images[half], digits.train_labels[half])
                    for half in np.array_split(chosen, 2)
                ))  # fmt: skip
                await client.optim_step(lr=1e-2)
                losses += [half["loss"] for half in halves]
            print(f"epoch {epoch}: loss {np.mean(losses):.3f}")
        classes = await client.predict(digits.test_images)
        accuracy = float(np.mean(np.array(classes) == digits.test_labels))
        print(f"test accuracy {accuracy:.1%}")
        return accuracy


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m examples.training_api.script")
    parser.add_argument("token", help="what the service has printed, or its operator has given")
    parser.add_argument("url", nargs="?", default="http://127.0.0.1:8001")
    args = parser.parse_args()
    try:
        asyncio.run(train(args.token, args.url))
    except httpx.TransportError as error:
        print(f"no service answers at {args.url} ({error}).", file=sys.stderr)
        print("Start it in another terminal: make training-api", file=sys.stderr)
        return 1
    except TrainingError as error:
        print(f"the service refuses: {error}", file=sys.stderr)
        if error.status == 401:
            print("It prints the token that it takes when it starts.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
