"""What may go wrong with a replay, and does not: each call is as an eager one."""

from __future__ import annotations

import asyncio
import functools
import os
import subprocess
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from interrupts import interrupt

import asyncgrad as ag
from asyncgrad import nn
from asyncgrad.core.modes import current
from asyncgrad.ops import mode_hooks
from asyncgrad.replay import program
from asyncgrad.replay.steps import UnrepeatableError
from asyncgrad.replay.watched_pass import WatchedPass


def replayed(function):
    """How many calls of a compiled function were replayed."""
    text = function.explain().splitlines()[0]
    return int(text.split()[-2])


def slope(x, w):
    return ag.grad((ag.tanh(x) * w).sum(), w)[0]


def leaf(*values):
    return ag.tensor(list(values), requires_grad=True)


def test_the_second_call_is_replayed():
    """With other values of the same kind."""
    fast = ag.compile(slope)
    for start in range(4):
        x, w = ag.arange(3.0) + start, leaf(1.0, 2.0, 3.0)
        assert fast(x, w).tolist() == slope(x, w).tolist()
    assert replayed(fast) == 3


def test_as_a_decorator_with_and_without_options():
    """PyTorch's three ways to write it."""

    @ag.compile
    def one(x):
        return x * 2

    @ag.compile(fullgraph=True, dynamic=True)
    def other(x):
        return x * 3

    for _ in range(3):
        assert one(ag.ones(1)).item() == 2
        assert other(ag.ones(1)).item() == 3
    assert replayed(one) == replayed(other) == 2
    assert one.__name__ == "one"


@pytest.mark.parametrize("target", [None, ag.exp, ag.nn.Tanh()], ids=["decorator", "", "module"])
def test_only_options_that_pytorch_has_are_accepted(target):
    ag.compile(target, backend="inductor", mode="max-autotune", options={}, disable=False)
    with pytest.raises(TypeError, match="unexpected keyword argument 'full_graph'"):
        ag.compile(target, full_graph=True)


def test_a_module_shares_its_parameters():
    """As a module it can be put where the original was."""
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    fast = ag.compile(net)
    x = ag.ones(2, 3)
    with ag.no_grad():
        for _ in range(3):
            assert fast(x).tolist() == net(x).tolist()
            net[0].weight.mul_(0.5)
    assert "replayed 2 times" in fast.explain()
    assert [id(p) for p in fast.parameters()] == [id(p) for p in net.parameters()]
    assert fast[1] is net[1] if hasattr(type(fast), "__getitem__") else fast.training


def test_attributes_that_a_compiled_module_gets_are_those_of_the_original():
    """Its `forward` reads them."""

    class Scaled(nn.Module):
        scale = None

        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(ag.ones(2))
            self.register_buffer("shift", ag.zeros(2))

        def forward(self, x):
            out = x * self.weight + self.shift
            return out if self.scale is None else out * self.scale

    net = Scaled()
    fast = ag.compile(net)

    def values():
        ours, theirs = fast(ag.ones(2)).tolist(), net(ag.ones(2)).tolist()
        assert ours == theirs
        return ours

    assert values() == values() == [1, 1]
    fast.weight = nn.Parameter(ag.full((2,), 3.0))
    assert values() == values() == [3, 3]
    fast.shift = ag.ones(2)
    assert values() == values() == [4, 4]
    fast.scale = 2.0
    assert values() == values() == [8, 8]
    del fast.scale
    assert values() == [4, 4]
    assert [name for name, _ in fast.named_parameters()] == ["_orig_mod.weight"]
    fast.register_forward_hook(lambda module, args, out: out + 1)
    assert fast(ag.ones(2)).tolist() == [5, 5]


def test_a_compiled_module_has_the_length_of_the_module():
    assert len(ag.compile(nn.Sequential(nn.ReLU(), nn.Tanh()))) == 2
    # As those of the modules themselves.
    assert ag.compile(nn.Linear(1, 1))
    assert not ag.compile(nn.Sequential())
    with pytest.raises(TypeError, match="'Linear' has no len"):
        len(ag.compile(nn.Linear(1, 1)))


def test_a_module_shares_its_mode():
    """Whichever of the two is told."""
    module = ag.nn.Dropout()
    fast = ag.compile(module)
    module.eval()
    assert not fast.training
    fast.train()
    assert module.training
    assert fast.training
    with pytest.raises(ValueError, match="boolean"):
        fast.train(1)


def test_a_method_is_bound():
    """The instance is an argument, and its attributes are read anew."""

    class Scaled:
        def __init__(self):
            self.factor = 2.0

        @ag.compile
        def of(self, x):
            return x * self.factor

    scaled = Scaled()
    assert [scaled.of(ag.ones(1)).item() for _ in range(2)] == [2, 2]
    scaled.factor = 3.0
    assert scaled.of(ag.ones(1)).item() == 3
    assert replayed(Scaled.of) == 1


