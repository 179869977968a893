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


def test_the_script_runs_without_a_loop() -> None:
    """Line by line as in PyTorch."""
    scope: dict[str, object] = {"ag": ag, "print": lambda *values: None}
    exec(BLOCKS[1], scope)
    w = scope["w"]
    assert ((w.grad - 2 * (w - 1)).abs() < 1e-6).detach().numpy().all()


def test_every_file_that_the_readme_names_exists() -> None:
    """Links lead somewhere."""
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (Path(__file__).parent.parent / target).exists(), target
