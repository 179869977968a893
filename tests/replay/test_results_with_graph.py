"""Results that require grad: a replay gives them one node, which stands for the whole graph."""

from __future__ import annotations

import copy
import gc
import re
import threading
import weakref
from typing import ClassVar

import pytest
from functions import function_of
from replay_counts import replays

import asyncgrad as ag
from asyncgrad import nn
from asyncgrad.replay.graph_node import GraphNode


def bits(value):
    """A tensor or a tree of them, to compare bit by bit."""
    if isinstance(value, ag.Tensor):
        array = value.detach().numpy()
        return array.tobytes(), array.shape, array.strides, value._version, value.requires_grad
    if isinstance(value, dict):
        return bits(list(value.values()))
    if isinstance(value, (list, tuple)):
        return [bits(part) for part in value]
    return value


class Pair:
    """A model, compiled, and one like it that is not."""

    def __init__(self, *layers):
        ag.manual_seed(3)
        start = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), *layers)
        self.ours, self.theirs = copy.deepcopy(start), copy.deepcopy(start)
        self.fast = ag.compile(self.ours)

    def inputs(self, *, requires_grad=False):
        x = ag.randn(4, 6)
        return [x.clone().requires_grad_(requires_grad) for _ in range(2)]

    def check(self):
        ours = [[p, p.grad] for p in self.ours.parameters()]
        theirs = [[p, p.grad] for p in self.theirs.parameters()]
        assert bits(ours) == bits(theirs)


def test_a_compiled_module_in_training():
    """The common use: the model is compiled, the loss and the update are not."""
    pair = Pair(nn.LayerNorm(8), nn.Linear(8, 3))
    updates = [ag.optim.Adam(m.parameters(), lr=0.1) for m in (pair.ours, pair.theirs)]
    for number in range(6):
        for call, update, x in zip(
            (pair.fast, pair.theirs), updates, pair.inputs(requires_grad=True), strict=True
        ):
            update.zero_grad()
            loss = nn.functional.cross_entropy(call(x), ag.tensor([0, 1, 2, 1]))
            loss.backward()
            update.step()
        pair.check()
        assert (
            number == 0
            or "Compiled" in nn.functional.relu(pair.fast(x)).grad_fn.next_functions[0][0].name()
        )
    assert replays(pair.fast._compiled) == 10


def test_gradients_of_all_kinds():
    """Of some leaves, of arguments, twice over the same graph, and of gradients."""
    pair = Pair(nn.Linear(8, 8), nn.Sigmoid())
    for _ in range(3):
        results = []
        for call, model, x in zip(
            (pair.fast, pair.theirs),
            (pair.ours, pair.theirs),
            pair.inputs(requires_grad=True),
            strict=True,
        ):
            y = call((x * 2).tanh())
            results.append([
                ag.grad(y.sum(), x, retain_graph=True),
                ag.grad(y, [model[0].weight], ag.full_like(y, 0.5), retain_graph=True),
                ag.grad(y.T, model[2].bias, ag.ones(8, 4), retain_graph=True),
                ag.grad((y * y).sum(), model.parameters(), create_graph=True),
            ])  # fmt: skip
            sum((g * g).sum() for g in results[-1][-1]).backward(retain_graph=True)
            (y**3).sum().backward()
            results[-1].append(x.grad)
        assert bits(results[0]) == bits(results[1])
        pair.check()
    assert replays(pair.fast._compiled) == 2


def _use(number, w, hidden, total, flat):
    if number == 0:
        return flat.sum()
    if number == 1:
        return (hidden * 2).sum() + total.sum()
    if number == 2:
        return total[0]
    if number == 3:
        return hidden.sum() + (w * w).sum() + flat[3]
    if number == 4:
        return flat.mul_(2).sum()
    return (hidden * hidden).sum() + (hidden * flat.reshape(3, 3)).sum()


