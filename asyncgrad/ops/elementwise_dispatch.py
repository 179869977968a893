"""Dispatch functions of elementwise ops, with the common case inlined.

The common case is floating tensors alike in shape, dtype and device, or a tensor and a number, with
no mode in force. Any other call is passed on to slower functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncgrad.core.modes import current
from asyncgrad.core.node import OpNode, next_sequence_nr
from asyncgrad.core.variable import Variable, counter_of, gradient_edge
from asyncgrad.devices.fp_errors import call_without_fp_errors
from asyncgrad.ops.dispatch import general_dispatch
from asyncgrad.ops.namespace import metadata_of
from asyncgrad.ops.promotion import check_broadcast
from asyncgrad.ops.save_plan import plan_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncgrad.ops.op import Op
    from asyncgrad.ops.save_plan import Plan

#: Makes the empty tensor for a result; set by `bind_face`.
_Tensor: Callable[[], Any] = Variable

#: What a node saves: nothing, one operand, a number, the first operand and a number, the output, or
#: what the plan says.
_NOTHING, _X, _Y, _NUMBER, _X_AND_NUMBER, _OUT, _OTHER = range(7)
_KEPT = {
    (): _NOTHING,
    (("input", 0),): _X,
    (("input", 1),): _Y,
    (("attribute", 0),): _NUMBER,
    (("input", 0), ("attribute", 0)): _X_AND_NUMBER,
    (("out", 0),): _OUT,
}


def bind_face(face: Callable[[], Any]) -> None:
    """Set the function that makes an empty tensor of the users' class."""
    global _Tensor
    _Tensor = face


def unary_dispatch(
    op: Op, general: Callable[..., Any], accept: Callable[[Any], Any]
) -> Callable[[Any], Any]:
    """The dispatch function of a differentiable unary elementwise op that keeps the dtype.

    Args:
        op: the op.
        general: its dispatch function for any tensor.
        accept: converts any other input to a floating tensor, or raises.
    """
    name = op.name
    plan = plan_of(op, (0,), ())
    rule = plan.rule
    kept = _KEPT.get(plan.sources, _OTHER)

    def dispatch(input: Any) -> Any:
        try:
            metadata = input._metadata
        except AttributeError:
            return general(accept(input))
        if metadata.special or not current().plain:
            return general(accept(input))
        try:
            array = metadata.kernels[name](input._array)
        except RuntimeWarning:
            array = call_without_fp_errors(metadata.kernels[name], input._array)
        out = _Tensor()
        out._array = array
        out._metadata = metadata
        out._counter = None
        out._autograd = None
        edge = input._edge
        if edge is None and (input._autograd is None or (edge := gradient_edge(input)) is None):
            out._edge = None
            return out
        node = OpNode()
        node.rule = rule
        node.following = edge
        if kept == _OUT:
            node.saved = array
            node.guard = None
        elif kept == _X:
            node.saved = input._array
            node.guard = counter = input._counter or counter_of(input)
            node.version = counter.value
        elif kept == _NOTHING:
            node.saved = None
            node.guard = None
        else:
            node.guard = None
            plan.save(node, (input,), out, ())
        node.extras = None
        node.output_metadata = metadata
        node.cost = metadata.cost
        node.sequence_nr = next_sequence_nr()
        node.topological_nr = edge.topological_nr + 1
        out._edge = node
        return out

    dispatch.__name__ = dispatch.__qualname__ = name
    return dispatch


