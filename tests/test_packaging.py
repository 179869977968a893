"""What is shipped: the wheel, the source distribution, and what importing the package brings in."""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from email.message import Message

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def build(kind: str, source: Path, into: Path) -> Path:
    """Build a distribution with the interpreter's own hatchling: needs no network."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(into)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (built,) = into.iterdir()
    return built


def run_python(code: str, *, cwd: Path, path: Path) -> str:
    """Run `code` in a fresh interpreter that finds packages in `path` first."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def files_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def unpacked_sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sdist = build("sdist", ROOT, tmp_path_factory.mktemp("sdist"))
    into = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        # Pythons before 3.11.4 know no filters.
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        archive.extractall(into)
    (root,) = into.iterdir()
    return root


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    (name,) = (name for name in files_in(wheel) if name.endswith(".dist-info/METADATA"))
    with zipfile.ZipFile(wheel) as archive:
        return email.message_from_bytes(archive.read(name))


def test_wheel_holds_the_package_its_licence_and_nothing_else(wheel: Path) -> None:
    """Top-level `tests` or `examples` in site-packages would clash with other projects'."""
    names = files_in(wheel)
    version = wheel.name.split("-")[1]
    kinds = {".py", ".pyi"}
    files = [path for path in (ROOT / "asyncgrad").rglob("*") if path.suffix in kinds]
    sources = {str(path.relative_to(ROOT)) for path in files}
    outside = {name for name in names if not name.startswith(f"asyncgrad-{version}.dist-info/")}
    assert outside == sources | {"asyncgrad/py.typed"}
    assert f"asyncgrad-{version}.dist-info/licenses/LICENSE" in names


