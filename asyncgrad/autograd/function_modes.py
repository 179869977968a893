"""Custom Functions in forward mode, where their `jvp` is called, and inside of `vmap`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import iscoroutinefunction
from typing import Any

from asyncgrad.aliases import Value
from asyncgrad.core.modes import Mode, current, install
from asyncgrad.core.variable import Variable, version_of, view_of, zeros_of
from asyncgrad.errors import AutogradError
from asyncgrad.ops.api.shape import movedim
from asyncgrad.ops.batching import Level, bottom, by_parts, lift_batch
from asyncgrad.ops.forward import change_tangent, check_tangent, tangent_of
from asyncgrad.ops.promotion import category
from asyncgrad.ops.tensors.pytree import flatten, spread, unflatten
from asyncgrad.records import NamedTuple


def among(value: Value, values: Sequence[Any]) -> bool:
    """Whether a value is in a sequence, by identity: `in` would compare tensors elementwise."""
    # Loops here and below, because a generator would double the time.
    for other in values:  # noqa: SIM110
        if other is value:
            return True
    return False


def place_of(value: Value, values: Sequence[Any]) -> int:
    """The place of a value in a sequence, by identity, or -1."""
    for place, other in enumerate(values):
        if other is value:
            return place
    return -1


# -- in forward mode ------------------------------------------------------------------------------


def push_function(
    ctx: Any, jvp: Callable[..., Any], args: Sequence[Any], outputs: tuple[Any, ...],
    results: tuple[Any, ...],
) -> None:  # fmt: skip
    """Compute the tangents of a Function's results at all open levels.

    `forward` has returned `outputs`; `apply` gives the caller `results` in their place.
    """
    given = [x for x in args if isinstance(x, Variable)]
    for result in results:
        if not isinstance(result, Variable) or among(result, given):
            continue
        if any(result._array is x._array for x in given):
            # Tangents are kept by array: a result that shares an argument's array needs a view.
            result._array = result._array.view()
    modes = current()
    for level in modes.dual_level.chain():
        install(level.around(modes).replace(forward=level.outer is not None))
        try:
            held = [tangent_of(x, level) if isinstance(x, Variable) else None for x in args]
            if any(t is not None for t in held):
                _push(ctx, jvp, args, outputs, results, held, level)
        finally:
            install(modes)


def _push(
    ctx: Any, jvp: Callable[..., Any], args: Value, outputs: Value, results: Value, held: list[Any],
    level: Any,
) -> None:  # fmt: skip
    tangents = [
        zeros_of(x._metadata)
        if t is None
        and ctx.materialize_grads
        and isinstance(x, Variable)
        and category(x._metadata.dtype) >= 2
        else t
        for x, t in zip(args, held, strict=True)
    ]
    versions = [None if t is None else version_of(bottom(t)) for t in tangents]
    returned = jvp(ctx, *tangents)
    if not isinstance(returned, tuple):
        returned = (returned,)
    if len(returned) != len(results):
        raise AutogradError(
            f"Function's jvp returned an invalid number of forward gradients (expected "
            f"{len(results)} but got {len(returned)})"
        )
    for place, (tangent, output, result) in enumerate(zip(returned, outputs, results, strict=True)):
        if tangent is not None and not isinstance(tangent, Variable):
            raise AutogradError(
                f"expected Variable or None (got {type(tangent).__name__}) for grad output {place}."
            )
        differentiable = (
            isinstance(result, Variable)
            and category(result._metadata.dtype) >= 2
            and not among(output, ctx.non_differentiable)
        )
        if not differentiable:
            if tangent is not None:
                raise AutogradError(
                    f"Function's jvp returned a gradient at position {place}, but the "
                    f"corresponding forward output is not a differentiable Tensor. You should "
                    f"return None at that position instead."
                )
            continue
        if tangent is not None:
            check_tangent(result._metadata.shape, tangent._metadata.shape)
        if among(output, ctx.dirty_tensors):
            source = place_of(output, args)
            assert source >= 0
            if held[source] is None:
                if tangent is not None:
                    change_tangent(result, tangent, level)
            else:
                _check_changed(tangent, held[source], versions[source])
            continue
        if tangent is not None:
            _check_view(output, args, held, tangent)
        level.set(result._array, tangent)


def _check_changed(tangent: Value, held: Value, version: int | None) -> None:
    """Raise unless `jvp` changed the tangent of a dirty argument in place and returned it."""
    if version_of(bottom(held)) == version:
        raise AutogradError(
            "An inplace custom Function is not modifying the forward mode gradients inplace. If "
            "the forward is modifying an input inplace, then the jvp function must modify the "
            "corresponding gradient inplace."
        )
    if tangent is not held:
        raise AutogradError(
            "An inplace custom Function is not returning the forward mode gradients as-is. If "
            "the forward is modifying an input inplace, then the jvp function must modify the "
            "gradient inplace and return it as-is."
        )


def _check_view(output: Value, args: Value, held: list[Any], tangent: Value) -> None:
    """Raise unless the tangent of a view of an argument is a view of the argument's tangent."""
    source = place_of(_base(output), [_base(x) if isinstance(x, Variable) else x for x in args])
    if source < 0 or held[source] is None:
        return
    if view_of(bottom(tangent)) is None:
        raise AutogradError(
            "A custom Function's forward is returning a view (or an input as-is) but the jvp is "
            "not returning a view."
        )
    if _base(tangent) is not _base(held[source]):
        of = "the given grad input"
        if view_of(bottom(held[source])) is not None:
            of = f"the same base as {of}"
        raise AutogradError(
            f"A custom Function's forward is returning a view but the jvp is not returning a view "
            f"of {of}."
        )


def _base(x: Value) -> Any:
    x = bottom(x)
    view = view_of(x)
    return x if view is None else view.base


# -- inside of `vmap` -----------------------------------------------------------------------------


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
    """Call a Function on examples of a batch; `separate`: it has a `setup_context`."""
    name = function.__name__
    if iscoroutinefunction(rule or function.forward):
        raise AutogradError(
            f"{name}: vmap can't await a coroutine function, and forward() (or the vmap "
            f"staticmethod, if there is one) is one. Override vmap by a function that awaits "
            f"nothing."
        )
    if level.loops and rule is None:
        return _one_by_one(function, args)
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
        return _one_by_one(function, args)
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


def _one_by_one(function: Value, args: tuple[Any, ...]) -> Any:
    """Call a Function once for each example; what it returns beside tensors is the last one's."""
    given, structure = flatten(args)
    last: list[Any] = []

    def tensors(*given: Value) -> tuple[Variable, ...]:
        last[:] = flatten(function.apply(*unflatten(structure, given)))
        return tuple([x for x in last[0] if isinstance(x, Variable)])

    batches = iter(by_parts(tensors, *given))
    outputs, out_structure = last
    return unflatten(
        out_structure, [next(batches) if isinstance(x, Variable) else x for x in outputs]
    )


def _shown(x: Value, dim: int | None, level: Level) -> Any:
    if dim is None or not isinstance(x, Variable):
        return x
    return lift_batch(movedim(x, dim, 0) if dim else x, level)  # type: ignore[arg-type]
