"""Whole training steps, replayed, beside eager ones: losses, weights, gradients and states."""

import asyncio

import pytest
from replay_counts import replays
from tree_bits import bits

import asyncgrad as ag
from asyncgrad import nn

OPTIMIZERS = {
    "sgd": lambda ps: ag.optim.SGD(ps, lr=0.1),
    "momentum": lambda ps: ag.optim.SGD(ps, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda ps: ag.optim.Adam(ps, lr=0.01, amsgrad=True),
    "adamw": lambda ps: ag.optim.AdamW(ps, lr=0.01),
    "rmsprop": lambda ps: ag.optim.RMSprop(ps, lr=0.01, momentum=0.5),
    "adagrad": lambda ps: ag.optim.Adagrad(ps, lr=0.1),
}


class Training:
    """A model, its optimiser, a schedule, and a step over them."""

    def __init__(self, optimizer, *, clip=None, schedule=False, to_none=True, accumulate=1):
        ag.manual_seed(5)
        self.model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.ReLU())
        self.model.append(nn.Linear(8, 3))
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())
        self.schedule = None
        if schedule:
            self.schedule = ag.optim.lr_scheduler.StepLR(self.optimizer, 2, gamma=0.5)
        model, update, plan = self.model, self.optimizer, self.schedule

        def step(x, target):
            update.zero_grad(set_to_none=to_none)
            for _ in range(accumulate):
                loss = nn.functional.cross_entropy(model(x), target)
                loss.backward()
            norm = None
            if clip is not None:
                norm = nn.utils.clip_grad_norm_(model.parameters(), clip)
            update.step()
            if plan is not None:
                plan.step()
            return loss.detach(), norm

        self.step = step

    def state(self):
        """All that a step may change."""
        return bits([
            list(self.model.parameters()),
            [p.grad for p in self.model.parameters()],
            self.optimizer.state_dict(),
        ])  # fmt: skip


def batches(count):
    ag.manual_seed(7)
    return [(ag.randn(4, 6), ag.randint(0, 3, (4,))) for _ in range(count)]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(
    "options",
    [{}, {"clip": 0.1, "schedule": True}, {"to_none": False, "accumulate": 2}],
    ids=["plain", "clipped", "accumulated"],
)
def test_steps_are_as_eager_ones(optimizer, options):
    """Step by step, bit for bit, also where a batch has another size in between."""
    ours, theirs = Training(optimizer, **options), Training(optimizer, **options)
    fast = ag.compile(ours.step)
    data = batches(8)
    data[5] = tuple(part[:2] for part in data[5])
    for x, target in data:
        assert bits(fast(x, target)) == bits(theirs.step(x, target))
        assert ours.state() == theirs.state()
    assert replays(fast) >= 4, fast.explain()


def test_changes_between_steps_are_followed():
    """Rates, weights, frozen parameters, loaded states, gradients left by others."""
    ours, theirs = Training("adam"), Training("adam")
    fast = ag.compile(ours.step)
    data = batches(20)
    saved = []

    def save(training):
        saved.append((training.model.state_dict(), training.optimizer.state_dict()))
        saved[-1] = tuple({**part} for part in saved[-1])

    changes = {
        3: lambda t: t.optimizer.param_groups[0].update(lr=0.5),
        6: lambda t: t.model[0].weight.requires_grad_(False),
        9: lambda t: t.model[0].weight.requires_grad_(True),
        11: lambda t: t.model.load_state_dict({
            key: ag.ones_like(part) for key, part in t.model.state_dict().items()
        }),
        13: lambda t: t.model.double(),
        15: lambda t: t.model.float(),
        17: lambda t: t.model[4].register_forward_pre_hook(lambda module, args: (args[0] * 2,)),
    }  # fmt: skip
    for number, (x, target) in enumerate(data):
        for training in (ours, theirs):
            changes.get(number, lambda t: None)(training)
        x = x.to(ours.model[0].weight.dtype)
        assert bits(fast(x, target)) == bits(theirs.step(x, target)), number
        assert ours.state() == theirs.state()
    assert replays(fast) >= 9, fast.explain()


