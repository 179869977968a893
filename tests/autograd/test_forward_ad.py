"""Forward mode: dual tensors, against PyTorch's and by themselves."""

import asyncio
import math
import warnings
import weakref

import numpy as np
import pytest
from functions import function_of
from parity import attempt, both

import asyncgrad as ag
from asyncgrad.autograd import forward_ad as fwAD

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
with warnings.catch_warnings(), torch.autograd.forward_ad.dual_level():
    # The first of PyTorch's dual tensors compiles decompositions, and warns.
    warnings.simplefilter("ignore")
    torch.autograd.forward_ad.make_dual(torch.ones(1), torch.ones(1))

X, Y, TX, TY = [0.5, -1.5, 2.0], [1.5, 0.25, -0.75], [1.0, 2.0, -1.0], [0.5, -0.5, 3.0]


def duals(T, **more):
    """Two dual tensors of doubles."""
    F = T.autograd.forward_ad
    make = lambda values: T.tensor(values, dtype=T.float64, **more)  # noqa: E731
    return F.make_dual(make(X), make(TX)), F.make_dual(make(Y), make(TY))


@both
def test_tangents_are_derivatives_in_a_direction(T, log):
    F = T.autograd.forward_ad
    with F.dual_level():
        x, y = duals(T)
        for z in (x * y, x + 1, 2 - x, x / y, T.sin(x), (x @ y), x.sum(), T.exp(x).mean(),
                  T.cat([x, y]), T.stack([x, T.ones(3, dtype=T.float64)]), x[1:], x.reshape(3, 1),
                  x.expand(2, 3), x.sort()[0], T.where(x > 0, x, y), x.max(), T.outer(x, y),
                  x.clone(), x.to(T.float32), T.softmax(x, 0), x.cumsum(0), x**2, x.abs()**y,
                  T.nn.functional.relu(x), x.prod(), x.detach(), x.data, x > 0):  # fmt: skip
            log(F.unpack_dual(z))


@both
def test_mistakes_raise_what_pytorch_raises(T, log):
    F = T.autograd.forward_ad
    a = T.ones(3)
    attempt(log, F.make_dual, a, a)
    attempt(log, F.exit_dual_level)
    log(F.unpack_dual(a))
    with F.dual_level() as level:
        log(level)
        attempt(log, F.enter_dual_level)
        attempt(log, F.exit_dual_level, level=3)
        attempt(log, F.make_dual, a, T.ones(4))
        attempt(log, F.make_dual, a, T.ones(3, 1))
        attempt(log, F.make_dual, a, T.arange(3))
        attempt(log, F.make_dual, T.arange(3), a)
        attempt(log, F.make_dual, a, a, level=1)
        d = F.make_dual(a, T.ones(3))
        attempt(log, F.make_dual, d, a)
        attempt(log, F.make_dual, a, d)
        attempt(log, F.unpack_dual, d, level=1)
        attempt(log, F.unpack_dual, 3)
        log(F.unpack_dual(d, level=0))


@both
def test_tangents_vanish_with_their_level(T, log):
    F = T.autograd.forward_ad
    log(F.enter_dual_level())
    x, _ = duals(T)
    log(F.unpack_dual(x))
    F.exit_dual_level()
    log(F.unpack_dual(x))
    with F.dual_level():
        log(F.unpack_dual(x), F.unpack_dual(x * 2))

    @F.dual_level()
    def inside():
        x, _ = duals(T)
        return F.unpack_dual(x * x)

    log(inside(), inside(), F.unpack_dual(x))


@both
def test_a_dual_tensor_is_a_view_of_its_primal(T, log):
    F = T.autograd.forward_ad
    a, t = T.tensor(X, requires_grad=True), T.tensor(TX)
    with F.dual_level():
        d = F.make_dual(a, t)
        log(d._is_view(), d._base is a, d.grad_fn, F.unpack_dual(d).tangent is t)
        log(F.unpack_dual(d).primal._is_view(), F.unpack_dual(d).primal is d, d.requires_grad)
        yield (d * d).sum().backward()
    log(a.grad)