def number_dispatch(op: Op, general: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """The dispatch function of an elementwise op on a floating tensor and a number.

    Args:
        op: the op, which has one input and one attribute and keeps the dtype.
        general: its dispatch function for any tensor.
    """
    name = op.name
    plan = plan_of(op, (0,), ())
    rule = plan.rule
    kept = _KEPT.get(plan.sources, _OTHER)

    def dispatch(input: Any, number: Any) -> Any:
        metadata = input._metadata
        if metadata.special or number.__class__ is complex or not current().plain:
            return general(input, number)
        try:
            array = metadata.kernels[name](input._array, number)
        except RuntimeWarning:
            array = call_without_fp_errors(metadata.kernels[name], input._array, number)
        out = _Tensor()
        out._array = array
        out._metadata = metadata
        out._counter = None
        out._autograd = None
        edge = input._edge
        if edge is None and (input._autograd is None or (edge := gradient_edge(input)) is None):
            out._edge = None
            return out
        node = OpNode()
        node.rule = rule
        node.following = edge
        if kept == _NUMBER:
            node.saved = number
            node.guard = None
        elif kept == _X_AND_NUMBER:
            node.saved = (input._array, number)
            node.guard = counter = input._counter or counter_of(input)
            node.version = counter.value
        elif kept == _NOTHING:
            node.saved = None
            node.guard = None
        else:
            node.guard = None
            plan.save(node, (input,), out, (number,))
        node.extras = None
        node.output_metadata = metadata
        node.cost = metadata.cost
        node.sequence_nr = next_sequence_nr()
        node.topological_nr = edge.topological_nr + 1
        out._edge = node
        return out

    dispatch.__name__ = dispatch.__qualname__ = name
    return dispatch


def binary_dispatch(
    op: Op,
    pair: Callable[..., Any],
    meet: Callable[[Any, Any], Any],
    right: Callable[[Any, Any], Any] | None,
) -> Callable[[Any, Any], Any]:
    """The dispatch function of a differentiable binary elementwise op.

    Args:
        op: the op.
        pair: its dispatch function for any two tensors of one dtype.
        meet: handles operands that are not floating tensors of one shape and dtype.
        right: the dispatch function for a floating tensor and a number.
    """
    name = op.name
    plan_x, plan_y, plan_xy = (plan_of(op, wanted, ()) for wanted in ((0,), (1,), (0, 1)))
    kept_x, kept_y, kept_xy = (_KEPT.get(p.sources, _OTHER) for p in (plan_x, plan_y, plan_xy))

    def dispatch(input: Any, other: Any) -> Any:
        kind = other.__class__
        try:
            metadata = input._metadata
            if kind is float or kind is int:
                if metadata.special or right is None:
                    return meet(input, other)
                return right(input, other)
            known = other._metadata
        except AttributeError:
            return meet(input, other)
        if metadata.special:
            return meet(input, other)
        if known is not metadata:
            if known.dtype is metadata.dtype and known.device is metadata.device:
                return pair(input, other)
            return meet(input, other)
        if not current().plain:
            return pair(input, other)
        edge = input._edge
        if edge is None and input._autograd is not None:
            edge = gradient_edge(input)
        second = other._edge
        if second is None and other._autograd is not None:
            second = gradient_edge(other)
        try:
            array = metadata.kernels[name](input._array, other._array)
        except RuntimeWarning:
            array = call_without_fp_errors(metadata.kernels[name], input._array, other._array)
        out = _Tensor()
        out._array = array
        out._metadata = metadata
        out._counter = None
        out._autograd = None
        if edge is None:
            if second is None:
                out._edge = None
                return out
            plan, kept = plan_y, kept_y
            edge, topological_nr = second, second.topological_nr
        elif second is None:
            plan, kept = plan_x, kept_x
            topological_nr = edge.topological_nr
        else:
            plan, kept = plan_xy, kept_xy
            topological_nr = max(edge.topological_nr, second.topological_nr)
            edge = (edge, second)
        node = OpNode()
        node.rule = plan.rule
        node.following = edge
        node.extras = None
        node.output_metadata = metadata
        node.cost = metadata.cost
        node.sequence_nr = next_sequence_nr()
        node.topological_nr = topological_nr + 1
        if kept == _NOTHING:
            node.saved = None
            node.guard = None
        elif kept == _Y:
            node.saved = other._array
            node.guard = counter = other._counter or counter_of(other)
            node.version = counter.value
        elif kept == _X:
            node.saved = input._array
            node.guard = counter = input._counter or counter_of(input)
            node.version = counter.value
        else:
            node.guard = None
            plan.save(node, (input, other), out, ())
        out._edge = node
        return out

    dispatch.__name__ = dispatch.__qualname__ = name
    return dispatch


def pair_dispatch(op: Op) -> Callable[[Any, Any], Any]:
    """The dispatch function of an elementwise op on two tensors of one dtype, broadcast."""
    #: Used while a mode is in force; made on first use.
    general: Callable[..., Any] | None = None
    name = op.name
    #: The plans by which inputs require grad, and which of these are broadcast.
    plans: dict[tuple[bool, bool, bool, bool], Plan] = {}
    first, second = (key in op.pulls for key in op.inputs)

    def dispatch(x: Any, y: Any) -> Any:
        nonlocal general
        known, other_known = x._metadata, y._metadata
        try:
            if not current().plain:
                if general is None:
                    general = general_dispatch(op)
                return general(x, y)
            array = known.kernels[name](x._array, y._array)
        except ValueError:
            check_broadcast(name, x, y)
            raise
        except RuntimeWarning:
            array = call_without_fp_errors(known.kernels[name], x._array, y._array)
        if array.__class__ is not known.F.array_type:
            array = known.F.as_array(array)
        shape = array.shape
        if shape == known.shape and array.dtype is known.dtype:
            metadata = known
        else:
            metadata = metadata_of(array, known.device)
        out = _Tensor()
        out._array = array
        out._metadata = metadata
        out._counter = None
        out._autograd = None
        out._edge = None
        edge = x._edge
        if edge is None and x._autograd is not None:
            edge = gradient_edge(x)
        other = y._edge
        if other is None and y._autograd is not None:
            other = gradient_edge(y)
        to_x, to_y = edge is not None and first, other is not None and second
        if not (to_x or to_y):
            return out
        key = (to_x, to_y, to_x and known.shape != shape, to_y and other_known.shape != shape)
        plan = plans.get(key)
        if plan is None:
            wanted = tuple([place for place in (0, 1) if key[place]])
            broadcast = tuple([place for place in (0, 1) if key[place + 2]])
            plan = plans[key] = plan_of(op, wanted, broadcast)
        node = OpNode()
        node.rule = plan.rule
        if not to_y:
            node.following = edge
            node.topological_nr = edge.topological_nr + 1
        elif not to_x:
            node.following = other
            node.topological_nr = other.topological_nr + 1
        else:
            node.following = (edge, other)
            node.topological_nr = max(edge.topological_nr, other.topological_nr) + 1
        node.guard = None
        node.extras = None
        node.output_metadata = metadata
        node.cost = metadata.cost
        node.sequence_nr = next_sequence_nr()
        plan.save(node, (x, y), out, ())
        out._edge = node
        return out

    dispatch.__name__ = dispatch.__qualname__ = name
    return dispatch


def reflected_dispatch(
    op: Op, meet: Callable[[Any, Any], Any], left: Callable[[Any, Any], Any] | None
) -> Callable[[Any, Any], Any]:
    """The reflected operator of an op, such as `__radd__`.

    Args:
        op: the op.
        meet: handles operands that are not a floating tensor and a number.
        left: the dispatch function for a floating tensor and the number before it.
    """

    def dispatch(self: Any, other: Any) -> Any:
        kind = other.__class__
        if (kind is float or kind is int) and left is not None and not self._metadata.special:
            return left(self, other)
        return meet(other, self)

    dispatch.__name__ = dispatch.__qualname__ = f"__r{op.name}__"
    return dispatch
