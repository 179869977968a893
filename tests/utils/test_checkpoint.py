"""Checkpoints beside PyTorch."""

import contextlib
import warnings

import pytest
from parity import attempt, both, leaf, raised

pytest.importorskip("torch.utils.checkpoint", reason="PyTorch is not installed")


def of(T):
    return T.utils.checkpoint.checkpoint


@both
def test_a_function_runs_again_when_something_saved_is_needed(T, log):
    for use_reentrant in (True, False):
        calls = []

        def function(x, y, calls=calls):
            calls.append(T.is_grad_enabled())
            return T.exp(x * y) + T.sin(x)

        x, y = leaf(T, 1.0, 2.0), leaf(T, 0.5, 0.25)
        out = of(T)(function, x, y, use_reentrant=use_reentrant)
        log(out, out.requires_grad, calls)
        yield out.sum().backward()
        log(x.grad, y.grad, calls)


@both
def test_several_outputs_and_inputs_that_are_no_tensors(T, log):
    for use_reentrant in (True, False):

        def function(x, factor, none, text):
            log(text, none)
            return x * x * factor, "text", T.exp(x), 3

        x = leaf(T, 1.0, 2.0)
        first, text, second, three = of(T)(
            function, x, 2.0, None, "given", use_reentrant=use_reentrant
        )
        log(first, text, second, three)
        yield (first * 2 + second).sum().backward()
        log(x.grad)


@both
def test_keyword_arguments_need_the_other_form(T, log):
    def function(x, *, scale, y=None):
        return x * x * scale if y is None else x * y * scale

    x, y = leaf(T, 3.0), leaf(T, 5.0)
    out = of(T)(function, x, scale=2.0, y=y, use_reentrant=False)
    yield out.sum().backward()
    log(x.grad, y.grad)
    attempt(log, of(T), function, x, scale=2.0, use_reentrant=True)
    attempt(log, of(T), function, x, use_reentrant=True, debug=True)
    attempt(log, of(T), function, x, use_reentrant=True, context_fn=lambda: (None, None))
    attempt(log, of(T), function, x, scale=1.0, use_reentrant=False, determinism_check="what")
    attempt(
        log, of(T), function, x, scale=1.0, use_reentrant=False, debug=True,
        context_fn=lambda: (contextlib.nullcontext(), contextlib.nullcontext()),
    )  # fmt: skip


