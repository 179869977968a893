"""A line search for a point that satisfies the strong Wolfe conditions."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator

from asyncgrad.records import NamedTuple
from asyncgrad.types import Array

#: Sufficient decrease: the loss has to fall by this fraction of what the slope predicts.
_FALL = 1e-4
#: Curvature: the slope has to shrink to this fraction of the first slope.
_SLOPE = 0.9
#: The search ends when no parameter changes by more within the interval.
_NEAR = 1e-9


class Point(NamedTuple):
    """A point on the line."""

    #: The distance from the start, in multiples of the direction.
    at: float
    loss: float
    #: The gradient as one vector.
    gradient: Array
    #: The derivative of the loss along the direction.
    slope: float


def strong_wolfe(
    evaluate: Callable[[float], Generator[None, float, Point]], start: Point, first: float,
    largest: float, most: int,
) -> Generator[None, float, tuple[Point, int]]:  # fmt: skip
    """The best point along a direction by the strong Wolfe conditions, and how many were tried.

    Args:
        evaluate: a generator function from a distance to a point; it yields to wait for the loss.
        first: the distance to try first.
        largest: the largest magnitude among the direction's elements.
        most: the greatest number of points to try after the first.
    """
    point = yield from evaluate(first)
    before, tries = start, 0
    while tries < most:
        worse = tries > 1 and point.loss >= before.loss
        if worse or not _falls(start, point):
            break
        if _is_flat(start, point):
            return point, tries + 1
        if point.slope >= 0:
            break
        at = point.at
        ahead = _lowest(before, point, at + 0.01 * (at - before.at), at * 10)
        before = point
        point = yield from evaluate(ahead)
        tries += 1
    else:
        before = start
    # Between these two there is a point that satisfies both conditions.
    ends = [before, point]
    low = int(ends[0].loss > ends[1].loss)
    stuck = False
    while tries < most:
        near, far = sorted(end.at for end in ends)
        if (far - near) * largest < _NEAR:
            break
        at = _lowest(ends[0], ends[1], near, far)
        margin = 0.1 * (far - near)
        if min(far - at, at - near) >= margin:
            stuck = False
        elif stuck or not near < at < far:
            at = far - margin if abs(at - far) < abs(at - near) else near + margin
            stuck = False
        else:
            stuck = True
        point = yield from evaluate(at)
        tries += 1
        if not _falls(start, point) or point.loss >= ends[low].loss:
            ends[1 - low] = point
            low = int(ends[0].loss > ends[1].loss)
            continue
        if _is_flat(start, point):
            return point, tries + 1
        if point.slope * (ends[1 - low].at - ends[low].at) >= 0:
            ends[1 - low] = ends[low]
        ends[low] = point
    return ends[low], tries + 1


def _falls(start: Point, point: Point) -> bool:
    """Whether a point satisfies the condition of sufficient decrease."""
    return not point.loss > start.loss + _FALL * point.at * start.slope


def _is_flat(start: Point, point: Point) -> bool:
    """Whether a point satisfies the curvature condition."""
    return abs(point.slope) <= -_SLOPE * start.slope


def _lowest(a: Point, b: Point, least: float, most: float) -> float:
    """The minimum, within limits, of the cubic through two points with their slopes."""
    if a.at > b.at:
        a, b = b, a
    width = b.at - a.at
    bend = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.at - b.at)
    square = bend**2 - a.slope * b.slope
    if not square >= 0:
        return (least + most) / 2.0
    root = math.sqrt(square)
    at = b.at - width * ((b.slope + root - bend) / (b.slope - a.slope + 2 * root))
    return min(max(at, least), most)
