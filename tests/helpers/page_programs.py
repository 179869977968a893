"""Run the pages of the documentation as programs, and compare what they print."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import doctest
import inspect
import io
import itertools
import re
import warnings
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
#: A block of Python, or a block of text directly after another block.
_BLOCK = re.compile(
    r"^```(python)\n(.*?)^```\n|(?<=```\n\n)```(text)\n(.*?)^```", re.DOTALL | re.MULTILINE
)


def blocks(page: str) -> list[tuple[str, str]]:
    """The kinds and contents of a page's blocks of Python, and of text directly after a block."""
    found = _BLOCK.finditer((DOCS / page).read_text(encoding="utf-8"))
    return [(match[1] or match[3], match[2] or match[4]) for match in found]


def compiled(page: str, code: str, *, notebook: bool = False):
    """The code of a block; that of a notebook may await."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT if notebook else 0
    return compile(code, f"docs/{page}", "exec", flags=flags, dont_inherit=True)


def run_page(page: str, *, notebook: bool = False) -> int:
    """Run a page's blocks as one program; a block of text shows what the one before it prints.

    A block of text may also show an error: its class, and its message.

    Args:
        page: its path in `docs`.
        notebook: the blocks run on one event loop, and may await, as in Jupyter.

    Returns:
        How many blocks there are.
    """
    scope: dict[str, object] = {"__name__": "__main__"}
    found = [*blocks(page), ("", "")]
    with contextlib.ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner()) if notebook else None
        printed = ""
        for (kind, text), (_, following) in itertools.pairwise(found):
            if kind == "text":
                same = doctest.OutputChecker().check_output(text, printed, doctest.ELLIPSIS)
                assert same, f"{page} says\n{text}\nand prints\n{printed}"
            else:
                expected = re.match(r"\w+: ", following) is not None
                printed = _printed(compiled(page, text, notebook=notebook), scope, runner, expected)
    return len(found) - 1


def _printed(code, scope, runner, error_expected):
    """What a block prints, or the error that it raises."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), warnings.catch_warnings():
        try:
            if runner is None:
                exec(code, scope)
            else:
                runner.run(_in_cell(code, scope))
        except Exception as error:
            if not error_expected:
                raise
            print(f"{type(error).__name__}: {error}".rstrip())
    return said.getvalue()


async def _in_cell(code, scope):
    result = eval(code, scope)
    if inspect.isawaitable(result):
        await result