def test_a_bound_method_is_one():
    """Frameworks ask it for its name and owner, whether to await it, and whether it is the same."""

    class Doubled:
        @ag.compile
        async def of(self, x):
            return x * 2

    doubled = Doubled()
    assert asyncio.iscoroutinefunction(doubled.of)
    assert doubled.of == doubled.of
    assert doubled.of.__name__ == "of"
    assert doubled.of.__self__ is doubled
    assert asyncio.run(doubled.of(ag.ones(1))).item() == 2
    assert doubled.of.explain() == Doubled.of.explain()


def test_results_are_never_overwritten():
    """What a caller holds stays as it is when the function is called again."""
    fast = ag.compile(slope)
    held = [fast(ag.full((3,), float(n)), leaf(1.0, 2.0, 3.0)) for n in range(5)]
    again = [slope(ag.full((3,), float(n)), leaf(1.0, 2.0, 3.0)) for n in range(5)]
    assert [x.tolist() for x in held] == [x.tolist() for x in again]


def test_a_constant_that_is_returned_is_a_new_one_each_time():
    """The caller may change it in place."""
    fast = ag.compile(lambda x: (x * 1, ag.zeros(2)))
    for _ in range(3):
        _, zeros = fast(ag.ones(1))
        assert zeros.tolist() == [0, 0]
        zeros.add_(1)


def test_a_view_of_a_constant_is_one_of_a_new_constant_each_time():
    """The caller may change it in place, too."""
    fast = ag.compile(lambda x: (ag.ones(2, 3).T, ag.arange(3.0)[1:], x + ag.ones(2, 1)[0]))
    for n in range(3):
        *views, _ = fast(ag.ones(1))
        for found, expected in zip(views, ([[1, 1]] * 3, [1, 2]), strict=True):
            assert found.tolist() == expected
            found.mul_(5)
        assert replayed(fast) == n


def test_containers_that_others_have_are_not_made_anew():
    """A list is that of the caller or of an object, or stands twice in the result."""
    kept = SimpleNamespace(items=[1], model=nn.Linear(2, 2))

    def twice(x):
        both = [x * 2]
        return both, {"also": both}

    given = [ag.ones(2)]
    for function, x, same in (
        (twice, ag.ones(2), lambda found: found[0] is found[1]["also"]),
        (lambda xs: (xs, xs[0] * 2), given, lambda found: found[0] is given),
    ):
        fast = ag.compile(function)
        assert all(same(fast(x)) for _ in range(3))
        assert "a list or the like" in fast.explain()
    fast = ag.compile(lambda x: (x * 2, kept.items, {"kept": kept, "model": kept.model}))
    for number in range(6):
        if number == 3:
            kept.items = [2]
        _, items, others = fast(ag.ones(2))
        assert items is kept.items
        assert others["kept"] is kept
        assert others["model"] is kept.model
    assert replayed(fast) == 4
    fast = ag.compile(lambda x: type("Made", (), {"value": x * 2}))
    assert [fast(ag.full((1,), n)).value.item() for n in range(3)] == [0, 2, 4]
    fast = ag.compile(lambda x: (x * 2, x.device, x.dtype))
    assert [fast(ag.ones(1))[1] for _ in range(3)] == [ag.device("cpu")] * 3
    assert replayed(fast) == 2


# -- what is followed ---------------------------------------------------------------------------


_factor = 2.0
_seen: list[object] = []
_settings = SimpleNamespace(deep={"factor": 2.0})


def test_globals_closures_and_attributes_are_read_anew(monkeypatch):
    """Each is compared at every call."""
    outer = 1.0
    held = [1.0]

    def function(x):
        return x * _factor * outer * held[0] * _settings.deep["factor"]

    fast = ag.compile(function)

    def check():
        for _ in range(2):
            assert fast(ag.ones(1)).item() == function(ag.ones(1)).item()

    check()
    monkeypatch.setitem(globals(), "_factor", 3.0)
    check()
    outer = 5.0
    check()
    held[0] = 7.0
    check()
    _settings.deep["factor"] = 11.0
    check()
    held.append(1.0)
    check()
    assert replayed(fast) >= 6


def test_a_function_that_another_replaces_is_noticed(monkeypatch):
    """A helper in the globals is followed, and so are its own globals."""
    monkeypatch.setitem(globals(), "_helper", lambda x: x * 2)

    def function(x):
        return _helper(x)  # noqa: F821

    fast = ag.compile(function)
    assert [fast(ag.ones(1)).item() for _ in range(2)] == [2, 2]
    monkeypatch.setitem(globals(), "_helper", lambda x: x * 3)
    assert [fast(ag.ones(1)).item() for _ in range(2)] == [3, 3]


def test_arguments_by_value_and_type():
    """1, 1.0, True, -0.0 and 0.0 give different results, or dtypes; NaN has a sign, too."""
    fast = ag.compile(lambda x, y: x * y)
    x = ag.tensor([1, 2])
    nan = float("nan")
    numbers = (1, 1.0, True, 0.0, -0.0, nan, -nan, np.float32(nan), np.float32(-nan), 2, 1)
    for y in numbers:
        for _ in range(2):
            ours, theirs = fast(x, y), x * y
            assert ours.dtype == theirs.dtype
            assert ours.numpy().tobytes() == theirs.numpy().tobytes()


