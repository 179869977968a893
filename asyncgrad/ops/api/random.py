"""Tensors of random numbers.

Every function takes `generator=`. Without it, numbers come from the default generator, or inside
`random.fork_rng` from the one that replaces it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, TypeAlias

import numpy as np

from asyncgrad.core.modes import current
from asyncgrad.core.recording import drawn_anew
from asyncgrad.core.variable import Variable
from asyncgrad.devices import CPU, Device, current_stream
from asyncgrad.ops import promotion
from asyncgrad.ops.api.creation import like
from asyncgrad.ops.arguments import one_int
from asyncgrad.ops.batching import drawn, drawn_into, drawn_of
from asyncgrad.ops.bfloat16 import floating_info
from asyncgrad.ops.converted import writes, writes_exactly
from asyncgrad.ops.dtype import FLOATING, INEXACT, REAL, check_dtype, refuse
from asyncgrad.ops.dtype_device import as_dtype, memory_format
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.requirements import requires, unmet
from asyncgrad.ops.signatures import named
from asyncgrad.ops.tensors.in_place import assign
from asyncgrad.ops.tensors.new_tensors import from_host, new_shape, place_of, sequence_shape
from asyncgrad.ops.tensors.out import as_made, makes
from asyncgrad.ops.tensors.rng import Generator, source_of
from asyncgrad.ops.tensors.transfer import on_host
from asyncgrad.types import Array, DeviceLike, DTypeLike, Ints, Library, Tensor

__all__ = [
    "bernoulli", "binomial", "multinomial", "normal", "poisson", "rand", "rand_like", "randint",
    "randint_like", "randn", "randn_like", "randperm",
]  # fmt: skip
METHODS = (
    "bernoulli", "bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_",
    "multinomial", "normal_", "random_", "uniform_",
)  # fmt: skip

_INT64 = np.dtype("int64")
#: Draws numbers as an array: `draw(source, shape, dtype)`.
_Draw: TypeAlias = "Callable[[Generator, tuple[int, ...], np.dtype[Any]], Any]"


#: What devices draw themselves: the functions of a generator that draw it on the host.
_KINDS: dict[_Draw, str] = {Generator.uniform: "uniform", Generator.normal: "normal"}


def _numbers(
    draw: _Draw, source: Generator, shape: tuple[int, ...], dtype: np.dtype[Any], place: Device
) -> Any:
    """Drawn numbers as an array on the host, or on a device that draws them itself."""
    kind = _KINDS.get(draw) if place.draws else None
    made = None if kind is None else source.draw_on(place, kind, shape, dtype)
    return draw(source, shape, dtype) if made is None else made


# -- by shape -------------------------------------------------------------------------------------


def _filled(
    name: str, draw: _Draw, shape: tuple[int, ...], dtype: np.dtype[Any], place: Device,
    generator: Generator | None, requires_grad: bool = False,
) -> Any:  # fmt: skip
    """A tensor of random numbers; within a `vmap`, of its own for each example."""
    if current().batch is not None:
        # A lambda would make cells of the arguments, for all who draw.
        again = partial(_filled, name, draw, dtype=dtype, place=place, generator=generator)
        return drawn(again, shape)
    array = _numbers(draw, source_of(generator), shape, dtype, place)
    return from_host(name, array, place, requires_grad)


def _by_shape(name: str, draw: _Draw, doc: str) -> Callable[..., Tensor]:
    def function(
        *sizes: Ints, size: Ints | None = None, generator: Generator | None = None,
        dtype: DTypeLike | None = None, device: DeviceLike | None = None,
        requires_grad: bool = False,
    ) -> Tensor:  # fmt: skip
        wanted = promotion.default_dtype() if dtype is None else as_dtype(name, dtype)
        shape = new_shape(name, sizes, size)
        place = place_of(name, device)
        return _filled(name, draw, shape, wanted, place, generator, requires_grad)

    return makes(drawn_anew(named(function, name, doc)))


rand = _by_shape(
    "rand",
    Generator.uniform,
    """Numbers uniform in [0, 1); for complex dtypes, both parts are; see `zeros`.

    Args:
        sizes: the shape, as one sequence or as several numbers.
        generator: the source of the numbers; the default generator if None.
        dtype: a floating or complex dtype; the default one if None.

    Raises:
        NotImplementedError: for a dtype that is neither floating nor complex.
    """,
)
randn = _by_shape(
    "randn",
    Generator.normal,
    "Standard normal numbers; complex ones have variance 1 in both parts together. See `rand`.",
)


@makes
@drawn_anew
def randint(
    *bounds: int | Sequence[int], low: int | None = None, high: int | None = None,
    size: Ints | None = None, generator: Generator | None = None, dtype: DTypeLike | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Integers uniform in [low, high); see `rand`.

    Called as `randint(high, size)` or `randint(low, high, size)`.

    Args:
        low: the least integer; 0 if left out.
        high: the exclusive upper bound.
        dtype: any dtype but complex ones; int64 if None.

    Raises:
        RuntimeError: if there are no integers in [low, high) or the dtype can't hold them.
    """
    given: list[Any] = [low, high, size]
    missing = [place for place, value in enumerate(given) if value is None]
    if low is None and len(bounds) == len(missing) - 1:
        del missing[0]
    if len(bounds) != len(missing):
        raise TypeError("randint() received an invalid combination of arguments: pass a high and "
                        "a size, or a low, a high and a size")  # fmt: skip
    for place, bound in zip(missing, bounds, strict=True):
        given[place] = bound
    least, beyond, lengths = given
    wanted = _INT64 if dtype is None else as_dtype("randint", dtype)
    shape, there = sequence_shape("randint", lengths), place_of("randint", device)
    draw = partial(_integers, "randint", least, beyond)
    return _filled("randint", draw, shape, wanted, there, generator, requires_grad)


