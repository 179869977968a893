"""Replaces rules and kernels that only call elementwise functions and products by these functions.

A rule such as `lambda F, g, out: g * (1 - out * out)` is called with objects that note what is done
to them. The noted functions replace the rule if they give the same bits, for arrays of the same
layouts with numbers of all kinds. A rule that does anything but arithmetic with its arguments stays
as it is: if it asks for a value, for example, what it does next might depend on that.
"""

from __future__ import annotations

import marshal
from dataclasses import dataclass
from functools import lru_cache, partial
from math import copysign
from operator import attrgetter
from types import MethodType, ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from asyncgrad.devices.plain_numpy import COMPILED
from asyncgrad.devices.pool import POOL
from asyncgrad.ops.namespace import IgnoringFpErrors
from asyncgrad.ops.registry import OPS
from asyncgrad.replay.memory import PRODUCTS, turned
from asyncgrad.replay.steps import Compute, Place, Same, filled

#: Larger arrays take longer than the calls that are saved.
_LARGEST = 1 << 18
_rng = np.random.default_rng(0)
_numbers = np.concatenate([
    [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-30, 1e30, -3.5],
    _rng.standard_normal(51),
])  # fmt: skip
#: Numbers of all kinds, in several orders; a prime number of them, so that rows differ.
_NUMBERS = [_rng.permutation(_numbers) for _ in range(8)]


class _StayError(Exception):
    """The rule does something else than arithmetic."""


@dataclass(eq=False, repr=False)
class _Value(NDArrayOperatorsMixin):
    """Stands for an array in a rule that is noted, and computes on an array of that layout."""

    #: What the rule has done so far.
    steps: list[Compute]
    place: Place
    array: Any
    #: It was made by the rule, so it may be written to.
    own: bool
    #: It is the transposed matrix of the place, which only products read.
    turned: bool = False

    dtype = property(lambda self: self.array.dtype)
    shape = property(lambda self: self.array.shape)
    ndim = property(lambda self: self.array.ndim)
    size = property(lambda self: self.array.size)
    #: What follows from the layout.
    flags = property(lambda self: SimpleNamespace(c_contiguous=self.array.flags.c_contiguous))

    #: An array's own operator calls other functions than `power` for some exponents.
    __pow__ = __rpow__ = __ipow__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise _StayError

    def __len__(self) -> int:
        return int(self.shape[0])

    @property
    def T(self) -> _Value:
        """The transposed matrix."""
        if self.ndim != 2:
            raise _StayError
        return _Value(self.steps, self.place, self.array.T, False, not self.turned)

    def transpose(self, order: tuple[int, ...]) -> _Value:
        """The transposed matrix, if the order of axes is that."""
        if order != (1, 0):
            raise _StayError
        return self.T

    def reshape(self, *shape: int) -> _Value:
        """The value itself, if it has that shape."""
        if shape != self.shape:
            raise _StayError
        return self

    def note(self, name: str, function: Any, arguments: tuple[Any, ...], result: Any) -> _Value:
        """Note a call; returns the value that stands for its result."""
        if result.__class__ is not np.ndarray or not result.ndim:
            raise _StayError
        place = Place(result)
        self.steps.append(Compute(name, function, arguments, place, 0))
        return _Value(self.steps, place, result, True)

    def __array_ufunc__(
        self, function: Any, method: str, *inputs: Any, out: tuple[Any, ...] = (), **options: Any
    ) -> Any:
        """NumPy calls this where a universal function gets the value, as operators do, too."""
        if method != "__call__" or options or function.nout != 1:
            raise _StayError
        for x in inputs:
            if not isinstance(x, (_Value, float, int)) or isinstance(x, np.generic):
                raise _StayError
            if isinstance(x, _Value) and x.turned:
                raise _StayError
        result = function(*[x.array if isinstance(x, _Value) else x for x in inputs])
        arguments = tuple([x.place if isinstance(x, _Value) else x for x in inputs])
        made = self.note(function.__name__, function, arguments, result)
        if not out:
            return made
        (target,) = out
        own = isinstance(target, _Value) and target.own
        if not own or target.place.key != made.place.key:
            raise _StayError
        target.place, target.array = made.place, made.array
        return target


def _product(x: Any, y: _Value) -> _Value:
    """Note a product of matrices, or of a constant vector and a matrix."""
    constant = x.__class__ is np.ndarray
    function = PRODUCTS.get((not constant and x.turned, y.turned))
    result = np.dot(x if constant else x.array, y.array)
    if function is None or result.nbytes >= POOL.large:
        raise _StayError
    return y.note("mm", function, (Same(x) if constant else x.place, y.place), result)


