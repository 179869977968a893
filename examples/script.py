"""A training script as a PyTorch user writes it: no event loop, no await.

Shows: the same program in either library. With `import torch as ag` in place of the import below
it runs on PyTorch and prints the same losses. Where no event loop runs, `loss.backward()` has done
its work when it returns.
Leaves out: asyncio. On a running loop write `await loss.backward()`, or, in a function that can't
await, `asyncgrad.sync.backward(loss)`.
Run: python examples/script.py
"""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

import asyncgrad as ag

# The data: 1,797 images of 8x8 pixels and their digits, a quarter of them held out for the test.
with gzip.open(Path(__file__).parent / "data" / "digits.csv.gz", "rt") as file:
    table = np.loadtxt(file, delimiter=",", dtype=np.int64)
rng = np.random.default_rng(0)
rng.shuffle(table)
images = ag.from_numpy((table[:, :64] / 16).astype(np.float32))
labels = ag.from_numpy(table[:, 64].copy())
train, test = slice(0, 1347), slice(1347, 1797)

# The model. Its first weights are NumPy's, to be the same whatever the library.
model = ag.nn.Sequential(ag.nn.Linear(64, 128), ag.nn.Tanh(), ag.nn.Linear(128, 10))
model.load_state_dict(
    {
        name: ag.from_numpy(rng.normal(0, 0.1, tuple(weight.shape)).astype(np.float32))
        for name, weight in model.state_dict().items()
    }
)

# The training.
optimizer = ag.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for epoch in range(10):
    total = 0.0
    for start in range(0, 1347, 64):
        batch = slice(start, min(start + 64, 1347))
        loss = ag.nn.functional.cross_entropy(model(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch}: mean loss {total / 22:.5f}")

# The test.
with ag.no_grad():
    guesses = model(images[test]).argmax(1)
right = int((guesses.numpy() == labels[test].numpy()).sum())
print(f"accuracy on held-out digits: {right / 450:.2%}")
