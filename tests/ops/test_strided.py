"""Views by any strides: through each other, in place, in forward mode and mapped, as in PyTorch."""

import numpy as np
import pytest
from plain_parity import attempted, numbers, plainly

import asyncgrad as ag
from asyncgrad.autograd import forward_ad, gradcheck, gradgradcheck

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch


def _forward_ad(T):
    return forward_ad if T is ag else T.autograd.forward_ad


@plainly
def test_gradients_go_where_the_input_has_elements(T, log):
    x = numbers(T, 3, 4, leaf=True)
    views = {
        "overlapping": (x * x).as_strided((3, 3), (2, 1), 1),
        "of a part": (x * x)[1:].t().as_strided((2, 3), (4, 1), 0),
        "repeated": (x * x)[0].expand(3, 4).as_strided((4, 2), (1, 0)),
        "of one": (x * x)[2, 3].as_strided((2, 2), (0, 0)),
        "empty": (x * x).as_strided((0, 3), (4, 1), 40),
    }
    for name, view in views.items():
        log(name, view, view._is_view(), view.stride())
        (g,) = T.autograd.grad((view * view).sum(), x, create_graph=True)
        log(g, T.autograd.grad((g * g).sum(), x))


@plainly
def test_what_is_detached_from_a_part_has_its_memory(T, log):
    x = numbers(T, 3, 4, leaf=True)
    part = (x * 2)[1].detach()
    log(part.as_strided((8,), (1,)), part.data.as_strided((2, 2), (4, 1)))
    attempted(log, "out of bounds", part.as_strided, (9,), (1,))


@plainly
def test_a_change_is_seen_by_all_that_look_there(T, log):
    x = numbers(T, 3, 4, leaf=True)
    base = x * 1
    part = base[1:]
    window = part.as_strided((2, 2), (1, 3), 0)
    window.mul_(3)
    log(base, part, window, base._version, window._base is base)
    base[0].mul_(x[1])
    log(T.autograd.grad((window * window).sum() + (part * part).sum(), x))


@plainly
def test_memory_with_gaps_is_changed_in_place(T, log):
    x = numbers(T, 2, 2, leaf=True)
    base = T.from_numpy(np.arange(24.0).reshape(4, 6)[:, ::2])
    base.as_strided((2, 2), (2, 6), 2).mul_(x)
    log(base, T.autograd.grad((base * base).sum(), x))


@plainly
def test_tangents_are_seen_through_strides(T, log):
    F = _forward_ad(T)
    with F.dual_level():
        dual = F.make_dual(numbers(T, 3, 4), numbers(T, 3, 4, seed=1))
        log(F.unpack_dual(dual.as_strided((2, 2), (5, 1), 1)).tangent)
        base = dual * 1
        part = base[1:]
        window = part.as_strided((2, 2), (1, 3), 0)
        log(F.unpack_dual(window).tangent)
        window.mul_(3)
        log(F.unpack_dual(base).tangent, F.unpack_dual(part).tangent)
        put = T.as_strided_scatter(dual, dual[:2, :2] * 2, (2, 2), (5, 2), 1)
        log(put, F.unpack_dual(put).tangent)


@plainly
def test_examples_are_seen_through_strides(T, log):
    x, y = numbers(T, 3, 4), numbers(T, 2, 3, 4)

    def windows(a):
        return (a.as_strided((2, 2), (1, 1), 1) ** 3).sum()

    F = T.func
    log(F.vmap(F.grad(windows))(x), F.vmap(F.grad(windows), in_dims=1)(x.t()))
    log(F.vmap(F.vmap(windows))(y), F.vmap(F.vmap(F.grad(windows)), in_dims=1)(y))
    log(F.hessian(windows)(x[0]), F.jacfwd(windows)(x[0]), F.vmap(F.hessian(windows))(x))
    log(F.vmap(lambda a: a.as_strided((3,), (4,)), in_dims=1)(x))
    attempted(log, "memory|bounds", F.vmap(lambda a: a.as_strided((5,), (1,))), x)


@plainly
def test_a_tensor_takes_other_strides_in_place(T, log):
    x = numbers(T, 3, 4, leaf=True)
    y = x * 2
    log(y.as_strided_((2, 2), (1, 2), 1) is y, y, y.stride(), y._version)
    log(T.autograd.grad((y * y).sum(), x))
    attempted(log, "leaf Variable", x.as_strided_, (2, 2), (1, 2))


@plainly
def test_what_is_not_there_is_refused(T, log):
    x = numbers(T, 3, 4)
    calls = [
        ("mismatch in length", (2, 2), (1,), None),
        ("[Nn]egative strides", (2, 2), (1, -1), None),
        ("", (2, -2), (1, 1), None),
        ("out of bounds", (20, 2), (1, 1), None),
        ("out of bounds", (3, 4), (4, 1), 1),
        ("invalid storage offset", (2, 2), (1, 1), -1),
        ("", (2, 2), (1, 1.5), None),
        ("", 2, 1, None),
    ]
    for pattern, size, stride, offset in calls:
        attempted(log, pattern, x.as_strided, size, stride, offset)
        attempted(log, pattern, x.t()[1:].as_strided, size, stride, offset)
    attempted(log, "", T.zeros(0).as_strided, (2,), (1,))
    attempted(log, "", T.as_strided_scatter, x, x, (2, 2), (1, 2))


def test_scattered_values_get_their_gradients():
    """PyTorch's are wrong for the input: it has those of what is overwritten."""
    x, y = numbers(ag, 3, 4, leaf=True), numbers(ag, 2, 2, seed=1, leaf=True)

    def scattered(x, y):
        return ag.as_strided_scatter(x * 1, y, (2, 2), (5, 1), 2)

    assert gradcheck(scattered, (x, y), check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(scattered, (x, y))
    expected = torch.as_strided_scatter(
        torch.tensor(x.tolist()), torch.tensor(y.tolist()), (2, 2), (5, 1), 2
    )
    np.testing.assert_allclose(scattered(x, y).tolist(), expected.tolist())


def test_gradients_through_strides_are_those_of_differences():
    x = numbers(ag, 3, 4, leaf=True)

    def windows(x):
        return (x * x)[1:].as_strided((3, 2), (2, 1), 4) * x[0, :2]

    assert gradcheck(windows, (x,), check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(windows, (x,), check_fwd_over_rev=True)


@plainly
def test_a_size_that_is_there_already_changes_nothing(T, log):
    x = T.zeros(1)
    for size in ((1, 2), (3,), (3,)):
        x.resize_(size)
        log(x._version, tuple(x.shape))
    x.resize_as_(T.ones(3))
    log(x._version)


@plainly
def test_a_leaf_can_be_resized_in_inference_mode(T, log):
    for mode in (T.inference_mode, T.no_grad):
        with mode():
            x = T.ones(1, 2, 3, requires_grad=True)
            attempted(log, "cannot resize variables", x.resize_, 1, 2)
            log(tuple(x.shape), x.requires_grad)
