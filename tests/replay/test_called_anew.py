"""Hooks and Functions are called anew by replays, as often and in the order of eager calls."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import ContextVar
from types import SimpleNamespace

import pytest
from functions import function_of
from replay_counts import replays

import asyncgrad as ag
from asyncgrad import nn
from asyncgrad.errors import AutogradError

#: What the code below has been called with.
LOG: list = []


def noted(name, value, result=None):
    """Note a value; for hooks."""
    LOG.append((name, value.tolist()))
    return result


class Cube(ag.autograd.Function):
    """Has an argument that is no tensor."""

    @staticmethod
    def forward(ctx, x, k):
        """k times x to the power of three."""
        LOG.append(("forward", x.tolist(), x.requires_grad, x.is_leaf, ag.is_grad_enabled()))
        ctx.save_for_backward(x)
        ctx.shape = x.shape
        ctx.k = k
        return x * x * x * k

    @staticmethod
    def backward(ctx, g):
        """Its gradient."""
        (x,) = ctx.saved_tensors
        LOG.append(("backward", g.tolist(), x.tolist(), ctx.shape, ag.is_grad_enabled()))
        return 3 * x * x * g * ctx.k, None


class Pair(ag.autograd.Function):
    """Two results, one of them without a gradient; a number besides."""

    @staticmethod
    def forward(ctx, x, y):
        """A product, signs, and a number."""
        ctx.save_for_backward(x, y)
        signs = ag.sign(x)
        ctx.mark_non_differentiable(signs)
        ctx.set_materialize_grads(False)
        return x * y, signs, 3

    @staticmethod
    def backward(ctx, g, signs, _):
        """Gradients for those that need one."""
        x, y = ctx.saved_tensors
        LOG.append((ctx.needs_input_grad, ctx.wants_grad, g is None, signs is None))
        return [g * y, None][not ctx.needs_input_grad[0]], g * x


cube = Cube.apply


def bits(value):
    """All that can be compared."""
    if isinstance(value, ag.Tensor):
        return value.detach().numpy().tobytes(), tuple(value.shape), value.dtype
    if isinstance(value, (tuple, list)):
        return [bits(part) for part in value]
    return value


def outcome(function, *args):
    """What a call returns or raises, and what has been noted meanwhile."""
    LOG.clear()
    try:
        result = function(*args)
        if asyncio.iscoroutine(result):
            result = asyncio.run(result)
        found = bits(result)
    except Exception as error:
        found = type(error), str(error)
    return found, list(LOG)


def compare(function, calls, *, prepare=lambda number: None, fullgraph=True):
    """Calls as eager ones; returns the compiled function."""
    fast = ag.compile(function, fullgraph=fullgraph)
    for number, call in enumerate(calls):
        prepare(number)
        assert outcome(fast, *call) == outcome(function, *call), number
    return fast


def xs(count=4):
    """Arguments of calls."""
    return [(ag.full((3,), n / 2 + 1),) for n in range(count)]


def leaf():
    """A weight."""
    return ag.tensor([1.0, -2.0, 3.0], requires_grad=True)


def test_functions_are_called_anew():
    """Forward and backward, with the present values; an intermediate tensor is their argument."""
    w = leaf()

    def function(x):
        y = cube(ag.sin(x * w), 2.0)
        (g,) = ag.grad((y * w).sum(), w)
        return g, y.detach()

    assert replays(fast := compare(function, xs())) == 3
    assert "called anew: Cube, CubeBackward" in fast.explain()


def test_functions_with_several_results():
    """Some without gradient; twice in a call, on leaves and on constants."""
    w, v = leaf(), leaf()

    def function(x):
        w.grad = v.grad = None
        y, signs, three = Pair.apply(w, v)
        z, _, _ = Pair.apply(x, y * three)
        ((z + signs) * y).sum().backward()
        return w.grad * 1, v.grad * 1, signs, three

    assert replays(f := compare(function, xs())) == 3, f.explain()


def test_only_some_gradients_are_wanted():
    """A pass for one of the leaves; then another through the same graph."""
    w, v = leaf(), leaf()

    def function(x):
        y, _, _ = Pair.apply(w * x, v)
        first = ag.grad(y.sum(), v, retain_graph=True)
        return first, ag.grad((y * y).sum(), w)

    assert replays(f := compare(function, xs())) == 3, f.explain()


def test_gradients_that_inputs_leaves_out():
    """A Function computes the gradient of a leaf that the pass does not reach."""
    w, v = leaf(), leaf()

    def function(x):
        w.grad = None
        Pair.apply(w, v)[0].sum().backward(inputs=[w])
        return w.grad * x

    assert replays(compare(function, xs())) == 3
    assert v.grad is None


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("look", ["name", "leaf", "same", "edges", "pass", "hook"])
def test_the_graph_of_an_argument(look, late):
    """A replay makes none: it is given up where a Function uses more than the node's name."""
    v, seen, looks = leaf(), [], []

    class Looking(ag.autograd.Function):
        @staticmethod
        def forward(ctx, x, y, z):
            if looks and look == "name":
                seen.append(x.grad_fn.name())
            elif looks and look == "same":
                seen.append((x is y, x is z))
            elif looks and look == "leaf":
                seen.append((y.is_leaf, y.requires_grad))
            elif looks and look == "edges":
                seen.append(len(x.grad_fn.next_functions))
            elif looks and look == "pass":
                with ag.enable_grad():
                    seen.append(ag.grad(x.sum(), v, retain_graph=True)[0].tolist())
            elif looks:
                x.register_hook(lambda g: seen.append(g.tolist()))
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            return g * y, g * x, None

    def function(x):
        own, y = x.detach().clone().requires_grad_(), x * v
        return ag.grad(Looking.apply(y, own, y).sum(), (v, own))

    fast = ag.compile(function)
    for number, x in enumerate(x for (x,) in xs()):
        looks[:] = [True] * (number > 1 or not late)
        found = []
        for call in (function, fast):
            seen.clear()
            found.append((bits(call(x)), list(seen)))
        assert found[0] == found[1]
    assert replays(fast) == (3 if look in {"name", "leaf", "same"} else late)


