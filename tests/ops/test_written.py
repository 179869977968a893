"""Kernels that are written from formulas: what they compute, and in which arrays."""

import linecache
import re

import numpy as np
import pytest

import asyncgrad
from asyncgrad.devices import CPU
from asyncgrad.nn import functional as F
from asyncgrad.ops.written import Formula, kernel, written


def logistic(F, x):
    return 1 / (F.exp(-x) + 1)


def swish(F, x):
    return x * logistic(F, x)


def slope(F, x):
    s = logistic(F, x)
    return (1 + x * (1 - s)) * s


def text(formula, *names, helpers=None):
    F = Formula(helpers or {})
    made = formula(F, *[F.given(name, True) for name in names])
    return F.text("def kernel():", names, {"made": made}).split("\n    ")[1:-1]


def test_a_kernel_computes_in_one_array_where_one_is_enough():
    assert text(logistic, "x") == [
        "made = xp.negative(x, out)",
        "xp.exp(made, made)",
        "xp.add(made, 1, made)",
        "inverted(xp, made)",
    ]


def test_what_occurs_twice_is_computed_once():
    lines = text(lambda F, x: logistic(F, x) * (1 - logistic(F, x)), "x")
    assert len([line for line in lines if "exp" in line]) == 1


def test_what_is_read_again_is_not_written_over():
    lines = text(lambda F, x: (F.exp(x) + 1) * (F.exp(x) + 2), "x")
    assert len(set(re.findall(r"\bt\d", "".join(lines)))) == 1
    assert not any(line.endswith(", x)") for line in lines)


def test_what_is_not_needed_is_left_out():
    def formula(F, x):
        F.sqrt(x)
        return -x

    assert text(formula, "x") == ["made = xp.negative(x, out)"]


@pytest.mark.parametrize("given", [True, False])
def test_arrays_get_what_the_formula_says(given):
    x = np.random.default_rng(0).standard_normal(50)
    kept, out = x.copy(), np.empty(50)
    made = written("swish", swish)(np, out if given else None, x)
    np.testing.assert_allclose(made, x / (np.exp(-x) + 1), rtol=1e-14)
    np.testing.assert_array_equal(x, kept)
    assert (made is out) == given


def test_a_kernel_may_leave_a_second_result_in_its_first_array():
    x = np.random.default_rng(0).standard_normal(50)
    wanted = written("slope", slope)(np, None, x)
    result = written("swish", swish)(np, None, x)
    np.testing.assert_array_equal(written("both", swish, slope)(np, None, x), result)
    np.testing.assert_array_equal(x, wanted)


def test_helpers_are_formulas_or_functions_of_arrays():
    def twice(xp, out, x):
        return xp.add(x, x, out)

    helpers = {"twice": twice, "logistic": logistic}
    run = written("both", lambda F, x: F.twice(F.logistic(x)), helpers=helpers)
    np.testing.assert_allclose(run(np, None, np.zeros(3)), np.ones(3))


def test_numbers_are_arguments_with_signs():
    def bound(F, x, limit):
        return F.maximum(F.minimum(x, limit), -limit)

    found = written("bound", bound)(np, None, np.array([-3.0, 0.5, 3.0]), 2.0)
    np.testing.assert_array_equal(found, [-2, 0.5, 2])


def test_each_choice_of_a_formula_has_its_own_mask():
    def steps(F, x):
        once = F.where(x < 0, x * 2, x)
        return F.where(x > 1, once * 3, F.where(x < 0, once * 5, once))

    x = np.array([-1.0, 0.5, 2.0])
    np.testing.assert_array_equal(written("steps", steps)(np, None, x), [-10, 0.5, 6])


def test_equal_numbers_of_other_signs_are_others():
    lines = text(lambda F, x: (x + 0.0) * (x + -0.0), "x")
    assert sorted(re.findall(r"add\(x, (.*?),", "".join(lines))) == ["-0.0", "0.0"]


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("other", ["x", "2.0"])
def test_a_choice_is_written_where_the_result_goes(given, other):
    x = np.array([-1.0, 0.5])
    out = np.empty(2) if given else None
    kernel = written("choice", lambda F, x: F.where(x < 0, 1.0, x if other == "x" else 2.0))
    made = kernel(np, out, x)
    np.testing.assert_array_equal(made, [1, 0.5 if other == "x" else 2])
    assert (made is out) == given


def test_a_choice_is_written_over_any_of_its_parts():
    def one(F, x, y):
        return x * y

    for choice in (lambda F, x, y: F.where(x < 0, x, y), lambda F, x, y: F.where(x < 0, y, x)):
        x, y = np.array([-1.0, 2.0]), np.array([3.0, 4.0])
        wanted = written("choice", choice, arrays=2)(np, None, x, y)
        written("both", one, choice, arrays=2)(np, None, x, y)
        np.testing.assert_array_equal(x, wanted)


def test_an_argument_that_is_read_again_gets_its_result_last():
    def whole(F, x):
        return F.sqrt(F.exp(x)) * x

    x = np.random.default_rng(0).standard_normal(50)
    wanted = np.sqrt(np.exp(x)) * x, np.exp(x)
    made = written("both", whole, lambda F, x: F.exp(x))(np, None, x)
    np.testing.assert_allclose([made, x], wanted, rtol=1e-14)


def test_tracebacks_show_the_text_of_a_kernel_of_a_loss():
    """Kernels of several losses have one name each: tracebacks find a text by it."""
    for name in ("squared_loss", "absolute_loss"):
        x = asyncgrad.ones(3, requires_grad=True)
        loss = {"squared_loss": F.mse_loss, "absolute_loss": F.l1_loss}[name]
        loss(x, x.detach(), reduction="none").sum().backward()
        text = "".join(linecache.getlines(f"<asyncgrad kernel {name}_each_by_x>"))
        assert text.startswith(f"def {name}_each_by_x(")


def test_errors_name_the_kernel():
    run = written("swish", swish)
    run(np, None, np.zeros(1))
    assert run.__name__ == run.__code__.co_name == "swish"
    assert run.__code__.co_filename == "<asyncgrad kernel swish>"

    with pytest.raises(TypeError):
        run(np, None, "text")


def test_large_arrays_are_gone_through_in_blocks():
    x = np.random.default_rng(0).standard_normal(400_000)
    np.testing.assert_array_equal(
        kernel("swish", swish)(CPU.xp, x), written("w", swish)(np, None, x)
    )