def test_nan_of_both_signs_in_one_program():
    """Steps with the same function and layouts are alike, but for their numbers."""
    nan = float("nan")
    fast = ag.compile(lambda x: (x * nan, x * -nan))
    for _ in range(3):
        assert [np.signbit(y.numpy()).all() for y in fast(ag.ones(2))] == [False, True]
    assert replayed(fast) == 2


def test_a_replaced_or_moved_parameter_is_used():
    """By identity, and its memory of the moment."""
    net = nn.Linear(2, 1)
    step = ag.compile(lambda x: net(x).detach())
    x = ag.ones(1, 2)
    for change in (
        lambda: setattr(net, "weight", nn.Parameter(ag.ones(1, 2))),
        lambda: net.double(),
        lambda: net.float(),
        lambda: setattr(net.weight, "data", ag.full((1, 2), 3.0)),
        lambda: net.load_state_dict({"weight": ag.zeros(1, 2), "bias": ag.ones(1)}),
        lambda: net.register_forward_hook(lambda module, args, out: out * 2),
        lambda: net.requires_grad_(False),
        lambda: net.eval(),
    ):
        change()
        x = x.to(net.weight.dtype)
        for _ in range(2):
            assert step(x).tolist() == net(x).detach().tolist()


def test_tensors_that_are_one_are_not_two():
    """A gradient by an argument that is given twice is the sum of both."""

    def both(a, b):
        return ag.grad((a * a * b).sum(), (a, b))

    fast = ag.compile(both)
    a, b = leaf(2.0), leaf(3.0)
    for pair in ((a, b), (a, b), (a, a), (a, a), (b, a)):
        assert [g.tolist() for g in fast(*pair)] == [g.tolist() for g in both(*pair)]


# -- what makes a call eager ----------------------------------------------------------------------


def refused(function, *args, calls=3):
    """Compile, call as often as eagerly, and return why nothing was replayed."""
    fast = ag.compile(function)
    for _ in range(calls):
        fast(*args)
    assert replayed(fast) == 0
    return fast.explain()


def test_something_else_at_each_call():
    """A counter in a closure, a global list, a global: the calls go on counting."""
    count = 0

    def closure(x):
        nonlocal count
        count += 1
        return x * count

    assert "sets the outer variable count" in refused(closure, ag.ones(1))
    assert count == 3
    _seen.clear()

    def appending(x):
        _seen.append(len(_seen))
        return x * len(_seen)

    assert "changed" in refused(appending, ag.ones(1))
    assert len(_seen) == 3

    def setting(x):
        global _factor
        _factor = _factor + 1
        return x * _factor

    assert "sets the global _factor" in refused(setting, ag.ones(1))


def test_references_to_intermediate_tensors_are_kept_as_eagerly():
    """A tensor that the function puts somewhere is a new one each time."""
    held = SimpleNamespace(last=None)

    def keeping(x):
        held.last = x * 2
        return held.last * 3

    fast = ag.compile(keeping)
    for n in range(3):
        fast(ag.full((1,), float(n)))
        assert held.last.item() == 2 * n


def test_generators_and_iterators():
    """An argument that is used up is used up as eagerly."""
    fast = ag.compile(lambda xs: sum(x * 2 for x in xs))
    for _ in range(3):
        assert fast(ag.ones(1) * n for n in range(3)).item() == 6
    assert replayed(fast) == 0


def test_values_that_python_looks_at():
    """Branches follow the values of each call, and each is replayed."""

    def branching(x):
        if x.sum() > 0:
            return x * 2
        return x * -1

    fast = ag.compile(branching)
    for value in (1.0, 2.0, -3.0, 4.0, -5.0):
        assert fast(ag.full((2,), value)).tolist() == branching(ag.full((2,), value)).tolist()
    assert replayed(fast) == 3
    assert "if Python sees the same values: " in fast.explain()
    assert "test_compile.py" in fast.explain()


