"""Programs of Jacobians whose functions change tensors or look at values, as in PyTorch."""

from functools import partial

import pytest
from plain_parity import attempted, numbers, plainly

import asyncgrad as ag


def jacobians(T):
    return (T.func.jacrev, T.func.jacfwd)


@plainly
def test_other_arguments_may_be_written_to(T, log):
    def copied(x, y):
        y.copy_(x)
        return y

    def added(x, y):
        y.add_(x)
        return y * x

    def put(x, y, z):
        x[:2] = y
        return T.vstack([(x**2).sum(), (z**3).sum()])

    for jacobian in jacobians(T):
        x, y = numbers(T, 2), numbers(T, 2, seed=1)
        log(jacobian(copied)(x, y), y)
        x, y = numbers(T, 2), numbers(T, 2, seed=1)
        attempted(log, "leaf", jacobian(added, argnums=(0, 1)), x, y)
        log(x, y)
        x, y, z = numbers(T, 3), numbers(T, 2, seed=1), numbers(T, 2, seed=2)
        log(jacobian(put, argnums=(1, 2))(x, y, z), x)


@plainly
def test_the_argument_itself_may_be_changed(T, log):
    def twice(x):
        x.mul_(2)
        return x * x

    for jacobian in jacobians(T):
        x = numbers(T, 3)
        attempted(log, "leaf", jacobian(twice), x)
        log(x)
    xs = numbers(T, 2, 3)
    log(T.func.vmap(T.func.jacfwd(lambda x: twice(x.clone())))(xs), xs)


@plainly
def test_a_captured_tensor_may_not(T, log):
    for jacobian in jacobians(T):
        captured = T.zeros(3, dtype=T.float64)

        def copied(x, captured=captured):
            captured.copy_(x)
            return x * captured

        attempted(log, "mutate a captured Tensor", jacobian(copied), numbers(T, 3))
        log(captured)


@plainly
def test_values_decide_what_is_computed(T, log):
    def chosen(x):
        return x * x if x.sum() > 0 else -x

    for jacobian in jacobians(T):
        for sign in (1, -1):
            log(jacobian(chosen)(sign * numbers(T, 3).abs()))
        log(jacobian(lambda x: x * x[0].item())(numbers(T, 3)))
    jacobian = T.autograd.functional.jacobian
    log(jacobian(chosen, numbers(T, 3), strategy="forward-mode", vectorize=True))


@plainly
def test_random_numbers_in_a_jacobian(T, log):
    for randomness in ("error", "same", "different"):
        attempted(
            log,
            "randomness",
            T.func.jacfwd(lambda x: x * (T.rand(3) > 2), randomness=randomness),
            numbers(T, 3),
        )


@plainly
def test_jacobians_of_all_arguments(T, log):
    x, y = numbers(T, 2), numbers(T, 2, seed=1)
    log(T.func.jacfwd(T.mul, argnums=None)(x, y))
    attempted(log, "argnums", T.func.jacrev(T.mul, argnums=None), x, y)


@plainly
def test_orders_of_jacobians_and_batches(T, log):
    def function(x, w):
        return T.tanh(w @ x) * x.sum()

    w, xs = numbers(T, 2, 3, seed=1), numbers(T, 4, 3)
    f = T.func
    for inner in jacobians(T):
        log(f.vmap(inner(function), (0, None))(xs, w))
        log(f.vmap(inner(function, argnums=(0, 1)), (0, None))(xs, w))
        for outer in jacobians(T):
            log(outer(inner(function))(xs[0], w))
            log(outer(inner(lambda x: T.ones(2, dtype=T.float64)))(xs[0]))
            log(f.vmap(outer(inner(function)), (0, None))(xs, w))
            log(outer(f.vmap(inner(function), (0, None)))(xs[:2], w))
    log(f.jacfwd(f.jacfwd(f.jacfwd(lambda x: (x**4).sum())))(xs[0]))
    log(f.grad(lambda x: f.jacfwd(function)(x, w).sum())(xs[0]))
    log(f.jvp(lambda x: f.jacfwd(function)(x, w), (xs[0],), (xs[1],)))
    log(f.jacfwd(lambda x: f.jvp(lambda x: function(x, w), (x,), (x * x,))[1])(xs[0]))
    log(f.jacfwd(lambda x: f.vmap(lambda y: (y * x).sum())(xs))(xs[0]))
    log(f.jacfwd(lambda x: f.vjp(lambda x: function(x, w), x)[1](w[:, 0])[0])(xs[0]))


@plainly
def test_tangents_of_views_of_what_is_written_to(T, log):
    def into_a_view(x, y):
        y = y.clone()
        part = y[:2]
        part.copy_(x)
        y.mul_(x.sum())
        return part, y

    def into_a_base(x, y):
        y = y.clone()
        part = y[1:]
        y[:2] = x
        return part, y

    for function in (into_a_view, into_a_base):
        for jacobian in jacobians(T):
            log(jacobian(function)(numbers(T, 2), numbers(T, 3, seed=1)))
            log(jacobian(function, argnums=(0, 1))(numbers(T, 2), numbers(T, 3, seed=1)))


