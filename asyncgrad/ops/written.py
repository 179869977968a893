"""Kernels of elementwise functions, written from formulas such as those of rules.

A formula is a function of `F`, arrays and numbers. It is called once, with symbols. The text that
is written calls the library's functions in the same order, with as few arrays as it can: what is
needed no more is written over, so that a block's arrays stay in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from types import CodeType, MappingProxyType
from typing import Any

from asyncgrad.ops.fused import bounded, elementwise, inverted
from asyncgrad.ops.generated import code_of, lazy_function

#: The functions that libraries call otherwise than the table.
_NAMES = {
    "neg": "negative", "sub": "subtract", "mul": "multiply", "div": "divide", "copy": "positive"
}  # fmt: skip
_BOUNDS = frozenset({"maximum", "minimum"})
_COMPARISONS = {"lt": "<", "gt": ">"}


def _operator(name: str, *, reflected: bool = False) -> Callable[..., Any]:
    def call(self: Symbol, other: Any) -> Symbol:
        return self.F.made(name, *((other, self) if reflected else (self, other)))

    return call


class Symbol:
    """A value in a formula: the argument `name`, or the result of calling `name` with `parts`."""

    __slots__ = ("F", "is_array", "name", "parts")

    def __init__(self, F: Formula, name: str, parts: tuple[Any, ...], is_array: bool) -> None:
        self.F = F
        self.name = name
        self.parts = parts
        self.is_array = is_array

    def __neg__(self) -> Symbol:
        return self.F.made("neg", self) if self.is_array else self.F.given(f"-{self.name}", False)

    __add__ = __radd__ = _operator("add")
    __mul__ = __rmul__ = _operator("mul")
    __sub__, __rsub__ = _operator("sub"), _operator("sub", reflected=True)
    __truediv__, __rtruediv__ = _operator("div"), _operator("div", reflected=True)
    __lt__, __gt__ = _operator("lt"), _operator("gt")


class Formula:
    """The `F` that a formula is called with: it notes each call, in order, and equal ones once.

    Args:
        helpers: by name, functions that libraries lack. They are formulas of `F` and values, or
            take a library, where to write the result, perhaps over what they read, and values.
    """

    def __init__(self, helpers: Mapping[str, Any]) -> None:
        self._helpers = helpers
        self._known: dict[tuple[Any, ...], Symbol] = {}

    def __getattr__(self, name: str) -> Any:
        helper: Any = self._helpers.get(name)
        is_formula = helper is not None and helper.__code__.co_varnames[0] == "F"
        return partial(helper, self) if is_formula else partial(self.made, name)

    def given(self, name: str, is_array: bool) -> Symbol:
        """An argument of the function that is written, one with a sign, or a number."""
        return self._known.setdefault((name,), Symbol(self, name, (), is_array))

    def made(self, name: str, *given: Any) -> Symbol:
        """What a function makes of symbols and numbers."""
        # By their texts: 0.0 and -0.0 are equal, but not the same.
        parts = [x if isinstance(x, Symbol) else self.given(repr(x), False) for x in given]
        return self._known.setdefault((name, *parts), Symbol(self, name, (*parts,), True))

    def text(self, head: str, arrays: Sequence[str], results: Mapping[str, Symbol]) -> str:
        """A function with this head, whose argument `out` is where the first result goes or None.

        Args:
            arrays: the arguments that are arrays.
            results: by the name of their arrays. The first is returned; others are arguments.
        """
        wanted = {*results.values()}
        steps: list[Symbol] = []
        for symbol in reversed(self._known.values()):
            if symbol in wanted and symbol.parts:
                steps.insert(0, symbol)
                wanted.update(symbol.parts)
        results = {**results}
        for name, symbol in results.items():
            # What is read once more gets its result last.
            later = steps[steps.index(symbol) + 1 :]
            if any(self._known.get((name,)) in step.parts for step in later):
                results[name] = self.copy(symbol)
                steps.append(results[name])
        for step in steps[::-1]:
            _move(step, steps, results)
        places = _places(steps, results)
        main, begun = next(iter(results)), {*arrays}
        lines = []
        for step in steps:
            target = places[step]
            room = target if target in begun else "out" if target == main else "None"
            begun.add(target)
            values = [places.get(part, part.name) for part in step.parts]
            lines += self._lines(step, target, values, room)
        return "\n    ".join([head, *lines, f"return {main}\n"])

    def _lines(self, step: Symbol, target: str, values: list[str], room: str) -> list[str]:
        name, given = step.name, ", ".join(values)
        begin = "" if room == target else f"{target} = "
        if name in _COMPARISONS:
            return [f"{target} = {f' {_COMPARISONS[name]} '.join(values)}"]
        if name == "where":
            condition, one, other = values
            if room != target:
                return [f"{begin}xp.positive(xp.where({given}), {room})"]
            if one == target:
                condition, one, other = f"~{condition}", other, one
            copied = [f"xp.copyto({target}, {other})"] * (other != target)
            return [*copied, f"xp.copyto({target}, {one}, where={condition})"]
        if name in self._helpers:
            return [f"{begin}{name}(xp, {room}, {given})"]
        if name in _BOUNDS and step.parts[1].is_array:
            return [f"{begin}xp.{name}({given}, out={room})"]
        if name in _BOUNDS:
            return [f"{begin}bounded(xp.{name}, {given}, {room})"]
        if name == "div" and values == ["1", room]:
            return [f"{begin}inverted(xp, {room})"]
        return [f"{begin}xp.{_NAMES.get(name, name)}({given}, {room})"]


def _move(step: Symbol, steps: list[Symbol], results: Mapping[str, Symbol]) -> None:
    """Move a step that reads arguments alone to just before its result is read, for the cache."""
    place = steps.index(step)
    end = next((n for n, later in enumerate(steps) if step in later.parts), place)
    changed = {results.get(part.name) for part in step.parts}
    if not any(part.parts for part in step.parts) and changed.isdisjoint(steps[place:end]):
        steps.insert(end - 1 if end > place else place, steps.pop(place))


def _places(steps: Sequence[Symbol], results: Mapping[str, Symbol]) -> dict[Symbol, str]:
    """For each step the name of the array that it writes, perhaps over what it reads.

    Steps are seen from the last one on. So an array is free before the step that begins to use it,
    but an argument only behind the last step that reads it.
    """
    places = {symbol: place for place, symbol in results.items()}
    number = {step: place for place, step in enumerate(steps)}
    read = {part.name: n for step, n in number.items() for part in step.parts if not part.parts}
    temporary, masks = (map(f"{letter}{{}}".format, count()) for letter in "tm")
    free: list[str] = []
    for step in reversed(steps):
        # A choice is written over its last part only, before which the others are read.
        before = 2 if step.name == "where" else 0
        for part in (*step.parts[:before], step, *step.parts[before:]):
            if part is step:
                free += [places[step]] * (step.name not in _COMPARISONS)
            elif not part.parts or part in places:
                continue
            elif part.name in _COMPARISONS:
                places[part] = next(masks)
            else:
                fit = [place for place in free if number[part] >= read.get(place, 0)]
                places[part] = fit[-1] if fit else next(temporary)
                free = [place for place in free if place != places[part]]
    return places


def written(
    name: str, *formulas: Callable[..., Any], arrays: int = 1,
    helpers: Mapping[str, Any] = MappingProxyType({}),
) -> Any:  # fmt: skip
    """The kernel `kernel(xp, out, arrays..., numbers...)` of a formula `formula(F, ...)` of these.

    Args:
        formulas: one; or two, and then the kernel leaves what the second gives in the first array.
        arrays: the number of arguments that are arrays.
        helpers: those of `Formula`.
    """
    code = formulas[0].__code__
    names = code.co_varnames[1 : code.co_argcount]
    given = ("xp", "out", *names)

    def make_code(function: Any) -> CodeType:
        F = Formula(helpers)
        symbols = [F.given(x, place < arrays) for place, x in enumerate(names)]
        made = [formula(F, *symbols) for formula in formulas]
        results = dict(zip(("made", names[0]), made, strict=False))
        text = F.text(f"def {name}({', '.join(given)}):", names[:arrays], results)
        return code_of(text, f"kernel {name}")

    known = {"bounded": bounded, "inverted": inverted, **helpers}
    return lazy_function(name, given, code.co_filename, known, make_code)


def kernel(name: str, *formulas: Callable[..., Any], arrays: int = 1, **more: Any) -> Any:
    """What `written` gives, run block by block, or a compiled kernel of that name instead."""
    return elementwise(arrays)(written(name, *formulas, arrays=arrays, **more))


def slope_kernel(name: str, slope: Callable[..., Any], **more: Any) -> Any:
    """The kernel `kernel(xp, g, x)` of a gradient, from the local derivative `slope(F, x)`."""
    return kernel(name, lambda F, g, x: slope(F, x) * g, arrays=2, **more)
