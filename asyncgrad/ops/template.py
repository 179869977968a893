"""The text of dispatch functions: one template, filled in from an op's row.

`dispatch` says what the forms are, and what the names in the text stand for. This file is long
because all of the text stands in one place.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from asyncgrad.core.metadata import CALL_NS
from asyncgrad.ops.op import Op
from asyncgrad.ops.save_plan import plan_of, tuple_of

#: An input's stored edge.
_EDGE = """
{edge} = {x}._edge
if {edge} is None and {x}._autograd is not None:
    {edge} = gradient_edge({x})
"""
_COMPUTE = """
try:
    array = known.kernels["{name}"]({arguments})
except RuntimeWarning:
    array = call_without_fp_errors(known.kernels["{name}"], {arguments})
"""
#: The result. Written out: with `wrap`, `mul` takes 0.69 us and not 0.62 (`benchmarks/small.py`).
_RESULT = """
out = Tensor()
out._array = array
out._metadata = {metadata}
out._counter = None
out._autograd = None
"""
#: The end of what records a node.
_NODE = """
node.extras = None
node.output_metadata = metadata
node.cost = {cost}
node.sequence_nr = next_sequence_nr()
out._edge = node
"""
_TENSORS = """
{unpack}
modes = current()
if not modes.plain:
    found = instead(op, function, {inputs}, {attributes}, modes)
    if found is not None:
        return found
known = {x}._metadata
{arrays_of}
{compute}
{misfit}
except TypeError as error:
    raise error_of("{name}", known.device, error, {arrays}, {attributes}) from None
if array.__class__ is not known.F.array_type:
    array = known.F.as_array(array)
if array.dtype is known.dtype and array.shape == known.shape:
    metadata = known
else:
    metadata = metadata_of(array, known.device)
{result}
{record}
if not modes.plain:
    out = in_modes(op, {inputs}, {attributes}, out, modes)
{view}
return out
"""
_MISFIT = """
except ValueError:
    check_broadcast("{name}", input, other)
    raise
"""
_VIEW = """
creation_meta = None if modes.grad else "inference_mode" if modes.inference else "no_grad_mode"
note_view(out, input, "{name}", {attributes}, creation_meta)
"""
_ONE_INPUT = """
edge = {x}._edge
if edge is None and {x}._autograd is not None and modes.grad:
    edge = gradient_edge({x})
if edge is None or not modes.grad:
    out._edge = None
else:
    node = OpNode()
    node.rule = {rule}
    node.following = edge
    node.topological_nr = edge.topological_nr + 1
    {saving}
    {node}
"""
_TWO_INPUTS = """
edge = other_edge = None
if modes.grad:
    {edges}
if edge is None:
    if other_edge is None:
        out._edge = None
        return out
    node = OpNode()
    node.rule = rule_1
    node.following = other_edge
    node.topological_nr = other_edge.topological_nr + 1
    {saving_1}
elif other_edge is None:
    node = OpNode()
    node.rule = rule_0
    node.following = edge
    node.topological_nr = edge.topological_nr + 1
    {saving_0}
else:
    node = OpNode()
    node.rule = rule_01
    node.following = (edge, other_edge)
    number, other_number = edge.topological_nr, other_edge.topological_nr
    node.topological_nr = (number if number > other_number else other_number) + 1
    {saving_01}
{node}
"""
#: Any choice of inputs, of which some may have been broadcast.
_INPUTS = """
{none} = None
if modes.grad:
    {edges}
if {is_none}:
    out._edge = None
else:
    key = {key}
    plan = plans.get(key)
    if plan is None:
        plan = plans[key] = _planned(op, key)
    node = OpNode()
    node.rule, save = plan
    edges = ()
    number = 0
    {following}
    node.following = edges if len(edges) > 1 else edges[0]
    node.topological_nr = number + 1
    save(node, array, metadata, out, {given})
    {node}
"""
_FOLLOWING = """
if {edge} is not None:
    edges += ({edge},)
    if {edge}.topological_nr > number:
        number = {edge}.topological_nr
