"""Four networks that are written once for both libraries, with their data.

A multi-layer perceptron and a small residual network read handwritten digits, an LSTM and a
two-layer GPT predict the next character of a text.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from examples.digits import data

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_TEXT = Path(__file__).parents[1] / "examples" / "data" / "alice.txt"


@dataclass(frozen=True)
class Network:
    """One network; `library` is asyncgrad or torch wherever a function asks for it."""

    name: str
    #: `make(library)`: the module, which takes a batch of inputs.
    make: Callable[[Any], Any]
    #: `optimizer(library, parameters)`.
    optimizer: Callable[[Any, Any], Any]
    #: `batches(random)`: pairs of inputs and targets, for ever.
    batches: Callable[[np.random.Generator], Iterator[tuple[np.ndarray, np.ndarray]]]


class Training:
    """A network of one library, with its optimiser."""

    def __init__(self, network: Network, library: Any, dtype: str = "float32") -> None:
        """Make the network with weights of its own."""
        self.library = library
        self.model = network.make(library).to(getattr(library, dtype))
        self.optimizer = network.optimizer(library, self.model.parameters())
        self.dtype = dtype

    def take_weights(self, other: Training) -> None:
        """Start from another library's weights."""
        made = self.library.from_numpy
        state = other.model.state_dict()
        self.model.load_state_dict({name: made(t.numpy().copy()) for name, t in state.items()})

    def tensors(self, batch: tuple[np.ndarray, np.ndarray]) -> tuple[Any, Any]:
        """A batch as tensors; images in the network's dtype."""
        inputs, targets = batch
        if inputs.dtype.kind == "f":
            inputs = inputs.astype(self.dtype)
        return self.library.from_numpy(inputs), self.library.from_numpy(targets)

    def step(self, inputs: Any, targets: Any) -> Any:
        """One training step; the loss before it."""
        self.optimizer.zero_grad()
        loss = self.loss(inputs, targets)
        loss.backward()
        self.optimizer.step()
        return loss

    async def awaited_step(self, inputs: Any, targets: Any) -> None:
        """One of asyncgrad's steps that leaves the loop free."""
        self.optimizer.zero_grad()
        loss = await self.library.offload(self.loss, inputs, targets)
        await loss.backward()
        self.optimizer.step()

    def loss(self, inputs: Any, targets: Any) -> Any:
        """The forward pass."""
        scores = self.model(inputs)
        return self.library.nn.functional.cross_entropy(
            scores.reshape(-1, scores.shape[-1]), targets.reshape(-1)
        )


# -- digits ---------------------------------------------------------------------------------------


def _images(size: int, *shape: int) -> Callable[[np.random.Generator], Iterator[Any]]:
    """Batches of digits, each image of a shape."""

    def batches(random: np.random.Generator) -> Iterator[Any]:
        digits = data.load()
        while True:
            places = random.integers(0, len(digits.train_labels), size)
            images = digits.train_images[places].reshape(size, *shape)
            yield images, digits.train_labels[places]

    return batches


def perceptron(width: int) -> Callable[[Any], Any]:
    """Two hidden layers."""

    def make(library: Any) -> Any:
        nn = library.nn
        return nn.Sequential(
            nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, 10),
        )  # fmt: skip

    return make


def residual(channels: int) -> Callable[[Any], Any]:
    """Two residual blocks, the second at half the resolution with twice the channels."""

    def make(library: Any) -> Any:
        nn = library.nn

        class Block(nn.Module):
            def __init__(self, before: int, after: int, stride: int) -> None:
                super().__init__()
                self.conv1 = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
                self.bn1 = nn.BatchNorm2d(after)
                self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
                self.bn2 = nn.BatchNorm2d(after)
                self.relu = nn.ReLU()
                self.shortcut = nn.Identity()
                if stride != 1 or before != after:
                    self.shortcut = nn.Sequential(
                        nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
                    )

            def forward(self, x: Any) -> Any:
                out = self.relu(self.bn1(self.conv1(x)))
                return self.relu(self.bn2(self.conv2(out)) + self.shortcut(x))

        return nn.Sequential(
            nn.Conv2d(1, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            Block(channels, channels, 1),
            Block(channels, 2 * channels, 2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(2 * channels, 10),
        )

    return make


# -- text -----------------------------------------------------------------------------------------


def _characters() -> tuple[np.ndarray, int]:
    """The text as numbers, and how many different ones there are."""
    text = _TEXT.read_text(encoding="utf-8")
    known = sorted(set(text))
    return np.array([known.index(character) for character in text]), len(known)


def _passages(size: int, length: int) -> Callable[[np.random.Generator], Iterator[Any]]:
    """Batches of passages, each with the same passage one character on."""

    def batches(random: np.random.Generator) -> Iterator[Any]:
        text, _ = _characters()
        while True:
            starts = random.integers(0, len(text) - length, size)
            places = starts[:, None] + np.arange(length)
            yield text[places], text[places + 1]

    return batches


def recurrent(width: int) -> Callable[[Any], Any]:
    """Two layers of LSTM."""

    def make(library: Any) -> Any:
        nn = library.nn
        _, vocabulary = _characters()

        class Reader(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.embedding = nn.Embedding(vocabulary, width // 2)
                self.lstm = nn.LSTM(width // 2, width, num_layers=2, batch_first=True)
                self.head = nn.Linear(width, vocabulary)

            def forward(self, x: Any) -> Any:
                out, _ = self.lstm(self.embedding(x))
                return self.head(out)

        return Reader()

    return make


def transformer(width: int, heads: int, length: int) -> Callable[[Any], Any]:
    """A GPT of two layers."""

    def make(library: Any) -> Any:
        nn = library.nn
        _, vocabulary = _characters()

        class GPT(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.tokens = nn.Embedding(vocabulary, width)
                self.places = nn.Embedding(length, width)
                self.layers = nn.ModuleList([
                    nn.TransformerEncoderLayer(
                        width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
                    )
                    for _ in range(2)
                ])  # fmt: skip
                self.norm = nn.LayerNorm(width)
                self.head = nn.Linear(width, vocabulary, bias=False)
                mask = nn.Transformer.generate_square_subsequent_mask(length)
                self.register_buffer("mask", mask, persistent=False)
                self.register_buffer("range", library.arange(length), persistent=False)

            def forward(self, x: Any) -> Any:
                h = self.tokens(x) + self.places(self.range)
                for layer in self.layers:
                    h = layer(h, src_mask=self.mask, is_causal=True)
                return self.head(self.norm(h))

        return GPT()

    return make


def networks(*, small: bool = False) -> tuple[Network, ...]:
    """All four; small ones for tests."""
    batch, length = (8, 12) if small else (32, 64)
    return (
        Network(
            "MLP",
            perceptron(32 if small else 256),
            lambda library, p: library.optim.SGD(p, lr=0.1, momentum=0.9),
            _images(16 if small else 128, 64),
        ),
        Network(
            "ResNet",
            residual(4 if small else 16),
            lambda library, p: library.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-4),
            _images(16 if small else 128, 1, 8, 8),
        ),
        Network(
            "LSTM",
            recurrent(16 if small else 128),
            lambda library, p: library.optim.Adam(p, lr=5e-3),
            _passages(batch, length),
        ),
        Network(
            "GPT",
            transformer(16 if small else 128, 4, length),
            lambda library, p: library.optim.AdamW(p, lr=1e-3),
            _passages(batch, length),
        ),
    )
