"""Versions count in-place changes: a value saved before one must not be used after it.

A view shares the counter of its base. It has an edge to the node that made it, like any other
result. When the base changes in place, that node belongs to the old values, so the counter removes
the edges of all live views. A view's edge is then recomputed from the base when it is next needed.
"""

from __future__ import annotations

import re
import weakref
from typing import Any, NoReturn, Protocol

from asyncgrad.aliases import Array, StoredEdge
from asyncgrad.core.locks import acquiring, is_held_here, lasting_lock
from asyncgrad.core.node import Node, as_edge, name_of
from asyncgrad.errors import AutogradError

#: Dead weak references are dropped only from lists of at least this length.
_PRUNE = 64
#: Held while dead references are dropped.
_dropping = lasting_lock()


class HasEdge(Protocol):
    """What version counters use of a tensor."""

    _edge: StoredEdge
    _autograd: Any  # `AutogradMeta` or `View`, whose module knows this one


class VersionCounter:
    """Counts in-place changes; a tensor shares it with its views and with `detach()`."""

    __slots__ = ("_cuts", "aliases", "value", "views")

    #: For each `detach_()` of a computed tensor: `value` after it, and the edge, weakly. Unset
    #: before the first. Each adds one to `value`: so nodes that saved the tensor look here.
    _cuts: list[tuple[int, weakref.ref[Node], int]]

    def __init__(self) -> None:
        self.value = 0
        #: Weak references to views that have an edge to their base.
        self.views: list[weakref.ref[HasEdge]] | None = None
        #: Weak references to other tensors that share a leaf's memory.
        self.aliases: list[weakref.ref[HasEdge]] | None = None

    @property
    def version(self) -> int:
        """The number of changes."""
        return self.value - len(getattr(self, "_cuts", ()))

    def changed_since(self, value: int) -> int:
        """The number of changes since `value` was read."""
        return self.value - value - len(self.cuts_since(value))

    def cut(self, node: Node, input_nr: int) -> None:
        """Note that `detach_()` has removed a tensor's edge."""
        self.value += 1
        self._cuts = [*getattr(self, "_cuts", ()), (self.value, weakref.ref(node), input_nr)]

    def cuts_since(self, value: int) -> list[tuple[Node | None, int]]:
        """The edges that `detach_()` has removed since `value` was read."""
        cuts = getattr(self, "_cuts", ())
        return [(node(), number) for at, node, number in cuts if at > value]

    def register_alias(self, variable: HasEdge) -> None:
        """Register a tensor without an edge that shares a leaf's memory."""
        reference = weakref.ref(variable)
        known = self.aliases
        # Between this check and the assignment Python makes no call, and so switches no threads.
        if known is None:
            self.aliases = [reference]
        else:
            _add(known, reference)

    def sharers(self) -> set[HasEdge]:
        """The registered tensors that are alive."""
        known = [reference() for reference in (*(self.views or ()), *(self.aliases or ()))]
        return {variable for variable in known if variable is not None}

    def register(self, variable: HasEdge) -> None:
        """Register a view that has an edge."""
        reference = weakref.ref(variable)
        known = self.views
        # As in `register_alias`.
        if known is None:
            self.views = [reference]
        else:
            _add(known, reference)

    def forget_edges(self) -> None:
        """Remove the edges of all views: the base's history has changed."""
        views = self.views
        if views is not None:
            known = self.aliases
            self.aliases = views if known is None else list(map(weakref.ref, self.sharers()))
            self.views = None
        # Another thread may drop references from the list meanwhile.
        for reference in tuple(views or ()):
            variable = reference()
            if variable is not None:
                meta = variable._autograd
                if meta is not None and meta.retains_grad:
                    stop_retaining(variable)
                variable._edge = None


def _add(known: list[weakref.ref[HasEdge]], reference: weakref.ref[HasEdge]) -> None:
    """Add a reference. At lengths that are powers of two, dead ones go: cheap on average."""
    known.append(reference)
    length = len(known)
    if length < _PRUNE or length & (length - 1) or is_held_here(_dropping):
        return
    for taken in acquiring(_dropping, False):
        if taken:
            try:
                # Others may add to the list meanwhile, and nobody else makes it shorter.
                length = len(known)
                known[:length] = [one for one in known[:length] if one() is not None]
            finally:
                _dropping.release()
        break


# -- views ----------------------------------------------------------------------------------------

_CLARIFY = (
    "Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify your "
    "code by moving both the view and the inplace either both inside the {} block (if you don't "
    "want the inplace to be tracked) or both outside (if you want the inplace to be tracked)."
)
_REMEDIES = {
    "no_grad_mode": _CLARIFY.format("no_grad"),
    "inference_mode": _CLARIFY.format("inference_mode"),
    "multi_output_node": (
        "This view is the output of a function that returns multiple views. Such functions do not "
        "allow the output views to be modified inplace. You should replace the inplace operation "
        "by an out-of-place one."
    ),
    "in_custom_function": (
        "This view was created inside a custom Function (or because an input was returned as-is) "
        "and the autograd logic to handle view+inplace would override the custom backward "
        "associated with the custom Function, leading to incorrect gradients. This behavior is "
        "forbidden. You can fix this by cloning the output of the custom Function."
    ),
    "transposed": (
        "The axes of its base have been changed in place since the view was taken, and the way to "
        "it is not known any more. Take the view after that, or use the form that is not in place."
    ),
}
#: By creation mode: how such a view was made, and where it may not be changed.
_MADE_IN = {
    "no_grad_mode": ("was created in no_grad mode", " with grad mode enabled"),
    "inference_mode": ("was created in inference mode", " in normal mode"),
    "transposed": ("was taken of other axes", ""),
}


def looks_into(array: Array, source: Array) -> bool:
    """Whether two arrays share memory, or may."""
    if array is source:
        return True
    held = getattr(array, "base", None)
    return held is source or (held is not None and held is source.base)


def owner_of(array: Array) -> Any:
    """The array that owns the memory of an array."""
    while hasattr(base := getattr(array, "base", None), "nbytes"):
        array = base
    return array


def stop_retaining(variable: HasEdge) -> None:
    """Remove the `retain_grad` entry from the node that the variable leads to."""
    node, position = as_edge(variable._edge)
    extras = None if node is None else node.extras
    if extras is not None:
        retain = extras.retain.get(position)
        if retain is not None and retain() is variable:
            del extras.retain[position]


def refuse_change(
    creation_meta: str | None, *, indirect: bool, edge: StoredEdge = None
) -> NoReturn:
    """Raise for a view that may not be changed while recording; `creation_meta` says why.

    If `indirect`, its base or another view of it has changed. Its edge names what made the view.
    """
    made, mode = _MADE_IN.get(creation_meta or "", ("", ""))
    if edge is not None:
        node, number = as_edge(edge)
        assert node is not None
        function = re.sub(r"Backward\d*$", "", name_of(node))
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
    raise AutogradError(f"{what} and {how}{mode}. {_REMEDIES[creation_meta or 'no_grad_mode']}")
