"""What the README shows is run as it stands there."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import asyncgrad as ag

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_async_example_trains() -> None:
    """The loss goes down while the loop is free."""
    scope: dict[str, object] = {}
    exec(BLOCKS[0], scope)
    ag.manual_seed(0)
    model = ag.nn.Sequential(ag.nn.Linear(4, 16), ag.nn.Tanh(), ag.nn.Linear(16, 3))
    x, y = ag.randn(32, 4), ag.randint(0, 3, (32,))

    def loss() -> float:
        return ag.nn.functional.cross_entropy(model(x), y).item()

    before = loss()
    asyncio.run(scope["train"](model, x, y, steps=20))
    assert loss() < before


def test_figures_are_those_of_the_page_of_figures() -> None:
    """Both are filled by `python -m benchmarks.page`."""
    rows = re.findall(r"^\| .* \|$", README, re.MULTILINE)
    page = (Path(__file__).parent.parent / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert len(rows) == 9
    assert [row for row in rows if row not in page] == []


def test_it_stays_short() -> None:
    """One screen and a half."""
    assert len(README.splitlines()) <= 85


def test_every_file_that_the_readme_names_exists() -> None:
    """Links lead somewhere."""
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (Path(__file__).parent.parent / target).exists(), target
