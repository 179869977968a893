"""Views: which tensor's memory they share, and how they were taken.

A view has an edge to the node that made it, like any other result. When the base changes in place,
that node belongs to the old values, so the base's counter removes the edges of all live views. A
view's edge is then recomputed from the base when it is next needed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from asyncgrad.errors import AutogradError

if TYPE_CHECKING:
    from asyncgrad.aliases import Array, StoredEdge

_CLARIFY = (
    "Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify your "
    "code by moving both the view and the inplace either both inside the {} block (if you don't "
    "want the inplace to be tracked) or both outside (if you want the inplace to be tracked)."
)
_REMEDIES = {
    "no_grad": _CLARIFY.format("no_grad"),
    "inference": _CLARIFY.format("inference_mode"),
    "several": (
        "This view is the output of a function that returns multiple views. Such functions do not "
        "allow the output views to be modified inplace. You should replace the inplace operation "
        "by an out-of-place one."
    ),
    "function": (
        "This view was created inside a custom Function (or because an input was returned as-is) "
        "and the autograd logic to handle view+inplace would override the custom backward "
        "associated with the custom Function, leading to incorrect gradients. This behavior is "
        "forbidden. You can fix this by cloning the output of the custom Function."
    ),
    "turned": (
        "The axes of its base have been changed in place since the view was taken, and the way to "
        "it is not known any more. Take the view after that, or use the form that is not in place."
    ),
}
#: By creation mode: how such a view was made, and where it may not be changed.
_MADE_IN = {
    "no_grad": ("was created in no_grad mode", " with grad mode enabled"),
    "inference": ("was created in inference mode", " in normal mode"),
    "turned": ("was taken of other axes", ""),
}


class Retains(Protocol):
    """What is read here of a tensor's `AutogradMeta` or `View`."""

    @property
    def retains_grad(self) -> bool:
        """The tensor keeps its gradient."""


class HasEdge(Protocol):
    """What is known here of a tensor."""

    _edge: StoredEdge

    @property
    def _autograd(self) -> Retains | None: ...


def looks_into(array: Array, source: Array) -> bool:
    """Whether two arrays share memory, or may."""
    if array is source:
        return True
    held = getattr(array, "base", None)
    return held is source or (held is not None and held is source.base)


def stop_retaining(variable: HasEdge) -> None:
    """Remove the `retain_grad` entry from the node that the variable leads to."""
    edge: Any = variable._edge
    node, position = edge if isinstance(edge, tuple) else (edge, 0)
    extras = None if node is None else node.extras
    if extras is not None:
        retain = extras.retain.get(position)
        if retain is not None and retain() is variable:
            del extras.retain[position]


def refuse_change(creation: str | None, *, indirect: bool, edge: StoredEdge = None) -> NoReturn:
    """Raise for a view that may not be changed while recording, nor may its base.

    Args:
        creation: why the view can't be changed.
        indirect: its base, or another view of it, has changed, not the view itself.
        edge: the view's stored edge, which names the function that made it.
    """
    made, mode = _MADE_IN.get(creation or "", ("", ""))
    if edge is not None:
        node, number = edge if isinstance(edge, tuple) else (edge, 0)
        function = re.sub(r"Backward\d*$", "", node.name())
        what = f"Output {number} of {function} is a view"
        if made:
            what += f" of a view which {made}"
    else:
        what = f"A view {made}" if made else "The output of a function is a view"
    how = (
        "its base or another view of its base has been modified inplace"
        if indirect
        else "is being modified inplace"
    )
    raise AutogradError(f"{what} and {how}{mode}. {_REMEDIES[creation or 'no_grad']}")
