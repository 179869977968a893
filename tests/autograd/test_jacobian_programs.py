"""Programs of Jacobians and tangents, the same in PyTorch and here."""

# ruff: noqa: B023  run within loops

from functools import partial

from functions import function_of
from plain_parity import attempted, numbers, plainly


def jacs(T):
    return (T.func.jacrev, T.func.jacfwd)


@plainly
def test_jac_simple(T, log):
    for j in jacs(T):
        log(j(T.sin)(numbers(T, 3)), j(T.sin)(numbers(T, 2, 3)))
        log(j(lambda x: x[0, 1:].unsqueeze(-1))(numbers(T, 2, 4)))
        log(T.func.vmap(j(T.sin))(numbers(T, 2, 3)))
        log(j(j(lambda x: x.sin().sum()))(numbers(T, 3)))
        x = numbers(T, 3)
        y = numbers(T, 3, seed=2)
        log(j(T.multiply, argnums=1)(x, y))
        log(j(T.multiply, argnums=(0,))(x, y))
        log(j(T.multiply, argnums=(0, 1))(x, y))

        def f(x, y):
            return (2 * x + 3 * y, 4 * x + 5 * y)

        for a in (0, (0,), (0, 1), 1):
            log(j(f, argnums=a)(x, y))

        def f(x, y):
            return {"l": 2 * x + 3 * y, "r": 4 * x + 5 * y}

        log(j(f, argnums=(0, 1))(x, y))

        def f(a, b, c):
            return a[0] + a[1] * 2 + b * 3 + c * 4

        z = numbers(T)
        args = ((z, z), z, z)
        for a in (0, (0,), (0, 1), (0, 1, 2)):
            log(j(f, argnums=a)(*args))

        def f(a, b, c):
            return (a[0] + a[1] * 2, {"foo": b * 3 + c * 4})

        for a in (0, (0,), (0, 1)):
            log(j(f, argnums=a)(*args))

        def f(d):
            return {"c": d["a"].sin(), "d": d["b"].cos()}

        log(j(f)({"a": x, "b": y}))
        log(j(lambda x: x)(z), j(lambda x: x)(numbers(T, 1)))
        log(j(lambda x, y: x, argnums=(0, 1))(numbers(T, 2, 3), numbers(T, 2, 3)))
        w = numbers(T, 2, 3)
        log(j(lambda x: w)(x))
        attempted(log, "xpected", j(lambda x, y: ()), x, y)
        log(j(lambda t, i: t + i)(numbers(T, 3, 3), 3))

        log(j(lambda x: x * 2)(T.zeros(0)))
        log(j(lambda x: x.sum())(T.zeros(0)))
        log(j(lambda x: x[:0])(T.zeros(2)))


@plainly
def test_jac_ref(T, log):
    for j in jacs(T):

        def ref(f, inputs):
            log(T.autograd.functional.jacobian(f, inputs), j(lambda i: f(*i))(inputs))

        ref(lambda x: 3 * x**2, (numbers(T, 2, 3, 5),))
        ref(lambda x, y: (x.cos() * x) @ y.sin(), (numbers(T, 2, 3), numbers(T, 3, 5)))
        ref(
            lambda x, y: ((x * x) @ y, x @ (x.sum(1) * y), y.sum()),
            (numbers(T, 5, 3), numbers(T, 3, 5)),
        )
        ref(lambda x, y: (x, y, x, y), (numbers(T, 2), numbers(T, 3)))
        ref(lambda x, y: (x.sum(), y.sum(), x * y), (numbers(T, 3), numbers(T, 3)))
        ref(lambda x: T.stack([x, x, x]), (numbers(T),))
        ref(lambda x, y: (y.sum(), x * y), (numbers(T), numbers(T, 1)))


