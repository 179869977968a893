"""Schedules beside PyTorch's: the same rates for many epochs, resumed and combined."""

import io
import math
import re

import pytest

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

EPOCHS = 60


def optimizer(library, name="SGD", **options):
    options = {"lr": 0.5, **({"momentum": 0.9} if name == "SGD" else {}), **options}
    parameters = [library.ones(1, requires_grad=True) for _ in range(2)]
    return getattr(library.optim, name)(
        [{"params": [parameters[0]]}, {"params": [parameters[1]], "lr": 0.1}], **options
    )


def halved(epoch):
    return 0.5**epoch


class Decay:
    """A function of the epoch that has a state."""

    def __init__(self, rate):
        self.rate = rate

    def __call__(self, epoch):
        return self.rate**epoch


CASES = {
    "lambda": lambda s, o: s.LambdaLR(o, halved),
    "lambdas": lambda s, o: s.LambdaLR(o, [halved, Decay(0.9)]),
    "step": lambda s, o: s.StepLR(o, 7, gamma=0.3),
    "multi_step": lambda s, o: s.MultiStepLR(o, [3, 9, 9, 20], gamma=0.5),
    "constant": lambda s, o: s.ConstantLR(o, factor=0.25, total_iters=6),
    "linear": lambda s, o: s.LinearLR(o, start_factor=0.1, end_factor=0.8, total_iters=11),
    "exponential": lambda s, o: s.ExponentialLR(o, 0.95),
    "polynomial": lambda s, o: s.PolynomialLR(o, total_iters=30, power=1.7),
    "cosine": lambda s, o: s.CosineAnnealingLR(o, 13, eta_min=0.01),
    "one_cycle": lambda s, o: s.OneCycleLR(o, max_lr=1.0, total_steps=EPOCHS + 1),
    "one_cycle_linear": lambda s, o: s.OneCycleLR(
        o, max_lr=[1.0, 2.0], epochs=7, steps_per_epoch=9, anneal_strategy="linear"
    ),
    "one_cycle_three_phases": lambda s, o: s.OneCycleLR(
        o, max_lr=1.0, total_steps=61, three_phase=True, cycle_momentum=False, pct_start=0.25
    ),
    "multiplicative": lambda s, o: s.MultiplicativeLR(o, [Decay(0.99), Decay(0.98)]),
    "cyclic": lambda s, o: s.CyclicLR(o, 0.01, 0.2, step_size_up=4, step_size_down=7),
    "cyclic_halved": lambda s, o: s.CyclicLR(
        o, [0.01, 0.02], [0.2, 0.3], step_size_up=5, mode="triangular2", cycle_momentum=False
    ),
    "cyclic_decaying": lambda s, o: s.CyclicLR(
        o, 0.01, 0.2, step_size_up=6, mode="exp_range", gamma=0.97, max_momentum=[0.8, 0.95]
    ),
    "cyclic_scaled": lambda s, o: s.CyclicLR(
        o, 0.01, 0.2, step_size_up=3, scale_fn=halved, scale_mode="iterations"
    ),
    "cyclic_scaled_by_an_object": lambda s, o: s.CyclicLR(
        o, 0.01, 0.2, step_size_up=3, scale_fn=Decay(0.9)
    ),
    "warm_restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 7, eta_min=0.01),
    "warm_restarts_rarer": lambda s, o: s.CosineAnnealingWarmRestarts(o, 4, T_mult=2),
    "sequential": lambda s, o: s.SequentialLR(
        o,
        [
            s.LinearLR(o, 0.1, total_iters=5),
            s.CosineAnnealingLR(o, 20),
            s.StepLR(o, 3),
            s.LambdaLR(o, halved),
        ],
        [6, 27, 40],
    ),
    "chained": lambda s, o: s.ChainedScheduler([s.ConstantLR(o, 0.5, 4), s.ExponentialLR(o, 0.9)]),
}


def settings(optimizer):
    """What schedules change."""
    return [
        (group["lr"], group.get("momentum"), group.get("betas")) for group in optimizer.param_groups
    ]


def flat(values):
    out = []
    for value in values:
        out += flat(value) if isinstance(value, (list, tuple)) else [value]
    return out


def assert_equal(mine, other):
    for a, b in zip(flat(mine), flat(other), strict=True):
        assert (a is None and b is None) or math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-15)


def run(scheduler, optimizer, epochs):
    seen = [settings(optimizer)]
    for _ in range(epochs):
        optimizer.step()
        scheduler.step()
        seen += [settings(optimizer), scheduler.get_last_lr()]
    return seen


