"""How every op is called: a function that computes the result and records a node.

The text of that function is generated from the op's row when it is first called; `source` shows it.
An op has up to five forms:

    tensors    takes tensors of the right dtypes, in any mode; what `RECORDED` holds of most ops
    operands   elementwise: inlines the common case, which is floating tensors alike in shape, dtype
               and device, or a tensor and a number, in no mode; promotes other operands
    operator   the same for Python's operators: returns `NotImplemented` for foreign types
    reflected  the operator with exchanged operands
    checked    of matrices that are known to fit; any others are checked first

All forms look the array function up by the op's name in `Metadata.kernels` and call it there. Where
a mode is in force, `mode_hooks.instead` may compute the result in another way, and `in_modes` sees
every result.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import accumulate, compress
from types import FunctionType
from typing import TYPE_CHECKING, Any

from asyncgrad.core import variable
from asyncgrad.core.history import note_view
from asyncgrad.core.modes import current
from asyncgrad.core.node import OpNode, max_topological_nr, next_sequence_nr
from asyncgrad.core.rule import Rule
from asyncgrad.core.variable import counter_of, gradient_edge
from asyncgrad.core.versions import VersionCounter
from asyncgrad.devices.fp_errors import call_without_fp_errors
from asyncgrad.ops.device_check import reason
from asyncgrad.ops.generated import code_of
from asyncgrad.ops.mode_hooks import in_modes, instead
from asyncgrad.ops.namespace import OPS, RECORDED, metadata_of
from asyncgrad.ops.promotion import accept, as_tensor_operand, check_broadcast, promote_binary
from asyncgrad.ops.save_plan import plan_of, tuple_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncgrad.ops.op import Op

#: How many records a dispatch function caches.
_CACHE_LIMIT = 1024


def source(name: str) -> str:
    """The text of an op's dispatch functions, in all forms that they have."""
    op = OPS[name]
    forms = ["tensors"]
    if _takes_operands(op):
        forms += ["operands"] if len(op.inputs) == 1 else ["operands", "operator", "reflected"]
    return "\n".join(f"# {form}\n{_Writer(op, form).text()}" for form in forms)


def dispatch_of(op: Op) -> Callable[..., Any]:
    """The dispatch function of an op: of operands if it is elementwise, else of tensors."""
    return _made(op, "operands" if _takes_operands(op) else "tensors")


def tensors_dispatch(op: Op) -> Callable[..., Any]:
    """The dispatch function of tensors of the right dtypes."""
    return _made(op, "tensors")


def operator_dispatch(op: Op, *, reflected: bool = False) -> Callable[[Any, Any], Any]:
    """The dispatch function of a Python operator, such as `__add__` or `__radd__`."""
    return _made(op, "reflected" if reflected else "operator")


