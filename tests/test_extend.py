"""Functions that users add to the table, and the page that says how."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

import asyncgrad as ag
from asyncgrad import extend
from asyncgrad.autograd import forward_ad
from asyncgrad.ops import registry
from asyncgrad.ops.namespace import RECORDED

PAGE = (Path(__file__).parent.parent / "docs" / "extend.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


pytestmark = pytest.mark.usefixtures("table_as_it_was")


def test_the_page_runs_as_it_stands():
    """Every test that it shows, too."""
    scope = {}
    for block in BLOCKS:
        exec(block, scope)
    tests = [value for name, value in scope.items() if name.startswith("test_")]
    assert len(tests) == len(BLOCKS)
    for test in tests:
        test()


def test_the_first_example_is_ten_lines_with_its_test():
    code = BLOCKS[0].split("\n\n", 1)[1]
    assert len([line for line in code.splitlines() if line]) <= 10


def cube(**more):
    return extend.unary("cube", lambda F, x: 3 * x * x, lambda xp, x: x * x * x, **more)


def test_a_function_takes_integers_numbers_of_the_usual_kind_and_no_others():
    f = extend.register(cube())
    assert f(ag.tensor([2])).dtype == ag.float32
    assert f(ag.tensor(2.0, dtype=ag.float64)).dtype == ag.float64
    with pytest.raises(TypeError, match=r"cube.*must be Tensor"):
        f(np.ones(2))
    with pytest.raises(TypeError, match="cube"):
        f()
    assert f(x=ag.tensor([2.0])).tolist() == [8.0]
    assert f.__doc__
    assert f.__name__ == "cube"


def test_rules_of_other_entries_can_call_it():
    extend.register(cube())
    g = extend.register(
        extend.unary("quartic", lambda F, x: 4 * F.cube(x), lambda xp, x: xp.square(x * x))
    )
    x = ag.tensor([0.5, -1.5], dtype=ag.float64, requires_grad=True)
    assert ag.autograd.gradcheck(g, x, check_forward_ad=True)
    assert ag.autograd.gradgradcheck(g, x)


@pytest.mark.parametrize("entry", [
    lambda: extend.unary("exp", lambda F, out: out),
    lambda: extend.unary("chain", lambda F, out: out, "exp"),
    lambda: extend.unary("no name", lambda F, out: out, "exp"),
    lambda: extend.unary("cube", lambda F, z: z, "exp"),
    lambda: extend.operation("cube", lambda xp, x: x, "x", pulls={"x": lambda F, g, y: g}),
])  # fmt: skip
def test_what_cannot_be_registered_leaves_no_trace(entry):
    before = dict(registry.OPS)
    recorded = dict(vars(RECORDED))
    with pytest.raises(ValueError, match=r"table|asks for"):
        extend.register(entry())
    assert before == registry.OPS
    assert vars(RECORDED) == recorded


def test_an_operation_may_change_shape_and_dtype():
    total = extend.register(
        extend.operation(
            "double_total",
            lambda xp, x, times=2.0: xp.asarray(x.sum() * times),
            "x",
            "times",
            pulls={"x": lambda F, g, x_shape, times: F.expand(F.mul_scalar(g, times), x_shape)},
            pushes={"x": lambda F, t, times: F.double_total(t, times)},
        )
    )
    x = ag.randn(2, 3, dtype=ag.float64, requires_grad=True)
    assert total(x).shape == ()
    assert total(x, times=3.0).item() == pytest.approx(3 * x.sum().item())
    assert ag.autograd.gradcheck(lambda x: total(x, 3.0), x, check_forward_ad=True)
    total(x).backward()
    assert x.grad.tolist() == [[2.0] * 3] * 2
    # A view of one element: it was copied, so it can be changed.
    x.grad.add_(1)


def test_differentiable_inputs_get_their_common_dtype():
    dot = extend.register(
        extend.operation(
            "plain_dot", lambda xp, x, y: xp.dot(x, y), "x y",
            pulls={"x": lambda F, g, y: g * y, "y": lambda F, g, x: g * x},
        )
    )  # fmt: skip
    x, y = ag.ones(3), ag.ones(3, dtype=ag.float64)
    assert dot(x, y).dtype == ag.float64
    with pytest.raises(RuntimeError, match=r"plain_dot.*float32\[3\]"):
        dot(x, ag.ones(4))


def test_a_scalar_does_not_widen_the_common_dtype_of_other_inputs():
    """Wherever it stands; as in PyTorch, it only counts if its kind of dtype is higher."""
    one = {name: lambda F, g: g for name in "xyz"}
    total = extend.register(
        extend.operation("plain_total", lambda xp, x, y, z: x + y + z, "x y z", pulls=one)
    )
    scalar, y, z = ag.tensor(1.0, dtype=ag.float64), ag.ones(3), ag.ones(3, dtype=ag.int64)
    for inputs in itertools.permutations((scalar, y, z)):
        assert total(*inputs).dtype == ag.float32


def test_a_missing_push_is_an_error_in_forward_mode():
    f = extend.register(
        extend.operation(
            "pushless", lambda xp, x: x * 2, "x", pulls={"x": lambda F, g: F.mul_scalar(g, 2)}
        )
    )
    with forward_ad.dual_level():
        x = forward_ad.make_dual(ag.ones(2), ag.ones(2))
        with pytest.raises(NotImplementedError, match="pushless"):
            f(x)


def test_a_function_without_rules_is_constant():
    f = extend.register(extend.unary("signbit_of", None, lambda xp, x: xp.signbit(x)))
    out = f(ag.tensor([1.0, -2.0], requires_grad=True))
    assert out.tolist() == [False, True]
    assert not out.requires_grad


def test_attributes_of_linear_functions_may_have_any_names():
    """`vmap` took one called `dim` for an axis, and added one to it."""
    rolled = extend.register(
        extend.linear(
            "rolled_by_dim",
            lambda xp, x, dim: xp.roll(x, dim, -1),
            lambda F, g, dim: F.roll(g, (-dim,), (-1,)),
            attributes=("dim",),
        )
    )
    x = ag.arange(6.0).reshape(2, 3)
    assert ag.func.vmap(lambda row: rolled(row, 1))(x).tolist() == rolled(x, 1).tolist()
