"""Reads byte code for the names that it uses, and for what makes a call unrepeatable."""

from __future__ import annotations

import dis
import functools
import inspect
import re
import types
from contextlib import nullcontext
from itertools import takewhile
from typing import Any

from asyncgrad.records import NamedTuple
from asyncgrad.replay.instructions import JUMPS
from asyncgrad.replay.steps import UnrepeatableError

#: What the names of this package's modules begin with.
PACKAGE = f"{__name__.partition('.')[0]}."
_ATTRIBUTES = frozenset({
    "LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "DELETE_ATTR", "LOAD_SUPER_ATTR",
})  # fmt: skip
_TAKES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
#: Instructions that make the operands of a call from names.
_OPERANDS = _TAKES | {"LOAD_GLOBAL", "BUILD_TUPLE", "PRECALL"}
#: Functions that don't give the code the class that they are asked for.
ASKING = frozenset({"isinstance", "issubclass", "type"})
#: What classes written in C have that gives a class or makes an instance.
_MAKING = frozenset({"from_bytes", "fromhex", "fromkeys", "mro"})
#: Functions that get the name of an attribute, and methods of strings that name some.
_BY_NAME = frozenset({"getattr", "hasattr", "setattr"})
_TEMPLATES = frozenset({"format", "format_map"})
#: Stands among the names for those that are computed, behind the string with which these begin.
ANY = "\0"
#: Stands behind the name of an attribute that holds the name of another.
NAMING = "\1"
#: Stands behind a name that `getattr` or `hasattr` may look for where there is none.
ASKED = "\4"
#: Stands behind the name of what is read off a class: a method of that name may get anything.
UNBOUND = "\5"
#: Stands before the number of an argument of the function, in place of the name of an owner.
ARGUMENT = "\2"
#: Stands among the names for what may show or compare its operands, as these builtins do.
SHOWING = "\3"
SHOWING_BUILTINS = frozenset({"ascii", "format", "max", "min", "repr", "sorted", "str"})
#: With these, code may show or compare instances, or ask for their fields.
SHOWN = frozenset({
    SHOWING, "__contains__", "__dataclass_fields__", "__eq__", "__format__", "__mod__", "__ne__",
    "__replace__", "__repr__", "__str__", "count", "format", "format_map", "index", "remove",
    "sort",
})  # fmt: skip
_FORMATS = frozenset({"CONVERT_VALUE", "FORMAT_SIMPLE", "FORMAT_VALUE", "FORMAT_WITH_SPEC"})
#: Attributes of tensors, classes and frames that change without a trace in what is compared.
MOVING = frozenset({
    "_version", "data_ptr", "storage", "untyped_storage", "_array", "_counter", "__dlpack__",
    "manual_seed", "set_state", "get_state", "initial_seed", "storage_offset", "_base", "_is_view",
    "output_nr", "retains_grad", "next_functions", "is_set_to", "__subclasses__", "f_back",
    "f_builtins", "f_globals", "f_locals",
})  # fmt: skip
#: With these, code may read attributes that it doesn't name.
OPEN = frozenset({
    ANY, "getattr", "hasattr", "setattr", "attrgetter", "methodcaller", "__dict__",
    "__getattribute__", "__reduce__", "__reduce_ex__", "__getstate__",
})  # fmt: skip
#: What functions and classes have besides the attributes in their tables.
INSIDE = frozenset({
    name
    for kind in (types.FunctionType, type)
    for name, part in vars(kind).items()
    if isinstance(part, (types.GetSetDescriptorType, types.MemberDescriptorType))
}) - {"__dict__"}  # fmt: skip
CONSTRUCTORS = frozenset({"__init__", "__new__", "__post_init__"})
#: With these, code may make an instance of the class of another.
MADE_BY = frozenset({"type", "__class__", "__reduce__", "__reduce_ex__", *CONSTRUCTORS})
#: Names that concern more than the object whose attributes they are.
_SPECIAL = MOVING | OPEN | MADE_BY | INSIDE
#: The package in which functions call methods of their arguments.
_LAYERS = f"{PACKAGE}nn"
_DOTTED = re.compile(r"\w+(\.\w+)+")
#: A field of a template, as in `"{0.scale:.2f}"`.
_FIELD = re.compile(r"\{([\w.]+)")


@functools.lru_cache(4096)
def is_own(module: str) -> bool:
    """Whether a module belongs to this package."""
    return f"{module}.".startswith(PACKAGE)