@plainly
def test_jac_inplace(T, log):
    for j in (T.func.jacrev,):

        def f(x, y):
            y.copy_(x)
            return y

        x, y = numbers(T, 2), numbers(T, 2, seed=3)
        log(j(f)(x, y), y)

        def g(x, y, z):
            x[:2] = y
            return T.stack([(x**2).sum(), (z**3).sum()])

        x = numbers(T, 3)
        log(j(g, argnums=(1, 2))(x, numbers(T, 2, seed=1), numbers(T, 2, seed=2)), x)
        attempted(log, "", j(lambda x: x.mul_(2)), numbers(T, 3))
        attempted(log, "", j(f, argnums=(0, 1)), numbers(T, 3), numbers(T, 3))
    x = numbers(T, 3)
    attempted(log, "", T.func.grad(lambda x: x.mul_(2).sum()), x)
    log(x)
    y = numbers(T, 3)

    def h(x, y):
        y.mul_(2)
        return (x * y).sum()

    log(T.func.grad(h)(x, y), y)
    log(T.func.vmap(h)(x, y), y)
    log(T.func.jvp(lambda x: x.mul_(2), (x,), (y,)), x, y)


@plainly
def test_chunk(T, log):
    def f(x, y):
        return ((x.sin(), x + y), (x + 2, x.sum()))

    x = numbers(T, 4, 2)
    y = numbers(T, 1, 2)
    for c in (1, 2, 3, 7, 10, 1000):
        for pc in (True, False):
            log(T.func.jacrev(f, argnums=(0, 1), chunk_size=c, _preallocate_and_copy=pc)(x, y))
        log(T.func.jacfwd(f, argnums=(0, 1), chunk_size=c)(x, y)) if False else None
    for c in (0, -2):
        attempted(
            log,
            "jacrev: `chunk_size` should be greater than 0.",
            lambda: T.func.jacrev(f, chunk_size=c)(x, y),
        )

    def g(x):
        return ((x.sin(), x), (x + 2, x.sum()))

    F = T.func
    log(F.vmap(F.jacrev(F.jacrev(g, chunk_size=3), chunk_size=3))(x))

    def setup_context(ctx, i, o):
        pass

    def backward(ctx, g):
        g.nonzero()
        return g

    Dyn = function_of(T, lambda i: i.clone(), backward, setup_context=setup_context)
    log(F.jacrev(lambda x: Dyn.apply(x), chunk_size=1)(numbers(T, 3, 3)))
    attempted(
        log,
        "vmap: We do not support batching operators that can output dynamic shape",
        F.jacrev(lambda x: Dyn.apply(x), chunk_size=2),
        numbers(T, 3, 3),
    )
    attempted(log, "dynamic shape", F.vmap(lambda x: x.nonzero()), numbers(T, 3, 3))
    attempted(log, "dynamic shape", F.vmap(lambda x: x[x > 0]), numbers(T, 3, 3))


@plainly
def test_complex(T, log):
    x = numbers(T, 1, dtype="complex64")
    r = numbers(T, 1)
    for n, j in zip(("jacrev", "jacfwd"), jacs(T), strict=False):
        attempted(log, n + ": Expected all inputs", j(lambda x: x * 2), x)
        attempted(log, n + ": Expected all outputs", j(lambda x: x * 0.5j), r)
        attempted(log, n + ": Expected all outputs", j(lambda x: (x * 0.5j).clone()), r)


@plainly
def test_hessian(T, log):
    def ref(f, inputs):
        log(T.autograd.functional.hessian(f, inputs), T.func.hessian(lambda i: f(*i))(inputs))

    log(T.func.hessian(T.sin)(numbers(T, 3)))
    ref(lambda x: (3 * x**2).sum(), (numbers(T, 2, 3, 5),))
    ref(
        lambda x, y, z: ((x.relu() * x) @ y.sin() @ z).sum(),
        (numbers(T, 2, 3), numbers(T, 3, 5), numbers(T, 5, 5)),
    )
    ref(lambda x, y: (x**2).sum(), (numbers(T, 2), numbers(T, 3)))
    ref(lambda x, y: T.ones([]), (numbers(T, 2), numbers(T, 3)))
    x1 = numbers(T, 3, 5, 2)
    A = numbers(T, 3, 2, 2)

    def loss(A, x1, x2):
        h = (A @ (x1.T)).T
        return ((x2 - h) ** 2).sum()

    F = T.func
    log(F.vmap(F.jacrev(F.jacrev(loss)))(A, x1, x1))
    log(F.vmap(F.hessian(loss))(A, x1, x1))


