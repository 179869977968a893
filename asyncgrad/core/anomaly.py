"""Anomaly mode: where a node was made in the forward pass, and NaN as an error."""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Iterator

from asyncgrad.aliases import Value
from asyncgrad.core.frames import PACKAGE
from asyncgrad.core.modes import Modes
from asyncgrad.core.node import Node, extras_of, first_metadata, name_of
from asyncgrad.core.variable import Variable
from asyncgrad.errors import AutogradError, add_note


def users_stack() -> list[str]:
    """The formatted call stack without the package's own frames.

    Those are at its end, and also between a pass and the user code that its nodes and hooks call.
    """
    stack = traceback.StackSummary.extract(
        (frame, line)
        for frame, line in traceback.walk_stack(sys._getframe())
        if not frame.f_code.co_filename.startswith(PACKAGE)
    )
    return traceback.format_list(reversed(stack))


def remember(node: Node, modes: Modes) -> None:
    """Note on a new node its creation stack and the node that is running, if one is."""
    metadata = extras_of(node).metadata
    metadata["traceback_"] = users_stack()
    if modes.node is not None:
        metadata["parent_"] = modes.node


def check_nan(node: Node, received: Value) -> None:
    """Raise if a node has returned NaN."""
    for place, gradient in enumerate(received):
        if gradient is None:
            continue
        array = gradient._array if isinstance(gradient, Variable) else gradient
        if array.dtype.kind in "fc" and bool(first_metadata(node).F.xp.isnan(array).any()):
            raise AutogradError(
                f"Function '{name_of(node)}' returned nan values in its {place}th output."
            )


def report(node: Node, error: BaseException) -> None:
    """Say in a warning and in a note on the error where the failed node was made.

    If it was made while other nodes ran, as in a pass that records itself, say where those were.
    """
    parts = list(_messages(node))
    add_note(error, "".join(parts))
    for part in parts:
        try:
            warnings.warn(part, UserWarning, stacklevel=2)
        except UserWarning as warning:
            # With warnings as errors, the node's own error must still be the one raised.
            traceback.print_exception(warning.with_traceback(None), chain=False)


def _messages(node: Node | None) -> Iterator[str]:
    """The forward call that made a node, then those of its parents (see `remember`)."""
    start, effect = "Error detected in", "caused the error"
    hint = " Enable detect anomaly during forward pass for more information."
    seen: set[Node] = set()
    while node is not None and node not in seen:
        seen.add(node)
        start = f"{start} {name_of(node)}."
        made_at = node.metadata.get("traceback_")
        if made_at is None:
            yield f"{start} No forward pass information available.{hint}"
            return
        yield "".join((f"{start} Traceback of forward call that {effect}:\n", *made_at))
        start, effect = (
            "\n\nPrevious calculation was induced by",
            "induced the previous calculation",
        )
        hint = ""
        node = node.metadata.get("parent_")