@plainly
def test_functions_with_rules_of_their_own(T, log):
    class Square(T.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x * x, x * 2

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_forward(*inputs)

        @staticmethod
        def jvp(ctx, tangent):
            (x,) = ctx.saved_tensors
            return 2 * x * tangent, 2 * tangent

    class Doubled(T.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x.mul_(2)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.mark_dirty(*inputs)

        @staticmethod
        def jvp(ctx, tangent):
            return tangent.mul_(2)

    log(T.func.jacfwd(Square.apply)(numbers(T, 3)))
    log(T.func.jacfwd(lambda x: Doubled.apply(x.clone()))(numbers(T, 3)))


@plainly
def test_a_complex_output_has_no_gradient(T, log):
    pattern = "only for real scalar outputs"
    attempted(log, pattern, T.func.grad(lambda z: z.conj()), T.tensor(1 + 1j))
    attempted(log, pattern, T.func.grad_and_value(lambda x: x * 1j), T.tensor(1.0))
    log(T.func.vjp(lambda z: z.conj(), T.tensor(1 + 1j))[1](T.tensor(2 + 1j)))


def test_a_function_is_called_once_for_all_columns():
    shapes = []

    def seen(x, y):
        shapes.append((tuple(x.shape), x._batched, y._batched))
        return x * y

    ag.func.jacfwd(seen)(ag.ones(3), ag.ones(3))
    assert shapes == [((3,), False, False)]


@pytest.mark.parametrize("randomness", ["error", "different"])
def test_columns_agree_however_random_numbers_are_drawn(randomness):
    """The columns of one tangent each, and those of values for each."""
    x, w = ag.tensor([[0.5, -1.0], [2.0, 0.1]]), ag.tensor([1.0, 2.0])

    def function(x, w):
        return ag.sin(x) * w, (x * w).sum()

    columns = ag.func.jacfwd(partial(function, w=w), randomness=randomness)
    rows = ag.func.jacrev(partial(function, w=w))
    for transformed in (lambda f: f, ag.func.vmap):
        for ours, theirs in zip(transformed(columns)(x), transformed(rows)(x), strict=True):
            assert ours.shape == theirs.shape
            assert ag.allclose(ours, theirs)


#: Changes of `z`, of which the derivative needs what `z` was, or its tangent.
CHANGES = {
    "sin_": lambda T, z, x: z.sin_(),
    "sigmoid_": lambda T, z, x: z.sigmoid_(),
    "mul_": lambda T, z, x: z.mul_(x),
    "div_": lambda T, z, x: z.div_(x + 1),
    "pow_": lambda T, z, x: z.pow_(3),
    "addcmul_": lambda T, z, x: z.addcmul_(z.clone(), x),
    "lerp_": lambda T, z, x: z.lerp_(x * x, x),
    "relu_": lambda T, z, x: T.nn.functional.relu_(z),
    "elu_": lambda T, z, x: T.nn.functional.elu_(z),
    "of a part": lambda T, z, x: z[1:].mul_(x[1:]).cos_(),
    "at an index": lambda T, z, x: z.__setitem__(T.tensor([True, False, True]), x[1:] * x[0]),
    "in a row": lambda T, z, x: z.sin_().mul_(x).exp_(),
}
#: How `grad`, `jvp`, `vjp` and `vmap` are nested, the outermost first.
NESTINGS = ("GJ", "VJ", "JG", "JJ", "GG", "GJJ", "GGJ", "MGJ", "GMJ", "VMJ")


def _nested(T, nesting, function):
    F, v = T.func, T.tensor([0.3, -0.7, 1.1], dtype=T.float64)
    steps = {
        "G": lambda f: F.grad(lambda x: f(x).sum()),
        "J": lambda f: lambda x: F.jvp(f, (x,), (v,))[1],
        "V": lambda f: lambda x: F.vjp(f, x)[1](v)[0],
        "M": lambda f: lambda x: F.vmap(f)(T.stack([x, x * 2]))[1],
    }
    for step in reversed(nesting):
        function = steps[step](function)
    return function


@plainly
def test_what_a_change_in_place_needs_is_kept_for_all_nestings(T, log):
    """What its pushes save of the tensor and of its tangents changes with it, and is copied."""
    for name, change in CHANGES.items():

        def program(x, change=change):
            z = x * 1
            change(T, z, x)
            return z * x

        for nesting in NESTINGS:
            x = T.tensor([0.3, 0.5, 0.7], dtype=T.float64)
            log(name, nesting, _nested(T, nesting, program)(x))


@plainly
def test_tangents_pass_changes_in_place_under_hooks(T, log):
    """What hooks pack in the place of the changed tensor has its tangent."""
    F = T.autograd.forward_ad
    with F.dual_level(), T.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        z = F.make_dual(T.tensor([0.5], requires_grad=True), T.ones(1)) * 1
        log(F.unpack_dual(z.sin_()).tangent)


@plainly
def test_a_tensor_may_be_the_other_operand_of_its_own_change(T, log):
    x = T.tensor([0.5, -2.0], requires_grad=True)
    z = x * 1
    z.copysign_(z)
    log(*T.autograd.grad(z.sum(), x))
