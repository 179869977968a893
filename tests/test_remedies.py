"""Names that PyTorch has and asyncgrad has not: their errors say what to use instead."""

import functools
import re
import types
from pathlib import Path

import pytest

import asyncgrad as ag
from asyncgrad.remedies import OF_TOP

PAGE = (Path(__file__).parent.parent / "docs" / "pytorch.md").read_text(encoding="utf-8")
UNSUPPORTED = PAGE[PAGE.index("Unsupported are:") : PAGE.index("The error of a name")]
#: What the page lists as unsupported.
ABSENT = set(re.findall(r"`(?!torch|asyncgrad)([\w.]+)`", UNSUPPORTED))
#: The names for which there is a remedy.
KNOWN = set(" ".join(OF_TOP.values()).split())


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("jit", "asyncgrad.compile"),
        ("sparse_coo_tensor", "keep tensors dense"),
        ("spmm", "keep tensors dense"),
        ("range", "use `arange`"),
    ],
)
def test_an_absent_name_is_an_attribute_error_with_a_remedy(name, remedy):
    """Programs ask by `hasattr` and by `getattr` with a default, too."""
    with pytest.raises(AttributeError, match=f"^asyncgrad has no '{name}', as PyTorch .*{remedy}"):
        getattr(ag, name)
    assert not hasattr(ag, name)
    assert getattr(ag, name, None) is None


def test_a_name_that_pytorch_lacks_too_has_no_remedy():
    with pytest.raises(AttributeError, match=r"^asyncgrad has no 'nothing'$"):
        _ = ag.nothing


@pytest.mark.parametrize(
    ("space", "name", "remedy"),
    [
        (ag.testing, "assert_allclose", "use assert_close"),
        (ag.nn.parallel, "data_parallel", r"`nn\.DataParallel"),
    ],
)
def test_modules_have_remedies_of_their_own(space, name, remedy):
    with pytest.raises(AttributeError, match=f"no '{name}', as PyTorch has: {remedy}"):
        getattr(space, name)


@pytest.mark.torch
def test_the_remedies_are_for_what_pytorch_has_and_asyncgrad_has_not():
    """A remedy of a name that has come since, or was misspelt, would never be read."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    pytorchs = {*dir(torch), "spmm", "compiler", "package", "onnx", "export"}
    assert pytorchs >= KNOWN
    assert not KNOWN & {*dir(ag), *ag.__all__}


@pytest.mark.torch
def test_packages_with_a_remedy_are_those_that_the_page_lists():
    """Both say what is unsupported; what the page names of the top namespace has a remedy."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    def packages(names):
        found = {name: getattr(torch, name, None) for name in names}
        return {name for name, one in found.items() if isinstance(one, types.ModuleType)}

    assert packages(KNOWN) == packages(ABSENT)


@pytest.mark.parametrize("name", sorted(ABSENT))
def test_what_the_page_calls_unsupported_is_not_here(name):
    *path, last = name.split(".")
    assert not hasattr(functools.reduce(getattr, path, ag), last)
