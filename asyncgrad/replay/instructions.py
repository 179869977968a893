"""Single instructions of byte code."""

from __future__ import annotations

import dis

#: The opcodes of instructions that may jump.
JUMPS = frozenset({*dis.hasjrel, *dis.hasjabs})
_ENDS = frozenset({
    "RETURN_VALUE", "RETURN_CONST", "RERAISE", "RAISE_VARARGS", "INTERPRETER_EXIT",
})  # fmt: skip
#: Those that always jump, by name.
_ALWAYS = frozenset({"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"})


class Instruction:
    """What is known of one instruction."""

    __slots__ = ("end", "it", "nexts", "pushes", "reads", "writes")

    def __init__(self, it: dis.Instruction, end: int, outer: tuple[str, ...]) -> None:
        """Look at one that ends at a place, in a function with outer variables."""
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
            others = (*self.writes, *outer)
            self.reads = tuple([x for x in variables[stores:] if x not in others])
            if name in {"DELETE_FAST", "LOAD_FAST_AND_CLEAR"}:
                self.reads = ()

    @property
    def names_variable(self) -> bool:
        """Whether the argument is a variable, perhaps an outer one."""
        opcode = self.it.opcode
        return isinstance(self.it.argval, str) and (opcode in dis.hasfree or opcode in dis.haslocal)
