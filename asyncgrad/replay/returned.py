"""What a recorded call returns, as templates of what its replays return."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

from asyncgrad.core.variable import (
    Variable,
    creation_meta_of,
    is_inference,
    requires_grad,
    version_of,
    view_of,
)
from asyncgrad.devices import Device
from asyncgrad.replay.arrays import CONSTANTS, KnownArrays
from asyncgrad.replay.known import is_record
from asyncgrad.replay.names import is_own
from asyncgrad.replay.steps import Made, Same, UnrepeatableError
from asyncgrad.replay.unchanged import is_value

#: Classes of this package that hold results.
_RESULTS = frozenset({"Results", "ResultList", "ResultDict", "Finished", "Size"})


class Returned:
    """The tensors that a recorded call returns, and the containers that hold them."""

    def __init__(self, recorder: KnownArrays) -> None:
        """Keep what knows the arrays of the call, which has ended."""
        self._recorder = recorder
        #: By the identity of a tensor.
        self._outputs: dict[int, Made] = {}
        #: The identities of containers that a replay can't make anew.
        self._containers = {id(container) for container in recorder.call.containers}
        #: The outputs that require grad, each with its tensor; and the others.
        self.with_graph: list[tuple[Made, Any]] = []
        self.without_graph: list[tuple[Made, Any]] = []
        #: By output, where that is a view of a tensor that the call has made: the output of that
        #: tensor, which has a graph, and how to get from there to the view.
        self.bases: dict[Made, tuple[Made, Any]] = {}
        #: The identities of the Python values that are read from arrays.
        self.values: set[int] = set()
        #: The version counters of the tensors.
        self._counters: list[Any] = []

    def _check_alone(self, value: Any) -> None:
        """Raise for a returned tensor whose version counter another tensor of the caller's has."""
        counter = value._counter
        known = [source.tensor._counter for source in self._recorder.sources.values()]
        known += [grad._counter for grad, _ in self._recorder.gradients.values()]
        if any(counter is other for other in (*known, *self._counters)):
            raise UnrepeatableError("it returns two tensors of the same memory")
        self._counters.append(counter)

    def _key(self, key: Any) -> Any:
        """A key of a dictionary that is returned; raises for one that is another at each call."""
        if isinstance(key, tuple):
            for part in key:
                self._key(part)
        elif not (is_value(type(key)) or self._recorder.call.reached.has_met(key)):
            raise UnrepeatableError("it returns a dictionary with a key that it has made or got")
        return key

    def _tensor(self, value: Any) -> Any:
        """The template of a tensor that is returned."""
        if (before := self._recorder.before(value)) is not None:
            return before
        if (known := self._outputs.get(id(value))) is None:
            inference = value._autograd is not None and is_inference(value)
            if value._edge is None and value._autograd is not None and requires_grad(value):
                raise UnrepeatableError("it returns a leaf that it has made")
            if inference and view_of(value) is not None:
                raise UnrepeatableError("it returns a view")
            changes = 0
            if value._counter is not None:
                self._check_alone(value)
                changes = 0 if inference else version_of(value)
            if (place := self._recorder.array_of(value)) in self._recorder.given:
                raise UnrepeatableError("it returns a tensor that is a .grad, too")
            known = Made(place, value._metadata, inference, changes)
            self._outputs[id(value)] = known
            if value._edge is None:
                self.without_graph.append((known, value))
            else:
                if (view := view_of(value)) is not None:
                    self._note_base(known, view)
                self.with_graph.append((known, value))
        return known

    def _note_base(self, output: Made, view: Any) -> None:
        """Take note of a returned view, whose base is a result that only the view knows."""
        base = view.base
        place = self._recorder.array_of(base)
        if creation_meta_of(view) is not None:
            raise UnrepeatableError("it returns a part of a tensor that it has split, or the like")
        if view.path is None or base._edge is None or place in self._recorder.given:
            raise UnrepeatableError("it returns a view")
        known = Made(place, base._metadata, False, output.version)
        self.bases[output] = known, view.path
        self.with_graph.append((known, base))

    def template(self, value: Any) -> Any:
        """The template of what is returned; containers are `[type, parts]` and `{type: items}`."""
        if isinstance(value, Variable):
            return self._tensor(value)
        kind = type(value)
        if (read := self._recorder.values.get(id(value))) is not None:
            self.values.add(id(value))
            return read
        if isinstance(value, Device) or (
            kind in CONSTANTS and (kind is not type or is_own(value.__module__))
        ):
            return value
        if self._recorder.call.reached.has_met(value):  # That is compared at each call.
            return Same(value)
        if id(value) in self._containers:
            raise UnrepeatableError("it returns a list or the like twice, or one that it is given")
        if not isinstance(value, tuple):
            self._containers.add(id(value))
        own = is_own(kind.__module__) and kind.__name__ in _RESULTS
        is_named = isinstance(value, tuple) and hasattr(value, "_fields")
        if kind in {tuple, list} or is_named or (own and isinstance(value, (tuple, list))):
            return [kind, [self.template(part) for part in value]]
        if own and not isinstance(value, dict):
            return value
        if isinstance(value, dict) and kind.__name__ in {"dict", "ResultDict"}:
            return {kind: [(self._key(key), self.template(part)) for key, part in value.items()]}
        if dataclasses.is_dataclass(kind) and is_record(kind):
            made = partial(_instance, kind, tuple(vars(value)))
            return [made, [self.template(part) for part in vars(value).values()]]
        raise UnrepeatableError(f"it returns a value of type {kind.__name__}")


def _instance(kind: Any, names: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    """An instance of a data class, as its `__init__` has left the recorded one."""
    made = object.__new__(kind)
    vars(made).update(zip(names, values, strict=True))
    return made
