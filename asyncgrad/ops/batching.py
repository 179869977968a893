"""Batched tensors: what `vmap` passes to a function, each standing for one example of a batch.

A batched tensor has the shape of one example and holds a tensor whose first axis is the batch. The
ops' rules, `Op.batch`, compute on the held tensor and are recorded, so derivatives need no rules of
their own. Levels nest: the held tensor may itself be batched.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any

from asyncgrad._unbound import unbound
from asyncgrad.core.metadata import Metadata
from asyncgrad.core.modes import Mode, current
from asyncgrad.core.variable import Variable, wrap
from asyncgrad.errors import AutogradError
from asyncgrad.ops.batch_rules import Call, by_example, in_front
from asyncgrad.ops.namespace import RECORDED
from asyncgrad.ops.op import Op
from asyncgrad.ops.requirements import broadcast_shape

#: Makes an empty batched tensor; set in `asyncgrad/_wiring.py`.
new_batched: Callable[[], Any] = unbound
#: The metadata of one example, by the metadata of its batch; cleared when full.
_examples: dict[Metadata, Metadata] = {}
_CACHE_LIMIT = 1024


class Level:
    """The state of one `vmap` call: its batch size, randomness and outer level."""

    __slots__ = ("depth", "loops", "outer", "randomness", "size", "tangents")

    def __init__(
        self, size: int, randomness: str, outer: Level | None, *, loops: bool = False,
        tangents: bool = False,
    ) -> None:  # fmt: skip
        """Open a level within another.

        Args:
            size: the length of the batch.
            randomness: "error", "different" or "same".
            outer: the enclosing level, or None.
            loops: not opened by the user: what `vmap` refuses is allowed, and a custom Function
                without a `vmap` rule is called for each example.
            tangents: only tangents are batched; values are the same for all examples.
        """
        self.loops = loops
        self.size = size
        self.randomness = randomness
        self.outer = outer
        self.tangents = tangents
        self.depth: int = 1 if outer is None else outer.depth + 1


def lift_batch(value: Variable, level: Level) -> Any:
    """Wrap a tensor whose first axis is the batch as a batched tensor."""
    out: Any = new_batched()
    out._value = value
    out._level = level
    out._metadata = _example(value._metadata)
    out._edge = None
    out._counter = None
    out._autograd = None
    return out


def _example(batch: Metadata) -> Metadata:
    """The metadata of one example: `needs_checks`, so that dispatch takes the general way."""
    record = _examples.get(batch)
    if record is None:
        if len(_examples) >= _CACHE_LIMIT:
            _examples.clear()
        shape = batch.shape[1:]
        record = _examples[batch] = Metadata(
            shape,
            batch.dtype,
            batch.device,
            batch.F,
            user_dtype=batch.user_dtype,
            size=prod(shape),
            cost=batch.cost,
            line_cost=batch.line_cost,
            is_complex=batch.is_complex,
            is_float=batch.dtype.kind == "f",
        )
        record.needs_checks = True
    return record


def level_of(values: Any) -> Level | None:
    """The innermost level among some values, None if no value is batched."""
    found: Level | None = None
    for value in values:
        if getattr(value, "_batched", False) and (
            found is None or value._level.depth > found.depth
        ):
            found = value._level
    return found


def compute_batched(
    op: Op, function: Any, inputs: tuple[Any, ...], attributes: tuple[Any, ...]
) -> Any:
    """Compute an op on batched tensors; None if none of its inputs is batched."""
    level = level_of(inputs)
    if level is None:
        return None
    if not level.size:
        return _of_none(
            lambda *given: compute_batched(op, function, given, attributes), level, *inputs
        )
    if op.inputs == ("*xs",):
        dim = attributes[0] + 1
        return lift_batch(function([batch_of(x, level) for x in inputs], dim), level)
    rule = op.batch or by_example
    flags = tuple([x._batched and x._level is level for x in inputs])
    values = [x._value if flag else x for x, flag in zip(inputs, flags, strict=True)]
    call = Call(op.name, level.size, flags, op.attributes)
    return lift_batch(rule(call, *values, *attributes), level)


def _of_none(function: Callable[..., Any], level: Level, *args: Any, **kwargs: Any) -> Any:
    """Call a function at a level without examples: with one example, whose results are dropped."""
    one = Level(1, level.randomness, level.outer)
    named = {name: _with_example(arg, level, one) for name, arg in kwargs.items()}
    return _without_example(function(*_with_example(args, level, one), **named), level)


def _with_example(arg: Any, level: Level, one: Level) -> Any:
    """An argument at a level without examples, with an example: of zeros, or a unit matrix.

    Functions that compute one example at a time need one to know what their results look like.
    """
    if isinstance(arg, (tuple, list)):
        return type(arg)(_with_example(part, level, one) for part in arg)
    if not (getattr(arg, "_batched", False) and arg._level is level):
        return arg
    metadata = arg._metadata
    shape = metadata.shape
    values = metadata.F.xp.zeros((1, *shape), metadata.dtype)
    if len(shape) > 1 and shape[-1] == shape[-2]:
        values[...] = metadata.F.xp.eye(shape[-1], dtype=metadata.dtype)
    example = wrap(values, metadata.F.metadata_of(values))
    return lift_batch(RECORDED.cat([arg._value, example], 0), one)


def _without_example(out: Any, level: Level) -> Any:
    """What was computed of an example, for a level that has none."""
    if isinstance(out, tuple):
        return _again(out, [_without_example(part, level) for part in out])
    return lift_batch(RECORDED.getitem(out._value, (slice(0, 0), Ellipsis)), level)


def batch_of(x: Any, level: Level) -> Any:
    """The tensor that holds the batch at a level; an unbatched tensor is repeated."""
    return x._value if x._batched and x._level is level else in_front(x, level.size)


def unwrap_batch(x: Any, level: Level | None) -> Any:
    """Expose the batches of a level and its outer levels as leading axes, outermost first."""
    if level is None:
        return x
    return unwrap_batch(x if level.tangents else batch_of(x, level), level.outer)


def wrap_batch(x: Any, level: Level | None) -> Any:
    """The inverse of `unwrap_batch`: wrap the leading axes as batches of these levels."""
    if level is None:
        return x
    outer = wrap_batch(x, level.outer)
    return outer if level.tangents else lift_batch(outer, level)


def bottom(x: Any) -> Any:
    """The tensor that owns the memory, below all levels of batching."""
    while x._batched:
        x = x._value
    return x


def together(*tensors: Any) -> tuple[Level, tuple[Any, ...]]:
    """Give all tensors the batch as their first axis; None stays None."""
    level = level_of(tensors)
    assert level is not None
    return level, tuple([None if x is None else batch_of(x, level) for x in tensors])


def mapped(function: Callable[..., Any], *tensors: Any, **options: Any) -> Any:
    """Call a function on the tensors that hold the batch, as first axis, and wrap its results."""
    level, values = together(*tensors)
    out = function(*values, **options)
    if not isinstance(out, tuple):
        return lift_batch(out, level)
    return _again(out, [lift_batch(part, level) for part in out])


def mapped_along(
    function: Callable[..., Any], x: Any, axis: int, *tensors: Any, **options: Any
) -> Any:
    """`mapped` for a function `function(x, axis, *tensors, **options)` that works along an axis."""
    if not x._metadata.shape:
        return by_parts(function, x, axis, *tensors, **options)
    return mapped(lambda batch, *others: function(batch, axis + 1, *others, **options), x, *tensors)


def _again(like: tuple[Any, ...], parts: list[Any]) -> Any:
    kind: Any = type(like)
    return kind(*parts) if hasattr(like, "_fields") else kind(parts)


def for_each(x: Any, like: Any) -> Any:
    """Copy `x` for each example of `like`, so that each copy can be changed in place."""
    if not getattr(like, "_batched", False):
        return x
    level = like._level
    if x._batched and x._level.depth > level.depth:
        return lift_batch(for_each(x._value, like), x._level)
    if x._batched and x._level is level:
        return lift_batch(for_each(x._value, like._value), level)
    return lift_batch(RECORDED.clone(in_front(for_each(x, like._value), level.size)), level)


def by_parts(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function that reads values once for each example, and stack the results."""
    leaves = [part for arg in (*args, *kwargs.values()) for part in _parts(arg)]
    level = level_of(leaves)
    assert level is not None
    if not level.size:
        return _of_none(functools.partial(by_parts, function), level, *args, **kwargs)
    outs = [
        function(
            *[_one_of(arg, level, i) for arg in args],
            **{name: _one_of(arg, level, i) for name, arg in kwargs.items()},
        )
        for i in range(level.size)
    ]
    if not isinstance(outs[0], tuple):
        return lift_batch(_stack(outs), level)
    return _again(outs[0], [lift_batch(_stack(found), level) for found in zip(*outs, strict=True)])


