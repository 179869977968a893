"""Dropout of elements and channels, and other random functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from asyncgrad.core.frames import warn
from asyncgrad.core.modes import current
from asyncgrad.core.recording import again, drawn_anew
from asyncgrad.core.variable import wrap
from asyncgrad.devices import CPU, Device
from asyncgrad.errors import AutogradError
from asyncgrad.ops.api.activation import softmax
from asyncgrad.ops.api.convolution import SHAPES
from asyncgrad.ops.api.creation import empty_like, zeros_like
from asyncgrad.ops.api.elementwise import div, sub, where
from asyncgrad.ops.api.index import scatter_
from asyncgrad.ops.api.random import exponential_, rand_like
from asyncgrad.ops.batching import drawn_for
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.node_names import renamed
from asyncgrad.ops.promotion import category
from asyncgrad.ops.requirements import requires, unmet
from asyncgrad.ops.signatures import named
from asyncgrad.ops.tensors.in_place import change
from asyncgrad.ops.tensors.rng import Generator, source_of
from asyncgrad.types import Array, Floating, InPlace, Library, Tensor, Truth

__all__ = [
    "alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout",
    "gumbel_softmax",
]  # fmt: skip

_FLOAT32 = np.dtype("float32")
#: The negated limit of `selu` for negative inputs: `scale * alpha`.
_ALPHA = 1.7580993408473766


def _dropout(
    name: str, what: str, shape: str, channels: Callable[[str, Tensor], int] | None = None, *,
    training: bool = True, alpha: bool = False,
) -> Callable[..., Tensor]:  # fmt: skip
    """A kind of dropout.

    Args:
        what: the first sentence of its docstring.
        shape: what the docstring says of the input.
        channels: checks the input, and returns the number of its first axes that are dropped
            separately; if None, every element is dropped by itself.
        alpha: keep mean and variance.
    """

    @requires("0 <= p <= 1  # dropout probability has to be between 0 and 1", error=ValueError)
    def function(
        input: Tensor, p: float = 0.5, training: bool = training, inplace: Truth = False, *,
        generator: Generator | None = None,
    ) -> Tensor:  # fmt: skip
        axes = None if channels is None else channels(name, input)
        return _dropped(name, input, p, training, inplace, generator, axes, alpha=alpha)

    fewer = "" if channels is None else ", or too few axes"
    doc = f"""{what}

    Args:
        input: {shape}
        p: the probability.
        training: False leaves everything as it is.
        inplace: overwrite the input.
        generator: the source of random numbers; the default generator if None.

    Raises:
        ValueError: if `p` is not in [0, 1].
        RuntimeError: for a dtype that is not floating{fewer}.
    """
    return named(function, name, doc)


def _channels(name: str, input: Tensor) -> int:
    """The number of the first axes of an image that are those of channels."""
    axes, ndim = int(name[-2]), len(input._metadata.shape)
    # As in PyTorch, `dropout2d` takes three axes for a batch of lines.
    channels = 2 if axes == 2 or ndim == axes + 2 else 1
    if ndim in {axes + 1, axes + 2}:
        return channels
    if axes == 1:
        raise unmet(name, f"Expected 2D or 3D input, but received a {ndim}D input. Note that "
                    f"{name} exists to provide channel-wise dropout on inputs with 1 spatial "
                    "dimension", AutogradError)  # fmt: skip
    warn(
        f"{name}: Received a {ndim}-D input to {name}, which is deprecated and will result in "
        f"an error in a future release. {name} exists to provide channel-wise dropout on "
        f"inputs with {axes} spatial dimensions and a channel dimension."
    )
    return channels


_ANY = "a floating or complex tensor."
_CHANNELS = "Zero whole channels at random with probability `p`, and divide the others by `1 - p`."
dropout = _dropout(
    "dropout",
    "Zero elements at random with probability `p`, and divide the others by `1 - p`.",
    _ANY,
)
dropout1d = _dropout("dropout1d", _CHANNELS, SHAPES[1], _channels)
dropout2d = _dropout(
    "dropout2d",
    _CHANNELS,
    "of shape (n, channels, rows, columns); the first two axes are those of channels.",
    _channels,
)
dropout3d = _dropout("dropout3d", _CHANNELS, SHAPES[3], _channels)
alpha_dropout = _dropout(
    "alpha_dropout",
    "Dropout that keeps mean 0 and variance 1, for networks of `selu`.",
    _ANY,
    training=False,
    alpha=True,
)
feature_alpha_dropout = _dropout(
    "feature_alpha_dropout",
    "`alpha_dropout` of whole channels, the first two axes.",
    "a floating or complex tensor of at least two axes.",
    lambda name, input: 2,
    training=False,
    alpha=True,
)


def _dropped(
    name: str, input: Tensor, p: float, training: bool, inplace: bool, generator: Generator | None,
    channels: int | None = None, *, alpha: bool = False,
) -> Any:  # fmt: skip
    """Dropout of elements, or of channels: the first `channels` axes. See `_dropout`."""
    metadata = input._metadata
    shape = metadata.shape
    if not training or p == 0 or not metadata.size:
        return input
    if category(metadata.dtype) < 2:
        raise unmet(name, "result type Float can't be cast to the desired output type",
                    AutogradError, input=metadata.dtype)  # fmt: skip
    if channels is not None and len(shape) < channels:
        raise unmet(name, "Feature dropout requires at least 2 dimensions in the input",
                    AutogradError, input=input)  # fmt: skip
    if inplace:

        def drop(held: Tensor) -> Any:
            return _dropped(name, held, p, training, False, generator, channels, alpha=alpha)

        return change(input, f"{name}_", drop)
    if p == 1:
        return R.mul_scalar(input, 0.0)
    if current().batch is not None:
        own = None if channels is None else channels + 1
        out = drawn_for(
            lambda batch: _dropped(name, batch, p, True, False, generator, own, alpha=alpha), input
        )
        if out is not None:
            return out
    chosen = shape if channels is None else shape[:channels] + (1,) * (len(shape) - channels)
    mask = _drawn(generator, chosen, p, shape, metadata.device)
    return _self_normalised(input, mask, p) if alpha else R.dropout(input, mask, 1 / (1 - p))


@drawn_anew
def _drawn(
    generator: Generator | None, chosen: tuple[int, ...], p: float, shape: tuple[int, ...],
    device: Device,
) -> Any:  # fmt: skip
    """A random mask of what is kept, drawn for one shape and broadcast to another."""
    source = source_of(generator)
    numbers = source.draw_on(device, "uniform", chosen, _FLOAT32)
    if numbers is not None:
        return device.launching(_kept)(device.xp, numbers, p, shape)
    mask = _kept(np, source.uniform(chosen, _FLOAT32), p, shape)
    return mask if device is CPU else device.xp.asarray(mask)


def _kept(xp: Library, numbers: Array, p: float, shape: tuple[int, ...]) -> Any:
    return xp.broadcast_to(numbers >= p, shape)


def _self_normalised(x: Tensor, mask: Array, p: float) -> Any:
    """Alpha dropout: dropped elements get the limit of `selu`, then an affine map is applied."""
    scale = 1 / ((_ALPHA**2 * p + 1) * (1 - p)) ** 0.5
    F = x._metadata.F
    launched = x._metadata.device.launching(_offset)
    offset = F.as_array(again(launched, mask, scale, p, x._metadata.dtype))
    return R.add(R.dropout(x, mask, scale), wrap(offset, F.metadata_of(offset)))


def _offset(mask: Array, scale: float, p: float, dtype: np.dtype[Any]) -> Any:
    return ((mask - 1.0) * (_ALPHA * scale) + _ALPHA * scale * p).astype(dtype)


@requires("abs(upper) < float('inf')  # rrelu: upper bound must be finite")
@requires("lower <= upper  # Lower bound should be less than or equal to the upper bound")
def rrelu(
    input: Floating, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False,
    inplace: InPlace = False,
) -> Tensor:  # fmt: skip
    """The elements, with negative ones times slopes that are random in training.

    Args:
        input: a tensor of a floating dtype.
        lower: the least slope.
        upper: the greatest; without `training` all slopes are the mean of both.
        training: draw the slopes.
    """
    if not training:
        out = R.leaky_relu(input, (lower + upper) / 2)
    else:
        slopes = R.add_scalar(R.mul_scalar(rand_like(input.detach()), upper - lower), lower)
        out = R.mul(input, where(R.le(input, 0), slopes, 1.0))
    return renamed(out, "RreluWithNoiseBackward0", saves=True)


def gumbel_softmax(
    logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """Differentiable, soft samples from the categorical distributions along `dim`.

    Args:
        logits: unnormalised logarithms of probabilities, of a floating dtype.
        tau: the temperature: the lower, the nearer the result is to one-hot vectors.
        hard: return one-hot vectors with the gradients of the soft ones.
        eps: without effect.

    Source: Jang, Gu and Poole, "Categorical reparameterization with Gumbel-softmax", 2017.
    """
    if eps != 1e-10:
        warn("gumbel_softmax: `eps` is deprecated and has no effect")
    noise = R.log(exponential_(empty_like(logits)))
    soft = softmax(div(sub(logits, noise), tau), dim)
    if not hard:
        return soft
    drawn = scatter_(zeros_like(soft), dim, soft.argmax(dim, keepdim=True), 1.0)
    return R.add(R.sub(drawn, soft.detach()), soft)
