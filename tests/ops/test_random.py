"""Random numbers: dtypes, shapes and errors as PyTorch's; distributions; seeds; concurrency."""

import asyncio
import copy
import math
import pickle
import threading

import numpy as np
import oracle
import pytest
from scipy import stats

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

NAN, INF = math.nan, math.inf


def ones(m, dtype="float32", shape=(3,)):
    return m.ones(shape, dtype=getattr(m, dtype))


# -- arguments ------------------------------------------------------------------------------------

CALLS = {
    "rand of integers": lambda m, t: m.rand(2, dtype=m.int64),
    "rand, complex": lambda m, t: m.rand(2, 3, dtype=m.complex64),
    "rand, half": lambda m, t: m.rand(2, dtype=m.float16),
    "rand, bfloat16": lambda m, t: m.rand(2, dtype=m.bfloat16),
    "rand, negative": lambda m, t: m.rand(-1),
    "rand of nothing": lambda m, t: m.rand(),
    "rand of a list": lambda m, t: m.rand([2, 3]),
    "rand, named": lambda m, t: m.rand(size=(2,)),
    "rand, double": lambda m, t: m.rand((2, 0), dtype=m.float64),
    "rand of 2.5": lambda m, t: m.rand(2.5),
    "rand, leaf": lambda m, t: m.rand(2, requires_grad=True),
    "rand from 3": lambda m, t: m.rand(2, generator=3),
    "rand on": lambda m, t: m.rand(2, device="cpu"),
    "rand nowhere": lambda m, t: m.rand(2, device="foo"),
    "randn of integers": lambda m, t: m.randn(2, dtype=m.int64),
    "randn of booleans": lambda m, t: m.randn(2, dtype=m.bool),
    "randn, complex": lambda m, t: m.randn(2, dtype=m.complex128),
    "randn, half": lambda m, t: m.randn(2, dtype=m.float16),
    "randint": lambda m, t: m.randint(5, (2,)),
    "randint, both": lambda m, t: m.randint(3, 10, (2, 2)),
    "randint, empty": lambda m, t: m.randint(5, 5, (2,)),
    "randint, reversed": lambda m, t: m.randint(5, 3, (2,)),
    "randint, 0": lambda m, t: m.randint(0, (2,)),
    "randint, one number": lambda m, t: m.randint(5, 2),
    "randint, too large": lambda m, t: m.randint(0, 300, (2,), dtype=m.uint8),
    "randint, too small": lambda m, t: m.randint(-1, 3, (2,), dtype=m.uint8),
    "randint, all bytes": lambda m, t: m.randint(0, 256, (2,), dtype=m.uint8),
    "randint, bool": lambda m, t: m.randint(0, 2, (2,), dtype=m.bool),
    "randint, beyond bool": lambda m, t: m.randint(0, 3, (2,), dtype=m.bool),
    "randint, float": lambda m, t: m.randint(0, 3, (2,), dtype=m.float32, requires_grad=True),
    "randint, complex": lambda m, t: m.randint(0, 3, (2,), dtype=m.complex64),
    "randint, named": lambda m, t: m.randint(low=0, high=3, size=(2,)),
    "randint, half named": lambda m, t: m.randint(3, size=(2,)),
    "randint, high": lambda m, t: m.randint(high=3, size=(2,)),
    "randint of 1.5": lambda m, t: m.randint(1.5, 3, (2,)),
    "randint, leaf": lambda m, t: m.randint(3, (2,), requires_grad=True),
    "randint_like": lambda m, t: m.randint_like(t([1.0, 2.0]), 5),
    "randint_like, both": lambda m, t: m.randint_like(t([1.0, 2.0]), 3, 5),
    "randint_like, named": lambda m, t: m.randint_like(t([1.0]), low=3, high=5),
    "randint_like, dtype": lambda m, t: m.randint_like(t([1.0]), 5, dtype=m.int32),
    "randint_like of a tensor": lambda m, t: m.randint_like(t([1.0]), t(5)),
    "randperm, 0": lambda m, t: m.randperm(0),
    "randperm, 1": lambda m, t: m.randperm(1, dtype=m.float32, requires_grad=True),
    "randperm, negative": lambda m, t: m.randperm(-1),
    "randperm, too many": lambda m, t: m.randperm(300, dtype=m.int8),
    "randperm of 3.5": lambda m, t: m.randperm(3.5),
    "normal": lambda m, t: m.normal(0.0, 1.0, (2,)),
    "normal, integers": lambda m, t: m.normal(0, 1, size=(2,)),
    "normal, negative": lambda m, t: m.normal(0.0, -1.0, (2,)),
    "normal of means": lambda m, t: m.normal(t([0.0, 1.0]), 1.0),
    "normal of means alone": lambda m, t: m.normal(t([0.0, 1.0])),
    "normal of deviations": lambda m, t: m.normal(0.0, t([1.0, 2.0])),
    "normal of both": lambda m, t: m.normal(t([0.0, 1.0]), t([1.0, 2.0], dtype=m.float64)),
    "normal of double": lambda m, t: m.normal(t([0.0, 1.0], dtype=m.float64), t([1.0, 2.0])),
    "normal of integers": lambda m, t: m.normal(t([0, 1]), t([1.0, 2.0])),
    "normal of integer means": lambda m, t: m.normal(t([0, 1]), 1.0),
    "normal of integer deviations": lambda m, t: m.normal(t([0.0, 1.0]), t([1, 2])),
    "normal, a negative one": lambda m, t: m.normal(t([0.0, 1.0]), t([1.0, -2.0])),
    "normal, broadcast": lambda m, t: m.normal(t([0.0, 1.0]), t([[1.0], [2.0]])),
    "normal, misfit": lambda m, t: m.normal(t([0.0, 1.0]), t([1.0, 2.0, 3.0])),
    "normal, complex deviation": lambda m, t: m.normal(t([0.0, 1.0]), t([1.0, 2j])),
    "normal, complex mean": lambda m, t: m.normal(t([0j, 1.0]), 1.0),
    "normal, no size": lambda m, t: m.normal(0.0, 1.0),
    "normal, one number": lambda m, t: m.normal(0.0, 1.0, 2),
    "normal as integers": lambda m, t: m.normal(0.0, 1.0, (2,), dtype=m.int64),
    "normal as complex": lambda m, t: m.normal(0.0, 1.0, (2,), dtype=m.complex64),
    "normal, leaf": lambda m, t: m.normal(t([0.0, 1.0], requires_grad=True), 1.0),
    "normal, leaf deviation": lambda m, t: m.normal(0.0, t([0.0, 1.0], requires_grad=True)),
    "normal, leaves": lambda m, t: m.normal(*[t([0.0, 1.0], requires_grad=True)] * 2),
    "bernoulli, 1.5": lambda m, t: m.bernoulli(t([0.0, 1.5])),
    "bernoulli, nan": lambda m, t: m.bernoulli(t([0.0, NAN])),
    "bernoulli of integers": lambda m, t: m.bernoulli(t([0, 1])),
    "bernoulli of booleans": lambda m, t: m.bernoulli(t([True])),
    "bernoulli, p": lambda m, t: m.bernoulli(t([0.0, 1.0]), 0.5),
    "bernoulli, p of integers": lambda m, t: m.bernoulli(t([0, 1]), 0.5),
    "bernoulli, p 1.5": lambda m, t: m.bernoulli(t([0.0]), 1.5),
    "bernoulli, leaf": lambda m, t: m.bernoulli(t([0.0, 1.0], requires_grad=True)),
    "bernoulli of complex": lambda m, t: m.bernoulli(t([0j, 1.0])),
    "bernoulli, method": lambda m, t: t([0.0, 1.0]).bernoulli(p=0.3),
    "poisson": lambda m, t: m.poisson(t([1.0, 2.0], requires_grad=True)),
    "poisson of integers": lambda m, t: m.poisson(t([1, 2])),
    "poisson, negative": lambda m, t: m.poisson(t([-1.0, 2.0])),
    "binomial": lambda m, t: m.binomial(t([1.0, 2.0]), t([0.5])),
    "binomial of integers": lambda m, t: m.binomial(t([1, 2]), t([0.5, 0.5])),
    "multinomial, sure": lambda m, t: m.multinomial(t([0.0, 1.0, 0.0]), 1),
    "multinomial, more than likely": lambda m, t: m.multinomial(t([0.0, 1.0]), 2),
    "multinomial, too many": lambda m, t: m.multinomial(t([0.0, 1.0, 0.0]), 4),
    "multinomial, sure, again": lambda m, t: m.multinomial(t([0.0, 1.0, 0.0]), 4, True),
    "multinomial, zeros": lambda m, t: m.multinomial(t([0.0, 0.0]), 1),
    "multinomial, negative": lambda m, t: m.multinomial(t([0.0, -1.0, 2.0]), 1, True),
    "multinomial, nan": lambda m, t: m.multinomial(t([0.0, NAN]), 1),
    "multinomial, inf": lambda m, t: m.multinomial(t([0.0, INF]), 1, True),
    "multinomial of integers": lambda m, t: m.multinomial(t([1, 1]), 1),
    "multinomial, none": lambda m, t: m.multinomial(t([1.0, 1.0]), 0),
    "multinomial of a number": lambda m, t: m.multinomial(t(1.0), 1),
    "multinomial of a cube": lambda m, t: m.multinomial(m.ones(2, 3, 4), 1),
    "multinomial of rows": lambda m, t: m.multinomial(m.ones(4, 1), 1),
    "multinomial of no rows": lambda m, t: m.multinomial(m.zeros(0, 3), 2, True),
    "multinomial of nothing": lambda m, t: m.multinomial(m.zeros(2, 0), 2, True),
    "multinomial, method": lambda m, t: t([0.0, 3.0]).multinomial(num_samples=1),
    "rand_like of integers": lambda m, t: m.rand_like(t([1, 2])),
    "rand_like, dtype": lambda m, t: m.rand_like(t([1, 2]), dtype=m.float64),
    "rand_like, leaf": lambda m, t: m.rand_like(t([1.0, 2.0]), requires_grad=True),
    "rand_like of a list": lambda m, t: m.rand_like([1.0]),
    "randn_like": lambda m, t: m.randn_like(t([[1j]])),
    "randn_like of integers": lambda m, t: m.randn_like(t([1, 2])),
    "seed 1.5": lambda m, t: m.Generator().manual_seed(1.5),
    "seed, too large": lambda m, t: m.Generator().manual_seed(2**64),
    "seed, too small": lambda m, t: m.Generator().manual_seed(-(2**63) - 1),
    "seed all, too large": lambda m, t: m.manual_seed(2**64),
    "seed a": lambda m, t: m.manual_seed("a"),
    "generator nowhere": lambda m, t: m.Generator("foo"),
    "state, floats": lambda m, t: m.Generator().set_state(m.zeros(3)),
    "state, short": lambda m, t: m.Generator().set_state(m.zeros(3, dtype=m.uint8)),
    "state, 3": lambda m, t: m.Generator().set_state(3),
    "rng state, short": lambda m, t: m.set_rng_state(m.zeros(3, dtype=m.uint8)),
}
IN_PLACE = {
    "uniform_": lambda x, t: x.uniform_(),
    "uniform_, reversed": lambda x, t: x.uniform_(2, 1),
    "uniform_, 1 to 1": lambda x, t: x.uniform_(1, 1),
    "uniform_, named": lambda x, t: x.uniform_(**{"from": 1, "to": 4}),
    "uniform_, far": lambda x, t: x.uniform_(0, 1e39),
    "uniform_, inf": lambda x, t: x.uniform_(0, INF),
    "normal_": lambda x, t: x.normal_(1, 2),
    "normal_ of a tensor": lambda x, t: x.normal_(t(1.0), 2),
    "normal_, negative": lambda x, t: x.normal_(0, -1),
    "exponential_": lambda x, t: x.exponential_(),
    "exponential_, 0": lambda x, t: x.exponential_(0),
    "exponential_, inf": lambda x, t: x.exponential_(INF),
    "random_": lambda x, t: x.random_(),
    "random_, 5": lambda x, t: x.random_(5),
    "random_, 2 to 3": lambda x, t: x.random_(2, 3),
    "random_, 300": lambda x, t: x.random_(300),
    "random_, -2": lambda x, t: x.random_(-2, 1),
    "random_, reversed": lambda x, t: x.random_(5, 3),
    "random_, 0": lambda x, t: x.random_(0),
    "random_, open": lambda x, t: x.random_(1, None),
    "cauchy_": lambda x, t: x.cauchy_(),
    "cauchy_, 0": lambda x, t: x.cauchy_(0, 0),
    "geometric_": lambda x, t: x.geometric_(0.5),
    "geometric_, 0": lambda x, t: x.geometric_(0),
    "geometric_, 1": lambda x, t: x.geometric_(1),
    "log_normal_": lambda x, t: x.log_normal_(),
    "log_normal_, 0": lambda x, t: x.log_normal_(0, 0),
    "bernoulli_": lambda x, t: x.bernoulli_(),
    "bernoulli_, 2": lambda x, t: x.bernoulli_(2.0),
    "bernoulli_ of tensors": lambda x, t: x.bernoulli_(t([0.0, 1.0, 1.0])),
    "bernoulli_ of one": lambda x, t: x.bernoulli_(t([1.0])),
    "bernoulli_, misfit": lambda x, t: x.bernoulli_(t([0.0, 1.0])),
    "bernoulli_ of integers": lambda x, t: x.bernoulli_(t([0, 1, 1])),
}


