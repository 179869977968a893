"""Random functions with hooks and Functions, and changes between calls, beside eager calls."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import asyncgrad as ag
from asyncgrad import nn

#: What code of the user's notes now, and what it does.
NOW: Any = SimpleNamespace(log=[], fail=None, wide=False, none=False)


def note(*what: Any) -> None:
    """Note a call of code of the user's, which may fail."""
    NOW.log.append(plain(what))
    if what[0] == NOW.fail:
        raise KeyError(what[0])


class Square(ag.autograd.Function):
    """Saves its argument."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        """The square, bounded."""
        note("square", x, x.requires_grad, ag.is_grad_enabled())
        ctx.save_for_backward(x)
        return ag.tanh(x * x)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        """Not the real gradient."""
        (x,) = ctx.saved_tensors
        note("square backward", g, x)
        return None if NOW.none else 2 * x * g


class Split(ag.autograd.Function):
    """Has two results, one of them without gradient, and keeps its output."""

    @staticmethod
    def forward(ctx: Any, x: Any, y: Any, scale: float) -> Any:
        """A sum, and signs."""
        note("split", x, y)
        out = ag.tanh(x + y.sum() * scale)
        ctx.save_for_backward(out)
        ctx.shape, ctx.scale = y.shape, scale
        signs = ag.sign(out).double() if NOW.wide else ag.sign(out)
        ctx.mark_non_differentiable(signs)
        return out, signs

    @staticmethod
    def backward(ctx: Any, g: Any, _: Any) -> Any:
        """Real gradients."""
        (out,) = ctx.saved_tensors
        note("split backward", g, ctx.needs_input_grad)
        g = g * (1 - out * out)
        return g, (g.sum() * ctx.scale).expand(ctx.shape), None


class Waiting(Square):
    """Waits in its backward."""

    @staticmethod
    async def backward(ctx: Any, g: Any) -> Any:
        """As that of `Square`."""
        await asyncio.sleep(0)
        return Square.backward(ctx, g)


def halve(g: Any) -> Any:
    """A hook that the function registers."""
    return g * 0.5


def clip(g: Any) -> Any:
    """A hook that looks at values, and replaces some of them."""
    return g.clamp(-0.5, 0.5) if (g.abs() > 0.5).any() else None


def scaled(inputs: Any, outputs: Any) -> Any:
    """A hook of nodes."""
    return tuple([None if g is None else g * 1.25 for g in inputs])


class World:
    """Leaves with hooks, made from a seed: two of a kind are alike."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.weights = [self.new((3, 2), True), self.new((), True)]
        self.net = nn.Linear(2, 2)
        with ag.no_grad():
            for p in self.net.parameters():
                p.copy_(self.new(tuple(p.shape)))
        self.leaves = [*self.weights, *self.net.parameters()]
        self.handles: list[Any] = []
        self.log: list[Any] = []
        #: Code that waits has been there.
        self.waits = False
        self.switches = SimpleNamespace(fail=None, wide=False, none=False)
        self.knobs = SimpleNamespace(scale=0.7, function=Square)
        self.x = self.new((3, 2))

    def new(self, shape: tuple[int, ...], requires: bool = False) -> Any:
        array = np.asarray(self.rng.standard_normal(shape))
        return ag.from_numpy(array.astype(np.float32)).requires_grad_(requires)

    def change(self, name: str, number: int) -> None:
        """A change between two calls."""
        leaf = self.leaves[number % len(self.leaves)]
        self.switches.fail = None
        self.x = self.new((3, 2))
        keep = self.handles.append
        if name in HOOKS and not leaf.requires_grad:
            return
        if name == "look":
            keep(leaf.register_hook(lambda g: note(number, g)))
        elif name == "replace":
            keep(leaf.register_hook(lambda g: note(number, g) or g * 2))
        elif name == "clip":
            keep(leaf.register_hook(clip))
        elif name == "in place":
            keep(leaf.register_hook(lambda g: g.mul_(0.5) and None))
        elif name == "wait":
            keep(leaf.register_hook(wait))
            self.waits = True
        elif name == "after":
            keep(leaf.register_post_accumulate_grad_hook(lambda p: note(number, p.grad)))
        elif name == "update":
            keep(leaf.register_post_accumulate_grad_hook(update))
        elif name == "module":
            keep(self.net.register_full_backward_hook(lambda m, gi, go: note("module", *gi, *go)))
        elif name == "module before":
            keep(self.net.register_full_backward_pre_hook(lambda m, go: (go[0] * 2,)))
        elif name == "remove" and self.handles:
            self.handles.pop(number % len(self.handles)).remove()
        elif name == "fail":
            self.switches.fail = FAILING[number % len(FAILING)]
        elif name == "wide":
            self.switches.wide = not self.switches.wide
        elif name == "none":
            self.switches.none = not self.switches.none
        elif name == "function":
            self.knobs.function = Waiting if self.knobs.function is Square else Square
            self.waits = True
        elif name == "scale":
            self.knobs.scale += 0.25
        elif name == "freeze":
            leaf.requires_grad_(not leaf.requires_grad)
        elif name == "drop":
            for x in self.leaves:
                x.grad = None


async def wait(g: Any) -> Any:
    """A hook that is awaited."""
    note("wait", g)
    await asyncio.sleep(0)
    return g * 1.5