class Names(NamedTuple):
    """The names in code."""

    #: Those of globals that it reads, each with the attributes that it takes of them at once.
    globals: frozenset[tuple[str, ...]]
    #: Those of them with which it makes no instance: `A` in `isinstance(x, A)`, `type` in
    #: `type(x).scale`.
    asked: frozenset[tuple[str, ...]]
    #: Those of attributes, each with the name of the global, outer variable or attribute that holds
    #: the owner; without a name if anything may be the owner.
    attributes: frozenset[tuple[str, str]]
    #: Those under which it may put what it computes; `ANY` if it computes the name, too.
    set: frozenset[str]
    #: The names of attributes that concern more than the objects under one name, and the others.
    free: frozenset[str]
    owned: tuple[tuple[str, str], ...]


@functools.lru_cache(1024)
def names_in(code: types.CodeType, outer: tuple[str, ...]) -> Names:
    """The names in code, of which `outer` are variables of an enclosing function, and within it.

    Code that sets globals or outer variables, imports, or suspends its task is refused.
    """
    found: set[tuple[str, ...]] = set()
    asked: set[tuple[str, ...]] = set()
    stored: set[str] = set()
    line = code.co_firstlineno
    _refuse_suspending(code)
    instructions = list(dis.get_instructions(code))
    attributes = {("", SHOWING) for n in range(len(instructions)) if _shows(instructions, n)}
    known = _known_variables(code, instructions, outer)
    operands = _operands_asked(instructions)
    for place, instruction in enumerate(instructions):
        position = instruction.positions
        line = (position and position.lineno) or line
        name = instruction.opname
        _refuse(instructions, place, outer, f"({code.co_filename}:{line})")
        if name in {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}:
            if instruction.argval in _BY_NAME:
                by_name = call_of(instructions[place:], outer)[1]
                attributes |= {("", by_name), ("", by_name + ASKED)}
                if instruction.argval == "setattr" and not by_name.isidentifier():
                    # A name that is written there is among the constants.
                    stored.add(ANY)
            after = takewhile(lambda x: x.opname in _TAKES, instructions[place + 1 :])
            chain = (instruction.argval, *[str(one.argval) for one in after])
            is_asked = place in operands or instructions[place + len(chain)].opname == "IS_OP"
            (asked if is_asked else found).add(chain)
            if is_asked and chain == ("type",):
                after_call = instructions[place + call_of(instructions[place:])[0] + 1]
                attributes.add(("", f"{after_call.argval}{UNBOUND}"))
        elif name == "LOAD_DEREF" and instruction.argval == "__class__":
            # `super()` loads it, too, but gives nobody the class.
            if "LOAD_SUPER_ATTR" not in [one.opname for one in instructions[place + 2 : place + 3]]:
                attributes.add(("", "__class__"))
        elif name in _ATTRIBUTES:
            owners = _owners(instructions, place, known)
            named = _attribute(instructions, place, code.co_name)
            attributes |= {(owner, one) for owner in owners for one in named}
            if name == "STORE_ATTR":
                stored.add(str(instruction.argval))
            elif instruction.argval == "__setattr__":
                stored.add(ANY)
        elif name == "STORE_NAME":
            # In the body of a class.
            stored.add(str(instruction.argval))
        elif name == "MATCH_CLASS":
            # The class names the attributes.
            attributes.add(("", "__match_args__"))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            # Variables of the enclosing function are its own, not outer ones.
            mine = tuple([name for name in constant.co_freevars if name in outer])
            inner = names_in(constant, mine)
            found |= inner.globals - inner.asked
            asked |= inner.asked
            attributes |= {("" if by[:1] == ARGUMENT else by, x) for by, x in inner.attributes}
            stored |= inner.set
        else:
            # `getattr` and `setattr` may get it, or it is the name of a keyword argument.
            named = _named(constant)
            attributes |= {("", one) for one in named}
            stored |= named
    owned = tuple([one for one in attributes if one[0] and not _concerns_more(one[1])])
    free = {name for _, name in attributes.difference(owned)}
    sets = frozenset(attributes), frozenset(stored), frozenset(free)
    return Names(frozenset(found | asked), frozenset(asked - found), *sets, owned)


def _operands_asked(instructions: list[dis.Instruction]) -> set[int]:
    """The places of globals that go to `isinstance`, and of `type` if it gives the code no class.

    Then an attribute of the class is read, or it is compared by `is`.
    """
    found = set()
    for place, one in enumerate(instructions):
        if one.opname != "LOAD_GLOBAL" or one.argval not in ASKING:
            continue
        end = place + call_of(instructions[place:])[0]
        if one.argval != "type":
            while place < end:
                end -= 1
                if instructions[end].opname not in _OPERANDS:
                    break
                found.add(end)
        elif place < end and instructions[end].arg == 1:
            found |= {place} if _keeps_class(instructions[end + 1 :]) else set()
    return found


