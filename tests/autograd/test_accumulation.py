"""How gradients come into `.grad`, and what `.grad` may be set to."""

import warnings

import numpy as np
import pytest
from functions import function_of
from parity import attempt, both, leaf, raised

import asyncgrad as ag
from asyncgrad.core.commit import commit


class Returned:
    """Makes Functions whose backward returns what it is told to."""

    def __init__(self, T, gradient):
        def backward(ctx, g):
            return gradient() if callable(gradient) else gradient

        Given = function_of(T, backward=backward)
        self.apply = Given.apply


# -- accumulation --------------------------------------------------------------------------------


@both
def test_a_second_gradient_is_added_in_place(T, log):
    x = leaf(T, 1.0, 2.0)
    yield (x * 2).sum().backward()
    first = x.grad
    version = first._version
    yield (x * 3).sum().backward()
    log(x.grad is first, first, first._version - version)


@both
def test_a_second_gradient_with_a_graph_makes_a_new_tensor(T, log):
    x = leaf(T, 1.0, 2.0)
    yield (x * x).sum().backward()
    first = x.grad
    yield (x * x * x).sum().backward(create_graph=True)
    log(x.grad is first, first, x.grad, first.requires_grad, x.grad.requires_grad)
    second = x.grad
    yield (x * 2).sum().backward()
    log(x.grad is second, second, x.grad)
    x.grad = None


@both
def test_nobody_sees_the_gradient_that_was_given(T, log):
    x = leaf(T, 1.0, 2.0)
    given = T.tensor([3.0, 4.0], dtype=T.float64)
    yield x.backward(given)
    log(x.grad is given)
    given.mul_(10)
    log(x.grad)
    x.grad = None
    yield (x + 0).backward(given)
    given.mul_(10)
    log(x.grad)


@both
def test_the_same_gradient_is_not_shared_by_leaves(T, log):
    x, y = leaf(T, 1.0, 2.0), leaf(T, 1.0, 2.0)
    yield (x + y).backward(T.tensor([3.0, 4.0], dtype=T.float64))
    x.grad.mul_(10)
    log(x.grad, y.grad)
    yield (x + y).backward(T.tensor([3.0, 4.0], dtype=T.float64))
    log(x.grad, y.grad)


@both
def test_a_gradient_is_laid_out_like_its_leaf(T, log):
    x = T.zeros((3, 4), dtype=T.float64, requires_grad=True)
    transposed = T.zeros((4, 3), dtype=T.float64).t().requires_grad_()
    for p in (x, transposed):
        for given in (lambda: T.ones((4, 3), dtype=T.float64).t(),
                      lambda: T.ones((1, 4), dtype=T.float64).expand(3, 4),
                      lambda: T.ones((3, 8), dtype=T.float64)[:, ::2],
                      lambda: T.ones((3, 4), dtype=T.float64)):  # fmt: skip
            p.grad = None
            yield Returned(T, given).apply(p).sum().backward()
            log(p.grad, p.grad.stride())
    p = T.zeros((2, 3), dtype=T.float64, requires_grad=True)
    yield p.sum().backward()
    log(p.grad.stride(), p.grad.is_contiguous())
    yield p.t().exp().sum().backward()
    log(p.grad, p.grad.stride())


@both
def test_a_gradient_kept_by_a_function_is_not_shared(T, log):
    kept = T.tensor([3.0, 4.0], dtype=T.float64)
    x = leaf(T, 1.0, 2.0)
    yield Returned(T, kept).apply(x).sum().backward()
    x.grad.zero_()
    log(kept)


@both
def test_fan_out_adds_into_nothing_that_others_see(T, log):
    """One gradient goes three ways, and each way is added to."""
    x = leaf(T, 1.0, 2.0)
    y = x * 1
    seen = []
    y.register_hook(seen.append)
    z = y + y + y
    given = T.tensor([1.0, 10.0], dtype=T.float64)
    yield z.backward(given)
    log(given, seen[0], x.grad)
    a, b = leaf(T, 1.0, 2.0), leaf(T, 3.0, 4.0)
    s = a + b
    yield (s + s * 2 + a).backward(given)
    log(a.grad, b.grad, given)


@both
def test_undefined_gradients_change_nothing(T, log):
    x = leaf(T, 1.0, 2.0)
    nothing = Returned(T, None)
    yield nothing.apply(x).sum().backward()
    log(x.grad)
    yield (nothing.apply(x) + x * 3).sum().backward()
    log(x.grad)
    yield nothing.apply(x).sum().backward()
    log(x.grad)
    yield nothing.apply((x * 2).exp()).sum().backward()
    log(x.grad)
    log((yield T.autograd.grad(nothing.apply(x).sum(), x, allow_unused=True)))
    yield from raised(log, T.autograd.grad, nothing.apply(x).sum(), x)


@both
def test_leaves_of_no_elements_and_of_no_dimensions(T, log):
    x = T.zeros((0, 3), requires_grad=True)
    yield (x * 2).sum().backward()
    log(x.grad)
    s = T.tensor(2.0, requires_grad=True)
    yield (s * s).backward()
    yield (s * s * s).backward()
    log(s.grad)
    one = T.zeros((1, 1), requires_grad=True)
    yield (one + T.ones(3, 4)).sum().backward()
    log(one.grad)


# -- the property --------------------------------------------------------------------------------


