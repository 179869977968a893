"""How every op is called: compute the result, and record a node if a gradient can flow.

`general_dispatch` handles every op and every mode. The functions of `single_dispatch` and
`elementwise_dispatch` inline the common case and pass any other call on to the general one.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

from asyncgrad.core import variable as _variable
from asyncgrad.core.modes import current
from asyncgrad.core.node import OpNode, max_topological_nr, next_sequence_nr
from asyncgrad.core.rule import Rule
from asyncgrad.core.variable import Variable, counter_of, gradient_edge, note_view, wrap
from asyncgrad.devices.fp_errors import call_without_fp_errors
from asyncgrad.ops import batching
from asyncgrad.ops.device_check import reason
from asyncgrad.ops.mode_hooks import in_modes
from asyncgrad.ops.namespace import metadata_of
from asyncgrad.ops.save_plan import plan_of, together

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncgrad.ops.op import Op
    from asyncgrad.ops.save_plan import Plan

_FIRST = (0,)
#: How many pairs of metadata records a product caches.
_CACHE_LIMIT = 1024
#: Makes the empty tensor for a result; set by `bind_face`.
_Tensor: Callable[[], Any] = Variable


def bind_face(face: Callable[[], Any]) -> None:
    """Set the function that makes an empty tensor of the users' class."""
    global _Tensor
    _Tensor = face
    _variable.bind_face(face)


def general_dispatch(op: Op) -> Callable[..., Any]:
    """The dispatch function of any op: tensors, followed by attributes."""
    name = op.name
    arity = len(op.inputs)
    bare = not op.attributes
    broadcasts = op.broadcasts
    view = op.view
    cost = op.cost
    differentiable = tuple([p for p, key in enumerate(op.inputs) if key in op.pulls])
    plans: dict[Any, Plan] = {}

    def dispatch(*arguments: Any) -> Any:
        if bare:
            inputs: tuple[Any, ...] = arguments
            attributes: tuple[Any, ...] = ()
        else:
            inputs = arguments[:arity]
            attributes = arguments[arity:]
        modes = current()
        plain = modes.plain
        if not plain:
            if modes.batch is not None:
                batched = batching.evaluate(op, inputs, attributes)
                if batched is not None:
                    return batched
            if modes.selection is not None and not view:
                return modes.selection.evaluate(op, dispatch, inputs, attributes)
        first = inputs[0]._metadata
        try:
            # Unrolled for two and three inputs: a call with `*` takes 0.1 us more.
            if arity == 2:
                x, y = inputs
                if bare:
                    array = first.kernels[name](x._array, y._array)
                else:
                    array = first.kernels[name](x._array, y._array, *attributes)
            elif arity == 3 and bare:
                x, y, z = inputs
                array = first.kernels[name](x._array, y._array, z._array)
            else:
                array = first.kernels[name](*[x._array for x in inputs], *attributes)
        except RuntimeWarning:
            arrays = [x._array for x in inputs]
            array = call_without_fp_errors(first.kernels[name], *arrays, *attributes)
        except TypeError as error:
            raise reason(
                name, first.device, error, [x._array for x in inputs], attributes
            ) from None
        if array.__class__ is not first.F.array_type:
            array = first.F.as_array(array)
        metadata = metadata_of(array, first.device)
        out = _Tensor()
        out._array = array
        out._metadata = metadata
        out._edge = None
        out._counter = None
        out._autograd = None
        wanted: tuple[int, ...]
        broadcast: tuple[int, ...] = ()
        if modes.grad:
            if arity == 1:
                x = inputs[0]
                edge = x._edge
                if edge is None and x._autograd is not None:
                    edge = gradient_edge(x)
                if edge is None or not differentiable:
                    return out if plain else in_modes(op, inputs, attributes, out, modes)
                following = edge
                topological_nr = edge.topological_nr
                wanted = _FIRST
            else:
                edges: tuple[Any, ...] = ()
                wanted = ()
                topological_nr = 0
                shape = metadata.shape
                for place in differentiable:
                    x = inputs[place]
                    edge = x._edge
                    if edge is None and x._autograd is not None:
                        edge = gradient_edge(x)
                    if edge is not None:
                        edges += (edge,)
                        wanted += (place,)
                        if edge.topological_nr > topological_nr:
                            topological_nr = edge.topological_nr
                        if broadcasts and x._metadata.shape != shape:
                            broadcast += (place,)
                if not wanted:
                    return out if plain else in_modes(op, inputs, attributes, out, modes)
                following = edges[0] if len(edges) == 1 else edges
            plan = plans.get((wanted, broadcast))
            if plan is None:
                plan = plans[wanted, broadcast] = plan_of(op, wanted, broadcast)
            node = OpNode()
            node.rule = plan.rule
            node.following = following
            node.guard = None
            node.extras = None
            node.output_metadata = metadata
            node.cost = metadata.cost if cost is None else cost(*inputs, *attributes)
            node.sequence_nr = next_sequence_nr()
            node.topological_nr = topological_nr + 1
            plan.save(node, inputs, out, attributes)
            out._edge = node
        return out if plain else in_modes(op, inputs, attributes, out, modes)

    dispatch.__name__ = dispatch.__qualname__ = name
    return view_dispatch(name, dispatch) if view else dispatch


