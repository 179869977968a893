"""Writes the steps of a program as one Python function: array functions, one after the other.

A loop over a plan of the steps would take twice as long (docs/compile.md has figures). A local
variable is used again for another array as soon as the first is needed no more.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np

from asyncgrad.core.commit import commit
from asyncgrad.core.variable import autograd_meta, counter_of, wrap
from asyncgrad.devices.pool import POOL
from asyncgrad.ops.generated import function_of, shared_code
from asyncgrad.replay.anew import BailError, changed
from asyncgrad.replay.inlined import operands_of
from asyncgrad.replay.memory import Plan, last_uses
from asyncgrad.replay.order import effects_of
from asyncgrad.replay.steps import (
    Again,
    Commit,
    Compute,
    Gradient,
    Load,
    Made,
    Place,
    Same,
    Source,
    places_in,
)

#: Arrays of at least this many bytes are given back as soon as they are not needed.
_LARGE = 1 << 14
#: On an event loop a part of several steps is expected to take no more nanoseconds than this.
PART_NS = 100_000


def _bail() -> None:
    raise BailError


class Writer:
    """Writes the function of a program.

    With `divided` that is a generator, which yields where a part ends: the gradients that are to be
    committed now, what is to be called in the pass, or None. It is sent the result of that call.
    """

    def __init__(
        self, fixed: set[Place], steps: list[Any], outputs: Any, plan: Plan, *, divided: bool
    ) -> None:
        self._divided = divided
        #: What is done between two yields, and its expected nanoseconds: "compute"; "commit" if
        #: gradients are yielded at its end, "enqueue" if also no device is waited for; "call" for
        #: user code in the pass; "change" for another function with effects; "end" for the last.
        self.parts: list[tuple[str, int]] = []
        self._constants: dict[str, Any] = {
            "wrap": wrap,
            "asarray": np.asarray,
            "copy": np.array,
            "bail": _bail,
            "changed": changed,
            "commit": commit,
            "take": POOL.take,
        }
        self._by_identity: dict[int, str] = {}
        self._names: dict[Place, str] = {}
        self._free: list[str] = []
        self._new = (f"v{number}" for number in count())
        self._plan = plan
        self._fixed = fixed
        self._ends = plan.ends
        self._wrapped: dict[int, str] = {}
        #: The arrays of tensors that have been read, by place.
        self._loaded: dict[Place, Source] = {}
        self._number = 0
        lines = self._lines(steps, outputs)
        parameters = "".join(f", {name}" for name in self._constants)
        self.text = f"def replayed(arguments, state, memory{parameters}):\n" + "".join(
            f"    {line}\n" for line in lines
        )

    def function(self) -> Any:
        """The compiled function; its source can be seen in tracebacks.

        Programs of equal text share their code, such as those of one function for several shapes.
        """
        return function_of(shared_code(self.text), self._constants.values())

    # -- names ------------------------------------------------------------------------------------

    def _constant(self, value: Any) -> str:
        if value is None or value is True or value is False or value is Ellipsis:
            return str(value)
        if type(value) is int and abs(value) < 1 << 60:
            return str(value) if value >= 0 else f"({value})"
        name = self._by_identity.get(id(value))
        if name is None:
            name = self._by_identity[id(value)] = f"c{len(self._constants)}"
            self._constants[name] = value
        return name

    def _name(self, place: Place) -> str:
        if place in self._fixed:
            return self._constant(place.sample)
        return self._names[place]

    def _new_name(self, place: Place) -> str:
        name = self._names[place] = self._free.pop() if self._free else next(self._new)
        return name

    def _source(self, source: Source) -> str:
        if source.argument is not None:
            return f"arguments[{source.argument}]"
        return self._constant(source.tensor)

    def _expression(self, template: Any, *, kept: bool = False) -> str:
        """The text of a template; `kept` copies constants, because the callee may keep them."""
        kind = template.__class__
        if kind is Place:
            name = self._name(template)
            return f"copy({name})" if kept and template in self._fixed else name
        if kind is Same:
            return self._constant(template.value)
        if kind is Source:
            return self._source(template)
        if kind is Gradient:
            return f"{self._source(template.source)}._autograd.grad"
        if kind is Made:
            array = self._expression(template.place, kept=kept)
            return f"wrap({array}, {self._constant(template.metadata)})"
        if kind is tuple:
            if not any(map(_is_varied, template)):
                return self._constant(template)
            return "(" + "".join(f"{self._expression(x, kept=kept)}, " for x in template) + ")"
        if kind is list:
            return "[" + ", ".join(self._expression(x, kept=kept) for x in template) + "]"
        if kind is dict:
            return "{" + ", ".join(
                f"{self._constant(key)}: {self._expression(x, kept=kept)}"
                for key, x in template.items()
            ) + "}"  # fmt: skip
        if kind is slice and places_in(template):
            parts = (template.start, template.stop, template.step)
            return f"slice({', '.join(map(self._expression, parts))})"
        return self._constant(template)

    # -- lines ------------------------------------------------------------------------------------

    def _lines(self, steps: list[Any], outputs: Any) -> list[str]:
        ends = last_uses(steps, self._ends)
        buffers = "".join(f"b{number}, " for number in range(len(self._plan.kinds)))
        lines = [f"{buffers}= memory"] if buffers else []
        state = cost = 0
        for number, (step, effect) in enumerate(zip(steps, effects_of(steps), strict=True)):
            self._number = number
            if effect > state:
                state = effect
                lines.append(f"state[0] = {state}")
            dying = [place for place in ends[number] if place in self._names]
            text = self._step(step, dying)
            if self._divided:
                cost = self._divide(lines, step, text, cost, effect > 0)
            else:
                lines += text
            for place in ends[number]:
                if place in self._names and place not in dying:
                    # A result that nothing reads.
                    self._release([place])
            for place in dying:
                name = self._names[place]
                if name in self._free and place.nbytes >= _LARGE:
                    lines.append(f"{name} = None")
        lines.append(f"return {self._returned(outputs, lines)}")
        if self._divided:
            self.parts.append(("end", cost))
            # A generator also without a yield so far.
            lines.append("yield")
        return lines

    def _divide(self, lines: list[str], step: Any, text: list[str], cost: int, change: bool) -> int:
        """Append the lines of a step, with yields where parts end; returns the part's cost."""
        if step.__class__ is Commit:
            self.parts.append(("commit" if step.waits else "enqueue", cost))
            lines += text
            return 0
        if step.__class__ is Again and step.user_call is not None and step.user_call.within:
            self.parts.append(("call", cost))
            lines += text
            # The next part makes the call. An expensive step has another: it may run in a thread.
            return 1_000
        own = step.cost if step.__class__ is Compute else 1_000
        if cost and (change or cost + own > PART_NS):
            self.parts.append(("compute", cost))
            lines.append("yield")
            cost = 0
        lines += text
        if change:
            self.parts.append(("change", 0))
            lines.append("yield")
            return 0
        return cost + own

    def _step(self, step: Any, dying: list[Place]) -> list[str]:
        if step.__class__ is Compute:
            return self._compute(step, dying)
        if step.__class__ is Load:
            text = self._source(step.source)
            if step.gradient:
                text += "._autograd.grad._array"
            elif not step.source.is_array:
                text += "._array"
                self._loaded[step.out] = step.source
            return [f"{self._new_name(step.out)} = {text}"]
        if step.__class__ is Commit:
            staged = "".join(
                f"({self._source(source)}, {self._name(place)}, {place in self._plan.owned}), "
                for source, place in step.staged
            )
            self._release(dying)
            return [f"yield ({staged})" if self._divided else f"commit(({staged}), None, True)"]
        arguments = [self._expression(x, kept=step.effect) for x in step.arguments]
        arguments += [
            f"{key}={self._expression(x, kept=step.effect)}" for key, x in step.keywords.items()
        ]
        function = self._constant(step.function)
        if step.user_call is None:
            call = f"{function}({', '.join(arguments)})"
        else:
            # Tensors whose arrays are read later, too: nobody may change them in place.
            ends, number = self._ends, self._number
            read = dict.fromkeys([x for place, x in self._loaded.items() if ends[place] > number])
            live = f"({''.join(f'{self._source(x)}, ' for x in read)})"
            given = ", ".join([live, *arguments])
            call = f"yield {function}, {given}" if step.user_call.within else f"{function}({given})"
        lines = [f"r = {call}"]
        fail = "changed()" if step.effect and step.user_call is None else "bail()"
        lines += self._checked(step.outs, "r", fail)
        self._release(dying)
        return lines

    def _release(self, dying: list[Place]) -> None:
        self._free += [self._names[place] for place in dying if place not in self._plan.buffers]

    def _compute(self, step: Compute, dying: list[Place]) -> list[str]:
        outs = step.outs
        arguments = [self._expression(part) for part in operands_of(step)]
        function = step.function
        taken = None if outs.__class__ is not Place else self._plan.taken.get(outs)
        if taken is not None and step.over is not None:
            # It may return the memory of that operand, or new memory.
            taken, function = None, step.over
        self._release([place for place in dying if place is not taken])
        if outs.__class__ is not Place:
            # A result that has a name already is an argument that the function gives back.
            targets = "".join(
                "_, " if out is None or out in self._names else f"{self._new_name(out)}, "
                for out in outs
            )
            return [f"{targets}= {self._constant(function)}({', '.join(arguments)})"]
        buffer = self._plan.buffers.get(outs)
        if taken is not None or buffer is not None:
            # Views of it keep it, so it needs a name of its own only while it is read.
            name = f"b{buffer}" if taken is None else self._names[taken]
            self._names[outs] = name
            return [self._into(function, arguments, name)]
        if outs in self._plan.lent:
            given = f"{self._constant(outs.shape)}, {self._constant(outs.dtype)}"
            text = self._into(function, arguments, f"take({given})")
            return [f"{self._new_name(outs)} = {text}"]
        text = f"{self._constant(function)}({', '.join(arguments)})"
        if outs.is_array and not outs.ndim and outs.on_host:
            # NumPy returns scalars for arrays without dimensions.
            text = f"asarray({text})"
        return [f"{self._new_name(outs)} = {text}"]

    def _into(self, function: Any, arguments: list[str], target: str) -> str:
        """The call of a function that writes into an array."""
        # `out=` takes more time than a third positional argument, which NumPy deprecates for these
        # two functions because people mean it as a third operand.
        if function in {np.maximum, np.minimum}:
            target = f"out={target}"
        return f"{self._constant(function)}({', '.join((*arguments, target))})"

    def _checked(self, template: Any, text: str, fail: str) -> list[str]:
        """Lines that compare a result with its template, and name its arrays."""
        kind = template.__class__
        if kind is Same:
            value = template.value
            if value is None or value is True or value is False:
                return [f"if {text} is not {value}: {fail}"]
            name = self._constant(value)
            return [f"if {text}.__class__ is not ({name}).__class__ or {text} != {name}: {fail}"]
        if kind is Place:
            if template in self._names or template in self._fixed:
                return [f"if {text} is not {self._name(template)}: {fail}"]
            name = self._new_name(template)
            if template.is_opaque:
                return [f"{name} = {text}"]
            shape, dtype = self._constant(template.shape), self._constant(template.dtype)
            return [
                f"{name} = {text}",
                f"if {name} is None or {name}.shape != {shape} or {name}.dtype != {dtype}: {fail}",
            ]
        if kind is Made:
            name = self._new_name(template.place)
            metadata = self._constant(template.metadata)
            return [f"if {text}._metadata is not {metadata}: {fail}", f"{name} = {text}._array"]
        lines = [f"if {text}.__class__ is not tuple or len({text}) != {len(template)}: {fail}"]
        for place, part in enumerate(template):
            lines += self._checked(part, f"{text}[{place}]", fail)
        return lines

    def _returned(self, template: Any, lines: list[str]) -> str:
        """The text of what the function returns, from a template made by `Returned.template`."""
        kind = template.__class__
        if kind is Made:
            name = self._wrapped.get(id(template))
            if name is None:
                name = self._wrapped[id(template)] = f"t{len(self._wrapped)}"
                lines.append(f"{name} = {self._expression(template, kept=True)}")
                if template.inference:
                    self._constants["meta"] = autograd_meta
                    lines.append(f"meta({name}).inference = True")
                if template.version:
                    self._constants["counter_of"] = counter_of
                    lines.append(f"counter_of({name}).value = {template.version}")
            return name
        if kind is list:
            whole, parts = template
            text = "".join(f"{self._returned(part, lines)}, " for part in parts)
            if whole is tuple:
                return f"({text})"
            if whole is list:
                return f"[{text}]"
            name = self._constant(whole)
            return f"{name}._make(({text}))" if hasattr(whole, "_fields") else f"{name}(({text}))"
        if kind is dict:
            ((whole, pairs),) = template.items()
            text = "".join(
                f"({self._constant(key)}, {self._returned(part, lines)}), " for key, part in pairs
            )
            return f"{self._constant(whole)}(({text}))"
        return self._expression(template)


def _is_varied(template: Any) -> bool:
    """Whether a template is more than a constant."""
    if isinstance(template, (tuple, list)):
        return template.__class__ is list or any(map(_is_varied, template))
    return template.__class__ in {Place, Source, Gradient, Made, Same, dict} or bool(
        places_in(template)
    )
