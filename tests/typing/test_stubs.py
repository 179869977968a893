"""The stubs say what the package does at run time."""

import ast
import inspect
from pathlib import Path

import pytest

import asyncgrad
from tools import make_stubs

ROOT = Path(asyncgrad.__file__).parent


def _stubbed(node, home):
    """The functions of a module or class of a stub, and what they stand for."""
    for one in node.body:
        if isinstance(one, ast.FunctionDef):
            yield one, getattr(home, one.name)


def _forms():
    (methods,) = [
        node
        for node in ast.parse((ROOT / "_methods.pyi").read_text()).body
        if isinstance(node, ast.ClassDef)
    ]
    yield from _stubbed(methods, asyncgrad.Tensor)
    for name in make_stubs.MODULES:
        path = make_stubs.path_of(name)
        module = __import__(name, fromlist=["__all__"])
        yield from _stubbed(ast.parse(path.read_text()), module)


def test_stubs_are_current():
    old = [path for path, text in make_stubs.files().items() if path.read_text("utf-8") != text]
    assert not old, f"out of date: run `make generated`: {old}"


def test_stubs_agree_with_signatures():
    """So that `help()`, `inspect.signature` and a type checker say the same."""
    seen = 0
    for form, function in _forms():
        known = inspect.signature(function).parameters
        arguments = form.args
        names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        names += [a.arg for a in (arguments.vararg, arguments.kwarg) if a is not None]
        overloaded = any(ast.unparse(one) == "overload" for one in form.decorator_list)
        # An overload may spell out what `**kwargs` takes.
        assert {*names} - {"self"} <= {*known} or (overloaded and "kwargs" in known), form.name
        if not overloaded:
            tensor = [*known][:1] if names[:1] == ["self"] else []
            assert {*names} - {"self"} == {*known} - {*tensor}, form.name
        seen += 1
    assert seen > 1000


@pytest.mark.parametrize("name", make_stubs.MODULES)
def test_stubs_name_all_that_is_public(name):
    """No name is left to `__getattr__`, which would accept every name."""
    module = __import__(name, fromlist=["__all__"])
    names = set()
    for node in ast.parse(make_stubs.path_of(name).read_text()).body:
        if isinstance(node, ast.ImportFrom):
            names |= {alias.asname for alias in node.names}
        elif isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign):
            names.add(node.target.id)
    lost = {*module.__all__} - names
    assert not lost, f"the stubs lack {lost}: run `make generated`"
    assert "__getattr__" not in names


def test_every_function_and_method_is_annotated():
    """At run time, too."""
    bare = []
    for form, function in _forms():
        signature = inspect.signature(function)
        parameters = [*signature.parameters.values()]
        missing = [p.name for p in parameters[1:] if p.annotation is p.empty]
        if missing or signature.return_annotation is signature.empty:
            bare.append((form.name, str(signature)))
    assert bare == []
