"""What a node saves, and how its pulls use that, for one choice of inputs that require grad."""

from __future__ import annotations

import functools
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from asyncgrad.core.node import first_metadata
from asyncgrad.core.rule import Rule
from asyncgrad.core.saved_values import saved_edge, watched
from asyncgrad.core.variable import counter_of, wrap
from asyncgrad.core.versions import VersionCounter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncgrad.core.metadata import Metadata
    from asyncgrad.core.node import Node
    from asyncgrad.ops.op import Op, Part


#: The sets that `_keepable` has made, so that equal sets are shared.
_kept_names: dict[frozenset[str], frozenset[str]] = {}


class Plan:
    """How an op is recorded when exactly the inputs in `wanted` require grad."""

    __slots__ = ("arrays", "guarded", "pick", "rule", "sources")

    def __init__(self, op: Op, wanted: tuple[int, ...], broadcast: tuple[int, ...]) -> None:
        """Read off the rules' parameter names what to save.

        Args:
            op: the op.
            wanted: the places of the inputs that require grad.
            broadcast: the places of the inputs whose gradient has to be summed to their shape.
        """
        parts = [op.pulls.get(op.inputs[place]) for place in wanted]
        shapes = [f"{op.inputs[p]}_shape" if p in broadcast else "" for p in wanted]
        known: dict[str, None] = {}
        for part, shape in zip(parts, shapes, strict=True):
            if part is not None:
                known.update(dict.fromkeys((*part.names, shape) if shape else part.names))
        names = tuple(known)
        sources, flat, arrays, guarded, plain = [], [], [], [], []
        for position, name in enumerate(names):
            kind, where, place = _source(op, name)
            sources.append((kind, where))
            flat.append(place)
            if kind == "input":
                arrays.append((position, where))
                guarded.append(where)
            elif kind == "out":
                arrays.append((position, -1))
            elif name not in op.frees:
                plain.append(position)
        #: The saved values: (kind, place among the values of that kind).
        self.sources = tuple(sources)
        #: Which saved values are arrays: (position, input or -1 for the output).
        self.arrays = tuple(arrays)
        #: The inputs whose values are saved, so their versions are checked.
        self.guarded = tuple(guarded)
        #: Picks the saved values from the flat tuple that `save` makes.
        self.pick = itemgetter(*flat) if flat else None
        pulls = [_picked(part, names, shape) for part, shape in zip(parts, shapes, strict=True)]
        run = pulls[0] if len(pulls) == 1 else together(pulls)
        if len(parts) == 2 and not broadcast:
            first, second = parts
            if first and second and len(first.names) == len(second.names) == 1:
                run = _pair(first, second, names)
        if op.together is not None and len(pulls) > 1:
            run = _in_one(op.together, tuple([op.inputs[place] for place in wanted]))
        if op.kernel is not None and not broadcast:
            run = _fused(op.kernel, run)
        self.rule = Rule(
            op.node_name,
            run,
            pulls=tuple(pulls) if len(pulls) > 1 else None,
            fresh=op.fresh,
            passes=len(pulls) == 1 and not broadcast and op.passes,
            saves=bool(self.arrays or op.frees),
            unpack=self.unpack if self.arrays else None,
            outliving=_outliving(plain, len(names)),
            plain=tuple([names[position] for position in plain]),
            places=wanted,
            arity=op.arity or len(op.inputs),
            names=names,
            arrays=self.arrays,
            apart=op.kernel is None or bool(broadcast),
            variant=_variant(op, names),
            renew=_renewal(op, names) if op.renews else None,
            keepable=_keepable(op),
        )

    def save(
        self, node: Node, inputs: tuple[Any, ...], out: Any, attributes: tuple[Any, ...]
    ) -> None:
        """Store on the node the values that the rules need, and the versions to check."""
        if self.pick is None:
            node.saved = None
            return
        array, shape = out._array, out._metadata.shape
        flat: tuple[Any, ...]
        if len(inputs) == 1:
            (x,) = inputs
            known = x._metadata
            # Adding tuples is faster than unpacking them.
            flat = (x._array, known.shape, known.dtype, array, shape)
            node.saved = self.pick(flat + attributes)
        elif len(inputs) == 2:
            x, y = inputs
            known, other = x._metadata, y._metadata
            flat = (
                x._array, known.shape, known.dtype, y._array, other.shape, other.dtype, array, shape
            )  # fmt: skip
            node.saved = self.pick(flat + attributes)
        else:
            flat = ()
            for x in inputs:
                known = x._metadata
                flat += (x._array, known.shape, known.dtype)
            node.saved = self.pick((*flat, array, shape, *attributes))
        guarded = self.guarded
        if not guarded:
            # Only the output is saved: if it gets a version counter later, the node finds that.
            return
        x = inputs[guarded[0]]
        counter = x._counter or counter_of(x)
        if len(self.arrays) == 1:
            node.guard, node.version = counter, counter.value
        elif len(guarded) == 1:
            out._counter = own = VersionCounter()
            node.guard, node.version = (counter, own), (counter.value, 0)
        elif len(self.arrays) == 2:
            y = inputs[guarded[1]]
            other = y._counter or counter_of(y)
            node.guard, node.version = (counter, other), (counter.value, other.value)
        else:
            counters = [x._counter or counter_of(x) for x in map(inputs.__getitem__, guarded)]
            if len(counters) < len(self.arrays):
                out._counter = VersionCounter()
                counters.append(out._counter)
            node.guard = tuple(counters)
            node.version = tuple([counter.value for counter in counters])

    def unpack(self, node: Node) -> Any:
        """The saved values, with tensors that lead into the graph instead of arrays."""
        single = len(self.sources) == 1
        values = [node.saved] if single else list(node.saved)
        metadata: Metadata = first_metadata(node)
        counters = watched(node)
        for position, where in self.arrays:
            array = values[position]
            if where < 0:
                made = wrap(array, metadata, node)
            else:
                made = wrap(array, metadata.F.metadata_of(array), saved_edge(node, where))
            # A node that saves these values in turn also watches their version counters.
            made._counter = counters.get(position, (None,))[0]
            values[position] = made
        return values[0] if single else tuple(values)