def test_several_results():
    """Each may be differentiated without the others; one may be a view, or computed of another."""

    def function(x, w):
        hidden = ag.tanh(x @ w)
        return hidden, (hidden * w).sum(0), {"flat": (hidden @ w).reshape(-1), "aside": x * 2}

    fast = ag.compile(function)
    for use in range(6):
        results = []
        x = ag.randn(3, 3)
        start = ag.randn(3, 3)
        for call in (fast, function):
            w = start.clone().requires_grad_()
            hidden, total, others = call(x, w)
            root = _use(use, w, hidden, total, others["flat"])
            root.backward()
            results.append([root, w.grad, hidden, total, others])
        assert bits(results[0]) == bits(results[1])
    assert replays(fast) == 5


@pytest.mark.parametrize("use", range(4))
def test_errors_are_those_of_the_graph(use):
    """Changed tensors that were saved, and a second pass."""

    def function(x, w):
        return ag.exp(x * w) + w

    def wrong(call):
        x, w = ag.ones(2, requires_grad=True), ag.ones(2, requires_grad=True)
        out = call(x, w)
        if use == 0:
            out.sum().backward()
        elif use == 1:
            with ag.no_grad():
                w.mul_(2)
        elif use == 2:
            out.mul_(2)
        elif use == 3:
            with ag.no_grad():
                w.add_(1)
            return ag.grad(call(x, w), w, ag.ones(2))[0].tolist()
        try:
            out.sum().backward()
        except RuntimeError as error:
            return type(error), str(error).partition(":")[0]
        return w.grad.tolist()

    fast = ag.compile(function)
    for _ in range(3):
        assert wrong(fast) == wrong(function)
    assert replays(fast) >= 2


def twice_differentiated(y, w):
    gradients = ag.grad(y.sum(), w, create_graph=True)
    sum((g * g).sum() for g in gradients).backward()


def changed_and_then_again(y, w):
    with ag.no_grad():
        w[0].add_(1)
    for _ in range(2):
        with pytest.raises(RuntimeError) as error:
            y.sum().backward()
    raise error.value


def released_by_a_pass_that_records_itself(y, w):
    ag.grad(y.sum(), w, create_graph=True, retain_graph=False)
    y.sum().backward()


@pytest.mark.parametrize(
    "use", [twice_differentiated, changed_and_then_again, released_by_a_pass_that_records_itself]
)
@pytest.mark.parametrize("last", [ag.tanh, ag.exp, lambda x: nn.functional.layer_norm(x, (4,))])
def test_passes_that_run_the_nodes_themselves(use, last):
    """Sums are recorded where they are in an eager pass, and each node releases its own values."""

    def function(x, a, b):
        y = a * (x * b) + a
        return last(a * y + a + y * b)

    results = []
    fast = ag.compile(function)
    for call in (function, fast):
        ag.manual_seed(3)
        results.append([])
        for _ in range(6):
            w = [ag.randn(3, 4, requires_grad=True) for _ in range(2)]
            try:
                use(call(ag.randn(3, 4), *w), w)
                results[-1].append(bits([x.grad for x in w]))
            except RuntimeError as error:
                results[-1].append((type(error), str(error)))
    assert results[0] == results[1]
    assert replays(fast) == 5


def test_versions_of_arguments_that_once_shared_memory():
    """The recorded call gets a part of a weight, later calls get tensors of their own."""
    m, a = ag.randn(3, 3, requires_grad=True), ag.randn(3, requires_grad=True)

    def function(x):
        y = (x * m).sum()
        return (x * a).sum() + y.detach()

    fast = ag.compile(function)
    given = [m.detach()[0], *[ag.randn(3) for _ in range(3)], m.detach()[0]]
    for x in given:
        for changed in (m, x, a):
            found = []
            for call in (function, fast):
                y = call(x)
                with ag.no_grad():
                    changed.mul_(1.5)
                try:
                    found.append(bits(ag.grad(y, a)))
                except RuntimeError as error:
                    found.append(str(error).partition(":")[0])
                with ag.no_grad():
                    changed.div_(1.5)
            assert found[0] == found[1]
    assert replays(fast) >= 8