@pytest.mark.parametrize(
    "look",
    [
        lambda x: x.sum().item(),
        lambda x: x.tolist()[0],
        lambda x: float(x.sum()),
        lambda x: x.numpy().max(),
        lambda x: np.asarray(x).max(),
        lambda x: int(x.argmax()),
        lambda x: len(repr(x)),
        lambda x: bool((x > 0).all()),
        lambda x: float(ag.equal(x, x)),
        lambda x: len(x.nonzero()),
        lambda x: x.count_nonzero().item(),
        lambda x: len(f"{x.sum()}"),
        lambda x: len(ag.where(x > 0)[0]),
        lambda x: len(x[x > 0]),
        lambda x: len(x.unique()),
        lambda x: len(ag.masked_select(x, x > 1)),
        lambda x: len(ag.bincount(x.abs().long())),
        lambda x: len(ag.repeat_interleave(x, x.abs().long())),
        lambda x: len(nn.functional.one_hot(x.abs().long())[0]),
    ],
)  # fmt: skip
def test_every_way_to_look(look):
    """What Python has seen may be anywhere in the result."""

    def function(x):
        return x * float(look(x))

    fast = ag.compile(function)
    for value in (0.0, 1.0, 2.0, -1.0, 0.0, 1.0, -0.0, -1.0, float("nan")):
        x = ag.tensor([value, 1.5]).abs_() if value != value else ag.tensor([value, 1.5])
        if value == value or "long" not in look.__code__.co_names:
            assert str(fast(x)) == str(function(x))


def test_random_numbers_and_the_clock():
    """Drawn anew: two calls differ, and the generator goes on as eagerly."""
    import random
    import time

    fast = ag.compile(lambda x: x + ag.rand(3))
    ag.manual_seed(3)
    ours = [fast(ag.zeros(3)).tolist() for _ in range(4)]
    ag.manual_seed(3)
    assert ours == [ag.rand(3).tolist() for _ in range(4)]
    assert "random" in refused(lambda x: x * random.random(), ag.ones(1))
    assert "time" in refused(lambda x: x * time.time(), ag.ones(1))


def test_changes_in_place():
    """Of an argument, of a parameter, of a view: memory and versions are as eagerly."""
    weight = ag.ones(3)

    def function(x):
        x.add_(1)
        weight.mul_(2)
        y = x * 1
        y[0] = 5
        return y

    fast, x = ag.compile(function), ag.zeros(3)
    for n in range(3):
        assert fast(x).tolist() == [5, n + 1, n + 1]
    assert weight.tolist() == [8, 8, 8]
    assert x._version == 3


def test_modes_and_hooks():
    """no_grad, inference, anomaly mode, vmap, saved-tensor hooks, a pass's hook."""
    w = leaf(2.0)

    def function(x):
        return ag.grad((x * w * w).sum(), w)[0] if ag.is_grad_enabled() else x * w

    fast = ag.compile(function)
    x = ag.ones(2)
    for _ in range(2):
        assert fast(x).item() == 8
        with ag.no_grad():
            assert fast(x).tolist() == [2, 2]
        with ag.inference_mode():
            assert fast(x).is_inference()
        with ag.autograd.set_detect_anomaly(True, check_nan=False):
            assert fast(x).item() == 8
        with ag.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t * 2):
            assert fast(x).item() == function(x).item()
        with ag.no_grad():
            assert ag.vmap(fast)(ag.ones(2, 2)).tolist() == [[2, 2], [2, 2]]
    got = []
    w.register_hook(got.append)
    assert fast(x).item() == 8
    assert len(got) == 1
    y = (z := leaf(1.0, 1.0)) * 1
    y.register_hook(lambda g: fast(g).expand(2))
    y.sum().backward()
    assert z.grad.tolist() == [2, 2]


def test_anomaly_mode_within_the_call():
    """A gradient that is NaN in a later call is an error there, too."""
    w = leaf(1.0)

    @ag.compile
    def step(x):
        with ag.autograd.set_detect_anomaly(True):
            (x * w).sqrt().sum().backward()

    for _ in range(2):
        step(ag.ones(1))
    assert "anomaly mode" in step.explain()
    with (
        pytest.raises(RuntimeError, match="nan values"),
        pytest.warns(UserWarning, match="Error detected in SqrtBackward0"),
    ):
        step(-ag.ones(1))
    assert w.grad.tolist() == [1.0]


