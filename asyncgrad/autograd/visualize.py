"""Look at a graph: draw it, or list the arrays that it keeps alive."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from asyncgrad.aliases import Array, Value
from asyncgrad.autograd.edges import GradientEdge
from asyncgrad.autograd.function_node import FunctionNode
from asyncgrad.core.node import Freed, Node, OpNode, as_edge, name_of
from asyncgrad.core.saved import SavedTensor
from asyncgrad.core.saved_attributes import named_saved_values
from asyncgrad.core.variable import AccumulateGrad, Variable, gradient_edge
from asyncgrad.core.versions import owner_of
from asyncgrad.errors import AutogradError, class_of
from asyncgrad.records import NamedTuple

__all__ = ["Dot", "Kept", "Memory", "memory", "to_dot"]


# -- the nodes ------------------------------------------------------------------------------------


def _nodes(roots: Iterable[Any]) -> list[Node]:
    """All nodes of a graph: first the roots' nodes, then the others, the newest first."""
    found = dict.fromkeys(map(_node, roots))
    first = len(found)
    stack = list(found)
    while stack:
        for edge in stack.pop().next_edges:
            child = edge.node
            if child is not None and child not in found:
                found[child] = None
                stack.append(child)
    nodes = list(found)
    # All accumulators have the same sequence number, so they stay in the order found.
    others = sorted(nodes[first:], key=lambda node: (_is_leaf(node), -node.sequence_nr))
    return nodes[:first] + others


def _is_leaf(node: Node) -> bool:
    return isinstance(node, AccumulateGrad)


def _node(root: Value) -> Node:
    if isinstance(root, Node):
        return root
    if isinstance(root, GradientEdge):
        return root.node
    if not isinstance(root, Variable):
        raise TypeError(
            f"a graph starts at Tensors, Nodes or GradientEdges, not at {class_of(root)}"
        )
    node = as_edge(gradient_edge(root)).node
    if node is None:
        raise AutogradError(
            "the tensor does not require grad and does not have a grad_fn: there is no graph"
        )
    return node


def _kept(node: Node) -> list[tuple[str, Any, Any]]:
    """What a node keeps: name, array (None if hooks packed it) and metadata of each tensor."""
    found: list[tuple[str, Any, Any]] = []
    if isinstance(node, AccumulateGrad):
        variable = node.variable
        found.append(("variable", variable._array, variable._metadata))
    elif isinstance(node, FunctionNode):
        if node._kept.__class__ is not Freed:
            for number, (saved, _) in enumerate(node._kept):
                if saved is not None:
                    found.append((f"saved_tensors[{number}]", saved.array, saved.metadata))
        for name, value in vars(node).items():
            if not name.startswith("_"):
                found += _arrays(f"ctx.{name}", value)
    elif isinstance(node, OpNode):
        for name, value in named_saved_values(node):
            found += _arrays(name, value)
    return found


def _arrays(name: str, value: Value) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(value, SavedTensor):
        yield name, value.array, value.metadata
    elif isinstance(value, Variable):
        yield name, value._array, value._metadata
    elif hasattr(value, "nbytes") and hasattr(value, "shape") and value.shape:
        yield name, value, value
    elif isinstance(value, (list, tuple)):
        for place, part in enumerate(value):
            yield from _arrays(f"{name}[{place}]", part)
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from _arrays(f"{name}[{key!r}]", part)


# -- memory ---------------------------------------------------------------------------------------


class Kept(NamedTuple):
    """One array that a graph keeps alive, and the operation that saved it."""

    #: The node's name and sequence number.
    node: str
    sequence_nr: int
    #: Its name in the node: `self`, `result`, `saved_tensors[0]`; `variable` for a leaf.
    name: str
    shape: tuple[int, ...]
    dtype: Any
    #: Bytes of its memory; 0 if an earlier entry counts the memory, or hooks packed the tensor.
    nbytes: int
    #: Whether hooks have packed it.
    packed: bool
    #: The innermost user line of the forward call, if anomaly mode recorded it.
    made_at: str | None

    def __str__(self) -> str:
        where = "packed" if self.packed else f"{self.nbytes} B" if self.nbytes else "shared"
        made = f"  {self.made_at}" if self.made_at else ""
        return f"{where:>12}  {self.dtype}{list(self.shape)}  {self.node}.{self.name}{made}"


