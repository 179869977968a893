"""Views: which tensor they look into, and how.

A view leads to its base by the node that made it, like any other result. When the base changes in
place, that node belongs to values that are gone: the base's counter knows the views that are
alive, takes their edges away, and whoever next asks for one gets it made anew from the base.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from asyncgrad.errors import AutogradError

if TYPE_CHECKING:
    from asyncgrad.core.variable import Variable

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
#: How a view was made that only its mode forbids to change, and where it may not be changed.
_MADE_IN = {
    "no_grad": ("was created in no_grad mode", " with grad mode enabled"),
    "inference": ("was created in inference mode", " in normal mode"),
    "turned": ("was taken of other axes", ""),
}


def looks_into(array: Any, source: Any) -> bool:
    """Whether two arrays look into the same memory, or may."""
    if array is source:
        return True
    held = getattr(array, "base", None)
    return held is source or (held is not None and held is source.base)


class View:
    """What a view keeps in `_autograd` until something else is to be kept there, too.

    It can be read in the place of an `AutogradMeta`.
    """

    __slots__ = ("base", "creation", "path", "version")

    #: As in `AutogradMeta`, of a tensor that has nothing of the kind.
    requires_grad = False
    grad = None
    grad_dtype = None
    accumulator = None
    extras = None
    post_accumulate = None
    retains_grad = False
    inference = False
    name = None
    turned = -1

    def __init__(self, base: Variable, path: Any, version: int, creation: str | None) -> None:
        """Describe a view.

        Args:
            base: the tensor that is no view itself.
            path: how to get from the base to the view: (path, function, attributes), or None for
                one that nobody can repeat.
            version: the version of the base when the view's edge was made.
            creation: why the view can't be changed in place while recording, or None.
        """
        self.base = base
        self.path = path
        self.version = version
        self.creation = creation

    @property
    def view(self) -> View:
        """Itself: `AutogradMeta` has a field of that name."""
        return self


def stop_retaining(variable: Variable) -> None:
    """Take what `retain_grad` asked for from the node that the variable leads to."""
    edge: Any = variable._edge
    node, position = edge if isinstance(edge, tuple) else (edge, 0)
    extras = None if node is None else node.extras
    if extras is not None:
        retain = extras.retain.get(position)
        if retain is not None and retain() is variable:
            del extras.retain[position]


def refuse_change(view: View, *, indirect: bool, edge: Any = None) -> None:
    """Raise for a view that may not change, nor its base, while recording.

    Args:
        view: how it is one.
        indirect: it is the base, or another view of it, that has changed.
        edge: the view's stored edge, which says of what function it is an output.
    """
    made, mode = _MADE_IN.get(view.creation or "", ("", ""))
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
    raise AutogradError(f"{what} and {how}{mode}. {_REMEDIES[view.creation or 'no_grad']}")
