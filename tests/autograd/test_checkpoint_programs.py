"""Programs with checkpoints, the same in PyTorch and here."""

# ruff: noqa: B023  run within loops

import warnings

from plain_parity import attempted, numbers, plainly


def ck(T):
    return T.utils.checkpoint


@plainly
def test_basic(T, log):
    C = ck(T).checkpoint
    for re in (True, False):
        x = numbers(T, 3, leaf=True)
        calls = []

        def f(x, k=1, *, m=1):
            calls.append(T.is_grad_enabled())
            return (x * k * m).sin()

        o = C(f, x, use_reentrant=re)
        log(o, o.requires_grad, list(calls))
        o.sum().backward()
        log(x.grad, list(calls))
        attempted(log, "", lambda: C(f, x, 2, use_reentrant=re))
        attempted(log, "", lambda: C(f, x, m=3, use_reentrant=re))
        attempted(log, "", lambda: C(f, x, use_reentrant=re, foo=1))
        attempted(
            log,
            "use_reentrant|autograd.grad",
            lambda: T.autograd.grad(C(f, x, use_reentrant=re).sum(), x),
        )
        attempted(
            log,
            "use_reentrant|inputs",
            lambda: (C(f, x, use_reentrant=re).sum().backward(inputs=[x]), 0)[1],
        )
        y = numbers(T, 3)
        o = (lambda: C(lambda z: z * x, y, use_reentrant=re))()
        log(o.requires_grad)
        with T.no_grad():
            o = C(f, x, use_reentrant=re)
            log(o.requires_grad)
        o = C(lambda x: (x * 2, "a", None, x.sum()), x, use_reentrant=re)
        log(o[0], o[1], o[2], o[3])

        def s():
            o = C(f, x, use_reentrant=re).sum()
            o.backward()
            o.backward()

        attempted(log, "", s)

        def s():
            o = C(f, x, use_reentrant=re).sum()
            o.backward(retain_graph=True)
            o.backward()
            return x.grad

        x.grad = None
        attempted(log, "", s)

        def s():
            o = C(f, x, use_reentrant=re).sum()
            (g,) = T.autograd.grad(o, x, create_graph=True)
            return T.autograd.grad(g.sum(), x)

        attempted(log, "", s)
        o = C(lambda d: d["a"] * 2, {"a": x}, use_reentrant=re)
        log(o.requires_grad)
        o = C(lambda *a: a[0] * a[1], x, y, use_reentrant=re)
        o.sum().backward()
        log(x.grad)
        attempted(log, "", lambda: C(lambda x: x.detach(), x, use_reentrant=re).requires_grad)
        attempted(log, "", lambda: C(lambda x: 3, x, use_reentrant=re))
        attempted(log, "", lambda: C(lambda x: [x * 2], x, use_reentrant=re)[0].requires_grad)
        attempted(
            log, "", lambda: C(lambda x: {"o": x * 2}, x, use_reentrant=re)["o"].requires_grad
        )

        def ex(x):
            raise ValueError("boo")

        attempted(log, "boo", C, ex, x, use_reentrant=re)
    with warnings.catch_warnings(record=True) as w:
        warnings.simplefilter("always")
        try:
            C(f, x)
        except Exception as e:
            log(e)
        log([i.category.__name__ for i in w][:1])


@plainly
def test_warn_noinput(T, log):
    C = ck(T).checkpoint
    y = numbers(T, 3)
    w = numbers(T, 3, leaf=True)
    with warnings.catch_warnings(record=True) as ws:
        warnings.simplefilter("always")
        o = C(lambda y: y * w, y, use_reentrant=True)
        log(o.requires_grad, [i.category.__name__ for i in ws])
    attempted(log, "", lambda: o.sum().backward())
    o = C(lambda y: y * w, y, use_reentrant=False)
    o.sum().backward()
    log(w.grad)


@plainly
def test_nested(T, log):
    C = ck(T).checkpoint
    for r1 in (True, False):
        for r2 in (True, False):
            x = numbers(T, 3, leaf=True)
            n = [0, 0]

            def inner(x):
                n[0] += 1
                return x.sin()

            def outer(x):
                n[1] += 1
                return C(inner, x.exp(), use_reentrant=r2).cos()

            o = C(outer, x, use_reentrant=r1)
            o.sum().backward()
            log(x.grad, list(n))