def _integers(
    name: str, low: int | None, high: int, source: Generator, shape: tuple[int, ...],
    dtype: np.dtype[Any],
) -> Any:  # fmt: skip
    """Integers in [low, high) that a dtype can hold."""
    try:
        first, beyond = 0 if low is None else one_int(name, "low", low), one_int(name, "high", high)
    except TypeError:
        raise TypeError(
            f"{name}() received an invalid combination of arguments: the bounds {low!r} and "
            f"{high!r} have to be int"
        ) from None
    if dtype.kind == "c":
        raise unmet(
            name, f"{name} handles only integral, floating-point and boolean types", dtype=dtype
        )
    if first >= beyond:
        raise unmet(name, f"random_ expects 'from' to be less than 'to', but got from={first} >= "
                    f"to={beyond}")  # fmt: skip
    least, largest = _limits(dtype)
    for what, bound in (("from", first), ("to - 1", beyond - 1)):
        if not least <= bound <= largest:
            raise RuntimeError(f"{name}: {what} is out of bounds for {dtype}: {bound}")
    numbers = source.draw("integers", first, beyond, shape, _INT64, many=prod(shape))
    return np.asarray(numbers).astype(dtype, copy=False)


@functools.cache
def _limits(dtype: np.dtype[Any]) -> tuple[float, float]:
    """The least and the largest number of a dtype, or of the parts of a complex one."""
    kind = promotion.category(dtype)
    if kind == 0:
        return 0, 1
    if kind == 1:
        limits = np.iinfo(dtype)
        return limits.min, limits.max
    largest = float(floating_info(dtype).max)
    return -largest, largest


