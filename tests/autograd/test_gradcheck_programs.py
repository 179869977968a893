"""Programs that check gradients, the same in PyTorch and here."""

import warnings

from functions import function_of
from plain_parity import attempted, numbers, plainly


def GC(T):
    return T.autograd.gradcheck


def bad(T, second=False):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    Bad = function_of(T, forward, lambda ctx, g: g * 3 * ctx.saved_tensors[0])
    return Bad.apply


@plainly
def test_errors(T, log):
    gc = T.autograd.gradcheck
    x = numbers(T, 2, 3, leaf=True)
    f = bad(T)
    for fast in (False, True):
        attempted(
            log, "Jacobian mismatch for output 0 with respect to input 0", gc, f, x, fast_mode=fast
        )
        attempted(log, "", gc, f, (x,), fast_mode=fast, raise_exception=False)
        attempted(log, "", gc, lambda x: x * x, x, fast_mode=fast)
        attempted(
            log, "", gc, lambda x: x * x, (x,), eps=1e-4, atol=1e-3, rtol=1e-2, fast_mode=fast
        )
        attempted(
            log, "", gc, lambda x, y: (x * y, x + y), (x, numbers(T, 3, leaf=True)), fast_mode=fast
        )
        attempted(log, "requires_grad|require", gc, lambda x: x * x, x.detach(), fast_mode=fast)
        attempted(
            log, "require", gc, lambda x: x * x, x.detach(), fast_mode=fast, raise_exception=False
        )
        attempted(log, "", gc, lambda x: x.detach(), x, fast_mode=fast)
        attempted(log, "", gc, lambda x: T.ones(2), x, fast_mode=fast)
        attempted(log, "", gc, lambda x: x.expand(2, 2, 3).sum(), x, fast_mode=fast)
        attempted(log, "", gc, lambda x: (x * x, x.detach()), x, fast_mode=fast)
        attempted(log, "", gc, lambda x: None, x, fast_mode=fast)
        attempted(log, "", gc, lambda x: 3.0, x, fast_mode=fast)
        attempted(log, "", gc, lambda x: x * x, [x], fast_mode=fast)
        attempted(log, "", gc, lambda x: x * x, 3, fast_mode=fast)
        with warnings.catch_warnings(record=True) as w:
            warnings.simplefilter("always")
            attempted(
                log,
                "",
                gc,
                lambda x: x * x,
                numbers(T, 2, dtype="float32", leaf=True),
                atol=1e-1,
                eps=1e-2,
                fast_mode=fast,
            )
            log([i.category.__name__ for i in w if "double precision" in str(i.message)])
        attempted(
            log,
            "overlap|same memory|strides",
            gc,
            lambda x: x * x,
            numbers(T, 1, leaf=True).expand(3).detach().requires_grad_()
            if 0
            else T.zeros(1, dtype=T.float64).expand(3).requires_grad_(),
            fast_mode=fast,
        )
        attempted(log, "", gc, lambda x, k: x * k, (x, 3.0), fast_mode=fast)
        attempted(
            log,
            "",
            gc,
            lambda x: x.sum(),
            numbers(T, 0, leaf=True) if 0 else T.zeros(0, dtype=T.float64, requires_grad=True),
            fast_mode=fast,
        )
        attempted(log, "", gc, lambda x: x[:0], x, fast_mode=fast)
        cx = numbers(T, 2, dtype="complex128", leaf=True)
        attempted(log, "", gc, lambda x: x * x, cx, fast_mode=fast)
        attempted(log, "", gc, lambda x: x * x.abs(), cx, fast_mode=fast)
        attempted(log, "", gc, lambda x: x.abs(), cx, fast_mode=fast)
        attempted(log, "mismatch", gc, f, cx, fast_mode=fast)
        for n in (
            "check_forward_ad",
            "check_backward_ad",
            "check_batched_grad",
            "check_batched_forward_grad",
            "check_undefined_grad",
            "check_grad_dtypes",
        ):
            attempted(
                log, "", gc, lambda x: x * x, x, fast_mode=fast, **{n: True}
            ) if n != "check_batched_forward_grad" else attempted(
                log, "", gc, lambda x: x * x, x, fast_mode=fast, check_forward_ad=True, **{n: True}
            )
        attempted(log, "", gc, lambda x: x * x, x, fast_mode=fast, check_backward_ad=False)
        attempted(
            log,
            "",
            gc,
            lambda x: x * x,
            x,
            fast_mode=fast,
            check_backward_ad=False,
            check_forward_ad=True,
        )
        attempted(log, "", gc, lambda x: x * x, x, fast_mode=fast, check_batched_forward_grad=True)
        attempted(
            log,
            "",
            gc,
            lambda x: x * x,
            x,
            fast_mode=fast,
            check_backward_ad=False,
            check_batched_grad=True,
        )
        attempted(log, "", gc, lambda x: x * x, x, fast_mode=fast, masked=True)


