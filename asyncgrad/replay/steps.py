"""The steps that a recorded call is made of, and the templates that describe their values.

A template is a value in which a `Place` stands for each array, a `Source` for each tensor that the
program starts from, and tuples, lists and dictionaries for themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from itertools import accumulate
from math import prod
from operator import attrgetter, mul
from typing import Any

import numpy as np

from asyncgrad.aliases import Array
from asyncgrad.core.variable import wrap
from asyncgrad.ops.device_check import device_of
from asyncgrad.ops.fused import Once
from asyncgrad.records import NamedTuple

#: The name of a step that compares what Python has read from an array.
LOOK = "a look at values"
#: The name of a step that gives a tensor, its first argument, other values.
IN_PLACE = "a change in place"
#: The name of a step that makes an object in each replay, as what it depends on may have changed.
MADE = "an object made anew"
#: The name of a step that copies an array.
COPY = "copy"
#: Why a call can't be repeated that has effects on objects.
CHANGED = "it has changed something that it can read, which a replay would not do"
#: The layout of lists of arrays, and of anything that is no array: that of a large array.
_LIST = np.lib.stride_tricks.as_strided(np.empty(1), (1 << 37,), (0,))
#: Functions with effects on nothing but `.grad`.
GRADIENTS_ONLY = frozenset({"Module.zero_grad", "Optimizer.zero_grad"})


class UnrepeatableError(Exception):
    """Why a call can't be repeated from what was recorded.

    Its `name` is that of the attribute that the code must not use, if that is the reason.
    """

    def __init__(self, why: str, name: str | None = None) -> None:
        super().__init__(why)
        self.name = name


class UnwritableError(UnrepeatableError):
    """Why a program can't be written, now or later."""


def report(method: Callable[..., None]) -> Callable[..., None]:
    """Decorate a method that takes a report: once the call can't be repeated, none counts."""

    @wraps(method)
    def taken(self: Any, *args: Any) -> None:
        if self.reason is None:
            try:
                method(self, *args)
            except UnrepeatableError as error:
                self.refuse(str(error))

    return taken


class Recorded(NamedTuple):
    """What a recorder is told of the call that it records."""

    #: The tensors among the arguments, each once, and the lists and dictionaries.
    arguments: Sequence[Any] = ()
    containers: Sequence[Any] = ()
    #: What the function can read, as a `Reached`, with the other tensors.
    reached: Any = None
    #: The function's own code, if it has some.
    code: Any = None
    #: Raise an error where the call turns out to be unrepeatable.
    strict: bool = False
    #: The call is awaited.
    waits: bool = False


class Region:
    """Where the elements of a view lie in the contiguous array that owns its memory."""

    __slots__ = ("_dtype", "_offset", "_shape", "_strides")

    def __init__(self, owner: Array, view: Array) -> None:
        start, own = (x.__array_interface__["data"][0] for x in (owner, view))
        self._offset = own - start
        self._shape, self._strides, self._dtype = view.shape, view.strides, view.dtype

    def of(self, owner: Array) -> Any:
        """The view of another array of the owner's layout."""
        return np.ndarray(self._shape, self._dtype, owner, self._offset, self._strides)


@dataclass(slots=True, eq=False, repr=False)
class Put:
    """Puts values into a region of a copy, which may be the array itself if nothing else reads it.

    It is called as `put(owner, values, out)`, where `out` may be the owner.
    """

    region: Region

    def __call__(self, owner: Array, values: Array, out: Array | None = None) -> Any:
        """Return the owner with other values there: in new memory, or in `out`."""
        made = np.empty_like(owner) if out is None else out
        if made is not owner:
            made[...] = owner
        self.region.of(made)[...] = values
        return made


class Opaque:
    """What a `Place` that stands for no array has as its sample: the `ctx` of a `Function`."""

    __slots__ = ()


