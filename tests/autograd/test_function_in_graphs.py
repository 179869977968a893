"""Functions within larger graphs: what they return, keep, change, and how their passes go."""

import weakref

import pytest
from functions import function_of
from parity import attempt, both, leaf, raised

import asyncgrad as ag


def function(T, forward, backward):
    """A Function of two plain functions."""
    return type(
        "Made",
        (T.autograd.Function,),
        {"forward": staticmethod(forward), "backward": staticmethod(backward)},
    )


# -- results -------------------------------------------------------------------------------------


@both
def test_the_same_result_twice(T, log):
    def forward(ctx, x):
        y = x * 2
        return y, y

    def backward(ctx, a, b):
        log(a, b)
        return a * 2 + b * 2

    x = leaf(T, 1.0, 2.0)
    a, b = function(T, forward, backward).apply(x)
    log(a is b, a.grad_fn is b.grad_fn, a.output_nr, b.output_nr)
    yield (a * 3 + b * 5).sum().backward()
    log(x.grad)


@both
def test_a_changed_input_returned_twice(T, log):
    def forward(ctx, x):
        x.add_(1)
        ctx.mark_dirty(x)
        return x, x

    def backward(ctx, a, b):
        log(a, b)
        return a + b

    x = leaf(T, 1.0, 2.0)
    made = function(T, forward, backward)
    attempt(log, made.apply, x)
    y = x * 1
    try:
        a, b = made.apply(y)
    except RuntimeError as error:
        log(error)
        return
    log(a is b, a is y)
    yield (a * 3 + b * 5).sum().backward()
    log(x.grad)


@both
def test_all_inputs_returned(T, log):
    def forward(ctx, x, y):
        return x, y, x + y

    def backward(ctx, a, b, c):
        log(a, b, c)
        return a + c, b * 10 + c

    x, y = leaf(T, 1.0), leaf(T, 2.0)
    a, b, c = function(T, forward, backward).apply(x, y)
    log(a is x, b is y, a.is_leaf, a.grad_fn is c.grad_fn, a._is_view())
    yield (a + b * 2 + c * 3).sum().backward()
    log(x.grad, y.grad)


@both
def test_results_that_are_no_tensors(T, log):
    def forward(ctx, x):
        return x * 2, None, 3, "a", [x]

    def backward(ctx, *gradients):
        log(len(gradients), gradients[0], gradients[1:4])
        return gradients[0] * 2

    x = leaf(T, 1.0)
    result = function(T, forward, backward).apply(x)
    log(result[1:4], result[0])
    yield result[0].sum().backward()
    log(x.grad)
    nothing = function(T, lambda ctx, x: None, lambda ctx, g: g)
    log(nothing.apply(x))
    log(function(T, lambda ctx, x: (), lambda ctx: None).apply(x))


@both
def test_results_that_hold_constants(T, log):
    def forward(ctx, x):
        return T.ones(2, dtype=T.float64)

    def backward(ctx, gradient):
        return gradient * 3

    x = leaf(T, 1.0, 2.0)
    y = function(T, forward, backward).apply(x)
    log(y.requires_grad, y.grad_fn)
    yield y.sum().backward()
    log(x.grad)


@both
def test_a_leaf_made_in_forward_and_returned(T, log):
    def forward(ctx, x):
        return x * 2, T.ones(2, dtype=T.float64, requires_grad=True)

    def backward(ctx, a, b):
        log(a, b)
        return a * 2 + b

    x = leaf(T, 1.0, 2.0)
    a, b = function(T, forward, backward).apply(x)
    log(b.requires_grad, b.is_leaf)
    yield (a + b * 3).sum().backward()
    log(x.grad)


@both
def test_results_that_are_not_differentiable(T, log):
    def forward(ctx, x):
        a, b = x * 2, x > 1
        c = x * 3
        ctx.mark_non_differentiable(b, c)
        return a, b, c

    def backward(ctx, a, b, c):
        log(a, b, c)
        return a * 2

    x = leaf(T, 1.0, 2.0)
    a, b, c = function(T, forward, backward).apply(x)
    log(a.requires_grad, b.requires_grad, c.requires_grad, c.is_leaf)
    yield (a * c).sum().backward()
    log(x.grad)

    def without(ctx, x):
        a, b, c = forward(ctx, x)
        ctx.set_materialize_grads(False)
        return a, b, c

    def loud(ctx, a, b, c):
        log(a, b, c)
        return a

    a, b, c = function(T, without, loud).apply(x)
    yield a.sum().backward()


