"""The code in docs/serving.md does what the page says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import asyncgrad as ag

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "serving.md"


@pytest.mark.asyncio
async def test_the_handlers_explain():
    scope: dict = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        exec(block, scope)
    ag.manual_seed(0)
    model = ag.nn.Linear(4, 3)
    image = np.ones(4, np.float32)
    best = int(model(ag.tensor(image)).argmax())
    expected = model.weight[best].tolist()
    assert await scope["explain"](model, image, within=60) == expected
    (row,) = await scope["explain_all"](model, [image])
    assert row.tolist() == expected
    assert await scope["serve"](model, [image] * 5) == 5


def commands() -> list[list[str]]:
    """The lines of the page's blocks without a language, as a shell reads them."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.S | re.M)
    lines = [line for language, block in blocks if not language for line in block.splitlines()]
    return [shlex.split(line, comments=True) for line in lines]


def test_what_the_page_says_to_type_is_there():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    started = set()
    for program, *arguments in commands():
        if program == "make":
            recipe = re.search(rf"^{arguments[0]}: .*\n\t\$\(RUN\) -m (\S+)", makefile, re.M)
            assert recipe, arguments
            started.add(recipe[1])
            options = [option for each in arguments[1:] for option in re.findall(r"--\S+", each)]
            if options:
                pytest.importorskip("fastapi", reason="FastAPI is not installed")
                done = subprocess.run(
                    [sys.executable, "-m", recipe[1], "--help"],
                    cwd=ROOT, capture_output=True, text=True, check=True,
                    env=os.environ | {"PYTHONPATH": str(ROOT)},
                )  # fmt: skip
                assert all(option in done.stdout for option in options)
        elif program == "pip":
            (extras,) = re.findall(r"^asyncgrad\[(.*)\]$", arguments[1])
            assert set(extras.split(",")) <= set(project["optional-dependencies"])
        else:
            assert arguments[:1] == ["-m"]
            assert (ROOT / Path(*arguments[1].split("."))).with_suffix(".py").exists()
    assert started == {"examples.service", "examples.training_api", "examples.edge_forecast"}


def test_what_the_page_links_to_exists():
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE.read_text(encoding="utf-8")):
        assert (PAGE.parent / target).exists(), target
