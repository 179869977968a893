"""Compares the arguments of a call with those of a recorded one, by code made for the latter."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from asyncgrad.core.size import Size
from asyncgrad.core.variable import Variable, is_inference, requires_grad
from asyncgrad.core.versions import owner_of
from asyncgrad.ops.storage import address
from asyncgrad.replay.device_arrays import shares_memory
from asyncgrad.replay.known import check_tensor, is_named_tuple, is_record
from asyncgrad.replay.names import is_own
from asyncgrad.replay.reach import Reached
from asyncgrad.replay.steps import UnrepeatableError
from asyncgrad.replay.unchanged import (
    Comparison,
    is_number,
    meta_state,
    same_objects,
    same_value,
)

#: Arguments that are compared item by item, besides tuples and records.
_CONTAINERS = frozenset({list, dict, OrderedDict, defaultdict})
#: Arguments that are compared by value.
_VALUES = (bool, int, float, complex, str, bytes)


class Signature(Comparison):
    """The arguments of a recorded call.

    `match(args, kwargs)` returns the tensors among the arguments, each once, if they are alike in
    everything that a program depends on; otherwise None.
    """

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Describe the arguments; a tensor that a program can't start from is refused."""
        #: The tensors, each once, and the values that are followed: functions, modules, instances,
        #: and strings, which may be names of attributes.
        self.tensors: list[Any] = []
        self.others: list[Any] = []
        #: The classes of the records, which are compared field by field.
        self.records: list[type] = []
        #: By identity: the names of tensors, and of what can be changed.
        self._names: dict[int, str] = {}
        #: The lists, dictionaries and instances of records, each once.
        self.containers: list[Any] = []
        #: What can be changed and holds values: these lists, and the tables of the others.
        self._held: list[tuple[Any, list[Any]]] = []
        super().__init__(is_constant=_is_constant, meta_state=meta_state, same=same_value)
        self._lines: list[str] = []
        try:
            self._sequence(args, "args")
            if kwargs:
                self._dict(kwargs, "kwargs")
            else:
                self._refuse_if("kwargs")
        except RecursionError:
            raise UnrepeatableError("its arguments are nested too deeply") from None
        tensors = "".join(f"t{number}, " for number in range(len(self.tensors)))
        if len(self.tensors) > 1:
            self._refuse_if(f"len({{{tensors}}}) != {len(self.tensors)}")
        if len(self.containers) > 1:
            identities = ", ".join(f"id(m{number})" for number in range(len(self.containers)))
            self._refuse_if(f"len({{{identities}}}) != {len(self.containers)}")
        self._last = f"return ({tensors})"
        self._states = list(map(_state, self.tensors))
        self._metadata = [tensor._metadata for tensor in self.tensors]
        self._code: Callable[[Any, Any], Any] | None = None

    @property
    def match(self) -> Callable[[Any, Any], Any]:
        """The comparison, made when it is first needed."""
        code = self._code
        if code is None:
            body = "".join(f"    {line}\n" for line in (*self._lines, self._last))
            code = self._code = self._function("args, kwargs, ", body)
        return code

    def tell_apart(self, reached: Reached) -> None:
        """Compare at each call, too, which arguments the function can also reach elsewhere."""
        for number, value in enumerate(self.containers):
            if reached.has_met(value):
                self._refuse_if(f"m{number} is not {self._constant(value)}")
            else:
                self._refuse_if(f"{self._constant(reached.has_met)}(m{number})")
        known = set(reached.tensors)
        for number, tensor in enumerate(self.tensors):
            if tensor in known:
                self._refuse_if(f"t{number} is not {self._constant(tensor)}")
        known.difference_update(self.tensors)
        if known and self.tensors:
            self._refuse_if(f"not {self._constant(known)}.isdisjoint({self._last[7:]})")

    def tell_shared(self, reached: Reached) -> None:
        """Compare at each call, too, which tensors share memory: a change of one changes others."""
        shares = partial(_sharing, reached.tensors)
        if self.tensors:
            known = self._constant(shares(self.tensors))
            self._refuse_if(f"{self._constant(shares)}({self._last[7:]}) != {known}")

    def holds(self) -> bool:
        """Whether the arguments are still as they were when they were described."""
        return list(map(_state, self.tensors)) == self._states and all(
            same_objects(_contents(held), known) for held, known in self._held
        )

    def forget(self) -> None:
        """Drop the arguments: a tensor may have a large graph."""
        self.tensors.clear()
        self._states.clear()
        self.containers.clear()
        self._held.clear()

    def words(self) -> str:
        """The tensors, in words."""
        shown = [f"{metadata.dtype}{list(metadata.shape)}" for metadata in self._metadata]
        return ", ".join(shown) or "no tensors"

    def _refuse_if(self, condition: str) -> None:
        self._lines.append(f"if {condition}: return None")

    def _value(self, value: Any, text: str) -> None:
        kind = type(value)
        if isinstance(value, Variable):
            self._tensor(value, text)
        elif value is None or value is True or value is False or value is Ellipsis:
            self._refuse_if(f"{text} is not {value}")
        elif kind in _VALUES or is_number(kind):
            name = self._constant(value)
            self._refuse_if(f"{text} is not {name} and not same({text}, {name})")
            if kind is str:
                self.others.append(value)
        elif kind is tuple or kind is Size or is_named_tuple(kind):
            if kind is not tuple:
                self.records.append(kind)
            self._refuse_if(f"{text}.__class__ is not {self._constant(kind)}")
            self._sequence(value, text)
        elif kind is slice or kind is range:
            self._refuse_if(f"{text}.__class__ is not {self._constant(kind)}")
            for part in ("start", "stop", "step"):
                self._value(getattr(value, part), f"{text}.{part}")
        elif kind in _CONTAINERS or is_record(kind):
            self._changeable(value, text)
        else:
            self._refuse_if(f"{text} is not {self._constant(value)}")
            self.others.append(value)

    def _changeable(self, value: Any, text: str) -> None:
        """A list, a dictionary or a record: the code may ask which are the same object."""
        name = self._names.get(id(value))
        if name is not None:
            self._refuse_if(f"{text} is not {name}")
            return
        name = self._names[id(value)] = f"m{len(self.containers)}"
        self.containers.append(value)
        self._lines.append(f"{name} = {text}")
        kind = type(value)
        self._refuse_if(f"{name}.__class__ is not {self._constant(kind)}")
        held = value
        if kind is defaultdict:
            self._value(value.default_factory, f"{name}.default_factory")
        elif kind is OrderedDict:
            self._attributes(value, name)
        elif kind not in _CONTAINERS:
            self.records.append(kind)
            held, name = vars(value), f"{name}.__dict__"
        self._held.append((held, _contents(held)))
        if kind is list:
            self._sequence(held, name)
        else:
            self._dict(held, name)

    def _attributes(self, value: Any, name: str) -> None:
        attributes = vars(value)
        self._held.append((attributes, _contents(attributes)))
        self._dict(attributes, f"{name}.__dict__")

    def _sequence(self, values: Any, text: str) -> None:
        self._refuse_if(f"len({text}) != {len(values)}")
        for place, value in enumerate(values):
            self._value(value, f"{text}[{place}]")

    def _dict(self, values: dict[Any, Any], text: str) -> None:
        if all(type(key) is str for key in values):
            self.others += values
            self._refuse_if(f"tuple({text}) != {self._constant(tuple(values))}")
            for key, value in values.items():
                self._value(value, f"{text}[{key!r}]")
        else:
            # 1, 1.0 and True are equal, and so are tensors of other calls perhaps.
            self._sequence(tuple(values), f"tuple({text})")
            self._sequence(tuple(values.values()), f"tuple({text}.values())")

    def _tensor(self, tensor: Any, text: str) -> None:
        name = self._names.get(id(tensor))
        if name is not None:
            self._refuse_if(f"{text} is not {name}")
            return
        check_tensor(tensor, argument=True)
        name = self._names[id(tensor)] = f"t{len(self.tensors)}"
        self.tensors.append(tensor)
        kind, metadata = self._constant(type(tensor)), self._constant(tensor._metadata)
        strides = self._constant(tensor._array.strides)
        self._lines.append(f"{name} = {text}")
        has_graph = tensor._edge is not None
        self._refuse_if(
            f"{name}.__class__ is not {kind} or {name}._metadata is not {metadata} or "
            f"{name}._edge is {'' if has_graph else 'not '}None or "
            f"{name}._array.strides != {strides}"
        )
        if not is_own(type(tensor).__module__):
            self.records.append(type(tensor))
        if type(tensor).__dictoffset__:
            # What users have set on a parameter.
            self._attributes(tensor, name)
        if has_graph:
            return
        if requires_grad(tensor):
            state = self._constant(meta_state(tensor._autograd))
            self._refuse_if(
                f"{name}._autograd is None or {name}._autograd.view is not None or "
                f"meta_state({name}._autograd) != {state}"
            )
        elif is_inference(tensor):
            self._refuse_if(f"{name}._autograd is None or not is_constant({name}, True)")
        else:
            self._refuse_if(f"{name}._autograd is not None and not is_constant({name}, False)")


