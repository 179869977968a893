"""Values drawn at random: they do not follow what they were drawn by, so gradients are zero.

What is drawn is handed in, as an attribute: a table has no generator.
"""

from __future__ import annotations

from typing import Any

from asyncgrad.ops.entry import operation


def _drawn(xp: Any, x: Any, values: Any) -> Any:
    return values


#: Each by PyTorch's name of its node.
_OF_ONE = {
    "bernoulli": "BernoulliBackward0",
    "poisson": "PoissonBackward0",
    "normal_of_mean": "NormalBackward1",
    "normal_of_std": "NormalBackward2",
}

ENTRIES = (
    *(
        operation(
            name,
            _drawn,
            "x",
            "values",
            pulls={"x": lambda F, g: F.zeros_of(g)},
            pushes={"x": lambda F, t: F.zeros_of(t)},
            node=node,
            fresh=True,
        )
        for name, node in _OF_ONE.items()
    ),
    operation(
        "normal",
        lambda xp, x, y, values: values,
        "x y",
        "values",
        pulls={"x": lambda F, g: F.zeros_of(g), "y": lambda F, g: F.zeros_of(g)},
        pushes={"x": lambda F, t: F.zeros_of(t), "y": lambda F, t: F.zeros_of(t)},
        broadcasts=True,
        node="NormalBackward3",
    ),
    operation(
        "binomial",
        lambda xp, x, y, values: values,
        "x y",
        "values",
        pulls={"x": lambda F, g: F.zeros_of(g), "y": lambda F, g: F.zeros_of(g)},
        pushes={"x": lambda F, t: F.zeros_of(t), "y": lambda F, t: F.zeros_of(t)},
        broadcasts=True,
    ),
)
