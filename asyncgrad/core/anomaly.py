"""Anomaly mode: where a node was made in the forward pass, and NaN as an error."""

from __future__ import annotations

import traceback
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from asyncgrad.core.node import Node, extras_of, first_metadata
from asyncgrad.core.origin import PACKAGE
from asyncgrad.core.variable import Variable
from asyncgrad.errors import AutogradError, add_note

if TYPE_CHECKING:
    from asyncgrad.core.modes import Modes


def users_stack() -> list[str]:
    """The call that is going on, as far as it is the user's: the package's own part is left out."""
    stack = traceback.extract_stack()
    while stack and stack[-1].filename.startswith(PACKAGE):
        stack.pop()
    return traceback.format_list(stack)


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
    """Warn, and note on the error, where a node that failed was made."""
    text = "".join(_story(node))
    add_note(error, text)
    # Where warnings are errors the note says it all.
    with suppress(UserWarning):
        warnings.warn(text, UserWarning, stacklevel=2)


def _story(node: Node) -> list[str]:
    """The forward calls that made a node, and the nodes whose gradients induced them."""
    metadata = node.metadata
    made_at = metadata.get("traceback_")
    if made_at is None:
        return [
            f"Error detected in {node.name()}. No forward pass information available. Enable "
            f"detect anomaly during forward pass for more information."
        ]
    parts = [f"Error detected in {node.name()}. Traceback of forward call that caused the error:\n"]
    parts += made_at
    parent = metadata.get("parent_")
    seen = {node}
    while parent is not None and parent not in seen:
        seen.add(parent)
        made_at = parent.metadata.get("traceback_")
        parts.append(f"\n\nPrevious calculation was induced by {parent.name()}. ")
        if made_at is None:
            parts.append("No forward pass information available.")
            break
        parts.append("Traceback of forward call that induced the previous calculation:\n")
        parts += made_at
        parent = parent.metadata.get("parent_")
    return parts
