"""Functions that return several views, whose results share one node.

If each view had a node of its own, each node would make zeros of the whole tensor in the backward
pass: n parts would cost n passes over it. One node concatenates all gradients at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from asyncgrad.core.history import note_view
from asyncgrad.core.modes import current
from asyncgrad.core.node import EDGE_COST, Edge, Node, init_node
from asyncgrad.core.rule import Rule
from asyncgrad.core.variable import gradient_edge, view_of, wrap, zeros_of
from asyncgrad.ops.namespace import RECORDED, metadata_of
from asyncgrad.ops.registry import OPS


def _joined(F: Any, gradients: Any, saved: Any) -> Any:
    """Concatenate the parts' gradients, with zeros for parts that have none."""
    axis, lack_axis, known = saved
    parts = []
    for g, metadata in zip(gradients, known, strict=True):
        if g is None:
            zeros = zeros_of(metadata)
            g = zeros if F is RECORDED else zeros._array
        if lack_axis:
            shape = metadata.shape
            g = F.reshape(g, (*shape[:axis], 1, *shape[axis:]))
        parts.append(g)
    return F.cat(parts, axis)


class _Parts(Node):
    """What it saves are the arguments of `_joined`."""

    __slots__ = ()

    _applied_rule = Rule("SplitBackward0", _joined, fresh=True)
    fresh = True
    sees_modes = False
    direct = True
    #: The parts lack the axis along which the tensor was divided.
    lack_axis = False

    def apply(self, gradients: tuple[Any, ...], task: Any) -> Any:
        """Join the gradients, if there are any."""
        if all([g is None for g in gradients]):  # noqa: C419  a list takes half the time
            return (None,)
        recorded = task is None or task.recorded is not None
        F = RECORDED if recorded else self.output_metadata[0].F
        run = self._applied_rule.run
        if task is not None and task.watch is not None:
            run = partial(task.watch.call, self, self._applied_rule, None)
        return (run(F, gradients, self.saved),)


def _class(name: str, *, lack_axis: bool = False) -> Any:
    return type(name, (_Parts,), {"__slots__": (), "lack_axis": lack_axis})


#: The nodes of `split` into parts of equal and of given lengths, and of `unbind`.
SplitBackward0 = _class("SplitBackward0")
SplitWithSizesBackward0 = _class("SplitWithSizesBackward0")
UnbindBackward0 = _class("UnbindBackward0", lack_axis=True)


def several(
    x: Any, name: str, places: Sequence[tuple[Any, ...]], kind: type[_Parts], axis: int
) -> tuple[Any, ...]:
    """Views of one tensor as the results of one function, which share a node of a class.

    An op makes the views, with the attributes in `places`, in order along an axis. As in PyTorch,
    none of them may be changed in place.
    """
    modes, known = current(), x._metadata
    recorder = modes.recorder
    plain = modes.plain or modes.replace(recorder=None).plain
    shared = len(places) > 1 and plain and modes.grad and not known.device.streamed
    edge = gradient_edge(x) if shared else None
    parts: list[Any] = []
    if edge is None:
        for place in places:
            part = getattr(RECORDED, name)(x, *place)
            seen = view_of(part)
            if seen is not None and seen.creation_meta is None:
                seen.creation_meta = "multi_output_node"
            parts.append(part)
        return tuple(parts)
    node = kind()
    view = known.kernels[name]
    for place in places:
        array = view(x._array, *place)
        part = wrap(array, metadata_of(array, known.device), Edge(node, len(parts)))
        note_view(part, x, name, place, "multi_output_node")
        if recorder is not None:
            recorder.computed(OPS[name], (x,), place, part)
        parts.append(part)
    metadata = tuple([part._metadata for part in parts])
    init_node(node, edge, metadata, known.cost + EDGE_COST * len(parts))
    node.saved = axis, node.lack_axis, metadata
    return tuple(parts)
