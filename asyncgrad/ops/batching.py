"""Tensors that stand for one example each of a batch: what `vmap` gives to a function.

A batched tensor shows the shape of one example and holds a tensor with the batch as its first
axis. Operations on it are carried out on that tensor, by rules that say where the batch goes
(`batch_rules`), and are recorded there like any other: derivatives need nothing of their own.
Levels are nested: what a batched tensor holds may be one of an outer level.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from asyncgrad.core.metadata import Metadata
from asyncgrad.core.modes import Mode, current
from asyncgrad.errors import AutogradError
from asyncgrad.ops.batch_rules import RULES, Call, by_example, in_front
from asyncgrad.ops.namespace import RECORDED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncgrad.core.variable import Variable
    from asyncgrad.ops.op import Op

#: Makes a batched tensor, empty as yet; bound by `func.batched`.
_face: list[Any] = []
#: Records of examples by those of batches; the oldest go first.
_examples: dict[Metadata, Metadata] = {}
_CACHE_LIMIT = 1024


class Level:
    """One call of `vmap`."""

    __slots__ = ("depth", "loops", "outer", "randomness", "size", "tangents")

    def __init__(
        self,
        size: int,
        randomness: str,
        outer: Level | None,
        *,
        loops: bool = False,
        tangents: bool = False,
    ) -> None:
        """Open a level within another.

        Args:
            size: the length of the batch.
            randomness: "error", "different" or "same".
            outer: the level round it, or None.
            loops: it is not the user who maps: what `vmap` refuses is allowed, and a custom
                Function that knows nothing of batches is called for each example.
            tangents: it is a batch of tangents alone, whose values are the same for all examples.
        """
        self.loops = loops
        self.size = size
        self.randomness = randomness
        self.outer = outer
        self.tangents = tangents
        self.depth: int = 1 if outer is None else outer.depth + 1


def bind_face(face: Any) -> None:
    """Say what makes a batched tensor."""
    _face[:] = [face]


def lift_batch(value: Variable, level: Level) -> Any:
    """The examples of a tensor whose first axis is the batch."""
    out: Any = _face[0]()
    out._value = value
    out._level = level
    out._metadata = _example(value._metadata)
    out._edge = None
    out._counter = None
    out._autograd = None
    return out


def _example(batch: Metadata) -> Metadata:
    """The record of one example of a batch: `special`, so that dispatch takes the general way."""
    record = _examples.get(batch)
    if record is None:
        if len(_examples) >= _CACHE_LIMIT:
            _examples.clear()
        shape = batch.shape[1:]
        size = 1
        for n in shape:
            size *= n
        record = _examples[batch] = Metadata(
            shape,
            batch.dtype,
            batch.device,
            batch.F,
            user_dtype=batch.user_dtype,
            size=size,
            cost=batch.cost,
            is_complex=batch.is_complex,
            is_float=batch.dtype.kind == "f",
        )
        record.special = True
    return record


def level_of(values: Any) -> Level | None:
    """The innermost level among some values, None if nothing is batched."""
    found: Level | None = None
    for value in values:
        if getattr(value, "_batched", False) and (
            found is None or value._level.depth > found.depth
        ):
            found = value._level
    return found


def evaluate(op: Op, inputs: tuple[Any, ...], attributes: tuple[Any, ...]) -> Any:
    """An operation of the table on batched tensors; None if none of its inputs is one."""
    level = level_of(inputs)
    if level is None:
        return None
    rule: Any = RULES.get(op.name, by_example)
    flags = tuple([x._batched and x._level is level for x in inputs])
    values = [x._value if flag else x for x, flag in zip(inputs, flags, strict=True)]
    return lift_batch(rule(Call(op.name, level.size, flags), *values, *attributes), level)


def batch_of(x: Any, level: Level) -> Any:
    """The batch that a tensor is an example of at a level, or it repeated."""
    return x._value if x._batched and x._level is level else in_front(x, level.size)


def unwrap_batch(x: Any, level: Level | None) -> Any:
    """The tensor that holds the batches of a level and all round it, outermost first."""
    if level is None:
        return x
    return unwrap_batch(x if level.tangents else batch_of(x, level), level.outer)


def wrap_batch(x: Any, level: Level | None) -> Any:
    """One example of a tensor that holds the batches of a level and all round it."""
    if level is None:
        return x
    outer = wrap_batch(x, level.outer)
    return outer if level.tangents else lift_batch(outer, level)


def bottom(x: Any) -> Any:
    """The tensor with the memory of an example; any other tensor is its own."""
    while x._batched:
        x = x._value
    return x


def join(tensors: tuple[Any, ...], dim: int, join_all: Callable[..., Any]) -> Any:
    """`cat` of tensors among which are batched ones; None if there are none."""
    level = level_of(tensors)
    if level is None:
        return None
    return lift_batch(join_all([batch_of(x, level) for x in tensors], dim + 1), level)


def together(*tensors: Any) -> tuple[Level, tuple[Any, ...]]:
    """Some tensors, of which one is batched, all with the batch as their first axis; None stays."""
    level = level_of(tensors)
    assert level is not None
    return level, tuple([None if x is None else batch_of(x, level) for x in tensors])


def mapped(function: Callable[..., Any], *tensors: Any) -> Any:
    """What a function makes of tensors with the batch in front, with the batch out of sight.

    Args:
        function: gives a tensor, or a tuple of tensors of any kind, with the batch in front.
        tensors: of which one is batched.
    """
    level, values = together(*tensors)
    out = function(*values)
    if not isinstance(out, tuple):
        return lift_batch(out, level)
    return _again(out, [lift_batch(part, level) for part in out])


def _again(like: tuple[Any, ...], parts: list[Any]) -> Any:
    """A tuple or named tuple with other parts."""
    kind: Any = type(like)
    return kind(*parts) if hasattr(like, "_fields") else kind(parts)


def for_each(x: Any, like: Any) -> Any:
    """One copy of a tensor for each example that another one is of, to be changed by itself."""
    if not getattr(like, "_batched", False):
        return x
    level = like._level
    return lift_batch(RECORDED.clone(in_front(for_each(x, like._value), level.size)), level)


def by_parts(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What a function makes of one example after the other, for what reads values."""
    leaves = [part for arg in (*args, *kwargs.values()) for part in _parts(arg)]
    level = level_of(leaves)
    assert level is not None

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
    """One example of an argument; what has none is the same for all."""
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
    return RECORDED.cat([RECORDED.reshape(x, (1, *x.shape)) for x in tensors], 0)


