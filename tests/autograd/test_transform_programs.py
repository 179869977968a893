"""Programs of gradient transforms, the same in PyTorch and here."""

# ruff: noqa: B023  run within loops

from functions import function_of
from plain_parity import attempted, numbers, plainly


@plainly
def test_no_grad_outside(T, log):
    x = numbers(T, leaf=True)
    with T.no_grad():
        y = T.func.grad(T.sin)(x)
    log(y, y.requires_grad)


@plainly
def test_no_grad_inside(T, log):
    def f(x):
        with T.no_grad():
            shift = x**2
        return x**2 - shift

    x = numbers(T)
    log(T.func.grad(f)(x))
    log(T.func.grad(T.func.grad(f))(x))
    x = numbers(T, leaf=True)
    y = T.func.grad(f)(x)
    log(y, T.autograd.grad(y, x))
    with T.no_grad():
        y = T.func.grad(f)(x)
    log(y, y.requires_grad)


@plainly
def test_no_grad_nested(T, log):
    grad = T.func.grad

    def h(x):
        with T.no_grad():
            shift = grad(lambda x: 0.25 * x**4)(x)
        return x**3 - shift

    x = T.tensor(1.5, requires_grad=True)
    y = grad(h)(x)
    log(y)
    log(T.autograd.grad(y, x))

    def f(x):
        with T.no_grad():
            shift = x**3
        return x**3 - shift

    def g(x):
        r1 = grad(f)(x)
        with T.no_grad():
            shift = grad(f)(x)
        return r1 - shift

    y = grad(g)(x)
    log(y)
    log(T.autograd.grad(y, x))

    def h(x):
        with T.no_grad():
            _gv, v = T.func.grad_and_value(lambda x: x**3)(x)
        return x**3 - v

    y = grad(h)(x)
    log(y)
    log(T.autograd.grad(y, x))


@plainly
def test_no_grad_vjp(T, log):
    def h(x):
        return x**2

    x = T.tensor(2.0, requires_grad=True)
    with T.no_grad():
        out, f = T.func.vjp(h, x)
        (y,) = f(T.tensor(1.0))
    log(y, y.requires_grad, out.requires_grad)
    out, f = T.func.vjp(h, x)
    with T.no_grad():
        (y,) = f(T.tensor(1.0))
    log(y, y.requires_grad, out.requires_grad, T.autograd.grad(out, x))
    with T.no_grad():
        out, f = T.func.vjp(h, x)
    (y,) = f(T.tensor(1.0))
    log(y, out.requires_grad, y.requires_grad, T.autograd.grad(y, x))


@plainly
def test_inference_outside(T, log):
    x = numbers(T, 3)
    F = T.func
    with T.inference_mode():
        y = F.grad(lambda x: (x**2).sum())(x)
    log(y, y.is_inference())
    with T.inference_mode(), T.no_grad():
        y = F.grad(lambda x: (x**2).sum())(x)
    log(y)
    with T.inference_mode():
        o, f = F.vjp(lambda x: (x**2).sum(), x)
        log(o, f(T.tensor(1.0, dtype=T.float64)))
        log(F.jvp(lambda x: (x**2).sum(), (x,), (T.ones_like(x),)))
        log(F.jacrev(lambda x: x**2)(x))
        log(F.jacfwd(lambda x: x**2)(x))
        log(F.vmap(F.grad(lambda x: (x**2).sum()))(numbers(T, 5, 3)))
        log(F.grad(lambda x: F.vmap(lambda x: (x**2).sum())(x).sum())(x))
        log(F.grad(F.grad(lambda x: x**3))(numbers(T)))
        log(F.jacrev(F.grad(lambda x: (x**3).sum()))(x))
        log(F.hessian(lambda x: (x**3).sum())(x))

        def f(x):
            with T.inference_mode():
                c = x**2
            return x - c

        log(F.grad(lambda x: f(x).sum())(x))
        log(T.is_inference_mode_enabled())
    log(T.is_inference_mode_enabled())


@plainly
def test_captures(T, log):
    captured = numbers(T, 3, seed=5)

    def foo(x):
        captured.copy_(x)
        return (x * captured).sum()

    attempted(log, "mutate a captured Tensor", T.func.grad(foo), numbers(T, 3))
    attempted(log, "mutate a captured Tensor", lambda: T.func.vjp(foo, numbers(T, 3)))
    attempted(
        log, "mutate a captured Tensor", lambda: T.func.jvp(foo, (numbers(T, 3),), (numbers(T, 3),))
    )
    attempted(log, "", T.func.jacrev(foo), numbers(T, 3))

    def bar(x):
        captured.add_(1)
        return (x * captured).sum()

    attempted(log, "mutate a captured Tensor", T.func.grad(bar), numbers(T, 3))

    def baz(x):
        captured[0] = x[0]
        return (x * captured).sum()

    attempted(log, "mutate a captured Tensor", T.func.grad(baz), numbers(T, 3))