def product_dispatch(op: Op, checked: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The dispatch function of a matrix product.

    A pair of matrix metadata that was multiplied before needs no checks: a cache holds the result's
    metadata.

    Args:
        op: the product of two matrices.
        checked: the function for any operands.
    """
    made = _made(op, "checked", checked=checked)
    made.__name__ = made.__qualname__ = "matmul"
    made.__doc__ = checked.__doc__
    return made


def promoting(op: Op, *, operator: bool = False) -> Callable[[Any, Any], Any]:
    """The function that promotes two operands as the row says."""
    right, left = _of_numbers(op)
    return promote_binary(
        op.name,
        tensors_dispatch(op),
        right=right,
        left=left,
        floating=op.promotes == "floating",
        numbers=op.numbers != "none",
        leading=operator or op.numbers in {"either", "both"},
        alone=op.numbers == "both" and not operator,
        modular=not op.exact,
        check=op.check,
        operator=operator,
    )


def _of_numbers(op: Op) -> tuple[Any, Any]:
    """The functions of a tensor and a number that follows or precedes it; None if there is none."""
    right = getattr(RECORDED, f"{op.name}_scalar", None)
    return right, right if op.commutes else getattr(RECORDED, f"r{op.name}_scalar", None)


def _is_sequence(op: Op) -> bool:
    return op.inputs[0].startswith("*")


def _takes_operands(op: Op) -> bool:
    """Whether an op is elementwise, so that it takes operands of any dtype."""
    if op.view or op.cost is not None or _is_sequence(op):
        return False
    if len(op.inputs) == 1:
        return op.attributes in {(), ("scalar",)}
    return is_pair(op) and not op.changes_dtype


def is_pair(op: Op) -> bool:
    """Whether an op takes two inputs that are broadcast, and nothing else."""
    return op.broadcasts and len(op.inputs) == 2 and not op.attributes


# -- what generated functions call ----------------------------------------------------------------


def _planned(op: Op, key: tuple[bool, ...]) -> tuple[Rule, Callable[..., None]]:
    """How to record an op.

    Args:
        op: the op.
        key: which of its differentiable inputs require grad, and which of these were broadcast.
    """
    places = [place for place, name in enumerate(op.inputs) if name in op.pulls]
    wanted, broadcast = key[: len(places)], key[len(places) :]
    plan = plan_of(op, tuple(compress(places, wanted)), tuple(compress(places, broadcast)))
    return plan.rule, plan.save


def _remembered(seen_by: dict[Any, Any], op: Op, known: Any, array: Any, kernel: Any) -> Any:
    """The metadata of a comparison's results, its kernel, and one that does not check dtypes."""
    if len(seen_by) >= _CACHE_LIMIT:
        seen_by.clear()
    trusting = getattr(op.forward, "trusting", None)
    if trusting is not None and not known.device.streamed:
        fast = getattr(known.F.xp, trusting)
    else:
        fast = kernel
    seen = seen_by[known] = (metadata_of(array, known.device), kernel, fast)
    return seen


def _fitting(seen_by: dict[Any, Any], op: Op, input: Any, other: Any, out: Any) -> Any:
    """Remember the metadata of a product of two matrices, and the cost of its gradient."""
    known, other_known = input._metadata, other._metadata
    if len(known.shape) == 2 and len(other_known.shape) == 2:
        if len(seen_by) >= _CACHE_LIMIT:
            seen_by.clear()
        seen_by[known, other_known] = (out._metadata, op.cost(input, other))  # type: ignore[misc]
    return out


def _sequence_node(
    op: Op, inputs: tuple[Any, ...], attributes: tuple[Any, ...], metadata: Any
) -> OpNode | None:
    """The node of an op on a sequence of tensors; None if no gradient can flow."""
    edges = tuple(map(gradient_edge, inputs))
    wanted = tuple([place for place, edge in enumerate(edges) if edge is not None])
    if not wanted:
        return None
    node = OpNode()
    node.rule = rule = _sequence_rule(op, wanted, len(inputs))
    node.following = edges[wanted[0]] if len(wanted) == 1 else tuple([edges[p] for p in wanted])
    (node.saved,) = attributes
    if rule.names[0] == "ends":
        lengths = [x._metadata.shape[attributes[0]] for x in inputs]
        node.saved = (tuple(accumulate(lengths)), *attributes)
    node.guard = None
    node.extras = None
    node.output_metadata = metadata
    node.cost = metadata.cost
    node.sequence_nr = next_sequence_nr()
    node.topological_nr = 1 + max_topological_nr(node.following)
    return node


@lru_cache(_CACHE_LIMIT)
def _sequence_rule(op: Op, wanted: tuple[int, ...], arity: int) -> Rule:
    """The rule of an op on a sequence of tensors, of which some require grad.

    Its pull is called for one tensor at a time, with the tensor's place. A pull with a parameter
    `ends` also gets where each tensor ends along the axis, which is the op's first attribute.
    """
    ((_, (known, pull, *_)),) = op.pulls.items()
    ended = "ends" in known

    def one(place: int) -> Callable[[Any, Any, Any], Any]:
        if ended:
            return lambda F, g, saved: pull(F, g, place, *saved)
        return lambda F, g, saved: pull(F, g, place, saved)

    pulls = tuple([one(place) for place in wanted])
    return Rule(
        op.node_name,
        pulls[0]
        if len(wanted) == 1
        else lambda F, g, saved: tuple([p(F, g, saved) for p in pulls]),
        pulls=pulls if len(wanted) > 1 else None,
        fresh=op.fresh,
        places=wanted,
        arity=arity,
        names=("ends", *op.attributes) if ended else op.attributes,
    )


#: What the names in generated functions stand for; `_Writer.names` adds those that differ.
_NAMES: dict[str, Any] = {
    "OpNode": OpNode,
    "VersionCounter": VersionCounter,
    "accept": accept,
    "as_tensor_operand": as_tensor_operand,
    "call_without_fp_errors": call_without_fp_errors,
    "check_broadcast": check_broadcast,
    "counter_of": counter_of,
    "current": current,
    "gradient_edge": gradient_edge,
    "in_modes": in_modes,
    "instead": instead,
    "metadata_of": metadata_of,
    "next_sequence_nr": next_sequence_nr,
    "note_view": note_view,
    "reason": reason,
    "_fitting": _fitting,
    "_planned": _planned,
    "_remembered": _remembered,
    "_sequence_node": _sequence_node,
}


# -- the template ---------------------------------------------------------------------------------

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
    raise reason("{name}", known.device, error, {arrays}, {attributes}) from None
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
creation = None if modes.grad else "inference" if modes.inference else "no_grad"
note_view(out, input, "{name}", {attributes}, creation)
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
    return tensors(accept(op, input))
modes = current()
if known.special or not modes.plain:
    return tensors(accept(op, input))
"""
_OPERAND_AND_NUMBER = """
known = input._metadata
modes = current()
if known.special or {scalar}.__class__ is complex or not modes.plain:
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
if known.special:
    return promoted(input, other)
if known is not other_known:
    if known.dtype is other_known.dtype and known.device is other_known.device:
        return tensors(input, other)
    return promoted(input, other)
modes = current()
if not modes.plain:
    return tensors(input, other)
"""
_NUMBER = """
if kind is float or kind is int:
    return promoted(input, other) if known.special else right(input, other)
"""
_ALIKE = """
{compute}
{result}
{record}
return out
"""
#: Ops without a derivative: a cache holds the metadata of results, whose dtype is bool.
_PREDICATE = """
known = input._metadata
if known.scalar or not current().plain:
    return tensors(input)
seen = seen_by.get(known)
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
    seen = seen_by.get(known)
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
if (kind is float or kind is int) and not known.special:
    array = kernel(input._array, other)
"""
_NO_NUMBER = """
if kind is float or kind is int:
    return promoted(input, other)
"""
_COMPARED = """
if seen is None:
    seen = _remembered(seen_by, op, known, array, kernel)
{result}
out._edge = None
return out
"""
_REFLECTED = """
kind = other.__class__
if (kind is float or kind is int) and not self._metadata.special:
    return left(self, other)
"""
_CHECKED = """
try:
    known = input._metadata
    seen = seen_by.get((known, other._metadata))
except AttributeError:
    return checked(input, other)
if seen is None:
    return _fitting(seen_by, op, input, other, checked(input, other))
modes = current()
if not modes.plain:
    return checked(input, other)
metadata, cost = seen
"""


# -- the functions --------------------------------------------------------------------------------


def _made(op: Op, form: str, **values: Any) -> Callable[..., Any]:
    """A function that compiles itself at its first call; until then it has the same signature."""
    names: dict[str, Any] = {"__name__": __name__, "op": op, **values}

    def compiled() -> Any:
        writer = _Writer(op, form)
        text = writer.text()
        names.update(writer.names(text, made))
        made.__code__ = code_of(text, f"dispatch of {op.name}: {form}")
        return made

    names["compiled"] = compiled
    given = ", ".join(_arguments(op, form))
    stub = code_of(f"def dispatch({given}):\n    return compiled()({given})\n", "dispatch")
    made: Any = FunctionType(stub, names, f"__r{op.name}__" if form == "reflected" else op.name)
    # Attributes that come last may have defaults in the raw function.
    made.__defaults__ = getattr(op.forward, "__defaults__", None) if op.attributes else None
    return made  # type: ignore[no-any-return]


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


class _Writer:
    """Writes the text of one form of an op's dispatch function."""

    def __init__(self, op: Op, form: str) -> None:
        """Choose the names of the arguments."""
        self.op = op
        self.form = form
        sequence = _is_sequence(op)
        count = len(op.inputs)
        self.arguments = _arguments(op, form)
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

    def names(self, text: str, function: Any) -> dict[str, Any]:
        """What the names in the function's text stand for."""
        op = self.op
        known = {**_NAMES, "function": function, "cost_of": op.cost}
        known |= {"Tensor": variable.new_tensor, "seen_by": {}, "plans": {}}
        if self.form != "tensors":
            known["tensors"] = tensors_dispatch(op)
            if len(self.inputs) == 2 and self.form != "checked":
                known["right"], known["left"] = _of_numbers(op)
                known["promoted"] = promoting(op, operator=self.form != "operands")
        for places in re.findall(r"\brule_(\d+)", text):
            known[f"rule_{places}"] = plan_of(op, tuple(map(int, places)), ()).rule
        return known

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
        if _is_sequence(op):
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
            numbers = _of_numbers(op)[0] is not None
            start = self._block(
                _OPERANDS,
                kind=["kind = other.__class__"] if numbers else [],
                number=_block(_NUMBER) if numbers else [],
            )
        return [*start, "metadata = known", *self._computed()]

    _operator = _operands

    def _reflected(self) -> list[str]:
        left = self.op.pulls and _of_numbers(self.op)[1] is not None
        return [*(_block(_REFLECTED) if left else []), "return promoted(other, self)"]

    def _checked(self) -> list[str]:
        return [*_block(_CHECKED), *self._computed("cost")]

    # -- parts of them --

    def _computed(self, cost: str = "metadata.cost") -> list[str]:
        """The rest of a function that knows the result's metadata."""
        return self._block(
            _ALIKE,
            compute=self._block(_COMPUTE),
            result=_block(_RESULT, metadata="metadata"),
            record=self._record_one() if len(self.inputs) == 1 else self._record_two(cost),
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
        if self.op.cost is not None:
            return f"cost_of({self.parts['given']})"
        if len(self.inputs) > 1 or self.form != "tensors":
            return "metadata.cost"
        # The gradient has the input's size even if the output is smaller.
        return "known.cost if known.cost > metadata.cost else metadata.cost"


def _arguments(op: Op, form: str) -> list[str]:
    """The names of a function's arguments, which must not be those that the template uses."""
    names = [f"{name}_" if name in _TAKEN else name for name in (*op.inputs, *op.attributes)]
    count = len(op.inputs)
    if _is_sequence(op):
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
