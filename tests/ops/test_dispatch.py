"""The functions through which ops are called: their text is generated from the rows."""

import builtins
import dis
import linecache
import subprocess
import sys
import time
import traceback
import warnings
from functools import partial
from types import FunctionType

import numpy as np
import pytest

import asyncgrad as ag
from asyncgrad.ops import dispatch, generated
from asyncgrad.ops.namespace import RECORDED
from asyncgrad.ops.registry import OPS

FORMS = ("tensors", "operands", "operator", "reflected")


def functions(op):
    """All forms of an op's dispatch function, compiled."""
    count = dispatch.source(op.name).count("\ndef ") + dispatch.source(op.name).startswith("def ")
    for form in FORMS[:count]:
        made = dispatch._made(op, form)
        yield made.__globals__["finished"]()


@pytest.mark.parametrize("name", OPS)
def test_every_name_in_the_text_stands_for_something(name):
    """Some lines run only after a warning or an error."""
    for function in functions(OPS[name]):
        known = {*function.__globals__, *vars(builtins)}
        code = function.__code__
        loaded = {i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL"}
        assert loaded <= known
        assert "".join(linecache.getlines(code.co_filename)) in dispatch.source(name)


def test_a_function_is_compiled_when_it_is_first_called():
    op = OPS["lgamma"]
    function = dispatch.dispatch_of(op)
    assert isinstance(function, FunctionType)
    before = function.__code__
    with pytest.raises(TypeError, match=r"lgamma\(\) takes 1"):
        function(1, 2)
    function(ag.tensor([1.0]))
    assert function.__code__ is not before
    assert function.__code__.co_varnames[:1] == before.co_varnames[:1] == ("input",)


def test_a_traceback_shows_the_text():
    with pytest.raises(ValueError, match="reshape") as caught:
        RECORDED.reshape(ag.ones(3), (5,))
    shown = "".join(traceback.format_exception(caught.value))
    assert 'array = known.kernels["reshape"](input._array' in shown


@pytest.mark.parametrize("name", [op.name for op in OPS.values() if op.doc])
@pytest.mark.parametrize("operand", [[1.0], "1", None, np.ones(2)])
def test_functions_of_rows_refuse_what_is_no_tensor(name, operand):
    op = OPS[name]
    operands = (operand,) if len(op.inputs) == 1 else (operand, ag.ones(2))
    for call in ag.no_grad(), ag.enable_grad():
        with call, pytest.raises(TypeError, match=rf"{name}\(\): argument 1 must be Tensor"):
            getattr(RECORDED, name)(*operands)


def test_nothing_is_compiled_at_import():
    program = """
import linecache
import asyncgrad
from asyncgrad.ops.registry import OPS
shown = [file for file in linecache.cache if file.startswith("<asyncgrad") and " of " in file]
assert len(OPS) > 250 and not shown, shown
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_an_import_compiles_little_and_leaves_out_what_only_files_need():
    """Both took a twelfth of it."""
    program = """
import builtins, numpy, sys, threadpoolctl
of_others = {*sys.modules}
compiled, compile = [], builtins.compile
builtins.compile = lambda source, file, *more, **options: (
    compiled.append(file) if str(file).startswith("<") else None,
    compile(source, file, *more, **options),
)[1]
import asyncgrad
compiled = [file for file in compiled if "forward of" in file or "asyncgrad" in file]
assert len(compiled) < 20, compiled
unwanted = {"html", "json", "pathlib", "tempfile", "zipfile"} & {*sys.modules} - of_others
assert not unwanted, unwanted
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_function_from_text_may_call_c_code_that_imports():
    """It imports with the function that it finds among the globals of its caller."""
    code = generated.shared_code("def replayed(call):\n    return call()\n")
    read = partial(time.strptime, "2020", "%Y")
    assert generated.function_of(code, [read])().tm_year == 2020


def test_a_warning_of_numpys_can_be_shown():
    """Where filters ask for it: Python 3.13 looks for its names in the globals of the caller."""
    infinite = ag.tensor([float("inf")])
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        assert (infinite - infinite).isnan().all()
        assert (infinite * 0).isnan().all()
    assert {str(one.message) for one in shown} <= {
        "invalid value encountered in subtract", "invalid value encountered in multiply",
    }  # fmt: skip