"""
_SEQUENCE = """
out._edge = _sequence_node(op, inputs, {attributes}, metadata) if modes.grad else None
"""
#: Operands of the common case; any others are handed on. Without this form `tanh` takes 0.64 us and
#: not 0.54, and a recorded `mul` 1.9 us and not 1.5 (`benchmarks/small.py`).
_OPERAND = """
try:
    known = input._metadata
except AttributeError:
    return tensors(promote_unary(op, input))
modes = current()
if known.needs_checks or not modes.plain:
    if modes.only_recorder and not known.needs_checks:
        {reported}
    return tensors(promote_unary(op, input))
"""
_OPERAND_AND_NUMBER = """
known = input._metadata
modes = current()
if known.needs_checks or {scalar}.__class__ is complex or not modes.plain:
    if modes.only_recorder and not known.needs_checks:
        {reported}
    return tensors(input, {scalar})
"""
_OPERANDS = """
{kind}
try:
    known = input._metadata
    {number}
    other_known = other._metadata
except AttributeError:
    return promoted(input, other)
if known.needs_checks:
    return promoted(input, other)
if known is not other_known:
    if known.dtype is other_known.dtype and known.device is other_known.device:
        return tensors(input, other)
    return promoted(input, other)
modes = current()
if not modes.plain:
    if modes.only_recorder:
        {reported}
    return tensors(input, other)
"""
_NUMBER = """
if kind is float or kind is int:
    return promoted(input, other) if known.needs_checks else right(input, other)
"""
_ALIKE = """
{compute}
{result}
{record}
return out
"""
#: Ops without a derivative: a cache holds the metadata of results, whose dtype is bool.
_PREDICATE = """
try:
    known = input._metadata
except AttributeError:
    return tensors(promote_unary(op, input))
if known.scalar or not current().plain:
    return tensors(input)
seen = cache.get(known)
kernel = known.kernels["{name}"]
if seen is not None and kernel is seen[1]:
    kernel = seen[2]
try:
    array = kernel(input._array)
except RuntimeWarning:
    return tensors(input)
"""
_COMPARISON = """
kind = other.__class__
try:
    known = input._metadata
    seen = cache.get(known)
    if not current().plain:
        return promoted(input, other)
    kernel = known.kernels["{name}"]
    if seen is not None and kernel is seen[1]:
        kernel = seen[2]
    {number}
    elif other._metadata is known and not known.scalar:
        array = kernel(input._array, other._array)
    else:
        return promoted(input, other)
except (AttributeError, RuntimeWarning):
    return promoted(input, other)
"""
_COMPARED_NUMBER = """
if (kind is float or kind is int) and not known.needs_checks:
    array = kernel(input._array, other)
"""
_NO_NUMBER = """
if kind is float or kind is int:
    return promoted(input, other)
"""
_COMPARED = """
if seen is None:
    seen = _remember_comparison(cache, op, known, array, kernel)
{result}
out._edge = None
return out
"""
_REFLECTED = """
kind = other.__class__
if (kind is float or kind is int) and not self._metadata.needs_checks:
    return left(self, other)
"""
_CHECKED = """
try:
    known = input._metadata
    seen = cache.get((known, other._metadata))
except AttributeError:
    return checked(input, other)
if seen is None:
    return _remember_product(cache, op, input, other, checked(input, other))
modes = current()
if not modes.plain:
    if modes.only_recorder:
        {reported}
    return checked(input, other)
