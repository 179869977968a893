"""Values drawn at random: they do not follow what they were drawn by, so gradients are zero.

Those of the gamma distribution do, as far as keeps the probability of what is below them. What is
drawn is handed in, as an attribute: a table has no generator.
"""

from __future__ import annotations

import sys
from typing import Any

from asyncgrad.devices.fp_errors import without_fp_errors
from asyncgrad.ops.op import binary, operation
from asyncgrad.ops.special import special_function


def _drawn(xp: Any, x: Any, values: Any) -> Any:
    return values


@without_fp_errors
def _gamma_slope(xp: Any, x: Any, y: Any) -> Any:
    """How fast a number that is drawn from the gamma distribution of shape x, y, follows x.

    That is minus the slope of the distribution's cdf by the shape, over the density. By the series
    of the cdf (A&S 6.5.29) both have a factor in common; what is left is the sum of the y**k over
    (x + 1) ... (x + k), each times the slope of its logarithm. Far in the upper tail digits cancel:
    there are none left where one number in 10**15 is.
    """
    a, z = x.astype(xp.float64), xp.maximum(y.astype(xp.float64), sys.float_info.min)
    slope = xp.log(z) - special_function("gamma", "digamma")(a + 1)
    term, total = xp.ones_like(z), slope
    for k in range(1, 100_000):
        term = term * (z / (a + k))
        slope = slope - 1 / (a + k)
        part = term * slope
        total = total + part
        if not (xp.abs(part) > 1e-17 * xp.abs(total)).any():
            break
    return (-z / a * total).astype(x.dtype)


#: Each by PyTorch's name of its node.
_OF_ONE = {
    "bernoulli": "BernoulliBackward0",
    "poisson": "PoissonBackward0",
    "normal_of_mean": "NormalBackward1",
    "normal_of_std": "NormalBackward2",
}

OPS = (
    operation(
        "standard_gamma",
        _drawn,
        "x",
        "values",
        pulls={"x": lambda F, g, x, out: F.mul(g, F.gamma_slope(x, out))},
        pushes={"x": lambda F, t, x, out: F.mul(t, F.gamma_slope(x, out))},
    ),
    # Without derivatives, as in PyTorch.
    binary("gamma_slope", forward=_gamma_slope, node="StandardGammaGradBackward0"),
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
