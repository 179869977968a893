"""Graphs as pictures, drawn here: no other program is needed."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

from asyncgrad.aliases import Value
from asyncgrad.autograd.layered import Point, layout
from asyncgrad.autograd.visualize import graph_of, kind_of
from asyncgrad.core.node import Node

#: In pixels: of a letter, of a line, around the text of a box, between boxes, around the picture.
_LETTER, _LINE, _PADDING, _GAP, _MARGIN = 6.65, 15.0, 8.0, (18.0, 34.0), 12.0
_STYLE = """
.asyncgrad { --ink: #1c2430; --line: #6b7686; --op: #fff; --leaf: #d8ecf7; --function: #fdf3cf; }
@media (prefers-color-scheme: dark) {
  .asyncgrad { --ink: #e8ecf1; --line: #94a0af; --op: #222a34; --leaf: #1d3b4c;
               --function: #4a4020; }
}
.asyncgrad text { font: 11px ui-monospace, monospace; fill: var(--ink); }
.asyncgrad g text { text-anchor: middle; }
.asyncgrad rect { stroke: var(--line); rx: 5px; fill: var(--op); }
.asyncgrad .leaf rect { fill: var(--leaf); }
.asyncgrad .function rect { fill: var(--function); }
.asyncgrad path { stroke: var(--line); fill: none; stroke-width: 1.2px; }
.asyncgrad marker path { fill: var(--line); stroke: none; }
"""


#: Not `html.escape`, whose module takes longer to import than all of the drawing.
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})


def escaped(text: str) -> str:
    """A text as it is written in SVG and HTML."""
    return text.translate(_ESCAPES)


class Svg(str):
    """A picture in SVG, which notebooks show and browsers open."""

    __slots__ = ()

    def save(self, path: str | PathLike[str]) -> None:
        """Write the picture to a file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self)

    def _repr_svg_(self) -> str:
        return str(self)


def to_svg(*roots: Value, names: Mapping[str, Any] | None = None) -> Svg:
    """Draw a graph: nodes with their shapes, sequence numbers and the bytes that they save.

    Gradients flow downwards. Leaves are blue, custom Functions yellow. Where anomaly mode has
    recorded it, the line of the forward call shows when the mouse rests on a node.

    Args:
        roots, names: those of `to_dot`.

    Returns:
        The picture: a string, which a notebook shows; `save(path)` writes it to a file.

    Raises:
        RuntimeError: for a tensor without a graph.

    Example:
        >>> x = ag.ones(2, requires_grad=True)
        >>> picture = ag.autograd.graph.to_svg(ag.exp(x).sum(), names={"x": x})
        >>> picture.startswith("<svg") and "ExpBackward" in picture
        True
    """
    nodes, labels, arrows = graph_of(roots, names or {})
    sizes = [
        (max(map(len, lines)) * _LETTER + 2 * _PADDING, len(lines) * _LINE + 2 * _PADDING)
        for lines in labels
    ]
    places = layout(sizes, [(start, end) for start, end, _ in arrows], _GAP)
    width, height = places.width + 2 * _MARGIN, places.height + 2 * _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="asyncgrad" role="img" width="{width:.0f}" '
        f'height="{height:.0f}" viewBox="{-_MARGIN:g} {-_MARGIN:g} {width:.1f} {height:.1f}">',
        f"<title>Backward graph of {len(nodes)} nodes</title><style>{_STYLE}</style>",
        '<defs><marker id="asyncgrad-arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs>',
    ]
    for points, (_, _, input_nr) in zip(places.arrows, arrows, strict=True):
        parts.append(f'<path d="{_curve(points)}" marker-end="url(#asyncgrad-arrow)"/>')
        if input_nr:
            x, y = points[-1]
            parts.append(f'<text x="{x + 6:.1f}" y="{y - 10:.1f}">{input_nr}</text>')
    for node, lines, size, middle in zip(nodes, labels, sizes, places.boxes, strict=True):
        parts.append(_box(node, lines, size, middle))
    parts.append("</svg>")
    return Svg("\n".join(parts) + "\n")


def _box(node: Node, lines: list[str], size: tuple[float, float], middle: Point) -> str:
    (width, height), (x, y) = size, middle
    trace = None if node.extras is None else node.metadata.get("traceback_")
    title = f"<title>{escaped(trace[-1].strip())}</title>" if trace else ""
    top = y - height / 2 + _PADDING + _LINE * 0.75
    text = "".join(
        f'<text x="{x:.1f}" y="{top + place * _LINE:.1f}">{escaped(line)}</text>'
        for place, line in enumerate(lines)
    )
    return (
        f'<g class="{kind_of(node)}">{title}<rect x="{x - width / 2:.1f}" y="{y - height / 2:.1f}" '
        f'width="{width:.1f}" height="{height:.1f}"/>{text}</g>'
    )


def _curve(points: tuple[Point, ...]) -> str:
    """A smooth way through points, which begins and ends downwards."""
    (x, y), *others = points
    way = f"M{x:.1f} {y:.1f}"
    for next_x, next_y in others:
        half = (y + next_y) / 2
        way += f"C{x:.1f} {half:.1f} {next_x:.1f} {half:.1f} {next_x:.1f} {next_y:.1f}"
        x, y = next_x, next_y
    return way
