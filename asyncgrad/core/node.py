"""Nodes and edges: what the graph is made of.

An edge says "input `input_nr` of `node`". Almost every node has one output, so an edge to input 0
is stored as the node itself, and `Edge` objects exist only for other inputs: one garbage-collected
object less per operation. `next_edges` and other public attributes show all as `Edge`s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Final, TypeVar

from asyncgrad._unbound import unbound
from asyncgrad.aliases import Following, Gradient, Steps, StoredEdge, Value
from asyncgrad.core.frames import CallSite
from asyncgrad.core.hooks import NO_EXTRAS, NodeExtras, RemovableHandle
from asyncgrad.core.rule import Rule
from asyncgrad.errors import GraphFreedError
from asyncgrad.records import NamedTuple

_N = TypeVar("_N", bound="Node | None")

#: One counter for the process: a later operation has a greater number, whatever thread made it.
next_sequence_nr: Callable[[], int] = count().__next__
#: AccumulateGrad carries the greatest number, so that it runs as soon as it is ready.
MAX_SEQUENCE_NR: Final = 2**64 - 1
#: Expected nanoseconds for each gradient that a node makes or takes, if these may be many.
EDGE_COST: Final = 1_200


class Edge(NamedTuple):
    """Input `input_nr` of `node`; a missing edge has no node."""

    node: Node | None
    input_nr: int = 0

    @property
    def topological_nr(self) -> int:
        """The node's number; edges have it because stored edges may be nodes or `Edge`s."""
        return -1 if self.node is None else self.node.topological_nr


NO_EDGE: Final = Edge(None, 0)


class Freed(CallSite):
    """Replaces saved values that a pass has released; says where that pass was started."""

    __slots__ = ()


# Set in `asyncgrad/_wiring.py`.
#: Reads a saved value of a node by name.
read_saved: Callable[[OpNode, str], Any] = unbound
#: Lists the names that can be read.
list_saved: Callable[[OpNode], list[str]] = unbound
#: Runs a node on gradients outside of a pass.
call: Callable[[Node, tuple[Any, ...]], Any] = unbound