class Place:
    """An array of the program: one that a step makes, or that the program reads at that point."""

    # The table of further attributes is only for what is no array of NumPy's.
    __slots__ = ("__dict__", "dtype", "sample", "shape", "strides")
    on_host = is_array = True
    is_opaque = False

    def __init__(self, sample: Any) -> None:
        """Note the layout of an array, a number, a list or an `Opaque`."""
        #: The array while the call is recorded. Later None, but the array of a constant.
        self.sample = sample
        if sample.__class__ is not np.ndarray:
            self.on_host = device_of(sample) is None
            self.is_array = not self.on_host
            self.is_opaque = sample.__class__ is Opaque
            if sample.__class__ is list or self.is_opaque:
                sample = _LIST
            elif sample.__class__ in {float, complex}:
                sample = np.asarray(sample)
        self.shape, self.dtype, self.strides = sample.shape, sample.dtype, sample.strides

    def another(self) -> Place:
        """A new place of the same layout, for an array of NumPy's that is not known."""
        made = object.__new__(Place)
        made.sample = None
        made.shape, made.dtype, made.strides = self.shape, self.dtype, self.strides
        return made

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return int(prod(self.shape) * self.dtype.itemsize)

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for places whose arrays no function tells apart by their layouts."""
        return self.shape, self.dtype, self.strides, self.is_array

    @property
    def is_target(self) -> bool:
        """Whether a function may write such a result into memory that exists already."""
        # If the result overwrites an operand, NumPy rounds the product of two complex numbers
        # differently.
        alone = self.dtype.kind == "c" and prod(self.shape) == 1
        strides = accumulate(self.shape[:0:-1], mul, initial=self.dtype.itemsize)
        is_contiguous = self.strides == tuple(strides)[::-1]
        return self.is_array and self.ndim > 0 and is_contiguous and not alone


@dataclass(slots=True, eq=False, repr=False)
class Source:
    """A tensor that the program starts from: an argument or one that the function reaches for."""

    tensor: Any
    #: Its number among the arguments, None for others.
    argument: int | None
    #: The argument is an array, and no tensor.
    is_array: bool = False

    def of(self, arguments: Sequence[Any]) -> Any:
        """The tensor in a call with these arguments."""
        return self.tensor if self.argument is None else arguments[self.argument]


@dataclass(slots=True, eq=False, repr=False)
class Made:
    """A tensor of an array, which a function that is called anew is given, or the call returns."""

    place: Place
    metadata: Any
    #: It is returned: an inference tensor, and how often the call has changed it in place.
    inference: bool = False
    version: int = 0


class Step:
    """What steps have in common: the places that they read and make, found when first asked for."""

    __slots__ = ("made", "read")

    #: Functions that give the templates of what a step reads and makes.
    _reads: Any = staticmethod(lambda _: ())
    _makes: Any = _reads

    def __getattr__(self, name: str) -> Any:
        """The places: Python calls this if they are not known yet."""
        if name not in {"made", "read"}:
            raise AttributeError(name)
        template = self._reads(self) if name == "read" else self._makes(self)
        found = (template,) if template.__class__ is Place else tuple(places_in(template))
        setattr(self, name, found)
        return found


class Compute(Step):
    """A step: arrays from arrays."""

    __slots__ = ("arguments", "cost", "function", "name", "outs", "over")

    _reads = attrgetter("arguments")
    _makes = attrgetter("outs")

    def __init__(self, name: str, function: Any, arguments: Any, outs: Any, cost: int) -> None:
        """Note what is called, and the template of what it returns: places, None, tuples."""
        self.name = name
        self.function = function
        self.arguments = arguments
        self.outs = outs
        if outs.__class__ is Place:
            # The usual case; to find that an attribute is missing takes longer.
            self.made = (outs,)
        self.cost = cost
        #: A function that does the same, and may overwrite the second argument.
        self.over: Any = None


@dataclass(slots=True, eq=False, repr=False)
class Load(Step):
    """A step: read the present array of a source, or of its `.grad`."""

    _makes = attrgetter("out")

    source: Source
    out: Place
    gradient: bool


class UserCall(NamedTuple):
    """What is known of a step that calls user code."""

    #: It runs in a pass: the function is a generator function, which may wait.
    within: bool = True
    #: Its result may be of another kind than in the recorded call. Then the call is made eagerly.
    strict: bool = True
    #: It also commits a gradient.
    commits: bool = False


@dataclass(slots=True, eq=False, repr=False)
class Again(Step):
    """A step: call a function anew, and compare what it returns besides arrays."""

    _reads = attrgetter("arguments", "keywords")
    _makes = attrgetter("outs")

    name: str
    function: Any
    arguments: Any
    keywords: Any
    outs: Any
    effect: bool
    user_call: UserCall | None = None

    @property
    def only_raises(self) -> bool:
        """Whether it may raise, as in the recorded call, but can't return anything else."""
        return self.outs.__class__ is Same and self.outs.value is None


