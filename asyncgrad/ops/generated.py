"""Functions made from source text when they are first needed; tracebacks show that text."""

from __future__ import annotations

import functools
import linecache
from types import CodeType
from typing import Any


@functools.lru_cache(4096)
def code_of(source: str, name: str) -> CodeType:
    """Compile source text.

    Args:
        source: an expression, or the definition of one function.
        name: what tracebacks call the text; `core.call_site` knows the package's by its beginning.
    """
    file = f"<asyncgrad {name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    mode = "exec" if source.startswith("def ") else "eval"
    code: CodeType = compile(source, file, mode, dont_inherit=True)
    if mode == "eval":
        return code
    return next(constant for constant in code.co_consts if isinstance(constant, CodeType))


def expression(source: str, name: str, **values: Any) -> Any:
    """The value of an expression, usually a lambda, with some names bound."""
    return eval(code_of(f"lambda {', '.join(values)}: {source}", name))(*values.values())
