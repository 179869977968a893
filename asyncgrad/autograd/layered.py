"""Where the boxes of a directed graph go: in layers, each below those that lead to it.

Source: Sugiyama, Tagawa and Toda, "Methods for Visual Understanding of Hierarchical System
Structures", 1981: layers by the longest way, an order in each that avoids crossings (barycentres),
and places near the middle of the neighbours.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from graphlib import TopologicalSorter
from itertools import pairwise

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
    y, heights, top = {}, {}, 0.0
    for layer in layers:
        height = max(sizes[box][1] if box < len(sizes) else 0.0 for box in layer)
        for box in layer:
            y[box] = top + height / 2
            heights[box] = sizes[box][1] if box < len(sizes) else height
        top += height + gap[1]
    arrows = []
    for first, *between, last in chains:
        points = [(x[first], y[first] + heights[first] / 2)]
        for bend in between:
            points += [
                (x[bend], y[bend] - heights[bend] / 2),
                (x[bend], y[bend] + heights[bend] / 2),
            ]
        arrows.append((*points, (x[last], y[last] - heights[last] / 2)))
    width = max((x[box] + widths[box] / 2 for box in x), default=0.0)
    boxes = tuple([(x[box], y[box]) for box in range(len(sizes))])
    return Layout(boxes, tuple(arrows), width, max(0.0, top - gap[1]))


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
    x: dict[int, float] = {}
    for layer in layers:
        left = 0.0
        for box in layer:
            x[box] = left + widths[box] / 2
            left += widths[box] + gap
    for sweep in range(_SWEEPS):
        for layer in layers[::-1] if sweep % 2 else layers:
            wanted = [
                _mean([x[other] for other in (*above[box], *below[box])], x[box]) for box in layer
            ]
            # As far left and as far right as fits without changing the order: half-way between.
            lefts, rights = wanted[:], wanted[:]
            for place in range(1, len(layer)):
                apart = (widths[layer[place - 1]] + widths[layer[place]]) / 2 + gap
                lefts[place] = max(lefts[place], lefts[place - 1] + apart)
            for place in range(len(layer) - 1, 0, -1):
                apart = (widths[layer[place - 1]] + widths[layer[place]]) / 2 + gap
                rights[place - 1] = min(rights[place - 1], rights[place] - apart)
            for box, left, right in zip(layer, lefts, rights, strict=True):
                x[box] = (left + right) / 2
    least = min((x[box] - widths[box] / 2 for box in x), default=0.0)
    return {box: value - least for box, value in x.items()}
