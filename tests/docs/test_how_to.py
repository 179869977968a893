"""The recipes: each page is a program that prints what the page says, and errors are raised."""

import asyncio
import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from page_programs import DOCS, blocks, compiled, run_page

import asyncgrad as ag

#: The packages that a page's program imports; where one is absent, the program is only compiled.
PAGES = {
    "coming-from-pytorch": (),
    "errors": ("trio",),
    "jupyter": (),
    "numba": ("numba",),
    "pictures": (),
    "tensorboard": ("tensorboardX",),
    "tqdm": ("tqdm",),
    "types": (),
    "uvicorn": ("fastapi",),
    "why-not-to-thread": (),
}
#: Numba compiles for most of a minute.
SLOW = {"numba": pytest.mark.slow}
#: Pages that are run in another way, below.
OTHERS = {"docker", "pytest-asyncio"}


def test_every_recipe_is_run():
    assert {path.stem for path in DOCS.glob("how-to/*.md")} == PAGES.keys() | OTHERS


@pytest.mark.parametrize("name", [pytest.param(name, marks=SLOW.get(name, ())) for name in PAGES])
def test_each_recipe_runs_and_prints_what_it_says(name):
    """Where a package is absent, its Python has to be valid."""
    page, notebook = f"how-to/{name}.md", name == "jupyter"
    if all(importlib.util.find_spec(package) for package in PAGES[name]):
        assert run_page(page, notebook=notebook) > 0
    else:
        assert all(
            compiled(page, code, notebook=notebook)
            for kind, code in blocks(page)
            if kind == "python"
        )


def test_the_service_of_the_recipe_for_uvicorn_answers():
    """Its weights are loaded before its first answer."""
    httpx = pytest.importorskip("httpx")
    pytest.importorskip("fastapi")
    scope = {"__name__": "service"}
    for kind, code in blocks("how-to/uvicorn.md"):
        if kind == "python":
            exec(compiled("how-to/uvicorn.md", code), scope)
    app = scope["app"]

    async def ask():
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://service") as client,
        ):
            answer = await client.post("/explain", json={"values": [1, 2, 3, 4]})
            return answer, await client.get("/healthz")

    answer, health = asyncio.run(ask())
    assert (answer.status_code, len(answer.json())) == (200, 4)
    assert health.status_code == 200


def test_the_tests_of_the_recipe_for_pytest_asyncio_pass(tmp_path):
    code = "\n".join(code for kind, code in blocks("how-to/pytest-asyncio.md") if kind == "python")
    (tmp_path / "test_recipe.py").write_text(code, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "test_recipe.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(DOCS.parent)},
        capture_output=True,
        text=True,
    )
    assert "3 passed" in done.stdout, done.stdout + done.stderr


def test_the_container_installs_extras_that_there_are():
    """Docker itself is not run."""
    page = (DOCS / "how-to/docker.md").read_text(encoding="utf-8")
    project = tomllib.loads((Path(DOCS).parent / "pyproject.toml").read_text("utf-8"))["project"]
    (extras,) = re.findall(r"asyncgrad\[([\w,]+)\]", page)
    assert set(extras.split(",")) <= project["optional-dependencies"].keys()


def test_figures_of_threads_are_those_of_the_benchmarks():
    page = (DOCS / "how-to/why-not-to-thread.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [^|]+ \| ([\d.]+)[^|]* \| ([\d.]+)[^|]* \|$", page, re.MULTILINE)
    measured = set(re.findall(r"[\d.]+", (DOCS / "benchmarks.md").read_text(encoding="utf-8")))
    assert len(rows) == 5
    assert {figure for row in rows for figure in row} <= measured


def test_every_error_of_the_package_is_on_the_page_of_errors():
    """Or a class that it derives from, which is what one catches."""
    page = (DOCS / "how-to/errors.md").read_text(encoding="utf-8")
    errors = [
        value
        for value in vars(ag.errors).values()
        if isinstance(value, type) and issubclass(value, Exception)
    ]
    for error in errors:
        assert error.__name__ in page, error
