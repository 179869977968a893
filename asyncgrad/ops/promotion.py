"""Mixed operands: promote dtypes by PyTorch's rules, check shapes, refuse foreign types.

PyTorch promotes by category (bool < integer < floating < complex): a Python number, or a tensor
without dimensions, changes the dtype of a tensor with dimensions only if its category is higher.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from asyncgrad.core.modes import current
from asyncgrad.core.recording import note_constant, unrepeatable
from asyncgrad.core.variable import Variable, autograd_meta, wrap
from asyncgrad.devices import CPU
from asyncgrad.errors import class_of
from asyncgrad.ops.batching import mapped
from asyncgrad.ops.device_check import device_mismatch
from asyncgrad.ops.dtype import FLOATING, refuse
from asyncgrad.ops.dtype_device import as_dtype
from asyncgrad.ops.namespace import RECORDED, metadata_of
from asyncgrad.ops.op import Op
from asyncgrad.ops.tensors.transfer import to_device

_CATEGORIES = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}
_NUMBERS: tuple[Any, ...] = (bool, int, float, complex)
_BOOL, _INT64, _FLOAT32, _FLOAT64, _COMPLEX64, _COMPLEX128 = map(
    np.dtype, ("bool", "int64", "float32", "float64", "complex64", "complex128")
)
_WIDE_UNSIGNED = frozenset(map(np.dtype, ("uint16", "uint32", "uint64")))
#: The dtype of Python floats, set by `set_default_dtype`.
_default = [np.dtype("float32")]


def default_dtype() -> Any:
    """The dtype that Python floats become."""
    return _default[0]


def set_default_dtype(dtype: Any) -> None:
    """Set the dtype that Python floats become; raise TypeError for a non-floating dtype."""
    with suppress(TypeError):
        found = as_dtype("set_default_dtype", dtype)
        if found.kind in FLOATING:
            if found is not _default[0]:
                unrepeatable("it changes the default dtype")
            _default[0] = found
            return
    raise TypeError(f"set_default_dtype: only floating-point dtypes are supported, not {dtype}")


def default_complex_dtype() -> Any:
    """The complex dtype that goes with the default floating one."""
    return complex_dtype(default_dtype())


def category(dtype: Any) -> int:
    """0 for bool, 1 for integers, 2 for floating, 3 for complex dtypes."""
    return _CATEGORIES.get(dtype.kind, 2)


def number_category(value: Any) -> int:
    """The category of a Python number."""
    if value.__class__ is float:
        return 2
    if isinstance(value, bool):
        return 0
    if isinstance(value, int):
        return 1
    return 2 if isinstance(value, float) else 3


def number_dtype(value: Any) -> Any:
    """The dtype that a Python number gets without other operands."""
    kind = number_category(value)
    if kind == 2:
        return _default[0]
    return default_complex_dtype() if kind == 3 else (_BOOL, _INT64)[kind]


def result_dtype(*operands: Any) -> Any:
    """The dtype of an operation on tensors and Python numbers.

    Source: PyTorch's "Tensor Attributes", type promotion.
    """
    # The dtypes of tensors with dimensions, of tensors without, and of numbers.
    levels: list[Any] = [None, None, None]
    for operand in operands:
        if isinstance(operand, Variable):
            level, dtype = (0 if operand._metadata.shape else 1), operand._metadata.dtype
        else:
            level, dtype = 2, number_dtype(operand)
        held = levels[level]
        levels[level] = dtype if held is None else promote_dtypes(held, dtype)
    return _combine(levels[0], _combine(levels[1], levels[2]))


def number_result(dtype: Any, number: Any) -> Any:
    """The dtype of an operation on a tensor with dimensions and a Python number."""
    wanted = number_category(number)
    held = category(dtype)
    if wanted <= held:
        return dtype
    if wanted == 3:
        return complex_dtype(dtype) if held == 2 else default_complex_dtype()
    return default_dtype() if wanted == 2 else _INT64


def _combine(higher: Any, lower: Any) -> Any:
    """Combine dtypes of two priorities; the lower one counts only if its category is higher."""
    if higher is None or lower is None:
        return lower if higher is None else higher
    above, below = category(higher), category(lower)
    if above == 2 and below == 3:
        return complex_dtype(higher)
    if above < 2 and (above == 0 or below >= 2):
        return promote_dtypes(higher, lower)
    return higher


def complex_dtype(dtype: Any) -> Any:
    """The complex dtype with the precision of a floating one, or the smallest that has it."""
    return _COMPLEX128 if dtype == _FLOAT64 else _COMPLEX64


def promote_dtypes(a: Any, b: Any) -> Any:
    """The common dtype of two tensors with dimensions; like PyTorch, refuses wide unsigned ones."""
    if a == b:
        return a
    above, below = category(a), category(b)
    if above != below and {above, below} != {2, 3}:
        return a if above > below else b
    if above == 1 and (a in _WIDE_UNSIGNED or b in _WIDE_UNSIGNED):
        raise RuntimeError(
            f"Promotion for uint16, uint32, uint64 types is not supported, attempted to promote "
            f"{a} and {b}. Convert one with .to()."
        )
    try:
        return np.promote_types(a, b)
    except TypeError:
        # float16 and bfloat16 have no common dtype in NumPy.
        return _FLOAT32


def common_dtype(x: Any, y: Any) -> Any:
    """The common dtype of two tensors."""
    first, second = x._metadata, y._metadata
    if first.dtype is second.dtype or first.dtype == second.dtype:
        return first.dtype
    if first.scalar == second.scalar:
        return promote_dtypes(first.dtype, second.dtype)
    if first.scalar:
        first, second = second, first
    return _combine(first.dtype, second.dtype)


def as_number(value: Any) -> Any:
    """Convert scalars of NumPy and numbers of derived classes; None for what is no number."""
    if type(value) in _NUMBERS:
        return value
    if isinstance(value, np.generic):
        nearest: Any = complex if value.dtype.kind == "c" else float
        value = None if value.dtype.kind == "m" else value.item()
        if isinstance(value, np.generic):
            # Python has no number for NumPy's extended precision.
            return nearest(value)
    # NumPy would take a number of a derived class, as of an enumeration, for an array.
    return next((plain(value) for plain in _NUMBERS if isinstance(value, plain)), None)


def as_tensor_operand(value: Any, name: str, place: int) -> Any:
    """Return an operand that is a tensor; raise a TypeError with a remedy for any other."""
    if isinstance(value, Variable):
        return value
    raise refusal(value, name, place)


def tensor_operands(name: str, *values: Any) -> tuple[Any, ...]:
    """Return a function's first arguments, which have to be tensors."""
    for place, value in enumerate(values, 1):
        if not isinstance(value, Variable):
            raise refusal(value, name, place)
    return values