@both
def test_results_that_lead_elsewhere_are_cut_off(T, log):
    """What `forward` records itself never leads past `backward`."""
    weight = leaf(T, 1.0, 2.0)

    def forward(ctx, x):
        with T.enable_grad():
            a, b = weight * x, weight + x
        ctx.mark_non_differentiable(b)
        return a, b

    made = function(T, forward, lambda ctx, g, h: g * 5)
    for x in (T.ones(2, dtype=T.float64), leaf(T, 3.0, 4.0)):
        a, b = made.apply(x)
        log(a, a.is_leaf, b, b.is_leaf)
        with T.no_grad():
            log(*made.apply(x))
        if x.requires_grad:
            yield (a + b).sum().backward()
            log(x.grad)
    log(weight.grad, weight.requires_grad)


@both
def test_which_results_got_gradients(T, log):
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 1, x * 2, x * 3

    def backward(ctx, a, b, c):
        log([g is None for g in (a, b, c)])
        return sum(g * n for n, g in enumerate((a, b, c), 1) if g is not None)

    x = leaf(T, 1.0)
    made = function(T, forward, backward)
    for chosen in ((0,), (1,), (0, 2), (0, 1, 2)):
        results = made.apply(x)
        total = sum(results[i] for i in chosen)
        log((yield T.autograd.grad(total.sum(), x)))


# -- gradients -----------------------------------------------------------------------------------


@both
def test_gradients_for_what_needs_none_are_dropped(T, log):
    def forward(ctx, x, y):
        log(ctx.needs_input_grad)
        return x * y

    def backward(ctx, gradient):
        log(ctx.needs_input_grad)
        return gradient * 2, gradient * 3

    made = function(T, forward, backward)
    x, plain = leaf(T, 1.0), T.ones(1, dtype=T.float64)
    yield made.apply(x, plain).sum().backward()
    yield made.apply(plain, x).sum().backward()
    log(x.grad, plain.grad)


@both
def test_the_same_input_twice(T, log):
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    def backward(ctx, gradient):
        x, y = ctx.saved_tensors
        log(x is y)
        return gradient * y, gradient * x

    x = leaf(T, 3.0)
    yield function(T, forward, backward).apply(x, x).sum().backward()
    log(x.grad)


@both
def test_gradients_of_several_shapes(T, log):
    def given(gradient):
        return function(T, lambda ctx, x: x * 1, lambda ctx, g: gradient())

    x = T.ones((2, 3), requires_grad=True)
    for gradient in (
        lambda: T.ones(2, 3),
        lambda: T.ones(1, 3).expand(2, 3),
        lambda: T.ones(4, 2, 3),
        lambda: T.ones(3),
        lambda: T.ones(2, 1),
        lambda: T.ones(()),
        lambda: T.ones(5),
        lambda: T.ones(3, 2),
        lambda: T.ones(2, 3, dtype=T.float64),
        lambda: T.ones(2, 3, dtype=T.int64),
    ):
        x.grad = None
        try:
            yield given(gradient).apply(x).sum().backward()
        except RuntimeError as error:
            log(error, "invalid gradient at index 0" in str(error))
        log(x.grad)


@both
def test_wrong_numbers_of_gradients(T, log):
    x, y = leaf(T, 1.0), leaf(T, 2.0)
    for gradients in (
        lambda g: g,
        lambda g: (g,),
        lambda g: (g, g, g),
        lambda g: (g, g, None),
        lambda g: (g, g, None, None),
        lambda g: (),
        lambda g: None,
        lambda g: (None, None),
        lambda g: [g, g],
        lambda g: (g, 1.0),
        lambda g: (g, "a"),
    ):
        made = function(T, lambda ctx, x, y: x * y, lambda ctx, g, r=gradients: r(g))
        yield from raised(log, made.apply(x, y).sum().backward)
        log(x.grad, y.grad)
        x.grad = y.grad = None


@both
def test_a_backward_that_raises(T, log):
    class Strange(Exception):
        pass

    def backward(ctx, gradient):
        raise Strange("here")

    x = leaf(T, 1.0)
    made = function(T, lambda ctx, x: x * 1, backward)
    y = made.apply(x) + x
    try:
        yield y.sum().backward()
    except Strange as error:
        log(str(error))
    yield (x * 2).sum().backward()
    log(x.grad)


@both
def test_a_forward_that_raises_leaves_the_mode_as_it_was(T, log):
    def forward(ctx, x):
        raise ValueError("here")

    x = leaf(T, 1.0)
    attempt(log, function(T, forward, None).apply, x)
    log(T.is_grad_enabled(), (x * 2).requires_grad)
    with T.no_grad():
        attempt(log, function(T, forward, None).apply, x)
        log(T.is_grad_enabled())


