"""Anomaly mode: where a node was made in the forward pass, and NaN as an error."""

from __future__ import annotations

import sys
import traceback
import warnings
from typing import TYPE_CHECKING, Any

from asyncgrad.core.call_site import PACKAGE
from asyncgrad.core.node import Node, extras_of, first_metadata
from asyncgrad.core.variable import Variable
from asyncgrad.errors import AutogradError, add_note

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asyncgrad.core.modes import Modes


def users_stack() -> list[str]:
    """The call that is going on, as far as it is the user's: the package's own frames are left out.

    They lie at its end, and also between a pass and what its nodes and hooks call.
    """
    stack = traceback.StackSummary.extract(
        (frame, line)
        for frame, line in traceback.walk_stack(sys._getframe())
        if not frame.f_code.co_filename.startswith(PACKAGE)
    )
    return traceback.format_list(reversed(stack))


def remember(node: Node, modes: Modes) -> None:
    """Note on a new node where it is made, and the node whose gradient makes it.

    Args:
        node: the node.
        modes: the record in force.
    """
    metadata = extras_of(node).metadata
    metadata["traceback_"] = users_stack()
    if modes.node is not None:
        metadata["parent_"] = modes.node


def check_nan(node: Node, received: Any) -> None:
    """Raise if a node has returned NaN."""
    for place, gradient in enumerate(received):
        if gradient is None:
            continue
        array = gradient._array if isinstance(gradient, Variable) else gradient
        if array.dtype.kind in "fc" and bool(first_metadata(node).F.xp.isnan(array).any()):
            raise AutogradError(
                f"Function '{node.name()}' returned nan values in its {place}th output."
            )


def report(node: Node, error: BaseException) -> None:
    """Warn, and note on the error, where a node that failed was made, and who induced that."""
    parts = list(_story(node))
    add_note(error, "".join(parts))
    for part in parts:
        try:
            warnings.warn(part, UserWarning, stacklevel=2)
        except UserWarning as warning:
            # Where warnings are errors it is the node's error that is raised.
            traceback.print_exception(warning.with_traceback(None), chain=False)


def _story(node: Node) -> Iterator[str]:
    """The forward call that made a node, then each that induced the one before it."""
    made_at = node.metadata.get("traceback_")
    if made_at is None:
        yield (
            f"Error detected in {node.name()}. No forward pass information available. Enable "
            f"detect anomaly during forward pass for more information."
        )
        return
    start = f"Error detected in {node.name()}. Traceback of forward call that caused the error:\n"
    yield "".join((start, *made_at))
    parent = node.metadata.get("parent_")
    seen = {node}
    while parent is not None and parent not in seen:
        seen.add(parent)
        made_at = parent.metadata.get("traceback_")
        start = f"\n\nPrevious calculation was induced by {parent.name()}. "
        if made_at is None:
            yield f"{start}No forward pass information available."
            return
        start += "Traceback of forward call that induced the previous calculation:\n"
        yield "".join((start, *made_at))
        parent = parent.metadata.get("parent_")