@plainly
def test_earlystop(T, log):
    U = ck(T)
    x = numbers(T, 3, leaf=True)
    for es in (True, False):
        tr = []

        def f(x):
            a = x.sin()
            tr.append(1)
            b = a.exp()
            tr.append(2)
            return b + 1, tr.append(3)

        with U.set_checkpoint_early_stop(es):
            o = U.checkpoint(f, x, use_reentrant=False)[0]
        tr.clear()
        o.sum().backward()
        log(list(tr))
        tr = []
        o = U.checkpoint(f, x, use_reentrant=False, early_stop=es)[0]
        tr.clear()
        o.sum().backward()
        log(list(tr))
    with U.set_checkpoint_debug_enabled(False):
        pass


@plainly
def test_determinism(T, log):
    U = ck(T)
    x = numbers(T, 4, leaf=True)
    st = [0]

    def shape(x):
        st[0] += 1
        return (x[:2] if st[0] > 1 else x).sin().exp()

    def fewer(x):
        st[0] += 1
        y = x.sin()
        return y if st[0] > 1 else y.exp().sin()

    def more(x):
        st[0] += 1
        y = x.sin()
        return y.exp().sin().exp() if st[0] > 1 else y

    def dt(x):
        st[0] += 1
        return (x.float() if st[0] > 1 else x).sin().exp()

    for f in (shape, fewer, more, dt):
        for det in ("default", "none")[: 1 if f is shape else 2]:
            st[0] = 0

            def run():
                o = U.checkpoint(f, x, use_reentrant=False, determinism_check=det)
                o.sum().backward()
                return x.grad

            x.grad = None
            attempted(log, "", run)
    attempted(log, "", U.checkpoint, shape, x, use_reentrant=False, determinism_check="foo")
    attempted(log, "", U.checkpoint, shape, x, use_reentrant=True, determinism_check="none")
    attempted(log, "", U.checkpoint, shape, x, use_reentrant=True, context_fn=lambda: (None, None))
    attempted(log, "", lambda: U.checkpoint(shape, x, use_reentrant=True, debug=True))
    st[0] = 0
    attempted(
        log, "", lambda: U.checkpoint(fewer, x, use_reentrant=False, debug=True).sum().backward()
    )


@plainly
def test_rng(T, log):
    U = ck(T)
    for re in (True, False):
        for pr in (True, False):
            x = T.ones(50, requires_grad=True)
            T.manual_seed(0)
            o = U.checkpoint(
                lambda x: T.nn.functional.dropout(x, 0.5),
                x,
                use_reentrant=re,
                preserve_rng_state=pr,
            )
            o.sum().backward()
            log(bool((o == x.grad).all()) if pr else None)


@plainly
def test_ctx(T, log):
    U = ck(T)
    x = numbers(T, 3, leaf=True)
    tr = []

    class Ctx:
        def __init__(s, n):
            s.n = n

        def __enter__(s):
            tr.append("in " + s.n)

        def __exit__(s, *a):
            tr.append("out " + s.n)

    o = U.checkpoint(
        lambda x: x.sin().exp(), x, use_reentrant=False, context_fn=lambda: (Ctx("f"), Ctx("r"))
    )
    log(list(tr))
    o.sum().backward()
    log(list(tr))


@plainly
def test_seq(T, log):
    U = ck(T)
    m = [lambda x: x.sin(), lambda x: x.exp(), lambda x: x.cos(), lambda x: x * 2]
    for re in (True, False):
        for seg in (1, 2, 3, 4):
            x = numbers(T, 3, leaf=True)
            o = U.checkpoint_sequential(m, seg, x, use_reentrant=re)
            o.sum().backward()
            log(o, x.grad)
    attempted(log, "", lambda: U.checkpoint_sequential(m, 0, x, use_reentrant=False))
    attempted(log, "", lambda: U.checkpoint_sequential(m, 2, x, foo=1, use_reentrant=False))
    layers = T.nn.Sequential(T.nn.Linear(3, 3), T.nn.ReLU())
    log(U.checkpoint_sequential(layers, 2, T.ones(2, 3), use_reentrant=False).shape == (2, 3))