def test_reentry_and_threads():
    """A compiled function may call itself, another one, and be called in threads at once."""
    inner = ag.compile(lambda x: x * 2)

    @ag.compile
    def outer(x, depth):
        return inner(x) if not depth else outer(x, depth - 1) + 1

    for _ in range(3):
        assert outer(ag.ones(1), 2).item() == 4
    results = {}

    def run(n):
        results[n] = [outer(ag.full((1,), float(n)), 1).item() for _ in range(50)]

    threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {n: [2 * n + 1] * 50 for n in range(4)}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_child_replays():
    """What the parent has recorded holds in the child, whose results are its own."""
    program = """
import os
import asyncgrad as ag

w = ag.ones(2, requires_grad=True)

@ag.compile
def step(x):
    loss = (w * x).sum()
    loss.backward()
    return loss.item()

model = ag.compile(ag.nn.Linear(2, 1))
for n in range(3):
    step(ag.ones(2))
    model(ag.ones(2)).sum().backward()
child = os.fork()
assert step(ag.full((2,), 2.0)) == 4
model(ag.ones(2)).sum().backward()
assert w.grad.tolist() == [5, 5]
assert "3 replayed" in step.explain()
if child:
    assert os.waitpid(child, 0)[1] == 0
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_errors_are_those_of_the_function():
    """Also where a value of a later call is what is wrong."""
    target = ag.tensor([0, 1])

    def function(x, target):
        return nn.functional.cross_entropy(x, target)

    fast = ag.compile(function)
    x = ag.zeros(2, 3)
    for _ in range(3):
        assert fast(x, target).item() == function(x, target).item()
    assert replayed(fast) == 2
    with pytest.raises(IndexError, match="Target 3 is out of bounds"):
        fast(x, ag.tensor([0, 3]))
    assert fast(x, ag.tensor([-100, 1])).item() == function(x, ag.tensor([-100, 1])).item()
    with pytest.raises(RuntimeError, match="size"):
        ag.compile(lambda x, y: x + y)(ag.ones(2), ag.ones(3))


def test_many_signatures_are_bounded_and_churn_warns():
    """The least recently used goes; a function that never repeats is recorded no more."""
    fast = ag.compile(lambda x: x * 2)

    def call_with_many_shapes():
        for n in range(1, 60):
            assert fast(ag.ones(n)).sum().item() == 2 * n

    expected = "differs from all before. It is recorded no more"
    with pytest.warns(RuntimeWarning, match=expected) as caught:
        call_with_many_shapes()
    assert caught[0].filename == __file__
    assert "dropped" in fast.explain()
    assert len(fast.explain().splitlines()) < 25


def test_a_signature_that_is_used_is_kept():
    """However many others come meanwhile."""
    fast = ag.compile(lambda x: x * 2)
    for n in range(2, 30):
        for size in (1, 1, n):
            assert fast(ag.ones(size)).sum().item() == 2 * size
    assert "29 recorded, 55 replayed" in fast.explain()


def test_a_function_that_cannot_be_followed_is_recorded_no_more():
    """The warning says what it uses."""
    numbers = iter(range(100))
    fast = ag.compile(lambda x: x * next(numbers))
    with pytest.warns(RuntimeWarning, match="0 replayed, because numbers is a range_iterator"):
        assert [fast(ag.ones(1)).item() for _ in range(40)] == list(range(40))


def test_fullgraph_raises_and_names_the_line():
    """Instead of an eager call."""

    @ag.compile(fullgraph=True)
    def looking(x):
        return x * x.sum().item()

    with pytest.raises(RuntimeError, match=r"fullgraph.*Python sees values.*test_compile\.py"):
        looking(ag.ones(2))
    with pytest.raises(RuntimeError, match=r"fullgraph.*has changed.*test_compile\.py:\d+"):
        ag.compile(lambda x: _seen.append(x), fullgraph=True)(ag.ones(1))
    with pytest.raises(RuntimeError, match=r"fullgraph.*open\(\), which is not known to depend on"):
        ag.compile(lambda x, file: x, fullgraph=True)(ag.ones(1), open)


def test_fullgraph_raises_before_a_pass_that_cant_be_recorded_adds_gradients(monkeypatch):
    """The error comes from a node, as one of a rule's would."""

    def refuse(self, *given):
        raise UnrepeatableError("this pass is another each time")

    w = leaf(1.0, 2.0)

    def step(x):
        (ag.tanh(w * x) * w).sum().backward()

    monkeypatch.setattr(WatchedPass, "place", refuse)
    with pytest.raises(RuntimeError, match=r"fullgraph.*another each time.*test_compile\.py:\d+"):
        ag.compile(step, fullgraph=True)(ag.ones(2))
    assert w.grad is None
    ag.compile(step)(ag.ones(2))
    assert w.grad is not None


def test_only_callables():
    """Anything else is an error at once."""
    with pytest.raises(TypeError, match="compile"):
        ag.compile(3)
    fast = ag.compile(slope)
    assert ag.compile(fast) is fast


def test_numpy_errors_that_are_raised():
    """`np.errstate(all="raise")` holds in replays as it does eagerly."""
    fast = ag.compile(lambda x: x * 1e30)
    x = ag.full((2,), 1e30)
    fast(x), fast(x)
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        fast(x)


# -- what follows from values without a look at them ----------------------------------------------


def alike(function, *calls, bits=None):
    """Call compiled and eagerly with each of some arguments; returns how many were replayed."""
    fast = ag.compile(function)
    for args in calls:
        ours, theirs = fast(*args), function(*args)
        assert ours.numpy().tobytes() == theirs.numpy().tobytes()
    return replayed(fast)


def test_errors_that_the_function_catches():
    """Whether an operation fails depends on values."""
    table = ag.arange(6.0).reshape(3, 2)

    def careful(index):
        try:
            return nn.functional.embedding(index, table) * 2
        except IndexError:
            return table.sum() * 1

    inside, outside = ag.tensor([0, 2]), ag.tensor([0, 5])
    assert alike(careful, (inside,), (inside,), (outside,), (inside,)) == 0
    assert alike(lambda i: nn.functional.embedding(i, table), (inside,), (inside,)) == 1