def update(p: Any) -> None:
    """A hook that takes a step."""
    note("update", p.grad)
    with ag.no_grad():
        p -= 0.125 * p.grad
    p.grad = None


STEPS = ("square", "split", "tanh", "mul", "net", "halve", "clip", "node", "transpose", "drop")
CHANGES = (
    "values", "values", "values", "look", "replace", "clip", "in place", "wait", "after", "update",
    "module", "module before", "remove", "remove", "fail", "wide", "none", "function", "scale",
    "freeze", "drop",
)  # fmt: skip
HOOKS = ("look", "replace", "clip", "in place", "wait", "after", "update")
FAILING = ("square", "square backward", "split", "split backward", "update", "module", 0, 1, 2, 3)
HOWS = ("gradients", "backward", "twice", "awaited")


def function_of(world: World, program: list[tuple[str, int]], how: str) -> Any:
    """A function of `x` that reaches for the world's leaves."""
    weights, net, knobs = world.weights, world.net, world.knobs
    leaves = world.leaves

    def forward(x: Any) -> Any:
        values = [x, weights[0], x * weights[1]]
        for name, which in program:
            x = values[which % len(values)]
            if name == "square":
                y = knobs.function.apply(x)
            elif name == "split":
                y, signs = Split.apply(x, weights[1], knobs.scale)
                y = y * signs
            elif name == "mul":
                y = x * values[-1]
            elif name == "net":
                y = net(x)
            elif name in {"halve", "clip"}:
                y = x * 1
                if y.requires_grad:
                    y.register_hook(halve if name == "halve" else clip)
            elif name == "node":
                y = ag.sin(x)
                if y.requires_grad:
                    y.grad_fn.register_hook(scaled)
            elif name == "transpose":
                y = (x.T @ x).sum() * x
            elif name == "drop":
                y = ag.nn.functional.dropout(x, 0.5)
            else:
                y = ag.tanh(x)
            values.append(y)
        return (values[-1] * values[len(values) // 2]).sum() + values[-2].mean()

    def gradients(x: Any) -> Any:
        loss = forward(x)
        wanted = [w for w in leaves if w.requires_grad]
        if not loss.requires_grad or not wanted:
            return loss.detach()
        return loss.detach(), ag.grad(loss, wanted, allow_unused=True)

    def backward(x: Any) -> Any:
        for w in leaves:
            w.grad = None
        loss = forward(x)
        if loss.requires_grad:
            loss.backward()
        return loss.detach()

    def twice(x: Any) -> Any:
        loss = forward(x)
        if loss.requires_grad:
            loss.backward(retain_graph=True)
            loss.backward()
        return loss.detach()

    async def awaited(x: Any) -> Any:
        loss = forward(x)
        if loss.requires_grad:
            await loss.backward()
            return loss.detach(), forward(x).detach()
        return loss

    return {"gradients": gradients, "backward": backward, "twice": twice, "awaited": awaited}[how]


def outcome(call: Any, world: World) -> Any:
    """What a call returns or raises, what it leaves, and what code of the user's has seen."""
    world.log.clear()
    vars(NOW).update(vars(world.switches), log=world.log)
    ag.manual_seed(len(world.handles))
    try:
        result = call(world.x)
        if asyncio.iscoroutine(result):
            result = asyncio.run(result)
        found = plain(result)
    except Exception as error:
        found = type(error), str(error)
    log = list(world.log)
    if world.waits and not asyncio.iscoroutinefunction(getattr(call, "__wrapped__", call)):
        # Without a loop coroutines run in another thread, beside hooks that run in this one.
        log.sort(key=repr)
    return found, log, [(plain(w), plain(w.grad)) for w in world.leaves]


def plain(value: Any) -> Any:
    """A value that can be compared bit by bit."""
    if isinstance(value, ag.Tensor):
        array = value.detach().numpy()
        return array.tobytes(), array.shape, array.strides, array.dtype, value.requires_grad
    return [plain(part) for part in value] if isinstance(value, (tuple, list)) else value


def test_code_of_the_users_sees_what_it_sees_eagerly() -> None:
    """Many of the calls that were drawn have been replayed."""
    replayed: list[bool] = []
    _compare(replayed)
    assert sum(replayed) > len(replayed) // 3


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    program=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 9)), min_size=1, max_size=6),
    how=st.sampled_from(HOWS),
    seed=st.integers(0, 1000),
    changes=st.lists(
        st.tuples(st.sampled_from(CHANGES), st.integers(0, 30)), min_size=2, max_size=8
    ),
)
def _compare(replayed: list[bool], program: Any, how: str, seed: int, changes: Any) -> None:
    """As often, in the same order, with the same gradients; results and weights are the same."""
    ours, theirs = World(seed), World(seed)
    compiled = ag.compile(function_of(ours, program, how))
    eager = function_of(theirs, program, how)
    for change in (("values", 0), *changes, ("values", 0)):
        ours.change(*change)
        theirs.change(*change)
        expected = outcome(eager, theirs)
        found = outcome(compiled, ours)
        if found[1] != expected[1] and "a check failed" in compiled.explain():
            # What was called before the check was called again.
            count = len(expected[1])
            assert ours.waits or found[1][-count:] == expected[1]
            found = found[0], expected[1], found[2]
        assert found == expected
    replayed.append("0 replayed" not in compiled.explain())
