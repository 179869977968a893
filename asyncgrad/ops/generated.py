"""Functions made from source text when they are first needed; tracebacks show that text."""

from __future__ import annotations

import builtins
import functools
import linecache
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from types import CodeType, FunctionType
from typing import Any
from weakref import WeakValueDictionary, finalize

_numbers = count()
#: By text: what `shared_code` has given.
_shared: WeakValueDictionary[str, CodeType] = WeakValueDictionary()


@functools.lru_cache(4096)
def code_of(source: str, name: str) -> CodeType:
    """Compile an expression, or the definition of one function.

    Tracebacks show the name; by how the file's name begins, `core.frames` finds the package's own.
    """
    file = f"<asyncgrad {name}>"
    show(source, file)
    return compiled(source, file)


def show(source: str, file: str) -> None:
    """Let tracebacks and `inspect` find source text under the name of a file."""
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)


def compiled(source: str, file: str) -> CodeType:
    """The code of an expression or of one function."""
    mode = "exec" if source.startswith("def ") else "eval"
    code: CodeType = compile(source, file, mode, dont_inherit=True)
    if mode == "eval":
        return code
    return next(constant for constant in code.co_consts if isinstance(constant, CodeType))


def shared_code(source: str) -> CodeType:
    """The code of a replay, which all functions of equal source text share while one has it."""
    code = _shared.get(source)
    if code is None:
        file = f"<asyncgrad replay {next(_numbers)}>"
        show(source, file)
        code = _shared[source] = _nameless(source).replace(co_filename=file)
        finalize(code, linecache.cache.pop, file, None)
    return code


@functools.lru_cache(64)
def _nameless(source: str) -> CodeType:
    """Code that comes from no file: to compile it again takes longer than to give it a file."""
    return compiled(source, "")


def function_of(code: CodeType, values: Iterable[Any]) -> Any:
    """A function of some code, whose last parameters have these values."""
    # C code that imports a module finds Python's functions among the globals of its caller.
    return FunctionType(code, {"__builtins__": builtins}, code.co_name, tuple(values))


def lazy_function(
    name: str, parameters: Sequence[str], file: str, names: dict[str, Any],
    code: Callable[[Any], CodeType],
) -> Any:  # fmt: skip
    """A function that compiles itself at its first call; until then it has the same signature.

    `code` then gets the function and returns its code. Until then tracebacks show `file`. Its
    globals are `names`, to which this adds `finished`, the compiled function, and Python's own.
    """

    def finished() -> Any:
        function.__code__ = code(function)
        return function

    # To show a warning, Python looks for its own names among the globals of the function.
    names |= {"finished": finished, "__builtins__": builtins}
    # Errors name a function as its code does.
    stub = _stub(len(parameters)).replace(
        co_varnames=tuple(parameters), co_filename=file, co_name=name, co_qualname=name
    )
    function: Any = FunctionType(stub, names, name)
    return function


@functools.cache
def _stub(count: int) -> CodeType:
    """Code of so many arguments. Their names are filled in, which is faster than compiling."""
    given = ", ".join([f"a{place}" for place in range(count)])
    return code_of(f"def stub({given}):\n    return finished()({given})\n", "stub")


def expression(source: str, name: str, **values: Any) -> Any:
    """The value of an expression, usually a lambda, with some names bound."""
    return eval(code_of(f"lambda {', '.join(values)}: {source}", name))(*values.values())
