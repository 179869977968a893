"""Many random numbers are drawn on the CUDA device, from a seed of the generator."""

import numpy as np
import philox
import pytest

import asyncgrad as ag
import asyncgrad.nn.functional as F

MANY, FEW = (300, 400), (3, 4)


def seeded(function, *args, **kwargs):
    """What a function draws after seed 7, and the seeds that a device's draw takes there."""
    generator = ag.Generator().manual_seed(7)
    seeds = generator.clone_state()._random.integers(0, 1 << 63, 2).tolist()
    return function(*args, generator=generator, **kwargs).cpu().numpy(), seeds


@pytest.mark.parametrize("dtype", [ag.float32, ag.float64])
@pytest.mark.parametrize("kind", ["uniform", "normal"])
def test_what_is_drawn(device, kind, dtype):
    function = {"uniform": ag.rand, "normal": ag.randn}[kind]
    found, seeds = seeded(function, *MANY, dtype=dtype, device=device)
    expected = getattr(philox, kind)(seeds, MANY, dtype.type)
    if kind == "uniform":
        np.testing.assert_array_equal(found, expected)
        assert found.min() >= 0
        assert found.max() < 1
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        assert abs(found.mean()) < 0.02
        assert abs(found.std() - 1) < 0.02
    like = {"uniform": ag.rand_like, "normal": ag.randn_like}[kind]
    same, _ = seeded(like, ag.empty(*MANY, dtype=dtype, device=device))
    np.testing.assert_array_equal(same, found)


def test_filling(device):
    x = ag.empty(*MANY, device=device)
    found, seeds = seeded(x.uniform_, 2, 5)
    expected = philox.uniform(seeds, MANY, np.float32)
    np.testing.assert_allclose(found, expected * 3 + 2, rtol=1e-6)
    found, _ = seeded(x.normal_, 1, 0.5)
    np.testing.assert_allclose(found, philox.normal(seeds, MANY, np.float32) * 0.5 + 1, atol=1e-5)
    with pytest.raises(RuntimeError, match="std"):
        x.normal_(0, -1)


def test_dropout(device):
    """The mask is drawn there, also anew in each replay."""
    x = ag.ones(*MANY, device=device, requires_grad=True)
    found, seeds = seeded(lambda generator: F.dropout(x, 0.25, generator=generator).detach())
    kept = philox.uniform(seeds, MANY, np.float32) >= 0.25
    np.testing.assert_allclose(found, kept / 0.75, rtol=1e-6)

    def step(x):
        y = F.dropout(x, 0.25)
        return y.detach(), ag.grad((y * y).sum(), x)[0]

    fast = ag.compile(step)
    made = []
    for function in (step, fast):
        ag.manual_seed(3)
        made.append([[y.cpu().numpy() for y in function(x)] for _ in range(5)])
    np.testing.assert_array_equal(*map(np.array, made))
    assert len({y.tobytes() for y, _ in made[0]}) == 5


def test_few_numbers_and_other_dtypes_are_those_of_the_host(device):
    for shape, dtype in ((FEW, ag.float32), (MANY, ag.float16), (MANY, ag.complex64)):
        found, _ = seeded(ag.randn, *shape, dtype=dtype, device=device)
        expected, _ = seeded(ag.randn, *shape, dtype=dtype)
        np.testing.assert_array_equal(found, expected)


def test_a_generator_goes_on_alike_on_every_device(device):
    """A draw of many numbers takes as much from it wherever they are made."""
    states = []
    for place in ("cpu", device):
        generator = ag.Generator().manual_seed(7)
        ag.rand(*MANY, generator=generator, device=place)
        states.append(generator.get_state().tolist())
    assert states[0] == states[1]


def test_the_source_s_first_words():
    """The published words of place, key and counter 0."""
    found = [int(x[0]) for x in philox.words(0, 0, 1)]
    assert found == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
