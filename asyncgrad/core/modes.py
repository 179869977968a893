"""Ambient state: one context variable that holds an immutable record.

Grad mode, anomaly mode, saved-tensor hooks and the rest belong to the asyncio task, not the thread:
tasks, `asyncio.to_thread` and anyio's threads inherit a copy, and changes stay in their context.

A mode is left by restoring the record found on entry, never by resetting a token: a token belongs
to one context, and the finaliser of an async generator runs in another. That record is kept in the
context, not in the manager, because many tasks and threads may enter one manager at a time.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, Self, TypeVar, cast

from asyncgrad.aliases import Value
from asyncgrad.errors import AutogradError

_F = TypeVar("_F", bound="Callable[..., Any]")


@dataclass(slots=True, weakref_slot=True)
class Modes:
    """The ambient settings of an operation or a pass.

    A record that has been made never changes, except that `check` may set `plain` to False.
    """

    # It is not `frozen`: to make a frozen record takes 10 us, and this one half of one.

    #: Operations on tensors that require grad are recorded.
    grad: bool = True
    #: New tensors can never take part in a graph.
    inference: bool = False
    #: Nodes remember where they were made, and passes check for NaN if `check_nan`.
    anomaly: bool = False
    check_nan: bool = True
    #: The innermost pair of pack and unpack, or None.
    saved_hooks: Any = None
    #: Called with each tensor that is about to be changed in place, or None.
    before_change: Any = None
    #: The reason why saved-tensor hooks may not be used here, or None.
    saved_hooks_disabled: str | None = None
    #: The innermost default device, linked to the enclosing ones, or None for the CPU.
    device: Any = None
    #: The random generator, or None for the process' default one.
    generator: Any = None
    #: Keeps results of a checkpoint's first run for its recomputation, or None.
    selection: Any = None
    #: Settings that override the arguments of checkpoints, or None.
    checkpoints: Any = None
    #: The innermost current stream, linked to enclosing ones, or None for default streams.
    streams: Any = None
    #: The pass that is running the current node, or None.
    graph_task: Any = None
    #: The current node, in anomaly mode.
    node: Any = None
    #: Notified of every node and slice of passes started here, or None.
    observer: Any = None
    #: The innermost open level of forward mode, or None.
    dual_level: Any = None
    #: Within a level: operations push tangents forward.
    forward: bool = True
    #: `backward()` and `grad()` block here even on a running loop.
    blocking: bool = False
    #: How deep passes may be nested in one another.
    nesting_limit: int = 20_000
    #: Without effect; PyTorch programs read it.
    multithreading: bool = True
    #: By parameter, its values at the time of the snapshot that is entered; or None.
    weights: Any = None
    #: By module and name, results of parametrizations within `cached()`, or None.
    parametrized: Any = None
    #: Defaults for passes started here.
    priority: int = 0
    deadline: float | None = None
    #: Starts passes here in place of the scheduler's function, which it is given; or None.
    starts: Any = None
    #: Stops an offloaded function if its caller is cancelled (`scheduler/offload.py`), or None. Its
    #: `watch` gets each record that the function makes. Then it makes these not plain, and raises
    #: when it is called: after each operation that is not plain.
    check: Any = None
    #: The innermost active `vmap`, or None.
    batch: Any = None
    #: Told of each operation and pass, so that a later call can repeat them; or None.
    recorder: Any = None
    #: The innermost function that `func` is differentiating, or None.
    transform: Any = None
    #: The forward of a `Function` runs unrecorded, and it is noted which results are computed from
    #: its inputs.
    tracking: bool = False
    #: Derived: an operation only has to check `grad`, and whether its inputs require grad.
    plain: bool = field(default=True, init=False)
    #: Derived: the record would be `plain` if it had no recorder (`asyncgrad.compile`).
    only_recorder: bool = field(default=False, init=False)
    #: Cache of records that differ from this one only in switches, by these changes. Cached records
    #: have no cache of their own, so no chain grows as switches go on and off.
    variants: dict[Any, Modes] | None = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    def __post_init__(self) -> None:
        """Derive `plain`, so that operations check one field instead of many."""
        plain = (
            not self.inference
            and not self.anomaly
            and self.saved_hooks is None
            and self.dual_level is None
            and self.batch is None
            and self.selection is None
            and self.streams is None
            and not self.tracking
        )
        self.plain = plain and self.recorder is None
        self.only_recorder = plain and self.recorder is not None and self.check is None
        if self.check is not None:
            self.check.watch(self)

    def replace(self, **changes: Value) -> Modes:
        """A record with some fields changed; the default record is always the same object."""
        variants = self.variants
        if variants is None:
            return self._changed(changes)
        for value in changes.values():
            if value.__class__ is not bool:
                return self._changed(changes)
        key = tuple(changes.items())
        record = variants.get(key)
        if record is None:
            record = variants[key] = self._changed(changes)
            if record is not DEFAULT:
                record.variants = None
        return record

    def _changed(self, changes: dict[str, Any]) -> Modes:
        values = list(_get(self))
        for name, value in changes.items():
            values[_PLACES[name]] = value
        return DEFAULT if values == _DEFAULTS else Modes(*values)


_NAMES = tuple(f.name for f in fields(Modes) if f.init)
_PLACES = {name: place for place, name in enumerate(_NAMES)}
_get = attrgetter(*_NAMES)
DEFAULT = Modes()
_DEFAULTS = list(_get(DEFAULT))
_variable: ContextVar[Modes] = ContextVar("asyncgrad_modes", default=DEFAULT)

#: The current record. One look-up, bound once: every operation pays for it.
current: Callable[[], Modes] = _variable.get
#: Make another record the current one in this context.
install = _variable.set

#: The modes entered in this context, innermost first: the mode, its changes, the record found on
#: entry, the record installed, and the enclosing entry.
_entries: ContextVar[Any] = ContextVar("asyncgrad_entries", default=None)
_entered = _entries.get
_enter = _entries.set


def refuse_in_transform(what: str) -> None:
    """Raise inside a function that `asyncgrad.func` transforms."""
    modes = current()
    batch = modes.batch
    if modes.transform is not None or (batch is not None and not batch.loops):
        raise AutogradError(
            f"You are attempting to call {what} (or perhaps using asyncgrad.autograd.functional.* "
            f"APIs) inside of a function being transformed by asyncgrad.func. This is "
            f"unsupported; please use the transforms of asyncgrad.func instead (grad, vjp, jvp, "
            f"jacrev, jacfwd, hessian, vmap), or call it outside of them."
        )


class Mode:
    """A context manager and decorator that changes the record while its block or function runs.

    As a decorator it takes functions, coroutine functions, generators and async generators. For a
    generator the mode is active while its body runs, not while it is suspended.
    """

    def __init__(self, **changes: Value) -> None:
        self._changes = changes

    def __enter__(self) -> Self:
        # Inlined `_put`, whose calls would cost more than all else here.
        found = current()
        changed = found.replace(**self._changes)
        install(changed)
        _enter((self, self._changes, found, changed, _entered()))
        return self

    def _put(self, changes: dict[str, Any]) -> None:
        """Install a record with these changes, until `__exit__` in this context."""
        found = current()
        changed = found.replace(**changes)
        install(changed)
        _enter((self, changes, found, changed, _entered()))

    def __exit__(self, *error: object) -> None:
        """Restore the changed fields as found on entry; others that were set since stay.

        Does nothing in a context that has not entered this mode: the finaliser of an async
        generator may leave a mode that another context has entered.
        """
        entry = _entered()
        if entry is not None and entry[0] is self and entry[3] is current():
            _enter(entry[4])
            install(entry[2])
            return
        above = []
        while entry is not None and entry[0] is not self:
            above.append(entry)
            entry = entry[4]
        if entry is None:
            return
        _, changes, found, _, rest = entry
        values = {name: getattr(found, name) for name in changes}
        for mode, own, before, after, _ in reversed(above):
            # This inner mode stays active, so it must restore the outer values on its own exit.
            rest = (mode, own, before.replace(**values), after, rest)
            values = {name: value for name, value in values.items() if name not in own}
        _enter(rest)
        if values:
            install(current().replace(**values))

    def _again(self) -> Self:
        """A manager like this one, for one call of a function: calls overlap, in any contexts."""
        again = object.__new__(type(self))
        vars(again).update(vars(self))
        return again

    def __call__(self, function: _F) -> _F:
        """Decorate a function, a coroutine function, a generator of either, or a class."""
        return cast("_F", _decorate(self._again, function))


def _decorate(mode: Callable[[], Mode], function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that the mode is active while its body runs."""
    if inspect.isclass(function):
        warnings.warn(
            "Decorating classes is deprecated and will be disabled in future versions. You should "
            "only decorate functions or methods. To preserve the current behavior of class "
            "decoration, you can directly decorate the `__init__` method and nothing else.",
            FutureWarning,
            stacklevel=3,
        )
        kind: Any = function
        kind.__init__ = _decorate(mode, kind.__init__)
        return function
    if inspect.isasyncgenfunction(function):
        within = _async_generator
    elif inspect.iscoroutinefunction(function):
        within = _coroutine
    elif inspect.isgeneratorfunction(function):
        within = _generator
    else:
        within = _plain
    return functools.wraps(function)(within(mode, function))