def _keeps_class(instructions: list[dis.Instruction]) -> bool:
    """Whether instructions give the code no class, on which they begin: they read a part of it."""
    first, *others = instructions
    name = str(first.argval)
    if first.opname in _TAKES:
        return name in {"__name__", "__qualname__"} or not (name[:2] == "__" or name in _MAKING)
    after = (one.opname for one in others if one.opname not in _TAKES)
    return first.opname == "LOAD_GLOBAL" and next(after) == "IS_OP"


def _shows(instructions: list[dis.Instruction], place: int) -> bool:
    """Whether an instruction may show or compare instances.

    No field is read in a comparison with a constant, which is no instance of the program's classes.
    """
    one = instructions[place]
    compares = one.opname in {"COMPARE_OP", "CONTAINS_OP"} or one.argrepr in {"%", "%="}
    with_constant = instructions[place - 1].opname == "LOAD_CONST" and not one.is_jump_target
    return one.opname in _FORMATS or (compares and not with_constant)


def _concerns_more(name: str) -> bool:
    """Whether a name concerns more than the object whose attribute it is."""
    return name in _SPECIAL or name[:2] == "__" or not {ANY, NAMING, UNBOUND}.isdisjoint(name)


def _refuse(
    instructions: list[dis.Instruction], place: int, outer: tuple[str, ...], at: str
) -> None:
    """Raise for an instruction that a call can't be repeated with."""
    name, argument = instructions[place].opname, instructions[place].argval
    if name in {"STORE_GLOBAL", "DELETE_GLOBAL"}:
        raise UnrepeatableError(f"its code sets the global {argument} {at}")
    if name in {"STORE_DEREF", "DELETE_DEREF"} and argument in outer:
        raise UnrepeatableError(f"its code sets the outer variable {argument} {at}")
    if name == "IMPORT_NAME":
        raise UnrepeatableError(f"its code imports {at}")
    if name == "PUSH_EXC_INFO" and instructions[place + 1].opname != "WITH_EXCEPT_START":
        # Whether an operation fails may depend on values.
        raise UnrepeatableError(f"its code catches errors {at}")


def _known_variables(
    code: types.CodeType, instructions: list[dis.Instruction], outer: tuple[str, ...]
) -> dict[str, set[str]]:
    """Under which names that is found which variables hold: "" if it is computed."""
    names = code.co_varnames
    known = {name: {name} if name in outer else {""} for name in code.co_freevars}
    known |= {name: {f"{ARGUMENT}{n}"} for n, name in enumerate(names[: code.co_argcount])}
    more = code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
    known |= {x: {""} for x in (*names[code.co_argcount :][:more], *code.co_cellvars)}
    changed = True
    while changed:
        changed = False
        for place, one in enumerate(instructions):
            if "_FAST" in one.opname and not one.opname.startswith("LOAD_"):
                variables = one.argval if isinstance(one.argval, tuple) else (one.argval,)
                for number, name in enumerate(variables[: one.opname.count("STORE_FAST")]):
                    found = {""} if number else _owners(instructions, place, known)
                    changed = changed or not found <= known.get(name, set())
                    known[name] = known.get(name, set()) | found
    return known | {name: {""} for name in names if not known.get(name)}


def _owners(
    instructions: list[dis.Instruction], place: int, variables: dict[str, set[str]]
) -> set[str]:
    """The names under which that is found which an instruction takes, "" if that is computed."""
    while not instructions[place].is_jump_target:
        place -= 1
        one = instructions[place]
        name = one.opname
        if name == "EXTENDED_ARG":
            continue
        if name in {"LOAD_GLOBAL", "LOAD_ATTR", "LOAD_METHOD"}:
            return {str(one.argval)}
        if name == "LOAD_DEREF" or name.startswith("LOAD_FAST") or name == "STORE_FAST_LOAD_FAST":
            variable = one.argval[-1] if isinstance(one.argval, tuple) else one.argval
            return variables.get(variable, set())
        before = instructions[place - 1 - (instructions[place - 1].opname == "PRECALL")]
        is_super = before.opname == "LOAD_GLOBAL" and before.argval == "super"
        return {f"{ARGUMENT}0"} if is_super and name == "CALL" and one.arg == 0 else {""}
    return {""}


def _attribute(instructions: list[dis.Instruction], place: int, function: str) -> set[str]:
    """The attributes that an instruction of a function may read."""
    name = str(instructions[place].argval)
    before = instructions[max(place - 3, 0) : place]
    if name in _TEMPLATES and before[-1].opname != "LOAD_CONST":
        return {name, ANY}
    if name == "__class__" and _keeps_class(instructions[place + 1 :]):
        # No instance is made of it.
        return {f"{instructions[place + 1].argval}{UNBOUND}"}
    if name == function == "__init__" and "super" in [one.argval for one in before]:
        # Who makes the instance has met the class.
        return set()
    return {name}