@both
def test_modes_that_stop_the_graph_do_not_stop_tangents(T, log):
    F = T.autograd.forward_ad
    with F.dual_level():
        x, _ = duals(T, requires_grad=False)
        with T.no_grad():
            log(F.unpack_dual(x * 2))
        with F._set_fwd_grad_enabled(False):
            log(F._is_fwd_grad_enabled(), F.unpack_dual(x), F.unpack_dual(x * 2))
            with F._set_fwd_grad_enabled(True):
                log(F.unpack_dual(x * 2))
        log(F._is_fwd_grad_enabled(), F.unpack_dual(x * 2))
        with T.autograd.inference_mode():
            log(F.unpack_dual(x), F.unpack_dual(x * 2))


@both
def test_changes_in_place_carry_tangents(T, log):
    F = T.autograd.forward_ad
    with F.dual_level():
        x, y = duals(T)
        x.mul_(y)
        log(F.unpack_dual(x))
        x.add_(1).sin_()
        log(F.unpack_dual(x))
        x.zero_()
        log(F.unpack_dual(x))
        x.copy_(y)
        log(F.unpack_dual(x))
        plain = T.zeros(3, dtype=T.float64)
        plain.add_(y)
        log(F.unpack_dual(plain))
        plain.fill_(2)
        log(F.unpack_dual(plain))


@both
def test_changing_a_dual_tensor_changes_the_given_tangent(T, log):
    F = T.autograd.forward_ad
    t = T.tensor(TX)
    with F.dual_level():
        d = F.make_dual(T.tensor(X), t)
        d.mul_(2)
        log(F.unpack_dual(d), t)


@both
def test_views_and_their_bases_share_tangents(T, log):
    F = T.autograd.forward_ad
    with F.dual_level():
        x, y = duals(T)
        base = T.zeros(2, 3, dtype=T.float64)
        row, column = base[0], base[:, 1]
        row.copy_(x)
        log(F.unpack_dual(base), F.unpack_dual(row), F.unpack_dual(base[1]), F.unpack_dual(column))
        base[1] = y
        column.mul_(2)
        log(F.unpack_dual(base), F.unpack_dual(row))
        base[T.tensor([0, 1]), T.tensor([2, 0])] = x[:2]
        log(F.unpack_dual(base), F.unpack_dual(row), F.unpack_dual(column))
        x[0] = 5
        log(F.unpack_dual(x))
        x.view(3, 1).add_(y.view(3, 1))
        log(F.unpack_dual(x))


@both
def test_reverse_over_forward(T, log):
    F = T.autograd.forward_ad
    x = T.tensor(X, dtype=T.float64, requires_grad=True)
    t = T.tensor(TX, dtype=T.float64, requires_grad=True)
    with F.dual_level():
        d = F.make_dual(x, t)
        tangent = F.unpack_dual((d.sin() * d).sum()).tangent
    log((yield T.autograd.grad(tangent, [x, t])))


@both
def test_forward_over_reverse(T, log):
    F = T.autograd.forward_ad
    x = T.tensor(X, dtype=T.float64, requires_grad=True)
    w = T.tensor([[1.0, 2.0, 3.0], [0.5, -1.0, 2.0]], dtype=T.float64, requires_grad=True)
    for create_graph in (False, True):
        with F.dual_level():
            d = F.make_dual(x, T.tensor(TX, dtype=T.float64))
            h = T.tanh(w @ d)
            z = (h * h).sum() + d.prod() + (d + d[0]).exp().sum()
            gx, gw = yield T.autograd.grad(z, [x, w], create_graph=create_graph)
            log(F.unpack_dual(gx), F.unpack_dual(gw), gx.requires_grad)


@both
def test_forward_over_reverse_with_changes_in_place(T, log):
    F = T.autograd.forward_ad
    x = T.tensor(X, dtype=T.float64, requires_grad=True)
    with F.dual_level():
        d = F.make_dual(x, T.tensor(TX, dtype=T.float64))
        z = d * 1
        z.mul_(d).mul_(2)
        (g,) = yield T.autograd.grad(z.sum(), x)
        log(F.unpack_dual(g))


