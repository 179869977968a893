"""A program of a user who checks types strictly."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import asyncgrad as ag
from asyncgrad import Tensor, nn
from asyncgrad.utils.data import DataLoader, TensorDataset


class Classifier(nn.Module):
    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(inputs, 16)
        self.out = nn.Linear(16, classes)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.dropout(self.hidden(x).relu()))


@dataclass(frozen=True)
class Result:
    loss: float
    accuracy: float


async def train(model: Classifier, data: TensorDataset, epochs: int) -> Result:
    optimizer = ag.optim.AdamW(model.parameters(), lr=0.02)
    loss = ag.zeros(())
    for _ in range(epochs):
        async for x, y in DataLoader(data, batch_size=16, shuffle=True):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            async with asyncio.timeout(5):
                await loss.backward()
            optimizer.step()
    x, y = data.tensors
    with ag.no_grad():
        right: float = (model.eval()(x).argmax(dim=1) == y).float().mean().item()
    return Result(loss.item(), right)


async def slopes(model: Classifier, x: Tensor) -> list[Tensor]:
    """The gradient of each class's score by the inputs."""
    x = x.detach().requires_grad_()
    scores = model(x).sum(dim=0)
    found = await asyncio.gather(
        *[ag.grad(score, x, retain_graph=True) for score in scores.unbind()]
    )
    return [gradient for (gradient,) in found]


async def main() -> Result:
    ag.manual_seed(0)
    x = ag.randn(128, 4)
    data = TensorDataset(x, (x[:, 0] > x[:, 1]).long())
    model = Classifier(4, 2)
    result = await train(model, data, epochs=10)
    first, second = await slopes(model, x)
    assert first.shape == second.shape == x.shape
    return result


if __name__ == "__main__":
    print(asyncio.run(main()))
