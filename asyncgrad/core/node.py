"""Nodes and edges: what the graph is made of.

An edge says "input `input_nr` of `node`". Almost every node has one output, so an edge to input 0
is stored as the node itself and `Edge` objects exist only for the rest: one garbage-collected
object less per operation. `next_edges` and the public face show them all alike.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeVar

from asyncgrad.core.call_site import CallSite
from asyncgrad.core.hooks import NodeExtras, RemovableHandle
from asyncgrad.errors import GraphFreedError
from asyncgrad.records import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from asyncgrad.core.rule import Rule

_N = TypeVar("_N", bound="Node | None")

#: One counter for the process: a later operation has a greater number, whatever thread made it.
next_sequence_nr: Callable[[], int] = count().__next__
#: AccumulateGrad carries the greatest number, so that it runs as soon as it is ready.
MAX_SEQUENCE_NR: Final = 2**64 - 1


class Edge(NamedTuple):
    """Input `input_nr` of `node`; a missing edge has no node."""

    node: Node | None
    input_nr: int = 0

    @property
    def topological_nr(self) -> int:
        """The node's: stored edges are asked for it without looking what they are."""
        return -1 if self.node is None else self.node.topological_nr


NO_EDGE: Final = Edge(None, 0)


class Freed(CallSite):
    """What stands where saved values were, once a pass has released them: where it was started."""

    __slots__ = ()


#: Reads what a node has saved, by name; bound by `saved_attributes`.
_reader: list[Callable[[Node, str], Any]] = []
#: And what there is to read.
_lister: list[Callable[[Node], list[str]]] = []
#: Runs a node on gradients, outside of a pass; bound by `autograd.graph`.
_caller: list[Callable[[Node, tuple[Any, ...]], Any]] = []


def bind_reader(reader: Callable[[Node, str], Any], lister: Callable[[Node], list[str]]) -> None:
    """Say how `_saved_*` is read, and which there are."""
    _reader[:] = [reader]
    _lister[:] = [lister]


def bind_caller(caller: Callable[[Node, tuple[Any, ...]], Any]) -> None:
    """Say how a node is called."""
    _caller[:] = [caller]


class Node:
    """One function of the backward graph.

    Subclasses say how gradients pass through them in `apply`. Nodes recorded by the table of
    derivatives are `OpNode`s and carry a `rule` instead, which the engine calls directly.
    """

    __slots__ = (
        "__weakref__",
        "cost",
        "extras",
        "following",
        "guard",
        "output_metadata",
        "rule",
        "saved",
        "sequence_nr",
        "stream",
        "topological_nr",
        "version",
    )

    #: How a table node computes its gradients; None where `apply` does.
    rule: Rule | None
    #: Where gradients go next: a stored edge, or a tuple of them.
    following: Any
    #: What the rule saved: one value, or a tuple, or what stands for it once it is `Freed`.
    saved: Any
    #: The version counter, or a tuple of them, to look at before `saved` is used; None for none.
    #: Once `saved` is `Freed`: what of it was no array, in the order of `Rule.plain`.
    guard: Any
    #: What the counter, or each of them, must still say.
    version: Any
    #: Greater means made later. Ready nodes run in descending order.
    sequence_nr: int
    #: One more than the greatest of the next nodes, 0 at the leaves: prunes walks.
    topological_nr: int
    #: What the forward output was (a tuple of them if there were several): shape, dtype, device.
    output_metadata: Any
    #: Expected nanoseconds to run, from the shapes.
    cost: int
    #: Hooks, the user's metadata and what anomaly mode remembers, or None.
    extras: NodeExtras | None
    #: The device stream of the forward operation; set on nodes of devices that have streams.
    stream: Any

    #: What `apply` returns is new and nobody else's.
    fresh: Any = False

    @property
    def num_inputs(self) -> int:
        """How many gradients the node takes: the number of its forward outputs."""
        metadata = self.output_metadata
        return len(metadata) if metadata.__class__ is tuple else 1

    @property
    def next_edges(self) -> tuple[Edge, ...]:
        """The edges to the functions of the forward inputs, in their order."""
        following = self.following
        if following.__class__ is not tuple:
            following = (following,)
        edges = tuple(as_edge(edge) for edge in following)
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
        """A dictionary for whatever one wants to attach to the node."""
        return extras_of(self).metadata

    def name(self) -> str:
        """What PyTorch would call the node."""
        rule = self.rule
        if rule is None:
            return type(self).__name__
        if rule.variant is None:
            return rule.name
        saved = self.saved
        if saved.__class__ is Freed:
            kept = self.guard
        else:
            kept = None if rule.outliving is None else rule.outliving(saved)
        if kept is None:
            return rule.name
        return rule.variant(dict(zip(rule.plain, kept, strict=True)))

    def apply(self, gradients: tuple[Any, ...], task: Any) -> Any:
        """The gradients of the inputs, one for each next edge.

        Args:
            gradients: one for each forward output, None where undefined; arrays, or tensors
                where the pass records itself.
            task: the graph task that runs the node.
        """
        raise NotImplementedError

    def release_saved(self, freed: Freed) -> None:
        """Give up what was saved for backward; the node can't run again if it saved anything.

        Args:
            freed: the pass's own, which takes its place.
        """
        rule = self.rule
        if rule is not None and rule.saves:
            # What is no array outlives saved tensors.
            self.guard = None if rule.outliving is None else rule.outliving(self.saved)
            self.saved = freed

    def conclude(self, received: Any, task: Any) -> Any:
        """What `apply` has returned, or what its coroutine has, as a tuple of gradients."""
        return received

    def prefetch(self) -> Generator[Any, Any, None]:
        """Before `apply`: yield what has to be awaited to have the saved values at hand."""
        yield from ()

    def register_hook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """Call a function after each time the node has run in a pass.

        Args:
            fn: a function or coroutine function of the node's gradients after and before it
                (`grad_inputs`, `grad_outputs`) that returns None or a tuple in the place of
                `grad_inputs`.

        Returns:
            A handle with `remove()`.
        """
        return RemovableHandle(extras_of(self).post, fn)

    def register_prehook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """Call a function before each time the node runs in a pass.

        Args:
            fn: a function or coroutine function of the node's `grad_outputs` that returns None
                or a tuple in their place.

        Returns:
            A handle with `remove()`.
        """
        return RemovableHandle(extras_of(self).pre, fn)

    def __call__(self, *gradients: Any) -> Any:
        """The gradients of the node's inputs from those of its outputs, outside of a pass."""
        return _caller[0](self, gradients)

    @property
    def _input_metadata(self) -> tuple[Any, ...]:
        metadata = self.output_metadata
        return metadata if metadata.__class__ is tuple else (metadata,)

    def _sequence_nr(self) -> int:
        return self.sequence_nr

    def _set_sequence_nr(self, sequence_nr: int) -> None:
        self.sequence_nr = sequence_nr

    def __repr__(self) -> str:
        """The node's name and number."""
        return f"<{self.name()} #{self.sequence_nr}>"