@both
def test_forward_over_a_partial_pass_and_hooks(T, log):
    F = T.autograd.forward_ad
    x = T.tensor(X, dtype=T.float64, requires_grad=True)
    with F.dual_level():
        d = F.make_dual(x, T.tensor(TX, dtype=T.float64))
        y = d.exp()
        y.register_hook(lambda g: g * y.detach())
        z = (y * y + y).sum()
        log(F.unpack_dual((yield T.autograd.grad(z, y, retain_graph=True))[0]))
        log(F.unpack_dual((yield T.autograd.grad(z, x))[0]))


@both
def test_views_that_are_not_differentiable_keep_to_themselves(T, log):
    F = T.autograd.forward_ad
    foo, bar = T.tensor(X), T.tensor(TX)
    with F.dual_level():
        dual = F.make_dual(foo, bar)
        dual *= 2
        log(F.unpack_dual(foo), bar, foo, F.unpack_dual(dual))
        primal, tangent = F.unpack_dual(dual)
        log(F.unpack_dual(primal), F.unpack_dual(tangent))
        primal *= 2
        log(F.unpack_dual(dual))
        tangent *= 2
        log(F.unpack_dual(dual))
        view = dual.narrow(0, 0, 1)
        view *= 2
        log(F.unpack_dual(foo), F.unpack_dual(dual), F.unpack_dual(view))
        plain = T.tensor(Y)
        plain[0] = dual[0]
        log(F.unpack_dual(plain))
        plain = T.tensor(Y)
        view = plain.detach()
        view += dual
        log(F.unpack_dual(plain), F.unpack_dual(view))


@both
def test_changing_a_view_makes_a_view_of_the_tangent(T, log):
    F = T.autograd.forward_ad
    for change in (
        lambda x, y: x.add_(y),
        lambda x, y: x.mul_(y),
        lambda x, y: x.copy_(y),
    ):
        base = T.tensor([[1.0, 2.0], [3.0, 4.0]])
        view = base.transpose(0, 1)
        with F.dual_level():
            dual = F.make_dual(T.tensor([[1.0, 3.0], [2.0, 5.0]]), T.tensor([[1.0, 0.5], [2, 3]]))
            change(view, dual)
            log(F.unpack_dual(base))
            view *= 2
            log(F.unpack_dual(base), F.unpack_dual(view))


@both
def test_inference_tensors_have_tangents(T, log):
    F = T.autograd.forward_ad
    with T.inference_mode():
        foo = T.tensor(X)
        with F.dual_level():
            dual = F.make_dual(foo, T.tensor(TX))
            dual += 1
            log(foo, dual, F.unpack_dual(dual))


@both
def test_what_has_no_derivative_has_no_tangent(T, log):
    F = T.autograd.forward_ad
    with F.dual_level():
        x, y = duals(T)
        log(F.unpack_dual(x == y), F.unpack_dual(x.argmax()), F.unpack_dual(x.floor()))
        log(F.unpack_dual(x.eq_(y)))


@both
def test_levels_are_entered_again_without_old_tangents(T, log):
    F = T.autograd.forward_ad
    foo = T.tensor(X)
    with F.dual_level():
        dual = F.make_dual(foo, T.tensor(TX))
    log(F.unpack_dual(dual))
    with F.dual_level():
        again = F.make_dual(foo, T.tensor(TY))
        log(F.unpack_dual(dual), F.unpack_dual(again), "tangent=" in str(again), str(dual) == "")


@both
def test_passes_within_a_level_accumulate(T, log):
    F = T.autograd.forward_ad
    x = T.tensor(X, dtype=T.float64, requires_grad=True)
    with F.dual_level():
        d = F.make_dual(x, T.tensor(TX, dtype=T.float64))
        yield (d * d).sum().backward()
        log(x.grad)
        yield (d.exp() * 2).sum().backward()
        log(x.grad, x.grad.requires_grad)
    yield (x * x).sum().backward()
    log(x.grad)