def test_products_of_the_hessian_with_a_vector():
    """A vector times a matrix is a row whose gradients are added in the layout of the first."""
    w, v = ag.randn(3).requires_grad_(), ag.randn(3, 3).requires_grad_()

    def step(x):
        slopes = ag.grad((ag.tanh(x * w) @ v).pow(2).sum(), [w, v], create_graph=True)
        sum((slope * slope).sum() for slope in slopes).backward()
        return [slope.detach() for slope in slopes]

    fast = ag.compile(step)
    for number in range(4):
        found = []
        for call in (step, fast):
            w.grad = v.grad = None
            found.append(bits([call(ag.arange(3.0) - number), w.grad, v.grad]))
        assert found[0] == found[1]
    assert replays(fast) == 3, fast.explain()


def test_gradients_of_other_passes_are_added_to():
    """A replay adds to what is there, in the same memory; new gradients are not those of before."""
    w = ag.ones(3, requires_grad=True)

    @ag.compile
    def add(x):
        (x * w).sum().backward()

    for n in range(4):
        add(ag.full((3,), float(n)))
    assert w.grad.tolist() == [6, 6, 6]
    held = w.grad
    w.grad = None
    for _ in range(2):
        add(ag.ones(3))
    assert held.tolist() == [6, 6, 6]
    assert w.grad.tolist() == [2, 2, 2]
    assert replays(add) == 5


def test_two_leaves_with_one_gradient():
    """Gradients are added to it in the order in which they are complete: that decides the bits."""
    w, v = [ag.ones(3, requires_grad=True) for _ in range(2)]

    def add(x):
        first = (w * x).sum()
        (first + v.sum() + (w * x).sum()).backward()

    fast = ag.compile(add)
    for _ in range(3):
        found = []
        for function in (add, fast):
            w.grad = v.grad = ag.full((3,), -1e8)
            function(ag.full((3,), 5e7))
            found.append(v.grad.tolist())
        assert found[0] == found[1] == [0, 0, 0]
    assert replays(fast) == 2


def test_reading_and_setting_gradients():
    """A step written by hand: `.grad` is read, used and dropped."""

    def training():
        w = ag.ones(3, requires_grad=True)

        def step(x):
            ((x * w) ** 2).sum().backward()
            size = (w.grad * w.grad).sum()
            w.grad = None
            return size

        return w, step

    (w, eager), (v, step) = training(), training()
    fast = ag.compile(step)
    for n in range(4):
        assert bits(fast(ag.full((3,), n * 1.0))) == bits(eager(ag.full((3,), n * 1.0)))
        assert w.grad is None
        assert v.grad is None
    assert replays(fast) == 3
    v.grad = ag.ones(3)
    w.grad = ag.ones(3)
    assert bits(fast(ag.ones(3))) == bits(eager(ag.ones(3)))


def test_an_update_by_hand_is_eager():
    """A change in place is not repeated, so the call is made as always."""
    w = ag.ones(3, requires_grad=True)

    @ag.compile
    def step(x):
        (x * w).sum().backward()
        with ag.no_grad():
            w.sub_(w.grad * 0.5)
        w.grad = None

    for _ in range(3):
        step(ag.ones(3))
    assert w.tolist() == [-0.5] * 3
    assert "in place" in step.explain()


def test_a_failing_step_leaves_all_as_eagerly():
    """An error in the forward pass: no gradient, no update."""
    ours, theirs = Training("adam"), Training("adam")
    fast = ag.compile(ours.step)
    (x, target), *_ = batches(1)
    for _ in range(3):
        fast(x, target)
        theirs.step(x, target)
    wrong = ag.tensor([0, 1, 2, 3])
    for step in (fast, theirs.step):
        with pytest.raises(IndexError):
            step(x, wrong)
    assert ours.state() == theirs.state()


def test_roots_that_lead_to_one_another():
    """The gradient that a pass starts from is added before those of the nodes between."""

    def training():
        w = (ag.arange(40.0) / 7).requires_grad_()

        def step(x):
            y = w * x
            loss = (y * y).sum() + (y * 3.3).sum() + (y.exp() / 11).sum()
            ag.autograd.backward([loss, y], [None, ag.ones_like(y) * 0.1])
            return loss.detach()

        return w, step

    (w, eager), (v, step) = training(), training()
    fast = ag.compile(step)
    for n in range(4):
        x = ag.full((40,), 0.3 + n / 9)
        assert bits(fast(x)) == bits(eager(x))
        assert bits(v.grad) == bits(w.grad)
    assert replays(fast) == 3


