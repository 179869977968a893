"""Changes in place, random draws and indices that follow values are repeated in their places."""

from threading import Thread

import pytest

import asyncgrad as ag
from asyncgrad import nn
from asyncgrad.errors import AutogradError
from asyncgrad.nn import functional as F
from asyncgrad.replay.recorder import Recorder


def bits(value):
    """What can be seen of results: bits, layout and history."""
    if isinstance(value, (list, tuple)):
        return [bits(part) for part in value]
    if not isinstance(value, ag.Tensor):
        return repr(value)
    array = value.detach().numpy()
    return array.tobytes(), array.shape, array.strides, array.dtype, value.requires_grad


def both(function):
    """Results of five calls, and tensors that they change, eager and compiled."""
    seen = []
    for compiled in (False, True):
        ag.manual_seed(3)
        w = ag.tensor([[1.0, -2.0], [3.0, 4.0]], requires_grad=True)
        b = ag.ones(2, 2)
        call = ag.compile(function, fullgraph=True) if compiled else function
        found = []
        for number in range(5):
            result = call(ag.tensor([[1.0, 2.0], [-3.0, 0.5]]) * (number + 1), w, b)
            found.append(bits([result, w, w.grad, b, w._version, b._version]))
        seen.append(found)
    return seen[0], seen[1], call.explain().splitlines()[0]


def sums(x, w, b):
    """A sum that starts from zeros, with a graph."""
    total = ag.zeros(2, 2)
    for number in range(3):
        total += x * w * number
    return total


def products(x, w, b):
    """The product has saved the old values, which are copied."""
    y = x * w
    y.mul_(w).mul_(x)
    return ag.grad(y.sum(), w)


def saved_output(x, w, b):
    """The function has saved its result."""
    y = x * w
    y.tanh_()
    return ag.grad((y * y).sum(), w)


def filled(x, w, b):
    """By a number, and from a broadcast tensor."""
    y, z = x * 2, ag.zeros_like(x).copy_(x[0])
    y.fill_(3.0)
    y += z
    return y, ag.zeros(2, 2)


def aliases(x, w, b):
    """Another tensor of the same array follows; one whose values were copied does not."""
    y = x * 2
    z, other = y.detach(), x * 3
    other.copy_(y)
    z.add_(1)
    return other, y + 0, ag.add(x, b, out=ag.zeros(2, 2))


def from_changed(x, w, b):
    """What was copied from a tensor stays as it is when that is changed."""
    y = ag.zeros(2, 2)
    y.copy_(b)
    b.add_(x)
    return y


def by_hand(x, w, b):
    """An update without an optimiser."""
    (w * x).sum().backward()
    with ag.no_grad():
        w.sub_(w.grad * 0.5)
    w.grad = None


def with_history(x, w, b):
    """A result that was changed has its graph."""
    y = F.relu(x * w, inplace=True)
    y.add_(b)
    return ag.tanh(y).sum()


def views(x, w, b):
    y = x * 2
    v = y[1]
    y.add_(1)
    return v * 1


def through_views(x, w, b):
    y = x * 2
    y[0] = 5
    return y


CHANGES = [
    sums, products, saved_output, filled, aliases, from_changed, by_hand, with_history, views,
    through_views,
]  # fmt: skip


@pytest.mark.parametrize("function", CHANGES, ids=lambda function: function.__name__)
def test_changes_in_place_are_repeated(function):
    """Of tensors that the call has made; of leaves without a graph."""
    eager, compiled, head = both(function)
    assert compiled == eager
    assert head.endswith("1 recorded, 4 replayed")


def by_data(x, w, b):
    w.data.sub_(1)
    b.data[0] = w.data[1]
    return b.view(-1) * 1


def by_detached(x, w, b):
    v = w.detach().view(-1)
    v[1:3].mul_(2)
    return v + 1


def without_grad(x, w, b):
    with ag.no_grad():
        w[0] = 0
        w[ag.tensor([1])] = x[:1]
        b.copy_(w)