@both
def test_grad_mode_changed_by_forward_and_backward_stays_inside(T, log):
    def forward(ctx, x):
        with T.enable_grad():
            y = x * 2
            log(y.requires_grad)
        log((x * 2).requires_grad)
        return y.detach()

    def backward(ctx, gradient):
        with T.enable_grad():
            z = T.ones(1, dtype=T.float64, requires_grad=True)
            log((z * 2).requires_grad)
        return gradient

    x = leaf(T, 1.0)
    y = function(T, forward, backward).apply(x)
    log(T.is_grad_enabled(), y.requires_grad)
    yield y.sum().backward()
    log(T.is_grad_enabled(), x.grad)


# -- double backward -----------------------------------------------------------------------------


@both
def test_third_derivatives_through_a_function(T, log):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**4

    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * 4 * x**3

    x = leaf(T, 2.0, 3.0)
    y = function(T, forward, backward).apply(x).sum()
    for _ in range(3):
        (g,) = yield T.autograd.grad(y, x, create_graph=True)
        log(g)
        y = g.sum()


@both
def test_the_second_derivative_uses_the_saved_result(T, log):
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    def backward(ctx, gradient):
        (y,) = ctx.saved_tensors
        return gradient * y

    x = leaf(T, 0.5, 1.0)
    y = function(T, forward, backward).apply(x)
    (g,) = yield T.autograd.grad(y.sum(), x, create_graph=True)
    (h,) = yield T.autograd.grad(g.sum(), x, create_graph=True)
    log(g, h, (yield T.autograd.grad(h.sum(), x)))


@both
def test_functions_in_backward_of_functions(T, log):
    class Inner(T.autograd.Function):
        @staticmethod
        def forward(ctx, gradient, x):
            ctx.save_for_backward(gradient, x)
            return gradient * 2 * x

        @staticmethod
        def backward(ctx, again):
            gradient, x = ctx.saved_tensors
            return again * 2 * x, again * 2 * gradient

    class Square(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, gradient):
            return Inner.apply(gradient, *ctx.saved_tensors)

    x = leaf(T, 3.0)
    (g,) = yield T.autograd.grad(Square.apply(x).sum(), x, create_graph=True)
    log(g, g.grad_fn)
    log((yield T.autograd.grad(g.sum(), x)))


@both
def test_gradients_by_the_gradient_of_a_function(T, log):
    x, v = leaf(T, 2.0), leaf(T, 5.0)
    made = function(T, lambda ctx, x: x * 3, lambda ctx, g: g * 3)
    (g,) = yield T.autograd.grad(made.apply(x), x, v, create_graph=True)
    log((yield T.autograd.grad(g.sum(), [v, x], allow_unused=True)))


# -- in place ------------------------------------------------------------------------------------


@both
def test_a_function_in_place_within_a_graph(T, log):
    def forward(ctx, x, factor):
        x.mul_(factor)
        ctx.mark_dirty(x)
        ctx.factor = factor
        return x

    def backward(ctx, gradient):
        return gradient * ctx.factor, None

    made = function(T, forward, backward)
    x = leaf(T, 1.0, 2.0)
    y = x * 1
    version = y._version
    z = made.apply(y, 3)
    log(z is y, y.grad_fn, y._version - version, y)
    yield (y * y).sum().backward()
    log(x.grad)
    plain = T.ones(2, dtype=T.float64)
    log(made.apply(plain, 5) is plain, plain, plain.requires_grad)


@both
def test_a_function_in_place_on_a_part(T, log):
    def forward(ctx, x):
        x.mul_(3)
        ctx.mark_dirty(x)
        return x

    made = function(T, forward, lambda ctx, g: g * 3)
    x = leaf(T, 1.0, 2.0, 3.0)
    y = x * 1
    part = y[1:]
    made.apply(part)
    log(y, part, y.grad_fn)
    yield (y * y).sum().backward()
    log(x.grad)


@both
def test_a_tensor_saved_before_it_is_changed_in_place_by_a_function(T, log):
    def forward(ctx, x):
        x.mul_(3)
        ctx.mark_dirty(x)
        return x

    made = function(T, forward, lambda ctx, g: g * 3)
    x = leaf(T, 1.0, 2.0)
    y = x * 1
    z = y * y
    made.apply(y)
    yield from raised(log, z.sum().backward)
    log(x.grad)


@both
def test_two_inputs_of_which_one_is_changed(T, log):
    def forward(ctx, x, y):
        x.add_(y)
        ctx.mark_dirty(x)
        return y * 2, x

    def backward(ctx, a, b):
        log(a, b)
        return b, a * 2 + b

    made = function(T, forward, backward)
    x, y = leaf(T, 1.0), leaf(T, 2.0)
    p = x * 1
    a, b = made.apply(p, y)
    log(b is p, a, b)
    yield (a * 3 + b * 5).sum().backward()
    log(x.grad, y.grad)