@makes
@drawn_anew
def randperm(
    n: int, *, generator: Generator | None = None, dtype: DTypeLike | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """The numbers below `n` in random order; see `rand`.

    Args:
        dtype: the dtype; int64 if None.
    """
    wanted = _INT64 if dtype is None else as_dtype("randperm", dtype)
    count = one_int("randperm", "n", n)
    if count < 0:
        raise RuntimeError(f"randperm: Trying to create tensor with negative dimension {count}")
    if count - 1 > _limits(wanted)[1]:
        raise unmet(
            "randperm", f"value cannot be converted to type {wanted} without overflow", n=count
        )
    if current().batch is not None:

        def orders(shape: tuple[int, ...]) -> Any:
            rows = [
                randperm(n, generator=generator, dtype=dtype, device=device)
                for _ in range(prod(shape[:-1]))
            ]
            return R.reshape(R.cat([R.reshape(row, (1, count)) for row in rows], 0), shape)

        return drawn(orders, (count,))
    order = source_of(generator).draw("permutation", count, many=count)
    array = np.asarray(order).astype(wanted, copy=False)
    return from_host("randperm", array, place_of("randperm", device), requires_grad)


# -- like others ----------------------------------------------------------------------------------


def _by_example(name: str, draw: _Draw, doc: str) -> Callable[..., Tensor]:
    def function(
        input: Tensor, *, generator: Generator | None = None, dtype: DTypeLike | None = None,
        device: DeviceLike | None = None, requires_grad: bool = False,
        memory_format: memory_format | None = None,
    ) -> Tensor:  # fmt: skip
        x, wanted, place = like(name, input, dtype, device, memory_format)
        return _filled(name, draw, x._metadata.shape, wanted, place, generator, requires_grad)

    return as_made(drawn_anew(named(function, name, doc)))


_SAME = "in the shape, dtype and place of another tensor"
rand_like = _by_example(
    "rand_like", Generator.uniform, f"Numbers uniform in [0, 1), {_SAME}; see `rand`."
)
randn_like = _by_example(
    "randn_like", Generator.normal, f"Standard normal numbers, {_SAME}; see `randn`."
)


@as_made
@drawn_anew
def randint_like(
    input: Tensor, *bounds: int, low: int | None = None, high: int | None = None,
    generator: Generator | None = None, dtype: DTypeLike | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False,
    memory_format: memory_format | None = None,
) -> Tensor:  # fmt: skip
    """Integers uniform in [low, high), in the shape, dtype and place of another tensor.

    Called as `randint_like(input, high)` or `randint_like(input, low, high)`; see `randint`.
    """
    x, wanted, place = like("randint_like", input, dtype, device, memory_format)
    given = [*bounds]
    if high is not None:
        given.append(high)
    if low is not None:
        given.insert(0, low)
    if not 1 <= len(given) <= 2:
        raise TypeError("randint_like() received an invalid combination of arguments: pass a high "
                        "or a low and a high")  # fmt: skip
    draw = partial(_integers, "randint_like", [0, *given][-2], given[-1])
    return _filled("randint_like", draw, x._metadata.shape, wanted, place, generator, requires_grad)


# -- by tensors of parameters ---------------------------------------------------------------------


def _floating(name: str, x: Tensor) -> Any:
    """The values of a floating tensor on the host."""
    check_dtype(name, x._metadata.dtype, FLOATING)
    return _on_host(x)


def _there(x: Tensor, function: Callable[..., Any], *args: Any) -> Any:
    """Run a function on a tensor's array on its device, without reading the result."""
    device = x._metadata.device
    return device.run_in(current_stream(device), function, x._metadata.F.xp, x._array, *args)


def _all(mask: Array) -> bool:
    """Whether all elements of a NumPy array are true; `np.all` takes five times as long."""
    return bool(np.count_nonzero(mask) == mask.size)


def _on_host(x: Tensor) -> Any:
    return x._array if x._metadata.device is CPU else x.to(CPU)._array


def _placed(x: Tensor, values: Any) -> Any:
    """The drawn values as an array of the tensor's dtype on its device."""
    metadata = x._metadata
    if metadata.device is not CPU and isinstance(values, metadata.F.array_type):
        # The values are on the device already.
        return values
    if values.__class__ is not np.ndarray or values.dtype is not metadata.dtype:
        values = np.asarray(values).astype(metadata.dtype, copy=False)
    return values if metadata.device is CPU else metadata.F.xp.asarray(values)


@writes
@drawn_anew
@drawn_of
def bernoulli(
    input: Tensor, p: float | None = None, *, generator: Generator | None = None
) -> Tensor:
    """Draw 1 with the probabilities in a tensor, and 0 otherwise.

    Args:
        input: the probabilities, floating; only its shape and dtype matter if `p` is given.
        p: one probability for all elements.
        generator: the source of the numbers; the default generator if None.
    """
    source = source_of(generator)
    if p is None and input._metadata.device.streamed:
        check_dtype("bernoulli", input._metadata.dtype, FLOATING)
        throws = source.uniform(input._metadata.shape, np.dtype("float64"))
        return R.bernoulli(input, _there(input, _below, throws))
    values = _trials(source, input, _floating("bernoulli", input) if p is None else p)
    return R.bernoulli(input, values)


def _below(xp: Library, p: Array, throws: Array) -> Any:
    """1 where a uniform number is below a probability, and 0 elsewhere."""
    return xp.less(xp.asarray(throws), p).astype(p.dtype)


def _trials(source: Generator, x: Tensor, p: Any) -> Any:
    """Zeros and ones like a tensor; `p` is a number or an array that can be broadcast to it."""
    if isinstance(p, np.ndarray):
        if not _all((p >= 0) & (p <= 1)):
            raise RuntimeError("bernoulli: Expected p_in >= 0 && p_in <= 1 to be true, but got "
                               "elements that are no probabilities")  # fmt: skip
    elif promotion.as_number(p) is None:
        raise TypeError(f"bernoulli(): argument 'p' must be float, not {type(p).__name__}")
    elif not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p}")
    if x._metadata.is_complex:
        refuse("bernoulli", x._metadata.dtype)
    return _placed(x, source.uniform(x._metadata.shape, np.dtype("float64")) < p)