NoGradient = function_of(ag, backward=lambda ctx, grad: None)


@pytest.mark.parametrize("behind", [ag.tanh, NoGradient.apply])
@pytest.mark.asyncio
async def test_a_pass_that_runs_while_another_makes_the_nodes(behind):
    """It has counted the edges of one node, and goes through those of many."""
    ag.engine()  # BLAS gives other bits with the threads that it has before.
    w = ag.randn(200, 200, requires_grad=True)

    def function(x):
        return (x @ w).tanh() @ w

    fast = ag.compile(function)
    for _ in range(3):
        x, found = ag.randn(200, 200), []
        for call in (function, fast):
            y = call(x)
            z = behind(y)
            for _ in range(40):
                z = (z * 1.01).tanh()
            running = (z.sum() + w.sum()).backward(retain_graph=True)
            (g,) = await ag.grad(y.sum(), [w], create_graph=True)
            await running
            found.append(bits([g.detach(), w.grad]))
            w.grad = None
        assert found[0] == found[1]


def test_leaves_that_have_one_grad_add_to_it_in_the_order_of_an_eager_pass():
    """A pass stages the leaf first that has all its gradients first."""

    def function(x, a, b):
        return ((x * b).tanh() * a).exp() * a

    fast = ag.compile(function)
    for _ in range(6):
        x, a, b, grad = [ag.randn(4, 4) for _ in range(4)]
        for w in (a, b):
            w.requires_grad_()
        found = []
        for call in (function, fast):
            a.grad = b.grad = grad * 1e-3
            call(x, a, b).sum().backward()
            found.append(bits(a.grad))
        assert found[0] == found[1]
    assert replays(fast) == 5


def test_sums_of_gradients_in_several_layouts():
    """The layout of such a sum follows from which gradients an eager pass may add into."""
    a = ag.randn(3, 3, requires_grad=True)

    def score(x):
        return ag.einsum("ij,kj->ik", x * 1, x) @ a

    fast = ag.compile(score)
    for _ in range(3):
        x = ag.randn(3, 4, requires_grad=True)
        assert bits(ag.grad(fast(x).sum(), x)) == bits(ag.grad(score(x).sum(), x))


def test_each_part_of_the_graph_is_released_by_itself():
    """Two passes that have no saved value in common are no second pass; others are."""

    def function(x, w, u):
        a = (x * w).exp()
        b = (x * u).sin()
        return a, b, (a + b).sum(), a.sum() + b.sum()

    def passes(call, order):
        leaves = [ag.full((3,), n, requires_grad=True) for n in (0.5, 0.25)]
        x = ag.arange(3.0)
        results = call(x, *leaves)
        found = []
        for number, leaf in order:
            try:
                root = results[number].sum()
                found += ag.grad(root, leaves if leaf is None else leaves[leaf], allow_unused=True)
            except RuntimeError as error:
                found.append((type(error), str(error).partition(":")[0]))
        return bits(found)

    fast = ag.compile(function)
    orders = [
        [(0, None), (1, None), (0, None)],
        [(1, None), (2, 0), (2, None)],
        [(2, 0), (3, 1), (3, 0)],
        [(3, None), (0, 0)],
        [(0, 0), (0, 1), (2, 1), (2, 1)],
    ]
    for order in orders * 2:
        assert passes(fast, order) == passes(function, order)
    assert replays(fast) == 2 * len(orders) - 1