@both
def test_tangents_flow_through_layers(T, log):
    F = T.autograd.forward_ad
    x = T.tensor([X, Y], dtype=T.float64)
    layers = [T.nn.Linear(3, 4), T.nn.Tanh(), T.nn.LayerNorm(4), T.nn.BatchNorm1d(4)]
    model = T.nn.Sequential(*layers).to(T.float64)
    with T.no_grad():
        layers[0].weight.copy_(T.arange(12, dtype=T.float64).reshape(4, 3) / 10)
        layers[0].bias.fill_(0.5)
    with F.dual_level():
        out = model(F.make_dual(x, T.tensor([TX, TY], dtype=T.float64)))
        log(F.unpack_dual(out))
    log(layers[3].running_mean, layers[3].running_var)


@both
def test_a_function_pushes_with_its_jvp(T, log):
    F = T.autograd.forward_ad

    def forward(ctx, x, y, n):
        log(F.unpack_dual(x).tangent, F._is_fwd_grad_enabled(), T.is_grad_enabled())
        ctx.save_for_forward(x, y)
        return x * y, n

    def jvp(ctx, x, y, n):
        log(x, y, n, F._is_fwd_grad_enabled(), T.is_grad_enabled())
        a, b = ctx.saved_tensors
        return x * b + a * y, None

    Custom = function_of(T, forward, jvp=jvp)
    with F.dual_level():
        x, y = duals(T)
        result, n = Custom.apply(x, y, 7)
        log(F.unpack_dual(result), n)
        log(F.unpack_dual(Custom.apply(x, T.ones(3, dtype=T.float64), 7)[0]))
        log(F.unpack_dual(Custom.apply(T.ones(3), T.ones(3), 7)[0]))


@both
def test_a_function_with_separate_context_pushes_differentiably(T, log):
    F = T.autograd.forward_ad

    def setup(ctx, inputs, output):
        ctx.save_for_forward(*inputs)
        ctx.save_for_backward(*inputs)

    Square = function_of(
        T,
        forward=lambda x: x * x,
        setup_context=setup,
        backward=lambda ctx, g: 2 * g * ctx.saved_tensors[0],
        jvp=lambda ctx, t: 2 * t * ctx.saved_tensors[0],
    )
    x = T.tensor(X, dtype=T.float64, requires_grad=True)
    with F.dual_level():
        d = F.make_dual(x, T.tensor(TX, dtype=T.float64))
        y = Square.apply(d)
        tangent = F.unpack_dual(y).tangent
        log(tangent)
        log((yield T.autograd.grad(tangent.sum(), x, retain_graph=True)))
        (g,) = yield T.autograd.grad((y * y).sum(), x)
        log(F.unpack_dual(g))