class OpNode(Node):
    """A node recorded by an entry of the table of derivatives."""

    __slots__ = ()


class ShownNode(OpNode):
    """A node of the table that somebody has looked at: shows what it has saved."""

    __slots__ = ()

    # Not in `Node`: Python does not specialise reading attributes where a class has this.
    def __getattr__(self, name: str) -> Any:
        """What is saved, as `_saved_*`; only reached for what is no attribute."""
        if name.startswith(("_saved_", "_raw_saved_")):
            return _reader[0](self, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        """The attributes, among them what is saved."""
        return [*super().__dir__(), *_lister[0](self)]


#: The classes of table nodes by their names.
_classes: dict[str, type[ShownNode]] = {}


def shown(node: _N) -> _N:
    """A node as users see it: one of the table in a class of its name, as PyTorch's are.

    All nodes being of one class makes the engine quick. A node changes to its own when somebody
    first looks at it.
    """
    if node.__class__ is OpNode:
        name = node.name()
        face = _classes.get(name)
        if face is None:
            face = _classes[name] = type(name, (ShownNode,), {"__slots__": (), "__doc__": None})
        node.__class__ = face  # type: ignore[assignment]
    return node


class GraphRoot(Node):
    """The function before the roots: hands each its gradient."""

    __slots__ = ("gradients",)

    def __init__(self, edges: Sequence[Any], gradients: Sequence[Any]) -> None:
        """Lead to every root, with its gradient."""
        init_node(self, tuple(edges), ())
        self.gradients = tuple(gradients)

    def apply(self, gradients: tuple[Any, ...], task: Any) -> Any:
        """The roots' own gradients."""
        return self.gradients


class Callbacks(Node):
    """What was queued to follow the last node of a pass."""

    __slots__ = ()

    def __init__(self) -> None:
        """Lead nowhere."""
        init_node(self, (), ())


class Devices(Node):
    """What follows the last node of a pass over devices with streams: their work is waited for."""

    __slots__ = ()

    def __init__(self) -> None:
        """Lead nowhere."""
        init_node(self, (), ())


class Identity(Node):
    """Passes its gradients on unchanged."""

    __slots__ = ()

    def __init__(self, edges: Sequence[Any], metadata: tuple[Any, ...]) -> None:
        """Lead to `edges`, one for each output."""
        init_node(self, tuple(edges), metadata)

    def apply(self, gradients: tuple[Any, ...], task: Any) -> Any:
        """What came in."""
        return gradients


def init_node(node: Node, following: Any, output_metadata: Any, cost: int = 2_000) -> None:
    """Give a node that is not made on the hot path its number and its fields."""
    node.rule = None
    node.following = following
    node.saved = None
    node.guard = None
    node.version = 0
    node.output_metadata = output_metadata
    node.cost = cost
    node.extras = None
    node.sequence_nr = next_sequence_nr()
    node.topological_nr = 1 + max_topological_nr(following)


def max_topological_nr(following: Any) -> int:
    """The greatest topological number that stored edges lead to, -1 where they lead nowhere."""
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
    """The record of a node's first output that has one, None where none has."""
    metadata = node.output_metadata
    if metadata.__class__ is tuple:
        return next((one for one in metadata if one is not None), None)
    return metadata


def extras_of(node: Node) -> NodeExtras:
    """The node's hooks and metadata, made when first asked for."""
    extras = node.extras
    if extras is None:
        extras = NodeExtras()
        # Python lets other threads run at calls: one may have been quicker, from here on none is.
        if node.extras is not None:
            return node.extras
        node.extras = extras
    return extras


def as_edge(stored: Any) -> Edge:
    """The edge that a node or variable stores."""
    if stored.__class__ is Edge:
        return stored
    return NO_EDGE if stored is None else Edge(stored, 0)


def as_stored(edge: Edge) -> Any:
    """The form in which nodes and variables store an edge."""
    return edge.node if edge.input_nr == 0 else edge


def refuse_freed(node: Node, freed: Freed) -> None:
    """Raise for a node whose saved values are gone."""
    raise GraphFreedError(node.name(), freed)