metadata, cost = seen
"""


def is_sequence(op: Op) -> bool:
    """Whether an op takes one sequence of tensors."""
    return op.inputs[0].startswith("*")


def is_pair(op: Op) -> bool:
    """Whether an op takes two inputs that are broadcast, and nothing else."""
    return op.broadcasts and len(op.inputs) == 2 and not op.attributes


def _block(text: str, **parts: str | list[str]) -> list[str]:
    """The lines of a text with each `{name}` replaced: by lines that are indented like it."""
    lines = []
    for line in text.strip("\n").splitlines():
        bare = line.lstrip()
        inner = parts.get(bare[1:-1])
        if isinstance(inner, list):
            lines += [line[: len(line) - len(bare)] + one for one in inner]
            continue
        for name, part in parts.items():
            if isinstance(part, str):
                line = line.replace(f"{{{name}}}", part)
        lines.append(line)
    return lines


class Writer:
    """Writes the text of one form of an op's dispatch function."""

    def __init__(self, op: Op, form: str, *, right: bool, left: bool) -> None:
        """Choose the names of the arguments; a number may follow (`right`) or precede (`left`)."""
        self.op = op
        self.form = form
        self.right, self.left = right, left
        sequence = is_sequence(op)
        count = len(op.inputs)
        self.arguments = arguments_of(op, form)
        self.inputs = ["inputs[0]"] if sequence else self.arguments[:count]
        self.attributes = self.arguments[count:]
        #: The places of the inputs with a derivative, and their names.
        self.places = [place for place, key in enumerate(op.inputs) if key in op.pulls]
        self.wanted = [self.inputs[place] for place in self.places]
        arrays = "arrays" if sequence else ", ".join(f"{x}._array" for x in self.inputs)
        self.parts = {
            "name": op.name,
            "arguments": ", ".join([arrays, *self.attributes]),
            "arrays": f"({arrays},)",
            "inputs": "inputs" if sequence else tuple_of(self.inputs),
            "attributes": tuple_of(self.attributes) or "()",
            "given": ", ".join([*self.inputs, *self.attributes]),
            "x": self.inputs[0],
            "scalar": self.arguments[-1],
        }
        given = f"{self.parts['inputs']}, {self.parts['attributes']}"
        self.parts["reported"] = f"return computed_and_reported(op, function, {given}, modes)"

    def text(self) -> str:
        """The text of the function."""
        body = "".join(f"    {line}\n" for line in getattr(self, f"_{self.form}")())
        return f"def {self.op.name}({', '.join(self.arguments)}):\n{body}"

    def _block(self, text: str, **parts: str | list[str]) -> list[str]:
        return _block(text, **parts, **self.parts)

    # -- forms --

    def _tensors(self) -> list[str]:
        op = self.op
        unpack: list[str] = []
        arrays: list[str] = []
        if is_sequence(op):
            unpack, arrays = ["inputs = tuple(tensors)"], ["arrays = [x._array for x in inputs]"]
            record = self._block(_SEQUENCE)
        elif not self.wanted:
            record = ["out._edge = None"]
        elif len(self.wanted) > 1 or (op.broadcasts and len(self.inputs) > 1):
            record = self._record_any()
        else:
            record = self._record_one()
        return self._block(
            _TENSORS,
            unpack=unpack,
            arrays_of=arrays,
            compute=self._block(_COMPUTE),
            misfit=self._block(_MISFIT) if is_pair(op) else [],
            result=_block(_RESULT, metadata="metadata"),
            record=record,
            view=self._block(_VIEW) if op.view else [],
        )

    def _operands(self) -> list[str]:
        op = self.op
        one = len(self.inputs) == 1
        if op.changes_dtype:
            return [f'return tensors(as_tensor_operand(input, "{op.name}", 1))']
        if not op.pulls:
            number = _block(_NO_NUMBER if op.numbers == "none" else _COMPARED_NUMBER)
            return [
                *self._block(_PREDICATE if one else _COMPARISON, number=number),
                *_block(_COMPARED, result=_block(_RESULT, metadata="seen[0]")),
            ]
        if one:
            start = self._block(_OPERAND_AND_NUMBER if self.attributes else _OPERAND)
        else:
            start = self._block(
                _OPERANDS,
                kind=["kind = other.__class__"] if self.right else [],
                number=_block(_NUMBER) if self.right else [],
            )
        return [*start, "metadata = known", *self._computed()]

    _operator = _operands

    def _reflected(self) -> list[str]:
        number = _block(_REFLECTED) if self.op.pulls and self.left else []
        return [*number, "return promoted(other, self)"]

    def _checked(self) -> list[str]:
        return [*self._block(_CHECKED), *self._computed("cost")]

    # -- parts of them --

    def _computed(self, cost: str = "") -> list[str]:
        """The rest of a function that knows the result's metadata."""
        return self._block(
            _ALIKE,
            compute=self._block(_COMPUTE),
            result=_block(_RESULT, metadata="metadata"),
            record=(
                self._record_one()
                if len(self.inputs) == 1
                else self._record_two(cost or self._cost())
            ),
        )

    def _edges(self, edges: Sequence[str]) -> list[str]:
        pairs = zip(self.wanted, edges, strict=True)
        return [line for x, edge in pairs for line in _block(_EDGE, x=x, edge=edge)]

    def _saving(self, *wanted: int) -> list[str]:
        return plan_of(self.op, wanted, ()).saving(self.inputs, self.attributes)

    def _record_one(self) -> list[str]:
        (place,) = self.places
        return _block(
            _ONE_INPUT,
            x=self.inputs[place],
            rule=f"rule_{place}",
            saving=self._saving(place),
            node=_block(_NODE, cost=self._cost()),
        )

    def _record_two(self, cost: str) -> list[str]:
        return _block(
            _TWO_INPUTS,
            edges=self._edges(["edge", "other_edge"]),
            saving_0=self._saving(0),
            saving_1=self._saving(1),
            saving_01=self._saving(0, 1),
            node=_block(_NODE, cost=cost),
        )

    def _record_any(self) -> list[str]:
        edges = [f"{x}_edge" for x in self.wanted]
        key = [f"{edge} is not None" for edge in edges]
        if self.op.broadcasts:
            key += [
                f"{edge} is not None and {x}._metadata.shape != metadata.shape"
                for x, edge in zip(self.wanted, edges, strict=True)
            ]
        return self._block(
            _INPUTS,
            none=" = ".join(edges),
            is_none=" and ".join([f"{edge} is None" for edge in edges]),
            edges=self._edges(edges),
            key=tuple_of(key),
            following=[line for edge in edges for line in _block(_FOLLOWING, edge=edge)],
            node=_block(_NODE, cost=self._cost()),
        )

    def _cost(self) -> str:
        op = self.op
        if callable(op.cost):
            return f"cost_of({self.parts['given']})"
        real, of_complex = op.cost if isinstance(op.cost, tuple) else (op.cost, op.cost)
        if self.form != "tensors":
            cost = "metadata.cost"
        elif len(self.inputs) > 1:
            cost = "metadata.line_cost" if op.broadcasts else "metadata.cost"
        elif op.view and not op.passes:
            # The gradient is summed, or put among zeros, line by line.
            cost = "known.line_cost if known.size > metadata.size else metadata.line_cost"
        elif real > 1:
            # A few elements may be picked of many, whose gradients are zeros.
            cost = "known.cost"
        else:
            # The gradient has the input's size even if the output is smaller.
            cost = "known.cost if known.cost > metadata.cost else metadata.cost"

        def times(each: int) -> str:
            return cost if each == 1 else f"({cost}) + {each - 1} * (metadata.cost - {CALL_NS})"

        if real == of_complex:
            return times(real)
        return f"({times(real)}) if not metadata.is_complex else {times(of_complex)}"


def arguments_of(op: Op, form: str) -> list[str]:
    """The names of a function's arguments, which must not be those that the template uses."""
    names = [f"{name}_" if name in _TAKEN else name for name in (*op.inputs, *op.attributes)]
    count = len(op.inputs)
    if is_sequence(op):
        names[0] = "tensors"
    elif count < 3:
        names[:count] = (["self", "other"] if form == "reflected" else ["input", "other"])[:count]
    return names


#: All names in the template.
_TAKEN = frozenset(
    name
    for key, text in globals().items()
    if key.isupper() and isinstance(text, str)
    for name in re.findall(r"(?<![{\w])\w+", text)
)
