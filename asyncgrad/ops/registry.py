"""Builds the functions of every op in the table, on tensors and on arrays."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from asyncgrad.ops.comparison_dispatch import comparison_dispatch, predicate_dispatch
from asyncgrad.ops.dispatch import general_dispatch, sequence_dispatch
from asyncgrad.ops.elementwise_dispatch import (
    binary_dispatch,
    number_dispatch,
    pair_dispatch,
    reflected_dispatch,
    unary_dispatch,
)
from asyncgrad.ops.namespace import RECORDED, add_raw_function, add_raw_namespaces
from asyncgrad.ops.promotion import (
    accept_any,
    accept_floating,
    accept_negation,
    accept_rectified,
    accept_square,
    as_tensor_operand,
    promote_binary,
    refuse_bool_difference,
)
from asyncgrad.ops.save_plan import plan_of
from asyncgrad.ops.single_dispatch import single_dispatch
from asyncgrad.ops.table import (
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

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncgrad.devices import Device
    from asyncgrad.ops.op import Op

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
OPS: dict[str, Op] = {op.name: op for c in CHAPTERS for op in c.OPS}

#: Elementwise ops that keep integer dtypes; all others convert integers to floating.
_ANY_DTYPE = frozenset({
    "neg", "abs", "sgn", "conj", "real", "imag", "clone", "zeros_of", "square", "relu",
    "zero", "sign", "floor", "ceil", "trunc", "round", "isnan", "isinf", "isfinite", "logical_not",
    "bitwise_not", "add", "sub", "mul", "pow", "fmod", "remainder", "div_floor", "div_trunc",
    "floor_divide", "maximum", "minimum", "clamp_low", "clamp_high", "eq", "ne", "lt", "le", "gt",
    "ge", "logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor",
    "bitwise_left_shift", "bitwise_right_shift", "gcd", "lcm", "igamma", "igammac",
    "heaviside",
})  # fmt: skip
#: Unary ops that refuse or convert certain dtypes.
_ACCEPTS = {"neg": accept_negation, "relu": accept_rectified, "square": accept_square}
#: Ops that compare numbers exactly, whether or not they fit the tensor's dtype.
_COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
#: Binary ops that take no number.
_TENSORS_ONLY = frozenset({
    "maximum", "minimum", "atan2", "clamp_low", "clamp_high", "logical_and", "logical_or",
    "logical_xor", "hypot", "nextafter", "gcd", "lcm", "igamma", "igammac",
    "heaviside",
})  # fmt: skip
#: Ops that take a number before a tensor, and ops that take two numbers.
_NUMBERS_FIRST = frozenset({
    "add", "sub", "mul", "div", "pow", "remainder", "div_floor", "div_trunc", "floor_divide",
    "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift",
    "xlog1py", "xlogy", "zeta",
})  # fmt: skip
_ALONE = frozenset({"add", "sub", "mul", "div", "div_floor", "div_trunc", "floor_divide"})
#: What Python's operators call: these return `NotImplemented` for foreign types.
OPERATORS = SimpleNamespace()
#: The same with exchanged operands.
REFLECTED = SimpleNamespace()


def _dispatch(op: Op) -> Any:
    """The dispatch function of an op."""
    if op.inputs == ("*xs",):
        return sequence_dispatch(op)
    if op.inputs == ("x",):
        return _dispatch_of_one(op)
    if op.view or op.name == "complex":
        # The output of `complex` has another dtype than its inputs.
        return general_dispatch(op)
    if op.broadcasts and len(op.inputs) == 2 and not op.attributes:
        return _dispatch_of_two(op)
    return general_dispatch(op)


def _dispatch_of_one(op: Op) -> Any:
    name = op.name
    single = single_dispatch(op)
    if name.endswith("_scalar"):
        return number_dispatch(op, single)
    if not op.pulls and not op.attributes and op.cost is None and not op.view:
        return predicate_dispatch(op, single)
    if op.attributes or op.cost is not None or op.view:
        return single
    if name in {"abs", "imag", "real"}:
        # Their result is real for complex inputs, so the dtype may change.
        return lambda input: single(as_tensor_operand(input, name, 1))
    usual = accept_any(name) if name in _ANY_DTYPE else accept_floating(name)
    return unary_dispatch(op, single, _ACCEPTS.get(name, usual))


def _dispatch_of_two(op: Op) -> Any:
    """The function; its operator forms are stored in `OPERATORS` and `REFLECTED`."""
    name = op.name
    floating = name not in _ANY_DTYPE
    numbers = name not in _TENSORS_ONLY
    right = vars(RECORDED).get(f"{name}_scalar")
    left = right if name in {"add", "mul"} else getattr(RECORDED, f"r{name}_scalar", None)
    pair = pair_dispatch(op)
    meet, operator_meet = (
        promote_binary(
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
    if not op.pulls:
        setattr(OPERATORS, name, comparison_dispatch(op, operator_meet, numbers=numbers))
        setattr(REFLECTED, name, reflected_dispatch(op, operator_meet, None))
        return comparison_dispatch(op, meet, numbers=numbers)
    setattr(OPERATORS, name, binary_dispatch(op, pair, operator_meet, right))
    setattr(REFLECTED, name, reflected_dispatch(op, operator_meet, left))
    return binary_dispatch(op, pair, meet, right)


def _fill() -> None:
    """Make all functions on tensors; `_scalar` forms first, because the others use them."""
    for op in sorted(OPS.values(), key=lambda op: not op.attributes):
        setattr(RECORDED, op.name, _dispatch(op))
    RECORDED.mh = RECORDED.adjoint
    RECORDED.chain = lambda g, d: g * (RECORDED.conj(d) if d._metadata.is_complex else d)


def add_device(device: Device) -> None:
    """Bind the table's raw functions to a device's library."""
    add_raw_namespaces(device, {op.name: op.forward for op in OPS.values()})


def add_op(op: Op) -> Callable[..., Any]:
    """Add an op that the table does not have.

    Returns:
        Its function: on any operands if it broadcasts, otherwise on tensors of one dtype.

    Raises:
        ValueError: if the name is taken, or a rule names a value that the op does not have.
    """
    name = op.name
    if name in OPS or hasattr(RECORDED, name) or not name.isidentifier():
        raise ValueError(f"the table of derivatives can't take {name!r}: it is no free name")
    if op.inputs == ("*xs",):
        dispatch = sequence_dispatch(op)
    else:
        plan_of(op, tuple(range(len(op.inputs))), ())  # Raises for rules that name unknown values.
        several = op.view or len(op.inputs) > 1
        dispatch = general_dispatch(op) if several else single_dispatch(op)
    OPS[name] = op
    add_raw_function(name, op.forward)
    if op.broadcasts and len(op.inputs) == 2 and not op.attributes:
        dispatch = promote_binary(name, pair_dispatch(op), floating=bool(op.pulls))
    setattr(RECORDED, name, dispatch)
    return dispatch


_fill()
