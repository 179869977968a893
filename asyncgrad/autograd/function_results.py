"""Connect the results of a Function's `forward` to its node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from asyncgrad.aliases import StoredEdge, Value
from asyncgrad.autograd.function_modes import among, place_of, push_function
from asyncgrad.autograd.function_node import FunctionNode
from asyncgrad.core.anomaly import remember
from asyncgrad.core.frames import warn
from asyncgrad.core.modes import current
from asyncgrad.core.node import as_edge, connect
from asyncgrad.core.node_streams import note_streams
from asyncgrad.core.saved import SavedTensor
from asyncgrad.core.variable import (
    Variable,
    View,
    bump_version,
    counter_of,
    gradient_edge,
    requires_grad,
    view_of,
    wrap,
)
from asyncgrad.core.versions import refuse_change
from asyncgrad.errors import AutogradError, class_of
from asyncgrad.ops.promotion import category
from asyncgrad.ops.tensors import in_place


def connected(
    ctx: FunctionNode, args: tuple[Any, ...], output: Value, computed: Value, *, recording: bool,
    separate: bool,
) -> Any:  # fmt: skip
    """The results of `forward` as the caller receives them, connected to the node."""
    single = not isinstance(output, tuple)
    outputs = (output,) if single else output
    _check_dirty(ctx, outputs)
    tensors = [value for value in args if isinstance(value, Variable)]
    if separate:
        _check_saved(ctx, outputs, tensors)
    if recording:
        for number, value in enumerate(ctx.to_save):
            if value is not None and not isinstance(value, Variable):
                raise TypeError(
                    f"save_for_backward can only save variables, but argument {number} is of type "
                    f"{class_of(value)}"
                )
        ctx._tensors = tuple(isinstance(value, Variable) for value in args)
        metadata = tuple(x._metadata if isinstance(x, Variable) else None for x in outputs)
        ctx._check_names(tensors[0]._metadata.device)
        connect(
            ctx,
            tuple([gradient_edge(value) for value in tensors]),
            metadata[0] if len(metadata) == 1 and metadata[0] is not None else metadata,
            cost=5_000 + 4 * sum(x._metadata.cost for x in (*tensors, *_tensors_of(outputs))),
        )
        modes = current()
        if modes.anomaly:
            remember(ctx, modes)
        if modes.streams is not None:
            note_streams(ctx, modes.streams)
    results = tuple(
        _result(ctx, number, outputs, tensors, recording) if isinstance(value, Variable) else value
        for number, value in enumerate(outputs)
    )
    if len(results) > 1:
        results = _united(results, outputs, tensors)
    modes = current()
    if modes.dual_level is not None and modes.forward and not modes.inference:
        push_function(ctx, ctx._forward_cls.jvp, args, outputs, results)
    if recording:
        if not ctx._materialize_non_diff_grads:
            ctx._non_differentiable = frozenset(
                number for number, x in enumerate(outputs) if among(x, ctx.non_differentiable)
            )
        _keep(ctx, outputs)
    own = vars(ctx)
    for name in ("to_save", "saved_for_forward", "dirty_tensors", "non_differentiable"):
        own.pop(name, None)
    if recording and computed:
        _note_hidden(ctx, args, outputs, computed)
    return results[0] if single else results


def _united(
    results: tuple[Any, ...], outputs: tuple[Any, ...], tensors: list[Any]
) -> tuple[Any, ...]:
    """Give a tensor that `forward` returned several times one result: the last."""
    last = {id(value): result for value, result in zip(outputs, results, strict=True)}
    return tuple(
        last[id(value)] if isinstance(value, Variable) and not among(value, tensors) else result
        for value, result in zip(outputs, results, strict=True)
    )


def _tensors_of(values: Sequence[Any]) -> list[Any]:
    return [value for value in values if isinstance(value, Variable)]


def _check_dirty(ctx: FunctionNode, outputs: tuple[Any, ...]) -> None:
    if not all(among(tensor, outputs) for tensor in ctx.dirty_tensors):
        raise AutogradError(
            "Some elements marked as dirty during the forward method were not returned as output. "
            "The inputs that are modified inplace must all be outputs of the Function."
        )


def _check_saved(ctx: FunctionNode, outputs: tuple[Any, ...], tensors: list[Any]) -> None:
    """Raise if `setup_context` saves an input that is also an output: which is meant is unclear."""
    saved = (*ctx.to_save, *ctx.saved_for_forward)
    for value in outputs:
        if among(value, tensors) and among(value, saved) and not among(value, ctx.dirty_tensors):
            raise AutogradError(
                "An input that has been returned as-is as output is being saved for backward. This "
                "is not supported if you override setup_context. You should return and save a view "
                "of the input instead, e.g. with x.view_as(x) or setup ctx inside the forward "
                "function itself."
            )


def _result(
    ctx: FunctionNode, number: int, outputs: tuple[Any, ...], tensors: list[Any], recording: bool
) -> Any:
    """One result as the caller receives it."""
    value = outputs[number]
    given = among(value, tensors)
    dirty = among(value, ctx.dirty_tensors)
    if dirty:
        bump_version(value)
    flows = (
        recording
        and category(value._metadata.dtype) >= 2
        and not among(value, ctx.non_differentiable)
    )
    if not flows:
        if given and not dirty:
            return view_of_input(value, None)
        view = view_of(value)
        if view is None and not given and requires_grad(value):
            # `forward` has recorded its computation, or returns a tensor from elsewhere.
            return value.detach()
        if view is not None and view.creation_meta == "no_grad_mode" and current().grad:
            view.creation_meta = "in_custom_function"
        return value
    edge = ctx._edge_of(number)
    if dirty and given:
        _rebase_dirty(value, edge, outputs)
        return value
    if dirty:
        if view_of(value) is not None:
            raise AutogradError(
                "ctx.mark_dirty() received a tensor that was not an input. It is a view of what "
                "forward() has computed: there is no need to mark it."
            )
        warn(
            "Only input Tensors should be given to ctx.mark_dirty(). If a Tensor is not an input, "
            "there is no need to pass it to mark_dirty()."
        )
    if given or view_of(value) is not None:
        return view_of_input(value, edge)
    result = wrap(value._array, value._metadata, edge)
    result._counter = counter_of(value)
    return result


def view_of_input(value: Value, edge: StoredEdge) -> Any:
    """A result that is a view of an input or of its base."""
    view = view_of(value)
    counter = counter_of(value)
    result = wrap(value._array, value._metadata, edge)
    result._counter = counter
    base = value if view is None else view.base
    if edge is not None:
        node: Any = as_edge(edge).node
        creation_meta = "in_custom_function" if node.num_inputs == 1 else "multi_output_node"
        result._autograd = View(base, None, counter.value, creation_meta)
        counter.register(result)
    elif not requires_grad(value):
        result._autograd = View(base, None, counter.value, "no_grad_mode")
    return result


def _rebase_dirty(value: Value, edge: StoredEdge, outputs: tuple[Any, ...]) -> None:
    """Make the node the grad_fn of an input that was changed in place."""
    meta = value._autograd
    view = view_of(value)
    if view is not None and view.creation_meta is not None:
        refuse_change(view.creation_meta, indirect=False, edge=value._edge)
    if view is not None and len(_tensors_of(outputs)) > 1:
        raise AutogradError(
            "If your Function modifies inplace an input that is a view of another Tensor, it can't "
            "return more than one Tensor. Clone the view before, or split the Function."
        )
    if value._edge is None and meta is not None and meta.requires_grad:
        raise AutogradError(
            "a leaf Variable that requires grad has been used in an in-place operation."
        )
    if view is not None and view.base._edge is None and requires_grad(view.base):
        raise AutogradError(
            "a view of a leaf Variable that requires grad is being used in an in-place operation."
        )
    in_place.rebase(value, edge)


def _keep(ctx: FunctionNode, outputs: tuple[Any, ...]) -> None:
    kept: list[tuple[SavedTensor | None, int]] = []
    for value in ctx.to_save:
        if value is None:
            kept.append((None, -1))
            continue
        number = place_of(value, outputs)
        saved = SavedTensor(value, current().saved_hooks)
        if number >= 0 and not among(value, ctx.non_differentiable):
            saved.as_output()
        else:
            number = -1
        kept.append((saved, number))
    ctx._kept = tuple(kept)


def _note_hidden(
    ctx: FunctionNode, args: tuple[Any, ...], outputs: tuple[Any, ...], computed: Value
) -> None:
    """Find results of `forward` that are kept as attributes on ctx."""
    hidden = []
    for name, held in vars(ctx).items():
        if name.startswith("_"):
            continue
        values = held.values() if isinstance(held, dict) else held
        for value in values if isinstance(held, (list, tuple, dict)) else (held,):
            if not isinstance(value, Variable) or value._edge is not None:
                continue
            if value in computed and not among(value, args):
                hidden.append((value, place_of(value, outputs)))
    ctx._hidden = tuple(hidden)