def zeros_as_gradient(w, other, update, x):
    zeros = ag.zeros(3, 3)
    w.grad = zeros
    (x @ w).sum().backward()
    return zeros * 1


def given_and_changed(w, other, update, x):
    w.grad = given = x * ag.ones(3, 1)
    given.add_(1)
    (x @ w).sum().backward()
    return w.grad.sum()


def given_and_returned(w, other, update, x):
    w.grad = given = x * ag.ones(3, 1)
    (x @ w).sum().backward()
    return given


def stepped_before_its_pass(w, other, update, x):
    out = (x @ w).tanh() @ w
    (x @ other).sum().backward()
    update.step()
    out.sum().backward()
    update.step()
    return out.detach()


def stepped_before_its_second_pass(w, other, update, x):
    out = (x @ w).tanh() @ w
    (slope,) = ag.grad(out.sum(), w, create_graph=True)
    (x @ other).sum().backward()
    update.step()
    slope.square().sum().backward()
    return slope.detach()


def stepped_and_returned(w, other, update, x):
    out = (x @ w).tanh() @ w
    (x @ other).sum().backward()
    update.step()
    return out


def seen_through_a_view(w, other, update, x):
    view = w.view(9)
    (x @ other).sum().backward()
    (x @ w).sum().backward()
    update.step()
    return nn.functional.mish(view), view * 1


@pytest.mark.parametrize(
    "function",
    [
        zeros_as_gradient, given_and_changed, given_and_returned, stepped_before_its_pass,
        stepped_before_its_second_pass, stepped_and_returned, seen_through_a_view,
    ],
    ids=lambda function: function.__name__,
)  # fmt: skip
def test_memory_that_others_change(function):
    """A `.grad` is added to in place; a step leaves the values that a graph still needs."""

    def states(compiled):
        ag.manual_seed(3)
        w, other = (ag.randn(3, 3, requires_grad=True) for _ in range(2))
        update = ag.optim.SGD([w, other], lr=0.5)

        def step(x):
            return function(w, other, update, x)

        call = ag.compile(step) if compiled else step
        found, kept = [], []
        for _ in range(4):
            out = call(ag.randn(3))
            # Of two results only the last is freed: graphs of the first hold a weight.
            last = out[-1] if isinstance(out, tuple) else out
            if last.requires_grad:
                last.sum().backward()
            kept.append(out)
            found.append(bits([w, other, w.grad, other.grad, kept]))
        return found

    assert states(compiled=True) == states(compiled=False)


def test_an_error_after_a_change_has_the_same_words():
    """The call can't be made again, so the error comes from the replay itself."""
    w = ag.ones(4, requires_grad=True)

    def step(x, places):
        w.grad = None
        (x * w).sum().backward()
        return x[places]

    fast, x = ag.compile(step), ag.ones(4)
    for places in ([0, 1], [1, 1], [3, 0]):
        assert fast(x, ag.tensor(places)).tolist() == [1, 1]
    errors = []
    for call in (fast, step):
        with pytest.raises(IndexError, match="for dimension 0 with size 4") as caught:
            call(x, ag.tensor([0, 9]))
        errors.append(str(caught.value))
    assert errors[0] == errors[1]
    assert replays(fast) == 2


class Signs(ag.optim.Optimizer):
    """As programs define their own: with state, and a step without gradients."""

    def __init__(self, params, lr=0.01):
        super().__init__(params, {"lr": lr})

    @ag.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["mean"] = ag.zeros_like(p)
                state["mean"].mul_(0.9).add_(p.grad, alpha=0.1)
                p.add_(state["mean"].sign(), alpha=-group["lr"])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        return self.layer(x).tanh()


@pytest.mark.parametrize("of_model", [True, False])
def test_models_and_optimisers_of_users_are_called_anew(of_model):
    """Their gradients are cleared, and they step, as those of the package."""
    runs = []
    for wrap in (lambda step: step, ag.compile):
        ag.manual_seed(0)
        model = Net()
        optimizer = Signs(model.parameters())

        def step(x, model=model, optimizer=optimizer):
            (model if of_model else optimizer).zero_grad()
            loss = (model(x) ** 2).sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        call = wrap(step)
        runs.append([call(ag.full((4, 3), float(i))).item() for i in range(5)])
        runs.append(model.layer.weight.tolist())
    assert runs[:2] == runs[2:]
    assert "1 recorded, 4 replayed" in call.explain()