def operand_of(kinds: str, value: Any, name: str, place: int = 1) -> Any:
    """Return an operand that is a tensor of a dtype of these kinds; raise for any other."""
    dtype = as_tensor_operand(value, name, place)._metadata.dtype
    if dtype.kind not in kinds:
        refuse(name, dtype)
    return value


def refusal(value: Any, name: str, place: int) -> TypeError:
    """The error for an operand that is not a tensor."""
    if isinstance(value, np.ndarray):
        remedy = "Wrap the array with asyncgrad.from_numpy() or asyncgrad.tensor()."
    elif isinstance(value, (list, tuple)):
        remedy = "Make a tensor of it with asyncgrad.tensor(), or of tensors with stack()."
    elif inspect.isawaitable(value):
        remedy = "Await it first."
    elif hasattr(value, "__dlpack__"):
        remedy = "Make a tensor of it with asyncgrad.from_dlpack() or asyncgrad.tensor()."
    else:
        remedy = "Pass a Tensor, or a number where one is taken."
    return TypeError(f"{name}(): argument {place} must be Tensor, not {class_of(value)}. {remedy}")


def operator_must_refuse(name: str, value: Any, x: Any = None) -> bool:
    """Whether an operator must refuse a value itself, because the value's class would not.

    NumPy leaves operators to the tensor `x`, and sequences would take `+` and `*` for their own;
    but one integer repeats them. PyTorch's tensors leave operators to Python, whose error would say
    that a Tensor does not go with a Tensor.
    """
    sequence = isinstance(value, (list, tuple))
    if sequence and name == "mul" and x is not None and x._metadata.size == 1:
        return category(x._metadata.dtype) > 1
    if sequence or class_of(value).startswith("torch."):
        return name not in {"eq", "ne"}
    return isinstance(value, np.ndarray) or inspect.isawaitable(value)


def cast(x: Any, dtype: Any) -> Any:
    """Cast a tensor to another dtype, recorded; return it unchanged if it has that dtype."""
    found = x._metadata.dtype
    if found is dtype or found == dtype:
        return x
    if category(dtype) < 2:
        # Integers have no gradient, so the result gets no edge.
        x = x.detach() if x._batched else wrap(x._array, x._metadata)
    return RECORDED.to(x, dtype)


def promote_unary(op: Op, value: Any) -> Any:
    """Convert the one operand of an elementwise function as the row says, or raise."""
    x = as_tensor_operand(value, op.name, 1)
    if op.check is not None:
        op.check(x)
    held = category(x._metadata.dtype)
    if op.promotes == "floating" and held < 2:
        return cast(x, default_dtype())
    return cast(x, _INT64) if op.promotes == "integer" and not held else x


def check_broadcast(name: str, x: Any, y: Any) -> None:
    """Raise unless two shapes can be broadcast against one another."""
    a, b = x._metadata.shape, y._metadata.shape
    if a == b:
        return
    for back in range(1, min(len(a), len(b)) + 1):
        m, n = a[-back], b[-back]
        if m != n and m != 1 and n != 1:
            raise RuntimeError(
                f"{name}: the size of tensor a ({m}) must match the size of tensor b ({n}) at "
                f"non-singleton dimension {max(len(a), len(b)) - back}: shapes {a} and {b} can't "
                f"be broadcast. Reshape or unsqueeze one of them."
            )


