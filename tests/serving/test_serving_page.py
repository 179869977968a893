"""The code in docs/serving.md does what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import asyncgrad as ag

PAGE = Path(__file__).parents[2] / "docs" / "serving.md"


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


def test_what_the_page_links_to_exists():
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE.read_text(encoding="utf-8")):
        assert (PAGE.parent / target).exists(), target