def gradients(x, w, b):
    (w * w * x).sum().backward()
    w.grad.clamp_(-1, 1)
    w.grad[0].mul_(2)
    w.grad[w.grad < 0] = 0
    w.grad /= 2
    return w.grad, w.grad.T * 1


def added_gradients(x, w, b):
    for _ in range(2):
        (w * w * x).sum().backward()
        w.grad.add_(w.grad)
        b.add_(w.grad)


def other_memory(x, w, b):
    vector = nn.utils.parameters_to_vector([w, b]) * 0.5
    nn.utils.vector_to_parameters(vector, [w, b])
    w.data = w.data + x
    b.data[0] = 1
    (w * x).sum().backward()
    w.grad.data = w.grad * 2
    return w.grad + b


SHARED = [
    by_data, by_detached, without_grad, gradients, added_gradients, other_memory,
]  # fmt: skip


@pytest.mark.parametrize("function", SHARED, ids=lambda function: function.__name__)
def test_changes_of_shared_memory_are_repeated(function):
    """Whoever holds it sees them, and how many there were."""
    found = []
    for call in (function, ag.compile(function)):
        w, b = ag.tensor([[1.0, -2.0], [3.0, 4.0]], requires_grad=True), ag.ones(2, 2)
        results = []
        for number in range(4):
            others = [w.data, w.detach().view(-1), b[0], w.grad]
            result = call(ag.tensor([[1.0, 2.0], [-3.0, 0.5]]) + number, w, b)
            versions = [x if x is None else x._version for x in (w, b, w.grad, *others)]
            results.append((bits([result, w, w.grad, b, *others]), versions))
        found.append(results)
    assert found[0] == found[1]
    # Whether there is a `.grad`, and its layout, is looked at.
    assert (
        call.explain()
        .splitlines()[0]
        .endswith(("1 recorded, 3 replayed", "2 recorded, 2 replayed"))
    )


def test_changes_that_functions_make_unseen():
    """Running values that are reset, parts of a constant as weights, versions that are counted."""
    ag.manual_seed(0)
    norm, weight = nn.BatchNorm1d(2), ag.zeros(2)

    def reset(x):
        norm(x)
        norm.reset_running_stats()
        return norm(x)

    def constant(x):
        nn.utils.vector_to_parameters(ag.ones(4).sqrt(), [norm.weight, norm.bias])
        return norm(x)

    def drawn(x):
        norm.reset_parameters()
        return norm(x)

    def counted(x):
        ag.autograd.graph.increment_version(weight)
        return norm(x)

    for function in (reset, constant, drawn, counted):
        found = []
        for call in (function, ag.compile(function)):
            norm.reset_parameters()
            before = weight._version
            for number in range(4):
                result = call(ag.arange(6.0).view(3, 2) * number)
                found.append(bits([result, norm.state_dict()["running_mean"], norm.weight]))
                with ag.no_grad():
                    norm.weight.add_(1)
            found.append(weight._version - before)
        assert found[:5] == found[5:], function


def test_a_change_of_the_default_dtype_is_made_in_each_call():
    def function(x):
        y = ag.ones(3) * x
        ag.set_default_dtype(ag.float64)
        return y

    found, fast = [], ag.compile(function)
    try:
        for call in (function, fast):
            for before in (ag.float32, ag.float64, ag.float64, ag.float32):
                ag.set_default_dtype(before)
                found.append((call(ag.tensor(2)).dtype, ag.get_default_dtype()))
    finally:
        ag.set_default_dtype(ag.float32)
    assert found[:4] == found[4:]
    # With a default dtype that it does not change, it is replayed.
    assert ": 2 recorded, 1 replayed" in fast.explain()