class Memory(NamedTuple):
    """All arrays that a graph keeps alive."""

    kept: tuple[Kept, ...]

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays, with shared memory counted once."""
        return sum(one.nbytes for one in self.kept)

    @property
    def saved_nbytes(self) -> int:
        """The bytes without those of leaves, which usually outlive the graph."""
        return sum(one.nbytes for one in self.kept if one.name != "variable")

    def __repr__(self) -> str:
        """A table, largest array first."""
        lines = sorted(self.kept, key=lambda one: -one.nbytes)
        return "\n".join([f"{self.nbytes:>10} B  in all", *map(str, lines)])


def memory(*roots: Value) -> Memory:
    """A table, with sums, of the arrays that a graph keeps alive, and of what saved them.

    An array that several nodes save is counted once; if it is a leaf, for the leaf.

    Args:
        roots: tensors, nodes or gradient edges; the whole graph behind them is searched.

    Raises:
        RuntimeError: for a tensor without a graph.

    Example:
        >>> w = ag.ones(3, 2, requires_grad=True)
        >>> loss = ag.exp(ag.ones(5, 3) @ w).sum()
        >>> print(ag.autograd.graph.memory(loss))
               124 B  in all
                60 B  float32[5, 3]  MmBackward0.self
                40 B  float32[5, 2]  ExpBackward0.result
                24 B  float32[3, 2]  AccumulateGrad.variable
        >>> _ = loss.backward()
        >>> ag.autograd.graph.memory(loss).saved_nbytes
        0
    """
    nodes = _nodes(roots)
    seen: dict[int, Any] = {}
    entries: dict[Node, list[Kept]] = {}
    # Count leaves first, so that shared memory is theirs; they still come last in the list.
    for node in sorted(nodes, key=_is_leaf, reverse=True):
        entries[node] = [_entry(node, *facts, seen) for facts in _kept(node)]
    return Memory(tuple([entry for node in nodes for entry in entries[node]]))


def _entry(node: Node, name: str, array: Array, facts: Value, seen: dict[int, Any]) -> Kept:
    nbytes = 0
    if array is not None:
        owner = owner_of(array)
        if id(owner) not in seen:
            seen[id(owner)] = owner
            nbytes = int(owner.nbytes)
    trace = None if node.extras is None else node.metadata.get("traceback_")
    return Kept(
        node=name_of(node),
        sequence_nr=node.sequence_nr,
        name=name,
        shape=tuple(facts.shape),
        dtype=facts.dtype,
        nbytes=nbytes,
        packed=array is None,
        made_at=" ".join(trace[-1].split()) if trace else None,
    )


# -- drawings -------------------------------------------------------------------------------------

_COLOURS = {"leaf": ", fillcolor=lightblue", "function": ", fillcolor=lightyellow", "op": ""}


class Dot(str):
    """A graph in Graphviz' language; notebooks show it as a picture if Graphviz is installed."""

    __slots__ = ()

    def svg(self) -> str:
        """The picture as SVG, drawn by Graphviz' `dot`; blocks until `dot` has ended.

        Raises:
            RuntimeError: if `dot` is not installed, or it fails.
        """
        program = _program()
        if program is None:
            raise AutogradError(
                "to_dot().svg(): there is no program `dot`. Install Graphviz, or give the text to "
                "another program that draws DOT."
            )
        done = subprocess.run(
            [program, "-Tsvg"], input=self, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise AutogradError(f"to_dot().svg(): dot has failed: {done.stderr.strip()}")
        return done.stdout

    def _repr_svg_(self) -> str | None:
        return self.svg() if _program() else None


def _program() -> str | None:
    """Where `dot` is; its own start takes longer than this import."""
    import shutil

    return shutil.which("dot")


def to_dot(*roots: Value, names: Mapping[str, Any] | None = None) -> Dot:
    """Draw a graph: nodes with their shapes, sequence numbers and the bytes that they save.

    Args:
        roots: tensors, nodes or gradient edges; the whole graph behind them is drawn.
        names: tensors by the names to show: `dict(model.named_parameters())`, for example.

    Returns:
        The text in Graphviz' language; `svg()` draws it.

    Raises:
        RuntimeError: for a tensor without a graph.

    Example:
        >>> x = ag.ones(2, requires_grad=True)
        >>> text = ag.autograd.graph.to_dot(ag.exp(x), names={"x": x})
        >>> "n0 -> n1" in text and "float32[2]" in text
        True
    """
    nodes, labels, arrows = graph_of(roots, names or {})
    lines = [
        "digraph {",
        "  node [shape=box, style=filled, fillcolor=white, fontname=monospace, fontsize=10];",
    ]
    for place, node in enumerate(nodes):
        color = _COLOURS[kind_of(node)]
        label = "\\n".join(map(_quoted, labels[place]))
        lines.append(f'  n{place} [label="{label}"{color}];')
    for start, end, input_nr in arrows:
        label = f' [label="{input_nr}"]' if input_nr else ""
        lines.append(f"  n{start} -> n{end}{label};")
    lines.append("}")
    return Dot("\n".join(lines) + "\n")


def kind_of(node: Node) -> str:
    """Whether a node is a "leaf", of a custom "function", or of an "op"."""
    if _is_leaf(node):
        return "leaf"
    return "function" if isinstance(node, FunctionNode) else "op"


def graph_of(
    roots: Iterable[Any], names: Mapping[str, Any]
) -> tuple[list[Node], list[list[str]], list[tuple[int, int, int]]]:
    """A graph's nodes, the lines that say what each is, and its edges between these.

    An edge is the places of two nodes, and the input of the second that it leads to.
    """
    called: dict[int, list[str]] = {}
    for name, tensor in names.items():
        called.setdefault(id(as_edge(gradient_edge(tensor)).node), []).append(name)
    nodes = _nodes(roots)
    number = {node: place for place, node in enumerate(nodes)}
    labels = [list(_label(node, called.get(id(node), ()))) for node in nodes]
    arrows = [
        (place, number[edge.node], edge.input_nr)
        for node, place in number.items()
        for edge in node.next_edges
        if edge.node is not None
    ]
    return nodes, labels, arrows


def _label(node: Node, names: Iterable[str]) -> Iterator[str]:
    leaf = _is_leaf(node)
    yield from names
    yield name_of(node) if leaf else f"{name_of(node)} #{node.sequence_nr}"
    yield ", ".join("?" if facts is None else _facts(facts) for facts in node._input_metadata)
    for name, array, facts in () if leaf else _kept(node):
        size = "packed" if array is None else f"{array.nbytes} B"
        yield f"{name}: {_facts(facts)}, {size}"


def _facts(facts: Value) -> str:
    return f"{facts.dtype}{list(facts.shape)}"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