@both
def test_not_saying_which_form_warns(T, log):
    x = leaf(T, 3.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        out = of(T)(lambda x: x * x, x)
        out2 = T.utils.checkpoint.checkpoint_sequential([lambda x: x * x, lambda x: x + 1], 2, x)
    log([w.category.__name__ for w in caught])
    yield (out + out2).sum().backward()
    log(x.grad)


@both
def test_the_reentrant_form_refuses_partial_passes(T, log):
    x = leaf(T, 3.0)
    out = of(T)(lambda x: x * x, x, use_reentrant=True)
    for start in (
        lambda out=out, x=x: T.autograd.grad(out.sum(), x),
        lambda: T.autograd.backward(out.sum(), inputs=[x]),
    ):
        try:
            yield start()
            log("passed")
        except RuntimeError as error:
            log(error, "use_reentrant" in str(error))
    log(x.grad)


@both
def test_the_other_form_takes_part_in_every_pass(T, log):
    x, w = leaf(T, 3.0), leaf(T, 2.0)
    calls = []

    def function(x):
        calls.append(1)
        return T.exp(x * w) * x

    out = of(T)(function, x, use_reentrant=False)
    log((yield T.autograd.grad(out.sum(), (x, w), retain_graph=True)), len(calls))
    yield out.sum().backward(inputs=[w], retain_graph=True)
    log(x.grad, w.grad, len(calls))
    (g,) = yield T.autograd.grad(out.sum(), x, create_graph=True)
    log(g, g.requires_grad)
    log((yield T.autograd.grad(g.sum(), (x, w))))
    log(len(calls))


@both
def test_an_input_has_to_require_grad_in_the_reentrant_form(T, log):
    w = leaf(T, 2.0)
    x = T.tensor([3.0], dtype=T.float64)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        out = of(T)(lambda x: x * w, x, use_reentrant=True)
    log([w.category.__name__ for w in caught], out.requires_grad)
    out = of(T)(lambda x: x * w, x, use_reentrant=False)
    log(out.requires_grad)
    yield out.sum().backward()
    log(w.grad)
    with T.no_grad():
        for use_reentrant in (False, True):
            log(of(T)(lambda x: x * w, w, use_reentrant=use_reentrant).requires_grad)


@both
def test_nothing_that_requires_grad_comes_out(T, log):
    x = leaf(T, 2.0)
    out = of(T)(lambda x: x.detach() * 2, x, use_reentrant=True)
    log(out.requires_grad)
    yield from raised(log, out.sum().backward)
    out = of(T)(lambda x: x.detach() * 2, x, use_reentrant=False)
    log(out.requires_grad)
    first, second = of(T)(lambda x: (x * x, x.detach()), x, use_reentrant=True)
    yield (first + second).sum().backward()
    log(x.grad)


@both
def test_a_retained_graph_runs_it_again(T, log):
    for use_reentrant in (True, False):
        calls = []

        def function(x, calls=calls):
            calls.append(1)
            return T.exp(x) * x

        x = leaf(T, 1.0)
        out = of(T)(function, x, use_reentrant=use_reentrant).sum()
        yield out.backward(retain_graph=True)
        log(len(calls), x.grad)
        yield out.backward(retain_graph=True)
        log(len(calls), x.grad)
        yield out.backward()
        log(len(calls), x.grad)
        try:
            yield out.backward()
        except RuntimeError as error:
            log(error, len(calls))


@both
def test_it_stops_early_when_everything_is_there(T, log):
    for early_stop in (True, False):
        reached = []

        def function(x, reached=reached):
            y = T.exp(x)
            reached.append("saved")
            z = y + 1
            reached.append("end")
            return z

        x = leaf(T, 1.0)
        out = of(T)(function, x, use_reentrant=False, early_stop=early_stop)
        yield out.sum().backward()
        log(reached, x.grad)
        for setting in (True, False, None):
            reached.clear()
            with T.utils.checkpoint.set_checkpoint_early_stop(setting):
                out = of(T)(function, x, use_reentrant=False, early_stop=early_stop)
            yield out.sum().backward()
            log(reached)


@both
def test_nested(T, log):
    for early_stop in (True, False):
        calls = []

        def innermost(x, calls=calls):
            calls.append("innermost")
            return T.sin(T.exp(x))

        def inner(x, calls=calls, innermost=innermost):
            calls.append("inner")
            y = of(T)(innermost, x * x, use_reentrant=False)
            return T.exp(y) * x

        def outer(x, calls=calls, inner=inner):
            calls.append("outer")
            return T.cos(of(T)(inner, T.sin(x), use_reentrant=False)) * x

        with T.utils.checkpoint.set_checkpoint_early_stop(early_stop):
            x = leaf(T, 0.5, 0.75)
            out = of(T)(outer, x, use_reentrant=False).sum()
            log(out, calls)
            yield out.backward(retain_graph=True)
            log(x.grad, calls)
            x.grad = None
            (g,) = yield T.autograd.grad(out, x, create_graph=True)
            log(g)
            log((yield T.autograd.grad(g.sum(), x)))
            log(outer(x).sum())


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@both
def test_reentrant_within_the_other_and_the_other_way(T, log):
    for outer_reentrant, inner_reentrant in ((True, False), (False, True), (True, True)):

        def inner(x):
            return T.exp(x) * x

        def outer(x, inner=inner, form=inner_reentrant):
            return T.sin(of(T)(inner, T.cos(x), use_reentrant=form))

        x = leaf(T, 0.5)
        out = of(T)(outer, x * 1, use_reentrant=outer_reentrant)
        yield out.sum().backward()
        log(x.grad)


@both
def test_a_pass_within_the_function(T, log):
    for early_stop in (True, False):
        x = leaf(T, 2.0)

        def function(x):
            y = x * x
            (g,) = T.autograd.grad((T.exp(y)).sum(), y, retain_graph=True)
            return T.exp(y) * g.detach() + T.sin(y)

        with contextlib.ExitStack() as stack:
            if T.__name__ == "asyncgrad":
                stack.enter_context(T.blocking())
            out = of(T)(function, x, use_reentrant=False, early_stop=early_stop)
        yield out.sum().backward()
        log(x.grad)


@both
def test_what_was_saved_differs(T, log):
    state = {}

    def fewer(x):
        y = T.exp(x)
        return T.sin(y) if not state.get("again") else y

    def more(x):
        y = T.exp(x)
        return T.sin(y) if state.get("again") else y

    def other_shape(x):
        return T.exp(x[:1]).sum() if state.get("again") else T.exp(x).sum()

    def other_dtype(x):
        return T.exp(x.to(T.float32)).sum() if state.get("again") else T.exp(x).sum()

    for function in (fewer, more, other_shape, other_dtype):
        for early_stop in (True, False):
            for check in ("default", "none"):
                if function is other_dtype and check == "none":
                    # What comes of it is nobody's promise.
                    continue
                state.clear()
                x = leaf(T, 1.0, 2.0)
                out = of(T)(
                    function, x, use_reentrant=False, early_stop=early_stop,
                    determinism_check=check,
                )  # fmt: skip
                state["again"] = True
                try:
                    yield out.sum().backward()
                    log("passed")
                except T.utils.checkpoint.CheckpointError as error:
                    log(error)


@both
def test_debug_says_more(T, log):
    state = {}

    def function(x):
        y = T.exp(x)
        return y if state else T.sin(y)

    for debug, setting in ((True, None), (False, True), (True, False), (False, None)):
        state.clear()
        x = leaf(T, 1.0)
        with T.utils.checkpoint.set_checkpoint_debug_enabled(setting):
            out = of(T)(function, x, use_reentrant=False, debug=debug)
        state["again"] = True
        try:
            yield out.sum().backward()
        except RuntimeError as error:
            text = str(error)
            log("Operations executed during the original forward" in text)


@both
def test_a_changed_input_is_noticed(T, log):
    x = leaf(T, 1.0, 2.0)
    for use_reentrant in (True, False):
        y = x * 1
        out = of(T)(lambda y: T.exp(y) * y, y, use_reentrant=use_reentrant)
        y.add_(1)
        yield from raised(log, out.sum().backward)


@both
def test_contexts_for_both_runs(T, log):
    @contextlib.contextmanager
    def noting(name):
        log(f"enter {name}")
        yield
        log(f"leave {name}")

    x = leaf(T, 1.0)
    made = []

    def context_fn():
        made.append(1)
        return noting("forward"), noting("again")

    out = of(T)(lambda x: T.exp(x), x, use_reentrant=False, context_fn=context_fn, early_stop=False)
    log("between")
    yield out.sum().backward()
    log(x.grad, made)
    swallowing = lambda: (contextlib.suppress(KeyError), contextlib.nullcontext())  # noqa: E731

    def fails(x):
        raise KeyError

    attempt(log, of(T), fails, x, use_reentrant=False, context_fn=swallowing)
    attempt(log, of(T), fails, x, use_reentrant=False)
    log(T.is_grad_enabled())


@both
def test_saved_values_can_be_read_outside_of_a_pass(T, log):
    calls = []

    def function(x):
        calls.append(1)
        b = x * x
        c = x * b
        d = T.exp(x)
        log(b.requires_grad, c.requires_grad)
        return d

    x = leaf(T, 1.0)
    d = of(T)(function, x, use_reentrant=False)
    log(d.grad_fn._saved_result, len(calls))
    log(d.grad_fn._saved_result, len(calls))
    yield d.sum().backward()
    log(len(calls))
    attempt(log, lambda: d.grad_fn._saved_result)
    log(len(calls))


@both
def test_a_function_with_a_backward_of_its_own(T, log):
    class Product(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            out = x * y
            ctx.save_for_backward(x, y, out)
            return out

        @staticmethod
        def backward(ctx, gradient):
            x, y, out = ctx.saved_tensors
            log(out)
            attempt(log, lambda: ctx.saved_tensors)
            return gradient * y, gradient * x

    x, y = leaf(T, 2.0), leaf(T, 3.0)
    out = of(T)(lambda x, y: Product.apply(T.exp(x), y), x, y, use_reentrant=False)
    yield out.sum().backward()
    log(x.grad, y.grad)


@both
def test_the_identity_of_leaves_is_kept(T, log):
    x, y = leaf(T, 2.0), leaf(T, 3.0)
    seen = []
    x.register_hook(lambda g: seen.append(g.clone()))
    out = of(T)(lambda x: x * y, x, use_reentrant=False)
    yield out.sum().backward()
    log(x.grad, y.grad, seen)
    x.grad = None
    out = of(T)(lambda x, z: x * z, x, x, use_reentrant=True)
    yield out.sum().backward()
    log(x.grad, seen)


@both
def test_sequential(T, log):
    for use_reentrant in (True, False):
        for segments in (1, 2, 3, 5):
            calls = []

            def step(i, calls=calls):
                def call(value):
                    calls.append(i)
                    return T.sin(value) * (i + 1)

                return call

            x = leaf(T, 0.5, 0.25)
            out = T.utils.checkpoint.checkpoint_sequential(
                [step(i) for i in range(5)], segments, x, use_reentrant=use_reentrant
            )
            yield out.sum().backward()
            log(out, x.grad, calls)
    attempt(
        log, T.utils.checkpoint.checkpoint_sequential, [step(0)], 1, x, use_reentrant=True, what=1
    )


@both
def test_modules(T, log):
    T.manual_seed(0)
    linear = T.nn.Linear(2, 3)
    with T.no_grad():
        linear.weight.copy_(T.tensor([[1.0, 2.0], [0.5, -1.0], [0.0, 0.25]]))
        linear.bias.copy_(T.tensor([0.0, 0.5, 1.0]))
    model = T.nn.Sequential(linear, T.nn.Tanh(), T.nn.LayerNorm(3), T.nn.Softmax(dim=1))
    x = T.tensor([[1.0, 2.0], [3.0, -1.0]], requires_grad=True)
    weights = T.tensor([[1.0, 2.0, 3.0]])
    for use_reentrant in (True, False):
        for out in (
            of(T)(model, x, use_reentrant=use_reentrant),
            T.utils.checkpoint.checkpoint_sequential(model, 2, x, use_reentrant=use_reentrant),
            model(x),
        ):
            model.zero_grad()
            x.grad = None
            yield (out * weights).sum().backward()
            log(x.grad, [p.grad for p in model.parameters()])


@both
def test_helpers(T, log):
    helpers = T.utils.checkpoint
    x, y = leaf(T, 1.0), T.ones(1)
    a, b, c = helpers.detach_variable((x, y, 3))
    log(a.requires_grad, a.is_leaf, a is x, b.requires_grad, c)
    attempt(log, helpers.detach_variable, [x])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        helpers.check_backward_validity([x, y])
        log(len(caught))
        helpers.check_backward_validity([y])
        log(len(caught))
    log(len(helpers.noop_context_fn()))


@both
def test_results_of_any_structure(T, log):
    x = leaf(T, 1.0, 2.0)
    out = of(T)(lambda x: {"a": T.exp(x), "b": [x * x, None, 3]}, x, use_reentrant=False)
    log(out["b"][1:], out["a"])
    yield (out["a"] + out["b"][0]).sum().backward()
    log(x.grad)

    def nothing(x):
        return None

    log(of(T)(nothing, x, use_reentrant=False))
    attempt(log, lambda: of(T)(nothing, x, use_reentrant=True))
    attempt(log, lambda: of(T)(lambda x: [x * 2], x, use_reentrant=True))


@both
def test_changes_in_place_within(T, log):
    for r in (True, False):
        x = leaf(T, 1.0, 2.0)

        def f(x):
            y = T.exp(x)
            y = y + 1
            y.mul_(2)
            z = T.sin(y)
            z.add_(1)
            return z[:1]

        out = of(T)(f, x, use_reentrant=r)
        yield out.sum().backward()
        log(x.grad)


@both
def test_inputs_that_are_not_used(T, log):
    for r in (True, False):
        x, y = leaf(T, 1.0), leaf(T, 2.0)
        out = of(T)(lambda a, b, c: T.exp(a), x, y, None, use_reentrant=r)
        yield out.sum().backward()
        log(x.grad, y.grad)


@both
def test_one_tensor_as_two_arguments(T, log):
    for r in (True, False):
        x = leaf(T, 3.0)
        out = of(T)(lambda a, b: a * b * a, x, x, use_reentrant=r)
        yield out.sum().backward()
        log(x.grad)


@both
def test_a_parameter_used_within_and_outside(T, log):
    w = leaf(T, 2.0)
    x = leaf(T, 3.0)
    n = []
    w.register_hook(lambda g: n.append(1))
    out = of(T)(lambda x: T.sin(x * w), x, use_reentrant=False) * w
    yield out.sum().backward()
    log(w.grad, x.grad, len(n))
    w.grad = None
    x.grad = None
    out = of(T)(lambda x: T.sin(x * w), x, use_reentrant=True) * w
    yield out.sum().backward()
    log(w.grad, x.grad, len(n))


@both
def test_errors_of_the_second_run_leave_the_graph_usable(T, log):
    x = leaf(T, 2.0)
    s = {}

    def f(x):
        if s:
            raise KeyError
        return T.exp(x)

    for r in (True, False):
        s.clear()
        out = of(T)(f, x, use_reentrant=r)
        s[1] = 1
        yield from raised(log, out.sum().backward)
        s.clear()
        try:
            yield out.sum().backward()
            log(x.grad)
        except RuntimeError as e:
            log(e)


@both
def test_other_hooks_around_and_within(T, log):
    x = leaf(T, 2.0)
    with T.autograd.graph.saved_tensors_hooks(
        lambda t: (log("p"), t)[1], lambda t: (log("u"), t)[1]
    ):
        out = of(T)(lambda x: T.exp(x) * x, x, use_reentrant=False)
        log("after")
    yield out.sum().backward()
    log(x.grad)
    x.grad = None
    with T.autograd.graph.saved_tensors_hooks(
        lambda t: (log("p"), t)[1], lambda t: (log("u"), t)[1]
    ):
        out = of(T)(lambda x: T.exp(x) * x, x, use_reentrant=True)
        log("after")
    yield out.sum().backward()
    log(x.grad)

    def f(x):
        with T.autograd.graph.saved_tensors_hooks(
            lambda t: (log("ip"), t * 2)[1], lambda t: (log("iu"), t / 2)[1]
        ):
            return T.exp(x) * x

    x.grad = None
    out = of(T)(f, x, use_reentrant=False)
    yield out.sum().backward()
    log(x.grad)


@both
def test_arguments_saved_on_the_cpu(T, log):
    x = leaf(T, 2.0)
    with T.autograd.graph.save_on_cpu():
        h = of(T)(lambda a: T.exp(a) * a, x * x, use_reentrant=False)
        d = T.sin(h)
    yield d.sum().backward()
    log(x.grad)


@both
def test_what_has_another_shape_when_it_runs_again(T, log):
    runs = []

    def saves_more(x):
        runs.append(None)
        y = x.exp()
        return (y if len(runs) % 2 else T.cat([y, y])).sin().sum()

    def returns_more(x):
        runs.append(None)
        return x.exp() if len(runs) % 2 else (x.exp(), x.exp())

    for function, options in (
        (saves_more, {"use_reentrant": False, "determinism_check": "default"}),
        (saves_more, {"use_reentrant": False, "determinism_check": "none"}),
        (returns_more, {"use_reentrant": True}),
    ):
        x = T.ones(2, requires_grad=True)
        y = T.utils.checkpoint.checkpoint(function, x, **options)
        try:
            yield y.sum().backward()
        except (RuntimeError, IndexError) as error:
            log(error)
        runs.clear()
