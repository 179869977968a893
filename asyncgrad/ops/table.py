"""The table of derivatives, put together: every entry's functions on tensors and on arrays."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from asyncgrad.ops.comparison_doors import comparison_door, test_door
from asyncgrad.ops.derivatives import (
    activation,
    attention,
    convolution,
    elementwise,
    fourier,
    in_place,
    index,
    linalg,
    loss,
    matrices,
    normalisation,
    pooling,
    random,
    recurrent,
    reduction,
    scans,
    shape,
    sort,
    strided,
    transcendental,
)
from asyncgrad.ops.doors import general_door, sequence_door
from asyncgrad.ops.elementwise_doors import (
    binary_door,
    number_door,
    pair_door,
    reflected_door,
    unary_door,
)
from asyncgrad.ops.namespace import RECORDED, add_raw_function, add_raw_namespaces
from asyncgrad.ops.plan import plan_of
from asyncgrad.ops.promotion import (
    accept_any,
    accept_floating,
    accept_negation,
    accept_rectified,
    accept_square,
    as_tensor_operand,
    meeting,
    refuse_bool_difference,
)
from asyncgrad.ops.single_door import single_door

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncgrad.devices import Device
    from asyncgrad.ops.entry import Entry

CHAPTERS = (
    elementwise,
    shape,
    strided,
    index,
    reduction,
    scans,
    sort,
    linalg,
    matrices,
    fourier,
    convolution,
    pooling,
    recurrent,
    attention,
    activation,
    loss,
    normalisation,
    in_place,
    random,
    transcendental,
)
ENTRIES: dict[str, Entry] = {entry.name: entry for c in CHAPTERS for entry in c.ENTRIES}

#: Elementwise functions that keep integers as they are; all others make them floating.
_ANY_DTYPE = frozenset({
    "neg", "abs", "sgn", "conj", "real", "imag", "clone", "zeros_of", "square", "relu",
    "zero", "sign", "floor", "ceil", "trunc", "round", "isnan", "isinf", "isfinite", "logical_not",
    "bitwise_not", "add", "sub", "mul", "pow", "fmod", "remainder", "div_floor", "div_trunc",
    "floor_divide", "maximum", "minimum", "clamp_low", "clamp_high", "eq", "ne", "lt", "le", "gt",
    "ge", "logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor",
    "bitwise_left_shift", "bitwise_right_shift", "gcd", "lcm", "igamma", "igammac",
    "heaviside",
})  # fmt: skip
#: Functions of one tensor that are particular about it.
_ACCEPTS = {"neg": accept_negation, "relu": accept_rectified, "square": accept_square}
#: Those that compare numbers as they are, whether or not they fit the tensor's dtype.
_COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
#: Functions of two tensors that take no number.
_TENSORS_ONLY = frozenset({
    "maximum", "minimum", "atan2", "clamp_low", "clamp_high", "logical_and", "logical_or",
    "logical_xor", "hypot", "nextafter", "gcd", "lcm", "igamma", "igammac",
    "heaviside",
})  # fmt: skip
#: Functions that take a number before a tensor, and those that take nothing but numbers.
_NUMBERS_FIRST = frozenset({
    "add", "sub", "mul", "div", "pow", "remainder", "div_floor", "div_trunc", "floor_divide",
    "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift",
    "xlog1py", "xlogy", "zeta",
})  # fmt: skip
_ALONE = frozenset({"add", "sub", "mul", "div", "div_floor", "div_trunc", "floor_divide"})
#: What Python's operators call: the functions of the table that leave foreign types to others.
OPERATORS = SimpleNamespace()
#: The same with the operands exchanged.
REFLECTED = SimpleNamespace()


def _door(entry: Entry) -> Any:
    """The function of an entry on tensors."""
    if entry.inputs == ("*xs",):
        return sequence_door(entry)
    if entry.inputs == ("x",):
        return _door_of_one(entry)
    if entry.view or entry.name == "complex":
        # What comes out of `complex` is of another kind than what goes in.
        return general_door(entry)
    if entry.broadcasts and len(entry.inputs) == 2 and not entry.attributes:
        return _door_of_two(entry)
    return general_door(entry)


def _door_of_one(entry: Entry) -> Any:
    name = entry.name
    single = single_door(entry)
    if name.endswith("_scalar"):
        return number_door(entry, single)
    if not entry.pulls and not entry.attributes and entry.cost is None and not entry.view:
        return test_door(entry, single)
    if entry.attributes or entry.cost is not None or entry.view:
        return single
    if name in {"abs", "imag", "real"}:
        # Real for complex numbers.
        return lambda input: single(as_tensor_operand(input, name, 1))
    usual = accept_any(name) if name in _ANY_DTYPE else accept_floating(name)
    return unary_door(entry, single, _ACCEPTS.get(name, usual))


def _door_of_two(entry: Entry) -> Any:
    """The function; its forms as an operator are put aside."""
    name = entry.name
    floating = name not in _ANY_DTYPE
    numbers = name not in _TENSORS_ONLY
    right = vars(RECORDED).get(f"{name}_scalar")
    left = right if name in {"add", "mul"} else getattr(RECORDED, f"r{name}_scalar", None)
    pair = pair_door(entry)
    meet, operator_meet = (
        meeting(
            name,
            pair,
            right=right,
            left=left,
            floating=floating,
            numbers=numbers,
            leading=operator or name in _NUMBERS_FIRST,
            alone=name in _ALONE and not operator,
            modular=name not in _COMPARISONS,
            check=refuse_bool_difference if name == "sub" else None,
            operator=operator,
        )
        for operator in (False, True)
    )
    if not entry.pulls:
        setattr(OPERATORS, name, comparison_door(entry, operator_meet, numbers=numbers))
        setattr(REFLECTED, name, reflected_door(entry, operator_meet, None))
        return comparison_door(entry, meet, numbers=numbers)
    setattr(OPERATORS, name, binary_door(entry, pair, operator_meet, right))
    setattr(REFLECTED, name, reflected_door(entry, operator_meet, left))
    return binary_door(entry, pair, meet, right)


def _fill() -> None:
    """Make every function on tensors; those with a number come before those that use them."""
    for entry in sorted(ENTRIES.values(), key=lambda entry: not entry.attributes):
        setattr(RECORDED, entry.name, _door(entry))
    RECORDED.mh = RECORDED.adjoint
    RECORDED.chain = lambda g, d: g * (RECORDED.conj(d) if d._metadata.is_complex else d)


def add_device(device: Device) -> None:
    """Bind the table's raw functions to a device's library."""
    add_raw_namespaces(device, {entry.name: entry.forward for entry in ENTRIES.values()})


def add_entry(entry: Entry) -> Callable[..., Any]:
    """Add an entry that the chapters do not have.

    Returns:
        Its function: of any operands if it broadcasts, of tensors alike in dtype otherwise.

    Raises:
        ValueError: if its name is taken, or a rule asks for what there is not.
    """
    name = entry.name
    if name in ENTRIES or hasattr(RECORDED, name) or not name.isidentifier():
        raise ValueError(f"the table of derivatives can't take {name!r}: it is no free name")
    if entry.inputs == ("*xs",):
        door = sequence_door(entry)
    else:
        plan_of(entry, tuple(range(len(entry.inputs))), ())  # Raises for rules that can't be.
        several = entry.view or len(entry.inputs) > 1
        door = general_door(entry) if several else single_door(entry)
    ENTRIES[name] = entry
    add_raw_function(name, entry.forward)
    if entry.broadcasts and len(entry.inputs) == 2 and not entry.attributes:
        door = meeting(name, pair_door(entry), floating=bool(entry.pulls))
    setattr(RECORDED, name, door)
    return door


_fill()