def test_a_loss_whose_graph_the_step_has_used():
    """Many training steps return the loss as it is."""
    w = ag.ones(3, requires_grad=True)
    update = ag.optim.SGD([w], lr=0.1)

    @ag.compile
    def step(x):
        update.zero_grad()
        loss = ag.tanh(x * w).sum()
        loss.backward()
        update.step()
        return loss

    losses = [step(ag.ones(3)) for _ in range(3)]
    assert replays(step) == 2
    assert losses[0].item() > losses[1].item() > losses[2].item()
    for loss in losses:
        with pytest.raises(RuntimeError, match="a second time"):
            loss.backward()


def test_a_state_that_is_carried_from_step_to_step_is_detached():
    """An argument may have a graph where the function runs a pass, if the pass does not lead there.

    So programs carry the state of a recurrent layer through a long text.
    """
    ours, theirs = Pair(), Pair()

    def step(model, x, state):
        state = state.detach()
        state = model(ag.cat([x, state[:, :3]], 1))
        model.zero_grad()
        state.square().sum().backward()
        return state, x * model[0].bias[:3]

    fast = ag.compile(step)
    states = [ag.zeros(4, 8), ag.zeros(4, 8)]
    for _ in range(5):
        x = ag.randn(4, 3)
        found = fast(ours.ours, x, states[0]), step(theirs.ours, x, states[1])
        states = [state for state, _ in found]
        assert bits(found[0]) == bits(found[1])
        for _, beside in found:
            beside.sum().backward()
        for model in (ours.ours, theirs.ours):
            assert all(p.grad is not None for p in model.parameters())
        assert bits([p.grad for p in ours.ours.parameters()]) == bits(
            [p.grad for p in theirs.ours.parameters()]
        )
    assert replays(fast) == 3


def test_a_pass_through_the_graph_of_an_argument_is_eager():
    """It goes on outside of the function."""
    w = ag.ones(3, requires_grad=True)

    @ag.compile
    def step(x):
        (x.detach() * w).sum().backward()
        (x * w).sum().backward()

    for n in range(1, 4):
        x = ag.ones(3, requires_grad=True)
        step(x * n)
        assert x.grad.tolist() == [n] * 3
    assert replays(step) == 0
    assert "it runs a pass through the graph of an argument" in step.explain()


def test_random_masks_are_those_of_the_call():
    """The pass uses the mask that the forward pass has drawn."""
    pair = Pair(nn.Dropout(0.5), nn.Linear(8, 8))
    for seed in range(4):
        x = pair.inputs()
        for call, part in zip((pair.fast, pair.theirs), x, strict=True):
            ag.manual_seed(seed)
            call(part).sum().backward()
        pair.check()
    assert replays(pair.fast._compiled) == 3


def test_results_of_several_calls_are_apart():
    """Each has saved its own values, and is released with them."""
    w = ag.ones(3, requires_grad=True)
    fast = ag.compile(lambda x: ag.exp(x * w))
    for _ in range(2):
        outs = [fast(ag.full((3,), float(n))) for n in range(4)]
        sum((out * n).sum() for n, out in enumerate(outs)).backward()
    expected = ag.ones(3, requires_grad=True)
    for _ in range(2):
        outs = [ag.exp(ag.full((3,), float(n)) * expected) for n in range(4)]
        sum((out * n).sum() for n, out in enumerate(outs)).backward()
    assert bits(w.grad) == bits(expected.grad)


@pytest.mark.usefixtures("no_collector")
def test_nothing_is_kept():
    """Neither the graph of the recorded call nor an array of a replay outlives its result."""
    w = ag.ones(3, requires_grad=True)
    fast = ag.compile(lambda x: ag.exp(x * w).sum())
    gc.collect()
    for _ in range(3):
        x = ag.ones(3)
        out = fast(x)
        known = [weakref.ref(x), weakref.ref(out.grad_fn), weakref.ref(out._array)]
        out.backward()
        del x, out
        assert [one() for one in known] == [None] * 3
    assert replays(fast) == 2