@plainly
def test_aux(T, log):
    x = numbers(T, 3)
    F = T.func
    for tr, n in (
        (lambda f: F.grad(f, has_aux=True)(x), "grad"),
        (lambda f: F.grad_and_value(f, has_aux=True)(x), "gv"),
        (lambda f: F.vjp(f, x, has_aux=True)[::2], "vjp"),
        (lambda f: F.jvp(f, (x,), (x,), has_aux=True), "jvp"),
        (lambda f: F.jacrev(f, has_aux=True)(x), "jr"),
        (lambda f: F.jacfwd(f, has_aux=True)(x), "jf"),
    ):
        s = (lambda t: t.sum()) if n in ("grad", "gv") else (lambda t: t.sin())
        attempted(log, r"output of function f should be a tuple", tr, lambda t: [t, t])
        attempted(log, r"output of function f should be a tuple", tr, lambda t: (t, t + 2, t + 3))
        log(tr(lambda t: (s(t), t.cos())))
        log(tr(lambda t: (s(t), {"a": t.cos(), "b": [t.tan()]})))
        for aux in (1, 1.0, "abc", None):
            attempted(log, "Expected tensors, got unsupported type", tr, lambda t: (s(t), aux))
            attempted(log, "Expected tensors, got unsupported type", tr, lambda t: (s(t), [t, aux]))


@plainly
def test_zero_unrelated(T, log):
    F = T.func
    log(F.grad(lambda x: (x["a"] ** 2.0).sum())({"a": numbers(T, 4), "b": numbers(T, 3)}))
    y = T.tensor(2.0)
    x = T.tensor(1.0)
    log(F.grad(lambda x: y)(x))
    o, f = F.vjp(lambda x: y, x)
    log(o, f(x))
    o, f = F.vjp(lambda w, x: (y, y, x), x, x + 1)
    log(o, f((x, x, x)))
    W = numbers(T, 5, 3)
    log(F.jacrev(F.jacrev(lambda x: W @ x))(numbers(T, 3)))
    log(F.jacfwd(F.jacfwd(lambda x: W @ x))(numbers(T, 3)))
    log(F.jacfwd(F.jacrev(lambda x: W @ x))(numbers(T, 3)))
    log(F.jacrev(F.jacfwd(lambda x: W @ x))(numbers(T, 3)))
    o, f = F.vjp(lambda x: x[0] * x[1][0], (x, (x, x)))
    log(o, f(x))
    o, f = F.vjp(lambda x: (x, (x, x)), x)
    log(f((x, (x, x))))
    attempted(log, "Expected pytree structure", f, ((x, (x, x)),))
    o, f = F.vjp(lambda x: (x, x), x)
    log(f(o))


@plainly
def test_vjp_outputs(T, log):
    F = T.func
    x = numbers(T, 2, 3)
    t = numbers(T, 2, 3, seed=4)
    for o in (None, ()):
        attempted(
            log,
            r"vjp\(f, \*primals\): Expected f to be a function that has non-empty output",
            lambda: F.vjp(lambda _: o, x),
        )
    for o in (1, True, 12.2, "abc"):
        attempted(
            log,
            r"vjp\(f, \*primals\): expected f\(\*primals\) to return only tensors",
            lambda: F.vjp(lambda _: o, x),
        )
    o, f = F.vjp(lambda x: [x, x.sum()], x)
    log(o, f([t, t.sum()]))
    o, f = F.vjp(lambda x: {"x": x, "s": x.sum()}, x)
    log(o, f({"x": t, "s": t.sum()}))

    def comp(x):
        out = x.sum()
        return [(out, {"a": x, "out": [x, out]})]

    o, f = F.vjp(comp, x)
    log(o, f([(t.sum(), {"a": t, "out": [t, t.sum()]})]))
    for j in (F.jacrev, F.jacfwd):
        for o in (None, ()):
            attempted(
                log,
                r"(vjp|jvp).+: Expected f to be a function that has non-empty output",
                j(lambda _: o),
                x,
            )
        for o in (1, True, 12.2, "abc"):
            attempted(
                log,
                r"(vjp|jvp).+: expected f\(\*primals\) to return only tensors",
                j(lambda _: o),
                x,
            )
        log(j(lambda x: [x, x.sum()])(x), j(lambda x: {"x": x, "s": x.sum()})(x), j(comp)(x))


@plainly
def test_index(T, log):
    def f(v):
        lp = T.ones(())
        val = T.zeros(()) > 0
        lp[val] = 0
        return v

    log(T.func.grad(f)(numbers(T)))

    def f2(v):
        v = v.clone()
        v[v > 0] = 0
        return v.sum()

    log(T.func.grad(f2)(numbers(T, 30)))
    log(T.func.grad(lambda x: x * T.tensor(2.0))(T.tensor(3.14)))
    log(T.func.grad(lambda x: T.flatten(x).sum())(numbers(T, 2, 3, 4)))
    log(T.func.grad(lambda x: x.clone().sin_())(numbers(T)))

    def foo(x):
        y = x.clone()
        y0 = y[0]
        y0.sin_()
        return y.sum()

    log(T.func.grad(foo)(numbers(T, 3)))

    def foo(x):
        y = x.clone()
        y0 = y[0]
        y.sin_()
        return y0

    log(T.func.grad(foo)(numbers(T, 3)))

    def foo(x):
        x = x.clone()
        x.view([]).sin_()
        return x

    log(T.func.grad(foo)(numbers(T)))
    log(T.func.grad(lambda x: x.view([]).sin())(numbers(T)))


