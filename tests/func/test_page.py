"""The page on transforms."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "transforms.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_page_runs_as_it_stands():
    """Each block goes on where the last one ended, and says what comes out."""
    scope: dict[str, object] = {}
    for block in BLOCKS:
        assert "assert " in block
        exec(block, scope)
