"""Random values. Their gradients are zero, because the values do not follow the parameters.

Only values of the gamma distribution follow its shape, such that their cdf stays the same. The
values are drawn elsewhere and passed as an attribute, because the table has no generator.
"""

from __future__ import annotations

import sys
from typing import Any

from asyncgrad.devices.fp_errors import without_fp_errors
from asyncgrad.ops.op import Op, binary, operation
from asyncgrad.ops.special import special_function
from asyncgrad.types import Array, Library


def _drawn(xp: Library, *parameters_and_values: Array) -> Any:
    return parameters_and_values[-1]


@without_fp_errors
def _gamma_slope(xp: Library, x: Array, y: Array) -> Any:
    """The derivative of a value y, drawn from the gamma distribution of shape x, by x.

    It is minus the derivative of the cdf by the shape, divided by the density. In the series of the
    cdf (A&S 6.5.29) both have a common factor. What remains is the sum of y**k over (x + 1) ... (x
    + k), each term times its logarithmic derivative. Far in the upper tail digits cancel: none are
    left where the probability is 1e-15.
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


def _of_parameters(name: str, inputs: str, node: str = "") -> Op:
    """An op whose inputs are the parameters of what was drawn, without a derivative."""
    pulls = dict.fromkeys(inputs.split(), lambda F, g: F.zero(g))
    broadcasts = len(pulls) > 1
    return operation(
        name, _drawn, inputs, "values", pulls=pulls, linear=True, broadcasts=broadcasts, node=node,
        repeats=False,
    )  # fmt: skip


OPS = (
    operation(
        "standard_gamma",
        _drawn,
        "x",
        "values",
        pulls={"x": lambda F, g, x, out: F.mul(g, F.gamma_slope(x, out))},
        linear=True,
    ),
    # Ops without derivatives, as in PyTorch.
    binary(
        "gamma_slope",
        forward=_gamma_slope,
        node="StandardGammaGradBackward0",
        promotes="floating",
        repeats=False,
    ),
    _of_parameters("bernoulli", "x", "BernoulliBackward0"),
    _of_parameters("poisson", "x", "PoissonBackward0"),
    _of_parameters("normal_of_mean", "x", "NormalBackward1"),
    _of_parameters("normal_of_std", "x", "NormalBackward2"),
    _of_parameters("normal", "x y", "NormalBackward3"),
    _of_parameters("binomial", "x y"),
)
