"""What operations save: packed, unpacked, disabled, and changed in place."""

import contextlib
import gc
import weakref

import pytest
from parity import attempt, both, leaf, raised

import asyncgrad as ag
from asyncgrad.core.versions import VersionCounter


def hooks(T, pack, unpack):
    return T.autograd.graph.saved_tensors_hooks(pack, unpack)


@both
def test_everything_saved_is_packed_and_unpacked_at_each_use(T, log):
    def pack(t):
        log("pack", t, t.requires_grad, t.is_leaf)
        return t * 2

    def unpack(t):
        log("unpack", t)
        return t / 2

    x, w = leaf(T, 2.0, 3.0), T.tensor([4.0, 5.0], dtype=T.float64)
    with hooks(T, pack, unpack):
        for function in (
            lambda: x * x,
            lambda: x * w,
            lambda: x + w,
            lambda: T.exp(x),
            lambda: T.sin(x),
            lambda: x.sum(),
            lambda: T.tanh(x) * x,
            lambda: x.pow(3),
            lambda: T.softmax(x, 0),
            lambda: T.sigmoid(w),
        ):
            y = function()
            log("made", y.requires_grad)
            if y.requires_grad:
                yield y.sum().backward()
                log(x.grad)


@both
def test_unpacked_again_when_the_graph_is_retained(T, log):
    x = leaf(T, 2.0)
    with hooks(T, lambda t: (log("pack"), t)[1], lambda t: (log("unpack"), t)[1]):
        y = (x * x).sum()
    yield y.backward(retain_graph=True)
    log(x.grad)
    yield y.backward(retain_graph=True)
    yield y.backward()
    log(x.grad)
    yield from raised(log, y.backward)


@both
def test_hooks_hold_where_the_graph_is_made(T, log):
    x = leaf(T, 3.0)
    with hooks(T, lambda t: t * 4, lambda t: t):
        inside = x * x
    outside = x * x
    with hooks(T, lambda t: t * 100, lambda t: t * 100):
        log((yield T.autograd.grad(inside.sum(), x)), (yield T.autograd.grad(outside.sum(), x)))


@both
def test_only_the_innermost_pair_is_used(T, log):
    x = leaf(T, 2.0)
    with hooks(T, lambda t: t, lambda t: t * 10):
        with hooks(T, lambda t: t, lambda t: t * 100):
            inner = x * x
        outer = x * x
    for y in (inner, outer):
        log((yield T.autograd.grad(y.sum(), x)))


@both
def test_packed_tensors_lead_into_the_graph(T, log):
    x = leaf(T, 0.5)
    with hooks(T, lambda t: t.numpy().copy(), T.from_numpy):
        y = T.exp(x * x) * x
    (g,) = yield T.autograd.grad(y.sum(), x, create_graph=True)
    (h,) = yield T.autograd.grad(g.sum(), x, create_graph=True)
    (k,) = yield T.autograd.grad(h.sum(), x)
    log(g, h, k)


@both
def test_a_recorded_pass_packs_with_the_hooks_around_it(T, log):
    x = leaf(T, 0.5)
    y = T.exp(x)
    with hooks(T, lambda t: (log("pack"), t)[1], lambda t: (log("unpack"), t)[1]):
        (g,) = yield T.autograd.grad(y.sum(), x, create_graph=True)
    log("second")
    log((yield T.autograd.grad(g.sum(), x)))


@both
def test_what_hooks_raise_is_the_callers(T, log):
    class Special(Exception):
        pass

    def fails(t):
        raise Special

    x = leaf(T, 2.0)
    with hooks(T, fails, lambda t: t):
        try:
            x * x
        except Special:
            log("from pack")
    with hooks(T, lambda t: t, fails):
        y = (x * x).sum()
    try:
        yield y.backward()
    except Special:
        log("from unpack")
    log(x.grad)
    attempt(log, lambda: (x * x).requires_grad)


@both
def test_unpack_has_to_give_a_tensor(T, log):
    x = leaf(T, 2.0)
    for result in (3, None, "text", [x]):
        with hooks(T, lambda t: t, lambda t, result=result: result):
            y = (x * x).sum()
        yield from raised(log, y.backward)
    for wrong in (1, None):
        for pair in ((wrong, lambda t: t), (lambda t: t, wrong)):
            try:
                with hooks(T, *pair):
                    log("entered")
            except TypeError as error:
                log(error)
    log((x * x).requires_grad)