@plainly
def test_argnums(T, log):
    x = numbers(T)
    y = numbers(T, seed=3)
    F = T.func
    for a in (-3, 2, [0], ("0",), (0, 0), (0, -2), (), 0.0, (0.0,), ((0, 1), 0)):
        for tr in (F.grad, F.grad_and_value, F.jacrev, F.jacfwd, F.hessian):
            attempted(
                log,
                "positional inputs|int or Tuple|must be int|must be unique|must be non-empty",
                lambda: tr(T.mul, argnums=a)(x, y),
            )
    for a in (0, 1, (0,), (0, 1), (1, 0), -2, -1, (-2,), (-2, -1)):
        for tr in (F.grad, F.grad_and_value, F.jacrev):
            log(tr(T.mul, argnums=a)(x, y))

    def f(a, b):
        u, v = a
        return 1 * u + 2 * v + 3 * b["foo"]

    args = ((x, x), {"foo": x})
    for a in (0, (0,), (0, 1)):
        log(
            F.grad(f, argnums=a)(*args),
            F.jacrev(f, argnums=a)(*args),
            F.jacfwd(f, argnums=a)(*args),
        )
    log(F.grad(lambda x, y: (x * y).sum())(x, y=y))
    attempted(log, "", F.grad(lambda x, y: x * y), x, 3)
    attempted(log, "", F.grad(lambda x, y: x * y, argnums=1), x, 3)
    attempted(log, "", F.grad(lambda x: x * 2), T.ones(3))
    attempted(log, "", F.grad(lambda x: 2), T.ones(()))
    attempted(log, "", F.grad(lambda x: (x,)), T.ones(()))
    attempted(log, "", F.grad(lambda x: x * x), T.tensor(3))
    attempted(log, "", F.jacrev(lambda x: x * x), T.tensor([3]))
    attempted(log, "", F.jacfwd(lambda x: x * x), T.tensor([3]))


@plainly
def test_func_setmat(T, log):
    def setup_context(ctx, inputs, output):
        ctx.set_materialize_grads(False)

    def backward(ctx, gx, gy):
        log(gx is None, gy is None)
        return gx, gy

    A = function_of(T, lambda x, y: (x, y), backward, setup_context=setup_context)

    def f(y, x):
        x, y = A.apply(x, y)
        return x**2

    x = T.tensor(2.0)
    y = T.tensor(3.0)
    log(T.func.grad(f)(y, x))
    log(T.func.grad(T.func.grad(f))(y, x))


@plainly
def test_func_nig(T, log):
    def setup_context(ctx, inputs, output):
        pass

    def backward(ctx, g):
        log(ctx.needs_input_grad[0], ctx.needs_input_grad[1])
        return None, None

    A = function_of(T, lambda x, y: x * y, backward, setup_context=setup_context)
    x = T.tensor(2.0)
    y = T.tensor(3.0)
    log(T.func.grad(A.apply)(x, y))
    log(T.func.grad(T.func.grad(A.apply))(x, y))


@plainly
def test_func_name(T, log):
    class FooBar(T.autograd.Function):
        @staticmethod
        def forward(x):
            return x.clone()

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, g):
            return g

    def f(x):
        y = FooBar.apply(x)
        log("FooBar" in type(y.grad_fn).__name__)
        return y

    T.func.grad(f)(T.tensor(1.0))


@plainly
def test_func_returns_input(T, log):
    for save_for in ("jvp", "vjp"):
        for save in ("input", "output", "neither"):
            for dirty in (True, False):
                for rg in (True, False):

                    def setup_context(ctx, inputs, output):
                        fn = ctx.save_for_forward if save_for == "jvp" else ctx.save_for_backward
                        if dirty:
                            ctx.mark_dirty(inputs[0])
                        if save == "input":
                            fn(inputs[0])
                        elif save == "output":
                            fn(output)

                    A = function_of(
                        T,
                        lambda x: x,
                        lambda ctx, g: g,
                        setup_context=setup_context,
                        jvp=lambda ctx, t: t.add_(0) if dirty else t.view(t.shape),
                    )

                    def fn(x):
                        return A.apply(x.clone())

                    msg = "An input that has been returned as-is"
                    a = T.tensor(2.0, requires_grad=rg)
                    at = T.tensor(2.0, requires_grad=rg)
                    log((save_for, save, dirty, rg))
                    attempted(log, msg, T.func.grad(fn), a)
                    attempted(log, msg, T.func.jvp, fn, (a,), (at,))
                    a = T.tensor(2.0, requires_grad=rg).clone()
                    at = T.tensor(2.0, requires_grad=rg).clone()

                    def g():
                        b = A.apply(a)
                        return b is a

                    attempted(log, msg, g)
                    fw = T.autograd.forward_ad

                    def g():
                        with fw.dual_level():
                            d = fw.make_dual(a, at)
                            b = A.apply(d)
                            return b is d

                    attempted(log, msg, g)
