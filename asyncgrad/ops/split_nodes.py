"""Functions that return several views, whose results share one node.

If each view had a node of its own, each node would make zeros of the whole tensor in the backward
pass: n parts would cost n passes over it. One node concatenates all gradients at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncgrad.core.history import note_view
from asyncgrad.core.modes import current
from asyncgrad.core.node import Edge, Node, init_node
from asyncgrad.core.variable import gradient_edge, view_of, wrap, zeros_of
from asyncgrad.ops.namespace import RECORDED, metadata_of

if TYPE_CHECKING:
    from collections.abc import Sequence


class _Parts(Node):
    __slots__ = ("axis",)
    axis: int

    fresh = True
    sees_modes = False
    direct = True

    def apply(self, gradients: tuple[Any, ...], task: Any) -> Any:
        """Concatenate the parts' gradients, with zeros for parts that have none."""
        if all([g is None for g in gradients]):  # noqa: C419  a list takes half the time
            return (None,)
        metadata = self.output_metadata
        recorded = task is None or task.recorded is not None
        F = RECORDED if recorded else metadata[0].F
        parts = []
        for g, known in zip(gradients, metadata, strict=True):
            if g is None:
                zeros = zeros_of(known)
                g = zeros if recorded else zeros._array
            parts.append(self._shaped(F, g, known.shape))
        return (F.cat(parts, self.axis),)

    def _shaped(self, F: Any, g: Any, shape: tuple[int, ...]) -> Any:
        """A part's gradient, with the axis along which the parts are concatenated."""
        return g


class SplitBackward0(_Parts):
    """The node of `split` and `chunk` into parts of equal length."""

    __slots__ = ()


class SplitWithSizesBackward0(_Parts):
    """The node of `split` into parts of given lengths."""

    __slots__ = ()


class UnbindBackward0(_Parts):
    """The node of `unbind`, whose parts lack the split axis."""

    __slots__ = ()

    def _shaped(self, F: Any, g: Any, shape: tuple[int, ...]) -> Any:
        return F.reshape(g, (*shape[: self.axis], 1, *shape[self.axis :]))


def several(
    x: Any, name: str, places: Sequence[tuple[Any, ...]], kind: type[_Parts], axis: int
) -> tuple[Any, ...]:
    """Views of one tensor as the results of one function, which share a node.

    As in PyTorch, none of them may be changed in place.

    Args:
        name: the op that makes a view.
        places: the op's attributes for each part along an axis, in order.
        kind: the class of the shared node.
    """
    modes, known = current(), x._metadata
    shared = len(places) > 1 and modes.plain and modes.grad and not known.device.streamed
    edge = gradient_edge(x) if shared else None
    parts: list[Any] = []
    if edge is None:
        for place in places:
            part = getattr(RECORDED, name)(x, *place)
            seen = view_of(part)
            if seen is not None and seen.creation is None:
                seen.creation = "several"
            parts.append(part)
        return tuple(parts)
    node = kind()
    view = known.kernels[name]
    for place in places:
        array = view(x._array, *place)
        part = wrap(array, metadata_of(array, known.device), Edge(node, len(parts)))
        note_view(part, x, name, place, "several")
        parts.append(part)
    init_node(node, edge, tuple([part._metadata for part in parts]), known.cost)
    node.axis = axis
    return tuple(parts)