@plainly
def test_jvp(T, log):
    F = T.func
    x = numbers(T, 2, 3)
    t = numbers(T, 2, 3, seed=1)
    y = numbers(T, 2, 3, seed=2)
    ty = numbers(T, 2, 3, seed=3)
    log(F.jvp(T.sin, (x,), (t,)))
    log(F.jvp(lambda x, y: x * y, (x, y), (t, ty)))
    one = T.tensor(1.0)
    log(
        F.jvp(
            lambda x, y, z: x[0] + 2 * x[1] + 3 * y + 4 * z,
            ((one, one), one, one),
            ((one, one), one, one),
        )
    )

    def f(x):
        return x

    attempted(log, "Expected primals to be a tuple", F.jvp, f, one, one)
    attempted(log, "same python structure", F.jvp, f, ((one, one), one), (one, one))
    attempted(log, "only contain Tensors", F.jvp, f, ((one, one), 1), ((one, one), one))
    attempted(log, "only contain Tensors", F.jvp, f, ((one, one), 1), ((1, one), one))
    attempted(log, "at least one Tensor", F.jvp, f, ((),), ((),))
    attempted(log, "at least one Tensor", F.jvp, f, (), ())
    attempted(log, "be a tuple", F.jvp, T.sin, x, (t,))
    attempted(log, "same python structure", F.jvp, T.sin, (x,), t)
    attempted(log, "same python structure", F.jvp, T.sin, (x,), [t])
    attempted(log, "only contain Tensors", F.jvp, T.sin, (1.0,), (t,))
    attempted(log, "only contain Tensors", F.jvp, T.sin, (x,), (1.0,))
    attempted(log, "same python structure", F.jvp, T.sin, (x,), (t, t))
    attempted(log, "same python structure", F.jvp, T.sin, (x, x), (t, t, t))
    attempted(log, "", F.jvp, T.sin, (x,), (t[0],))
    attempted(log, "", F.jvp, T.sin, (x,), (t.to(T.float32),))
    attempted(log, "", F.jvp, T.sin, (T.ones(3, dtype=T.long),), (T.ones(3),))
    log(F.jvp(lambda x, y: x, (x, y), (t, ty)))
    log(F.jvp(lambda x: y, (x,), (t,)))
    attempted(log, "strict", lambda: F.jvp(lambda x: (x, y), (x,), (t,), strict=True))
    log(F.jvp(lambda x: (x.sin(), x.cos()), (x,), (t,)))
    log(F.jvp(lambda x: x + x.new_tensor(0.5), (x,), (T.zeros_like(x),)))
    for o in (None, ()):
        attempted(
            log,
            r"jvp\(f, primals, tangents\): Expected f to be a function that has non-empty output",
            F.jvp,
            lambda _: o,
            (x,),
            (t,),
        )
    for o in (1, True, 12.2, "abc"):
        attempted(
            log,
            r"jvp\(f, primals, tangents\): expected f\(\*primals\) to return only tensors",
            F.jvp,
            lambda _: o,
            (x,),
            (t,),
        )
    log(
        F.jvp(lambda x: [x, x.sum()], (x,), (t,)),
        F.jvp(lambda x: {"x": x, "s": x.sum()}, (x,), (t,)),
    )
    fw = T.autograd.forward_ad
    z = numbers(T)
    one = T.ones_like(z)
    with fw._set_fwd_grad_enabled(False):
        log(F.jvp(T.sin, (z,), (one,)))

    def f(x):
        with fw._set_fwd_grad_enabled(False):
            s = x**2
        return x**2 - s

    log(F.jvp(f, (z,), (one,)))
    log(F.jvp(lambda x: F.jvp(f, (x,), (one,))[1], (z,), (one,)))
    with fw._set_fwd_grad_enabled(True):
        log(F.jvp(f, (z,), (one,)))

    def forward(ctx, x):
        log(fw._is_fwd_grad_enabled())
        return x * x

    MySq = function_of(T, forward, lambda ctx, g: g)
    MySq.apply(numbers(T, 3, leaf=True))

    class MySin(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            _, n = F.jvp(T.cos, (x,), (T.ones_like(x),))
            ctx.save_for_backward(x)
            return -n

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            _, c = F.jvp(T.sin, (x,), (T.ones_like(x),))
            return g * c

    z = numbers(T, leaf=True)
    o = MySin.apply(z)
    log(o, T.autograd.grad(o, z))
    log(F.jvp(F.grad(T.sin), (numbers(T),), (one,)))
    log(F.grad(lambda x: F.jvp(T.sin, (x,), (one,))[1])(numbers(T)))
    log(F.jvp(lambda x: F.jvp(T.sin, (x,), (x,)), (numbers(T),), (one,)))


@plainly
def test_linearize(T, log):
    F = T.func
    x = numbers(T, 3, 1)
    t = numbers(T, 3, 1, seed=1)
    for f in (lambda x: x.cos(), lambda x: (x.cos(), x.sum())):
        o, j = F.linearize(f, x)
        log(o, j(t))
        log(F.vmap(j)(numbers(T, 3, 3, 1)))

    def f(x):
        z = T.ones(3, dtype=T.float64)
        return F.grad(lambda x: z @ x)(x)

    _, j = F.linearize(f, numbers(T, 3))
    log(j(numbers(T, 3, seed=1)))

    def f(a):
        x = a["x"]
        y, z = a["yz"]
        return {"a": x.sum(), "b": {"c": y + z, "d": (x * z, y.exp())}}

    o, j = F.linearize(f, {"x": x, "yz": (x, x + 1)})
    log(o, j({"x": t, "yz": (t, t + 1)}))
    _, j = F.linearize(lambda x: x.sin(), x)
    attempted(log, "to have the same argspec as the primals", j, (t, t))
    attempted(log, "in flattened pytree doesn't match the shape", j, t.unsqueeze(0))
    attempted(log, "in flattened pytree doesn't match the dtype", j, t.to(T.float32))


@plainly
def test_inplace_view(T, log):
    F = T.func
    B = 2

    def push(f):
        return lambda x, xt, y, yt: F.jvp(f, (x, y), (xt, yt))

    def f(x, y):
        x.copy_(y)
        return x

    x, xt, y, yt = (numbers(T, 3, B, seed=i) for i in range(4))
    log(F.vmap(push(f), in_dims=1)(x, xt, y, yt), x)
    y = numbers(T, 3, 3)[:, 1]
    yt = numbers(T, 6)[::2]
    log(F.vmap(push(f), in_dims=(1, 1, None, None))(x, xt, y, yt), x)

    def f(x, y):
        v = x[:, ::2]
        v.copy_(y)
        return v, x

    x, xt = numbers(T, 2, 6, B), numbers(T, 2, 6, B, seed=1)
    y, yt = numbers(T, 2, B, 3), numbers(T, 2, B, 3, seed=4)
    log(F.vmap(push(f), in_dims=(2, 2, 1, 1))(x, xt, y, yt), x)

    def f(x, y):
        v = x[0, ::2]
        x.copy_(y)
        return x, v

    x, xt, y, yt = (
        numbers(T, 2, B, 6),
        numbers(T, 2, 6, B, seed=1),
        numbers(T, 2, B, 6, seed=2),
        numbers(T, 2, B, 6, seed=3),
    )
    log(F.vmap(push(f), in_dims=(1, 2, 1, 1))(x, xt, y, yt), x)

    def f(x, y):
        x = x.clone()
        v = x[0]
        v.copy_(y)
        return v, x

    def pj(x, y, yt):
        return F.jvp(partial(f, x), (y,), (yt,))

    log(
        F.vmap(pj, in_dims=(1, 1, 1))(
            numbers(T, 2, B, 6), numbers(T, 6, B, seed=1), numbers(T, 6, B, seed=2)
        )
    )

    def f(x, y):
        x = x.clone()
        v = x[0]
        x.copy_(y)
        return v, x

    log(
        F.vmap(pj, in_dims=(1, 2, 2))(
            numbers(T, 2, B, 6), numbers(T, 2, 6, B, seed=1), numbers(T, 2, 6, B, seed=2)
        )
    )


@plainly
def test_compose(T, log):
    F = T.func
    x = numbers(T, 3)
    z = numbers(T)
    log(F.grad(lambda x: F.vmap(T.sin)(x).sum())(x))
    log(F.grad(lambda x: F.vjp(T.sin, x)[1](x)[0].sum())(x))
    log(F.vmap(F.grad(T.sin))(x))
    log(F.vmap(F.vmap(T.sin))(numbers(T, 2, 3)))
    _, f = F.vjp(T.sin, x)
    log(F.vmap(lambda x: F.vjp(T.sin, x)[1](x))(x))
    log(F.vmap(lambda v: f(v)[0])(numbers(T, 5, 3)))
    y, f = F.vjp(F.grad(T.sin), z)
    log(y, f(z))
    y, f = F.vjp(F.vmap(T.sin), x)
    log(y, f(x))
    y, f = F.vjp(T.sin, x)
    y, g = F.vjp(lambda x: f(x)[0], x)
    log(y, g(x))
    x1 = numbers(T, leaf=True)
    y = F.grad(T.sin)(x1)
    log(T.autograd.grad(y, x1))

    def f(x):
        _o, v = F.vjp(T.sin, x)
        return F.grad(lambda y: v(y)[0])(z)

    log(f(z))
    log(F.grad(lambda y: F.vjp(F.grad(lambda x: -T.cos(x)), z)[1](y)[0])(z))

    def f(x):
        x.requires_grad_()
        return x.sin().sum()

    for tr in (F.vmap(f), F.grad(f), F.vmap(F.grad(f)), F.jacrev(f), F.jacfwd(f), F.hessian(f)):
        attempted(log, r"Tensor.requires_grad_\(\)", tr, x)
    attempted(log, r"Tensor.requires_grad_\(\)", F.grad(F.grad(f)), z)

    def f(x):
        y = x.sin()
        y.retain_grad()
        return y.sum()

    attempted(log, r"Tensor.retain_grad\(\)", F.grad(f), x)
    xb = numbers(T, 5, 3)
    fn = T.autograd.functional
    for f in (
        lambda x: fn.jacobian(lambda x: x.sin().sum(), x),
        lambda x: fn.vjp(lambda x: x.sin().sum(), x),
        lambda x: fn.jvp(lambda x: x.sin().sum(), (x,), (T.ones_like(x),)),
        lambda x: fn.hessian(lambda x: x.sin().sum(), x),
        lambda x: fn.hvp(lambda x: x.sin().sum(), x, x),
        lambda x: fn.vhp(lambda x: x.sin().sum(), x, x),
    ):
        attempted(log, "autograd.functional", F.vmap(f), xb)
        attempted(log, "autograd.functional", F.grad(f), z)
    attempted(
        log,
        "",
        F.vmap(
            lambda x: fn.jacobian(
                lambda x: x.sin().sum(), x, strategy="forward-mode", vectorize=True
            )
        ),
        xb,
    )
