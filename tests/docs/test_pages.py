"""Pages whose Python is run as it stands, each as one program."""

import re

import pytest
from page_programs import DOCS, run_page

PAGES = (
    "compile.md", "forward-mode.md", "garbage-collector.md", "index.md", "scheduling.md",
    "threads.md",
)  # fmt: skip
#: The pages whose Python other tests run.
RUN_ELSEWHERE = {
    "devices.md": "devices/test_devices_page.py",
    "distributed.md": "distributed/test_dask.py",
    "extend.md": "test_extend.py",
    "pytorch.md": "test_pytorch_page.py",
    "serving.md": "serving/test_serving_page.py",
    "transforms.md": "func/test_page.py",
}
#: What the other tests of this folder run.
FOLDERS = {"how-to", "tutorial"}


@pytest.mark.parametrize("page", PAGES)
def test_the_page_runs_and_prints_what_it_says(page):
    assert run_page(page) >= 1


def test_files_that_the_architecture_names_are_there():
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    names = set(re.findall(r"`([a-z_/]+\.py)`", page))
    assert len(names) > 40
    assert [name for name in names if not (DOCS.parent / "asyncgrad" / name).is_file()] == []


def test_all_python_on_the_pages_is_run():
    for path in DOCS.rglob("*.md"):
        page = path.relative_to(DOCS).as_posix()
        if "```python" in path.read_text(encoding="utf-8") and path.parent.name not in FOLDERS:
            assert page in PAGES or page in RUN_ELSEWHERE, f"{page}: its Python is run by no test"
    for page, name in RUN_ELSEWHERE.items():
        assert page.removesuffix(".md") in (DOCS.parent / "tests" / name).read_text("utf-8"), page
