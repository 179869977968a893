"""Optimisers and schedules with unusual and wrong options, beside PyTorch's."""

import pytest

short_programs = pytest.importorskip("short_programs", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

OPTIMISERS = """
    optim.SGD([p * 2], lr=0.1)
    optim.SGD({p, q}, lr=0.1)
    optim.SGD([1], lr=0.1)
    optim.SGD([p, ("a", q)], lr=0.1)
    optim.SGD([{"params": [("a", p)]}, {"params": [q]}], lr=0.1)
    optim.SGD([{"params": [p]}, {"params": [p]}], lr=0.1)
    optim.SGD([p], lr=0.1).load_state_dict(optim.SGD([p, q], lr=0.1).state_dict())
    optim.SGD([p], lr=0.1).add_param_group(1)
    optim.Adam([p], lr=t([0.1, 0.2]))
    optim.Adam([p], betas=(t(0.9), 0.99))
    optim.Adam([p], lr=t(0.1), foreach=True)
    optim.Adafactor([p], beta2_decay=0.1)
    optim.Adafactor([p], eps=(None, -1))
    optim.Adadelta([p], rho=1.5)
    optim.Rprop([p], etas=(0.1, 0.5))
    optim.SparseAdam([p], lr=0)
    optim.SparseAdam([nn.Parameter(t([1j]))])
    run(optim.SparseAdam([p]))
    run(optim.Muon([q], ns_steps=100))
    run(optim.Muon([q], ns_coefficients=(1.0, 2.0)))
    optim.Muon([p])
    run(optim.LBFGS([p], line_search_fn="foo"))
    optim.LBFGS([{"params": p}, {"params": q}])
    o = optim.SGD([p], lr=0.1); o.load_state_dict({"state": {5: {}}, "param_groups": [group(o)]}); \
o.state_dict()["state"]
    rows(optim.Adagrad, lr=0.1)
    rows(optim.Adagrad, lr=0.1, weight_decay=0.1)
    rows(optim.SGD, lr=0.1, maximize=True)
    rows(optim.SGD, lr=0.1, momentum=0.9)
    rows(optim.SGD, lr=0.1, weight_decay=0.9)
    rows(optim.Adam, lr=0.1)
    rows(optim.SparseAdam, lr=0.1)
    rows(optim.SparseAdam, lr=0.1, betas=(0.5, 0.8), eps=0.1, maximize=True)
"""

SCHEDULES = """
    S.LambdaLR(o, [half, half])
    S.LinearLR(o, end_factor=2)
    S.ConstantLR(o, factor=-1)
    S.CyclicLR(1, 0.01, 0.1)
    S.CyclicLR(o, 0.01, 0.1, mode="foo")
    S.OneCycleLR(o, 1.0, total_steps=15, anneal_strategy="foo")
    S.OneCycleLR(o, 1.0, total_steps=15, pct_start=2.0)
    S.OneCycleLR(o, 1.0, epochs=-1, steps_per_epoch=3)
    S.CosineAnnealingWarmRestarts(o, 3, eta_min="a")
    S.SequentialLR(o, [S.ConstantLR(o), S.ConstantLR(other)], [1])
    S.ChainedScheduler([S.ConstantLR(o)], other)
    rates(S.SequentialLR(o, [S.LambdaLR(o, half), S.MultiplicativeLR(o, lambda e: 0.9)], [2]))
    rates(S.SequentialLR(o, [S.LambdaLR(o, half), Tenth(o)], [2]))
    rates(S.SequentialLR(o, [S.LinearLR(o, 0.1, 1.0, 3), S.PolynomialLR(o, 4)], [3]))
    rates(S.SequentialLR(o, [S.ExponentialLR(o, 0.9), S.CosineAnnealingLR(o, 3)], [2]))
"""

_OPTIMISERS = """
p = nn.Parameter(t([1.0, 2.0, 3.0]))
q = nn.Parameter(t([[1.0, 2.0], [3.0, -4.0]]))
def run(o):
    for k in range(3):
        p.grad, q.grad = t([0.1 * k, -0.2, 0.3]), t([[0.5, -0.1], [0.2 * k, 0.3]])
        o.step(lambda: t(1.0)) if type(o).__name__ == "LBFGS" else o.step()
    return p, q
def rows(kind, **options):
    table = nn.Embedding(5, 2, sparse=True)
    nn.init.ones_(table.weight)
    o = kind(table.parameters(), **options)
    for indices in ([1, 1, 3], [0, 1]):
        o.zero_grad()
        (table(t(indices)) * t([1.0, -0.5])).sum().backward()
        o.step()
    return table.weight
def group(o):
    return o.state_dict()["param_groups"][0]
"""
_SCHEDULES = """
p = nn.Parameter(t([1.0, 2.0]))
o, other = optim.SGD([p], lr=0.1, momentum=0.9), optim.Adam([p], lr=0.1)
def half(epoch):
    return 0.5**epoch
def rates(schedule):
    found = []
    for _ in range(8):
        o.step()
        schedule.step()
        found.append(schedule.get_last_lr()[0])
    return found
class Tenth(S.LRScheduler):
    def get_lr(self):
        return [group["lr"] * (1.0 if self._is_initial else 0.1) for group in o.param_groups]
"""


@pytest.mark.parametrize(
    ("programs", "before"),
    [(OPTIMISERS, _OPTIMISERS), (SCHEDULES, _SCHEDULES)],
    ids=["optimisers", "schedules"],
)
def test_what_unusual_options_do(programs, before):
    assert not short_programs.differences(programs, before)