#: The plan of an op by `wanted` and `broadcast`; several dispatch functions share it.
plan_of = functools.cache(Plan)


def _outliving(plain: list[int], count: int) -> Callable[[Any], tuple[Any, ...]] | None:
    """Picks the saved values that are not arrays, as a tuple."""
    if not plain:
        return None
    if count == 1:
        return lambda saved: (saved,)
    if len(plain) == 1:
        (place,) = plain
        return itemgetter(slice(place, place + 1))
    return itemgetter(*plain)


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


def _source(op: Op, name: str) -> tuple[str, int, int]:
    """Where a named value comes from: (kind, place in that kind, place in `save`'s flat tuple).

    `save` lays out three values for each input, two for the output, and then the attributes.
    """
    inputs = op.inputs
    after = 3 * len(inputs)
    if name in inputs:
        where = inputs.index(name)
        return "input", where, 3 * where
    if name in op.attributes:
        where = op.attributes.index(name)
        return "attribute", where, after + 2 + where
    if name == "out":
        return "out", 0, after
    if name == "out_shape":
        return "out_shape", 0, after + 1
    stem, _, kind = name.rpartition("_")
    if stem in inputs and kind in {"shape", "dtype"}:
        where = inputs.index(stem)
        return kind, where, 3 * where + (1 if kind == "shape" else 2)
    raise ValueError(
        f"{op.name}: a rule asks for {name!r}, which is no input, output, attribute, shape or dtype"
    )


def _keepable(op: Op) -> frozenset[str]:
    """All names that nodes of this op may save. Equal sets are one object."""
    found = frozenset(op.keepable).union(*[part.names for part in op.pulls.values()])
    return _kept_names.setdefault(found, found)


def _picked(part: Part | None, names: tuple[str, ...], shape: str) -> Callable[..., Any]:
    """Make a pull that picks its values from the node's saved values."""
    if part is None:
        return lambda F, g, saved: None
    function = part.function
    places = tuple([names.index(name) for name in part.names])
    if len(names) <= 1:
        if not places and not shape:
            return lambda F, g, saved: function(F, g)
        if places and not shape:
            return function
        if not places:
            return lambda F, g, saved: F.sum_to(function(F, g), saved)
    if shape:
        at = names.index(shape)
        if len(places) == 1:
            (place,) = places
            return lambda F, g, saved: F.sum_to(function(F, g, saved[place]), saved[at])
        taking = _taking(function, places)
        return lambda F, g, saved: F.sum_to(taking(F, g, saved), saved[at])
    return _taking(function, places)


def _taking(function: Callable[..., Any], places: tuple[int, ...]) -> Callable[..., Any]:
    """Make a pull that passes the saved values at some places to a rule."""
    # Unrolled for the usual numbers of values: a call with `*` takes 0.1 us more.
    if len(places) == 1:
        (i,) = places
        return lambda F, g, saved: function(F, g, saved[i])
    if len(places) == 2:
        i, j = places
        return lambda F, g, saved: function(F, g, saved[i], saved[j])
    if len(places) == 3:
        i, j, k = places
        return lambda F, g, saved: function(F, g, saved[i], saved[j], saved[k])
    if places == (0, 1, 2, 3):
        return lambda F, g, saved: function(F, g, saved[0], saved[1], saved[2], saved[3])
    if places == (0, 1, 2, 3, 4):
        return lambda F, g, saved: function(F, g, saved[0], saved[1], saved[2], saved[3], saved[4])
    return lambda F, g, saved: function(F, g, *[saved[i] for i in places])


def together(pulls: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    """Make one function that calls all pulls of a node."""
    if len(pulls) == 2:
        first, second = pulls
        return lambda F, g, saved: (first(F, g, saved), second(F, g, saved))
    return lambda F, g, saved: tuple(pull(F, g, saved) for pull in pulls)


def _pair(one: Part, other: Part, names: tuple[str, ...]) -> Callable[..., Any]:
    """Make one function of two pulls that need one saved value each."""
    first, second = one.function, other.function
    if len(names) == 1:
        return lambda F, g, saved: (first(F, g, saved), second(F, g, saved))
    i, j = names.index(one.names[0]), names.index(other.names[0])
    return lambda F, g, saved: (first(F, g, saved[i]), second(F, g, saved[j]))


def _in_one(rule: Callable[..., Any], wanted: tuple[str, ...]) -> Callable[..., Any]:
    """Make one function of a rule that computes all gradients."""
    return lambda F, g, saved: rule(F, g, wanted, *saved)


def _fused(kernel: Callable[..., Any], run: Callable[..., Any]) -> Callable[..., Any]:
    """Use the kernel for arrays of real dtypes, the rule for everything else."""
    return lambda F, g, saved: kernel(F.xp, g, saved) if F.fused else run(F, g, saved)
