"""On which stream of a device a node runs: the one of its forward operation."""

from __future__ import annotations

from asyncgrad.aliases import Stream, StreamScope
from asyncgrad.core.node import Node, first_metadata, stored_edges
from asyncgrad.core.variable import AccumulateGrad


def note_streams(node: Node, scope: StreamScope) -> None:
    """Note the stream of an operation on its node, and on leaves that have none yet.

    So a leaf is accumulated in the stream that used it first.
    """
    device = first_metadata(node).device
    if device.streamed:
        node.stream = device.stream_in(scope)
    for edge in stored_edges(node):
        if edge.__class__ is AccumulateGrad and not hasattr(edge, "stream"):
            device = edge.output_metadata.device
            if device.streamed:
                edge.stream = device.stream_in(scope)


def stream_of(node: Node) -> Stream:
    """The stream that a node runs on, None on devices without streams."""
    stream = getattr(node, "stream", None)
    if stream is None:
        metadata = first_metadata(node)
        if metadata is not None and metadata.device.streamed:
            return metadata.device.default_stream
    return stream


def host_cost(node: Node) -> int:
    """Expected nanoseconds for which a node keeps the host busy."""
    stream = stream_of(node)
    cost: int = node.cost if stream is None else stream.device.launch_cost
    return cost
