"""Where the boxes of a directed graph go: in layers, each below those that lead to it.

Source: Sugiyama, Tagawa and Toda, "Methods for Visual Understanding of Hierarchical System
Structures", 1981: layers by the longest way, an order in each that avoids crossings (barycentres),
and places near the middle of the neighbours.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from graphlib import TopologicalSorter
from itertools import accumulate, pairwise

from asyncgrad.records import NamedTuple

Point = tuple[float, float]
#: Sweeps over the layers, down and up in turns, for the order and for the places.
_SWEEPS = 8
#: Longer edges go straight: to lead all around other boxes would take a square of the layers.
_BENT = 24


class Layout(NamedTuple):
    """The places of a graph's boxes and arrows, in the units of the boxes' sizes."""

    #: The middle of each box.
    boxes: tuple[Point, ...]
    #: The points that each arrow passes, from the bottom of a box to the top of another.
    arrows: tuple[tuple[Point, ...], ...]
    width: float
    height: float


def layout(
    sizes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]], gap: Point
) -> Layout:
    """Find places for boxes, at coordinates of 0 or more, so that every edge leads downwards.

    Args:
        sizes: the width and height of each box.
        edges: pairs of boxes: from which to which. They make no circle.
        gap: the least space between two boxes beside each other, and between two layers.
    """
    layers, widths, chains = _layers(sizes, edges)
    above: dict[int, list[int]] = defaultdict(list)
    below: dict[int, list[int]] = defaultdict(list)
    for chain in chains:
        for upper, lower in pairwise(chain):
            below[upper].append(lower)
            above[lower].append(upper)
    _order(layers, above, below)
    x = _across(layers, widths, above, below, gap[0])
    y, ends, bottom = {}, {}, -gap[1]
    for layer in layers:
        top = bottom + gap[1]
        bottom = top + max(sizes[box][1] if box < len(sizes) else 0.0 for box in layer)
        for box in layer:
            y[box] = (top + bottom) / 2
            half = sizes[box][1] / 2 if box < len(sizes) else (bottom - top) / 2
            ends[box] = (x[box], y[box] - half), (x[box], y[box] + half)
    # From the lower end of the first box to the upper end of the last one.
    arrows = [tuple([point for box in chain for point in ends[box]][1:-1]) for chain in chains]
    width = max((x[box] + widths[box] / 2 for box in x), default=0.0)
    boxes = tuple([(x[box], y[box]) for box in range(len(sizes))])
    return Layout(boxes, tuple(arrows), width, max(0.0, bottom))


def _layers(
    sizes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]]
) -> tuple[list[list[int]], list[float], list[list[int]]]:
    """The boxes of each layer, all widths, and the boxes and bends that each edge passes.

    A bend, whose number follows those of the boxes, is where an edge passes a layer.
    """
    above: dict[int, list[int]] = {box: [] for box in range(len(sizes))}
    for start, end in edges:
        above[end].append(start)
    depth: dict[int, int] = {}
    layers: list[list[int]] = []
    for box in TopologicalSorter(above).static_order():
        depth[box] = max((depth[one] + 1 for one in above[box]), default=0)
        if depth[box] == len(layers):
            layers.append([])
        layers[depth[box]].append(box)
    widths = [width for width, _ in sizes]
    chains = []
    for start, end in edges:
        chain = [start]
        passed = range(depth[start] + 1, depth[end])
        for level in passed if len(passed) < _BENT else ():
            chain.append(len(widths))
            layers[level].append(len(widths))
            widths.append(0.0)
        chains.append([*chain, end])
    return layers, widths, chains


def _order(
    layers: list[list[int]], above: dict[int, list[int]], below: dict[int, list[int]]
) -> None:
    """Sort each layer by the mean place of its neighbours in the layer before."""
    for sweep in range(_SWEEPS):
        neighbours, ordered = (below, layers[::-1]) if sweep % 2 else (above, layers)
        for before, layer in pairwise(ordered):
            place = {box: float(number) for number, box in enumerate(before)}
            # The sort keeps the order of equal means.
            means = {
                box: _mean([place[one] for one in neighbours[box] if one in place], number)
                for number, box in enumerate(layer)
            }
            layer.sort(key=means.__getitem__)


def _mean(places: list[float], otherwise: float) -> float:
    """The mean of the neighbours' places; a box without neighbours stays where it is."""
    return sum(places) / len(places) if places else otherwise


def _across(
    layers: list[list[int]], widths: list[float], above: dict[int, list[int]],
    below: dict[int, list[int]], gap: float,
) -> dict[int, float]:  # fmt: skip
    """The middle of each box: near that of its neighbours, and beside the others of its layer."""
    packed: dict[int, float] = {}
    for layer in layers:
        left = 0.0
        for box in layer:
            packed[box] = left + widths[box] / 2
            left += widths[box] + gap
    x = packed.copy()
    for sweep in range(_SWEEPS):
        for layer in layers[::-1] if sweep % 2 else layers:
            # How far each box wants to go from where it is if the layer is packed.
            wanted = [
                _mean([x[other] for other in (*above[box], *below[box])], x[box]) - packed[box]
                for box in layer
            ]
            # Half-way between as far left and as far right as fits without changing the order.
            lefts = accumulate(wanted, max)
            rights = reversed([*accumulate(reversed(wanted), min)])
            for box, left, right in zip(layer, lefts, rights, strict=True):
                x[box] = packed[box] + (left + right) / 2
    least = min((x[box] - widths[box] / 2 for box in x), default=0.0)
    return {box: value - least for box, value in x.items()}
