"""What type checkers and editors tell users of the package."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from page_programs import blocks

import asyncgrad as ag

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
REFUSED = {
    number
    for number, line in enumerate((HERE / "mistakes.py").read_text().splitlines(), 1)
    if line.endswith("# refused")
}


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """The programs, that of the page on types among them, away from this project's settings."""
    folder = tmp_path_factory.mktemp("typed")
    for name in ("typing/program.py", "typing/mistakes.py", "newcomer/typed.py"):
        shutil.copy(ROOT / "tests" / name, folder)
    page = "\n".join(code for kind, code in blocks("how-to/types.md") if kind == "python")
    (folder / "page.py").write_text(page, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def found_by_mypy(sources, tmp_path_factory):
    """The lines that mypy refuses."""
    api = pytest.importorskip("mypy.api", reason="mypy is not installed")
    before, os.environ["MYPYPATH"] = os.environ.get("MYPYPATH"), str(ROOT)
    cache = tmp_path_factory.mktemp("mypy")
    options = ["--strict", "--config-file=", "--follow-imports=silent", f"--cache-dir={cache}"]
    try:
        text, errors, _ = api.run([*options, *map(str, sorted(sources.glob("*.py")))])
    finally:
        if before is None:
            del os.environ["MYPYPATH"]
        else:
            os.environ["MYPYPATH"] = before
    assert not errors
    lines = re.findall(r"(\w+)\.py:(\d+): error: (.*)", text)
    return [(name, int(number), said) for name, number, said in lines]


@pytest.fixture(scope="module")
def found_by_pyright(sources):
    """The same of pyright, in strict mode."""
    pyright = shutil.which("pyright", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if pyright is None:
        pytest.skip("pyright is not installed")
    settings = {"include": ["*.py"], "typeCheckingMode": "strict", "extraPaths": [str(ROOT)]}
    (sources / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [pyright, "--outputjson", "--pythonpath", sys.executable, "-p", str(sources)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        report = json.loads(done.stdout)
    except ValueError:
        pytest.skip(f"pyright can't start: {done.stderr[-200:]}")
    return [
        (Path(one["file"]).stem, one["range"]["start"]["line"] + 1, one["message"])
        for one in report["generalDiagnostics"]
        if one["severity"] == "error"
    ]


@pytest.mark.parametrize("checker", ["found_by_mypy", "found_by_pyright"])
def test_users_programs_are_accepted(checker, request):
    """Strict ones: with modules, a Function, loops, a service, hooks, and transforms."""
    found = request.getfixturevalue(checker)
    assert [one for one in found if one[0] != "mistakes"] == []


@pytest.mark.parametrize("checker", ["found_by_mypy", "found_by_pyright"])
def test_each_mistake_is_refused(checker, request):
    """On its own line, and no other line is."""
    found = request.getfixturevalue(checker)
    assert {number for name, number, _ in found if name == "mistakes"} == REFUSED
    assert len(REFUSED) > 20


def _completed(text):
    """What an editor offers after a line, by what it reads in the files, without running them."""
    jedi = pytest.importorskip("jedi", reason="jedi is not installed")
    program = f"import asyncgrad as ag\nx = ag.Tensor()\n{text}"
    script = jedi.Script(program, project=jedi.Project(str(ROOT)))
    return {one.name: one for one in script.complete()}


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        ("x.su", "sum", "The sum over some axes."),
        ("x.add", "add_", "`add`, in place."),
        ("ag.tan", "tanh", "The hyperbolic tangent of each element."),
        ("ag.nn.functional.rel", "relu", "The positive part"),
        ("ag.special.zet", "zeta", "zeta"),
    ],
)
def test_editors_complete_names_with_docstrings(text, name, said):
    offered = _completed(text)
    assert name in offered
    assert said in offered[name].docstring()


def test_editors_offer_of_an_engine_what_users_call():
    offered = {name for name in _completed("ag.engine().") if not name.startswith("_")}
    assert offered == {"limit", "loop", "statistics"}


def test_consoles_and_notebooks_offer_public_names_alone():
    """They ask the running package; a reader of files alone offers the folders' names as well."""
    jedi = pytest.importorskip("jedi", reason="jedi is not installed")
    completed = jedi.Interpreter("ag.", [{"ag": ag}]).complete()
    offered = {one.name for one in completed if not one.name.startswith("_")}
    assert offered == {name for name in dir(ag) if not name.startswith("_")}
