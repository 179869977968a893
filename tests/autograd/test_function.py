"""Functions with a backward of one's own."""

import asyncio
import gc
import itertools
import weakref

import numpy as np
import pytest
from functions import function_of
from parity import attempt, both, leaf, raised

import asyncgrad as ag


@both
def test_forward_runs_unrecorded_and_backward_as_the_pass_wants(T, log):
    class Scale(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor):
            log(T.is_grad_enabled(), x.requires_grad, ctx.needs_input_grad)
            ctx.factor = factor
            return x * factor

        @staticmethod
        def backward(ctx, gradient):
            log(T.is_grad_enabled(), ctx.needs_input_grad, gradient.requires_grad)
            return gradient * ctx.factor, None

    x = leaf(T, 1.0, 2.0)
    y = Scale.apply(x, 3)
    log(y, y.requires_grad, y.is_leaf, y.grad_fn, y.grad_fn.next_functions[0][0])
    yield y.sum().backward()
    log(x.grad)
    with T.no_grad():
        log(Scale.apply(x, 3).requires_grad)
    log(Scale.apply(x.detach(), 3).requires_grad)
    (g,) = yield T.autograd.grad(Scale.apply(x, 2).sum(), x, create_graph=True)
    log(g)


@both
def test_the_node_is_the_ctx(T, log):
    seen = []

    class Same(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            seen.append(ctx)
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            seen.append(ctx)
            return gradient * 2

    x = leaf(T, 1.0)
    y = Same.apply(x)
    log(seen[0] is y.grad_fn, isinstance(y.grad_fn, T.autograd.graph.Node))
    log(y.grad_fn.name(), type(y.grad_fn).__name__, y.grad_fn.metadata)
    yield y.backward()
    log(seen[1] is y.grad_fn)


@both
def test_setup_context_gets_the_arguments_with_defaults(T, log):
    def setup_context(ctx, inputs, output):
        log(len(inputs), inputs[1], output)
        ctx.exponent = inputs[1]
        ctx.save_for_backward(inputs[0])

    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        log(ctx.needs_input_grad)
        return gradient * ctx.exponent * x ** (ctx.exponent - 1), None

    Power = function_of(T, lambda x, exponent=2: x**exponent, backward, setup_context=setup_context)
    x = leaf(T, 2.0)
    for y in (Power.apply(x), Power.apply(x, 3), Power.apply(x, exponent=4), Power.apply(x=x)):
        (g,) = yield T.autograd.grad(y.sum(), x)
        log(g)
    attempt(log, Power.apply, x, 2, 3)
    attempt(log, Power.apply, x, wrong=3)


@both
def test_keywords_go_to_the_parameters_of_forward(T, log):
    class Power(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, exponent=2):
            ctx.save_for_backward(x)
            ctx.exponent = exponent
            return x**exponent

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            return gradient * ctx.exponent * x ** (ctx.exponent - 1), None

    class Keyword(T.autograd.Function):
        @staticmethod
        def forward(x, *, exponent=2):
            return x**exponent

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

    x = leaf(T, 2.0)
    (g,) = yield T.autograd.grad(Power.apply(x, exponent=3).sum(), x)
    log(g)
    (g,) = yield T.autograd.grad(Power.apply(x).sum(), x)
    log(g)
    attempt(log, Keyword.apply, x)


@both
def test_what_is_saved_comes_back(T, log):
    class Keep(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            twice = x * 2
            out = twice * y
            ctx.save_for_backward(x, None, twice, out)
            return out

        @staticmethod
        def backward(ctx, gradient):
            x, nothing, twice, out = ctx.saved_tensors
            log(x, nothing, twice, out, x.requires_grad, out.requires_grad, out.grad_fn is ctx)
            log(len(ctx.saved_tensors), ctx.saved_tensors[0] is x)
            return gradient * out / x, None

    x = leaf(T, 1.0, 2.0)
    y = T.tensor([3.0, 4.0], dtype=T.float64)
    out = Keep.apply(x, y)
    log(out.grad_fn.saved_tensors[0] is x)
    yield out.sum().backward()
    log(x.grad)
    try:
        log(out.grad_fn.saved_tensors)
    except RuntimeError as error:
        log(error, "second time" in str(error))
    yield from raised(log, out.sum().backward)
    log(x.grad)


@both
def test_a_function_that_saved_nothing_can_run_again(T, log):
    def backward(ctx, gradient):
        attempt(log, lambda: ctx.saved_tensors)
        return gradient * 2

    Double = function_of(T, lambda ctx, x: x * 2, backward)
    x = leaf(T, 1.0)
    y = Double.apply(x)
    yield y.backward()
    yield y.backward()
    log(x.grad)


@both
def test_only_tensors_are_saved(T, log):
    class Wrong(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x, 1)
            return x * 2

    attempt(log, Wrong.apply, leaf(T, 1.0))
    attempt(log, Wrong.apply, leaf(T, 2.0, 3.0))
    log(Wrong.apply(leaf(T, 1.0).detach()))


@both
def test_attributes_of_ctx_have_any_name(T, log):
    class Double(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.saved, ctx.guard, ctx.version, ctx.name = 1, 2, 3, "mine"
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            log(ctx.saved, ctx.guard, ctx.version, ctx.name)
            raise ValueError("no")

    y = Double.apply(leaf(T, 3.0))
    assert "Double" in repr(y)
    try:
        yield y.backward()
    except ValueError as error:
        log(str(error))


@pytest.mark.parametrize(
    "name",
    [
        "cost", "rule", "extras", "following", "stream", "apply", "output_metadata", "sequence_nr",
        "topological_nr",
    ],
)  # fmt: skip
def test_attributes_of_ctx_that_a_pass_uses_are_refused(name):
    """They would be lost, or confuse the pass."""

    class Double(ag.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            setattr(ctx, name, "mine")
            return x * 2

    x = ag.ones(2, requires_grad=True, device="sim:0" if name == "stream" else "cpu")
    with pytest.raises(RuntimeError, match=rf"Double: forward\(\) has set.*\b{name}\b"):
        Double.apply(x)
    Double.apply(ag.ones(2))


@both
def test_saved_tensors_can_be_given_up_at_their_first_use(T, log):
    class Once(T.autograd.Function):
        clear_saved_tensors_on_access = True

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            try:
                log(len(ctx.saved_tensors))
            except RuntimeError as error:
                log(error)
            return gradient * 2 * x

    x = leaf(T, 3.0)
    yield Once.apply(x).backward()
    log(x.grad)


@both
def test_a_saved_tensor_that_was_changed_is_refused(T, log):
    class Keep(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            out = x * 2
            ctx.save_for_backward(x, out)
            return out

        @staticmethod
        def backward(ctx, gradient):
            log("backward")
            return gradient * ctx.saved_tensors[0]

    for which in ("input", "output", "neither"):
        x = leaf(T, 1.0, 2.0)
        h = x * 1
        out = Keep.apply(h)
        total = out.sum()
        if which == "input":
            h += 1
        elif which == "output":
            out += 1
        try:
            yield total.backward()
            log(x.grad)
        except RuntimeError as error:
            log(error, "modified by an inplace operation" in str(error))


@both
def test_dirty_inputs_are_returned_as_they_are(T, log):
    def forward(ctx, x):
        x += 1
        ctx.mark_dirty(x)
        return x

    AddOne = function_of(T, forward, lambda ctx, gradient: gradient * 5)
    x = leaf(T, 1.0, 2.0)
    h = x * 2
    out = AddOne.apply(h)
    log(out is h, h, h._version, h.grad_fn, h.grad_fn.next_functions[0][0])
    yield h.sum().backward()
    log(x.grad)
    attempt(log, AddOne.apply, x)
    with T.no_grad():
        h = x * 2
        log(AddOne.apply(h) is h, h._version)


@both
def test_dirty_views_rewrite_their_base(T, log):
    def forward(ctx, x):
        x += 1
        ctx.mark_dirty(x)
        return x

    AddOne = function_of(T, forward, lambda ctx, gradient: gradient * 5)
    x = leaf(T, 1.0, 2.0, 3.0)
    h = x * 2
    out = AddOne.apply(h[:2])
    log(out, h, h.grad_fn)
    yield (h * h).sum().backward()
    log(x.grad)
    attempt(log, AddOne.apply, x[:2])


@both
def test_what_is_marked_dirty_has_to_be_returned(T, log):
    class Forget(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x += 1
            ctx.mark_dirty(x)
            return x * 1

    attempt(log, Forget.apply, leaf(T, 1.0) * 1)


@both
def test_an_input_returned_as_it_is_becomes_a_view(T, log):
    Through = function_of(T, lambda ctx, x: x, lambda ctx, gradient: gradient * 3)
    x = leaf(T, 1.0, 2.0)
    y = Through.apply(x)
    log(y is x, y._is_view(), y._base is x, y.grad_fn)
    yield y.sum().backward()
    log(x.grad)
    attempt(log, lambda: y.mul_(2))
    z = Through.apply(x * 1)
    attempt(log, lambda: z.mul_(2))
    with T.no_grad():
        z.mul_(2)
    log(z)
    with T.no_grad():
        log(Through.apply(x) is x)
    log(Through.apply(x.detach()).requires_grad)


@both
def test_a_view_made_in_forward_can_not_be_changed_in_place(T, log):
    First = function_of(
        T, lambda ctx, x: x[:1], lambda ctx, gradient: T.cat([gradient * 2, gradient * 0])
    )
    x = leaf(T, 1.0, 2.0)
    y = First.apply(x * 1)
    log(y._is_view())
    attempt(log, lambda: y.mul_(2))
    yield y.sum().backward()
    log(x.grad)


@both
def test_a_returned_input_can_not_be_saved_by_setup_context(T, log):
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    Through = function_of(
        T, lambda x: x, lambda ctx, gradient: gradient, setup_context=setup_context
    )
    attempt(log, Through.apply, leaf(T, 1.0))


@both
def test_outputs_without_gradient(T, log):
    class Sort(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            order = T.argsort(x)
            mask = (x > 1.5).double()
            ctx.mark_non_differentiable(mask)
            ctx.save_for_backward(order, mask)
            return x[order], order, mask

        @staticmethod
        def backward(ctx, gradient, order_gradient, mask_gradient):
            order, mask = ctx.saved_tensors
            log(gradient, order_gradient, mask_gradient, mask.requires_grad)
            out = T.zeros_like(gradient)
            out[order] = gradient
            return out

    x = leaf(T, 3.0, 1.0, 2.0)
    values, order, mask = Sort.apply(x)
    log(values.requires_grad, order.requires_grad, mask.requires_grad, mask.grad_fn)
    yield (values * T.tensor([1.0, 2.0, 3.0], dtype=T.float64)).sum().backward()
    log(x.grad)


@both
def test_undefined_gradients_are_zeros_unless_told_otherwise(T, log):
    for materialize in (True, False):

        class Two(T.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.set_materialize_grads(materialize)  # noqa: B023
                return x * 2, x * 3

            @staticmethod
            def backward(ctx, first, second):
                log(first, second)
                return (0 if first is None else first * 2) + (0 if second is None else second * 3)

        x = leaf(T, 1.0, 2.0)
        _, second = Two.apply(x)
        yield second.sum().backward()
        log(x.grad)


@both
def test_other_results_are_passed_on(T, log):
    def backward(ctx, *gradients):
        log(gradients)
        return gradients[1] * 2

    Mixed = function_of(T, lambda ctx, x: ("text", x * 2, None, [x * 3]), backward)
    x = leaf(T, 1.0)
    text, y, nothing, listed = Mixed.apply(x)
    log(text, y, nothing, listed[0].requires_grad, y.output_nr)
    yield y.backward()
    log(x.grad)
    Single = function_of(T, lambda ctx, x: (x * 2,), lambda ctx, gradient: (gradient * 2,))
    result = Single.apply(x)
    log(isinstance(result, tuple), len(result))
    yield result[0].backward()
    log(x.grad)


@both
def test_the_number_and_kind_of_gradients(T, log):
    Any = function_of(T, lambda ctx, x, n: x * 1, lambda ctx, gradient: returned(gradient))
    for returned in (  # noqa: B007  backward reads it
        lambda g: (g, None),
        lambda g: (g, None, None),
        lambda g: (None, None),
        lambda g: g,
        lambda g: (g, None, g),
        lambda g: (g, g),
        lambda g: (1.0, None),
        lambda g: ([g], None),
        lambda g: (g.sum(), None),
        lambda g: (T.ones(5, dtype=T.float64), None),
        lambda g: (T.ones(3, 2, dtype=T.float64), None),
        lambda g: (g.float(), None),
        lambda g: (T.ones(2), None),
    ):
        x = leaf(T, 1.0, 2.0)
        try:
            yield Any.apply(x, 2).sum().backward()
            log(x.grad)
        except Exception as error:
            log(error)


@both
def test_gradients_are_brought_to_the_shape_and_dtype_of_their_input(T, log):
    Widen = function_of(
        T, lambda ctx, x: x.double().expand(3, 2) + 0, lambda ctx, gradient: gradient
    )
    x = T.tensor([[1.0, 2.0]], requires_grad=True)
    yield Widen.apply(x).sum().backward()
    log(x.grad)


@both
def test_missing_parts(T, log):
    class NoForward(T.autograd.Function):
        pass

    class NoBackward(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

    class Both(NoBackward):
        @staticmethod
        def backward(ctx, gradient):
            return gradient

        @staticmethod
        def vjp(ctx, gradient):
            return gradient

    class Vjp(NoBackward):
        @staticmethod
        def vjp(ctx, gradient):
            return gradient * 2

    x = leaf(T, 1.0)
    attempt(log, NoForward.apply, x)
    for kind in (NoBackward, Both, Vjp):
        try:
            yield kind.apply(x).backward()
            log(x.grad)
        except Exception as error:
            log(error)


@both
def test_it_is_not_to_be_instantiated(T, log):
    class Nothing(T.autograd.Function):
        pass

    with pytest.warns(DeprecationWarning, match="should not be instantiated"):
        instance = Nothing()
    attempt(log, instance)


@both
def test_the_second_derivative_goes_through_backward(T, log):
    class Cube(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            log(T.is_grad_enabled())
            return 3 * x**2 * gradient

    class Exp(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            out = x.exp()
            ctx.save_for_backward(out)
            return out

        @staticmethod
        def backward(ctx, gradient):
            (out,) = ctx.saved_tensors
            return gradient * out

    x = leaf(T, 2.0)
    for function in (Cube, Exp):
        y = function.apply(x)
        for _ in range(3):
            (y,) = yield T.autograd.grad(y, x, create_graph=True)
            log(y)


@both
def test_once_differentiable(T, log):
    class Square(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @T.autograd.function.once_differentiable
        def backward(ctx, gradient):
            log(T.is_grad_enabled())
            (x,) = ctx.saved_tensors
            return 2 * x * gradient

    x = leaf(T, 3.0)
    (g,) = yield T.autograd.grad(Square.apply(x).sum(), x, create_graph=True)
    log(g, g.requires_grad)
    seed = T.ones(1, dtype=T.float64, requires_grad=True)
    (g,) = yield T.autograd.grad(Square.apply(x), x, seed, create_graph=True)
    log(g, g.requires_grad)
    try:
        yield g.sum().backward()
    except RuntimeError as error:
        log(error, "differentiate twice" in str(error))
    yield from raised(log, T.autograd.grad, g.sum(), x)
    yield (g * x).sum().backward(inputs=[x])
    log(x.grad)


@both
def test_tensors_in_containers_are_not_followed(T, log):
    Sum = function_of(
        T, lambda ctx, tensors: tensors[0] + tensors[1], lambda ctx, gradient: gradient
    )
    log(Sum.apply([leaf(T, 1.0), leaf(T, 2.0)]).requires_grad)


@both
def test_attributes_survive_and_the_same_function_nests(T, log):
    class Outer(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.note = "kept"
            ctx.save_for_backward(x)
            return Inner.apply(x) * 2

        @staticmethod
        def backward(ctx, gradient):
            log(ctx.note)
            (x,) = ctx.saved_tensors
            with T.enable_grad():
                inner = Inner.apply(x.detach().requires_grad_())
            log(inner.grad_fn)
            return gradient * 2 * 7

    Inner = function_of(T, lambda ctx, x: x * 7, lambda ctx, gradient: gradient * 7)
    x = leaf(T, 1.0)
    y = Outer.apply(x)
    log(y, y.grad_fn)
    yield y.backward()
    log(x.grad)


@both
def test_gradients_boxed_in_a_list(T, log):
    class Boxed(T.autograd.Function):
        boxed_grads_call = True

        @staticmethod
        def forward(ctx, x):
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, gradients):
            log(type(gradients).__name__, len(gradients))
            second, first = gradients.pop(), gradients.pop()
            return first * 2 + second * 3

    x = leaf(T, 1.0)
    first, second = Boxed.apply(x)
    yield (first + second).backward()
    log(x.grad)


@both
def test_integer_results_have_no_gradient(T, log):
    Count = function_of(
        T, lambda ctx, x: (x * 2, (x > 0).sum()), lambda ctx, gradient, _: gradient * 2
    )
    x = leaf(T, 1.0)
    y, n = Count.apply(x)
    log(n.requires_grad, n.dtype == T.int64)
    yield y.backward()
    log(x.grad)


# -- ours alone ------------------------------------------------------------------------------------


class Hidden(ag.autograd.Function):
    """Keeps on ctx what it computed: the second derivative can't be known."""

    @staticmethod
    def forward(ctx, x):
        ctx.square = x * x
        return ctx.square * x

    @staticmethod
    def backward(ctx, gradient):
        return 3 * ctx.square * gradient


def test_a_result_hidden_on_ctx_makes_the_second_derivative_an_error():
    """PyTorch gives 12 in the place of 18."""
    x = ag.tensor(3.0, requires_grad=True)
    (g,) = ag.autograd.grad(Hidden.apply(x), x, create_graph=True)
    assert g.item() == 27
    with pytest.raises(RuntimeError, match=r"HiddenBackward.*kept on ctx"):
        ag.autograd.grad(g, x)


def test_a_result_hidden_on_ctx_may_be_declared_a_constant():
    class Constant(Hidden):
        constants_on_ctx = True

    x = ag.tensor(3.0, requires_grad=True)
    (g,) = ag.autograd.grad(Constant.apply(x) * x, x, create_graph=True)
    assert ag.autograd.grad(g, x)[0].item() == 2 * 27


def test_a_result_hidden_on_ctx_is_no_matter_in_an_ordinary_pass():
    x = ag.tensor(3.0, requires_grad=True)
    y = Hidden.apply(x)
    y.backward()
    assert x.grad.item() == 27
    assert isinstance(y.grad_fn.square.numpy(), np.ndarray)


def test_inputs_outputs_and_constants_on_ctx_are_differentiated_right():
    class Fine(ag.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.x = x
            ctx.noise = ag.ones(1)
            ctx.out = x.exp()
            return ctx.out

        @staticmethod
        def backward(ctx, gradient):
            return gradient * ctx.out * ctx.noise + 0 * ctx.x

    x = ag.tensor([1.0], requires_grad=True)
    y = Fine.apply(x)
    (g,) = ag.autograd.grad(y, x, create_graph=True)
    (h,) = ag.autograd.grad(g, x)
    np.testing.assert_allclose(h.numpy(), np.exp([1.0]), rtol=1e-6)


@pytest.mark.usefixtures("no_collector")
def test_ctx_that_keeps_its_own_output_makes_no_cycle():
    def forward(ctx, x):
        ctx.out = x * 2
        ctx.save_for_backward(x, ctx.out, ctx.out[:1])
        return ctx.out

    Keep = function_of(ag, forward, lambda ctx, gradient: gradient * 2)
    gc.collect()
    x = ag.ones(3, requires_grad=True)
    y = Keep.apply(x)
    node = weakref.ref(y.grad_fn)
    gradients = ag.autograd.grad(y.sum(), x, create_graph=True)
    assert gradients[0].requires_grad is False
    del y
    assert node() is None
    y = Keep.apply(x)
    node = weakref.ref(y.grad_fn)
    y.sum().backward()
    del y
    assert node() is None


def test_wants_grad_is_narrowed_to_the_pass():
    seen = []

    def backward(ctx, gradient):
        seen.append((ctx.needs_input_grad, ctx.wants_grad))
        return gradient, None, gradient

    Both = function_of(ag, lambda ctx, x, scale, y: x * scale * y, backward)
    x, y = ag.ones(1, requires_grad=True), ag.ones(1, requires_grad=True)
    out = Both.apply(x, 2, y)
    ag.autograd.grad(out, y, retain_graph=True)
    out.backward(inputs=[x], retain_graph=True)
    out.backward()
    full = (True, False, True)
    assert seen == [
        (full, (False, False, True)),
        (full, (True, False, False)),
        (full, full),
    ]


def test_fresh_gradients_are_taken_as_they_are():
    made = []

    class Fresh(ag.autograd.Function):
        fresh_gradients = True

        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            made.append(gradient * 2)
            return made[0]

    x = ag.ones(2, requires_grad=True)
    Fresh.apply(x).sum().backward()
    assert x.grad.numpy() is made[0].numpy()


def test_a_gradient_kept_by_its_function_is_copied():
    def backward(ctx, gradient):
        ctx.kept = gradient * 2
        return ctx.kept

    Kept = function_of(ag, lambda ctx, x: x * 2, backward)
    x = ag.ones(2, requires_grad=True)
    y = Kept.apply(x)
    y.sum().backward()
    assert not np.shares_memory(x.grad.numpy(), y.grad_fn.kept.numpy())


class Later(ag.autograd.Function):
    """Both halves wait for something."""

    @staticmethod
    async def forward(ctx, x, start):
        assert not ag.is_grad_enabled()
        await start.wait()
        assert not ag.is_grad_enabled()
        ctx.save_for_backward(x)
        ctx.start = start
        return x * x

    @staticmethod
    async def backward(ctx, gradient):
        await asyncio.sleep(0)
        (x,) = ctx.saved_tensors
        return 2 * x * gradient, None


@pytest.mark.asyncio
async def test_forward_and_backward_may_be_coroutine_functions():
    start = asyncio.Event()
    x = ag.tensor([3.0], requires_grad=True)
    applied = asyncio.ensure_future(Later.apply(x, start))
    await asyncio.sleep(0)
    assert ag.is_grad_enabled()
    assert not applied.done()
    start.set()
    y = await applied
    assert y.grad_fn.name() == "LaterBackward"
    await y.sum().backward()
    assert x.grad.item() == 6


class Scaled(ag.autograd.Function):
    """Its forward waits until it is let go."""

    @staticmethod
    async def forward(ctx, x, factor, start):
        await start.wait()
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.factor, None, None


@pytest.mark.asyncio
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
async def test_calls_that_wait_at_the_same_time_are_summed_in_the_order_of_the_calls(order):
    x, y = leaf(ag, 1.0), leaf(ag, 1.0)
    factors = (0.1, 0.2, 0.3)
    starts = [asyncio.Event() for _ in factors]
    calls = [
        asyncio.ensure_future(Scaled.apply(x, factor, start))
        for factor, start in zip(factors, starts, strict=True)
    ]
    for place in order:
        starts[place].set()
        await calls[place]
    results = await asyncio.gather(*calls)
    await (results[0] + results[1] + results[2]).backward()
    await (y * factors[0] + y * factors[1] + y * factors[2]).backward()
    assert x.grad.tolist() == y.grad.tolist()


@pytest.mark.asyncio
async def test_an_argument_that_is_changed_while_forward_waits_comes_before_the_call():
    x = leaf(ag, 2.0)
    argument = x * 1
    start = asyncio.Event()
    call = asyncio.ensure_future(Scaled.apply(argument, 5.0, start))
    await asyncio.sleep(0)
    argument.mul_(3.0)
    start.set()
    result = await call
    before = result.grad_fn.next_functions[0][0]
    assert before._sequence_nr() < result.grad_fn._sequence_nr()
    await (result + argument).backward()
    assert (result.item(), x.grad.item()) == (30.0, 18.0)


@pytest.mark.asyncio
async def test_while_a_node_waits_the_others_go_on():
    order = []
    gate = asyncio.Event()

    async def backward(ctx, gradient):
        await gate.wait()
        order.append("waited")
        return gradient

    Wait = function_of(ag, backward=backward)
    x, y = ag.ones(1, requires_grad=True), ag.ones(1, requires_grad=True)

    def pass_by(gradient):
        order.append("passed")
        gate.set()

    other = y * 2
    other.register_hook(pass_by)
    out = Wait.apply(x) + other
    await out.backward()
    assert order == ["passed", "waited"]


@pytest.mark.asyncio
async def test_a_coroutine_backward_can_be_differentiated_and_its_error_is_the_pass_s():
    class Cube(ag.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        async def backward(ctx, gradient):
            await asyncio.sleep(0)
            assert ag.is_grad_enabled()
            (x,) = ctx.saved_tensors
            return 3 * x * x * gradient

    class Fail(Cube):
        @staticmethod
        async def backward(ctx, gradient):
            await asyncio.sleep(0)
            raise ZeroDivisionError("no")

    x = ag.tensor(2.0, requires_grad=True)
    (g,) = await ag.autograd.grad(Cube.apply(x), x, create_graph=True)
    (h,) = await ag.autograd.grad(g, x)
    assert h.item() == 12
    with pytest.raises(ZeroDivisionError, match="no"):
        await Fail.apply(x).backward()
    assert x.grad is None


def test_a_coroutine_backward_runs_without_a_loop():
    async def backward(ctx, gradient):
        await asyncio.sleep(0)
        return gradient * 2

    Wait = function_of(ag, lambda ctx, x: x * 2, backward)
    x = ag.ones(1, requires_grad=True)
    Wait.apply(x).backward()
    assert x.grad.item() == 2


@pytest.mark.asyncio
async def test_once_differentiable_takes_coroutine_functions():
    class Square(ag.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @ag.autograd.function.once_differentiable
        async def backward(ctx, gradient):
            await asyncio.sleep(0)
            assert not ag.is_grad_enabled()
            return 2 * ctx.saved_tensors[0] * gradient

    x = ag.tensor(3.0, requires_grad=True)
    seed = ag.tensor(1.0, requires_grad=True)
    (g,) = await ag.autograd.grad(Square.apply(x), x, seed, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        await g.backward()