def function_in(part: Any) -> Any:
    """The function in a property, a class method or the like, otherwise the value itself."""
    return getattr(part, "__func__", getattr(part, "fget", part))


def names_of_methods(kinds: list[Any], names: set[str]) -> set[str]:
    """The names in this package's code that calls of some methods lead to, and their own."""
    scopes: list[Any] = [*map(vars, kinds)]
    found, todo, done = set(names), [*names], set()
    while todo:
        name = todo.pop()
        functions = [function_in(scope.get(name)) for scope in scopes]
        codes = [getattr(one, "__code__", None) for one in functions]
        for one in functions:
            beside = getattr(one, "__globals__", {})
            if beside.get("__package__") == _LAYERS and all(beside is not x for x in scopes):
                # Functions of the module, too.
                scopes.append(beside)
                todo += found
        while codes:
            code = codes.pop()
            if code is not None and code not in done:
                done.add(code)
                codes += [one for one in code.co_consts if isinstance(one, types.CodeType)]
                todo += [one for one in code.co_names if one not in found]
                found.update(code.co_names)
    return found


def call_of(instructions: list[dis.Instruction], outer: tuple[str, ...] = ()) -> tuple[int, str]:
    """Where a function is called that the first instruction has put onto the stack; 0 if unknown.

    And what stands for the second argument among the names. The instructions that make it end with
    two values above the function; the third argument, if there is one, is above it.
    """
    depth, second = 0, list[dis.Instruction]()
    for place, one in enumerate(instructions[1:], 1):
        if one.opname in {"PRECALL", "CALL"} and depth == one.arg:
            return place + (one.opname == "PRECALL"), _computed(second, outer)
        if one.opcode in JUMPS or depth < 0:
            break
        argument = one.arg if one.opcode >= dis.HAVE_ARGUMENT else None
        depth += dis.stack_effect(one.opcode, argument)
        if depth < 2:
            second.clear()
        elif depth == 2 and one.opname != "EXTENDED_ARG":
            second.append(one)
    return 0, ANY


def _computed(instructions: list[dis.Instruction], outer: tuple[str, ...]) -> str:
    """What stands for a name, which some instructions make, among the names."""
    if not instructions:
        return ANY
    first, *others = instructions
    if first.opname == "LOAD_CONST":
        if not others:
            return str(first.argval)
        if all(one.opname == "BUILD_STRING" or one.argrepr == "+" for one in others):
            return f"{first.argval}{ANY}"
    if first.opname[:5] != "LOAD_" or any(one.opname != "LOAD_ATTR" for one in others):
        return ANY
    # What globals, outer variables and attributes hold is followed.
    if others:
        return f"{others[-1].argval}{NAMING}"
    return "" if first.opname == "LOAD_GLOBAL" or first.argval in outer else ANY


def makes_manager(function: types.FunctionType, expression: list[dis.Instruction]) -> bool:
    """Whether code makes a context manager of this package, or one that does nothing."""
    kind: Any = None
    for place, one in enumerate(expression):
        if place == 0 and one.opname == "LOAD_GLOBAL":
            kind = function.__globals__.get(one.argval)
        elif one.opname in {"LOAD_ATTR", "LOAD_METHOD"} and isinstance(kind, types.ModuleType):
            kind = vars(kind).get(one.argval)
        elif one.opname != "PUSH_NULL":
            is_known = isinstance(kind, type) and (is_own(kind.__module__) or kind is nullcontext)
            return is_known and call_of(expression[place - 1 :])[0] == len(expression) - place
    return False


def _named(constant: object) -> set[str]:
    """The attributes that the strings in a constant may name, which may be a tuple."""
    if isinstance(constant, (tuple, frozenset)):
        return {name for part in constant for name in _named(part)}
    if not isinstance(constant, str):
        return set()
    # For `getattr`, or several for `attrgetter` or in a template.
    dotted = filter(_DOTTED.fullmatch, (constant, *_FIELD.findall(constant)))
    return {constant, *[name for text in dotted for name in text.split(".")]}


def _refuse_suspending(code: types.CodeType) -> None:
    """Raise for a generator function whose generators are awaited."""
    awaited = code.co_flags & inspect.CO_GENERATOR and code.co_name == "__await__"
    if awaited or code.co_flags & inspect.CO_ITERABLE_COROUTINE:
        at = f"({code.co_filename}:{code.co_firstlineno})"
        raise UnrepeatableError(f"its code lets other tasks run {at}")