@both
def test_what_a_jvp_returns_is_checked(T, log):
    F = T.autograd.forward_ad
    double = lambda ctx, x: x * 2  # noqa: E731

    def dirty(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    def positive(ctx, x):
        out = (x > 0).to(T.float64)
        ctx.mark_non_differentiable(out)
        return out

    other = T.ones(3, dtype=T.float64)
    for forward, jvp in (
        (double, None),
        (double, lambda ctx, t: t * 2),
        (double, lambda ctx, t: (t, t)),
        (double, lambda ctx, t: 3),
        (double, lambda ctx, t: T.ones(4)),
        (positive, lambda ctx, t: t),
        (positive, lambda ctx, t: None),
        (dirty, lambda ctx, t: t * 2),
        (dirty, lambda ctx, t: t.mul_(2)),
        (lambda ctx, x: x.view(x.shape), lambda ctx, t: t * 2),
        (lambda ctx, x: x.view(x.shape), lambda ctx, t: t.view(t.shape)),
        (lambda ctx, x: x.view(x.shape), lambda ctx, t: other.view(other.shape)),
        (lambda ctx, x: x, lambda ctx, t: t),
        (lambda ctx, x: x, lambda ctx, t: t.view(t.shape)),
    ):
        Custom = function_of(T, forward, **({"jvp": jvp} if jvp else {}))
        with F.dual_level():
            x, _ = duals(T)
            try:
                log(F.unpack_dual(Custom.apply(x)))
            except Exception as error:
                log(error)


@both
def test_undefined_tangents_of_a_function(T, log):
    F = T.autograd.forward_ad
    for materialize in (True, False):

        def forward(ctx, x, y, materialize=materialize):
            ctx.set_materialize_grads(materialize)
            return x * y

        Custom = function_of(T, forward, jvp=lambda ctx, x, y: log(x, y) or x)
        with F.dual_level():
            x, _ = duals(T)
            log(F.unpack_dual(Custom.apply(x, T.ones(3, dtype=T.float64))))


@both
def test_a_function_saves_its_output_with_its_tangent(T, log):
    F = T.autograd.forward_ad

    def forward(ctx, x):
        out = x.exp()
        ctx.save_for_backward(out)
        ctx.save_for_forward(out)
        return out

    Exp = function_of(
        T,
        forward=forward,
        backward=lambda ctx, g: g * ctx.saved_tensors[0],
        jvp=lambda ctx, t: t * ctx.saved_tensors[0],
    )
    x = T.tensor(X, dtype=T.float64, requires_grad=True)
    with F.dual_level():
        d = F.make_dual(x, T.tensor(TX, dtype=T.float64))
        (g,) = yield T.autograd.grad(Exp.apply(d * d).sum(), x)
        log(F.unpack_dual(g))


@both
def test_a_function_takes_numbers_among_tensors(T, log):
    F = T.autograd.forward_ad

    def forward(ctx, n, x, k, y):
        ctx.n, ctx.k = n, k
        return x * n + y * k

    def jvp(ctx, n, x, k, y):
        log(n, k)
        return x * ctx.n + y * ctx.k

    with F.dual_level():
        x, y = duals(T)
        log(F.unpack_dual(function_of(T, forward, jvp=jvp).apply(2, x, 3.0, y)))


def test_levels_nest_where_they_are_asked_to():
    """`asyncgrad.func.jvp` of `jvp` needs tangents of tangents."""

    def derivative(f):
        def df(x):
            with fwAD.nested_level():
                return fwAD.unpack_dual(f(fwAD.make_dual(x, ag.tensor(1.0)))).tangent

        return df

    third = derivative(derivative(derivative(lambda x: x.sin() * x)))(ag.tensor(2.0))
    np.testing.assert_allclose(third.item(), -3 * math.sin(2) - 2 * math.cos(2), rtol=1e-6)


def test_levels_belong_to_tasks():
    """What one task enters no other task on the loop is in."""
    inside = asyncio.Event()

    async def one():
        with fwAD.dual_level():
            x = fwAD.make_dual(ag.ones(2), ag.ones(2))
            inside.set()
            await asyncio.sleep(0)
            return fwAD.unpack_dual(x * 3).tangent.tolist()

    async def other():
        await inside.wait()
        with fwAD.dual_level():
            return fwAD.unpack_dual(ag.ones(2)).tangent

    async def main():
        return await asyncio.gather(one(), other())

    assert asyncio.run(main()) == [[3.0, 3.0], None]


@pytest.mark.usefixtures("no_collector")
def test_tangents_die_with_their_tensors_and_levels():
    """Without the cycle collector."""
    with fwAD.dual_level():
        x = fwAD.make_dual(ag.ones(2), ag.ones(2))
        y = x * 2
        tangent = weakref.ref(fwAD.unpack_dual(y).tangent)
        assert tangent() is not None
        del y
        assert tangent() is None
        kept = weakref.ref(fwAD.unpack_dual(x).tangent)
    assert kept() is None


def test_a_failed_make_dual_leaves_no_trace():
    with fwAD.dual_level():
        a, wrong = ag.ones(3), ag.ones(4)
        with pytest.raises(RuntimeError, match="different size"):
            fwAD.make_dual(a, wrong)
        assert fwAD.unpack_dual(a).tangent is None
        assert a._version == 0


def test_a_dual_tensor_shows_its_tangent():
    with fwAD.dual_level():
        x = fwAD.make_dual(ag.ones(1), ag.ones(1))
        assert repr(x * 2) == "tensor([2.], tangent=tensor([2.]))"
