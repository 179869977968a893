"""Programs of dual numbers, the same in PyTorch and here."""

from plain_parity import attempted, numbers, plainly


def fw(T):
    return T.autograd.forward_ad


@plainly
def test_api(T, log):
    A = fw(T)
    foo = numbers(T, 5)
    t = T.ones(5, dtype=T.float64)
    attempted(
        log, "Trying to create a dual Tensor for forward AD but no level", A.make_dual, foo, t
    )
    with A.dual_level():
        bar = A.make_dual(foo, t)
        log(A.unpack_dual(bar))
        log(
            A.unpack_dual(bar)[1] is t,
            A.unpack_dual(bar).primal.requires_grad,
            bar._is_view(),
            bar._base is foo,
        )
        attempted(log, "already has a forward gradient", A.make_dual, bar, t)
        attempted(log, "itself has a forward gradient", A.make_dual, foo, bar)

        def g():
            with A.dual_level():
                pass

        attempted(log, "Nested forward mode AD is not supported", g)
        attempted(log, "", A.make_dual, foo, t[:2])
        attempted(log, "", A.make_dual, foo, t.to(T.float32))
        attempted(log, "", A.make_dual, T.ones(3, dtype=T.long), T.ones(3))
        attempted(log, "", A.make_dual, T.ones(3), T.ones(3, dtype=T.long))
        attempted(log, "", A.make_dual, T.ones(3), T.ones(3, dtype=T.complex64))
        attempted(log, "", A.make_dual, T.ones(3, dtype=T.complex64), T.ones(3))
        log(A.unpack_dual(foo).tangent, A.unpack_dual(foo).primal is foo)
        d = bar.detach()
        log(A.unpack_dual(d).tangent is None)
        d2 = bar.data
        log(A.unpack_dual(d2).tangent is None)
        log(A.unpack_dual(bar.clone()).tangent)
        log(bar.requires_grad, A.unpack_dual(bar).tangent.requires_grad)
        with T.no_grad():
            log(A.unpack_dual(bar * 2).tangent)
        with T.inference_mode():
            attempted(log, "", lambda: A.unpack_dual(bar * 2).tangent)
        with A._set_fwd_grad_enabled(False):
            log(A.unpack_dual(bar * 2).tangent, A.unpack_dual(bar).tangent)
    log(A.unpack_dual(bar).tangent)
    attempted(log, "", lambda: A.exit_dual_level())
    number = A.enter_dual_level()
    log(number)
    A.exit_dual_level()
    with A.dual_level() as number:
        log(number)
        attempted(log, "", A.exit_dual_level, level=3)
    with A.dual_level():
        bar = A.make_dual(foo, t, level=0)
        log(A.unpack_dual(bar, level=0).tangent)
        attempted(log, "", A.make_dual, foo, t, level=1)
        attempted(log, "", lambda: A.unpack_dual(bar, level=1))
        attempted(log, "", A.make_dual, foo, t, level=-1)


@plainly
def test_views(T, log):
    A = fw(T)
    foo = numbers(T, 5, 3)
    t = numbers(T, 5, 3, seed=2)
    with A.dual_level():
        d = A.make_dual(foo, t)
        for f in (
            lambda x: x[0],
            lambda x: x[:, 1],
            lambda x: x.t(),
            lambda x: x.reshape(3, 5),
            lambda x: x.view(-1),
            lambda x: x.unsqueeze(0),
            lambda x: x.expand(2, 5, 3),
            lambda x: x.narrow(0, 1, 2),
            lambda x: x.select(1, 1),
            lambda x: x.split(2)[1],
            lambda x: x.chunk(2)[0],
            lambda x: x.unbind()[2],
            lambda x: x.diagonal(),
            lambda x: x.permute(1, 0),
            lambda x: x.movedim(0, 1),
            lambda x: x.squeeze(),
            lambda x: x[1:3, ::2],
            lambda x: x.view(x.shape),
            lambda x: x.flatten(),
            lambda x: x.view(5, 1, 3),
            lambda x: x.alias() if hasattr(x, "alias") else x,
        ):
            try:
                v = f(d)
                u = A.unpack_dual(v)
                log(u.tangent, u.tangent._is_view() if u.tangent is not None else None)
            except AttributeError as e:
                log("skip")
                print("   ", T.__name__, e)