@plainly
def test_undefined(T, log):
    gc = T.autograd.gradcheck

    def mk(bw, n=1):
        class F(T.autograd.Function):
            @staticmethod
            def forward(ctx, *xs):
                ctx.set_materialize_grads(False)
                return xs[0] * 2 if n == 1 else (xs[0] * 2, xs[0] * 3)

            backward = staticmethod(bw)

        return F.apply

    x = numbers(T, 3, leaf=True)
    for fast in (False, True):
        attempted(log, "undefined|Undefined", gc, mk(lambda ctx, g: g * 2), x, fast_mode=fast)
        attempted(log, "", gc, mk(lambda ctx, g: None if g is None else g * 2), x, fast_mode=fast)
        attempted(
            log,
            "",
            gc,
            mk(lambda ctx, g: T.ones(3, dtype=T.float64) if g is None else g * 2),
            x,
            fast_mode=fast,
        )
        attempted(
            log,
            "",
            gc,
            mk(lambda ctx, g: T.zeros(3, dtype=T.float64) if g is None else g * 2),
            x,
            fast_mode=fast,
        )
        attempted(
            log, "", gc, mk(lambda ctx, g: g * 2), x, fast_mode=fast, check_undefined_grad=False
        )
        attempted(
            log,
            "",
            gc,
            mk(
                lambda ctx, g, h: (
                    (0 if g is None else g * 2) + (0 if h is None else h * 3)
                    if not (g is None and h is None)
                    else None
                ),
                2,
            ),
            x,
            fast_mode=fast,
        )
        attempted(log, "", gc, mk(lambda ctx, g, h: g * 2 + h * 3, 2), x, fast_mode=fast)


@plainly
def test_nondet(T, log):
    gc = T.autograd.gradcheck
    n = [0]

    def backward(ctx, g):
        n[0] += 1
        return g * 2 + (n[0] % 2) * 1e-7 * g

    F = function_of(T, lambda ctx, x: x * 2, backward)
    x = numbers(T, 3, leaf=True)
    for fast in (False, True):
        attempted(log, "not reentrant", gc, F.apply, x, fast_mode=fast, check_batched_grad=False)
        attempted(log, "", gc, F.apply, x, fast_mode=fast, nondet_tol=1e-5)
    S = function_of(T, lambda ctx, x: x.clone(), lambda ctx, g: g.sum())
    attempted(log, "", gc, S.apply, x)
    attempted(log, "", gc, S.apply, x, raise_exception=False)
    D = function_of(T, lambda ctx, x: x.clone(), lambda ctx, g: g.to(T.float32))
    attempted(log, "", gc, D.apply, x)
    attempted(log, "", gc, D.apply, x, check_grad_dtypes=True)