@plainly
def test_misc(T, log):
    U = ck(T)
    C = U.checkpoint
    x = numbers(T, 3, leaf=True)
    # same saved twice; saved tensors access
    o = C(lambda x: x.exp(), x, use_reentrant=False)
    g = o.grad_fn
    log(g._saved_result.shape == (3,))
    attempted(log, "", lambda: g._saved_result)
    o.sum().backward()
    attempted(log, "", lambda: g._saved_result)

    # two parts of graph
    def f(x):
        return x.sin(), x.exp()

    a, b = C(f, x, use_reentrant=False)
    x.grad = None
    a.sum().backward()
    b.sum().backward()
    log(x.grad)
    # hooks inside
    tr = []

    def f(x):
        y = x.sin()
        y.register_hook(lambda g: tr.append("h"))
        return y.exp()

    C(f, x, use_reentrant=False).sum().backward()
    log(list(tr))
    # with saved_tensors_hooks outside
    tr.clear()
    with T.autograd.graph.saved_tensors_hooks(
        lambda t: tr.append("p") or t, lambda t: tr.append("u") or t
    ):
        o = C(lambda x: x.sin().exp(), x, use_reentrant=False)
    o.sum().backward()
    log(tr)

    def f(x):
        with T.autograd.graph.saved_tensors_hooks(
            lambda t: tr.append("p") or t, lambda t: tr.append("u") or t
        ):
            return x.sin().exp()

    tr.clear()
    C(f, x, use_reentrant=False).sum().backward()
    log(tr)

    # inplace under checkpoint
    def f(x):
        y = x * 2
        y.sin_()
        return y.exp()

    for re in (True, False):
        x.grad = None
        C(f, x, use_reentrant=re).sum().backward()
        log(x.grad)

    # detached
    def f(x):
        return x.detach() * 2, x * 2

    a, b = C(f, x, use_reentrant=False)
    log(a.requires_grad, b.requires_grad)
    a, b = C(f, x, use_reentrant=True)
    log(a.requires_grad, b.requires_grad)
    # anomaly
    with T.autograd.detect_anomaly(check_nan=False):
        C(lambda x: x.sin().exp(), x, use_reentrant=False).sum().backward()
    # multiple outputs unused
    x.grad = None
    a, b = C(lambda x: (x.sin(), x.exp()), x, use_reentrant=True)
    a.sum().backward()
    log(x.grad)
    # module kwargs
    layer = T.nn.Linear(3, 3).to(T.float64)
    C(layer, x, use_reentrant=False).sum().backward()
    log(layer.weight.grad is not None)
    attempted(log, "", lambda: U.CheckpointError.__mro__[1].__name__)
    log(issubclass(U.CheckpointError, RuntimeError))
    with T.no_grad():
        y = C(lambda x: x.sin(), x, use_reentrant=False)
        log(y.requires_grad)
    # grad mode inside recompute
    tr.clear()

    def f(x):
        tr.append(T.is_grad_enabled())

    def f2(x):
        tr.append(T.is_grad_enabled())
        return x.sin().exp()

    with T.enable_grad():
        o = C(f2, x, use_reentrant=False)
    with T.no_grad():
        pass
    o.sum().backward()
    log(tr)

    # alive during backward
    def f(x):
        return (x.sin().exp()).cos()

    x.grad = None
    o = C(f, x, use_reentrant=False)
    (g,) = T.autograd.grad(o.sum(), x, create_graph=True)
    log(g)
    log(T.autograd.grad(g.sum(), x))


@plainly
def test_vmap_of_a_checkpoint_and_the_state_of_random_numbers(T, log):
    """Whoever only looks after the generator's state draws no numbers."""
    checkpoint = ck(T).checkpoint
    x = numbers(T, 3, 2)
    log(T.func.vmap(lambda r: checkpoint(lambda q: q.sin() * q, r, use_reentrant=False))(x))

    def state(r):
        T.set_rng_state(T.get_rng_state())
        with T.random.fork_rng(devices=[]):
            return r * 2

    log(T.func.vmap(state)(x))
