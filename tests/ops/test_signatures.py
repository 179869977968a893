"""Every form of a call that PyTorch documents is one here.

PyTorch's stubs list the overloads of each function and method: names, order, what is passed by
name. All promised functions are held against all of them, by binding arguments.
"""

import ast
import functools
import inspect
from pathlib import Path

import pytest
from promised import MUST

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = pytest.mark.torch

#: Overloads that are left out, by what marks them.
_OLD_FORMS = {"out_dtype", "names", "mode"}
#: Python's own names win over those of the stubs: what PyTorch runs has other ones.
_STUBS_DIFFER = {"__getitem__", "__setitem__", "tensor"}
#: Names that are put under others before the function is called.
_OTHER_NAMES = {"split_size": "split_size_or_sections"}


@functools.cache
def _overloads(stub, inside=None):
    """The function definitions of a stub, or of a class in it, by name."""
    body = ast.parse((Path(torch.__file__).parent / "_C" / stub).read_text()).body
    if inside is not None:
        body = next(n for n in body if isinstance(n, ast.ClassDef) and n.name == inside).body
    found = {}
    for node in body:
        if isinstance(node, ast.FunctionDef):
            found.setdefault(node.name, []).append(node.args)
    return found


def _calls(arguments, method):
    """Ways to call an overload: each as the number of positional arguments and those by name."""
    positional = [a.arg for a in [*arguments.posonlyargs, *arguments.args]][int(method) :]
    required = len(positional) - len(arguments.defaults)
    needed = [
        a.arg
        for a, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if default is None
    ]
    if arguments.vararg is not None:
        yield 3, needed
        return
    yield len(positional), needed
    yield 0, [_OTHER_NAMES.get(name, name) for name in (*positional, *needed)]
    for argument in arguments.kwonlyargs:
        yield required, {*needed, argument.arg} - ({"out"} if method else set())


def _forms():
    functions = _overloads("_VariableFunctions.pyi")
    methods = _overloads("__init__.pyi", "TensorBase")
    for name in dict.fromkeys(n.rpartition(".")[2] for names in MUST.values() for n in names):
        for kind, owner, known in (("", ag, functions), ("Tensor.", ag.Tensor, methods)):
            for form in (name, f"{name}_"):
                # In `nn.functional` names have their own meanings.
                functional = f"nn.functional.{name}" in _functional()
                promised = kind or (form == name and not functional)
                if form in known and form not in _STUBS_DIFFER and promised:
                    yield pytest.param(owner, form, known[form], bool(kind), id=kind + form)


@functools.cache
def _functional():
    return {n for names in MUST.values() for n in names if n.startswith("nn.functional.")}


@pytest.mark.parametrize(("owner", "name", "overloads", "method"), list(_forms()))
def test_arguments_are_pytorchs(owner, name, overloads, method):
    function = getattr(owner, name)
    if isinstance(function, property) or not callable(function):
        return
    signature = inspect.signature(function)
    count = 0
    for arguments in overloads:
        names = [a.arg for a in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]]
        if set(names) & _OLD_FORMS or (not method and "self" in names):
            continue
        for positional, by_name in _calls(arguments, method):
            if name == "linspace" and "steps" not in by_name and positional < 3:
                continue  # Whatever its stub says, PyTorch refuses it.
            count += 1
            try:
                signature.bind(*[0] * (positional + method), **dict.fromkeys(by_name))
            except TypeError as error:
                pytest.fail(f"{name}: {positional} arguments and {sorted(by_name)}: {error}")
    assert count or name == "requires_grad_"


#: The functions of `nn.functional` that are written in C++ have no signature.
@pytest.mark.parametrize("name", sorted(_functional()))
def test_arguments_of_functional_are_pytorchs(name):
    name = name.rpartition(".")[2]
    try:
        expected = inspect.signature(getattr(torch.nn.functional, name)).parameters
    except ValueError:
        return
    found = inspect.signature(getattr(ag.nn.functional, name)).parameters
    theirs = {k: p.default for k, p in expected.items() if p.kind != p.VAR_KEYWORD}
    if "args" in theirs:
        return
    own = {"generator"} if name == "dropout" else set()
    assert {k: p.default for k, p in found.items() if k not in own} == theirs