@plainly
def test_forward(T, log):
    gc = T.autograd.gradcheck
    x = numbers(T, 3, leaf=True)

    def mk(jvp, bw=lambda ctx, g: g * 2):
        class F(T.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            backward = staticmethod(bw)

        F.jvp = staticmethod(jvp)
        return F.apply

    for fast in (False, True):
        attempted(
            log,
            "",
            gc,
            mk(lambda ctx, t: t * 2),
            x,
            check_forward_ad=True,
            fast_mode=fast,
            check_undefined_grad=False,
        )
        attempted(
            log,
            "forward mode",
            gc,
            mk(lambda ctx, t: t * 3),
            x,
            check_forward_ad=True,
            fast_mode=fast,
            check_undefined_grad=False,
        )
        attempted(
            log,
            "",
            gc,
            mk(lambda ctx, t: t * 3),
            x,
            check_forward_ad=True,
            check_backward_ad=False,
            fast_mode=fast,
            raise_exception=False,
        )
        attempted(
            log,
            "",
            gc,
            mk(lambda ctx, t: t * 2, lambda ctx, g: g * 5),
            x,
            check_forward_ad=True,
            check_backward_ad=False,
            fast_mode=fast,
            check_undefined_grad=False,
        )
        cx = numbers(T, 2, dtype="complex128", leaf=True)
        attempted(log, "", gc, lambda z: z * z, cx, check_forward_ad=True, fast_mode=fast)
        attempted(log, "", gc, lambda z: z.abs(), cx, check_forward_ad=True, fast_mode=fast)
        attempted(log, "", gc, lambda z: z * 1j, x, check_forward_ad=True, fast_mode=fast)


@plainly
def test_gradgrad(T, log):
    gg = T.autograd.gradgradcheck
    x = numbers(T, 3, leaf=True)
    y = numbers(T, 3, seed=2, leaf=True)
    for fast in (False, True):
        attempted(log, "", gg, lambda x: x * x * x, x, fast_mode=fast)
        attempted(log, "", gg, lambda x, y: (x * y, x.exp()), (x, y), fast_mode=fast)
        attempted(log, "", gg, lambda x: x * x, x, (y,), fast_mode=fast)
        attempted(log, "", gg, lambda x: x * x, x, y, fast_mode=fast)
        attempted(log, "", gg, lambda x: x * x, x, y.detach(), fast_mode=fast)
        attempted(
            log, "", gg, lambda x: x * x * x, x, gen_non_contig_grad_outputs=True, fast_mode=fast
        )
        attempted(log, "", gg, lambda x: x.sum(), x, fast_mode=fast)

        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        Bad = function_of(T, forward, lambda ctx, g: g * 2 * ctx.saved_tensors[0].detach())
        attempted(log, "mismatch", gg, Bad.apply, x, fast_mode=fast)
        attempted(log, "", gg, Bad.apply, x, fast_mode=fast, raise_exception=False)

        class Once(T.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            @T.autograd.function.once_differentiable
            def backward(ctx, g):
                return g * 2 * ctx.saved_tensors[0]

        attempted(log, "", gg, Once.apply, x, fast_mode=fast)
        attempted(log, "", gg, lambda x: x * x, x.detach(), fast_mode=fast)
        for n in (
            "check_fwd_over_rev",
            "check_rev_over_rev",
            "check_batched_grad",
            "check_undefined_grad",
            "check_grad_dtypes",
        ):
            attempted(log, "", gg, lambda x: x * x * x, x, fast_mode=fast, **{n: True})
        attempted(
            log,
            "",
            gg,
            lambda x: x * x * x,
            x,
            fast_mode=fast,
            check_fwd_over_rev=True,
            check_rev_over_rev=False,
        )
        attempted(log, "", gg, lambda x: x * x * x, x, fast_mode=fast, check_rev_over_rev=False)
        attempted(
            log,
            "",
            gg,
            lambda x: x * x * x,
            x,
            fast_mode=fast,
            masked=True,
            nondet_tol=1e-8,
            eps=1e-5,
            atol=1e-4,
            rtol=1e-2,
        )


@plainly
def test_gradbatched(T, log):
    g = T.autograd.grad
    x = numbers(T, 3, leaf=True)
    y = x * x
    e = T.eye(3, dtype=T.float64)
    log(g(y, x, e, is_grads_batched=True, retain_graph=True))
    attempted(
        log,
        "is_grads_batched",
        lambda: g(y, x, T.ones(3, dtype=T.float64), is_grads_batched=True, retain_graph=True),
    )
    attempted(log, "", lambda: g(y, x, T.ones(2, 4), is_grads_batched=True, retain_graph=True))
    attempted(log, "", lambda: g(y.sum(), x, is_grads_batched=True, retain_graph=True))
    log(
        g(
            [y, y.sum()],
            x,
            [e, T.ones(3, dtype=T.float64)],
            is_grads_batched=True,
            retain_graph=True,
        )
    )
    attempted(log, "", lambda: g([y, y], x, [e, e[:2]], is_grads_batched=True, retain_graph=True))
    (h,) = g(y, x, e, is_grads_batched=True, create_graph=True)
    log(h.requires_grad, g(h.sum(), x))
    z = numbers(T, 2, leaf=True)
    y = x * x
    log(g(y, [x, z], e, is_grads_batched=True, allow_unused=True, retain_graph=True))
    hidden = x * 2
    hidden.retain_grad()
    log(g(hidden * hidden, x, e, is_grads_batched=True))


def summing(T, calls, undefined):
    """The sum of two, whose `jvp` does what is wanted where a tangent is missing."""

    def forward(ctx, x, y):
        ctx.set_materialize_grads(False)
        return x + y

    def jvp(ctx, one, other):
        calls.append((one is None, other is None))
        if one is None or other is None:
            return (other if one is None else one) * undefined
        return one + other

    Sum = function_of(T, forward, lambda ctx, g: (g, g), jvp=jvp)
    return Sum.apply


@plainly
def test_missing_tangents_stand_for_zeros(T, log):
    for undefined in (1, 3):
        for fast in (False, True):
            for checked in (False, True):
                calls = []
                attempted(
                    log, "Mismatch in tangent values for output", GC(T),
                    summing(T, calls, undefined),
                    (numbers(T, 1, leaf=True), numbers(T, 1, leaf=True)),
                    check_forward_ad=True, check_undefined_grad=checked, fast_mode=fast,
                )  # fmt: skip
                log(calls)


@plainly
def test_inputs_in_forward_mode_do_not_require_grad(T, log):
    seen = []

    def function(x, y):
        seen.append((x.requires_grad, y.requires_grad))
        return x * y

    x, y = numbers(T, 1, leaf=True), numbers(T, 1)
    for batched in (False, True):
        attempted(
            log, "", GC(T), function, (x, y), check_forward_ad=True, check_backward_ad=False,
            check_batched_forward_grad=batched,
        )  # fmt: skip
        log(sorted(seen[-2:]))
    attempted(
        log, "Jacobian computed with forward mode mismatch", GC(T),
        lambda x: x * 2 if x.requires_grad else x * 3, x,
        check_forward_ad=True, check_backward_ad=False,
    )  # fmt: skip
