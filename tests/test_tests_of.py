"""The map from modules to the tests that concern them."""

import importlib.util
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
_SPEC = importlib.util.spec_from_file_location("tests_of", ROOT / "tools/tests_of.py")
tests_of = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(tests_of)

PACKAGE = ROOT / "asyncgrad"
MODULES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))


def test_each_module_has_tests_that_there_are():
    for module in MODULES:
        found = tests_of.tests_of(module)
        assert [name for name in found if not (ROOT / name).exists()] == [], module
        assert len(found) == len(set(found)), module


def test_a_row_is_of_modules_that_there_are():
    """Rows of what was renamed would go unnoticed."""
    unused = [row for row in tests_of.ROWS if not any(fnmatch(name, row) for name in MODULES)]
    assert unused == []


def test_each_test_concerns_a_module_or_the_project():
    """A new file of tests is found from the module it is about."""
    reached = {ROOT / name for module in MODULES for name in tests_of.tests_of(module)}
    reached |= {ROOT / "tests" / name for name in tests_of.OF_THE_PROJECT}
    files = (ROOT / "tests").rglob("test_*.py")
    lost = [path for path in files if not reached.intersection({path, *path.parents})]
    assert lost == []


def test_the_nearest_come_first():
    assert tests_of.tests_of("core/modes.py")[0] == "tests/core/test_modes.py"
    assert tests_of.tests_of("nn/utils/prune.py")[0] == "tests/nn/test_prune.py"
    assert tests_of.tests_of("core/commit.py")[0] == "tests/scheduler/test_commits_in_turn.py"


def test_a_module_without_tests_is_refused():
    with pytest.raises(LookupError, match="add a row"):
        tests_of.tests_of("new_module.py")


def test_no_two_files_of_tests_have_one_name():
    """Pytest imports them by their names alone: it could not run both at once."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))