def test_calls_are_replayed_where_the_default_device_is_set_to_the_cpu():
    """As programs do that choose between a GPU and the CPU."""
    call = ag.compile(lambda x: x.exp() + 1, fullgraph=True)
    ag.set_default_device("cpu")
    try:
        assert ag.get_default_device() == ag.device("cpu")
        assert [call(ag.zeros(1)).item() for _ in range(2)] == [2, 2]
    finally:
        ag.set_default_device(None)


@pytest.mark.parametrize("way", ["plain", "clipped", "disabled", "awaited", "by_hand"])
def test_scaled_losses(way):
    """The scale grows, and falls after an infinite gradient; somebody loads another state."""

    def training():
        ag.manual_seed(2)
        model = nn.Linear(4, 3)
        optimizer = ag.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        scaler = ag.amp.GradScaler(
            "cpu", init_scale=4.0, growth_interval=2, enabled=way != "disabled"
        )

        def forward(x):
            optimizer.zero_grad()
            with ag.amp.autocast("cpu", enabled=False):
                return model(x).pow(2).sum()

        def update():
            if way == "clipped":
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()

        def step(x):
            loss = forward(x)
            if way == "by_hand":
                scaled = scaler.scale([loss, loss.detach()])
                scaled[0].backward()
                update()
                return loss.detach(), scaled[1], scaler.scale(loss.detach())
            scaler.scale(loss).backward()
            update()
            return loss.detach()

        async def awaited(x):
            loss = forward(x)
            await scaler.scale(loss).backward()
            update()
            return loss.detach()

        return model, scaler, awaited if way == "awaited" else step

    found = []
    for compiled in (False, True):
        model, scaler, step = training()
        call = ag.compile(step, fullgraph=True) if compiled else step
        results = []
        for number, value in enumerate((1.0, 2.0, 3e38, 0.5, 1.0, 1.0, float("nan"), 2.0)):
            if number == 4 and way != "disabled":
                scaler.load_state_dict({**scaler.state_dict(), "scale": 3.0})
            out = call(ag.full((2, 4), value))
            out = asyncio.run(out) if asyncio.iscoroutine(out) else out
            weights = [bits(parameter) for parameter in model.parameters()]
            results.append((repr(out), weights, scaler.state_dict()))
        found.append(results)
    assert found[0] == found[1]
    assert replays(call) == 7


def test_a_scaler_raises_as_in_eager_steps():
    w = ag.ones(2, requires_grad=True)
    optimizer = ag.optim.SGD([w], lr=0.1)
    scaler = ag.amp.GradScaler("cpu", init_scale=2.0)

    def step(x):
        scaler.scale((w * x).sum()).backward()
        scaler.step(optimizer)

    fast = ag.compile(step)
    fast(ag.ones(2))
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"step\(\) has already been called"):
            fast(ag.ones(2))
    scaler.update()
    fast(ag.ones(2))
    assert replays(fast) == 1


def test_labels_are_checked_before_a_norm_counts_its_batches():
    """The counter is an integer, too, that changes in place, but it can't hold the labels."""
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))

    @ag.compile(fullgraph=True)
    def step(x, labels):
        model.zero_grad()
        loss = nn.functional.cross_entropy(model(x), labels)
        loss.backward()
        return loss.detach()

    for number in range(3):
        step(ag.randn(5, 4), ag.tensor([0, 1, 2, 1, number]))
    assert "2 replayed" in step.explain()
    assert model[1].num_batches_tracked.item() == 3
    with pytest.raises(IndexError):
        step(ag.randn(5, 4), ag.tensor([0, 1, 2, 1, 3]))
    # The call that raised has counted, as an eager one does.
    assert model[1].num_batches_tracked.item() == 4


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_a_closure_of_lbfgs(search):
    """It moves the weights between two replays, and reads the loss and gradients of each."""
    results = []
    for wrap in (lambda closure: closure, ag.compile):
        weight = ag.tensor([1.5, -0.5, 2.0], requires_grad=True)
        update = ag.optim.LBFGS([weight], lr=0.3, max_iter=5, line_search_fn=search)

        @wrap
        def closure(weight=weight, update=update):
            update.zero_grad()
            loss = (weight.roll(1) * weight).square().sum() + (weight - 1).pow(4).sum()
            loss.backward()
            return loss

        losses = [update.step(closure).item() for _ in range(6)]
        results.append((losses, weight.tolist(), weight.grad.tolist(), closure))
    assert results[0][:3] == results[1][:3]
    assert results[1][3].explain().startswith(f"{results[0][3].__qualname__}: 1 recorded")
    assert " 0 replayed" not in results[1][3].explain()


