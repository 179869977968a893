"""What users can name, and with which arguments: a change has to be meant."""

import asyncio
import importlib
import inspect
import runpy
from pathlib import Path

import pytest

import asyncgrad

ROOT = Path(__file__).parent.parent
public_names = runpy.run_path(str(ROOT / "tools/public_names.py"))


def test_every_public_name_and_its_arguments_are_as_recorded():
    recorded = public_names["FILE"].read_text(encoding="utf-8").splitlines()
    now = public_names["lines"]()
    new, lost = {*now} - {*recorded}, {*recorded} - {*now}
    assert now == recorded, f"run `make generated`, and tell users: {new=}, {lost=}"


def test_what_help_says_of_a_constructor_is_about_its_class():
    """A docstring of `__init__` is inherited: it would be shown for every class below."""
    kinds = set()
    for module in public_names["every_module"]():
        kinds |= {one for one in vars(module).values() if isinstance(one, type)}
    wrong = {
        (kind.__qualname__, base.__qualname__)
        for kind in kinds
        for base in kind.__mro__[1:]
        if base.__module__.startswith("asyncgrad")
        # A pass is its state and what runs it, which users never construct.
        and base.__name__ != "PassState"
        and "__init__" in vars(base)
        and vars(base)["__init__"].__doc__ not in {None, object.__init__.__doc__}
        and inspect.getdoc(kind.__init__) == inspect.getdoc(base.__init__)
    }
    assert len(kinds) > 300
    assert not wrong


INNER = ("shape", "index", "core", "elementwise", "reduction", "activation", "native", "records",
         "collector", "ops", "scheduler", "annotations", "Any", "TYPE_CHECKING")  # fmt: skip


@pytest.mark.parametrize(
    "name",
    ["", ".nn", ".nn.functional", ".nn.init", ".nn.utils", ".optim", ".optim.lr_scheduler",
     ".optim.swa_utils", ".func", ".autograd", ".autograd.graph", ".linalg", ".fft", ".special",
     ".random", ".utils", ".utils.data", ".testing", ".sync", ".devices", ".cuda", ".cpu", ".amp",
     ".errors", ".distributions", ".serving"],
)  # fmt: skip
def test_completion_offers_public_names_only(name):
    """`dir` of a package would list the modules that it is made of, and what they import."""
    module = importlib.import_module(f"asyncgrad{name}")
    offered = {*dir(module)}
    assert {*module.__all__} <= offered
    assert not offered.intersection(INNER) - {*module.__all__}
    assert all(hasattr(module, one) for one in offered - {"bfloat16"})


def test_completion_offers_what_users_call_of_engines_and_futures():
    """Both have more methods, which the parts of an engine call."""

    async def main():
        x = asyncgrad.ones(2, requires_grad=True)
        future = x.sum().backward()
        await future
        return dir(asyncgrad.engine()), dir(future)

    of_engine, of_future = asyncio.run(main())
    assert [name for name in of_engine if not name.startswith("_")] == [
        "limit", "loop", "statistics",
    ]  # fmt: skip
    assert {name for name in of_future if not name.startswith("_")} == {
        *(name for name in dir(asyncio.Future) if not name.startswith("_")), "committed",
    }  # fmt: skip