def test_views_in_a_pass_are_not_overwritten():
    """A rule may return a view of the sum that it was given."""

    def training():
        w = ag.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)

        def step(x):
            flat = w.reshape(-1)
            ((flat / (flat * flat).sum().add(1.0).sqrt()).sum() + (w * w).sum()).backward()
            return x * 1

        return w, step

    (w, eager), (v, step) = training(), training()
    fast = ag.compile(step)
    for _ in range(3):
        eager(ag.ones(1))
        fast(ag.ones(1))
        assert bits(w.grad) == bits(v.grad)
    assert replays(fast) == 2


@pytest.mark.parametrize("order", [(0, 0), (0, 1, 0), (1, 0, 0), (0, 1, 0, 1)])
def test_what_saves_no_arrays_can_be_passed_again(order):
    """A pass releases what was saved; sums have saved nothing, products have."""

    def results(x):
        return x + 1, x * x

    def gradients(call, x):
        found = call(x)
        for number in order:
            try:
                found[number].sum().backward()
            except RuntimeError as error:
                return type(error), bits(x.grad)
        return bits(x.grad)

    fast = ag.compile(results)
    for k in range(3):
        x, y = (ag.full((3,), k + 1.0, requires_grad=True) for _ in range(2))
        assert gradients(fast, x) == gradients(results, y)
    assert replays(fast) == 2


def test_gradients_and_hooks_of_results_that_others_are_computed_from():
    """As of the logits that come with a loss."""
    w = ag.tensor([1.0, 2.0, 3.0], requires_grad=True)

    def results(x):
        hidden = (x * w).tanh()
        return (hidden * hidden).sum(), hidden

    fast = ag.compile(results)
    for k in range(4):
        seen = []
        for call in (fast, results):
            loss, hidden = call(ag.full((3,), k + 0.5))
            mine = [ag.grad(loss, hidden, retain_graph=True)]
            hidden.register_hook(mine.append)
            hidden.retain_grad()
            (slope,) = ag.grad(loss, w, create_graph=True)
            mine += [slope, *ag.grad((slope * slope).sum(), [w, hidden], retain_graph=True)]
            loss.backward()
            seen.append(bits([mine, hidden.grad, w.grad]))
            w.grad = None
        assert seen[0] == seen[1]
    assert replays(fast) == 3


def test_sums_within_a_replayed_graph_lie_in_memory_as_eager_ones():
    """An eager pass adds into the memory of a gradient that it has made, here a transposed one."""
    w, a = ag.randn(4, 4, requires_grad=True), ag.randn(4, 4)

    def score(x):
        hidden = w * x
        return (hidden.tanh() @ a).sum() + (hidden.T @ a).sum()

    fast = ag.compile(score)
    for k in range(4):
        x = (ag.ones(4, 4) * (k + 1)).T
        assert bits(ag.grad(fast(x), w)) == bits(ag.grad(score(x), w))
    assert replays(fast) == 3


class Doubled(ag.autograd.Function):
    """Notes its backward passes."""

    passes: ClassVar[list[str]] = []

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        Doubled.passes.append("Doubled")
        return gradient * 2


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("used", [(0,), (1,), (2,), (0, 2), (1, 2)])
def test_what_the_chosen_results_do_not_lead_to_is_no_part_of_a_pass(used, create_graph):
    """Neither hooks of leaves nor Functions behind arguments: what an eager pass would not run."""

    def several(a, b, c):
        return (a * 2).sin(), (b * b * 3).cos() + b, (a * c).exp()

    def events(function):
        log = []

        def added(leaf):
            log.append(leaf.grad)

        for _ in range(3):
            a, b, c = leaves = [ag.full((3,), float(n), requires_grad=True) for n in (1, 2, 3)]
            outs = function(a, Doubled.apply(b * 1), (c * 1).exp())
            for leaf in leaves:
                leaf.register_hook(log.append)
                leaf.register_post_accumulate_grad_hook(added)
            Doubled.passes.clear()
            sum(outs[place].sum() for place in used).backward(create_graph=create_graph)
            log += Doubled.passes
        return sorted(str(event) for event in log)

    step = ag.compile(several)
    assert events(step) == events(several)
    assert replays(step) == 2