def outcome(function, m):
    """The result's class, dtype, shape and grad_fn, or the class of the error."""
    try:
        found = function(m, m.tensor)
    except Exception as error:
        return oracle.error_class(error)
    edge = found.grad_fn
    named = edge is not None and edge.name()
    return oracle.dtype_name(found.dtype), tuple(found.shape), found.requires_grad, named


@pytest.mark.torch
@pytest.mark.parametrize("call", CALLS)
def test_arguments_mean_what_they_mean_to_pytorch(call):
    assert outcome(CALLS[call], ag) == outcome(CALLS[call], torch)


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "uint8", "bool", "complex64"])
@pytest.mark.parametrize("call", IN_PLACE)
def test_fillers_take_what_pytorchs_take(call, dtype):
    """And a call that is refused changes nothing."""
    kept = ones(ag, dtype)
    before = kept.tolist()

    def fill(m, t):
        return IN_PLACE[call](kept if m is ag else ones(m, dtype), t)

    found = outcome(fill, ag)
    assert found == outcome(fill, torch)
    if isinstance(found, tuple):
        assert kept._version == 1
    else:
        assert kept._version == 0
        assert kept.tolist() == before


@pytest.mark.torch
@pytest.mark.parametrize("fill", [f for name, f in IN_PLACE.items() if name.isidentifier()])
def test_fillers_cut_the_history(fill):
    """The values do not follow the old ones: their gradient is zero."""
    leaf = ag.ones(3, requires_grad=True)
    x = leaf * 2
    assert fill(x, ag.tensor) is x
    (x * 3).sum().backward()
    assert leaf.grad.tolist() == [0, 0, 0]
    with pytest.raises(RuntimeError, match="leaf"):
        fill(leaf, ag.tensor)
    with ag.no_grad():
        fill(leaf, ag.tensor)