def test_a_default_dtype_that_another_thread_sets_while_a_call_is_recorded(monkeypatch):
    usual, others = Recorder.computed, [ag.float64]

    def computed(self, *args):
        usual(self, *args)
        if others:
            thread = Thread(target=ag.set_default_dtype, args=(others.pop(),))
            thread.start()
            thread.join()

    monkeypatch.setattr(Recorder, "computed", computed)
    fast = ag.compile(lambda x: (x.exp(), ag.zeros(1)))
    x = ag.ones(1)
    try:
        assert fast(x)[1].dtype == ag.float64
        for dtype in (ag.float32, ag.float64, ag.float32):
            ag.set_default_dtype(dtype)
            assert [fast(x)[1].dtype for _ in range(2)] == [dtype] * 2
    finally:
        ag.set_default_dtype(ag.float32)
    assert ": 2 recorded, 1 replayed" in fast.explain()


def test_gradients_that_are_given_are_added_in_each_call():
    """`accumulate` starts a pass without nodes, which a replay would not see."""
    w = ag.zeros(2, requires_grad=True)

    @ag.compile
    def add(gradient):
        ag.autograd.graph.accumulate({w: gradient * 2})
        return gradient + 1

    for number in range(1, 4):
        add(ag.ones(2))
        assert w.grad.tolist() == [2.0 * number] * 2
    assert "adds given gradients" in str(add.explain())


def test_a_gradient_has_another_layout_in_later_calls():
    """What was a copy is then a view, into which nothing may be written."""
    found = []
    for compiled in (False, True):
        w = ag.ones(2, 3, requires_grad=True)

        def function(x, w=w):
            (w * x).sum().backward()
            return w.grad.reshape(-1) * 2

        call = ag.compile(function) if compiled else function
        results = []
        for before in (ag.arange(6.0).reshape(3, 2).T, ag.zeros(3, 2).T, None, ag.zeros(2, 3)):
            w.grad = before
            results += [bits([call(ag.ones(2, 3)), w.grad]) for _ in range(2)]
        found.append(results)
    assert found[0] == found[1]
    assert call.explain().splitlines()[0].endswith("2 recorded, 6 replayed")


def test_a_gradient_begins_to_require_grad():
    """Its flag is no part of what a function reads, but a replay would leave the change out."""
    w = ag.ones(2, requires_grad=True)

    @ag.compile
    def flagged():
        return w.grad.requires_grad_()

    for _ in range(3):
        w.grad = ag.ones(2)
        assert flagged() is w.grad
        assert w.grad.requires_grad


def test_a_gradient_that_is_set_again_is_the_same_tensor():
    def function(x, w):
        (w * x).sum().backward()
        w.grad *= 2

    fast = ag.compile(function, fullgraph=True)
    w = ag.ones(2, requires_grad=True)
    fast(ag.ones(2), w)
    held = w.grad
    for number in range(3):
        fast(ag.ones(2), w)
        assert w.grad is held
        # The pass adds to it, and it is doubled.
        assert held._version == 2 * number + 3


def test_an_index_out_of_range_changes_nothing():
    def function(x, numbers, w):
        w.data.add_(1)
        w.data[numbers] = x
        return w * 1

    fast = ag.compile(function, fullgraph=True)
    w = ag.zeros(3)
    for _ in range(2):
        fast(ag.ones(1), ag.tensor([1]), w)
    with pytest.raises(IndexError):
        fast(ag.ones(1), ag.tensor([3]), w)
    assert (w.tolist(), w._version) == ([3, 2, 3], 0)