def _one_of(arg: Any, level: Any, i: int) -> Any:
    """One example of an argument; an unbatched argument is the same for all examples."""
    if isinstance(arg, (tuple, list)):
        return type(arg)(_one_of(part, level, i) for part in arg)
    if getattr(arg, "_batched", False) and arg._level is level:
        return RECORDED.getitem(arg._value, (i, Ellipsis))
    return arg


def _parts(arg: Any) -> Any:
    return arg if isinstance(arg, (tuple, list)) else (arg,)


def _stack(tensors: Sequence[Any]) -> Any:
    shapes = {x._metadata.shape for x in tensors}
    if len(shapes) > 1:
        raise AutogradError(
            f"vmap: We do not support batching operators that can output dynamic shape: the "
            f"examples have shapes {sorted(shapes)}."
        )
    return RECORDED.stack(tensors, 0)


def drawn(draw: Callable[[tuple[int, ...]], Any], shape: tuple[int, ...]) -> Any:
    """Draw random numbers within a `vmap`: different ones for each example, or the same for all."""
    level = check_randomness()
    with Mode(batch=level.outer):
        if level.randomness == "same":
            return draw(shape)
        return lift_batch(draw((level.size, *shape)), level)


def drawn_for(function: Callable[[Any], Any], x: Any) -> Any:
    """Call a random function on the tensor that holds the batch; None for "same" randomness."""
    level = check_randomness()
    if level.randomness == "same":
        return None
    with Mode(batch=level.outer):
        return lift_batch(function(batch_of(x, level)), level)