# -- distributions --------------------------------------------------------------------------------

COUNT = 20_000
DISTRIBUTIONS = {
    "rand": (lambda: ag.rand(COUNT), stats.uniform()),
    "rand, double": (lambda: ag.rand(COUNT, dtype=ag.float64), stats.uniform()),
    "rand, large": (lambda: ag.rand(5 * COUNT), stats.uniform()),
    "rand, real": (lambda: ag.tensor(ag.rand(COUNT, dtype=ag.complex64).numpy().real),
                   stats.uniform()),
    "rand, imaginary": (lambda: ag.tensor(ag.rand(COUNT, dtype=ag.complex64).numpy().imag),
                        stats.uniform()),
    "randn": (lambda: ag.randn(COUNT), stats.norm()),
    "randn, large": (lambda: ag.randn(5 * COUNT), stats.norm()),
    "randn, imaginary": (lambda: ag.tensor(ag.randn(COUNT, dtype=ag.complex128).numpy().imag),
                         stats.norm(scale=0.5**0.5)),
    "normal": (lambda: ag.normal(2.0, 3.0, (COUNT,)), stats.norm(2, 3)),
    "normal_": (lambda: ag.zeros(COUNT).normal_(2, 3), stats.norm(2, 3)),
    "uniform_": (lambda: ag.zeros(COUNT).uniform_(-1, 3), stats.uniform(-1, 4)),
    "exponential_": (lambda: ag.zeros(COUNT).exponential_(2), stats.expon(scale=0.5)),
    "cauchy_": (lambda: ag.zeros(COUNT).cauchy_(1, 2), stats.cauchy(1, 2)),
    "log_normal_": (lambda: ag.zeros(COUNT).log_normal_(0.5, 0.25),
                    stats.lognorm(0.25, 0, math.exp(0.5))),
}  # fmt: skip
DISCRETE = {
    "randint": (lambda: ag.randint(2, 7, (COUNT,)), stats.randint(2, 7)),
    "random_": (lambda: ag.zeros(COUNT).random_(2, 7), stats.randint(2, 7)),
    "random_ bytes": (lambda: ag.zeros(COUNT, dtype=ag.uint8).random_(), stats.randint(0, 256)),
    "bernoulli": (lambda: ag.bernoulli(ag.full((COUNT,), 0.3)), stats.bernoulli(0.3)),
    "bernoulli_": (lambda: ag.zeros(COUNT).bernoulli_(0.3), stats.bernoulli(0.3)),
    "poisson": (lambda: ag.poisson(ag.full((COUNT,), 3.0)), stats.poisson(3)),
    "binomial": (
        lambda: ag.binomial(ag.full((COUNT,), 5.0), ag.tensor(0.3)),
        stats.binom(5, 0.3),
    ),
    "geometric_": (lambda: ag.zeros(COUNT).geometric_(0.4), stats.geom(0.4)),
    "multinomial": (
        lambda: ag.multinomial(ag.tensor([1.0, 0.0, 2.0]), COUNT, True),
        stats.rv_discrete(values=((0, 2), (1 / 3, 2 / 3))),
    ),
    "multinomial, first": (
        lambda: ag.multinomial(ag.tensor([1.0, 3.0]).expand(COUNT, 2), 2)[:, 0],
        stats.bernoulli(0.75),
    ),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_continuous_distribution(name):
    draw, expected = DISTRIBUTIONS[name]
    assert stats.kstest(draw().numpy(), expected.cdf).pvalue > 1e-4


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete_distribution(name):
    draw, expected = DISCRETE[name]
    values, counts = np.unique(draw().numpy(), return_counts=True)
    chances = expected.pmf(values)
    assert chances.min() > 0
    likely = chances * counts.sum() >= 5
    share = counts[likely] / counts[likely].sum()
    wanted = chances[likely] / chances[likely].sum()
    assert stats.chisquare(share * COUNT, wanted * COUNT).pvalue > 1e-4


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_uniform_numbers_never_reach_one(dtype):
    values = ag.rand(100_000, dtype=getattr(ag, dtype)).to(ag.float64)
    assert 0 <= values.min().item() < values.max().item() < 1


def test_permutation_is_one():
    drawn = ag.randperm(1000)
    assert drawn.sort().values.tolist() == list(range(1000))
    assert drawn.tolist() != list(range(1000))


def test_drawn_without_replacement_once_each():
    drawn = ag.multinomial(ag.rand(50, 20), 20)
    assert (drawn.sort(-1).values == ag.arange(20)).all()


def test_weights_of_zero_are_never_drawn():
    drawn = ag.multinomial(ag.tensor([0.0, 1e-30, 0.0, 1.0, 0.0]), 1000, True)
    assert set(drawn.tolist()) <= {1, 3}


# -- seeds ----------------------------------------------------------------------------------------

EVERY = {
    "rand": lambda g: ag.rand(5, generator=g),
    "rand, large": lambda g: ag.rand(70_000, generator=g),
    "randn": lambda g: ag.randn(5, generator=g),
    "randint": lambda g: ag.randint(100, (5,), generator=g),
    "randperm": lambda g: ag.randperm(20, generator=g),
    "rand_like": lambda g: ag.rand_like(ag.ones(5), generator=g),
    "randn_like": lambda g: ag.randn_like(ag.ones(5), generator=g),
    "randint_like": lambda g: ag.randint_like(ag.ones(5), 100, generator=g),
    "normal": lambda g: ag.normal(0.0, 1.0, (5,), generator=g),
    "bernoulli": lambda g: ag.bernoulli(ag.full((50,), 0.5), generator=g),
    "poisson": lambda g: ag.poisson(ag.full((20,), 5.0), generator=g),
    "binomial": lambda g: ag.binomial(ag.full((20,), 9.0), ag.tensor(0.5), generator=g),
    "multinomial": lambda g: ag.multinomial(ag.ones(20), 20, generator=g),
    "uniform_": lambda g: ag.ones(5).uniform_(generator=g),
    "normal_": lambda g: ag.ones(5).normal_(generator=g),
    "bernoulli_": lambda g: ag.ones(50).bernoulli_(generator=g),
    "exponential_": lambda g: ag.ones(5).exponential_(generator=g),
    "cauchy_": lambda g: ag.ones(5).cauchy_(generator=g),
    "geometric_": lambda g: ag.ones(20).geometric_(0.2, generator=g),
    "log_normal_": lambda g: ag.ones(5).log_normal_(generator=g),
    "random_": lambda g: ag.ones(5).random_(generator=g),
    "dropout": lambda g: ag.nn.functional.dropout(ag.ones(50), generator=g),
    "dropout2d": lambda g: ag.nn.functional.dropout2d(ag.ones(5, 9, 1, 1), generator=g),
    "alpha_dropout": lambda g: ag.nn.functional.alpha_dropout(ag.ones(50), 0.5, True, generator=g),
}


@pytest.mark.parametrize("name", EVERY)
def test_seed_decides_the_numbers(name):
    """Of a generator and of the default one, and neither touches the other."""
    draw = EVERY[name]
    generator = ag.Generator().manual_seed(7)
    first, second = draw(generator).tolist(), draw(generator).tolist()
    assert first != second
    ag.manual_seed(7)
    found = draw(None).tolist(), draw(generator).tolist() != second, draw(None).tolist()
    assert found == (first, True, second)


def test_generator_tells_and_keeps_its_state():
    generator = ag.Generator()
    assert generator.initial_seed() == 67280421310721
    assert generator.device == ag.tensor(0).device
    assert generator.manual_seed(-1) is generator
    assert generator.initial_seed() == 2**64 - 1
    ag.randint(9, (3,), generator=generator)  # keeps half of 64 bits
    state = generator.get_state()
    other = generator.clone_state()
    expected = ag.rand(3, generator=generator).tolist()
    assert ag.rand(3, generator=other).tolist() == expected
    generator.seed()
    assert generator.initial_seed() != 2**64 - 1
    assert state.dtype == ag.uint8
    assert generator.set_state(state) is generator
    assert generator.initial_seed() == 2**64 - 1
    assert ag.rand(3, generator=generator).tolist() == expected
    before = generator.get_state().tolist()
    with pytest.raises(RuntimeError, match="no state"):
        generator.set_state(ag.zeros(state.shape, dtype=ag.uint8))
    assert generator.get_state().tolist() == before


def test_default_generator_is_that_of_the_module():
    ag.manual_seed(3.7)
    assert ag.initial_seed() == ag.random.initial_seed() == 3
    state = ag.get_rng_state()
    expected = ag.rand(3).tolist()
    ag.set_rng_state(state)
    assert ag.rand(3).tolist() == expected
    assert ag.seed() == ag.initial_seed() == ag.default_generator.initial_seed()


# -- forks and concurrency ------------------------------------------------------------------------


@pytest.mark.parametrize("enabled", [True, False])
def test_fork_leaves_the_generator_as_it_was(enabled):
    ag.manual_seed(1)
    expected = ag.rand(3).tolist()
    ag.manual_seed(1)
    with ag.random.fork_rng(enabled=enabled, device_type="cpu"):
        assert ag.rand(3).tolist() == expected
        ag.manual_seed(9)
        with ag.random.fork_rng():
            ag.rand(5)
        assert ag.initial_seed() == 9
    assert (ag.rand(3).tolist() == expected) is enabled


@pytest.mark.asyncio
async def test_fork_is_the_tasks_own():
    """Two tasks that seed in turn do not meet."""
    turns = asyncio.Barrier(2)

    @ag.random.fork_rng()
    async def draws(seed):
        ag.manual_seed(seed)
        found = []
        for _ in range(3):
            await turns.wait()
            found.append(ag.rand(1).item())
        return found

    state = ag.get_rng_state().tolist()
    one, two = await asyncio.gather(draws(1), draws(2))
    assert ag.get_rng_state().tolist() == state
    for seed, found in ((1, one), (2, two)):
        ag.manual_seed(seed)
        assert [ag.rand(1).item() for _ in range(3)] == found


def test_threads_share_a_generator_without_repeating_numbers():
    generator = ag.Generator().manual_seed(0)
    drawn = []

    def draw():
        for _ in range(200):
            drawn.append(ag.randint(1 << 62, (3,), generator=generator).tolist())  # noqa: PERF401
        drawn.append(ag.randint(1 << 62, (70_000,), generator=generator).tolist())

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    numbers = [number for part in drawn for number in part]
    assert len(numbers) == 4 * (600 + 70_000)
    assert len(set(numbers)) == len(numbers)


# -- dropout --------------------------------------------------------------------------------------

F = ag.nn.functional
DROPOUTS = {
    "dropout": (F.dropout, (4, 3, 5), None),
    "dropout1d": (F.dropout1d, (40, 3, 5), 2),
    "dropout1d of one": (F.dropout1d, (30, 5), 1),
    "dropout2d": (F.dropout2d, (40, 3, 2, 2), 2),
    "dropout3d": (F.dropout3d, (40, 3, 2, 2, 2), 2),
    "dropout3d of one": (F.dropout3d, (30, 2, 2, 2), 1),
    "dropout3d of rows": (F.dropout3d, (30, 4), 1),
}


@pytest.mark.filterwarnings("ignore:dropout3d. Received a 2-D input")
@pytest.mark.parametrize("name", DROPOUTS)
def test_dropout_zeroes_elements_or_channels(name):
    function, shape, channels = DROPOUTS[name]
    x = ag.ones(shape, requires_grad=True)
    out = function(x, 0.25)
    values = out.detach().numpy()
    assert set(np.unique(values)) == {0, np.float32(1 / 0.75)}
    if channels is not None:
        flat = values.reshape(math.prod(shape[:channels]), -1)
        assert (flat == flat[:, :1]).all()
    out.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), values)
    assert function(x, 0.25, training=False) is x
    assert function(x, 0.0) is x
    assert not function(x, 1.0).any()