@both
def test_pack_must_not_change_its_input(T, log):
    def change(t):
        t.add_(1)
        return t

    x = leaf(T, 2.0)
    with hooks(T, change, lambda t: t):
        attempt(log, lambda: x * x)
        attempt(log, lambda: T.exp(x))
    y = x * 1
    with hooks(T, change, lambda t: t):
        attempt(log, lambda: y * y)
    with hooks(T, lambda t: t.clone().add_(1), lambda t: t - 1):
        y = x * 2
        z = T.exp(y)
    log((yield T.autograd.grad(z.sum(), x)))


@both
def test_hooks_of_one_saved_tensor(T, log):
    x = leaf(T, 3.0)
    y = x * x
    node = y.grad_fn
    node._raw_saved_self.register_hooks(lambda t: t * 2, lambda t: t * 2)
    log((yield T.autograd.grad(y.sum(), x, retain_graph=True)), node._saved_self)
    attempt(log, node._raw_saved_self.register_hooks, lambda t: t, lambda t: t)
    node._raw_saved_other.register_hooks(lambda t: t, lambda t: t * 3)
    yield y.sum().backward()
    log(x.grad)
    attempt(log, lambda: node._saved_self)
    z = T.exp(x)
    z.grad_fn._raw_saved_result.register_hooks(lambda t: t * 2, lambda t: t / 2)
    log(z.grad_fn._saved_result, z.grad_fn._saved_result.requires_grad)
    with T.no_grad():
        log(z)
    (g,) = yield T.autograd.grad(z.sum(), x, create_graph=True)
    log((yield T.autograd.grad(g.sum(), x)))


@both
def test_only_what_hooks_have_not_packed_is_checked_for_changes(T, log):
    """Of each saved tensor, in whatever order the two are packed."""
    x = leaf(T, 3.0)
    for names in ("self other", "other self", "self", "other"):
        for changed in range(2):
            values = x * 1, x * 2
            y = values[0] * values[1]
            for name in names.split():
                saved = getattr(y.grad_fn, f"_raw_saved_{name}")
                saved.register_hooks(lambda t: t.clone(), lambda t: t)
            with T.no_grad():
                values[changed].mul_(5)
            try:
                log((yield T.autograd.grad(y.sum(), x)))
            except RuntimeError as error:
                log(error)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", ["self", "result", "condition"])
def test_hooks_come_too_late_once_the_value_is_freed(name, packed):
    """Also for who took hold of the saved tensor before."""

    def same(t):
        return t

    x = ag.ones(2, requires_grad=True)
    y = {"self": x * x, "result": x.exp(), "condition": ag.where(x > 0, x, x)}[name]
    held = getattr(y.grad_fn, f"_raw_saved_{name}")
    if packed:
        held.register_hooks(same, same)
    y.sum().backward()
    for saved in (held, getattr(y.grad_fn, f"_raw_saved_{name}")):
        with pytest.raises(RuntimeError, match="after it has been freed"):
            saved.register_hooks(same, same)