@both
def test_what_grad_may_be_set_to(T, log):
    x = leaf(T, 1.0, 2.0)

    def assign(value):
        x.grad = value

    log(x.grad)
    attempt(log, assign, T.ones(2, dtype=T.float64))
    attempt(log, assign, T.ones(2))
    attempt(log, assign, T.ones(2, dtype=T.int64))
    attempt(log, assign, T.ones(3, dtype=T.float64))
    attempt(log, assign, T.ones((2, 1), dtype=T.float64))
    attempt(log, assign, x)
    attempt(log, assign, 1.0)
    attempt(log, assign, [1.0, 1.0])
    log(x.grad)
    given = T.tensor([5.0, 6.0], dtype=T.float64)
    x.grad = given
    log(x.grad is given)
    yield x.sum().backward()
    log(x.grad is given, given)
    x.grad = None
    log(x.grad)
    x.grad = given
    del x.grad
    log(x.grad)
    yield x.sum().backward()
    log(x.grad)
    plain = T.ones(2)
    plain.grad = T.ones(2)
    log(plain.grad)
    # A gradient may need one itself.
    x.grad = (x * 2).clone()
    log(x.grad.requires_grad)
    x.grad = None


@both
def test_the_gradient_of_a_computed_tensor_is_none_with_a_warning(T, log):
    x = leaf(T, 1.0, 2.0)
    y = x * 2
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        log(y.grad)
        log(len(caught), caught[0].category.__name__, "not a leaf" in str(caught[0].message))
    y.retain_grad()
    log(y.grad)
    yield y.sum().backward()
    log(y.grad, x.grad)
    z = x * 2
    z.grad = T.ones(2, dtype=T.float64)
    log(z.grad)


@both
def test_the_gradient_of_a_computed_number_adds_up(T, log):
    y = leaf(T, 0.5)[0] * 2
    for _ in range(3):
        yield T.autograd.backward([y], inputs=[y], retain_graph=True)
        log(y.grad)


@both
def test_a_retained_gradient_is_replaced_by_the_sum(T, log):
    x = leaf(T, 1.0, 2.0)
    y = x * 2
    y.retain_grad()
    before = None
    for recorded in (True, False, False):
        loss = (y * y).sum()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield loss.backward(retain_graph=True, create_graph=recorded)
        log(y.grad, y.grad.requires_grad, y.grad is before, before)
        before = y.grad


# -- grad_dtype ----------------------------------------------------------------------------------


@both
def test_a_leaf_says_which_dtype_its_gradient_has(T, log):
    def name():
        return str(x.grad_dtype).rpartition(".")[2]

    def assign(dtype):
        x.grad_dtype = dtype

    x = T.ones(2, requires_grad=True)
    seen = []
    log(name())
    x.grad_dtype = T.float64
    log(name())
    yield (x * 2).sum().backward()
    yield (x * 2).sum().backward()
    log(x.grad)
    log((yield T.autograd.grad((x * 2).sum(), x)))
    (g,) = yield T.autograd.grad((x * x).sum(), x, create_graph=True)
    log(g, (yield T.autograd.grad(g.sum(), x)))
    attempt(log, assign, T.float32)
    x.grad = None
    handle = x.register_hook(lambda g: seen.append(str(g.dtype).rpartition(".")[2]))
    yield (x * 2).sum().backward()
    handle.remove()
    log(seen, x.grad)
    x.grad = None
    yield (x * x).sum().backward(create_graph=True)
    log(x.grad, x.grad.requires_grad)
    x.grad = None
    x.grad_dtype = T.float32
    log(name())
    attempt(log, assign, "float32")
    attempt(log, assign, 3)


@both
def test_any_dtype_is_kept_where_none_is_asked_for(T, log):
    x = T.ones(2, requires_grad=True)
    x.grad_dtype = None
    log(x.grad_dtype)
    x.grad = T.ones(2, dtype=T.float16)
    log(x.grad)
    yield (x * 2).sum().backward()
    log(x.grad)
    x.grad = T.ones(2, dtype=T.float64)
    yield (x * 2).sum().backward()
    log(x.grad)


@both
def test_computed_tensors_have_no_grad_dtype(T, log):
    x = T.ones(2, requires_grad=True)
    y = x * 2

    def assign():
        y.grad_dtype = T.float64

    attempt(log, assign)
    attempt(log, lambda: y.grad_dtype)
    plain = T.ones(2)
    plain.grad_dtype = T.float64
    attempt(log, lambda: setattr(plain, "grad", T.ones(2)))
    plain.grad = T.ones(2, dtype=T.float64)
    log(plain.grad)


# -- all or nothing ------------------------------------------------------------------------------


def test_a_commit_does_not_fail_half_way():
    """Whatever NumPy is told to do about overflow, both leaves get their gradient."""
    x = ag.tensor([1.0], dtype=ag.float32, requires_grad=True)
    y = ag.tensor([1.0], dtype=ag.float32, requires_grad=True)
    x.grad = ag.tensor([1.0], dtype=ag.float32)
    y.grad = ag.tensor([3e38], dtype=ag.float32)
    with np.errstate(all="raise"):
        (x * 2 + y * 3e38).sum().backward()
    assert x.grad.tolist() == [3.0]
    assert y.grad.tolist() == [float("inf")]


def test_a_gradient_that_can_not_be_added_leaves_all_as_they_were():
    x = ag.ones(2, requires_grad=True)
    y = ag.ones(2, requires_grad=True)
    x.grad = ag.ones(2)
    y.grad = ag.ones(2)
    y.grad._array.flags.writeable = False
    with pytest.raises(RuntimeError, match="read-only"):
        (x * 2 + y).sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]


def test_a_complex_gradient_gives_a_real_leaf_its_real_part():
    x = ag.ones(2, requires_grad=True)
    for expected in (1.0, 2.0):
        commit([(x, np.array([1 + 2j, 1 + 3j]), False)], None, wait=True)
        assert x.grad.tolist() == [expected, expected]
        assert x.grad.dtype == ag.float32