def test_changes_of_arguments_that_share_memory():
    """They are counted for the tensors that share it in this call, not in the recorded one."""
    w = ag.ones(3, requires_grad=True)
    x = ag.ones(6)
    pairs = [
        lambda: (ag.ones(3), ag.ones(3)),
        lambda: (x[:3], x.view(6)[:3]),
        lambda: tuple(x.view(2, 3)),
        lambda: (x[:3], x[1:4]),
        lambda: (x[:3], x.data[:3]),
        lambda: (ag.ones(3), w.detach()),
        lambda: (w.grad, w.grad.detach()),
        lambda: (ag.ones(3), ag.ones(3)),
    ]

    def saved(a, b):
        loss = (a * w).sum()
        b.mul_(2)
        loss.backward()

    def changed(a, b):
        a.mul_(2)
        b.add_(1)

    def outcome(function, pair):
        w.data, w.grad = ag.ones(3), ag.ones(3) / 2
        x.data = ag.ones(6)
        a, b = pair()
        before = a._version, b._version
        try:
            function(a, b)
        except RuntimeError as error:
            return type(error)
        versions = a._version - before[0], b._version - before[1]
        return w.grad.tolist(), w.tolist(), a.tolist(), b.tolist(), versions

    def copied(a, b):
        a.copy_(b)

    def added(a, b):
        late = (a * w).sum()
        w.sum().backward()
        late.backward()

    for function in (saved, changed, copied, added):
        fast = ag.compile(function)
        for _ in range(2):
            for pair in pairs:
                assert outcome(fast, pair) == outcome(function, pair)
        assert int(fast.explain().split()[3]) >= 3, fast.explain()


def test_a_saved_value_that_was_changed_is_an_error():
    """In a pass outside of the call, as eagerly."""
    w = ag.ones(3, requires_grad=True)

    def function(x):
        y = ag.tanh(x * w)
        z = y * 2
        y.add_(1)
        return z

    fast = ag.compile(function)
    for _ in range(3):
        with pytest.raises(AutogradError, match="modified by an inplace"):
            fast(ag.ones(3)).sum().backward()
    assert "2 replayed" in fast.explain()


GENERATOR = ag.Generator()
DRAWS = {
    "rand": lambda x, w, b: ag.rand(2, 2) * w + x,
    "randn": lambda x, w, b: ag.randn(2, generator=GENERATOR) * w,
    "randn_like": lambda x, w, b: ag.randn_like(x * w) * w,
    "randint": lambda x, w, b: x[ag.randint(0, 2, (3,))],
    "randperm": lambda x, w, b: x[ag.randperm(2)],
    "bernoulli": lambda x, w, b: ag.bernoulli(ag.sigmoid(x)) + ag.rand_like(x),
    "multinomial": lambda x, w, b: ag.multinomial(ag.softmax(x, 1), 1),
    "rrelu": lambda x, w, b: F.rrelu(x * w, training=True),
}


@pytest.mark.parametrize("name", DRAWS)
def test_random_numbers_are_drawn_anew(name):
    """From the same generator, in the same order as eagerly."""
    seen = []
    for compiled in (False, True):
        ag.manual_seed(5)
        GENERATOR.manual_seed(6)
        w = ag.ones(2, 2, requires_grad=True)
        call = ag.compile(DRAWS[name], fullgraph=True) if compiled else DRAWS[name]
        found = []
        for number in range(6):
            if number == 3:
                GENERATOR.manual_seed(7)
            found.append(bits([call(ag.ones(2, 2) * number, w, w), ag.rand(1)]))
        seen.append(found)
    assert seen[0] == seen[1]
    assert len({repr(one) for one in seen[0]}) == 6
    assert call.explain().splitlines()[0].endswith("1 recorded, 5 replayed")


def accuracy(x, w, b):
    return ag.argmax(x @ w, 1), (x @ w).argmin(), (x > 0).any(1), (x > 1).all()


def greatest(x, w, b):
    return ag.grad((x * w).max(1).values.sum(), w), x.min(0, keepdim=True)


def in_order(x, w, b):
    values, order = (x * w).sort(1, descending=True)
    return ag.grad(values[:, 0].sum(), w), order, x.argsort(0)


def gathered(x, w, b):
    return (x * w).gather(1, x.argmax(1, keepdim=True))


def greatest_of_booleans(x, w, b):
    (x * w).sum().backward()
    return [t * 1 for t in (x > 0).max(1)]


def gradients(x, w, b):
    (x * w).sum().backward()
    return w.grad


@pytest.mark.parametrize(
    "function", [accuracy, greatest, greatest_of_booleans, in_order, gathered, gradients]
)
def test_indices_that_follow_values_are_found_anew(function):
    """They are computed by functions that are no operations; a `.grad` is the present one."""
    eager, compiled, head = both(function)
    assert compiled == eager
    assert head.endswith("1 recorded, 4 replayed")


