"""The files for the repository's host: they are valid, and name what there is."""

import re
import tomllib

import pytest
from page_programs import DOCS

yaml = pytest.importorskip("yaml", reason="PyYAML, which the tests' own packages bring, is absent")

ROOT = DOCS.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def commands(workflow):
    """What the steps of a workflow run."""
    for job in workflow["jobs"].values():
        for step in job["steps"]:
            if "run" in step:
                yield step["run"]


def test_there_is_a_workflow_for_tests_docs_and_releases():
    assert [path.stem for path in WORKFLOWS] == ["docs", "release", "test"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_targets_and_extras_that_there_are(path):
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
    ran = "\n".join(commands(workflow))
    assert set(re.findall(r"\bmake ([a-z-]+)", ran)) <= targets
    for extras in re.findall(r"\.\[([\w,]+)\]", ran):
        assert set(extras.split(",")) <= PROJECT["optional-dependencies"].keys()
    # Every job says what it may do, and may do no more than it says.
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert set(job.get("needs", "").split()) <= workflow["jobs"].keys()


def test_what_is_published_has_passed_the_tests():
    release = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))
    (tests,) = [place for place, run in enumerate(commands(release)) if "make test" in run]
    (build,) = [place for place, run in enumerate(commands(release)) if "-m build" in run]
    assert tests < build
    assert release["jobs"]["publish"]["needs"] == "build"


def test_the_workflow_of_the_tests_has_every_python_that_is_declared():
    workflow = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text(encoding="utf-8"))
    declared = {
        line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)
    }
    assert declared <= set(workflow["jobs"]["test"]["strategy"]["matrix"]["python"])


def test_forms_and_the_citation_are_valid():
    for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"):
        form = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert path.stem == "config" or {"name", "description", "body"} <= form.keys()
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["license"] == PROJECT["license"]
    assert citation["repository-code"] == PROJECT["urls"]["Source"]