@plainly
def test_inplace(T, log):
    A = fw(T)

    def fresh():
        return numbers(T, 4), numbers(T, 4, seed=1)

    with A.dual_level():
        x, t = fresh()
        d = A.make_dual(x, t)
        d.mul_(2)
        log(d, A.unpack_dual(d).tangent, t, x)
        x, t = fresh()
        d = A.make_dual(x.clone(), t.clone())
        y = T.ones(4, dtype=T.float64)
        y.mul_(d)
        log(y, A.unpack_dual(y).tangent)
        x, t = fresh()
        d = A.make_dual(x, t)
        v = d[:2]
        v.mul_(3)
        log(A.unpack_dual(d).tangent, A.unpack_dual(v).tangent)
        x, t = fresh()
        d = A.make_dual(x, t)
        v = d[:2]
        d.mul_(3)
        log(A.unpack_dual(v).tangent)
        y = T.zeros(4, dtype=T.float64)
        v = y[1:3]
        x, t = fresh()
        d = A.make_dual(x, t)
        v.copy_(d[:2])
        log(A.unpack_dual(y).tangent, A.unpack_dual(v).tangent)
        y = T.zeros(4, dtype=T.float64)
        v = y[1:3]
        y.copy_(d)
        log(A.unpack_dual(y).tangent, A.unpack_dual(v).tangent)
        y = T.zeros(4, dtype=T.float64)
        y[1:3] = d[:2]
        log(A.unpack_dual(y).tangent)
        x, t = fresh()
        d = A.make_dual(x, t)
        d.zero_()
        log(A.unpack_dual(d).tangent)
        x, t = fresh()
        d = A.make_dual(x, t)
        d.fill_(2.0)
        log(A.unpack_dual(d).tangent)
        x, t = fresh()
        d = A.make_dual(x, t)
        d[1] = 5.0
        log(A.unpack_dual(d).tangent)
        x, t = fresh()
        d = A.make_dual(x, t)
        d.copy_(T.ones(4))
        log(A.unpack_dual(d).tangent)
        base = T.zeros(2, 3, dtype=T.float64)
        view = base[0]
        foo = numbers(T, 3)
        d = A.make_dual(foo, T.ones(3, dtype=T.float64))
        view.add_(d)
        log(A.unpack_dual(base).tangent, A.unpack_dual(view).tangent)
        base.mul_(2)
        log(A.unpack_dual(view).tangent)
        # view made before
        foo = numbers(T, 2)
        v0 = foo[:1]
        d = A.make_dual(foo, T.ones(2, dtype=T.float64))
        log(A.unpack_dual(v0).tangent)
        # leaf requires grad
        x = numbers(T, 3, leaf=True)
        d = A.make_dual(x, T.ones(3, dtype=T.float64))
        log(d.requires_grad, d.is_leaf)
        attempted(log, "leaf", lambda: d.mul_(2))
        z = d * 2
        z.mul_(3)
        log(A.unpack_dual(z).tangent)
        # multi-output
        x, t = fresh()
        d = A.make_dual(x, t)
        a, _b = d.split(2)
        attempted(log, "", a.mul_, 2)
        c = T.cat([d, d])
        log(A.unpack_dual(c).tangent)
        c = T.stack([d, T.ones(4, dtype=T.float64)])
        log(A.unpack_dual(c).tangent)
        log(A.unpack_dual(T.where(d > 0, d, T.zeros(4, dtype=T.float64))).tangent)
        m = d.max(0)
        log(A.unpack_dual(m.values).tangent, A.unpack_dual(m.indices).tangent)
        log(
            A.unpack_dual(d > 0).tangent,
            A.unpack_dual(d.sort().values).tangent,
            A.unpack_dual(d.to(T.float32)).tangent,
            A.unpack_dual(d.float()).tangent,
        )