def changed_twice(w):
    out = w.tanh()
    out.add_(1).mul_(2)
    return out, (w * 1.0).mul_(3)


def changed_out_of_sight(w):
    hidden = w.tanh()
    hidden.mul_(2)
    return hidden * 3


def detached_in_place(w):
    hidden = w.exp()
    out = hidden.sin()
    hidden.detach_()
    return out


@pytest.mark.parametrize("function", [changed_twice, changed_out_of_sight, detached_in_place])
def test_changes_within_the_call_are_counted(function):
    """Versions are those of an eager call, and so are the words of errors that name them."""

    def found(call):
        w = ag.ones(3, requires_grad=True)
        results = call(w)
        known = []
        for one in results if isinstance(results, tuple) else (results,):
            known.append(one._version)
            try:
                one.sum().backward()
            except RuntimeError as error:
                known.append(re.sub(r"\w+Backward\d?", "", str(error)))
        return known, w.grad

    fast = ag.compile(function)
    for _ in range(4):
        assert str(found(fast)) == str(found(function))


@pytest.mark.parametrize("given", [False, True])
def test_a_gradient_that_a_graph_has_saved_is_changed(given):
    """By the next `zero_grad()`: a pass through the old graph is an error, as eagerly."""
    w = ag.ones(3, requires_grad=True)

    def function(x):
        (w * x).sum().backward()
        if given:
            w.grad = grad = w.grad * 2
            return (w * grad).sum()
        return (w * w.grad).sum()

    fast = ag.compile(function)
    for _ in range(3):
        result = fast(ag.ones(3))
        w.grad.zero_()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.backward()


def apart(a, b, w, v):
    return ag.tanh(a * w), ag.exp(b * v)


def with_a_common_part(a, b, w, v):
    hidden = ag.tanh(a * 0.5)
    return hidden * w, ag.sin(hidden * b * v)


def in_a_chain(step, use):
    """What a use of a chain of calls gives, and which hooks it calls."""
    w, v, z = (ag.full((2,), n / 4, requires_grad=True) for n in (1, 2, 3))
    first = step(z * 1.0, z, w, v)
    second = step(*first, w, v)
    names = {"w": w, "v": v, "a": first[0], "b": first[1], "c": second[0], "d": second[1]}
    called = []
    for name, tensor in names.items():
        tensor.register_hook(lambda gradient, name=name: called.append((name, bits(gradient))))
    several = []
    ag.autograd.graph.register_multi_grad_hook([w, v, z], several.append)
    try:
        found = use(names)
    except RuntimeError as error:
        found = type(error)
    return bits(found), sorted(called), bits(several), bits([w.grad, v.grad, z.grad])


def freed_elsewhere(names):
    """What leads from a result to `w` alone is released; another result doesn't lead there."""
    twice = names["d"] * names["d"]
    twice.sum().backward()
    return ag.grad(names["a"].sum() + twice.sum(), names["w"])


USES = {
    "freed elsewhere": freed_elsewhere,
    "one result": lambda names: names["d"].sum().backward(),
    "a leaf of another result": lambda names: ag.grad(names["d"].sum(), names["w"]),
    "none": lambda names: ag.grad(
        names["d"].sum(), [names["w"], names["a"], names["v"]], allow_unused=True
    ),
    "zeros": lambda names: ag.grad(
        names["d"].sum(), [names["w"], names["c"]], materialize_grads=True
    ),
    "besides": lambda names: ag.grad((names["d"] + names["w"] * names["a"]).sum(), names["w"]),
    "inputs": lambda names: (names["d"] * names["c"]).sum().backward(inputs=[names["w"]]),
    "a result among the inputs": lambda names: (
        (names["d"] * names["c"] + names["d"]).sum().backward(inputs=[names["b"], names["w"]])
    ),
    "of gradients": lambda names: (
        ag.grad((names["d"] ** 2).sum(), names["v"], create_graph=True)[0].sum().backward()
    ),
}


