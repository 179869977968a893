"""A picture of a model's graph, and a table of its layers."""

import sys

import asyncgrad as ag
from asyncgrad import nn

model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def draw(path):
    loss = model(ag.ones(3, 4)).logsumexp(dim=1).sum()
    picture = ag.autograd.graph.to_svg(loss, names=dict(model.named_parameters()))
    picture.save(path)
    return nn.summary(model, ag.ones(3, 4))


if __name__ == "__main__":
    print(draw(sys.argv[1]))
