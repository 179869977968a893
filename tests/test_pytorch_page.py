"""The page that compares with PyTorch: every row has its verdict, and every example runs."""

import ast
import asyncio
import inspect
import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parent.parent / "docs" / "pytorch.md").read_text(encoding="utf-8")
PREAMBLE = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL).group(1)
ROWS = dict(re.findall(r"^### (.+?)\n(.*?)(?=^##|\Z)", PAGE, re.DOTALL | re.MULTILINE))


def run(code):
    """Run an example in a scope of its own; in a loop if it awaits."""
    scope = {}
    exec(PREAMBLE, scope)
    compiled = compile(code, "docs/pytorch.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(compiled, scope)
    if inspect.iscoroutine(result):

        async def main():
            await result

        asyncio.run(main())


@pytest.mark.parametrize("row", ROWS)
def test_every_row_has_a_verdict_and_an_example_that_runs(row):
    """And the example is short."""
    text = ROWS[row]
    assert re.match(r"\*\*(Same|Better|Different)\b", text)
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(example.splitlines()) <= 20
    run(example)


def test_every_section_of_pytorchs_autograd_has_its_rows():
    """Entry points, order, accumulation, hooks, Functions, views, modes, and passes in passes."""
    sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
    assert [int(section.split(".")[0]) for section in sections] == list(range(1, 9))
    assert all(section.count("\n### ") >= 5 for section in sections)
