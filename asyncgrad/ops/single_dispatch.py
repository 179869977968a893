"""Dispatch functions of ops on one tensor and attributes: reductions, views, casts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncgrad.core.modes import current
from asyncgrad.core.node import OpNode, next_sequence_nr
from asyncgrad.core.variable import Variable, counter_of, gradient_edge, note_view
from asyncgrad.devices.fp_errors import call_without_fp_errors
from asyncgrad.ops.device_check import reason
from asyncgrad.ops.dispatch import general_dispatch
from asyncgrad.ops.namespace import metadata_of
from asyncgrad.ops.save_plan import plan_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncgrad.ops.op import Op

#: Makes the empty tensor for a result; set by `bind_face`.
_Tensor: Callable[[], Any] = Variable


def bind_face(face: Callable[[], Any]) -> None:
    """Set the function that makes an empty tensor of the users' class."""
    global _Tensor
    _Tensor = face


def single_dispatch(op: Op) -> Callable[..., Any]:
    """The dispatch function of an op on one tensor, followed by attributes."""
    #: Used while a mode is in force; made on first use.
    general: Callable[..., Any] | None = None
    name = op.name
    view = op.view
    cost = op.cost
    plan = plan_of(op, (0,), ()) if op.pulls else None
    sources = None if plan is None else plan.sources
    keeps_out, keeps_input = sources == (("out", 0),), sources == (("input", 0),)
    pick = plan.pick if plan is not None and not plan.guarded else None

    def dispatch(input: Any, *attributes: Any) -> Any:
        nonlocal general
        known = input._metadata
        if not current().plain:
            if general is None:
                general = general_dispatch(op)
            return general(input, *attributes)
        count = len(attributes)
        try:
            # Unrolled for up to three: a call with `*` takes 0.1 us more.
            kernel = known.kernels[name]
            if count == 1:
                array = kernel(input._array, attributes[0])
            elif count == 2:
                array = kernel(input._array, attributes[0], attributes[1])
            elif not count:
                array = kernel(input._array)
            elif count == 3:
                array = kernel(input._array, attributes[0], attributes[1], attributes[2])
            else:
                array = kernel(input._array, *attributes)
        except RuntimeWarning:
            array = call_without_fp_errors(known.kernels[name], input._array, *attributes)
        except TypeError as error:
            raise reason(name, known.device, error, input._array, attributes) from None
        if array.__class__ is not known.F.array_type:
            array = known.F.as_array(array)
        if array.dtype is known.dtype and array.shape == known.shape:
            metadata = known
        else:
            metadata = metadata_of(array, known.device)
        out = _Tensor()
        out._array = array
        out._metadata = metadata
        out._counter = None
        out._autograd = None
        edge = input._edge
        if plan is None or (
            edge is None and (input._autograd is None or (edge := gradient_edge(input)) is None)
        ):
            out._edge = None
            if view:
                note_view(out, input, name, attributes)
            return out
        node = OpNode()
        node.rule = plan.rule
        node.following = edge
        if keeps_out:
            node.saved = array
            node.guard = None
        elif keeps_input:
            node.saved = input._array
            node.guard = counter = input._counter or counter_of(input)
            node.version = counter.value
        elif pick is not None:
            # Inlined `Plan.save` for ops that save no values of the input. Adding tuples is faster
            # than unpacking them.
            flat = (input._array, known.shape, known.dtype, array, metadata.shape)
            node.saved = pick(flat + attributes if count else flat)
            node.guard = None
        else:
            node.guard = None
            plan.save(node, (input,), out, attributes)
        node.extras = None
        node.output_metadata = metadata
        # The gradient has the input's size even if the output is smaller.
        if cost is not None:
            node.cost = cost(input, *attributes)
        else:
            node.cost = known.cost if known.cost > metadata.cost else metadata.cost
        node.sequence_nr = next_sequence_nr()
        node.topological_nr = edge.topological_nr + 1
        out._edge = node
        if view:
            note_view(out, input, name, attributes)
        return out

    dispatch.__name__ = dispatch.__qualname__ = name
    return dispatch
