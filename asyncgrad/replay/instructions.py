"""Single instructions of byte code."""

from __future__ import annotations

import dis
from types import CodeType
from typing import Any

from asyncgrad.replay.steps import UnrepeatableError

#: The opcodes of instructions that may jump.
JUMPS = frozenset({*dis.hasjrel, *dis.hasjabs})
_ENDS = frozenset({
    "RETURN_VALUE", "RETURN_CONST", "RERAISE", "RAISE_VARARGS", "INTERPRETER_EXIT",
})  # fmt: skip
#: Those that always jump, by name.
_ALWAYS = frozenset({"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"})

#: Raises an error for a variable without a value.
_LOAD = "LOAD_FAST_CHECK" if "LOAD_FAST_CHECK" in dis.opmap else "LOAD_FAST"


class Instruction:
    """What is known of one instruction."""

    __slots__ = ("end", "it", "nexts", "pushes", "reads", "writes")

    def __init__(self, it: dis.Instruction, end: int, code: CodeType) -> None:
        """Look at one that ends at a place of a function's code."""
        self.it = it
        self.end = end
        #: The instructions that may follow, each with what it finds more on the stack.
        self.nexts: list[tuple[int, int]] = []
        self.reads: tuple[str, ...] = ()
        self.writes: tuple[str, ...] = ()
        name = it.opname
        if name not in _ENDS:
            argument = it.arg if it.opcode >= dis.HAVE_ARGUMENT else None
            jumps = it.opcode in JUMPS
            if name not in _ALWAYS:
                self.nexts.append((end, dis.stack_effect(it.opcode, argument, jump=False)))
            if jumps:
                effect = dis.stack_effect(it.opcode, argument, jump=True)
                self.nexts.append((it.argval, effect))
        #: Whether a line begins here, and with a value on the stack.
        self.pushes = bool(it.starts_line) and (
            name == "EXTENDED_ARG" or any(to == end and more > 0 for to, more in self.nexts)
        )
        if "_FAST" in name:
            variables = it.argval if isinstance(it.argval, tuple) else (it.argval,)
            stores = name.count("STORE_FAST")
            self.writes = variables[:stores]
            # Python 3.13 loads the cells of outer variables as if they were variables.
            others = (*self.writes, *code.co_freevars)
            self.reads = tuple([x for x in variables[stores:] if x not in others])
            if name == "LOAD_FAST_AND_CLEAR":
                self.reads = ()
        elif _is_super(it):
            # It looks for the first argument itself.
            self.reads = code.co_varnames[:1]

    @property
    def variables(self) -> tuple[str, ...]:
        """The argument, if that is a variable, perhaps an outer one."""
        opcode, name = self.it.opcode, self.it.argval
        if _is_super(self.it):
            return ("__class__",)
        is_variable = opcode in dis.hasfree or opcode in dis.haslocal
        return (name,) if is_variable and isinstance(name, str) else ()


def _is_super(it: dis.Instruction) -> bool:
    return it.opname == "LOAD_GLOBAL" and it.argval == "super"


def units(name: str, argument: int) -> bytes:
    """An instruction, with what extends its argument."""
    if argument < 0:
        raise UnrepeatableError("a jump leads back")
    found = [dis.opmap[name], argument & 0xFF]
    while argument := argument >> 8:
        found = [dis.opmap["EXTENDED_ARG"], argument & 0xFF, *found]
    return bytes(found)


def loads(
    code: CodeType, values: tuple[Any, ...], names: tuple[str, ...], constants: list[Any]
) -> bytes:
    """Code that returns a tuple of constants and of variables."""
    text = b""
    for value in values:
        text += units("LOAD_CONST", len(constants))
        constants.append(value)
    for name in names:
        text += units(_LOAD, code.co_varnames.index(name))
    text += units("BUILD_TUPLE", len(values) + len(names))
    return text + units("RETURN_VALUE", 0)