def test_a_tensor_used_as_a_number():
    """In an index, a factor of time, a bound."""
    x = ag.arange(6.0)
    numbers = [(ag.tensor(n),) for n in (1, 1, 3, 2)]
    assert alike(lambda i: x[i] * 2, *numbers) == 0
    assert alike(lambda i: ag.clamp(x, max=i) * 2, *numbers) >= 0
    assert alike(lambda i: ag.full((2,), i) + 0, *numbers) == 0
    assert alike(lambda i: ag.add(x, x, alpha=i.item()), *numbers) == 1


def test_rates_are_not_read_from_an_optimizer():
    """Its groups and attributes change in steps that are called anew."""
    w = leaf(1.0)

    class Own(ag.optim.SGD):
        factor = 1.0

    update = Own([w], lr=0.5)
    assert "param_groups" in refused(lambda x: x * update.param_groups[0]["lr"], ag.ones(1))
    assert "factor" in refused(lambda x: x * update.factor, ag.ones(1))


def test_what_shares_memory_with_the_caller():
    """Versions are counted together, and `.grad` is the tensor itself."""
    w = leaf(1.0, 2.0)

    def function(x):
        (x * w).sum().backward()
        return x.detach(), w.grad

    fast = ag.compile(function)
    for _ in range(3):
        w.grad = None
        x = ag.ones(2)
        alias, grad = fast(x)
        alias.add_(1)
        assert x._version == 1
        assert grad is w.grad
    twice = ag.compile(lambda x: (y := x * 2, y.detach()))
    for _ in range(3):
        y, same = twice(ag.ones(2))
        same.add_(1)
        assert (y._version, y.tolist()) == (1, [3, 3])


def test_arguments_that_the_function_changes():
    """`requires_grad_`, hooks, `.data`, `.grad`: as eagerly, at each call."""

    def function(x):
        x.requires_grad_()
        (x * x).sum().backward()
        return x.grad * 1

    assert alike(lambda x: x.requires_grad_().detach() * 1, *[(ag.ones(2),)] * 2) == 0
    fast = ag.compile(function)
    for _ in range(3):
        x = ag.ones(2)
        assert fast(x).tolist() == [2, 2]
        assert x.requires_grad
        assert x.grad.tolist() == [2, 2]

    def replacing(x, y):
        x.data = y
        return x * 1

    assert alike(replacing, *[(ag.zeros(2), ag.full((2,), n * 1.0)) for n in range(3)]) == 2


def test_a_new_leaf_in_each_call():
    """Gradients by a leaf that the function makes."""

    def function(x):
        leaf = x.detach().requires_grad_()
        return ag.grad((ag.sin(leaf) * x).sum(), leaf)[0]

    calls = [(ag.full((3,), n * 1.0),) for n in range(4)]
    assert alike(function, *calls) == 3


def test_random_masks_are_drawn_anew():
    """From the same generator, in the same order."""
    drop = nn.Dropout(0.5)
    function = lambda x: (drop(x) * ag.sigmoid(x)).detach()  # noqa: E731  compiled below
    fast = ag.compile(function)
    x = ag.ones(64)
    ag.manual_seed(11)
    ours = [fast(x).tolist() for _ in range(4)]
    ag.manual_seed(11)
    assert ours == [function(x).tolist() for _ in range(4)]
    assert ours[1] != ours[2]
    assert replayed(fast) == 3


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.BatchNorm1d(4),
        lambda: nn.LayerNorm(4),
        lambda: nn.GroupNorm(2, 4),
        lambda: nn.Conv1d(4, 4, 1),
        lambda: nn.MultiheadAttention(4, 2, batch_first=True),
        lambda: nn.LSTM(4, 4),
        lambda: nn.GRU(4, 4),
        lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.25, batch_first=True),
        lambda: nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Softmax(-1)),
        lambda: nn.Bilinear(4, 4, 4),
    ],
)
def test_layers_in_training_and_evaluation(make):
    """Outputs, gradients and buffers, with changes of the mode in between."""

    def world():
        ag.manual_seed(2)
        layer = make()

        def step(x):
            kind = type(layer).__name__
            args = {"MultiheadAttention": (x, x, x), "Bilinear": (x, x)}.get(kind, (x,))
            out = layer(*args)
            out = out[0] if isinstance(out, tuple) else out
            (out * out).sum().backward()
            return out.detach()

        return layer, step

    (ours, step), (theirs, eager) = world(), world()
    fast = ag.compile(step)
    for n in range(6):
        if n == 3:
            ours.eval(), theirs.eval()
        ag.manual_seed(n)
        x = ag.randn(4, 4, 4)
        if isinstance(ours, nn.BatchNorm1d | nn.Bilinear):
            x = x[0].clone()
        ag.manual_seed(n)
        a = fast(x)
        ag.manual_seed(n)
        b = eager(x)
        assert a.numpy().tobytes() == b.numpy().tobytes(), n
        for mine, other in zip(
            ours.state_dict().values(), theirs.state_dict().values(), strict=True
        ):
            assert mine.numpy().tobytes() == other.numpy().tobytes()
            assert mine._version == other._version
        for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert mine.grad.numpy().tobytes() == other.grad.numpy().tobytes()
    assert replayed(fast) >= 3, fast.explain()


