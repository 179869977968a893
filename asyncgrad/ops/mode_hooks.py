"""What modes such as inference, forward mode and anomaly detection do with an op's result."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from asyncgrad.core.anomaly import remember
from asyncgrad.core.modes import DEFAULT, Modes, install
from asyncgrad.core.node_streams import note_streams
from asyncgrad.core.saved import pack
from asyncgrad.core.variable import Variable, autograd_meta, is_inference
from asyncgrad.ops import batching
from asyncgrad.ops.forward import push_tangents
from asyncgrad.ops.op import Op

_NO_GRAD = DEFAULT.replace(grad=False)


class Computed:
    """The tensors computed from some source tensors, held weakly."""

    __slots__ = ("_known",)

    def __init__(self, sources: Sequence[Variable]) -> None:
        self._known = {id(x): weakref.ref(x) for x in sources}

    def __contains__(self, x: Variable) -> bool:
        """Whether a tensor is a source or was computed from one."""
        reference = self._known.get(id(x))
        return reference is not None and reference() is x

    def note(self, inputs: tuple[Any, ...], out: Variable) -> None:
        """Note the result of an op if one of its inputs is known."""
        if any(x in self for x in inputs):
            self._known[id(out)] = weakref.ref(out)


_computed: ContextVar[Computed | None] = ContextVar("asyncgrad_computed", default=None)


@contextmanager
def tracking(sources: Sequence[Variable] | None) -> Iterator[Computed | None]:
    """Note what is computed from some tensors while nothing is recorded; None notes nothing."""
    found = _computed.get()
    computed = None if sources is None else Computed(sources)
    _computed.set(computed)
    try:
        yield computed
    finally:
        _computed.set(found)


def instead(
    op: Op, function: Any, inputs: tuple[Any, ...], attributes: tuple[Any, ...], modes: Modes
) -> Any:
    """An op's result if a mode computes it in its own way; `function` is its dispatch function."""
    if modes.batch is not None:
        batched = batching.compute_batched(op, function, inputs, attributes)
        if batched is not None:
            return batched
    if modes.selection is not None and not op.view and op.inputs != ("*xs",):
        return modes.selection.evaluate(op, function, inputs, attributes)
    return None


def computed_and_reported(
    op: Op, function: Any, inputs: tuple[Any, ...], attributes: tuple[Any, ...], modes: Modes
) -> Any:
    """Compute an op without modes, and report it to the recorder, the only mode in force.

    The operands are those of the common case, so the function calls no other op.
    """
    try:
        install(DEFAULT if modes.grad else _NO_GRAD)
        out = function(*inputs, *attributes)
    finally:
        install(modes)
    modes.recorder.computed(op, inputs, attributes, out)
    return out


def in_modes(
    op: Op, inputs: tuple[Any, ...], attributes: tuple[Any, ...], out: Any, modes: Modes
) -> Any:
    """Let the modes in force process an op's result, and return it."""
    if modes.recorder is not None:
        modes.recorder.computed(op, inputs, attributes, out)
    if modes.check is not None:
        modes.check()
    if modes.inference:
        out._edge = None
        if not op.view or is_inference(inputs[0]):
            autograd_meta(out).inference = True
        return out
    if modes.dual_level is not None and modes.forward:
        push_tangents(op, inputs, attributes, out, modes)
    node = out._edge
    if node is not None:
        if modes.streams is not None:
            note_streams(node, modes.streams)
        if modes.anomaly:
            remember(node, modes)
        if modes.saved_hooks is not None and node.rule is not None and node.rule.saves:
            pack(node, modes.saved_hooks, out=out)
    elif (computed := _computed.get()) is not None:
        computed.note(inputs, out)
    return out