@pytest.mark.parametrize("function", [apart, with_a_common_part])
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_each_of_several_results_leads_to_its_own_leaves(function, use):
    """A result does not lead to what only others depend on, though one node stands for all."""
    fast = ag.compile(function)
    for _ in range(3):
        assert in_a_chain(fast, use) == in_a_chain(function, use)
    assert replays(fast) >= 4


def test_a_result_that_gets_no_gradient():
    """As from a Function that returns None."""

    Nothing = function_of(ag, lambda ctx, x: x * 2, lambda ctx, g: None)
    w = ag.ones(2, requires_grad=True)
    fast = ag.compile(lambda x: ag.tanh(x * w))
    for _ in range(3):
        y = fast(ag.ones(2))
        assert ag.grad(Nothing.apply(y).sum(), w, allow_unused=True) == (None,)
        # Its graph is still there, as nothing has used it.
        assert ag.grad(y.sum(), w)[0].tolist() == pytest.approx([0.42, 0.42], abs=1e-3)


def test_a_second_pass_through_a_graph_with_nodes_that_may_run_again():
    """Some nodes keep what they have saved when the others have released it."""
    w = ag.tensor([0.5, -1.0, 2.0], requires_grad=True)

    def forward(x):
        return (x.max(-1)[0].tanh() - w.sum()).tanh().sum() + (w * w).sum()

    def slope(x):
        return ag.func.grad(forward)(x)

    fast = ag.compile(slope)
    for number in range(3):
        found = []
        for call in (slope, fast):
            w.grad = None
            result = call(ag.arange(12.0).reshape(3, 4).cos() + number)
            result.sum().backward()
            with pytest.raises(ag.errors.GraphFreedError):
                result.sum().backward()
            found.append(bits((result, w.grad)))
        assert found[0] == found[1]
    assert replays(fast) == 2


def changed_after_it_was_saved(x, w):
    y = (x * w).tanh()
    z = y * y
    y.mul_(2)
    return z.exp().sum()


def used_by_the_call_itself(x, w):
    y = (x * w).tanh()
    y.sum().backward()
    return (y * 2).exp().sum()


@pytest.mark.parametrize("function", [changed_after_it_was_saved, used_by_the_call_itself])
def test_what_a_pass_has_used_before_it_fails_is_released(function):
    """The second error is that of the node where the pass began, as without a compiled function."""

    def errors(call):
        x, w = ag.ones(3), ag.ones(3, requires_grad=True)
        out = call(x, w)
        found = []
        for _ in range(2):
            with pytest.raises(RuntimeError) as caught:
                out.backward()
            found.append((type(caught.value), str(caught.value).partition(" at /")[0]))
        return found

    fast = ag.compile(function)
    for _ in range(3):
        assert errors(fast) == errors(function)
    assert replays(fast) == 2


def test_names_of_released_nodes_that_follow_from_their_arguments():
    """`prod` along an axis has another node than `prod` of all."""

    def function(x):
        return x.prod(0).expand(3, 3)

    def error(call):
        x = ag.ones(3, 3, requires_grad=True)
        out = call(x)
        out.sum().backward()
        with pytest.raises(ag.errors.GraphFreedError, match="ProdBackward1"):
            out.sum().backward()

    fast = ag.compile(function)
    for _ in range(3):
        error(function)
        error(fast)
    assert replays(fast) == 2


def hooked_and_then_changed(y, w, seen):
    y.register_hook(lambda g: seen.append(g.clone()))
    y.mul_(2)
    y.register_hook(lambda g: seen.append(g.clone()))
    y.sum().backward()


def changed_through_another_view(y, w, seen):
    y.view(-1)[1:].mul_(3)
    y.exp().sum().backward()