class Node:
    """One function of the backward graph.

    Subclasses compute gradients in `apply`. Nodes recorded by the table of derivatives are
    `OpNode`s and carry a `rule` instead, which the engine calls directly.
    """

    __slots__ = (
        "__weakref__", "cost", "extras", "following", "guard", "output_metadata", "rule", "saved",
        "sequence_nr", "stream", "topological_nr", "version",
    )  # fmt: skip

    #: How a table node computes its gradients; None for nodes with `apply`.
    rule: Rule | None
    #: The rule by which `apply` computes, from what the node has saved; None for other code.
    _applied_rule: Any = None
    #: Where gradients go next: a stored edge, or a tuple of them.
    following: Any
    #: What the rule saved: one value, or a tuple; a `Freed` once it is released.
    saved: Any
    #: The version counter, or a tuple of them, to check before `saved` is used; None for none.
    #: Once `saved` is `Freed`: a tuple of the saved values that `Rule.outliving` has extracted. It
    #: may be empty, but is never None. So a run that finds None may use `saved` unchecked.
    guard: Any
    #: The expected value of the counter, or of each of them.
    version: Any
    #: Greater means made later. Ready nodes run in descending order.
    sequence_nr: int
    #: 0 at the leaves, elsewhere one more than the greatest number of the next nodes. A walk skips
    #: nodes whose number is too small to lead to what it looks for.
    topological_nr: int
    #: Shape, dtype and device of the forward output (a tuple for several outputs).
    output_metadata: Any
    #: Expected nanoseconds to run, from the shapes.
    cost: int
    #: Hooks, the user's metadata and what anomaly mode remembers, or None.
    extras: NodeExtras | None
    #: The device stream of the forward operation; set on nodes of devices that have streams.
    stream: Any

    #: In a pass on arrays, `apply` may run code that asks for the modes.
    sees_modes = True
    #: `apply` is a function of arrays: it awaits nothing, and there is nothing saved to release.
    direct = False
    #: Nothing else refers to what `apply` returns.
    fresh: Any = False

    @property
    def num_inputs(self) -> int:
        """How many gradients the node takes: the number of its forward outputs."""
        metadata = self.output_metadata
        return len(metadata) if metadata.__class__ is tuple else 1

    @property
    def next_edges(self) -> tuple[Edge, ...]:
        """The edges to the functions of the forward inputs, in their order."""
        edges = tuple(as_edge(edge) for edge in stored_edges(self))
        rule = self.rule
        if rule is None or rule.arity == len(edges):
            return edges
        by_place = dict(zip(rule.places, edges, strict=True))
        return tuple(by_place.get(place, NO_EDGE) for place in range(rule.arity))

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """PyTorch's view of `next_edges`: pairs of a node (or None) and an input number."""
        return tuple((shown(edge.node), edge.input_nr) for edge in self.next_edges)

    @property
    def metadata(self) -> dict[str, Any]:
        """A dictionary for user data."""
        return extras_of(self).metadata

    def name(self) -> str:
        """The node's name in PyTorch."""
        rule = self.rule
        if rule is None:
            return type(self).__name__
        if rule.variant is None or rule.outliving is None:
            return rule.name
        kept = self.guard if self.saved.__class__ is Freed else rule.outliving(self.saved)
        return rule.variant(dict(zip(rule.outliving_names, kept, strict=True)))

    def apply(self, gradients: tuple[Any, ...], task: Value) -> Any:
        """Compute the gradients of the inputs, one for each next edge, from those of the outputs.

        They are arrays, or tensors where the pass records itself, and None where undefined.
        """
        raise NotImplementedError

    def release_saved(self, freed: Freed) -> None:
        """Release what was saved for backward; the node can't run again if it saved anything."""
        rule = self.rule
        if rule is not None and rule.saves:
            # Saved values that are not arrays stay readable.
            self.guard = () if rule.outliving is None else rule.outliving(self.saved)
            self.saved = freed

    def _after_apply(self) -> None:
        """Called when `apply`, or the coroutine that it has returned, has ended or failed."""

    def conclude(self, received: Value, task: Value) -> tuple[Any, ...]:
        """Check what `apply` or its coroutine has returned, and make it a tuple of gradients."""
        return received  # type: ignore[no-any-return]

    def prefetch(self) -> Steps[None]:
        """Called before `apply`: yields what must be awaited to load the saved values."""
        yield from ()

    def register_hook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """Call a function after each time the node has run in a pass.

        Args:
            fn: a function or coroutine function of the node's gradients after and before it
                (`grad_inputs`, `grad_outputs`) that returns None or a tuple in the place of
                `grad_inputs`.
        """
        return RemovableHandle(extras_of(self).post, fn)

    def register_prehook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """Call a function before each time the node runs in a pass.

        Args:
            fn: a function or coroutine function of the node's `grad_outputs` that returns None
                or a tuple in their place.
        """
        return RemovableHandle(extras_of(self).pre, fn)

    def __call__(self, *gradients: Gradient) -> Any:
        """Compute the gradients of the inputs from those of the outputs, outside of a pass."""
        return call(self, gradients)

    @property
    def _input_metadata(self) -> tuple[Any, ...]:
        metadata = self.output_metadata
        return metadata if metadata.__class__ is tuple else (metadata,)

    def _sequence_nr(self) -> int:
        return self.sequence_nr

    def _set_sequence_nr(self, sequence_nr: int) -> None:
        self.sequence_nr = sequence_nr

    def __repr__(self) -> str:
        return f"<{name_of(self)} #{self.sequence_nr}>"


class OpNode(Node):
    """A node recorded by the table of derivatives."""

    __slots__ = ()

    rule: Rule


class ShownNode(OpNode):
    """A table node that users have looked at, with attributes for its saved values."""

    __slots__ = ()

    # Not in `Node`: Python can't specialise attribute reads of classes that define this.
    def __getattr__(self, name: str) -> Any:
        """Saved values as `_saved_*`; Python calls this only for missing attributes."""
        if name.startswith(("_saved_", "_raw_saved_")):
            return read_saved(self, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *list_saved(self)]


#: The `ShownNode` subclasses, by name.
_classes: dict[str, type[ShownNode]] = {}


def shown(node: _N) -> _N:
    """A node as users see it: a table node gets a class of its own name, as in PyTorch.

    The engine is fast because all table nodes have one class, so a node's class is changed only
    when a user first looks at the node.
    """
    if node.__class__ is OpNode:
        name = node.name()
        face = _classes.get(name)
        if face is None:
            face = _classes[name] = type(name, (ShownNode,), {"__slots__": (), "__doc__": None})
        node.__class__ = face  # type: ignore[assignment]
    return node