# -- parts of passes -----------------------------------------------------------------------------


@both
def test_needs_input_grad_is_what_it_was_in_the_forward(T, log):
    def backward(ctx, gradient):
        log(ctx.needs_input_grad)
        return gradient, gradient, None

    made = function(T, lambda ctx, x, y, n: x + y, backward)
    x, y = leaf(T, 1.0), leaf(T, 2.0)
    yield T.autograd.grad(made.apply(x, y, 3).sum(), x)
    yield made.apply(x, y.detach(), 3).sum().backward()
    with T.no_grad():
        made.apply(x, y, 3)


@both
def test_hooks_on_the_node_of_a_function(T, log):
    made = function(T, lambda ctx, x, n: x * n, lambda ctx, g: (g * 3, None))
    x = leaf(T, 1.0)
    y = made.apply(x, 3)
    y.register_hook(lambda g: log("tensor", g))
    y.grad_fn.register_prehook(lambda g: log("pre", g))
    y.grad_fn.register_hook(lambda i, o: log("post", i, o))
    y.retain_grad()
    yield (y * 2).sum().backward()
    log(y.grad, x.grad)


@both
def test_functions_saved_tensors_are_freed_with_the_pass(T, log):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.number = 3
        return x * 2

    made = function(T, forward, lambda ctx, g: g * ctx.saved_tensors[0])
    x = leaf(T, 1.0)
    y = made.apply(x)
    yield y.sum().backward(retain_graph=True)
    log(len(y.grad_fn.saved_tensors))
    yield y.sum().backward()
    attempt(log, lambda: y.grad_fn.saved_tensors)
    log(y.grad_fn.number)
    yield from raised(log, y.sum().backward)


@both
def test_reading_and_writing_ctx_between_passes(T, log):
    def backward(ctx, gradient):
        ctx.calls = getattr(ctx, "calls", 0) + 1
        return gradient * ctx.calls

    made = function(T, lambda ctx, x: x * 1, backward)
    x = leaf(T, 1.0)
    y = made.apply(x)
    for _ in range(3):
        yield y.sum().backward(retain_graph=True)
        log(x.grad, y.grad_fn.calls)


@both
def test_undefined_gradients_between_functions(T, log):
    def nothing(ctx, gradient):
        log("nothing", gradient)

    def strict(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 1

    def seen(ctx, gradient):
        log("seen", gradient)
        return gradient

    x = leaf(T, 1.0)
    y = function(T, strict, seen).apply(x)
    yield function(T, lambda ctx, x: x * 1, nothing).apply(y).sum().backward()
    log(x.grad)
    y = function(T, lambda ctx, x: x * 1, seen).apply(x)
    yield function(T, lambda ctx, x: x * 1, nothing).apply(y).sum().backward()
    log(x.grad)


@both
def test_a_function_without_tensors(T, log):
    made = function(T, lambda ctx, n: n + 1, lambda ctx, g: None)
    log(made.apply(3))
    made = function(T, lambda ctx, n: T.ones(1) * n, lambda ctx, g: None)
    log(made.apply(3), made.apply(3).requires_grad)


@both
def test_subclasses_of_functions(T, log):
    Base = function_of(T, lambda ctx, x: x * 2, lambda ctx, gradient: gradient * 2)

    class Derived(Base):
        @staticmethod
        def backward(ctx, gradient):
            return Base.backward(ctx, gradient) * 10

    x = leaf(T, 1.0)
    y = Derived.apply(x)
    log(y.grad_fn.name(), Base.apply(x).grad_fn.name())
    yield y.sum().backward()
    log(x.grad)


@both
def test_classmethods_serve_as_well(T, log):
    class Made(T.autograd.Function):
        factor = 3

        @classmethod
        def forward(cls, ctx, x):
            return x * cls.factor

        @classmethod
        def backward(cls, ctx, gradient):
            return gradient * cls.factor

    x = leaf(T, 1.0)
    yield Made.apply(x).sum().backward()
    log(x.grad)


# -- ours ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_collector")
def test_a_function_s_arguments_go_when_nothing_is_saved():
    made = function(ag, lambda ctx, x: x * 2, lambda ctx, g: g * 2)
    x = ag.ones(2, requires_grad=True)
    y = x * 1
    gone = weakref.ref(y)
    z = made.apply(y)
    del y
    assert gone() is None
    z.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


@pytest.mark.asyncio
async def test_a_function_is_the_same_awaited():
    made = function(ag, lambda ctx, x: x * 2, lambda ctx, g: g * 2)
    x = ag.ones(2, requires_grad=True)
    await made.apply(x).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]