@dataclass(slots=True, eq=False, repr=False)
class Commit(Step):
    """A step: add gradients to the `.grad` of leaves, all or none."""

    _reads = attrgetter("staged")

    #: The leaves, each with its gradient; none where nothing is left to be committed.
    staged: list[tuple[Source, Place]]
    #: A pass over a device with streams ends here, perhaps one of `grad()`.
    streamed: bool = False
    #: That pass waits until the device has done its work.
    waits: bool = True


@dataclass(slots=True, eq=False, repr=False)
class Gradient:
    """The `.grad` of a tensor, which the function returns."""

    source: Source


@dataclass(slots=True, eq=False, repr=False)
class Same:
    """A value that a replay passes on as it is, or that it compares."""

    value: Any


#: The types of parts of templates in which there are no places.
_WITHOUT_PLACES = frozenset({type(None), bool, int, float, str, Gradient, Same, Source})


def item_at(values: Any, path: tuple[int, ...]) -> Any:
    """An item of nested lists."""
    for number in path:
        values = values[number]
    return values


def places_in(template: Any) -> list[Place]:
    """The places of a template, in order."""
    found: list[Place] = []
    _find(template, found)
    return found


def _find(template: Any, found: list[Place]) -> None:
    kind = template.__class__
    if kind is Place:
        found.append(template)
    elif isinstance(template, (tuple, list)):
        for part in template:
            # The usual cases, without another call.
            if part.__class__ is Place:
                found.append(part)
            elif part.__class__ not in _WITHOUT_PLACES:
                _find(part, found)
    elif kind is Made:
        found.append(template.place)
    elif kind is dict:
        for part in template.values():
            _find(part, found)
    elif kind is slice:
        _find((template.start, template.stop, template.step), found)


def sources_in(template: Any) -> list[Source]:
    """The tensors of a template that were there before the call."""
    if template.__class__ is Source:
        return [template]
    parts = template.values() if template.__class__ is dict else template
    if isinstance(template, (tuple, list, dict)):
        return [source for part in parts for source in sources_in(part)]
    return []


def filled(template: Any, arrays: dict[Any, Any]) -> Any:
    """A template with the arrays in their places, and tensors for sources."""
    kind = template.__class__
    if kind is Place or kind is Source:
        return arrays[template]
    if kind is Made:
        return wrap(arrays[template.place], template.metadata)
    if kind is Same:
        return template.value
    if kind is slice:
        parts = (template.start, template.stop, template.step)
        return slice(*[filled(part, arrays) for part in parts])
    if kind is tuple or kind is list:
        return kind([filled(part, arrays) for part in template])
    if kind is dict:
        return {key: filled(part, arrays) for key, part in template.items()}
    return template


def lists_in(steps: list[Any]) -> set[Place]:
    """The lists in which operations leave intermediate values for their gradients."""
    return {
        step.outs
        for step in steps
        if step.__class__ is Compute and (step.function is list or step.function is Once)
    }