class GraphRoot(Node):
    """Stands before the roots and passes each its gradient."""

    __slots__ = ("gradients",)

    sees_modes = False
    direct = True

    def __init__(self, edges: Sequence[Any], gradients: Sequence[Any]) -> None:
        cost = EDGE_COST * len(edges)
        for edge, times in Counter(edges).items():
            if times > 1:
                # The gradients of a root that is given several times are added.
                node, position = as_edge(edge)
                facts = None if node is None else node.output_metadata
                facts = facts[position] if facts.__class__ is tuple else facts
                cost += 0 if facts is None else (times - 1) * facts.cost
        init_node(self, tuple(edges), (), cost)
        self.gradients = tuple(gradients)

    def apply(self, gradients: tuple[Any, ...], task: Value) -> Any:
        """Return the roots' gradients."""
        return self.gradients


class Ending(Node):
    """Pseudo-node: what happens after the last node of a pass is run like a node."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        init_node(self, (), ())
        self._name = name

    def name(self) -> str:
        """What happens, for errors and event logs."""
        return self._name


class Identity(Node):
    """Passes its gradients on unchanged."""

    __slots__ = ()

    def __init__(self, edges: Sequence[Any], metadata: tuple[Any, ...]) -> None:
        init_node(self, tuple(edges), metadata)

    def apply(self, gradients: tuple[Any, ...], task: Value) -> Any:
        """Return the gradients unchanged."""
        return gradients


def init_node(node: Node, following: Following, output_metadata: Value, cost: int = 2_000) -> None:
    """Initialise a node that is not made on the hot path."""
    node.rule = None
    node.saved = None
    node.guard = None
    node.version = 0
    node.extras = None
    connect(node, following, output_metadata, cost)


def connect(node: Node, following: Following, output_metadata: Value, cost: int) -> None:
    """Give a node its edges, and its number."""
    node.following = following
    node.output_metadata = output_metadata
    node.cost = cost
    node.sequence_nr = next_sequence_nr()
    node.topological_nr = 1 + max_topological_nr(following)


def name_of(node: Node) -> str:
    """A node's name; if it is a Function's, its user may have set an attribute `name` on ctx."""
    return type(node).name(node)


def renumber(node: Node, sequence_nr: int) -> None:
    """Number a node as if it had been made earlier, unless what follows it was made since then."""
    for stored in stored_edges(node):
        after = as_edge(stored).node
        if after is not None and sequence_nr < after.sequence_nr < MAX_SEQUENCE_NR:
            return
    node.sequence_nr = sequence_nr


def max_topological_nr(following: Following) -> int:
    """The greatest topological number among stored edges, -1 if there is none."""
    if following.__class__ is not tuple:
        following = (following,)
    greatest: int = -1
    for edge in following:
        if edge is not None:
            number = edge.topological_nr
            if number > greatest:
                greatest = number
    return greatest


def first_metadata(node: Node) -> Any:
    """The metadata of a node's first output that has some, None if none has."""
    metadata = node.output_metadata
    if metadata.__class__ is tuple:
        return next((one for one in metadata if one is not None), None)
    return metadata


def metadata_at(node: Node, position: int) -> Any:
    """The metadata of one of a node's outputs."""
    metadata = node.output_metadata
    return metadata[position] if metadata.__class__ is tuple else metadata


def extras_of(node: Node) -> NodeExtras:
    """The node's hooks and metadata, created on first access."""
    extras = node.extras
    if extras is None or extras is NO_EXTRAS:
        extras = NodeExtras()
        # Another thread may have made some during the call. From this check to the assignment
        # Python makes no call, and so does not switch threads.
        others = node.extras
        if not (others is None or others is NO_EXTRAS):
            return others
        node.extras = extras
    return extras


def stored_edges(node: Node) -> tuple[StoredEdge, ...]:
    """Where a node's gradients go next, as a tuple."""
    following = node.following
    return following if following.__class__ is tuple else (following,)


def as_edge(stored: StoredEdge) -> Edge:
    """Convert a stored edge to an `Edge`."""
    if stored.__class__ is Edge:
        return stored
    return NO_EDGE if stored is None else Edge(stored, 0)


def as_stored(edge: Edge) -> Any:
    """Convert an `Edge` to the form in which nodes and variables store it."""
    return edge.node if edge.input_nr == 0 else edge


def refuse_freed(node: Node, freed: Freed) -> None:
    """Raise for a node whose saved values were released."""
    raise GraphFreedError(name_of(node), freed)