def _contiguous(x: _Value) -> _Value:
    """Note that a transposed matrix is copied."""
    if not x.turned:
        raise _StayError
    return x.note("turned", turned, (x.place,), x.array.copy())


class _Compiled(dict[str, Any]):
    """No compiled kernels; a rule that asks for one that there is stays as it is.

    Its last bits may differ from those of NumPy's functions, if not for the numbers that are tried.
    """

    def __bool__(self) -> bool:
        return bool(COMPILED)

    def get(self, name: str, default: Any = None) -> Any:
        if name in COMPILED:
            raise _StayError
        return default


class _Library:
    """The library that a noted kernel computes with."""

    #: Not NumPy's class, so that kernels take their general branch.
    ndarray = _Value
    compiled: ClassVar[dict[str, Any]] = _Compiled()
    on_host = True
    ascontiguousarray = staticmethod(_contiguous)
    dot = staticmethod(_product)
    ones = staticmethod(np.ones)

    def __getattr__(self, name: str) -> Any:
        function = getattr(np, name, None)
        if not isinstance(function, np.ufunc):
            raise _StayError
        return function


_LIBRARY = _Library()


class _Functions:
    """The namespace that a noted rule computes with."""

    xp: Any = _LIBRARY

    def __init__(self, F: Any) -> None:
        self._F = F
        self.fused = F.fused

    def __getattr__(self, name: str) -> Any:
        function = vars(self._F).get(name)
        universal = _universal(name, function)
        if universal is not None:
            return universal
        if isinstance(function, MethodType):
            return partial(function.__func__, _LIBRARY)
        if name == "mm":
            return _product
        if isinstance(function, attrgetter):
            return function
        raise _StayError


def _universal(name: str, function: Any) -> Any:
    """NumPy's universal function that an op's raw function is, or None."""
    if isinstance(function, np.ufunc):
        return function
    op = OPS.get(name)
    if op is None:
        return None
    forward = op.forward
    found = getattr(np, forward, None) if isinstance(forward, str) else None
    if isinstance(forward, IgnoringFpErrors):
        # A replay ignores the errors in any case.
        found = getattr(np, forward.name, None)
    return found if isinstance(found, np.ufunc) else None


def inlined(steps: list[Any]) -> list[Any]:
    """The steps, with others in the place of those that can be replaced."""
    return [one for step in steps for one in _replaced(step)]