@pytest.mark.parametrize("function", [F.alpha_dropout, F.feature_alpha_dropout])
def test_alpha_dropout_keeps_mean_and_variance(function):
    x = ag.randn(500, 400, requires_grad=True)
    out = function(x, 0.3, training=True)
    assert abs(out.mean().item()) < 0.02
    assert abs(out.var().item() - 1) < 0.02
    out.sum().backward()
    assert len(np.unique(x.grad.numpy())) == 2
    assert function(x) is x
    assert not function(x, 1, True).any()


DROPOUT_CALLS = {
    "dropout of integers": lambda m, t: m.nn.functional.dropout(t([1, 2])),
    "dropout 1.5": lambda m, t: m.nn.functional.dropout(t([1.0]), 1.5),
    "dropout1d of one axis": lambda m, t: m.nn.functional.dropout1d(t([1.0])),
    "alpha_dropout of integers": lambda m, t: m.nn.functional.alpha_dropout(t([1]), 0.5, True),
    "alpha_dropout 1.5": lambda m, t: m.nn.functional.alpha_dropout(t([1.0]), 1.5, True),
    "feature_alpha_dropout of one axis": (
        lambda m, t: m.nn.functional.feature_alpha_dropout(t([1.0]), 0.5, True)
    ),
    "dropout in place of a leaf": (
        lambda m, t: m.nn.functional.dropout(t([1.0], requires_grad=True), inplace=True)
    ),
}


@pytest.mark.torch
@pytest.mark.parametrize("call", DROPOUT_CALLS)
def test_dropout_refuses_what_pytorchs_refuses(call):
    expected = outcome(DROPOUT_CALLS[call], torch)
    assert isinstance(expected, type)
    assert outcome(DROPOUT_CALLS[call], ag) is expected


@pytest.mark.parametrize("function", [F.dropout2d, F.dropout3d])
def test_odd_shapes_for_channels_warn(function):
    with pytest.warns(UserWarning, match="channel-wise"):
        function(ag.ones(2, 2))


def test_dropout_in_place_overwrites():
    x = ag.ones(100) * 1
    assert F.dropout(x, inplace=True) is x
    assert set(x.tolist()) == {0, 2}


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda g: pickle.loads(pickle.dumps(g))])
def test_copies_of_a_generator_go_on_from_its_state(duplicate):
    generator = ag.Generator().manual_seed(3)
    ag.rand(5, generator=generator)
    copied = duplicate(generator)
    assert copied.initial_seed() == 3
    assert copied.device == generator.device
    expected = ag.rand(4, generator=generator)
    assert ag.rand(4, generator=copied).tolist() == expected.tolist()
    assert ag.rand(4, generator=copied).tolist() != expected.tolist()
