"""Programs of `autograd.functional`, the same in PyTorch and here."""

# ruff: noqa: B023  run within loops

from plain_parity import attempted, numbers, plainly


def J(T):
    return T.autograd.functional


@plainly
def test_jac_types(T, log):
    F = J(T)

    def foo(a):
        return 3 * a.narrow(0, 0, 3)

    def bar(a):
        return 3 * a.narrow(0, 0, 3), "bar"

    inp = numbers(T, 4)
    v = T.ones(3, dtype=T.float64)
    for name, extra in (
        ("vjp", (v,)),
        ("jvp", (inp,)),
        ("jacobian", ()),
        ("hessian", ()),
        ("vhp", (inp,)),
        ("hvp", (inp,)),
    ):
        f = getattr(F, name)
        attempted(
            log,
            "The inputs given to "
            + name
            + " must be either a Tensor or a tuple of Tensors|given to "
            + name,
            f,
            foo,
            (inp, 2),
            *extra,
        )
        attempted(
            log, "outputs of the user-provided function given to " + name, f, bar, inp, *extra
        )
        attempted(log, "", f, foo, [inp], *extra)
        attempted(log, "", f, foo, 2, *extra)
        attempted(log, "", f, lambda x: None, inp, *extra)
        attempted(log, "", f, lambda x: [x.sum()], inp, *extra)
    attempted(log, "Both inputs|not provide|vector v can only be None", F.vjp, foo, inp)
    attempted(log, "The vector v can only be None", F.jvp, foo, inp)
    attempted(log, "The given v should contain a single", F.vjp, foo, inp, (v, v))
    attempted(log, "v has invalid size", F.vjp, foo, inp, v[:2])
    attempted(log, "v has invalid size", F.jvp, foo, inp, v)
    attempted(
        log, "v is required|invalid number|should contain", F.vjp, lambda a: (a, a), inp, (inp,)
    )
    log(F.vjp(foo, inp, v))
    log(F.jvp(foo, inp, inp))
    log(F.vjp(lambda x: x.sum(), inp))
    log(F.jvp(lambda x: x * 2, T.tensor([2.0])))
    for fn in (F.vhp, F.hvp):
        attempted(
            log,
            "Tensor returned by the function|single Tensor|should contain",
            fn,
            lambda x: x,
            inp,
            inp,
        )
        attempted(log, "", fn, lambda x: (x.sum(), x.sum()), inp, inp)
        attempted(log, "v has invalid size", fn, lambda x: x.sum(), inp, v)
        attempted(log, "", fn, lambda x: (x**2).sum(), inp)
        log(
            fn(lambda x: (x**3).sum(), inp, inp),
            fn(lambda x: (x**3).sum(), T.tensor([2.0])),
            fn(lambda x: (x**3).sum(), T.tensor(2.0)),
        )
        log(fn(lambda x: x.sum(), inp, inp))
        log(fn(lambda x, y: (x * y**2).sum(), (inp, inp), (inp, inp)))
        log(fn(lambda x: T.ones(()), inp, inp))


@plainly
def test_strict(T, log):
    F = J(T)
    inp = numbers(T, 4)
    v = numbers(T, 4, seed=3)

    def foo(x):
        return x.detach()

    def bar(x):
        return x * 2

    def none(x):
        return T.zeros(4, dtype=T.float64)

    for strict in (True, False):
        for name, args in (("vjp", (v,)), ("jvp", (v,)), ("jacobian", ())):
            for fn in (foo, bar, none, lambda x: x**2):
                for cg in (True, False):

                    def run():
                        r = getattr(F, name)(fn, inp, *args, create_graph=cg, strict=strict)
                        rs = r if isinstance(r, tuple) else (r,)
                        return r, [x.requires_grad for x in rs]

                    attempted(
                        log,
                        "does not require gradients|is independent of",
                        run,
                    )
        for name, args in (("hessian", ()), ("hvp", (v,)), ("vhp", (v,))):
            for fn in (
                lambda x: x.detach().sum(),
                lambda x: (3 * x).sum(),
                lambda x: (x**3).sum(),
                lambda x: T.zeros(()),
            ):
                for cg in (True, False):

                    def run():
                        r = getattr(F, name)(fn, inp, *args, create_graph=cg, strict=strict)
                        rs = r if isinstance(r, tuple) else (r,)
                        return r, [x.requires_grad for x in rs]

                    attempted(log, "does not require gradients|independent|not allowed", run)
    for name, args in (("vjp", ((v, v),)), ("jvp", ((v, v),)), ("jacobian", ())):
        attempted(
            log,
            "",
            lambda: getattr(F, name)(
                lambda x, y: (x * 2, y.detach()), (inp, inp), *args, strict=True
            ),
        )
        attempted(
            log,
            "",
            lambda: getattr(F, name)(lambda x, y: (x * 2, x * 3), (inp, inp), *args, strict=True),
        )
        attempted(log, "", lambda: getattr(F, name)(lambda x, y: (x * 2, x * 3), (inp, inp), *args))