def drawn_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a random function of tensors, its first arguments: each example gets its own numbers."""

    @functools.wraps(function)
    def drawn(*args: Any, **kwargs: Any) -> Any:
        if current().batch is None:
            return function(*args, **kwargs)
        level = check_randomness()
        if level.randomness == "same":
            _refuse_parameters(level, args)
            with Mode(batch=level.outer):
                return drawn(*args, **kwargs)
        tensors = [x for x in args if isinstance(x, Variable)]
        shape = broadcast_shape(function.__name__, tensors)
        values = [batch_of(RECORDED.expand(x, shape), level) for x in tensors]
        with Mode(batch=level.outer):
            return lift_batch(drawn(*values, *args[len(values) :], **kwargs), level)

    return drawn


def _refuse_parameters(level: Level, args: Iterable[Any]) -> None:
    """Raise if numbers that are the same for all examples have parameters that are not."""
    if any(getattr(x, "_batched", False) and x._level is level for x in args):
        raise AutogradError(
            "vmap: Vmap does not currently support same randomness with a batched tensor input. "
            "Please use randomness='different', or draw outside of vmap."
        )


def drawn_into(fill: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an in-place random function so that each example of a batch gets its own numbers."""

    @functools.wraps(fill)
    def filled(input: Any, *args: Any, **kwargs: Any) -> Any:
        if current().batch is None:
            return fill(input, *args, **kwargs)
        level = check_randomness()
        own = getattr(input, "_batched", False) and input._level is level
        if level.randomness == "same":
            _refuse_parameters(level, (*args, *kwargs.values()))
            if own:
                return fill(input, *args, **kwargs)
            with Mode(batch=level.outer):
                return filled(input, *args, **kwargs)
        if not own:
            raise AutogradError(
                f"vmap: Cannot ask for different inplace randomness on an unbatched tensor: "
                f"{fill.__name__} would have to put a batch into one tensor. Use the form that is "
                f"not in place."
            )
        shape = input._metadata.shape

        def of_batch(arg: Any) -> Any:
            parameters = getattr(arg, "_batched", False)
            return batch_of(RECORDED.expand(arg, shape), level) if parameters else arg

        given = [of_batch(arg) for arg in args]
        named = {name: of_batch(arg) for name, arg in kwargs.items()}
        with Mode(batch=level.outer):
            filled(input._value, *given, **named)
        return input

    return filled


def check_randomness() -> Level:
    """The level of the innermost `vmap`; raises if its `randomness` is "error"."""
    level: Level = current().batch
    if level.randomness == "error":
        raise AutogradError(
            "vmap: called random operation while in randomness error mode. Please either use the "
            "'same' or 'different' randomness flags on vmap or perform the randomness operation "
            "out of vmap"
        )
    return level