def view_dispatch(name: str, dispatch: Callable[..., Any]) -> Callable[..., Any]:
    """The dispatch function of an op whose result is a view of its first input."""

    def view_door(input: Any, *attributes: Any) -> Any:
        out = dispatch(input, *attributes)
        modes = current()
        if not modes.plain and out._batched:
            return out
        creation = None if modes.grad else "inference" if modes.inference else "no_grad"
        note_view(out, input, name, attributes, creation)
        return out

    view_door.__name__ = view_door.__qualname__ = name
    return view_door


def product_dispatch(op: Op, checked: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The dispatch function of a matrix product.

    A pair of matrix metadata that was multiplied before needs no checks: the cache holds the
    result's metadata.

    Args:
        op: the product of two matrices.
        checked: the function for any operands.
    """
    name = op.name
    plan_x, plan_y, plan_xy = (plan_of(op, wanted, ()) for wanted in ((0,), (1,), (0, 1)))
    # The gradient by `x` comes first and needs `y`; the gradient by `y` needs `x`.
    assert plan_xy.sources == (("input", 1), ("input", 0))
    cost = op.cost
    assert cost is not None
    #: By two matrices' metadata: the product's metadata and the cost of its gradient.
    known: dict[Any, tuple[Any, int]] = {}

    def dispatch(input: Any, other: Any) -> Any:
        try:
            first, second = input._metadata, other._metadata
        except AttributeError:
            return checked(input, other)
        seen = known.get((first, second))
        if seen is None:
            out = checked(input, other)
            if len(first.shape) == 2 and len(second.shape) == 2:
                if len(known) >= _CACHE_LIMIT:
                    known.clear()
                known[first, second] = (out._metadata, cost(input, other))
            return out
        if not current().plain:
            return checked(input, other)
        out = _Tensor()
        try:
            out._array = first.kernels[name](input._array, other._array)
        except RuntimeWarning:
            out._array = call_without_fp_errors(first.kernels[name], input._array, other._array)
        out._metadata = seen[0]
        out._counter = None
        out._autograd = None
        edge = input._edge
        if edge is None and input._autograd is not None:
            edge = gradient_edge(input)
        second_edge = other._edge
        if second_edge is None and other._autograd is not None:
            second_edge = gradient_edge(other)
        node = OpNode()
        if edge is None:
            if second_edge is None:
                out._edge = None
                return out
            node.rule = plan_y.rule
            node.following = second_edge
            node.topological_nr = second_edge.topological_nr + 1
            node.saved = input._array
            node.guard = counter = input._counter or counter_of(input)
            node.version = counter.value
        elif second_edge is None:
            node.rule = plan_x.rule
            node.following = edge
            node.topological_nr = edge.topological_nr + 1
            node.saved = other._array
            node.guard = counter = other._counter or counter_of(other)
            node.version = counter.value
        else:
            node.rule = plan_xy.rule
            node.following = (edge, second_edge)
            # Not `max`, which takes 0.1 us.
            number, other_number = edge.topological_nr, second_edge.topological_nr
            node.topological_nr = (number if number > other_number else other_number) + 1
            node.saved = (other._array, input._array)
            counter = input._counter or counter_of(input)
            counters = (other._counter or counter_of(other), counter)
            node.guard = counters
            node.version = (counters[0].value, counter.value)
        node.extras = None
        node.output_metadata = seen[0]
        node.cost = seen[1]
        node.sequence_nr = next_sequence_nr()
        out._edge = node
        return out

    dispatch.__name__ = dispatch.__qualname__ = "matmul"
    dispatch.__doc__ = checked.__doc__
    return dispatch


def sequence_dispatch(op: Op) -> Callable[..., Any]:
    """The dispatch function of an op on a sequence of tensors of one dtype.

    Its pull is called for one tensor at a time, with the tensor's place. A pull with a parameter
    `ends` also gets where each tensor ends along the axis, which is the op's first attribute.
    """
    name = op.name
    pull = op.pulls["*xs"].function
    ended = "ends" in op.pulls["*xs"].names
    names = ("ends", *op.attributes) if ended else op.attributes
    #: By the places of the tensors that require grad, followed by the number of tensors.
    rules: dict[tuple[int, ...], Rule] = {}

    def one(place: int) -> Callable[[Any, Any, Any], Any]:
        if ended:
            return lambda F, g, saved: pull(F, g, place, *saved)
        return lambda F, g, saved: pull(F, g, place, saved)

    def rule_of(wanted: tuple[int, ...], arity: int) -> Rule:
        pulls = tuple([one(place) for place in wanted])
        return Rule(
            op.node_name,
            pulls[0] if len(wanted) == 1 else together(pulls),
            pulls=pulls if len(wanted) > 1 else None,
            fresh=op.fresh,
            places=wanted,
            arity=arity,
            names=names,
        )

    def dispatch(tensors: Any, *attributes: Any) -> Any:
        inputs = tuple(tensors)
        modes = current()
        if modes.batch is not None:
            batched = batching.join(inputs, attributes[0], dispatch)
            if batched is not None:
                return batched
        metadata = inputs[0]._metadata
        arrays = [x._array for x in inputs]
        try:
            array = metadata.F.as_array(metadata.kernels[name](arrays, *attributes))
        except TypeError as error:
            raise reason(name, metadata.device, error, arrays) from None
        out = wrap(array, metadata.F.metadata_of(array))
        edges = tuple(map(gradient_edge, inputs)) if modes.grad else ()
        wanted = tuple([place for place, edge in enumerate(edges) if edge is not None])
        if wanted:
            key = (*wanted, len(inputs))
            rule = rules.get(key)
            if rule is None:
                if len(rules) >= _CACHE_LIMIT:
                    rules.clear()
                rule = rules[key] = rule_of(wanted, len(inputs))
            node = OpNode()
            node.rule = rule
            node.following = (
                edges[wanted[0]] if len(wanted) == 1 else tuple([edges[p] for p in wanted])
            )
            (node.saved,) = attributes
            if ended:
                lengths = [x._metadata.shape[attributes[0]] for x in inputs]
                node.saved = (tuple(accumulate(lengths)), *attributes)
            node.guard = None
            node.extras = None
            node.output_metadata = out._metadata
            node.cost = out._metadata.cost
            node.sequence_nr = next_sequence_nr()
            node.topological_nr = 1 + max_topological_nr(node.following)
            out._edge = node
        return out if modes.plain else in_modes(op, inputs, attributes, out, modes)

    dispatch.__name__ = dispatch.__qualname__ = name
    return dispatch