@plainly
def test_mixed(T, log):
    A = fw(T)
    x = numbers(T, 3, leaf=True)
    t = numbers(T, 3, seed=1, leaf=True)
    with A.dual_level():
        d = A.make_dual(x, t)
        y = (d**3).sum()
        p, tt = A.unpack_dual(y)
        log(p, tt, tt.requires_grad)
        log(T.autograd.grad(tt, [x, t], retain_graph=True))
        log(T.autograd.grad(y, x, retain_graph=True))
        g = T.autograd.grad(y, x, create_graph=True)[0]
        log(A.unpack_dual(g).tangent)
    with A.dual_level():
        x2 = numbers(T, 3, leaf=True)
        d = A.make_dual(x2.detach(), t.detach()).requires_grad_()
        y = (d**3).sum()
        (g,) = T.autograd.grad(y, d, create_graph=True)
        log(A.unpack_dual(g).tangent)
        y = (d**3).sum()
        out = T.autograd.grad(y, d)[0]
        log(A.unpack_dual(out).tangent)
    with A.dual_level():
        x = numbers(T, 3, leaf=True)
        gt = A.make_dual(T.ones(3, dtype=T.float64), t.detach())
        (g,) = T.autograd.grad(x * x, x, gt)
        log(A.unpack_dual(g).tangent)
    c = numbers(T, 3, dtype="complex128")
    ct = numbers(T, 3, seed=4, dtype="complex128")
    with A.dual_level():
        d = A.make_dual(c, ct)
        log(
            A.unpack_dual(d * d).tangent,
            A.unpack_dual(d.abs()).tangent,
            A.unpack_dual(d.exp()).tangent,
        )


@plainly
def test_decor(T, log):
    A = fw(T)
    with A.dual_level():
        d = A.make_dual(T.ones(2), T.ones(2))

        def gen():
            yield d * 2

        log([A.unpack_dual(v).tangent for v in gen()])
        log(A._is_fwd_grad_enabled())
        with T.no_grad():
            log(A._is_fwd_grad_enabled())
        with T.inference_mode():
            log(A._is_fwd_grad_enabled())
    A._set_fwd_grad_enabled(False)
    log(A._is_fwd_grad_enabled())
    A._set_fwd_grad_enabled(True)
    log(A._is_fwd_grad_enabled())


@plainly
def test_custom(T, log):
    A = fw(T)

    class Mul(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, y, k):
            ctx.save_for_forward(x, y)
            ctx.k = k
            return x * y * k, x + 1

        @staticmethod
        def backward(ctx, g, h):
            return None, None, None

        @staticmethod
        def jvp(ctx, xt, yt, kt):
            x, y = ctx.saved_tensors
            log(xt is None, yt is None, kt is None)
            return (xt * y + x * yt) * ctx.k, xt

    x, t = numbers(T, 3), numbers(T, 3, seed=1)
    y = numbers(T, 3, seed=2)
    with A.dual_level():
        d = A.make_dual(x, t)
        o = Mul.apply(d, y, 2.0)
        log([A.unpack_dual(v).tangent for v in o])
        o = Mul.apply(x, y, 2.0)
        log([A.unpack_dual(v).tangent for v in o])

    def mk(jvp, fwd=lambda ctx, x: x * 2):
        class F(T.autograd.Function):
            forward = staticmethod(fwd)

            @staticmethod
            def backward(ctx, g):
                return g

        if jvp:
            F.jvp = staticmethod(jvp)
        return F

    with A.dual_level():
        d = A.make_dual(x, t)
        attempted(log, "", mk(None).apply, d)
        attempted(log, "invalid number|incorrect number", mk(lambda ctx, t: (t, t)).apply, d)
        attempted(log, "different size", mk(lambda ctx, t: t[:1]).apply, d)
        attempted(log, "", mk(lambda ctx, t: 3).apply, d)
        attempted(log, "", mk(lambda ctx, t: t.to(T.float32)).apply, d)
        attempted(
            log,
            "is not a view|not returning a view",
            mk(lambda ctx, t: t.clone(), lambda ctx, x: x.view(x.shape)).apply,
            d,
        )
        o = mk(lambda ctx, t: t.view(t.shape), lambda ctx, x: x.view(x.shape)).apply(d)
        log(A.unpack_dual(o).tangent)
        attempted(
            log,
            "not returning a view",
            mk(lambda ctx, t: t, lambda ctx, x: x.view(x.shape)).apply,
            d,
        )

        def inp(ctx, x):
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        attempted(
            log, "inplace", mk(lambda ctx, t: t * 2, inp).apply, A.make_dual(x.clone(), t.clone())
        )
        o = mk(lambda ctx, t: t.mul_(2), inp).apply(A.make_dual(x.clone(), t.clone()))
        log(o, A.unpack_dual(o).tangent)

        def both(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 2

        o = mk(lambda ctx, t: t * 2, both).apply(d)
        log(A.unpack_dual(o).tangent)