@plainly
def test_nograd(T, log):
    F = J(T)
    inp = numbers(T, 4)
    v = numbers(T, 4, seed=3)
    for name, args, f in (
        ("vjp", (v,), lambda x: x**2),
        ("jvp", (v,), lambda x: x**2),
        ("jacobian", (), lambda x: x**2),
        ("hessian", (), lambda x: (x**3).sum()),
        ("hvp", (v,), lambda x: (x**3).sum()),
        ("vhp", (v,), lambda x: (x**3).sum()),
    ):
        for cg in (True, False):
            with T.no_grad():
                r = getattr(F, name)(f, inp, *args, create_graph=cg)
            rs = r if isinstance(r, tuple) else (r,)
            log(r, [x.requires_grad for x in rs])
            x = inp.clone().requires_grad_()
            r = getattr(F, name)(f, x, *args, create_graph=cg)
            rs = r if isinstance(r, tuple) else (r,)
            log(r, [y.requires_grad for y in rs], x.grad is None)
            if cg:
                log(T.autograd.grad([y.sum() for y in rs], x))
        with T.inference_mode():
            attempted(log, "", getattr(F, name), f, inp, *args)


@plainly
def test_outputs(T, log):
    F = J(T)
    a = numbers(T, 2, 3)
    b = numbers(T, 3)
    for vec in (True, False):
        for s in ("reverse-mode", "forward-mode"):
            if s == "forward-mode" and not vec:
                attempted(log, "", lambda: F.jacobian(lambda x: x, a, strategy=s))
                continue
            for f, i in (
                (lambda x: x.exp().sum(1), a),
                (lambda x: x.exp().sum(1), (a,)),
                (lambda x, y: x * y, (a, b)),
                (lambda x, y: (x * y, y.sum(), x), (a, b)),
                (lambda x, y: (x * 2, x * 3), (a, b)),
                (lambda x, y: (y.sum(),), (a, b)),
                (lambda x: T.ones(2, dtype=T.float64), a),
                (lambda x: (x.sum(),), a),
                (lambda x: x.sum(), T.tensor(3.0)),
                (lambda x, y: (x.float(), y), (a, b)),
                (lambda x: x[0].to(T.float32), a),
                (lambda x: x.reshape(-1)[::2], a),
                (lambda x: x.clone().mul_(x), a),
                (lambda x: (x > 0).to(T.float64) * x, a),
                (lambda x, y, z=3.0: x * y * z, (a, b)),
            ):
                attempted(log, "", lambda: F.jacobian(f, i, vectorize=vec, strategy=s))
            attempted(
                log,
                "",
                lambda: F.jacobian(lambda x: x**2, b, vectorize=vec, strategy=s, strict=True),
            )
            attempted(
                log,
                "",
                lambda: F.jacobian(lambda x: x**2, b, vectorize=vec, strategy=s, create_graph=True),
            )
    attempted(log, "", lambda: F.jacobian(lambda x: x, a, strategy="foo"))
    for s in ("reverse-mode", "forward-mode"):
        for vec in (True, False):
            for f, i in (
                (lambda x: (x**3).sum(), b),
                (lambda x, y: (x * x).sum() * y.sum(), (a, b)),
                (lambda x, y: (x * x).sum(), (a, b)),
                (lambda x: x.sum(), b),
                (lambda x: (x**3).sum(), (b,)),
                (lambda x: (x**2).sum(), T.tensor(2.0)),
                (lambda x: (x**2).sum().reshape(1), b),
                (lambda x: x, b),
            ):
                attempted(
                    log, "", lambda: F.hessian(f, i, vectorize=vec, outer_jacobian_strategy=s)
                )
            attempted(
                log,
                "",
                lambda: F.hessian(
                    lambda x: (x**3).sum(),
                    b,
                    vectorize=vec,
                    outer_jacobian_strategy=s,
                    create_graph=True,
                ),
            )
            attempted(
                log,
                "",
                lambda: F.hessian(
                    lambda x: (x**3).sum(), b, vectorize=vec, outer_jacobian_strategy=s, strict=True
                ),
            )
    attempted(log, "", lambda: F.hessian(lambda x: x.sum(), b, outer_jacobian_strategy="foo"))


@plainly
def test_complexfn(T, log):
    F = J(T)
    c = numbers(T, 2, dtype="complex128")
    v = numbers(T, 2, dtype="complex128", seed=5)
    for f in (lambda x: x * x, lambda x: x * x.abs()):
        attempted(log, "", F.vjp, f, c, v)
        attempted(log, "", F.jvp, f, c, v)
        attempted(log, "", F.jacobian, f, c)
        attempted(log, "", lambda: F.jacobian(f, c, vectorize=True))