@drawn_of
def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Numbers from the Poisson distributions with the rates in a floating tensor."""
    rates = _floating("poisson", input)
    if not _all(rates >= 0):
        raise RuntimeError("invalid Poisson rate, expected rate to be non-negative")
    values = source_of(generator).draw("poisson", rates.astype(np.float64), many=rates.size)
    return R.poisson(input, _placed(input, values))


@drawn_of
def standard_gamma(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Numbers from the gamma distribution of rate 1, with gradients with respect to its shape.

    Args:
        input: the shapes: above 0.
        generator: the source of the numbers; the default generator if None.
    """
    return R.standard_gamma(input, _gamma_values(input, generator))


@drawn_anew
def _gamma_values(x: Tensor, generator: Generator | None) -> Any:
    shapes = _floating("standard_gamma", x).astype(np.float64)
    values = source_of(generator).draw("standard_gamma", shapes, many=shapes.size)
    return _placed(x, values)


@drawn_of
@requires(
    *[
        f"{x}.is_floating_point()  # binomial only supports floating-point dtypes for {x}"
        for x in ("count", "prob")
    ],
    error=ValueError,
)
def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """Numbers from the binomial distributions of counts and probabilities.

    Args:
        count: how many trials; floating.
        prob: the probabilities, floating, broadcast against the counts.
        generator: the source of the numbers; the default generator if None.
    """
    trials, chances = _on_host(count), _on_host(prob)
    if trials.shape != chances.shape:
        promotion.check_broadcast("binomial", count, prob)
        trials, chances = np.broadcast_arrays(trials, chances)
    if not _all((chances >= 0) & (chances <= 1)):
        raise RuntimeError("binomial: expected probabilities in [0, 1]")
    values = source_of(generator).draw(
        "binomial", np.maximum(trials, 0).astype(np.int64), chances, many=trials.size
    )
    return R.binomial(count, prob, _placed(count, values))


