"""Custom Functions inside of `vmap`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncgrad.core.modes import Mode
from asyncgrad.core.variable import Variable
from asyncgrad.errors import AutogradError
from asyncgrad.ops.api.shape import movedim
from asyncgrad.ops.batching import Level, by_parts, lift_batch
from asyncgrad.ops.tensors.pytree import flatten, spread, unflatten
from asyncgrad.records import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncgrad.aliases import Value


class VmapInfo(NamedTuple):
    """The first argument of a Function's `vmap`."""

    #: How many examples there are.
    batch_size: int
    #: How random numbers behave: "error", "different" or "same".
    randomness: str


def apply_to_examples(
    function: Value, rule: Callable[..., Any] | None, level: Level, args: tuple[Any, ...], *,
    separate: bool,
) -> Any:  # fmt: skip
    """Call a Function on examples of a batch.

    Args:
        rule: its `vmap`, or None.
        level: the level of the batch.
        args: the arguments, at least one of which has the level's batch.
        separate: the Function has a `setup_context`.

    Raises:
        RuntimeError: if the Function has neither `vmap` nor `generate_vmap_rule`, or both.
    """
    name = function.__name__
    if level.loops and rule is None:
        return by_parts(function.apply, *args)
    if not separate:
        raise AutogradError(
            f"In order to use {name} with vmap, you must override the setup_context staticmethod: "
            f"forward() may not take ctx. Save what backward() needs there."
        )
    if rule is None:
        if not function.generate_vmap_rule:
            raise AutogradError(
                f"You tried to vmap over {name}, but it does not have vmap support. Please "
                f"override and implement the vmap staticmethod or set generate_vmap_rule=True."
            )
        return by_parts(function.apply, *args)
    if function.generate_vmap_rule:
        raise AutogradError(
            f"You tried to vmap over {name}, but it has both generate_vmap_rule=True and an "
            f"overridden vmap staticmethod. Please set generate_vmap_rule=False or delete the "
            f"overridden vmap staticmethod to avoid ambiguity."
        )
    leaves, structure = flatten(args)
    flags = [getattr(x, "_batched", False) and x._level is level for x in leaves]
    values = [x._value if flag else x for x, flag in zip(leaves, flags, strict=True)]
    with Mode(batch=level.outer):
        found = rule(
            VmapInfo(level.size, level.randomness),
            unflatten(structure, [0 if flag else None for flag in flags]),
            *unflatten(structure, values),
        )
        if not (isinstance(found, tuple) and len(found) == 2):
            raise AutogradError(
                f"{name}.vmap: Expected the vmap staticmethod to have two returns, an output and "
                f"out_dims with pytree structure compatible with the output, got {type(found)}"
            )
        output, out_dims = found
        outputs, out_structure = flatten(output)
        dims = spread(out_dims, out_structure)
        if dims is None:
            raise AutogradError(
                f"{name}.vmap returned an incompatible (output, out_dims) tuple. Expected "
                f"out_dims={out_dims} to be compatible with the structure of the output, "
                f"{out_structure}."
            )
        shown = [_shown(x, dim, level) for x, dim in zip(outputs, dims, strict=True)]
        return unflatten(out_structure, shown)


def _shown(x: Value, dim: int | None, level: Level) -> Any:
    if dim is None or not isinstance(x, Variable):
        return x
    return lift_batch(movedim(x, dim, 0) if dim else x, level)  # type: ignore[arg-type]