def detached_in_place(y, w, seen):
    y.detach_()


def overwritten_in_part(y, w, seen):
    y[0] = 5
    y.sum().backward()


def summed_with_later_operations(y, w, seen):
    other = (w * 0.3).tanh()
    (y.sum() + other.sum() + (w * 0.7).exp().sum()).backward()


@pytest.mark.parametrize(
    "use",
    [
        hooked_and_then_changed,
        changed_through_another_view,
        detached_in_place,
        overwritten_in_part,
        summed_with_later_operations,
    ],
)
@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: (x * w).t().contiguous().t(),
        lambda x, w: (x * w)[:1].expand(3, 3),
        lambda x, w: (x * w).exp().t()[1:].unsqueeze(0)[0],
        lambda x, w: ((x * w).tanh().t(), (x + w).exp()),
        lambda x, w: (lambda y: (y.t(), y.t().exp().sum()))(x * w),
        lambda x, w: (lambda v: (v, v.tanh()))((x * w).t()),
    ],
)
def test_returned_views_have_their_base(function, use):
    """Hooks, changes in place and errors of a view are those of a view."""

    def found(call):
        ag.manual_seed(0)
        x, w = ag.randn(3, 3), ag.randn(3, 3, requires_grad=True)
        seen = []
        result = call(x, w)
        y, *others = result if isinstance(result, tuple) else (result,)
        state = [y._base is None, bits(y)]
        try:
            use(y, w, seen)
        except RuntimeError as error:
            seen.append((type(error), str(error)))
        state += [bits(y._base), bits(seen), bits(w.grad), bits(others)]
        w.grad = None
        for other in others:
            try:
                other.sum().backward()
            except RuntimeError as error:
                state.append((type(error), str(error).partition(" at /")[0]))
        return [*state, bits(w.grad)]

    fast = ag.compile(function)
    for _ in range(3):
        assert found(fast) == found(function)
    assert replays(fast) == 2


@pytest.mark.parametrize("which", ["base", "between", "view"])
def test_hooks_on_views_and_their_bases_are_called(which):
    """A replay makes new nodes of them, also of a view between the result and its base."""
    w = ag.ones(3, 3, requires_grad=True)

    def function(x):
        base = (x * w).exp()
        between = base.t()
        view = between[1:]
        {"base": base, "between": between, "view": view}[which].register_hook(lambda g: g * 2)
        return view

    fast = ag.compile(function)
    for _ in range(3):
        x = ag.randn(3, 3)
        assert bits(ag.grad(fast(x).sum(), w)) == bits(ag.grad(function(x).sum(), w))
    assert "it has hooks" in fast.explain()


def test_hooks_on_the_node_of_a_result_get_its_own_gradients():
    w = ag.ones(3, requires_grad=True)

    def function(x):
        return (x * w).tanh().exp()

    def found(call):
        seen = []
        y = call(ag.arange(3.0))
        y.grad_fn.register_hook(lambda inputs, outputs: seen.append([*inputs, *outputs]))
        y.sum().backward()
        return bits(seen)

    fast = ag.compile(function)
    for _ in range(3):
        assert found(fast) == found(function)
    assert replays(fast) == 2


def test_two_threads_may_make_the_nodes_of_one_graph(monkeypatch):
    """Both have made some before either has put them in the place of the whole graph's node."""
    step = ag.compile(lambda x: (x.tanh() * x).sum())
    x = ag.ones(3, requires_grad=True)
    expected = ag.grad((x.tanh() * x).sum(), x)[0].tolist()
    for _ in range(3):
        y = step(x)
    both, real = threading.Barrier(2, timeout=30), GraphNode.made_again

    def made_again(node):
        made = real(node)
        both.wait()
        return made

    monkeypatch.setattr(GraphNode, "made_again", made_again)
    found = []

    def run():
        found.append(ag.grad(y, x, create_graph=True)[0].tolist())

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == [expected, expected]