@makes
@drawn_anew
def normal(
    mean: Tensor | float, std: Tensor | float = 1.0, size: Ints | None = None, *,
    generator: Generator | None = None, dtype: DTypeLike | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Normal numbers with the means and deviations given; see `rand`.

    Args:
        mean: a tensor, or a number.
        std: a tensor, or a number; tensors are broadcast against one another.
        size: the shape, where both are numbers.
        dtype: the dtype, where both are numbers; the default one if None.
        device: the device, where both are numbers.

    Raises:
        RuntimeError: if a deviation is negative or complex.
        NotImplementedError: for a dtype that is neither floating nor complex.
    """
    first = mean if isinstance(mean, Variable) else std
    if not isinstance(first, Variable):
        if size is None:
            raise TypeError(
                "normal() received an invalid combination of arguments: two numbers need a size"
            )
        wanted = promotion.default_dtype() if dtype is None else as_dtype("normal", dtype)
        place, draw = place_of("normal", device), partial(_normal, mean, std)
        wide = sequence_shape("normal", size)
        return _filled("normal", draw, wide, wanted, place, generator, requires_grad)
    if size is not None:
        raise TypeError(
            "normal() received an invalid combination of arguments: size is for numbers"
        )
    if isinstance(mean, Variable):
        if isinstance(std, Variable):
            promotion.check_broadcast("normal", mean, std)
        return _around(mean, std, generator, True)
    return _around(first, mean, generator, False)


@drawn_of
def _around(x: Tensor, y: Any, generator: Generator | None, of_means: bool) -> Any:
    """Normal numbers of which a tensor has the means, or the deviations."""
    mean, std = (x, y) if of_means else (y, x)
    shape, both = x._metadata.shape, isinstance(y, Variable)
    if both and y._metadata.shape != shape:
        shape = np.broadcast_shapes(shape, y._metadata.shape)
    given, other = _on_host(x), _on_host(y) if both else y
    middle, spread = (given, other) if of_means else (other, given)
    numbers = _normal(middle, spread, source_of(generator), shape, x._metadata.dtype)
    values = _placed(x, numbers)
    if both:
        return R.normal(mean, std, values)
    return R.normal_of_mean(mean, values) if of_means else R.normal_of_std(std, values)


def _normal(
    mean: Any, std: Any, source: Generator, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> Any:
    if isinstance(std, np.ndarray):
        if std.dtype.kind == "c":
            raise RuntimeError("normal expects standard deviation to be non-complex")
        if not _all(std >= 0):
            raise RuntimeError("normal expects all elements of std >= 0.0")
    elif promotion.as_number(std) is None:
        raise TypeError(f"normal(): argument 'std' must be float, not {type(std).__name__}")
    elif not std >= 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    if not isinstance(mean, np.ndarray) and promotion.as_number(mean) is None:
        raise TypeError(f"normal(): argument 'mean' must be float, not {type(mean).__name__}")
    values = source.normal(shape, dtype)
    if values.__class__ is np.ndarray and std.__class__ is mean.__class__ is float:
        # In place, a Python number does not change the array's dtype.
        if std != 1:
            values *= std
        if mean != 0:
            values += mean
        return values
    return (values * std + mean).astype(dtype, copy=False)


@writes_exactly
@drawn_anew
@drawn_of
@requires(
    "1 <= input.ndim <= 2  # prob_dist must be 1 or 2 dim",
    "input.is_floating_point()  # multinomial only supports floating-point dtypes for input",
    "num_samples > 0  # cannot sample n_sample <= 0 samples",
    "replacement or num_samples <= input.shape[-1]"
    "  # cannot sample n_sample > prob_dist.size(-1) samples without replacement",
)
def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, *,
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Indices, (num_samples,) or (m, num_samples), drawn with the weights in each row of a tensor.

    Args:
        input: the weights, not negative: of shape (n,) or (m, n).
        num_samples: how many to draw from each row.
        replacement: an index may be drawn again.
        generator: the source of the numbers; the default generator if None.

    Raises:
        RuntimeError: if the weights are none, or too few to draw from.
    """
    draw = _with_replacement if replacement else _without_replacement
    source = source_of(generator)
    if input._metadata.device.streamed:
        found = _there(input, _drawn, draw, source, num_samples)
        return from_host("multinomial", found, input._metadata.device)
    weights = _on_host(input).astype(np.float64)
    if not _all(np.isfinite(weights) & (weights >= 0)):
        raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
    if not _all(weights.sum(-1) > 0):
        raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
    return from_host("multinomial", _drawn(np, input._array, draw, source, num_samples), CPU)


def _drawn(xp: Library, x: Array, draw: Callable[..., Any], source: Generator, count: int) -> Any:
    """Indices for each row of weights, on their device."""
    rows = xp.reshape(x, (-1, x.shape[-1])).astype(np.float64)
    found = draw(xp, source, rows, count)
    return xp.ascontiguousarray(xp.reshape(found, (*x.shape[:-1], count)))


def _with_replacement(xp: Library, source: Generator, weights: Array, count: int) -> Any:
    """Indices drawn by inverting the cumulative sums of the weights."""
    sums = xp.cumsum(weights, -1)
    throws = source.uniform((len(weights), count), np.dtype("float64"))
    throws = xp.asarray(throws) * sums[:, -1:]
    # side="right" skips weights of 0. `last` guards against rounding beyond the last positive one.
    last = weights.shape[-1] - 1 - xp.argmax(weights[:, ::-1] > 0, -1)
    found = xp.empty(throws.shape, np.int64)
    for row in range(len(weights)):
        places = xp.searchsorted(sums[row], throws[row], "right")
        found[row] = xp.minimum(places, last[row])
    return found


def _without_replacement(xp: Library, source: Generator, weights: Array, count: int) -> Any:
    """The indices of the least of exponential times whose rates are the weights."""
    times = xp.asarray(source.draw("standard_exponential", weights.shape, many=weights.size))
    with np.errstate(divide="ignore"):
        times = times / weights
    found = xp.argsort(times, -1, kind="stable")[:, :count]
    return found.astype(np.int64, copy=False)


# -- in place -------------------------------------------------------------------------------------


def _bounds(name: str, names: tuple[str, ...], defaults: Any, args: Any, kwargs: Any) -> list[Any]:
    """Parse arguments whose names may be Python keywords, such as `from`."""
    given = dict(zip(names, args, strict=False))
    if len(args) > len(names) or given.keys() & kwargs.keys() or kwargs.keys() - set(names):
        raise TypeError(
            f"{name}() received an invalid combination of arguments: {names} are expected, got "
            f"{args} and {kwargs}"
        )
    given.update(kwargs)
    return [given.get(key, default) for key, default in zip(names, defaults, strict=True)]


def _real(name: str, what: str, value: object) -> Any:
    """A real number, also from a tensor without dimensions."""
    if isinstance(value, Variable) and not value._metadata.shape:
        value = on_host(value).item()
    number = promotion.as_number(value)
    if number is None or isinstance(number, complex):
        raise TypeError(f"{name}(): argument '{what}' must be float, not {type(value).__name__}")
    return number


def _fill(x: Tensor, values: Array, name: str) -> Any:
    """Overwrite a tensor with drawn values."""
    return assign(x, from_host(name, _placed(x, values), x._metadata.device), name)


def _drawn_like(x: Tensor, generator: Generator | None, kind: str, *parameters: float) -> Any:
    """Numbers of a distribution in a tensor's shape."""
    metadata = x._metadata
    return source_of(generator).draw(kind, *parameters, metadata.shape, many=metadata.size)


def _drawn_into(fill: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function that fills a tensor: a replay of a compiled call draws other numbers."""

    @functools.wraps(fill)
    def made(like: Tensor, *args: Any, **kwargs: Any) -> Any:
        return fill(R.clone(like.detach()), *args, **kwargs)

    anew = drawn_anew(made)

    @functools.wraps(fill)
    def filled(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        if current().recorder is None or not isinstance(input, Variable):
            return fill(input, *args, **kwargs)
        return assign(input, anew(input, *args, **kwargs), fill.__name__)

    return drawn_into(filled)


@_drawn_into
def uniform_(
    input: Tensor, *args: float, generator: Generator | None = None, **kwargs: float
) -> Tensor:
    """Fill with floating or complex numbers uniform in [from, to): `uniform_(from=0, to=1)`."""
    x = promotion.as_tensor_operand(input, "uniform_", 1)
    low, high = 0.0, 1.0
    if args or kwargs:
        low, high = _bounds("uniform_", ("from", "to"), (low, high), args, kwargs)
        low, high = _real("uniform_", "from", low), _real("uniform_", "to", high)
    shape, dtype, device = x._metadata.shape, x._metadata.dtype, x._metadata.device
    check_dtype("uniform_", dtype, INEXACT)
    source = source_of(generator)
    if low == 0 and high == 1:
        return _fill(x, _numbers(Generator.uniform, source, shape, dtype, device), "uniform_")
    largest = _limits(dtype)[1]
    for what, bound in (("from", low), ("to", high), ("to - from", high - low)):
        if not abs(bound) <= largest:
            raise RuntimeError(f"uniform_: {what} is out of bounds for {dtype}: {bound}")
    if low > high:
        raise unmet("uniform_", "uniform_ expects to return a [from, to) range, but found "
                    f"from={low} > to={high}")  # fmt: skip
    values = source.draw_on(device, "uniform", shape, dtype, high - low, low)
    if values is not None:
        return _fill(x, values, "uniform_")
    least = complex(low, low) if dtype.kind == "c" else low
    return _fill(x, source.uniform(shape, dtype) * (high - low) + least, "uniform_")


@_drawn_into
def normal_(
    input: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Fill with normal numbers, floating or complex."""
    metadata, source = input._metadata, source_of(generator)
    shape, dtype, values = metadata.shape, metadata.dtype, None
    if std >= 0:
        values = source.draw_on(metadata.device, "normal", shape, dtype, std, mean)
    if values is None:
        values = _normal(mean, std, source, shape, dtype)
    return _fill(input, values, "normal_")


@_drawn_into
def bernoulli_(
    input: Tensor, p: Tensor | float = 0.5, *, generator: Generator | None = None
) -> Tensor:
    """Fill with 1, with one probability or those in a floating tensor, and 0 otherwise."""
    if isinstance(p, Variable):
        given, shape = p._metadata.shape, input._metadata.shape
        p = _floating("bernoulli_", p)
        back = zip(reversed(given), reversed(shape), strict=False)
        if not input._metadata.is_complex and (
            len(given) > len(shape) or any(m not in {1, n} for m, n in back)
        ):
            raise unmet("bernoulli_", "The expanded size of the tensor must match the existing "
                        f"size: probabilities broadcast to {shape}",
                        **{"p.shape": given})  # fmt: skip
    return _fill(input, _trials(source_of(generator), input, p), "bernoulli_")


#: The condition of the distributions that PyTorch calls by such a name.
_CONTINUOUS = (
    "input.is_floating_point()  # {} distribution is a continuous probability distribution. dtype "
    "must be a floating point"
)


@_drawn_into
@requires("lambd > 0  # exponential_ expects lambda > 0.0", _CONTINUOUS.format("Exponential"))
def exponential_(
    input: Tensor, lambd: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Fill with numbers from the exponential distribution of rate `lambd`."""
    values = _drawn_like(input, generator, "standard_exponential")
    return _fill(input, values / lambd, "exponential_")


@_drawn_into
@requires("sigma > 0  # cauchy_ expects sigma > 0.0", _CONTINUOUS.format("Cauchy"))
def cauchy_(
    input: Tensor, median: float = 0.0, sigma: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Fill with numbers from the Cauchy distribution."""
    values = _drawn_like(input, generator, "standard_cauchy")
    return _fill(input, values * sigma + median, "cauchy_")


@_drawn_into
@requires("0 < p < 1  # geometric_ expects p to be in (0, 1)")
def geometric_(input: Tensor, p: float, *, generator: Generator | None = None) -> Tensor:
    """Fill with numbers of trials up to the first success, whose probability is `p`.

    Raises:
        NotImplementedError: for booleans and complex numbers.
    """
    check_dtype("geometric_", input._metadata.dtype, REAL)
    return _fill(input, _drawn_like(input, generator, "geometric", p), "geometric_")


@_drawn_into
@requires("std > 0  # log_normal_ expects std > 0.0")
def log_normal_(
    input: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Generator | None = None
) -> Tensor:
    """Fill a floating tensor with numbers whose logarithms are normal."""
    check_dtype("log_normal_", input._metadata.dtype, FLOATING)
    return _fill(input, _drawn_like(input, generator, "lognormal", mean, std), "log_normal_")


@_drawn_into
def random_(input: Tensor, *args: int, generator: Generator | None = None, **kwargs: int) -> Tensor:
    """Fill with integers uniform in [from, to): `random_()`, `random_(to)` or `random_(from, to)`.

    Without `to`, the bound is the largest integer up to which the dtype holds every integer.

    Raises:
        RuntimeError: if there are no such integers or the dtype can't hold them.
        NotImplementedError: for complex numbers.
    """
    x = promotion.as_tensor_operand(input, "random_", 1)
    dtype, shape = x._metadata.dtype, x._metadata.shape
    if len(args) == 1 and not kwargs:
        args = (0, *args)
    low, high = _bounds("random_", ("from", "to"), (0, None), args, kwargs)
    if high is None:
        if dtype.kind == "c" and low:
            raise RuntimeError(f'"random_" not implemented for {dtype}.')
        check_dtype("random_", dtype, f"{REAL}b")
        high = _beyond(dtype)
    return _fill(x, _integers("random_", low, high, source_of(generator), shape, dtype), "random_")


def _beyond(dtype: np.dtype[Any]) -> int:
    """The first integer that a dtype can't hold, or after which it skips integers."""
    if promotion.category(dtype) < 2:
        return int(min(_limits(dtype)[1], np.iinfo(_INT64).max - 1)) + 1
    bits: dict[str, int] = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}
    return (1 << bits[dtype.name]) + 1