def test_a_returned_gradient_is_the_one_of_the_leaf():
    """No copy, as eagerly."""
    w = ag.ones(2, 2, requires_grad=True)
    fast = ag.compile(gradients)
    for _ in range(3):
        assert fast(w.detach(), w, w) is w.grad


@pytest.mark.parametrize("part", [lambda g: g.detach(), lambda g: g[0]])
def test_a_returned_part_of_a_gradient_counts_its_changes(part):
    w = ag.ones(2, 2, requires_grad=True)

    @ag.compile
    def function(x):
        (x * w).sum().backward()
        return part(w.grad)

    for number in range(4):
        found = function(ag.ones(2, 2))
        before = found._version
        w.grad.add_(1)
        assert found._version == before + 1
        assert found.tolist() == part(w.grad).tolist()
        assert w.grad[0, 0] == 2 * number + 2


@pytest.mark.parametrize(
    "function",
    [lambda x, w: (x * w).max(0), lambda x, w: ((mask := (x > 0) * 1.0) * w, mask)],
)
def test_a_returned_tensor_that_the_graph_has_saved_is_watched(function):
    """If it is changed in place, a pass through the graph is an error."""
    w = ag.ones(3, requires_grad=True)
    fast = ag.compile(function)
    for _ in range(3):
        result, saved = fast(ag.ones(3), w)
        saved.add_(1)
        with pytest.raises(AutogradError, match="modified by an inplace"):
            result.sum().backward()
    assert "2 replayed" in fast.explain()


def test_a_coroutine_function_without_a_loop():
    """It is driven by hand, as an eager one can be."""
    w = ag.ones(3, requires_grad=True)

    @ag.compile
    async def step(x):
        loss = (x * w).sum()
        await loss.backward()
        return loss.detach()

    for number in range(3):
        with pytest.raises(StopIteration) as stop:
            step(ag.ones(3)).send(None)
        assert stop.value.value.item() == 3
        assert w.grad.tolist() == [number + 1] * 3


def test_a_leaf_may_get_a_sparse_gradient():
    """Its rows share no memory with what the call changes."""
    table = ag.ones(3, 2, requires_grad=True)

    @ag.compile
    def scale(x):
        return x.mul_(2) + table.detach().sum()

    for _ in range(4):
        assert scale(ag.ones(4)[:2]).tolist() == [8, 8]
        nn.functional.embedding(ag.tensor([1]), table, sparse=True).sum().backward()
    assert "replayed 3 times" in scale.explain()


@pytest.mark.parametrize(
    ("function", "good", "bad"),
    [
        (lambda x: ag.histc(x, 4), [0.0, 1.0], [0.0, float("nan")]),
        (lambda x: ag.quantile(ag.ones(3), x), [0.0, 1.0], [0.0, 2.0]),
        (lambda x: ag.bernoulli(x), [0.0, 1.0], [0.0, 2.0]),
        (lambda x: F.one_hot(x, 4), [0, 1], [0, 4]),
        (lambda x: ag.ones(4)[x], [0, 1], [0, 4]),
        (lambda x: 6 // x, [1, 2], [0, 1]),
        (lambda x: ag.linalg.inv(x.diag()), [1.0, 2.0], [0.0, 1.0]),
    ],
)
def test_errors_of_calls_whose_results_nobody_uses(function, good, bad):
    """A replay computes no such result, but raises the error."""

    def step(x, y):
        function(x)
        return y * 2

    fast, y = ag.compile(step), ag.ones(2)
    for _ in range(3):
        assert fast(ag.tensor(good), y).tolist() == [2, 2]

    def error_of(call):
        try:
            return call(ag.tensor(bad), y).tolist()
        except (RuntimeError, IndexError) as error:
            return type(error), str(error)

    expected = error_of(step)
    assert isinstance(expected, tuple)
    assert error_of(fast) == expected
