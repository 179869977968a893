"""Weights of a convolutional network from files that PyTorch and others wrote."""

import asyncio
import sys

import asyncgrad as ag
from asyncgrad import nn
from asyncgrad.serialization import load_safetensors


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.head = nn.Linear(4 * 4 * 4, 10)

    def forward(self, x):
        return self.head(self.features(x).flatten(1))


def load(path):
    """The network with the weights of a `.pt` or `.safetensors` file."""
    model = Net()
    read = load_safetensors if str(path).endswith(".safetensors") else ag.load
    weights = read(path)
    model.load_state_dict(weights.get("model", weights))
    return model.eval()


async def main(path):
    model = await ag.offload(load, path)
    with ag.no_grad():
        return model(ag.ones(1, 1, 8, 8))[0].tolist()


if __name__ == "__main__":
    print(asyncio.run(main(sys.argv[1])))