def _async_generator(mode: Callable[[], Mode], function: Callable[..., Any]) -> Callable[..., Any]:
    async def within(*args: Value, **kwargs: Value) -> Any:
        inner = function(*args, **kwargs)
        resume, value = inner.asend, None
        try:
            while True:
                with mode():
                    try:
                        item = await resume(value)
                    except StopAsyncIteration:
                        return
                try:
                    resume, value = inner.asend, (yield item)
                except GeneratorExit:
                    raise
                except BaseException as error:
                    resume, value = inner.athrow, error
        finally:
            with mode():
                await inner.aclose()

    return within


def _coroutine(mode: Callable[[], Mode], function: Callable[..., Any]) -> Callable[..., Any]:
    async def within(*args: Value, **kwargs: Value) -> Any:
        with mode():
            return await function(*args, **kwargs)

    return within


def _generator(mode: Callable[[], Mode], function: Callable[..., Any]) -> Callable[..., Any]:
    def within(*args: Value, **kwargs: Value) -> Any:
        inner = function(*args, **kwargs)
        resume, value = inner.send, None
        try:
            while True:
                with mode():
                    try:
                        item = resume(value)
                    except StopIteration as stop:
                        return stop.value
                try:
                    resume, value = inner.send, (yield item)
                except GeneratorExit:
                    raise
                except BaseException as error:
                    resume, value = inner.throw, error
        finally:
            with mode():
                inner.close()

    return within


def _plain(mode: Callable[[], Mode], function: Callable[..., Any]) -> Callable[..., Any]:
    def within(*args: Value, **kwargs: Value) -> Any:
        with mode():
            return function(*args, **kwargs)

    return within