@pytest.mark.usefixtures("no_collector")
def test_programs_are_forgotten_with_their_function():
    """Neither the source nor the arrays of the recorded call outlive it, without the collector."""
    import gc
    import linecache
    import weakref

    def known():
        return sum(name.startswith("<asyncgrad replay") for name in linecache.cache)

    gc.collect()
    before = known()
    weight = leaf(1.0, 2.0, 3.0)
    fast = ag.compile(functools.partial(slope, w=weight))
    # Later, the checks are code, too.
    for _ in range(8):
        fast(ag.ones(3))
    assert known() == before + 1
    gone = weakref.ref(fast), weakref.ref(weight)
    del fast, weight
    assert [reference() for reference in gone] == [None, None]
    assert known() == before


@pytest.mark.usefixtures("no_collector")
def test_writing_a_program_makes_no_cycles():
    """Rules are called with objects that note what is done: no collector has to find these."""
    import gc

    w = leaf(1.0, 2.0, 3.0)
    gc.collect()
    fast = ag.compile(functools.partial(slope, w=w))
    for _ in range(3):
        fast(ag.ones(3))
    del fast
    assert gc.collect() == 0


def test_programs_for_several_shapes_share_their_code():
    """Compiling takes a third of the time of a first replay."""
    fast, w = ag.compile(slope), ag.ones(1, requires_grad=True)
    for count in (3, 5):
        x = ag.arange(float(count))
        for _ in range(2):
            assert fast(x, w).tolist() == slope(x, w).tolist()
    one, other = [entry.program.run for entry in fast._entries]
    assert one is not other
    assert one.__code__ is other.__code__


@pytest.mark.usefixtures("no_collector")
def test_a_recording_keeps_no_graph():
    """With the cycle collector off, nodes die with the call."""
    import gc

    w = leaf(1.0, 2.0)
    fast = ag.compile(lambda x: ag.grad((x * w).sum(), w)[0])
    gc.collect()
    fast(ag.ones(2))
    assert w._autograd.accumulator() is None
    fast(ag.ones(2))
    assert replayed(fast) == 1


@pytest.mark.usefixtures("no_collector")
def test_a_recorded_pass_that_fails_keeps_nothing():
    """No cycle holds what the call has made: recorder and pass would know each other."""
    import gc
    import weakref

    found = []

    @ag.compile
    def step(x):
        y = (x * x).exp()
        found.append(y)
        y.sum().backward()
        y.sum().backward()

    gc.collect()
    with pytest.raises(RuntimeError, match="second time") as raised:
        step(ag.ones(3, requires_grad=True))
    array = weakref.ref(found.pop()._array)
    del raised
    assert array() is None


def test_a_sum_of_gradients_lies_in_memory_as_that_of_an_eager_pass():
    """Which adds into the memory of the first gradient, here a transposed one."""
    w = ag.ones(9, 9, requires_grad=True)
    x = ag.arange(81.0).reshape(9, 9) / 81

    def both(x):
        return ag.grad(((x @ w).tanh() * (x @ w.T).exp()).sum(), w)[0]

    fast, wanted = ag.compile(both), both(x)
    for _ in range(2):
        found = fast(x)
        assert found.stride() == wanted.stride()
        assert found.numpy().tobytes() == wanted.numpy().tobytes()
    assert replayed(fast) == 1


def test_a_layer_of_which_only_gradients_are_wanted_is_replayed():
    """Its value is not used, but what it keeps for its gradient is."""

    def slope(x):
        return ag.grad(ag.nn.functional.layer_norm(x, (3,)).sum() + x.sum(), x)[0]

    fast = ag.compile(slope)
    for k in range(3):
        x = (ag.arange(6.0).reshape(2, 3) * (k + 1)).requires_grad_()
        assert fast(x).numpy().tobytes() == slope(x).numpy().tobytes()
    assert replayed(fast) == 2


@pytest.mark.parametrize("dtype", [ag.float16, ag.float32, ag.float64, ag.int64], ids=str)
@pytest.mark.parametrize(
    "number", [0.0, -0.0, 0.1, 1e300, float("inf"), -float("nan"), 3, 2**24 + 1]
)
def test_numbers_in_programs_have_the_bits_of_eager_calls(dtype, number):
    """Programs hold them as arrays, which keep the signs of zero and NaN."""

    def function(x):
        return x * number + number, number - x, number / x

    x = ag.arange(5).to(dtype) - 2
    fast = ag.compile(function)
    for _ in range(3):
        for found, expected in zip(fast(x), function(x), strict=True):
            assert found.dtype == expected.dtype
            assert found.numpy().tobytes() == expected.numpy().tobytes()
    assert replayed(fast) == 2, fast.explain()


