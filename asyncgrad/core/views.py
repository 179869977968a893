"""Views: which tensor they look into, and how.

A view leads to its base by the node that made it, like any other result. When the base changes in
place, that node belongs to values that are gone: the base's counter knows the views that are
alive, takes their edges away, and whoever next asks for one gets it made anew from the base.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from asyncgrad.errors import AutogradError

if TYPE_CHECKING:
    from asyncgrad.core.node import Node
    from asyncgrad.core.variable import Variable

#: At least so many weak references are kept before dead ones are looked for.
_PRUNE = 32

_REMEDIES = {
    "no_grad": (
        "Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify "
        "your code by moving both the view and the inplace either both inside the no_grad block "
        "(if you don't want the inplace to be tracked) or both outside (if you want the inplace "
        "to be tracked)."
    ),
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
    "inference": (
        "This view was created in inference mode. You can clarify your code by moving both the "
        "view and the inplace either both inside the inference_mode block or both outside."
    ),
}


class VersionCounter:
    """Counts in-place changes; a tensor shares it with its views and with `detach()`."""

    __slots__ = ("_cuts", "aliases", "value", "views")

    #: When `detach_()` cut computed tensors off from the graph: `value` then, and the edge, weakly.
    #: Not there before the first. Each made `value` one greater: nodes that saved the tensor look.
    _cuts: list[tuple[int, weakref.ref[Node], int]]

    def __init__(self) -> None:
        """Start unchanged."""
        self.value = 0
        #: The views that lead to their base by an edge, weakly.
        self.views: list[weakref.ref[Variable]] | None = None
        #: What else shares a leaf's memory, weakly.
        self.aliases: list[weakref.ref[Variable]] | None = None

    @property
    def version(self) -> int:
        """The number of changes."""
        return self.value - len(getattr(self, "_cuts", ()))

    def changed_since(self, value: int) -> int:
        """The number of changes since `value` was read."""
        return self.value - value - len(self.cuts_since(value))

    def cut(self, node: Node, input_nr: int) -> None:
        """Note that a tensor no longer leads to its node."""
        self.value += 1
        self._cuts = [*getattr(self, "_cuts", ()), (self.value, weakref.ref(node), input_nr)]

    def cuts_since(self, value: int) -> list[tuple[Node | None, int]]:
        """Where tensors led that have been cut off since `value` was read."""
        cuts = getattr(self, "_cuts", ())
        return [(node(), number) for at, node, number in cuts if at > value]

    def register_alias(self, variable: Variable) -> None:
        """Remember a tensor without an edge that shares a leaf's memory."""
        living = [reference for reference in self.aliases or () if reference() is not None]
        self.aliases = [*living, weakref.ref(variable)]

    def sharers(self) -> set[Variable]:
        """The registered tensors that are alive."""
        known = [reference() for reference in (*(self.views or ()), *(self.aliases or ()))]
        return {variable for variable in known if variable is not None}

    def register(self, variable: Variable) -> None:
        """Remember a view that has an edge."""
        views = self.views
        if views is None:
            self.views = [weakref.ref(variable)]
            return
        views.append(weakref.ref(variable))
        count = len(views)
        # At powers of two: what is looked through has doubled since.
        if count >= _PRUNE and not count & (count - 1):
            self.views = [reference for reference in views if reference() is not None]

    def forget_edges(self) -> None:
        """The base's history has changed: take their edges from its views."""
        views, self.views = self.views, None
        for reference in views or ():
            variable = reference()
            if variable is not None:
                meta = variable._autograd
                if meta is not None and meta.retains_grad:
                    stop_retaining(variable)
                variable._edge = None


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
    what, mode = _MADE_IN.get(view.creation or "", ("The output of a function is a view", ""))
    if edge is not None and view.creation not in _MADE_IN:
        node, number = edge if isinstance(edge, tuple) else (edge, 0)
        what = f"Output {number} of {node.name()} is a view"
    how = (
        "its base or another view of its base has been modified inplace"
        if indirect
        else "is being modified inplace"
    )
    raise AutogradError(f"{what} and {how}{mode}. {_REMEDIES[view.creation or 'no_grad']}")


#: How a view was made that only its mode forbids to change, and where it may not be changed.
_MADE_IN = {
    "no_grad": ("A view was created in no_grad mode", " with grad mode enabled"),
    "inference": ("A view was created in inference mode", " in normal mode"),
    "turned": ("A view was taken of other axes", ""),
}