def test_a_function_without_gradients():
    """Nothing requires grad."""
    w = leaf()

    def function(x):
        with ag.no_grad():
            y = cube(w, 1.0)
        return cube(x, 2.0) + y

    assert replays(f := compare(function, xs())) == 3, f.explain()


def test_what_a_function_keeps_stays():
    """Saved tensors and gradients that user code keeps are not overwritten by later replays."""
    kept = []

    class Keeping(ag.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            kept.append((x, x.tolist()))
            return x * 2

        @staticmethod
        def backward(ctx, g):
            kept.append((g, g.tolist()))
            (x,) = ctx.saved_tensors
            kept.append((x, x.tolist()))
            return g * x

    w = leaf()
    w.register_hook(lambda g: kept.append((g, g.tolist())))

    def function(x):
        y = Keeping.apply(ag.exp(x * w))
        return ag.grad(ag.tanh(y).sum(), w)[0]

    assert replays(compare(function, xs(5))) == 4
    assert len(kept) == 40
    assert all(tensor.tolist() == values for tensor, values in kept)


def test_another_result_than_recorded():
    """Another shape, None, a number: the call is made as always."""
    how = ["plain"]

    class Changing(ag.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            if how[0] == "shape":
                return x[:2] * 1
            if how[0] == "dtype":
                return x.double()
            if how[0] == "flat":
                ctx.mark_non_differentiable(y := x * 1)
                return y
            return x * 2

        @staticmethod
        def backward(ctx, g):
            if how[0] == "none":
                return None
            return ag.ones(3) if how[0] == "one" else ag.cat([g, g])[:3] * 2

    w = leaf()

    def function(x):
        w.grad = None
        loss = (Changing.apply(w * x).sum() * w).sum()
        loss.backward()
        return loss.detach(), w.grad * 1

    ways = ["plain", "plain", "shape", "plain", "none", "one", "dtype", "flat", "plain"]
    fast = compare(
        function,
        xs(9),
        prepare=lambda number: how.__setitem__(0, ways[number]),
        fullgraph=False,
    )
    assert replays(fast) == 4, fast.explain()


def test_functions_after_changes_are_eager():
    """What they return may be of another kind, and then it would be too late."""
    w = leaf()

    def function(x):
        (w * w).sum().backward()
        return cube(w * x, 1.0).detach()

    fast = compare(function, xs(), fullgraph=False)
    assert replays(fast) == 0
    assert "is called after something has changed" in fast.explain()


def test_errors_of_users_code_reach_the_caller():
    """Nothing is committed, and no code is called twice."""
    fails = []

    class Failing(ag.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            LOG.append("forward")
            if "forward" in fails:
                raise KeyError("forward")
            return x * 1

        @staticmethod
        def backward(ctx, g):
            LOG.append("backward")
            if "backward" in fails:
                raise KeyError("backward")
            return g * 2

    w, v = leaf(), leaf()

    def hook(g):
        if "hook" in fails:
            raise KeyError("hook")
        return noted("hook", g, g * 2)

    v.register_hook(hook)

    def function(x):
        loss = (Failing.apply(v * x) * w).sum()
        loss.backward()

    fast = ag.compile(function, fullgraph=True)
    for way in ("", "", "forward", "", "backward", "hook", ""):
        fails[:] = [way]
        found = []
        for call in (fast, function):
            v.grad, w.grad = ag.ones(3), ag.zeros(3)
            found.append((outcome(call, ag.ones(3)), bits((v.grad, w.grad))))
        assert found[0] == found[1], way
        if way:
            assert found[0][1] == bits((ag.ones(3), ag.zeros(3)))
    assert replays(fast) == 3


def test_errors_keep_their_cause_and_name_the_node():
    """After a change the replay raises the error, which no eager call does again."""
    w, fails = leaf(), []

    def hook(g):
        if fails:
            raise KeyError("hook") from ValueError("cause")

    w.register_hook(hook)

    @ag.compile
    def function(x):
        w.grad = None
        (w * x).sum().backward()

    for _ in range(3):
        function(ag.ones(3))
    assert replays(function) == 2
    fails.append(True)
    with pytest.raises(KeyError) as found:
        function(ag.ones(3))
    assert repr(found.value.__cause__) == "ValueError('cause')"
    assert found.value.__notes__[0].startswith("raised by AccumulateGrad")


@pytest.mark.filterwarnings("error")
def test_no_operation_around_users_code_warns():
    """NumPy's warnings are off in the whole replay, as in operations of an eager call."""
    w, x = leaf(), ag.zeros(3)
    w.register_hook(lambda g: g * 0.5)

    @ag.compile
    def function():
        before = ag.log(x)
        (gradient,) = ag.grad((w * x).sum(), w)
        return before, gradient / x

    for _ in range(3):
        assert bits(function()) == bits((ag.log(x), ag.zeros(3) / x))
    assert replays(function) == 2


def test_hooks_of_leaves_and_of_results():
    """They see the gradients, and may replace them; handles add and remove them between calls."""
    w, v = leaf(), leaf()
    handles = [w.register_hook(lambda g: noted("first", g, g * 2))]

    def function(x):
        w.grad = v.grad = None
        y = ag.tanh(x * w)
        y.register_hook(lambda g: g * 0.5)
        (y * v * y).sum().backward()
        return w.grad * 1, v.grad * 1

    def change(number):
        if number == 3:
            handles.append(w.register_hook(lambda g: noted("second", g)))
        elif number == 5:
            handles[0].remove()
        elif number == 7:
            handles[1].remove()
        elif number == 9:
            handles.append(v.register_hook(lambda g: noted("third", g, ag.ones(3))))

    fast = compare(function, xs(12), prepare=change)
    assert replays(fast) == 7, fast.explain()


def test_gradients_of_leaves_with_hooks_are_captured():
    """By `grad`, also where the pass goes on behind them."""
    w = leaf()
    w.register_hook(lambda g: noted("w", g, g * 2))

    def function(x):
        y = w * x
        y.register_hook(lambda g: g + 1)
        z = (y * y).sum()
        return ag.grad(z, [y, w])

    assert replays(f := compare(function, xs())) == 3, f.explain()


def test_one_gradient_for_two_edges():
    """A hook that replaces it on one edge does not on the other."""
    w, v = leaf(), leaf()
    w.register_hook(lambda g: g * 2)

    def function(x):
        return ag.grad((w + v).sum() + (w + x).sum(), [w, v])

    assert replays(f := compare(function, xs())) == 3, f.explain()


def test_hooks_of_nodes():
    """Before and after them."""
    w = leaf()
    log = []

    def before(grads):
        log.append(grads[0].tolist())
        return (grads[0] * 2,)

    class Watcher:
        def after(self, inputs, outputs):
            return (inputs[0] * 3,)

    watcher = Watcher()
    plain = lambda inputs, outputs: (inputs[0] + outputs[0],)  # noqa: E731

    def function(x):
        y = ag.exp(w * x)
        y.grad_fn.register_prehook(lambda grads: (grads[0] * 2,))
        y.grad_fn.register_hook(watcher.after)
        y.grad_fn.register_hook(plain)
        return ag.grad((y * x).sum(), w)[0]

    assert replays(f := compare(function, xs())) == 3, f.explain()


def test_hooks_that_hold_what_the_call_has_made_are_eager():
    """The recorded hook would hold the tensors of another call."""
    w = leaf()

    def function(x):
        y = x * w
        y.register_hook(lambda g: g * x)
        return ag.grad(y.sum(), w)[0]

    assert replays(compare(function, xs(), fullgraph=False)) == 0


def test_hooks_that_change_a_single_number_in_place_are_eager():
    """The pass has it as a scalar of NumPy's, and the hook in an array."""
    w = ag.tensor(0.5, requires_grad=True)
    w.register_hook(lambda g: g.mul_(0.5) and None)

    def function(x):
        return ag.grad((ag.nn.functional.dropout(x) * w).sum(), w)[0]

    fast = ag.compile(function)
    for (x,) in xs(3):
        found = []
        for call in (function, fast):
            ag.manual_seed(1)
            found.append(bits(call(x)))
        assert found[0] == found[1]
    assert "changes a gradient in place" in fast.explain()


@pytest.mark.parametrize("kind", ["hook", "prehook", "posthook", "function"])
def test_code_begins_to_change_a_gradient_in_place(kind):
    """Another gradient of the pass may be in the same memory, and an eager pass copies that."""
    v, w, changes = leaf(), leaf(), []

    def change(gradient):
        if changes:
            gradient.mul_(3)

    class Identity(ag.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            change(g)
            return g * 1

    if kind == "hook":
        w.register_hook(change)

    def node_hook(*gradients):
        change(gradients[0][0])

    def function(x):
        y = Identity.apply(w * 1) if kind == "function" else w * 1
        if kind == "prehook":
            y.grad_fn.register_prehook(node_hook)
        elif kind == "posthook":
            y.grad_fn.register_hook(node_hook)
        return ((y + v) * x).sum().backward()

    fast = ag.compile(function)
    for number, x in enumerate(x for (x,) in xs(5)):
        changes[:] = [True] * (number > 2)
        found = []
        for call in (function, fast):
            v.grad = w.grad = None
            call(x)
            found.append(bits((v.grad, w.grad)))
        assert found[0] == found[1]
    assert replays(fast) == 2


def test_a_hook_that_changes_a_weight_of_the_pass():
    """The eager call raises, and so does this."""
    w = leaf()
    active = [False]

    def hook(g):
        if active[0]:
            with ag.no_grad():
                w.mul_(2)

    def function(x):
        y = w * x
        z = y * w
        z.register_hook(HOOKS[0])
        return ag.grad(z.sum(), w)[0]

    HOOKS[0] = hook
    for number in range(4):
        active[0] = number == 2
        if number == 0:
            fast = ag.compile(function)
        if active[0]:
            with pytest.raises(AutogradError, match="modified by an inplace"):
                fast(ag.ones(3))
        else:
            assert bits(fast(ag.ones(3))) == bits(function(ag.ones(3)))


HOOKS = [None]


def test_hooks_after_accumulation():
    """Each is called as soon as its leaf has the gradient; an optimiser may take its step there."""
    ours, theirs = [], []
    for found in (ours, theirs):
        ag.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        for number, p in enumerate(net.parameters()):
            optimizer = ag.optim.SGD([p], lr=0.1, momentum=0.9)

            def step(p, optimizer=optimizer, number=number):
                LOG.append((number, p.grad.tolist()))
                optimizer.step()
                optimizer.zero_grad()

            p.register_post_accumulate_grad_hook(step)

        def train(x, net=net):
            loss = (net(x) ** 2).mean()
            loss.backward()
            return loss.detach(), net(x).detach()

        found += [net, train]
    fast = ag.compile(ours[1], fullgraph=True)
    for number in range(5):
        x = ag.randn(5, 3, generator=ag.Generator().manual_seed(number))
        assert outcome(fast, x) == outcome(theirs[1], x), number
        assert bits(list(ours[0].parameters())) == bits(list(theirs[0].parameters()))
    assert replays(fast) == 4, fast.explain()


@pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning")
def test_module_hooks_in_passes():
    """Full backward hooks and pre-hooks, of modules within modules."""
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    net[0].register_full_backward_hook(lambda m, gi, go: LOG.append((gi[0], go[0].tolist())))
    net[2].register_full_backward_hook(lambda m, gi, go: (gi[0] * 2,))
    net.register_full_backward_pre_hook(lambda m, go: noted("whole", go[0]))

    def function(x):
        net.zero_grad()
        net(x).sum().backward()
        return [p.grad * 1 for p in net.parameters()]

    calls = [(ag.ones(2, 3) * n,) for n in range(4)]
    assert replays(compare(function, calls)) == 3


class Slow(ag.autograd.Function):
    """Waits in its backward."""

    @staticmethod
    def forward(ctx, x):
        """The square."""
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    async def backward(ctx, g):
        """Its gradient, after a turn of the loop."""
        (x,) = ctx.saved_tensors
        LOG.append("before")
        await asyncio.sleep(0)
        LOG.append("after")
        return 2 * x * g


@pytest.mark.parametrize("waits", [False, True])
def test_coroutines_are_awaited(waits):
    """Hooks and backward; without a loop in that of the portal."""
    w = leaf()

    async def hook(g):
        await asyncio.sleep(0)
        return noted("hook", g, g * 3)

    w.register_hook(hook)

    def function(x):
        w.grad = None
        (Slow.apply(ag.sin(w * x)) * w).sum().backward()
        return w.grad * 1

    async def awaited(x):
        w.grad = None
        await (Slow.apply(ag.sin(w * x)) * w).sum().backward()
        return w.grad * 1

    assert replays(compare(awaited if waits else function, xs())) == 3


@pytest.mark.asyncio
async def test_a_replay_is_cancelled_while_it_waits_for_code():
    """Nothing is committed, and the next call is replayed."""
    w = leaf()
    entered, block = asyncio.Event(), asyncio.Event()
    block.set()

    async def hook(g):
        entered.set()
        await block.wait()

    w.register_hook(hook)

    @ag.compile
    async def function(x):
        await (w * x).sum().backward()

    x = ag.ones(3)
    for _ in range(2):
        await function(x)
    assert w.grad.tolist() == [2, 2, 2]
    block.clear()
    entered.clear()
    running = asyncio.ensure_future(function(x))
    await entered.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    block.set()
    assert w.grad.tolist() == [2, 2, 2]
    await function(x)
    assert w.grad.tolist() == [3, 3, 3]
    assert replays(function) == 2
    assert ag.engine().live == set()


@pytest.mark.asyncio
async def test_hooks_that_wait_for_each_other_are_eager():
    """One after the other they would wait for ever."""
    w, v = leaf(), leaf()
    events = {}

    async def first(g):
        events["first"].set()
        await events["second"].wait()

    async def second(g):
        events["second"].set()
        await events["first"].wait()

    w.register_hook(first)
    v.register_hook(second)

    @ag.compile
    async def function(x):
        await ((w * x).sum() * (v * x).sum()).backward()

    for number in range(3):
        events.update(first=asyncio.Event(), second=asyncio.Event())
        v.grad = w.grad = None
        await function(ag.ones(3))
        assert w.grad.tolist() == [2, 2, 2], number
    assert replays(function) == 0


@pytest.mark.asyncio
async def test_a_hook_that_may_wait_for_a_later_one_is_eager():
    """The recorded call has run one after the other, but the first waits for the second later."""
    w, v, m = leaf(), ag.ones(500, 500, requires_grad=True), ag.ones(500, 500)
    events = {}

    async def first(g):
        await asyncio.wait_for(events["second"].wait(), 30)

    async def second(g):
        events["second"].set()

    w.register_hook(first)
    v.register_hook(second)

    @ag.compile
    async def function(x):
        # A thread computes the gradient of the product, and meanwhile the first hook ends.
        await ((m @ v).sum() + (w * x).sum()).backward()

    for number in range(3):
        events["second"] = asyncio.Event()
        if number == 0:
            events["second"].set()
        await function(ag.ones(3))
    assert replays(function) == 0


@pytest.mark.asyncio
async def test_a_hook_that_may_wait_for_an_earlier_one_is_replayed():
    """The earlier one has ended then."""
    w, v, called = leaf(), leaf(), []

    async def waits(g):
        await asyncio.sleep(0)
        called.append("later")

    w.register_hook(waits)
    v.register_hook(lambda g: called.append("earlier"))

    @ag.compile
    async def function(x):
        await ((w * x).sin() * (v * x)).sum().backward()

    for _ in range(3):
        await function(ag.ones(3))
    assert called == ["earlier", "later"] * 3
    assert replays(function) == 2, function.explain()


def test_passes_within_hooks():
    """A hook starts a pass of its own."""
    w, v, x = leaf(), leaf(), ag.ones(3)

    def hook(g):
        with ag.enable_grad():
            return noted("inner", ag.grad((v * v * x * g).sum(), v)[0])

    w.register_hook(hook)

    def function(x):
        w.grad = None
        (w * x).sum().backward()
        return w.grad * 1

    assert replays(f := compare(function, xs())) == 3, f.explain()


def test_passes_that_record_themselves_are_eager():
    """With a Function, or a hook: they are called at each call."""
    w, v = leaf(), leaf()
    v.register_hook(lambda g: noted("v", g))

    def with_function(x):
        (g,) = ag.grad(cube(w * x, 1.0).sum(), w, create_graph=True)
        return ag.grad(g.sum(), w)[0]

    def with_hook(x):
        (g,) = ag.grad((v * v * v * x).sum(), v, create_graph=True)
        return g.detach()

    for function in (with_function, with_hook):
        assert replays(fast := compare(function, xs(), fullgraph=False)) == 0
        assert "in a pass that records itself" in fast.explain()


@pytest.mark.asyncio
async def test_a_coroutine_forward_is_eager():
    """It may wait for anything."""
    w = leaf()

    async def forward(ctx, x):
        await asyncio.sleep(0)
        return x * w.tolist()[0]

    Later = function_of(ag, forward, lambda ctx, g: g)

    @ag.compile
    async def function(x):
        y = await Later.apply(w * x)
        return (await ag.grad(y.sum(), w))[0]

    for n in range(3):
        assert (await function(ag.full((3,), float(n)))).tolist() == [n, n, n]
    assert replays(function) == 0


def test_functions_called_by_other_names_are_eager():
    """`forward` without `apply` is an ordinary function, which is not followed into the class."""
    w = leaf()

    class Plain(ag.autograd.Function):
        factor = 2

        @staticmethod
        def forward(ctx, x):
            return x * Plain.factor

    def function(x):
        return Plain.forward(None, w * x).detach()

    fast = ag.compile(function)
    for factor in (2, 2, 3, 3):
        Plain.factor = factor
        assert bits(fast(ag.ones(3))) == bits(function(ag.ones(3)))


def in_a_hook(knobs):
    w = ag.tensor([1.0, 2.0], requires_grad=True)
    w.register_hook(lambda g: g * knobs.factor)

    def step(x):
        knobs.factor = 3.0
        (x * w).sum().backward()
        knobs.factor = 1.0
        return w.grad

    return step


def by_a_hook(knobs):
    w = ag.tensor([1.0, 2.0], requires_grad=True)
    w.register_hook(lambda g: setattr(knobs, "factor", 3.0))

    def step(x):
        (x * w).sum().backward()
        y = x * knobs.factor
        knobs.factor = 1.0
        return y

    return step


def in_a_function(knobs):
    class Scaled(ag.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * knobs.factor

    def step(x):
        knobs.factor = 3.0
        y = Scaled.apply(x)
        knobs.factor = 1.0
        return y

    return step


def in_a_schedule(knobs):
    w = ag.tensor([1.0, 2.0], requires_grad=True)
    update = ag.optim.SGD([w], lr=0.5)
    schedule = ag.optim.lr_scheduler.LambdaLR(update, lambda epoch: knobs.factor)

    def step(x):
        update.zero_grad()
        (x * w).sum().backward()
        update.step()
        knobs.factor = 3.0
        schedule.step()
        knobs.factor = 1.0
        return w.detach() * 1

    return step


@pytest.mark.parametrize("make", [in_a_hook, by_a_hook, in_a_function, in_a_schedule])
def test_changes_that_are_undone_behind_code_that_is_called_anew(make):
    """At the end of the call nothing has changed, but that code has seen something else."""
    ours, theirs = SimpleNamespace(factor=1.0), SimpleNamespace(factor=1.0)
    fast, eager = ag.compile(make(ours)), make(theirs)
    for number in range(3):
        x = ag.tensor([1.0, float(number)])
        assert fast(x).tolist() == eager(x).tolist()
        assert ours.factor == theirs.factor
    assert "changed something" in fast.explain()


class Knobs:
    """What a function reads, and what code that it calls anew changes at the fourth call."""

    def __init__(self):
        self.factor = 1.0
        self._calls = 0

    def turn(self, *_):
        """The code that is called."""
        self._calls += 1
        if self._calls == 4:
            self.factor = 7.0


def gradient_with_a_hook(knobs, turn):
    w = ag.tensor([1.0, 2.0], requires_grad=True)
    w.register_hook(turn)

    def step(x):
        (gradient,) = ag.grad((x * w).sum(), w)
        return gradient * knobs.factor

    return step


def forward_of_a_function(knobs, turn):
    class Turning(ag.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            turn()
            return x * 2

    return lambda x: Turning.apply(x) * knobs.factor


def number_behind_a_hook(knobs, turn):
    w = ag.tensor([1.0, 2.0], requires_grad=True)
    w.register_hook(turn)

    def step(x):
        ag.grad((x * w).sum(), w)
        return knobs.factor

    return step


GRADIENTS = [gradient_with_a_hook, forward_of_a_function, number_behind_a_hook]


@pytest.mark.parametrize("make", GRADIENTS)
def test_what_user_code_changes_before_it_is_read(make):
    """The call is made as always, since nothing has changed yet."""
    ours, theirs = Knobs(), Knobs()
    fast, eager = ag.compile(make(ours, ours.turn)), make(theirs, theirs.turn)
    for number in range(8):
        x = ag.tensor([1.0, float(number)])
        found, expected = fast(x), eager(x)
        assert str(found) == str(expected)
    assert replays(fast) >= 4


@pytest.mark.parametrize("way", ["hook", "step", "step hook", "schedule"])
def test_what_user_code_changes_after_the_call_has_changed_something(way):
    """A replay would return a stale number, and the call can't be made again: that is an error."""
    knobs = Knobs()
    w = ag.tensor([1.0, 2.0], requires_grad=True)

    class Turning(ag.optim.SGD):
        def step(self, closure=None):
            knobs.turn()
            return super().step(closure)

    optimizer = (Turning if way == "step" else ag.optim.SGD)([w], lr=0.5)
    schedule = ag.optim.lr_scheduler.LambdaLR(
        optimizer, lambda epoch: knobs.turn() or 1.0 if way == "schedule" and epoch else 1.0
    )
    if way == "hook":
        w.register_hook(knobs.turn)

    def step(x):
        optimizer.zero_grad()
        (x * w).sum().backward()
        optimizer.step()
        schedule.step()
        return x * knobs.factor

    fast = ag.compile(step)
    x = ag.tensor([1.0, 2.0])
    for _ in range(2):
        assert fast(x).tolist() == [1, 2]
    if way == "step hook":
        # It comes when the call has been recorded.
        optimizer.register_step_post_hook(knobs.turn)
        assert [fast(x).tolist() for _ in range(2)] == [[1, 2], [1, 2]]
    assert fast(x).tolist() == [1, 2]
    with pytest.raises(AutogradError, match="called anew, such as a hook, has changed something"):
        fast(x)
    assert fast(x).tolist() == [7, 14]


@pytest.mark.parametrize("way", ["hook", "step hook", "schedule"])
@pytest.mark.parametrize("awaits", [False, True])
def test_a_default_dtype_that_user_code_sets_in_a_replay(way, awaits):
    calls, w = [], ag.ones(1, requires_grad=True)
    optimizer = ag.optim.SGD([w], lr=0.5)

    def turn(*_):
        calls.append(None)
        if len(calls) == 4:
            ag.set_default_dtype(ag.float64)

    factor = turn if way == "schedule" else lambda epoch: 1.0
    schedule = ag.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: factor(epoch) or 1.0)
    if way == "hook":
        w.register_hook(turn)
    elif way == "step hook":
        optimizer.register_step_post_hook(turn)

    def step(x):
        (x * w).sum().backward()
        optimizer.step()
        schedule.step()
        return ag.zeros(1), ag.tensor([1]) / 2

    async def awaited(x):
        await (x * w).sum().backward()
        optimizer.step()
        schedule.step()
        return ag.zeros(1), ag.tensor([1]) / 2

    fast = ag.compile(awaited if awaits else step)

    def dtypes():
        result = fast(ag.ones(1))
        return [part.dtype for part in (asyncio.run(result) if awaits else result)]

    try:
        while len(calls) < 3:
            assert dtypes() == [ag.float32] * 2
        with pytest.raises(AutogradError, match="called anew, such as a hook, has changed"):
            dtypes()
        assert dtypes() == [ag.float64] * 2
    finally:
        ag.set_default_dtype(ag.float32)


def test_what_the_function_of_an_average_changes():
    """It may change at any call what a function reads afterwards."""
    knobs = Knobs()
    model = nn.Linear(1, 1)

    def updated(mean, _, number):
        if number == 3:
            knobs.factor = 7.0
        return mean

    average = ag.optim.swa_utils.AveragedModel(model, avg_fn=updated)

    @ag.compile
    def step(x):
        average.update_parameters(model)
        return x * knobs.factor

    for _ in range(3):
        assert step(ag.ones(1)).tolist() == [1]
    assert replays(step) == 2
    with pytest.raises(AutogradError, match="called anew, such as a hook, has changed something"):
        step(ag.ones(1))


def test_hooks_of_an_optimiser_that_is_passed_by_name():
    """A scaler steps it."""
    knobs = Knobs()
    w = ag.ones(1, requires_grad=True)
    optimizer = ag.optim.SGD([w], lr=0.5)
    scaler = ag.amp.GradScaler("cpu", enabled=False)

    @ag.compile
    def step(x):
        (w * x).sum().backward()
        scaler.step(optimizer=optimizer)
        return x * knobs.factor

    assert step(ag.ones(1)).tolist() == [1]
    # It comes when the call has been recorded.
    optimizer.register_step_post_hook(knobs.turn)
    for _ in range(3):
        assert step(ag.ones(1)).tolist() == [1]
    assert replays(step) == 3
    with pytest.raises(AutogradError, match="called anew, such as a hook, has changed something"):
        step(ag.ones(1))


@pytest.mark.parametrize("way", ["read", "effect"])
@pytest.mark.parametrize("result", ["gradient", "graph"])
def test_passes_through_nodes_from_before_user_code_gave_a_tensor_another_array(result, way):
    """They use what was saved, also where the tensor has been read again since then."""

    def scenario(compiler):
        w, v, other = leaf(), leaf(), leaf()
        calls = []

        def turn(_):
            calls.append(None)
            if len(calls) == 4:
                w.data = w * 10

        v.register_hook(turn)

        def step(x):
            y = (w * v * x).sum()
            ag.grad((v * v).sum(), v)
            if way == "effect":
                # After it everything is read again.
                other.grad = None
            z = (w * 2).detach()
            return (y, z) if result == "graph" else (ag.grad(y + (w * v).sum(), v)[0], z)

        function = compiler(step)
        found = []
        for n in range(6):
            y, z = function(ag.full((3,), n + 1.0))
            found.append(bits((ag.grad(y, v)[0] if result == "graph" else y, z)))
        return found, function

    found, fast = scenario(ag.compile)
    assert found == scenario(lambda function: function)[0]
    assert replays(fast) == 5


@pytest.mark.parametrize("way", ["hook", "function", "step hook"])
@pytest.mark.parametrize("change", ["data", "place"])
def test_tensors_that_user_code_changes(change, way):
    """What is computed before has the old values, and what is computed afterwards the new ones."""

    def scenario(compiler):
        w, held = ag.tensor([1.0, 2.0], requires_grad=True), ag.tensor([3.0, 4.0])
        optimizer = ag.optim.SGD([w], lr=0.5)
        calls = []

        def turn(*_):
            calls.append(None)
            if len(calls) == 4 and change == "data":
                held.data = held * 2
            elif len(calls) == 4:
                held.mul_(2)

        def forward(ctx, x):
            turn()
            return x * 2

        Turning = function_of(ag, forward, lambda ctx, g: g * 2)
        if way == "hook":
            w.register_hook(turn)
        elif way == "step hook":
            optimizer.register_step_post_hook(turn)

        @compiler
        def step(x):
            optimizer.zero_grad()
            before = x * held
            (Turning.apply(x * w) if way == "function" else x * w).sum().backward()
            behind = x * held
            optimizer.step()
            return before, behind, w.detach() * held

        return [[x.tolist() for x in step(ag.tensor([1.0, 2.0]))] for _ in range(7)]

    assert scenario(ag.compile) == scenario(lambda function: function)


@pytest.mark.parametrize("how", ["data", "detach()", "contiguous()"])
def test_memory_from_before_user_code_gave_a_tensor_other_memory(how):
    """A tensor made before has the old values, and one made afterwards has the new ones."""

    def scenario(compiler):
        w = leaf()
        calls = []

        def turn(p):
            calls.append(None)
            if len(calls) > 3:
                p.data = p.data - p.grad

        w.register_post_accumulate_grad_hook(turn)

        @compiler
        def step(x):
            if how == "contiguous()":
                before = w.contiguous().detach()
            else:
                before = w.data if how == "data" else w.detach()
            (w * x).tanh().sum().backward()
            return before * w.detach()

        return [step(ag.full((3,), n + 1.0)).tolist() for n in range(7)]

    assert scenario(ag.compile) == scenario(lambda function: function)


@pytest.mark.parametrize("how", ["data", "detach()", "view()"])
def test_memory_from_before_an_optimiser_wrote_elsewhere(how):
    """It leaves the old memory of a parameter to graphs that others hold."""

    def scenario(compiler):
        w = leaf()
        optimizer = ag.optim.SGD([w], lr=0.5)

        @compiler
        def step(x):
            before = w.data if how == "data" else w.detach() if how == "detach()" else w.view(3)
            (w * x).tanh().sum().backward()
            optimizer.step()
            return before.detach() * 1, w.detach() * 2

        found, held = [], []
        for n in range(7):
            if n in {3, 5}:
                held.append((w * w).sum())
            found.append(bits(step(ag.full((3,), n + 1.0))))
            found += [bits(ag.grad(loss, w, retain_graph=True)[0]) for loss in held]
        return found

    assert scenario(ag.compile) == scenario(lambda function: function)


@pytest.mark.parametrize("how", ["data", "detach()", "a view", "outside"])
def test_an_optimiser_leaves_memory_to_a_graph_of_the_call(how):
    """A replay makes no graph that needs old values, and yet others keep the old memory."""

    def scenario(compiler):
        w, v = leaf(), leaf()
        optimizer = ag.optim.SGD([w, v], lr=0.5)

        @compiler
        def step(x):
            if how != "outside":
                v.data = w.data if how == "data" else w.detach() if how == "detach()" else w.data[:]
            unfreed = (w * w * x).sum()
            optimizer.zero_grad()
            (v * x + w.sin()).sum().backward()
            optimizer.step()
            return unfreed.detach()

        found = []
        for n in range(5):
            outside = w.data
            found.append(bits((step(ag.full((3,), n + 1.0)), w.detach(), v.detach(), outside)))
        return found, step

    found, fast = scenario(ag.compile)
    assert found == scenario(lambda function: function)[0]
    assert replays(fast) == 4


def test_averages_leave_memory_to_a_graph_of_the_call():
    """A pass through operations from before the update uses the averages of then."""

    def scenario(compiler):
        model = nn.Linear(3, 2)
        with ag.no_grad():
            for p in model.parameters():
                p.copy_(ag.arange(float(p.numel())).reshape(p.shape).cos())
        average = ag.optim.swa_utils.AveragedModel(model)
        optimizer = ag.optim.SGD(model.parameters(), lr=0.5)

        @compiler
        def step(x):
            x = x.detach().requires_grad_()
            loss = (average(x).tanh() * average(x)).sum()
            optimizer.zero_grad()
            model(x).tanh().sum().backward()
            optimizer.step()
            average.update_parameters(model)
            return ag.grad(loss, x)[0]

        found = []
        for n in range(5):
            before = [p.data for p in average.parameters()]
            slope = step(ag.full((4, 3), n + 1.0).cos())
            found.append(bits((slope, *before, *[p.detach() for p in average.parameters()])))
        return found, step

    found, fast = scenario(ag.compile)
    assert found == scenario(lambda function: function)[0]
    assert replays(fast) == 4


def test_a_pass_through_nodes_from_behind_user_code_that_gave_a_tensor_another_array():
    """The first operation behind it has saved the new array."""

    def scenario(compiler):
        w, v = leaf(), leaf()
        calls = []

        def turn(_):
            calls.append(None)
            if len(calls) > 3:
                w.data = w * 2

        v.register_hook(turn)

        @compiler
        def step(x):
            slope = ag.grad((w * v * x).sum(), v)[0]
            return slope, (w * v * x).sum()

        found = []
        for n in range(6):
            slope, loss = step(ag.full((3,), n + 1.0))
            found.append(bits((slope, loss, ag.grad(loss, v)[0])))
        return found, step

    found, fast = scenario(ag.compile)
    assert found == scenario(lambda function: function)[0]
    assert replays(fast) == 5


@pytest.mark.parametrize("change", ["replaced", "dropped", "data"])
@pytest.mark.parametrize("way", ["hook", "step hook"])
@pytest.mark.parametrize("again", [True, False])
def test_gradients_from_before_user_code(way, change, again):
    """Where the gradient is read again, and is another, a replay can't go on. That is an error."""

    def scenario(compiler):
        w, v = leaf(), leaf()
        optimizer = ag.optim.SGD([v], lr=0.5)
        calls = []

        def turn(*_):
            calls.append(None)
            if len(calls) == 4 and change == "data":
                v.grad.data = ag.zeros(3)
            elif len(calls) == 4:
                v.grad = ag.zeros(3) if change == "replaced" else None

        if way == "hook":
            w.register_hook(turn)
        else:
            optimizer.register_step_post_hook(turn)

        @compiler
        def step(x):
            before = v.grad
            (w * v * x).sum().backward()
            optimizer.step()
            behind = v.grad if again else None
            return [None if x is None else x * 1 for x in (before, behind)]

        v.grad = ag.ones(3)
        found = []
        for _ in range(6):
            try:
                found.append(bits(step(ag.ones(3))))
            except AutogradError as error:
                return found, str(error)
        return found, ""

    found, error = scenario(ag.compile)
    expected, _ = scenario(lambda function: function)
    assert found == expected[: len(found)]
    assert not error or (again and "another kind of result" in error and len(found) == 3)


def test_a_gradient_that_a_hook_drops():
    """The code may ask whether there is one: a stale answer is an error."""
    w = ag.tensor([1.0, 2.0], requires_grad=True)
    calls = []

    def drop(leaf):
        calls.append(None)
        if len(calls) == 4:
            leaf.grad = None

    w.register_post_accumulate_grad_hook(drop)

    @ag.compile
    def step(x):
        (w * x).sum().backward()
        return x * 3 if w.grad is None else x * 2

    x = ag.tensor([1.0, 2.0])
    assert [step(x).tolist() for _ in range(3)] == [[2, 4]] * 3
    assert replays(step) == 2
    with pytest.raises(AutogradError, match="after it had changed something"):
        step(x)
    assert step(x).tolist() == [2, 4]


def test_no_gradient_is_added_twice_that_a_post_accumulate_hook_has_seen():
    """So such a call is not replayed: what the hook has seen could not be taken back."""
    x, y = (ag.ones(3, requires_grad=True) for _ in range(2))
    y.register_post_accumulate_grad_hook(lambda leaf: None)
    silent = []
    passed = function_of(ag, lambda ctx, x: x * 1, lambda ctx, g: None if silent else g * 2)
    fast = ag.compile(lambda: (passed.apply(x).sum() + (y * 3).sum()).backward())
    for _ in range(3):
        fast()
    silent.append(True)
    fast()
    assert (x.grad.tolist(), y.grad.tolist()) == ([6.0] * 3, [12.0] * 3)


@pytest.mark.parametrize("kind", ["all", "any", "current_pass", "queue_callback"])
def test_code_that_asks_which_pass_runs_it_sees_the_passes_of_an_eager_call(kind):
    """A replay makes one pass of several, and has none of their nodes."""
    w, v, log = ag.ones(2, requires_grad=True), ag.ones(2, requires_grad=True), []
    graph = ag.autograd.graph
    if kind == "current_pass":
        w.register_hook(lambda gradient: log.append(graph.current_pass()[1:]))
    elif kind == "queue_callback":
        w.register_hook(lambda g: graph.queue_callback(lambda: log.append(w.grad is None)))
    else:
        graph.register_multi_grad_hook((w, v), lambda found: log.append(len(found)), mode=kind)

    def step(x):
        w.grad = v.grad = None
        loss = (x * w * v).sum()
        ag.grad(loss, (w, v), retain_graph=True)
        ag.grad(loss, (w, v), retain_graph=True)
        loss.backward()

    fast = ag.compile(step)
    step(ag.ones(2))
    once, log[:] = [*log], []
    for _ in range(3):
        fast(ag.ones(2))
    assert log == once * 3


@pytest.mark.parametrize("kind", ["grad", "committed early"])
def test_each_pass_has_a_context_of_its_own(kind):
    """What hooks set in one pass, hooks in the next one do not see."""
    w, count, log = ag.ones(2, requires_grad=True), ContextVar("count", default=0), []

    def hook(gradient):
        log.append(count.get())
        count.set(count.get() + 1)

    for _ in range(2):
        if kind == "grad":
            w.register_hook(hook)
        else:
            w.register_post_accumulate_grad_hook(hook)

    @ag.compile
    def slope(x):
        loss = (x * w).sum()
        for _ in range(2):
            if kind == "grad":
                ag.grad(loss, w, retain_graph=True)
            else:
                loss.backward(retain_graph=True)

    for _ in range(3):
        slope(ag.ones(2))
    assert log == [0, 1] * 6
    assert replays(slope) == 2


@pytest.mark.parametrize("catches", [False, True])
@pytest.mark.parametrize("late", [False, True])
def test_code_may_begin_to_ask_which_pass_runs_it(late, catches):
    """The replay is given up, or fails where a pass before has changed something."""
    w, calls, seen = ag.ones(2, requires_grad=True), [], []

    def hook(gradient):
        calls.append(None)
        if len(calls) > 6 + late:
            with suppress(Exception if catches else ()):
                seen.append(ag.autograd.graph.current_pass().retains_graph)

    w.register_hook(hook)

    @ag.compile
    def step(x):
        w.grad = None
        for _ in range(2):
            (x * w).sum().backward()
        return w.grad

    for _ in range(3):
        step(ag.ones(2))
    assert replays(step) == 2
    if late:
        with pytest.raises(AutogradError, match="has done what it did not do") as found:
            step(ag.ones(2))
        assert found.value.__cause__ is not None
    else:
        assert step(ag.ones(2)).tolist() == [2, 2]
        assert seen == [False, False]