def _replaced(step: Any) -> list[Any]:
    """The steps that take the place of one."""
    if step.__class__ is not Compute or not step.made or not all(map(_is_new, _several(step.outs))):
        return [step]
    rule = bool(step.arguments) and step.arguments[0].__class__ is Same
    universal = None if rule else _universal(step.name, step.function)
    bound = isinstance(getattr(step.function, "__self__", None), ModuleType)
    if not (rule or universal is not None or bound):
        # It may be an object of this program, so no key may refer to it.
        return [step]
    places = list(dict.fromkeys(step.read))
    found = _found(step, universal, places)
    if found is None:
        out = step.made[0]
        if universal is None or not out.ndim or out.dtype.char not in "fdgFDG":
            # Half precision has kernels of its own.
            return [step]
        return [Compute(step.name, universal, step.arguments, step.outs, step.cost)]
    inputs, notes, results = found
    named = dict(zip(inputs, places, strict=True))
    outs = dict(zip(results, _several(step.outs), strict=True))
    made = []
    for note in notes:
        out = named[note.outs] = outs.get(note.outs) or note.outs.another()
        arguments = tuple([named.get(x, x) if isinstance(x, Place) else x for x in note.arguments])
        made.append(Compute(note.name, note.function, arguments, out, step.cost // len(notes)))
    return made


def _found(step: Compute, universal: Any, places: list[Place]) -> Any:
    """What replaces a step, None if it stays; all programs share what was found."""
    try:
        arguments = _shown(step.arguments, places)
    except _StayError:
        return None
    key = step.function, arguments, *[place.key for place in places], len(COMPILED)
    if key not in _known:
        if len(_known) >= _MOST:
            _known.clear()
        _known[key] = _noted(step, universal, places)
    return _known[key]


def _noted(step: Compute, universal: Any, places: list[Place]) -> Any:
    arrays = [_array(number, place) for number, place in enumerate(places)]
    if not all(array is not None for array in arrays):
        return None
    inputs = list(map(Place, arrays))
    notes: list[Compute] = []
    values = {
        place: _Value(notes, own, array, False)
        for place, own, array in zip(places, inputs, arrays, strict=True)
    }
    real = dict(zip(places, arrays, strict=True))
    try:
        with np.errstate(all="ignore"):
            if step.arguments[0].__class__ is Same:
                F = step.arguments[0].value
                result = step.function(_Functions(F), *filled(step.arguments[1:], values))
                wanted = step.function(F, *filled(step.arguments[1:], real))
            else:
                given = filled(step.arguments, values)
                if universal is not None:
                    result = universal(*given)
                else:
                    result = step.function.__func__(_LIBRARY, *given)
                wanted = step.function(*filled(step.arguments, real))
    except Exception:
        # Anything that a rule does besides arithmetic ends here.
        return None
    results = [_place_of(x, y) for x, y in zip(_several(result), _several(wanted), strict=True)]
    made = [note.outs for note in notes]
    # Each result has a step of its own, and the last step makes one.
    if not (made and made[-1] in results and set(results) <= {*made}) or (
        len(set(results)) < len(results)
    ):
        return None
    for place in (*inputs, *made):
        place.sample = None
    return inputs, notes, results


def _several(found: Any) -> tuple[Any, ...]:
    """The results of a function that returns one, or a tuple of them."""
    return found if found.__class__ is tuple else (found,)


def _is_new(out: Any) -> bool:
    """Whether a result is a host array, and no constant that the function gives back."""
    return out.__class__ is Place and out.sample is None and out.on_host


def _place_of(result: Any, wanted: Any) -> Place | None:
    """The place of a result that has the layout and the bits that it has to have, else None."""
    if (
        isinstance(result, _Value)
        and not result.turned
        and wanted.__class__ is np.ndarray
        and Place(wanted).key == Place(result.array).key
        and wanted.tobytes() == result.array.tobytes()
    ):
        return result.place
    return None


def _array(number: int, layout: Place) -> Any:
    """An array of the layout of a place, the operand `number`, with numbers of all kinds.

    None for layouts that are large or rare.
    """
    if not (layout.is_array and layout.ndim and layout.nbytes <= _LARGEST):
        return None
    if layout.dtype.kind != "f" or layout.dtype.itemsize < 4:
        return None
    if any(stride < 0 for stride in layout.strides):
        return None
    reach = sum((n - 1) * s for n, s in zip(layout.shape, layout.strides, strict=True))
    memory = np.empty(max(0, reach) + layout.dtype.itemsize, np.uint8)
    array = np.ndarray(layout.shape, layout.dtype, memory, 0, layout.strides)
    array[...] = np.resize(_NUMBERS[number % len(_NUMBERS)], layout.shape)
    return array


def operands_of(step: Compute) -> tuple[Any, ...]:
    """The arguments of a step, with arrays in the place of numbers that NumPy would convert.

    Of a call on 16 elements, that takes almost half of the time.
    """
    operands: tuple[Any, ...] = step.arguments
    if isinstance(step.function, np.ufunc) and step.function in _ARITHMETIC:
        dtype = step.outs.dtype
        if dtype.kind == "f" and all(place.dtype == dtype for place in step.read):
            return tuple(
                [
                    _array_of(x, copysign(1.0, x), dtype) if type(x) in {int, float} else x
                    for x in operands
                ]
            )
    return operands


@lru_cache(1024)
def _array_of(number: float, sign: float, dtype: Any) -> Any:
    """An array without dimensions; the sign tells zeros apart."""
    with np.errstate(over="ignore"):
        return np.array(number, dtype)


#: Functions that convert Python's numbers to the dtype of their arrays.
_ARITHMETIC = frozenset({np.add, np.subtract, np.multiply, np.true_divide})
#: What was found for functions, their plain arguments and the layouts of their arrays.
_known: dict[Any, Any] = {}
#: With so many, all are found anew.
_MOST = 1024


def _shown(template: Any, places: list[Place]) -> Any:
    """A template as a key: places by their number, plain values by their bits."""
    kind = template.__class__
    if kind is Place:
        return places.index(template)
    if kind is Same:
        return template.value
    if kind is tuple:
        return tuple([_shown(part, places) for part in template])
    if template is None or kind in {bool, int, float}:
        # Equal values of two types, and zeros of two signs, differ. Version 2 writes no references.
        return marshal.dumps(template, 2)
    # No arithmetic is done with others.
    raise _StayError
