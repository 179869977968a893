"""Records a pass through the graph of what a replay has returned, as a program of its own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from asyncgrad.core.node import first_metadata
from asyncgrad.core.run_node import some_pulls
from asyncgrad.core.saved_values import run_rule
from asyncgrad.core.states import InputBuffer
from asyncgrad.replay.arrays import KnownArrays
from asyncgrad.replay.graph import Graph
from asyncgrad.replay.program import Program
from asyncgrad.replay.steps import Load, Place, Recorded, Source, UnrepeatableError
from asyncgrad.replay.watched_pass import WatchedPass

#: How many programs of passes are kept for one graph.
_LIMIT = 8


def record(
    graph: Graph, nodes: Sequence[Any], saved: Sequence[Any], gradient: Any, key: Any, ran: set[int]
) -> Any:
    """Run a pass through a graph's nodes, and keep it as a program.

    Args:
        graph: what is known of the graph.
        nodes: its nodes, which were made again for a replay.
        saved: what the replay has saved, as `graph.saved` says.
        gradient: what arrives at the result.
        key: by what the program is found again: flags that say which edges are wanted, or None;
            and the gradient's layout.
        ran: which nodes the pass runs, of those that can run once.

    Returns:
        The gradients for the edges that leave the graph; None if this can't be a program.
    """
    recorder = KnownArrays(Recorded())
    watch = WatchedPass(recorder)
    numbers: dict[Place, int] = {}
    for number, (place, value) in enumerate(zip(graph.saved, saved, strict=True)):
        if id(value) not in recorder.known:
            mine = recorder.new(value)
            numbers[mine] = number
            if place in graph.constants:
                recorder.constants.add(mine)
    # The graph may have saved the gradient's own array, which then has another place.
    gradient = gradient.view()
    given = recorder.new(gradient)
    try:
        arrived = _observed(graph, nodes, gradient, key[0], watch)
    except Exception:
        # The pass itself has to fail, so that nodes before the failure are released.
        return None
    # In the order of the node's edges.
    queues = {source: iter(arrived.get(source, ())) for source in set(graph.slots)}
    result = [next(queues[source], None) for source in graph.slots]
    try:
        if recorder.reason is not None:
            raise UnrepeatableError(recorder.reason)
        slots = [None if x is None else watch.place(x) for x in result]
        program, fresh = _program(graph, recorder, numbers, given, slots)
    except UnrepeatableError as error:
        graph.reason = str(error)
        return None
    graph.backwards[key] = program, fresh, ran
    return tuple(result)


def _observed(
    graph: Graph, nodes: Sequence[Any], gradient: Any, flags: Any, watch: WatchedPass
) -> dict[Any, Any]:
    """Run a pass through nodes, each of which is watched; returns what arrives, by source."""
    buffers: dict[int, InputBuffer] = {}
    arrived: dict[Any, Any] = {}

    def arrive(target: Any, position: int, gradient: Any, owned: bool, F: Any) -> None:
        if target.__class__ is not int:
            arrived.setdefault(target, []).append(gradient)
            return
        buffer = buffers.setdefault(target, InputBuffer(nodes[target].num_inputs))
        buffer.add(position, gradient, owned, watch.adding(F))

    arrive(graph.roots[0], 0, gradient, False, None)
    for number, wanted in graph.wanted(flags).items():
        if number not in buffers:
            continue
        node, known, buffer = nodes[number], graph.nodes[number], buffers.pop(number)
        F, rule = first_metadata(node).F, known.rule
        pulls = rule.pulls and tuple(
            [partial(watch.call, node, rule, n) for n in range(len(rule.pulls))]
        )
        run = some_pulls(partial(watch.call, node, rule, None), pulls, wanted)
        several = node.output_metadata.__class__ is tuple
        received = run_rule(node, run, F, buffer.values if several else buffer.values[0], None)
        owned = rule.fresh
        if node.following.__class__ is not tuple:
            received = (received,)
            owned = owned or (rule.passes and buffer.owned[0])
        ends = zip(known.edges, known.positions, received or (), strict=False)
        for target, position, part in ends:
            if part is not None:
                arrive(target, position, part, owned, F)
    return arrived


def _program(
    graph: Graph,
    recorder: KnownArrays,
    numbers: dict[Place, int],
    given: Place,
    slots: list[Place | None],
) -> tuple[Program, bool]:
    """The program of a recorded pass; and whether nothing else refers to what it returns."""
    if len(graph.backwards) >= _LIMIT:
        raise UnrepeatableError("the gradients of its results have another layout each time")
    found: dict[Source, Any] = {}
    for source, place in zip(graph.slots, slots, strict=True):
        if place is not None and found.setdefault(source, place.strides) != place.strides:
            # That of their sum follows from which of them the pass may add into.
            raise UnrepeatableError("gradients of one tensor have several layouts")
    read = [place for step in recorder.steps for place in step.read]
    read += [place for place in slots if place is not None]
    needed = [x for x in dict.fromkeys(read) if x in numbers and x not in recorder.constants]
    inputs = [given, *needed]
    places = [0, *[1 + numbers[x] for x in needed]]
    sources = [Source(None, place, is_array=True) for place in places]
    loads = [Load(source, x, False) for source, x in zip(sources, inputs, strict=True)]
    recorder.steps[:0] = loads
    recorder.foreign.update(inputs)
    # A rule may return an array that is in a list.
    lists = any(place.sample.__class__ is list for place in needed)
    program = Program(recorder, [tuple, slots])
    families = program.families
    roots = [families.of(place) for place in slots if place is not None]
    foreign = {families.of(place) for place in families.foreign}
    fresh = not lists and len(set(roots)) == len(roots) and foreign.isdisjoint(roots)
    return program, fresh