@pytest.mark.parametrize("name", ["SGD", "Adam"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_rates_are_pytorchs(case, name):
    mine, other = optimizer(ag, name), optimizer(torch, name)
    found = run(case(ag.optim.lr_scheduler, mine), mine, EPOCHS)
    assert_equal(found, run(case(torch.optim.lr_scheduler, other), other, EPOCHS))


@pytest.mark.parametrize("after", [ag, torch], ids=["ours", "pytorchs"])
@pytest.mark.parametrize("before", [ag, torch], ids=["ours", "pytorchs"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_state_dicts_resume_a_schedule(case, before, after):
    """What either library has begun either can go on with."""
    whole = optimizer(after)
    expected = run(case(after.optim.lr_scheduler, whole), whole, 40)
    first = optimizer(before)
    scheduler = case(before.optim.lr_scheduler, first)
    begun = run(scheduler, first, 20)
    file = io.BytesIO()
    before.save([scheduler.state_dict(), first.state_dict()], file)
    file.seek(0)
    states = after.load(file)
    assert "optimizer" not in states[0]
    second = optimizer(after)
    resumed = case(after.optim.lr_scheduler, second)
    resumed.load_state_dict(states[0])
    second.load_state_dict(states[1])
    assert_equal(begun + run(resumed, second, 20)[1:], expected)


@pytest.mark.parametrize(
    "name", ["step", "linear", "exponential", "cosine", "polynomial", "restarts", "growing"]
)
def test_schedules_resume_from_an_epoch(name):
    kinds = {
        "step": lambda s, o: s.StepLR(o, 4, last_epoch=10),
        "linear": lambda s, o: s.LinearLR(o, total_iters=20, last_epoch=10),
        "exponential": lambda s, o: s.ExponentialLR(o, 0.9, last_epoch=10),
        "cosine": lambda s, o: s.CosineAnnealingLR(o, 20, last_epoch=10),
        "polynomial": lambda s, o: s.PolynomialLR(o, 20, last_epoch=10),
        "restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 3, last_epoch=10),
        "growing": lambda s, o: s.CosineAnnealingWarmRestarts(o, 3, 2, last_epoch=10),
    }
    mine, other = optimizer(ag), optimizer(torch)
    with pytest.raises(KeyError, match="initial_lr"):
        kinds[name](ag.optim.lr_scheduler, mine)
    for o in (mine, other):
        for group in o.param_groups:
            group["initial_lr"] = 1.0
    found = run(kinds[name](ag.optim.lr_scheduler, mine), mine, 5)
    assert_equal(found, run(kinds[name](torch.optim.lr_scheduler, other), other, 5))


METRICS = [5, 4, 3, 3, 3, 3, 2.9999, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 0, -1, -1, -1, -1, -1]


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("threshold_mode", ["rel", "abs"])
def test_plateaus_are_pytorchs(mode, threshold_mode):
    options = {
        "mode": mode,
        "threshold_mode": threshold_mode,
        "patience": 2,
        "cooldown": 1,
        "min_lr": [0.01, 0.02],
        "factor": 0.3,
    }
    seen = []
    for library in (ag, torch):
        o = optimizer(library)
        scheduler = library.optim.lr_scheduler.ReduceLROnPlateau(o, **options)
        seen.append([])
        for metric in METRICS:
            scheduler.step(library.tensor(float(metric)))
            seen[-1].append((settings(o), scheduler.get_last_lr(), scheduler.in_cooldown))
    assert_equal(*seen)


def test_a_plateau_is_resumed():
    o = optimizer(ag)
    scheduler = ag.optim.lr_scheduler.ReduceLROnPlateau(o, patience=1)
    for metric in (1.0, 2.0):
        scheduler.step(metric)
    other = ag.optim.lr_scheduler.ReduceLROnPlateau(o, patience=5)
    other.load_state_dict(scheduler.state_dict())
    other.step(2.0)
    assert o.param_groups[0]["lr"] == pytest.approx(0.05)


def test_sequences_and_chains_in_a_sequence():
    schedules = ag.optim.lr_scheduler

    def parts(o):
        return schedules.ConstantLR(o, 0.1, 100), schedules.ExponentialLR(o, 0.9)

    nested, plain = optimizer(ag), optimizer(ag)
    found = run(
        schedules.SequentialLR(
            nested,
            [schedules.SequentialLR(nested, parts(nested), [3]), schedules.LinearLR(nested)],
            [9],
        ),
        nested,
        20,
    )
    flat = schedules.SequentialLR(plain, [*parts(plain), schedules.LinearLR(plain)], [3, 9])
    assert found == run(flat, plain, 20)

    first, second, alone = optimizer(ag), optimizer(ag), optimizer(ag)
    chain = run(schedules.ChainedScheduler(parts(alone)), alone, 4)
    leading = schedules.SequentialLR(
        first,
        [schedules.ChainedScheduler(parts(first)), schedules.StepLR(first, 2)],
        [5],
    )
    assert run(leading, first, 4) == chain
    following = schedules.SequentialLR(
        second,
        [schedules.StepLR(second, 2), schedules.ChainedScheduler(parts(second))],
        [5],
    )
    # From epoch 5 on, without the rates that the step to it returned.
    begun = run(following, second, 9)[9:]
    assert [begun[0], *begun[2:]] == chain

    third, apart = optimizer(ag), optimizer(ag)
    sequence = run(schedules.SequentialLR(apart, parts(apart), [2]), apart, 4)
    inner = schedules.SequentialLR(third, parts(third), [2])
    last = schedules.SequentialLR(third, [schedules.StepLR(third, 2), inner], [5])
    begun = run(last, third, 9)[9:]
    assert [begun[0], *begun[2:]] == sequence


WRONG = [
    lambda s, o: s.StepLR(None, 3),
    lambda s, o: s.ReduceLROnPlateau(None),
    lambda s, o: s.OneCycleLR(None, 1.0, 10),
    lambda s, o: s.LambdaLR(o, [halved]),
    lambda s, o: s.ConstantLR(o, factor=1.5),
    lambda s, o: s.LinearLR(o, start_factor=0.0),
    lambda s, o: s.LinearLR(o, end_factor=1.5),
    lambda s, o: s.OneCycleLR(o, 1.0),
    lambda s, o: s.OneCycleLR(o, 1.0, total_steps=0),
    lambda s, o: s.OneCycleLR(o, 1.0, epochs=1, steps_per_epoch=1.5),
    lambda s, o: s.OneCycleLR(o, 1.0, 10, pct_start=1.5),
    lambda s, o: s.OneCycleLR(o, 1.0, 10, anneal_strategy="fast"),
    lambda s, o: s.OneCycleLR(o, [1.0], 10),
    lambda s, o: s.SequentialLR(o, [], []),
    lambda s, o: s.SequentialLR(o, [s.StepLR(o, 1)], [1]),
    lambda s, o: s.SequentialLR(o, [s.ReduceLROnPlateau(o), s.StepLR(o, 1)], [1]),
    lambda s, o: s.ChainedScheduler([]),
    lambda s, o: s.ReduceLROnPlateau(o, factor=1.0),
    lambda s, o: s.ReduceLROnPlateau(o, mode="best"),
    lambda s, o: s.ReduceLROnPlateau(o, threshold_mode="best"),
    lambda s, o: s.ReduceLROnPlateau(o, min_lr=[0.1]),
]


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_refused(wrong):
    with pytest.raises(Exception, match=re.compile("")) as caught:
        wrong(torch.optim.lr_scheduler, optimizer(torch))
    kind = (TypeError, ValueError) if caught.type is AttributeError else caught.type
    with pytest.raises((kind, TypeError) if kind is ValueError else kind):
        wrong(ag.optim.lr_scheduler, optimizer(ag))


def test_schedules_of_several_optimisers_do_not_combine():
    a, b = optimizer(ag), optimizer(ag)
    schedules = ag.optim.lr_scheduler
    with pytest.raises(ValueError, match="same optimizer"):
        schedules.ChainedScheduler([schedules.StepLR(a, 1), schedules.StepLR(b, 1)])


def test_optimisers_without_momentum_have_no_cycle_of_it():
    o = ag.optim.Adagrad([ag.ones(1, requires_grad=True)])
    with pytest.raises(ValueError, match="must support momentum"):
        ag.optim.lr_scheduler.OneCycleLR(o, 1.0, 10)


def test_a_cycle_ends():
    o = optimizer(ag)
    scheduler = ag.optim.lr_scheduler.OneCycleLR(o, 1.0, 2)
    o.step()
    scheduler.step()
    scheduler.step()
    with pytest.raises(ValueError, match="Tried to step 3 times"):
        scheduler.step()


def test_the_wrong_order_is_warned_of():
    o = optimizer(ag)
    scheduler = ag.optim.lr_scheduler.StepLR(o, 1)
    with pytest.warns(UserWarning, match="before `optimizer.step"):
        scheduler.step()


def test_warm_restarts_do_not_mind_the_order():
    """As in PyTorch, whose other schedules warn."""
    for library in (ag, torch):
        given = library.optim.SGD([library.ones(1, requires_grad=True)], lr=0.1)
        schedule = library.optim.lr_scheduler.CosineAnnealingWarmRestarts(given, 3)
        schedule.step()
        assert schedule.get_last_lr() == [pytest.approx(0.075)]


def test_users_define_schedules_of_their_own():
    class Inverse(ag.optim.lr_scheduler.LRScheduler):
        def get_lr(self):
            return [base_lr / (1 + self.last_epoch) for base_lr in self.base_lrs]

    o = optimizer(ag)
    found = run(Inverse(o), o, 2)
    assert found[-1] == [0.5 / 3, 0.1 / 3]


@pytest.mark.parametrize("growth", [1, 2, 3])
def test_warm_restarts_go_to_any_part_of_an_epoch(growth):
    found = []
    for library in (ag, torch):
        given = optimizer(library)
        schedule = library.optim.lr_scheduler.CosineAnnealingWarmRestarts(given, 3, growth, 0.01)
        given.step()
        rates = []
        for epoch in (0.5, 1.0, 2.75, 3.0, 7.25, 11.5, 20.0, None, None, 4.0, None):
            schedule.step(epoch)
            rates += [group["lr"] for group in given.param_groups]
        with pytest.raises(ValueError, match="non-negative epoch"):
            schedule.step(-1)
        found.append(rates)
    assert found[0] == pytest.approx(found[1])


def test_cycles_refuse_what_is_none():
    for library in (ag, torch):
        schedules, given = library.optim.lr_scheduler, optimizer(library)
        plain = optimizer(library, "Adagrad")
        for refused, match in (
            (lambda s=schedules, o=given: s.CyclicLR(o, 0.1, 0.2, mode="up"), "mode is invalid"),
            (lambda s=schedules, o=given: s.CyclicLR(o, [0.1], 0.2), "1"),
            (lambda s=schedules, o=plain: s.CyclicLR(o, 0.1, 0.2), "must support momentum"),
            (lambda s=schedules, o=given: s.CosineAnnealingWarmRestarts(o, 0), "T_0"),
            (lambda s=schedules, o=given: s.CosineAnnealingWarmRestarts(o, 3, 0.5), "T_mult"),
            (lambda s=schedules, o=given: s.CosineAnnealingWarmRestarts(o, 3, 1, "x"), "eta_min"),
        ):
            with pytest.raises(ValueError, match=match):
                refused()


def test_plateaus_are_schedules_that_do_not_combine():
    o, schedules = optimizer(ag), ag.optim.lr_scheduler
    plateau = schedules.ReduceLROnPlateau(o)
    assert isinstance(plateau, schedules.LRScheduler)
    for combine in (
        lambda: schedules.SequentialLR(o, [schedules.StepLR(o, 1), plateau], [1]),
        lambda: schedules.ChainedScheduler([plateau]),
    ):
        with pytest.raises(ValueError, match="does not support `ReduceLROnPlateau`"):
            combine()


def test_plateaus_lower_the_rates_of_groups_that_are_added_later():
    optimizer = ag.optim.SGD([ag.ones(1, requires_grad=True)], lr=1.0)
    schedule = ag.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, min_lr=0.2)
    optimizer.add_param_group({"params": [ag.ones(1, requires_grad=True)], "lr": 0.5})
    for _ in range(4):
        schedule.step(1.0)
    assert [group["lr"] for group in optimizer.param_groups] == [0.2, 0.2]


def test_plateaus_ask_for_the_lowest_rates_of_groups_that_are_added_later():
    optimizer = ag.optim.SGD([ag.ones(1, requires_grad=True)], lr=1.0)
    schedule = ag.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, min_lr=[0.2])
    optimizer.add_param_group({"params": [ag.ones(1, requires_grad=True)]})
    schedule.step(1.0)
    with pytest.raises(RuntimeError, match="number of param groups in the `optimizer`"):
        schedule.step(1.0)


def test_rates_given_as_tensors_may_change_afterwards():
    swa_lr = ag.tensor(0.05)
    optimizer = ag.optim.SGD([ag.ones(1, requires_grad=True)], lr=ag.tensor(0.1))
    ag.optim.swa_utils.SWALR(optimizer, swa_lr=swa_lr)
    swa_lr.mul_(2)
    assert optimizer.param_groups[0]["swa_lr"] == ag.tensor(0.05)