def test_wheel_is_importable_by_itself_and_says_its_version(wheel: Path, tmp_path: Path) -> None:
    """A file that only the tree has would go unnoticed in an editable installation."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    code = "import asyncgrad; print(asyncgrad.__file__, asyncgrad.__version__, sep='\\n')"
    found, version = run_python(code, cwd=tmp_path, path=tmp_path / "site").splitlines()
    assert Path(found) == tmp_path / "site" / "asyncgrad" / "__init__.py"
    assert version == wheel.name.split("-")[1]


def test_a_package_that_is_not_installed_has_no_known_version(tmp_path: Path) -> None:
    code = f"""if True:
        import sys
        sys.path.insert(0, {str(ROOT)!r})
        import asyncgrad, importlib.metadata as metadata
        def none(name):
            raise metadata.PackageNotFoundError(name)
        metadata.version = none
        print(asyncgrad.__version__)
        """
    assert run_python(code, cwd=tmp_path, path=ROOT) == "0+unknown"


#: What to do to a copy of the project, and the version that is then built.
HISTORIES = {
    "no git": ([], r"0\.1\.0\.dev0"),
    "no tag": (["init", "add", "commit"], r"0\.1\.0\.dev1"),
    "a tag": (["init", "add", "commit", "tag v1.2.3"], r"1\.2\.3"),
    "commits since": (["init", "add", "commit", "tag v1.2.3", "commit"], r"1\.2\.4\.dev1"),
}


@pytest.mark.parametrize("history", HISTORIES)
def test_the_version_is_that_of_the_tag(history: str, tmp_path: Path) -> None:
    """Archives and clones without tags are built, too."""
    pytest.importorskip("hatch_vcs")
    steps, expected = HISTORIES[history]
    if steps and shutil.which("git") is None:
        pytest.skip("git is not installed")
    project = tmp_path / "project"
    project.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, project)
    (project / "asyncgrad").mkdir()
    (project / "asyncgrad" / "__init__.py").touch()
    more = {"add": ["."], "commit": ["-q", "--allow-empty", "-m", "-"], "init": ["-q"]}
    for step in steps:
        name, *arguments = step.split()
        identity = ["-c", "user.name=-", "-c", "user.email=-", "-c", "commit.gpgsign=false"]
        command = ["git", *identity, name, *arguments, *more.get(name, [])]
        subprocess.run(command, cwd=project, check=True)
    sdist = build("sdist", project, tmp_path / "built")
    assert re.fullmatch(rf"asyncgrad-{expected}\.tar\.gz", sdist.name)


def test_sdist_builds_the_same_wheel_as_the_tree(
    wheel: Path, unpacked_sdist: Path, tmp_path: Path
) -> None:
    """Packagers start from the source distribution."""
    assert files_in(build("wheel", unpacked_sdist, tmp_path)) == files_in(wheel)


def test_sdist_holds_what_is_needed_to_test_it(unpacked_sdist: Path) -> None:
    """Its receiver can run `make test`, like the owner of a clone."""
    tests = {path.relative_to(ROOT) for path in (ROOT / "tests").rglob("*.py")}
    tools = {
        path.relative_to(ROOT)
        for path in (ROOT / "tools").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    needed = tests | tools | {Path("Makefile"), Path("LICENSE"), Path("README.md")}
    assert {path for path in needed if not (unpacked_sdist / path).is_file()} == set()


def test_metadata_asks_for_three_packages_and_caps_no_python(metadata: Message) -> None:
    """An upper cap on Python would shut out a release before anyone tried it."""
    required = [
        line for line in metadata.get_all("Requires-Dist", []) if not re.search(r"extra ==", line)
    ]
    names = {re.split(r"[<>=! ]", line, maxsplit=1)[0] for line in required}
    assert names == {"numpy", "anyio", "threadpoolctl"}
    assert metadata["Requires-Python"] == ">=3.11"


def test_links_and_pictures_of_the_page_on_an_index_are_absolute(metadata: Message) -> None:
    """An index has no files beside its page; the files that it names are in the repository."""
    page = metadata.get_payload()
    targets = re.findall(r"\]\(([^)]+)\)", page)
    assert len(targets) > 10
    host = PROJECT["urls"]["Source"]
    raw = host.replace("github.com", "raw.githubusercontent.com") + "/main/"
    for target in targets:
        path = target.removeprefix(f"{host}/blob/main/").removeprefix(raw)
        assert path != target, target
        assert (ROOT / path).exists(), target
    assert f"]({raw}docs/img/event_loop.svg)" in page


def test_the_metadata_has_the_addresses(metadata: Message) -> None:
    named = dict(line.split(", ") for line in metadata.get_all("Project-URL", []))
    assert named == PROJECT["urls"]


def test_every_dependency_has_its_reason() -> None:
    page = (ROOT / "docs/dependencies.md").read_text(encoding="utf-8")
    rows = " ".join(line for line in page.splitlines() if line.startswith("|"))
    required = PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()
    names = {re.match(r"[\w-]+", line)[0] for lines in required for line in lines} - {"asyncgrad"}
    assert {name for name in names if not re.search(rf"\b{name}\b", rows)} == set()


def test_floors_that_are_tested_are_the_floors_that_are_declared() -> None:
    """`make test-floors` installs from tools/floors.txt."""
    lines = (ROOT / "tools" / "floors.txt").read_text().splitlines()
    pinned = {tuple(line.split("==")) for line in lines if not line.startswith("#")}
    declared = {tuple(line.split(">=")) for line in PROJECT["dependencies"]}
    padded = {(name, f"{floor}.0" if floor.count(".") == 1 else floor) for name, floor in declared}
    assert pinned == padded


def test_import_brings_in_no_optional_package(tmp_path: Path) -> None:
    """What an extra installs is imported where it is asked for, and not before.

    SciPy is the exception: its functions are the table's, and loading it later would mean to read
    files on somebody's event loop.
    """
    code = "import sys, asyncgrad; print(*{name.partition('.')[0] for name in sys.modules})"
    top_level = set(run_python(code, cwd=tmp_path, path=ROOT).split())
    optional = {"cupy", "hypothesis", "matplotlib", "pytest", "rich", "torch", "uvloop"}
    assert "asyncgrad" in top_level
    assert top_level & optional == set()


@pytest.mark.parametrize(("before", "wanted"), [("gc.enable()", "True"), ("gc.disable()", "False")])
@pytest.mark.parametrize("broken", [False, True])
def test_import_leaves_the_collector_as_it_was(
    before: str, wanted: str, broken: bool, tmp_path: Path
) -> None:
    """Also where it fails."""
    code = f"""if True:
        import contextlib, gc, sys
        {before}
        if {broken}:
            sys.modules["numpy"] = None
        with contextlib.suppress(ImportError):
            import asyncgrad
        print(gc.isenabled(), "asyncgrad.tensor" not in sys.modules)
        """
    assert run_python(code, cwd=tmp_path, path=ROOT) == f"{wanted} {broken}"


@pytest.mark.slow
def test_an_environment_that_was_cut_short_is_made_again(tmp_path: Path) -> None:
    """Whoever interrupts `make test` while it sets up can call it again."""
    there = tmp_path / "a folder with a space" / "venv"
    mark = there / "mark"
    venv.create(there, with_pip=False)
    for made_before in (False, True):
        mark.touch()
        subprocess.run(["sh", "tools/make_venv.sh", there, sys.executable], check=True, cwd=ROOT)
        subprocess.run([there / "bin" / "python", "-c", "import pip"], check=True)
        assert mark.exists() is made_before