def _contents(container: Any) -> list[Any]:
    """What a list or dictionary holds."""
    return [*container] if container.__class__ is list else [*container, *container.values()]


def _state(tensor: Any) -> tuple[Any, ...]:
    meta = tensor._autograd
    state = None if meta is None else meta_state(meta)
    return tensor._metadata, tensor._edge, tensor._array.strides, state, requires_grad(tensor)


def _sharing(reached: list[Any], tensors: Sequence[Any]) -> list[Any] | None:
    """How tensors share memory with others, those reached and their gradients; None if none does.

    For each tensor: the number of the last one before it that has its version counter, and the
    numbers of those of which it has elements, with the distances.
    """
    # Without calls, because most programs are replayed with tensors that share no memory.
    metas = [meta for x in reached if (meta := x._autograd) is not None]
    held = [*reached, *[grad for meta in metas if (grad := meta.grad) is not None]]
    if all(x._counter is None and x._array.base is None for x in tensors) and {
        *map(id, tensors)
    }.isdisjoint(map(id, held)):
        return None
    arrays = [(number, x._array) for number, x in enumerate(held)]
    known = [(number, x, id(x if x.base is None else owner_of(x))) for number, x in arrays]
    counters = {x._counter: number for number, x in enumerate(held)}
    found: list[Any] = []
    for place, tensor in enumerate(tensors, 1):
        array, counter = tensor._array, tensor._counter
        owner = id(owner_of(array))
        common = [
            (number, address(array) - address(other))
            for number, other, owner_of_other in known
            if owner_of_other == owner and shares_memory(array, other)
        ]
        found.append((None if counter is None else counters.get(counter), common))
        counters[counter] = -place
        known.append((-place, array, owner))
    return found if any(number is not None or common for number, common in found) else None


def _is_constant(tensor: Any, inference: bool) -> bool:
    """Whether a tensor needs no gradient and has no hooks."""
    return (
        not requires_grad(tensor)
        and is_inference(tensor) is inference
        and tensor._autograd.extras is None
        and not tensor._autograd.retains_grad
    )