def drawn(draw: Callable[[tuple[int, ...]], Any], shape: tuple[int, ...]) -> Any:
    """Random numbers within a `vmap`: for each example its own, or the same for all.

    Args:
        draw: makes a tensor of a shape.
        shape: the shape for one example.
    """
    level: Level = current().batch
    check_randomness()
    with Mode(batch=level.outer):
        if level.randomness == "same":
            return draw(shape)
        return lift_batch(draw((level.size, *shape)), level)


def drawn_for(function: Callable[[Any], Any], x: Any) -> Any:
    """What a random function makes of a tensor that has the batch in front; None for "same"."""
    level: Level = current().batch
    check_randomness()
    if level.randomness == "same":
        return None
    with Mode(batch=level.outer):
        return lift_batch(function(batch_of(x, level)), level)


def drawn_into(fill: Callable[..., Any]) -> Callable[..., Any]:
    """A function that fills a tensor with random numbers, for each example with its own."""

    @functools.wraps(fill)
    def filled(input: Any, *args: Any, **kwargs: Any) -> Any:
        level = current().batch
        if level is None or level.randomness != "different":
            return fill(input, *args, **kwargs)
        if not (getattr(input, "_batched", False) and input._level is level):
            raise AutogradError(
                f"vmap: Cannot ask for different inplace randomness on an unbatched tensor: "
                f"{fill.__name__} would have to put a batch into one tensor. Use the form that is "
                f"not in place."
            )
        with Mode(batch=level.outer):
            filled(input._value, *args, **kwargs)
        return input

    return filled


def check_randomness() -> None:
    """Raise inside of a `vmap` that was not told what random numbers should be."""
    if current().batch.randomness == "error":
        raise AutogradError(
            "vmap: called random operation while in randomness error mode. Please either use the "
            "'same' or 'different' randomness flags on vmap or perform the randomness operation "
            "out of vmap"
        )