@pytest.mark.parametrize("dtype", [ag.float16, ag.bfloat16])
def test_numbers_are_not_rounded_to_half_precision(dtype):
    """Eager calls round what they are multiplied and divided by no more than replays do."""

    def scaled(x):
        return x * 3.1415, x / 1.7, ag.add(x, x, alpha=0.3), x.deg2rad()

    fast = ag.compile(scaled)
    for k in range(3):
        x = (ag.arange(64.0) * 0.37 + k).to(dtype)
        for found, wanted in zip(fast(x), scaled(x), strict=True):
            assert found.tolist() == wanted.tolist()
    assert replayed(fast) == 2


def test_classes_that_the_call_makes_itself():
    """They are constants, and the check of classes returns them."""
    w = ag.ones(2, 3, requires_grad=True)

    def loss(x):
        return ag.nn.functional.cross_entropy(x * w, ag.tensor([0, 1]))

    fast = ag.compile(loss)
    for k in range(3):
        x = ag.arange(6.0).reshape(2, 3) * k
        assert fast(x).item() == loss(x).item()
        assert ag.grad(fast(x), w)[0].tolist() == ag.grad(loss(x), w)[0].tolist()
    assert replayed(fast) == 5


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[[2, 0, 1]] * x[:3, [0, 1, 1]].sum(),
        lambda x: x[range(2), [1, 3]],
        lambda x: nn.functional.pad(x[None], (1, 2), mode="circular"),
        lambda x: nn.functional.pad(x[None], (1, 2), mode="reflect").sin(),
        lambda x: nn.functional.batch_norm(x, None, None, training=True),
        lambda x: nn.functional.instance_norm(x[None], bias=ag.ones(4)),
    ],
)
def test_arrays_that_python_values_make_are_known(function):
    """Indices in lists, and the weights that a norm uses where it is given none."""
    fast = ag.compile(function)
    for number in range(4):
        results = []
        for call in (fast, function):
            x = (ag.arange(16.0).reshape(4, 4) * (number + 1)).requires_grad_()
            out = call(x)
            (out * out).sum().backward()
            results.append((out.tolist(), x.grad.tolist()))
        assert results[0] == results[1]
    assert "1 recorded, 3 replayed" in fast.explain()


def instructions(call):
    """How many instructions of byte code a call takes."""
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    # From 3.12 on they are traced only if some frame has wanted it before `settrace`.
    sys._getframe().f_trace_opcodes = True
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def test_a_recorded_call_takes_few_instructions():
    """What is not needed to record a call waits until it is replayed."""
    weights = [ag.ones(4, 4, requires_grad=True) for _ in range(4)]
    x = ag.ones(2, 4)

    def step(x):
        for w in weights:
            x = ag.tanh(x @ w)
        return ag.grad(x.sum(), weights)

    def recorded():
        ag.compile(step)(x)

    def eager():
        step(x)

    for call in (eager, recorded) * 3:
        # What is made once, such as the code of operations, is there.
        call()
    assert instructions(recorded) < 4 * instructions(eager)


def test_an_interrupt_of_a_recorded_operation_leaves_the_modes_as_they_were():
    x, code, at = ag.ones(2), mode_hooks.computed_and_reported.__code__, 1

    def record():
        ag.compile(lambda x: x.tanh())(x)

    with ag.autograd.set_multithreading_enabled(False):
        found = current()
        while interrupt(at, record, code, {mode_hooks.__file__}):
            assert current() is found
            at += 1
    assert at > 1


@pytest.mark.parametrize("awaited", [False, True])
def test_a_program_that_cant_be_written_is_not_tried_again(monkeypatch, awaited):
    """The attempt has changed what was recorded: the second would fail with another error."""
    attempts = []

    def fail(steps):
        attempts.append(steps)
        raise ValueError("no")

    def double(x):
        return x + x * ag.ones(2)

    async def later(x):
        return double(x)

    monkeypatch.setattr(program, "inlined", fail)
    fast = ag.compile(later if awaited else double)
    for _ in range(4):
        out = fast(ag.ones(2))
        assert (asyncio.run(out) if awaited else out).tolist() == [2, 2]
    assert len(attempts) == 1
    assert "not replayed: its program can't be written: ValueError('no')" in fast.explain()


@pytest.mark.parametrize("dtype", [ag.float32, ag.float64], ids=str)
@pytest.mark.parametrize("function", [ag.sum, ag.mean])
def test_sums_of_parts_of_arrays_have_the_bits_of_eager_calls(function, dtype):
    """Those over several axes depend on the size of NumPy's buffers, which replays change."""
    fast = ag.compile(function)
    generator = ag.Generator().manual_seed(0)
    for _ in range(8):
        x = ag.randn(70, 64, generator=generator, dtype=dtype)[:, 1:62]
        for view in (x, x.T, x[:, :1].expand(70, 64)):
            assert fast(view).item() == function(view).item()
    assert replayed(fast) == 3 * 7