@pytest.mark.asyncio
async def test_an_awaited_closure_of_lbfgs():
    """`step_async` awaits it."""
    results = []
    for wrap in (lambda closure: closure, ag.compile):
        weight = ag.tensor([1.5, -0.5, 2.0], requires_grad=True)
        update = ag.optim.LBFGS([weight], lr=0.3, max_iter=5)

        @wrap
        async def closure(weight=weight, update=update):
            update.zero_grad()
            loss = (weight.roll(1) * weight).square().sum() + (weight - 1).pow(4).sum()
            await loss.backward()
            return loss

        losses = [(await update.step_async(closure)).item() for _ in range(4)]
        results.append((losses, weight.tolist(), closure))
    assert results[0][:2] == results[1][:2]
    assert " 0 replayed" not in results[1][2].explain()


@pytest.mark.parametrize("kept", [False, True])
def test_graphs_from_before_the_recorded_call_hold_no_weights_in_replays(kept):
    """A weight keeps its memory unless a graph of this call needs its old values.

    What shares the memory sees the new values, or doesn't.
    """

    def calls(made):
        w = ag.tensor([3.0, 4.0], requires_grad=True)
        update = ag.optim.SGD([w], lr=0.5)

        def step(x):
            loss = (w * w * x).sum()
            loss.backward(retain_graph=kept)
            update.step()

        function, seen = made(step), []
        other = w * w
        for _ in range(4):
            shared = w.detach()
            function(ag.tensor([1.0, 2.0]))
            seen += [bits([w, shared]), other.sum().item()]
        return seen

    assert calls(ag.compile) == calls(lambda step: step)


def test_a_graph_of_the_call_holds_a_weight_that_an_older_graph_releases_meanwhile():
    """Replays give it new memory, as the call did: what shares the old memory keeps its values."""

    def calls(made):
        w = ag.tensor([3.0, 4.0], requires_grad=True)
        update = ag.optim.SGD([w], lr=0.5)
        older = [w * w]
        w.register_hook(lambda _: older.clear())

        def step(x):
            loss = (w * w * x).sum()
            loss.backward(retain_graph=True)
            update.step()

        function, seen = made(step), []
        for _ in range(3):
            shared = w.detach()
            function(ag.tensor([1.0, 2.0]))
            seen += bits([w, shared])
        return seen

    assert calls(ag.compile) == calls(lambda step: step)


def test_a_network_is_frozen_while_a_graph_leads_to_it():
    """As a discriminator is: its leaves get a place for hooks, and those put there are noticed."""

    def adversarial():
        ag.manual_seed(3)
        maker, judge = nn.Linear(2, 3), nn.Linear(3, 1)
        optimizers = ag.optim.SGD(maker.parameters(), lr=0.1), ag.optim.Adam(judge.parameters())

        def step(noise):
            judged = judge(maker(noise).detach()).square().mean()
            judged.backward()
            judge.requires_grad_(False)
            made = judge(maker(noise)).mean()
            made.backward()
            judge.requires_grad_(True)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
            return judged.detach(), made.detach()

        return judge, step

    (judge, step), (other, eager) = adversarial(), adversarial()
    compiled = ag.compile(step, fullgraph=True)
    for number in range(8):
        if number == 5:
            for network in (judge, other):
                network.weight.register_hook(lambda gradient: gradient * 2)
        noise = ag.randn(4, 2)
        assert bits([compiled(noise), *judge.parameters()]) == bits([
            eager(noise), *other.parameters(),
        ])  # fmt: skip
    assert replays(compiled) == 6
