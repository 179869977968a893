"""What a node saves, and how its pulls use that, for one choice of inputs that require grad."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from operator import itemgetter
from types import FunctionType
from typing import Any

from asyncgrad.core.rule import Rule
from asyncgrad.core.variable import counter_of
from asyncgrad.core.versions import VersionCounter
from asyncgrad.ops.generated import code_of, expression
from asyncgrad.ops.op import Op, Part, parameters


class Plan:
    """How an op is recorded when exactly the inputs in `wanted` require grad."""

    __slots__ = ("_label", "_op", "_save", "arrays", "rule", "sources")

    def __init__(self, op: Op, wanted: tuple[int, ...], broadcast: tuple[int, ...]) -> None:
        """Read off the rules' parameter names what to save.

        The inputs at the places `wanted` require grad; the gradients of those at the places
        `broadcast` have to be summed to their shapes.
        """
        parts = [op.pulls.get(op.inputs[place]) for place in wanted]
        shapes = [f"{op.inputs[p]}_shape" if p in broadcast else "" for p in wanted]
        used = [
            () if part is None else (*part.names, shape) if shape else part.names
            for part, shape in zip(parts, shapes, strict=True)
        ]
        names = tuple(dict.fromkeys(itertools.chain.from_iterable(used)))
        #: The saved values: (kind, place among the values of that kind).
        self.sources = tuple([_source(op, name) for name in names])
        #: Which saved values are arrays: (position, input or -1 for the output).
        self.arrays = tuple(
            [
                (position, where if kind == "input" else -1)
                for position, (kind, where) in enumerate(self.sources)
                if kind in {"input", "out"}
            ]
        )
        outliving = [
            position
            for position, (name, (kind, _)) in enumerate(zip(names, self.sources, strict=True))
            if kind not in {"input", "out"} and name not in op.frees
        ]
        by = [f"{op.inputs[p]}{' broadcast' * (p in broadcast)}" for p in wanted]
        self._label = f"gradient of {op.name} by {', '.join(by)}"
        together = op.together is not None and names == tuple(parameters(op.together)[3:])
        run, pulls = _run(op, wanted, parts, names, shapes, self._label, together)
        self._op = op
        self._save: Callable[..., None] | None = None
        self.rule = Rule(
            op.node_name,
            run,
            pulls=pulls if len(pulls) > 1 else None,
            needs=tuple([frozenset(map(names.index, names_of)) for names_of in used]),
            over=None if any(shapes) else _overwriting(op, run),
            fresh=op.fresh,
            passes=len(pulls) == 1 and not broadcast and op.passes,
            saves=bool(self.arrays or op.frees),
            outliving=_outliving(outliving, len(names)),
            outliving_names=tuple([names[position] for position in outliving]),
            places=wanted,
            arity=op.arity or len(op.inputs),
            names=names,
            arrays=self.arrays,
            apart=not together and (op.kernel is None or bool(broadcast)),
            variant=_variant(op, names),
            renew=_renewal(op, names) if op.renews else None,
            keepable=_keepable(op),
        )

    def saving(self, inputs: Sequence[str], attributes: Sequence[str]) -> list[str]:
        """The lines of code that store on `node` what the rules need, and the versions to check.

        In that code `array`, `metadata` and `out` belong to the result; inputs and attributes have
        the given names.
        """
        values = {
            "input": [f"{x}._array" for x in inputs],
            "shape": [f"{x}._metadata.shape" for x in inputs],
            "dtype": [f"{x}._metadata.dtype" for x in inputs],
            "attribute": attributes,
            "out": ["array"],
            "out_shape": ["metadata.shape"],
        }
        saved = [values[kind][where] for kind, where in self.sources]
        lines = [f"node.saved = {saved[0] if len(saved) == 1 else tuple_of(saved) or None}"]
        guarded = [where for _, where in self.arrays if where >= 0]
        if not guarded:
            # If only the output is saved and gets a version counter later, the node finds that.
            return [*lines, "node.guard = None"]
        counters = [f"{inputs[where]}._counter or counter_of({inputs[where]})" for where in guarded]
        if len(self.arrays) == 1:
            lines.append(f"node.guard = counter = {counters[0]}")
            return [*lines, "node.version = counter.value"]
        names = [f"counter{place}" for place in range(len(counters))]
        lines += [f"{name} = {found}" for name, found in zip(names, counters, strict=True)]
        if len(guarded) < len(self.arrays):
            lines.append("out._counter = own = VersionCounter()")
            names.append("own")
        lines.append(f"node.guard = {tuple_of(names)}")
        return [*lines, f"node.version = {tuple_of([f'{name}.value' for name in names])}"]

    @property
    def save(self) -> Callable[..., None]:
        """Store on a node what the rules need: `save(node, array, metadata, out, inputs, ...)`.

        After the inputs come the attributes. Inputs are tensors, `array` and `metadata` those of
        the result `out`.
        """
        if self._save is None:
            inputs = [f"x{place}" for place in range(len(self._op.inputs))]
            attributes = [f"a{place}" for place in range(len(self._op.attributes))]
            given = ", ".join(("node, array, metadata, out", *inputs, *attributes))
            source = "\n    ".join((f"def save({given}):", *self.saving(inputs, attributes)))
            names = {"counter_of": counter_of, "VersionCounter": VersionCounter}
            self._save = FunctionType(code_of(source, f"saving for the {self._label}"), names)
        return self._save


#: The plan of an op by `wanted` and `broadcast`; several dispatch functions share it.
plan_of = functools.cache(Plan)


def _outliving(places: list[int], count: int) -> Callable[[Any], tuple[Any, ...]] | None:
    """Picks the saved values that are not arrays, as a tuple."""
    if not places:
        return None
    if count == 1:
        return lambda saved: (saved,)
    if len(places) == 1:
        (place,) = places
        return itemgetter(slice(place, place + 1))
    return itemgetter(*places)


def _variant(op: Op, names: tuple[str, ...]) -> Callable[[dict[str, Any]], str] | None:
    """Computes the node's name from a saved attribute, if it depends on one."""
    if op.variant is None:
        return None
    name, function = op.variant
    return (lambda saved: function(saved[name])) if name in names else None