def check_device(name: str, *operands: Any) -> None:
    """Raise unless all tensors among the operands are on one device."""
    device = None
    for x in operands:
        if isinstance(x, Variable) and x._metadata.device is not device:
            if device is not None:
                raise device_mismatch(name, device, x._metadata.device)
            device = x._metadata.device


def on_common_device(name: str, *tensors: Any) -> tuple[Any, ...]:
    """Move CPU tensors without dimensions to the device of the others."""
    device = next(
        (x._metadata.device for x in tensors if x._metadata.shape or x._metadata.device is not CPU),
        CPU,
    )
    moved = tuple(
        to_device(x, device)
        if x._metadata.device is CPU and device is not CPU and not x._metadata.shape
        else x
        for x in tensors
    )
    check_device(name, *moved)
    return moved


def _with_number(
    op: Op, pair: Callable[[Any, Any], Any], right: Callable[[Any, Any], Any] | None,
    left: Callable[[Any, Any], Any] | None,
) -> Callable[[Any, Any, bool], Any]:  # fmt: skip
    """Make the function of a tensor and a number, which comes first if `reflected`."""
    name, floating, modular = op.name, op.promotes == "floating", not op.exact

    def with_number(x: Any, number: Any, reflected: bool) -> Any:
        dtype = number_result(x._metadata.dtype, number)
        kind = dtype.kind
        if floating and kind in "biu":
            dtype = default_dtype()
        elif modular and kind in "iu":
            # A number that is too large for an integer tensor counts modulo its size.
            number = wrapped(number, dtype)
        x = cast(x, dtype)
        function = left if reflected else right
        if function is not None:
            return function(x, number)
        if modular:
            return pair(constant(number, x), x) if reflected else pair(x, constant(number, x))
        if x._batched:
            return mapped(lambda batch: with_number(batch, number, reflected), x)
        # The array function gets the number as it is, so that it need not fit the dtype.
        F, modes = x._metadata.F, current()
        array = F.as_array(vars(F)[name](x._array, number))
        out = wrap(array, F.metadata_of(array))
        if modes.inference:
            autograd_meta(out).inference = True
        if modes.recorder is not None:
            modes.recorder.compared(name, x, number, out)
        return out

    return with_number


def promote_binary(
    op: Op, pair: Callable[[Any, Any], Any], *, right: Callable[[Any, Any], Any] | None = None,
    left: Callable[[Any, Any], Any] | None = None, operator: bool = False,
) -> Callable[[Any, Any], Any]:  # fmt: skip
    """Make the function that handles operands which are not floating tensors of one shape.

    Args:
        op: says what operands are promoted to, and which of them may be numbers.
        pair: the function on two tensors of one dtype.
        right: the function with a number as the second operand.
        left: the function with a number as the first operand, passed as its second argument.
        operator: return `NotImplemented` for an operand of a foreign type, as operators do.
    """
    name, check, floating = op.name, op.check, op.promotes == "floating"
    numbers = op.numbers != "none"
    leading = operator or op.numbers in {"either", "both"}
    alone = op.numbers == "both" and not operator

    with_number = _with_number(op, pair, right, left)

    def promote(x: Any, y: Any) -> Any:
        if isinstance(x, Variable) and isinstance(y, Variable):
            if x._metadata.device is not y._metadata.device:
                x, y = on_common_device(name, x, y)
            if check is not None:
                check(x, y)
            dtype = common_dtype(x, y)
            if floating and category(dtype) < 2:
                dtype = default_dtype()
            return pair(cast(x, dtype), cast(y, dtype))
        if isinstance(x, Variable):
            number, known = as_number(y) if numbers else None, x
        elif isinstance(y, Variable):
            number, known = as_number(x) if leading else None, y
        else:
            number, known = as_number(y) if alone else None, None
        if number is not None:
            if known is not None:
                if check is not None:
                    check(x, y)
                return with_number(known, number, known is y)
            if (first := as_number(x)) is not None:
                return promote(scalar_tensor(first), number)
        foreign, place, own = (y, 2, x) if isinstance(x, Variable) else (x, 1, y)
        if operator and not operator_must_refuse(name, foreign, own):
            return NotImplemented
        raise refusal(foreign, name, place)

    return promote


def wrapped(number: Any, dtype: Any) -> Any:
    """Wrap a number to an integer dtype, modulo its size; OverflowError beyond 64 bits."""
    if 0 <= number < 128:
        return int(number)
    return int(np.asarray(int(number)).astype(dtype))


def scalar_tensor(number: Any) -> Any:
    """A CPU tensor of a number, with the dtype that the number has by itself."""
    array = np.asarray(number, dtype=number_dtype(number))
    note_constant(array)
    return wrap(array, metadata_of(array, CPU))


def constant(number: Any, like: Any, dtype: Any = None) -> Any:
    """A tensor of a number, or of a host array, on the device and with the dtype of `like`."""
    F = like._metadata.F
    array = F.xp.asarray(number, dtype=like._metadata.dtype if dtype is None else dtype)
    note_constant(array)
    return wrap(array, F.metadata_of(array))
