"""Training with a loader and a bar of progress; the best weights are kept."""

import asyncio
import sys

from tqdm import tqdm

import asyncgrad as ag
from asyncgrad import nn
from asyncgrad.nn import functional as F
from asyncgrad.utils.data import DataLoader, Dataset, random_split


class Waves(Dataset):
    """Sines of two frequencies, and which it is."""

    def __init__(self, count):
        self.phases = ag.rand(count) * 6.28

    def __len__(self):
        return len(self.phases)

    def __getitem__(self, index):
        fast = index % 2
        times = ag.arange(16) / 16 * 6.28
        return ag.sin((1 + 2 * fast) * times + self.phases[index]), fast


async def train(epochs=4, file=sys.stderr):
    ag.manual_seed(0)
    training, validation = random_split(Waves(400), [0.75, 0.25])
    loader = DataLoader(training, batch_size=20, shuffle=True)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 2))
    optimizer = ag.optim.Adam(model.parameters(), lr=0.01)
    schedule = ag.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    best = (0.0, None)
    for epoch in range(epochs):
        model.train()
        with tqdm(total=len(loader), desc=f"epoch {epoch}", file=file) as bar:
            async for x, y in loader:
                loss = F.cross_entropy(model(x), y)
                optimizer.zero_grad()
                await loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                bar.set_postfix(loss=loss.item(), refresh=False)
                bar.update()
        schedule.step()
        right = await accuracy(model, validation)
        if right >= best[0]:
            best = right, {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(best[1])
    return model, best[0], await accuracy(model, validation)


async def accuracy(model, dataset):
    model.eval()
    with ag.no_grad():
        right = [
            (model(x).argmax(dim=1) == y).sum().item()
            async for x, y in DataLoader(dataset, batch_size=50)
        ]
    return sum(right) / len(dataset)


if __name__ == "__main__":
    print(asyncio.run(train())[1:])
