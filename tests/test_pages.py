"""Pages whose examples are run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
BLOCKS = [
    (name, block)
    for name in ("forward-mode", "scheduling")
    for block in re.findall(
        r"```python\n(.*?)```", (DOCS / f"{name}.md").read_text(encoding="utf-8"), re.DOTALL
    )
]


@pytest.mark.parametrize(("name", "block"), BLOCKS)
def test_the_page_runs_as_it_stands(name, block):
    assert "assert" in block
    exec(block, {})


def test_every_page_has_an_example():
    assert {name for name, _ in BLOCKS} == {"forward-mode", "scheduling"}