@both
def test_hooks_of_what_a_function_has_saved(T, log):
    class Square(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x * x
            ctx.save_for_backward(x, y, None)
            return y

        @staticmethod
        def backward(ctx, gradient):
            x, y, none = ctx.saved_tensors
            log(x, y, none)
            return 2 * x * gradient

    x = leaf(T, 3.0)
    y = Square.apply(x)
    y.grad_fn._raw_saved_tensors[0].register_hooks(lambda t: t, lambda t: t * 5)
    yield y.sum().backward()
    log(x.grad)
    attempt(log, lambda: y.grad_fn._raw_saved_tensors)
    with hooks(T, lambda t: (log("pack", t), t)[1], lambda t: (log("unpack"), t)[1]):
        y = Square.apply(x)
    yield y.sum().backward(retain_graph=True)
    log(len(y.grad_fn.saved_tensors))


@both
def test_hooks_can_be_disabled(T, log):
    disable = T.autograd.graph.disable_saved_tensors_hooks
    x = leaf(T, 3.0)
    with disable("not here"):
        with hooks(T, lambda t: t, lambda t: t) if False else disable("nor here"):
            attempt(log, lambda: hooks(T, lambda t: t, lambda t: t).__enter__())
        try:
            with hooks(T, lambda t: t, lambda t: t):
                log("entered")
        except RuntimeError as error:
            log(error, "not here" in str(error))
        yield (x * x).sum().backward()
    log(x.grad)
    with hooks(T, lambda t: t, lambda t: t):
        try:
            with disable("too late"):
                log("entered")
        except RuntimeError as error:
            log(error)
    with hooks(T, lambda t: t, lambda t: t * 2):
        y = x * x
    log((yield T.autograd.grad(y.sum(), x)))


@both
def test_hooks_are_not_left_behind_by_errors(T, log):
    x = leaf(T, 3.0)
    try:
        with hooks(T, lambda t: t * 0, lambda t: t * 0):
            raise KeyError
    except KeyError:
        log("raised")
    log((yield T.autograd.grad((x * x).sum(), x)))
    manager = hooks(T, lambda t: t, lambda t: t * 7)
    for _ in range(2):
        with manager:
            y = x * x
        log((yield T.autograd.grad(y.sum(), x)))


@both
def test_on_the_cpu(T, log):
    x, w = leaf(T, 2.0, 3.0), leaf(T, 4.0, 5.0)
    with T.autograd.graph.save_on_cpu():
        y = T.exp(x * w) * x
        log(y.grad_fn._saved_self, y.grad_fn._saved_self.requires_grad)
    (g,) = yield T.autograd.grad(y.sum(), x, create_graph=True)
    log(g)
    with T.autograd.graph.save_on_cpu(pin_memory=False):
        y = (x * w).sum()
    yield y.backward()
    log(x.grad, w.grad)


@both
def test_a_change_in_place_is_not_seen_through_hooks(T, log):
    x = leaf(T, 2.0)
    for pack in (lambda t: t, lambda t: t.clone()):
        y = x * 1
        with hooks(T, pack, lambda t: t):
            z = y * y
        y.add_(1)
        log((yield T.autograd.grad(z.sum(), x)))


@both
def test_operations_in_place_under_hooks(T, log):
    x, w = leaf(T, 0.5, 0.25), leaf(T, 2.0, 3.0)
    for change in (
        lambda t: t.sin_(),
        lambda t: t.mul_(w),
        lambda t: t.mul_(t),
        lambda t: t.pow_(3),
        lambda t: t.exp_(),
        lambda t: t.div_(w),
        lambda t: t[:1].mul_(w[1:]),
        lambda t: t.copy_(w * t),
    ):
        y = x * 1
        with hooks(T, lambda t: t, lambda t: t):
            change(y)
            z = (y * y).sum()
        log((yield T.autograd.grad(z, (x, w), allow_unused=True)))


@both
def test_a_pack_hook_knows_leaves_by_their_identity(T, log):
    x, w = leaf(T, 0.5), leaf(T, 2.0)
    seen = []
    with hooks(T, lambda t: (seen.append([t is x, t is w]), t)[1], lambda t: t):
        y = x * w
        z = T.exp(y * x)
    log(seen)
    log((yield T.autograd.grad(z.sum(), (x, w))))


@both
def test_hooks_run_unrecorded_or_as_they_are_run(T, log):
    x = leaf(T, 2.0)
    with hooks(
        T,
        lambda t: (log("pack", T.is_grad_enabled()), t)[1],
        lambda t: (log("unpack", T.is_grad_enabled()), t)[1],
    ):
        y = (x * x).sum()
    yield y.backward(retain_graph=True)
    yield T.autograd.grad(y, x, create_graph=True)


@both
def test_hooks_of_one_value_leave_the_others_checked(T, log):
    a = leaf(T, 5.0, 1.0)
    for names in (("self",), ("self", "other")):
        a.grad = None
        y = a * 1
        w = y * y
        for name in names:
            getattr(w.grad_fn, f"_raw_saved_{name}").register_hooks(
                lambda t: t.clone(), lambda t: t
            )
        y.add_(1)
        try:
            yield w.sum().backward()
            log(a.grad)
        except RuntimeError as error:
            log(error)


FUNCTIONS = (
    lambda T, a: T.sort(a)[0],
    lambda T, a: T.max(a, 0)[0],
    lambda T, a: T.prod(a),
    lambda T, a: T.cat([a * a, a]),
    lambda T, a: T.std(a),
    lambda T, a: T.norm(a),
    lambda T, a: T.logsumexp(a, 0),
    lambda T, a: T.nn.functional.cross_entropy(a.reshape(1, 3), T.tensor([1])),
    lambda T, a: T.nn.functional.gelu(a),
    lambda T, a: T.nn.functional.layer_norm(a, (3,)) * a,
    lambda T, a: T.where(a > 1, a * a, a * 3),
    lambda T, a: a.clamp(0, 2) ** 2,
    lambda T, a: a**a,
    lambda T, a: a[T.tensor([0, 0])] ** 2,
    lambda T, a: T.einsum("i,j->ij", a, a),
    lambda T, a: T.nn.functional.softmax(a, 0),
)


@both
def test_every_kind_of_function_saves_through_hooks(T, log):
    for function in FUNCTIONS:
        a = leaf(T, 3.0, 1.0, 2.0)
        with hooks(T, lambda t: t.clone(), lambda t: t):
            y = function(T, a).sum()
        (g,) = yield T.autograd.grad(y, a, create_graph=True)
        log(g)
        if g.requires_grad:
            log((yield T.autograd.grad(g.sum(), a, allow_unused=True)))


@both
def test_layers_save_through_hooks_and_checkpoints(T, log):
    F = T.nn.functional
    x = (T.arange(16, dtype=T.float64).reshape(1, 1, 4, 4) / 7).requires_grad_()
    w = (T.arange(4, dtype=T.float64).reshape(1, 1, 2, 2) / 3).requires_grad_()
    one, zero = T.ones(1, dtype=T.float64), T.zeros(1, dtype=T.float64)

    def forward(x):
        h = F.max_pool2d(F.relu(F.conv2d(x, w)), 2, 1)
        h = F.batch_norm(F.avg_pool2d(h, 2), zero, one, training=False)
        return F.mse_loss(h, h * 2) + F.scaled_dot_product_attention(x, x, x).sum()

    def packed(x):
        with hooks(T, lambda t: t.clone(), lambda t: t):
            return forward(x)

    def checkpointed(x, use_reentrant):
        return T.utils.checkpoint.checkpoint(forward, x, use_reentrant=use_reentrant)

    for run in (
        forward,
        packed,
        lambda x: checkpointed(x, False),
        lambda x: checkpointed(x, True),
    ):
        w.grad = x.grad = None
        yield run(x).backward()
        log(x.grad, w.grad)


# -- saved tensors that may be changed -------------------------------------------------------------


def allowing(T):
    return T.autograd.graph.allow_mutation_on_saved_tensors()


@both
def test_saved_tensors_are_cloned_before_they_change(T, log):
    a = T.tensor([1.0, 2.0], dtype=T.float64, requires_grad=True)
    with allowing(T) as context:
        y = a.clone()
        out = (y**2).sum()
        y.sin_()
        log(y)
        yield out.backward()
        log(a.grad, len(context.original), len(context.cloned))
    for change in (
        lambda t: t.zero_(),
        lambda t: t.mul_(3),
        lambda t: t.copy_(T.ones(2, dtype=T.float64)),
        lambda t: t[:1].fill_(7),
        lambda t: t.detach().add_(1),
        lambda t: t.__setitem__(0, 5.0),
        lambda t: t.view(2, 1).add_(2),
    ):
        a.grad = None
        with allowing(T):
            y = a.clone()
            out = (y * y * y).sum()
            change(y)
            log(y)
            yield out.backward()
            log(a.grad)


@both
def test_views_of_saved_tensors_that_change(T, log):
    a = T.tensor([1.0, 2.0, 3.0], dtype=T.float64, requires_grad=True)
    with allowing(T):
        base = a.clone()
        view = base[:2]
        out = (view * view).sum()
        base.add_(10)
        again = (view * view).sum()
        view.mul_(0)
        yield (out + again).backward()
        log(a.grad, base, view)


@both
def test_a_tensor_saved_twice_and_changed_between(T, log):
    a = T.tensor([1.0, 2.0], dtype=T.float64, requires_grad=True)
    with allowing(T) as context:
        y = a.clone()
        first = y**2
        second = y**3
        y.add_(1)
        third = y**2
        y.add_(1)
        log(len(context.cloned))
        yield (first + second + third).sum().backward()
        log(a.grad)


@both
def test_mutation_contexts_do_not_nest_and_end_with_their_block(T, log):
    a = T.tensor([1.0, 2.0], dtype=T.float64, requires_grad=True)

    def nested():
        with allowing(T), allowing(T):
            log("entered")

    attempt(log, nested)
    with allowing(T):
        y = a.clone()
        out = (y * y).sum()
    try:
        yield out.backward()
    except AssertionError as error:
        log(error)
    with allowing(T):
        try:
            yield out.backward()
        except AssertionError as error:
            log(error)
    y = a.clone()
    out = (y * y).sum()
    y.add_(1)
    yield from raised(log, out.backward)


@both
def test_nothing_is_kept_of_what_has_run(T, log):
    a = T.tensor([1.0, 2.0], dtype=T.float64, requires_grad=True)
    with allowing(T) as context:
        y = a.clone()
        out = (y * y).sum()
        y.add_(1)
        log(len(context.original), len(context.cloned))
        yield out.backward()
        log(len(context.original), len(context.cloned))


# -- what is left ----------------------------------------------------------------------------------


class Value:
    """Something to keep in the place of a tensor."""

    def __init__(self, tensor):
        self.tensor = tensor


@pytest.mark.usefixtures("no_collector")
def test_what_is_packed_goes_at_once():
    """When its node has run, when the graph is dropped, when the pass fails."""
    for end in ("run", "drop", "fail"):
        packed = []

        def pack(tensor, packed=packed):
            value = Value(tensor)
            packed.append(weakref.ref(value))
            return value

        x = leaf(ag, 2.0)
        with hooks(ag, pack, lambda value: value.tensor):
            y = ag.exp(x * x)
        loss = y.sum()
        assert all(reference() is not None for reference in packed)
        if end == "run":
            loss.backward()
        else:
            if end == "fail":
                x.register_hook(lambda gradient: 1 / 0)
                with contextlib.suppress(ZeroDivisionError):
                    loss.backward()
            del y, loss
        assert [reference() for reference in packed] == [None] * 3


def test_what_is_packed_has_no_counters_of_its_own():
    def counters():
        return sum(type(x) is VersionCounter for x in gc.get_objects())

    x = ag.ones(3, requires_grad=True)
    with ag.autograd.graph.saved_tensors_hooks(lambda t: t.detach(), lambda t: t):
        made = [x * x]
        before = counters()
        made += [x * x for _ in range(9)]
        assert counters() == before
    assert len(made) == 10


@both
def test_constants_that_are_saved_are_themselves(T, log):
    """Where hooks keep them, too, and within a checkpoint."""
    constant, x = T.tensor([2.0, 3.0]), leaf(T, 1.0, 2.0)
    seen = []

    class Keeps(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx, gradient):
            _, other = ctx.saved_tensors
            seen.append(other is constant)
            return gradient * other, None

    yield Keeps.apply(x, constant).sum().backward()
    with T.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        y = Keeps.apply(x, constant)
    yield y.sum().backward()
    checkpoint = T.utils.checkpoint.checkpoint
    yield checkpoint(Keeps.apply, x, constant, use_reentrant=False).sum().backward()
    log(seen, x.grad)


@both
def test_saved_indices_are_tensors(T, log):
    x = leaf(T, 3.0, 1.0, 2.0)
    for out in (x.sort(), x.topk(2), x.kthvalue(2, keepdim=True), x.max(0, keepdim=True)):
        log(out[0].grad_fn._saved_indices)


@both
def test_saved_values_have_pytorchs_names(T, log):
    x, y = T.ones(2, 3, requires_grad=True), T.ones(3, 2, requires_grad=True)
    v, A = T.ones(3, requires_grad=True), T.eye(3).requires_grad_()
    F = T.nn.functional
    log((x @ y).grad_fn._saved_mat2, (x @ v).grad_fn._saved_vec, (v @ v).grad_fn._saved_tensor)
    log(F.mse_loss(x, x * 2).grad_fn._saved_target, T.linalg.inv(A).grad_fn._saved_inverse)
    log(F.leaky_relu(x, 0.5).grad_fn._saved_negative_slope, T.linalg.det(A).grad_fn._saved_A)


@pytest.mark.parametrize("kept", ["first", "second", "beside the result"])
def test_gradients_that_are_recorded_watch_what_they_keep(kept):
    """The nodes of a recorded pass keep what the nodes they come from have kept."""
    x, y = leaf(ag, 1.0, 2.0) * 1, leaf(ag, 3.0, 4.0) * 1
    result, wanted, changed = {
        "first": (x * y, y, x),
        "second": (x * y, x, y),
        "beside the result": (ag.linalg.vector_norm(x), x, x),
    }[kept]
    seed = ag.ones_like(result).requires_grad_()
    (gradient,) = ag.grad(result, wanted, seed, create_graph=True)
    with ag.no_grad():
        changed.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        ag.grad(gradient.sum(), seed)
