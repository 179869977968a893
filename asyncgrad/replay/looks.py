"""Finds out whether a number that Python has read from a tensor is only returned.

The byte code after the read is followed in a straight line. A number that is only put into new
containers, and returned with them, has changed nothing else in the call, so a replay can read the
present number in its place. Any other use may have decided what the function does next.
"""

from __future__ import annotations

import dis
import sys
from typing import Any

from asyncgrad.replay.names import PACKAGE, call_of, is_own

#: Functions of the package that return what the user's function has returned.
_PASSING = frozenset({f"{PACKAGE}replay.compiled", f"{PACKAGE}nn.module"})
#: The modules of the functions that read values of tensors.
_READERS = frozenset({f"{PACKAGE}tensor", f"{PACKAGE}ops.tensors.transfer"})
#: The functions of the package that have been called when `item()` or `tolist()` reads a value.
_LOOKS = frozenset({("seen", "item"), ("seen", "tolist")})
#: Those when `float()` does.
_FLOAT = ("seen", "item", "_one_number", "_real_number", "__float__")
#: Instructions that do nothing with a number, and how many values they take from the stack.
_TAKES = {
    "CACHE": 0, "NOP": 0, "RESUME": 0, "PUSH_NULL": 0, "KW_NAMES": 0, "LOAD_CONST": 0,
    "LOAD_GLOBAL": 0, "LOAD_DEREF": 0, "LOAD_ATTR": 1, "LOAD_METHOD": 1, "BINARY_OP": 2,
    "BINARY_SUBSCR": 2, "COMPARE_OP": 2, "UNARY_NEGATIVE": 1,
}  # fmt: skip
#: The least depth of the stack that is assumed.
_DEPTH = 64


def line() -> str:
    """The innermost line of code outside of this package."""
    frame = sys._getframe(1)
    while frame is not None:
        if not is_own(frame.f_globals.get("__name__", "")):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        if frame.f_back is None:
            break
        frame = frame.f_back
    return "in a pass"


def way_of(frame: Any) -> tuple[tuple[str, ...], Any]:
    """The functions of tensors by which a value is read, and the frame that calls them.

    The frame is None if that is the package's own: its functions may do more than the values tell.
    """
    names = []
    while frame is not None and is_own(name := frame.f_globals.get("__name__", "")):
        if name not in _READERS:
            return (), None
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    return tuple(names), frame


def is_only_returned(names: tuple[str, ...], frame: Any, code: Any, value: Any) -> bool:
    """Whether a value that is read from a tensor does nothing but to be returned.

    A number that is read in another function than the compiled one, of this `code`, counts as
    used, because that function may be called by code in C.
    """
    # Other functions make other values of it.
    if names not in _LOOKS and not (names == _FLOAT and type(value) is float):
        return False
    if frame.f_code is not code or not _returns(code, frame.f_lasti, names[-1]):
        return False
    while frame.f_back is not None:
        frame = frame.f_back
        name = frame.f_globals.get("__name__", "")
        if name not in _PASSING:
            return False
        if name == f"{PACKAGE}replay.compiled":
            return True
    return False


def _returns(code: Any, at: int, name: str) -> bool:
    """Whether the value of a call, at this place, only becomes part of what is returned."""
    before: list[Any] = []
    #: For each value on the stack whether it is the number, or a new container that holds it.
    stack = [False] * _DEPTH + [True]
    held: set[str] = set()
    # Where a jump leads to that is always taken, as at the end of a `with` block.
    target = 0
    for instruction in dis.get_instructions(code):
        if instruction.offset <= at:
            if instruction.opname not in {"PRECALL", "CACHE", "EXTENDED_ARG"}:
                before.append(instruction)
        elif instruction.offset < target:
            continue
        elif instruction.opname == "JUMP_FORWARD":
            target = instruction.argval
        elif instruction.opname in {"RETURN_VALUE", "RETURN_CONST"}:
            return _is_call_of(name, before)
        elif not _step(stack, held, instruction, instruction.opname, instruction.arg or 0):
            return False
    return False


def _is_call_of(name: str, instructions: list[Any]) -> bool:
    """Whether the last instruction calls a method of a tensor, or `float` of one.

    Another function, such as `sorted`, may have called the method.
    """
    *_, last, call = instructions
    if call.opname != "CALL":
        return False
    if name != "__float__":
        return call.arg == 0 and last.opname[:5] == "LOAD_" and bool(last.argval == name)
    end = len(instructions) - 1
    return call.arg == 1 and any(
        one.opname == "LOAD_GLOBAL"
        and one.argval == "float"
        and call_of(instructions[place:])[0] == end - place
        for place, one in enumerate(instructions)
    )


def _step(stack: list[bool], held: set[str], instruction: Any, name: str, count: int) -> bool:
    """Follow one instruction; False if it may use the number."""
    if name in {"STORE_FAST", "STORE_FAST_STORE_FAST", "STORE_FAST_LOAD_FAST"} or (
        name.startswith("LOAD_FAST") and name != "LOAD_FAST_AND_CLEAR"
    ):
        names = instruction.argval
        if isinstance(names, str):
            names = (names,)
        stores = name.count("STORE")
        for number, variable in enumerate(names):
            if number >= stores:
                stack.append(variable in held)
            elif stack.pop():
                held.add(variable)
            else:
                held.discard(variable)
        return True
    if name in {"BUILD_TUPLE", "BUILD_LIST", "BUILD_MAP", "BUILD_CONST_KEY_MAP"}:
        taken = {"BUILD_MAP": 2 * count, "BUILD_CONST_KEY_MAP": count + 1}.get(name, count)
        parts = [stack.pop() for _ in range(taken)][::-1]
        if name == "BUILD_MAP" and any(parts[::2]):
            # A key is hashed.
            return False
        stack.append(any(parts))
        return True
    if name == "SWAP":
        stack[-1], stack[-count] = stack[-count], stack[-1]
        return True
    if name == "POP_TOP":
        stack.pop()
        return True
    if name == "COPY":
        stack.append(stack[-count])
        return True
    if name == "PRECALL":
        return True
    if name in {"CALL", "CALL_KW"}:
        taken, given = count + 2 + (name == "CALL_KW"), 1
    elif name in _TAKES:
        taken = _TAKES[name]
        given = taken + dis.stack_effect(instruction.opcode, instruction.arg)
    else:
        return False
    if any(stack[len(stack) - taken :]) or len(stack) <= taken + 2:
        return False
    del stack[len(stack) - taken :]
    stack += [False] * given
    return True
