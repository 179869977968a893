"""The tutorial: each page is a program that prints what the page says."""

import pytest
from page_programs import DOCS, run_page

PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.glob("tutorial/*.md"))
NEEDS = {
    "tutorial/3-endpoint.md": ("fastapi", "httpx"),
    "tutorial/5-weights.md": ("safetensors",),
}


def test_the_tutorial_has_eight_steps():
    assert [page.partition("/")[2][0] for page in PAGES] == list("12345678")


@pytest.mark.parametrize("page", PAGES)
def test_each_page_of_the_tutorial_runs_and_prints_what_it_says(page):
    for name in NEEDS.get(page, ()):
        pytest.importorskip(name)
    assert run_page(page) >= 4