def _renewal(op: Op, names: tuple[str, ...]) -> Callable[[Any, Any], Any]:
    """Computes the output again from the inputs and attributes, which are all saved."""
    places = [names.index(name) for name in (*op.inputs, *op.attributes)]
    return lambda F, saved: vars(F)[op.name](*[saved[place] for place in places])


def _overwriting(op: Op, run: Callable[..., Any]) -> Callable[..., Any] | None:
    """Computes the gradient with the form of the op's kernel that may overwrite its argument."""
    over = getattr(op.kernel, "over", None)
    if over is None:
        return None
    return lambda F, g, saved: over(F.xp, g, saved) if F.fused else run(F, g, saved)


def _source(op: Op, name: str) -> tuple[str, int]:
    """Where a named value comes from: (kind, place in that kind)."""
    inputs = op.inputs
    if name in inputs:
        return "input", inputs.index(name)
    if name in op.attributes:
        return "attribute", op.attributes.index(name)
    if name in {"out", "out_shape"}:
        return name, 0
    stem, _, kind = name.rpartition("_")
    if stem in inputs and kind in {"shape", "dtype"}:
        return kind, inputs.index(stem)
    raise ValueError(
        f"{op.name}: a rule asks for {name!r}, which is no input, output, attribute, shape or dtype"
    )


@functools.cache
def _keepable(op: Op) -> frozenset[str]:
    return frozenset(op.keepable).union(*[part.names for part in op.pulls.values()])


def tuple_of(values: Sequence[str]) -> str:
    """The text of a tuple; empty where there are no values."""
    return f"({', '.join(values)}{',' * (len(values) == 1)})" if values else ""


def _run(
    op: Op, wanted: tuple[int, ...], parts: Sequence[Part | None], names: tuple[str, ...],
    shapes: Sequence[str], label: str, together: bool,
) -> tuple[Callable[..., Any], tuple[Callable[..., Any], ...]]:  # fmt: skip
    """Make `run(F, g, saved)`, which computes all gradients of a node, and a pull for each.

    Each pull picks its values from the node's saved values: it is written out, because a call with
    `*` takes 0.1 us more.
    """
    value = {name: f"saved[{place}]" for place, name in enumerate(names)}
    if len(names) == 1:
        value[names[0]] = "saved"
    known: dict[str, Any] = {}
    texts = []
    for place, part, shape in zip(wanted, parts, shapes, strict=True):
        if part is None:
            texts.append("None")
            continue
        given = "".join(f", {value[name]}" for name in part.names)
        key = op.inputs[place].strip("*")
        if part.local is not None:
            known[f"slope_{key}"] = part.local
            text = f"F.chain(g, slope_{key}(F{given}))"
        else:
            known[f"pull_{key}"] = function = part.function
            text = f"pull_{key}(F, g{given})"
        if part.kernel is not None:
            known[f"kernel_{key}"] = part.kernel
            text = f"(kernel_{key}(F.xp, g{given}) if F.fused else {text})"
        texts.append(f"F.sum_to({text}, {value[shape]})" if shape else text)
    run = texts[0] if len(texts) == 1 else tuple_of(texts)
    if together and len(texts) > 1:
        known["together"], known["wanted"] = op.together, tuple([op.inputs[p] for p in wanted])
        run = f"together(F, g, wanted{''.join(f', {value[name]}' for name in names)})"
    if op.kernel is not None and not any(shapes):
        known["kernel"] = op.kernel
        run = f"kernel(F.xp, g, saved) if F.fused else {run}"
    if run == f"pull_{op.inputs[wanted[0]]}(F, g, saved)":
        return function, (function,)
    made = [f"lambda F, g, saved: {text},\n" for text in (run, *texts * (len(texts) > 1))]
    functions = expression(f"({''.join(made)})", label, **known)
    return functions[0], functions[1:] or functions
