"""Normalisation and dropout."""

import numpy as np
import oracle
import pytest
from promised import MUST

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

NAMES = [name for name in MUST["normalisation"] if name != "nn.functional.dropout"]


test_samples = oracle.as_in_pytorch(NAMES, errors=False, limit=80)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_small_numbers_have_the_same_root_mean_square(dtype):
    """What is added by default is the machine epsilon of the dtype that sums are computed in."""
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    theirs, ours = (
        m.nn.functional.rms_norm(m.full((2, 4), 1e-3, dtype=getattr(m, dtype)), (4,)).double()
        for m in (torch, ag)
    )
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-2)


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.nn.functional.group_norm(m.ones(1, 2, 1), 2),
        lambda m: m.nn.GroupNorm(1, 1)(m.ones(1, 1)),
        lambda m: m.nn.functional.batch_norm(m.ones(1, 0), None, None, training=True),
    ],
)
def test_one_value_is_not_normalised(call):
    for m in (torch, ag):
        with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
            call(m)


@pytest.mark.parametrize("rows", [0, 5])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_lines_without_elements_have_gradients_without_elements(name, weighted, rows):
    x = ag.zeros(rows, 0, requires_grad=not weighted)
    weight = ag.ones(0, requires_grad=True)
    out = getattr(ag.nn.functional, name)(x, (0,), weight)
    source = weight if weighted else x
    (gradient,) = ag.autograd.grad(out.sum(), source)
    assert out.shape == (rows, 0)
    assert gradient.shape == source.shape


@pytest.mark.filterwarnings("ignore:Mismatch dtype")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm", "group_norm", "batch_norm"])
def test_inputs_of_half_precision_take_parameters_of_float32(name, dtype):
    """The result has the input's dtype, the gradients of the parameters have float32."""
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)).to(getattr(torch, dtype))
    results = []
    for m in (torch, ag):
        input = m.tensor(x.tolist(), dtype=getattr(m, dtype), requires_grad=True)
        weight = m.tensor([1.0, 2.0, 0.5, 3.0], requires_grad=True)
        before, after = {
            "layer_norm": (((4,),), ()), "rms_norm": (((4,),), ()), "group_norm": ((2,), ()),
            "batch_norm": ((m.zeros(4), m.ones(4)), (m.zeros(4), True)),
        }[name]  # fmt: skip
        out = getattr(m.nn.functional, name)(input, *before, weight, *after)
        out.sum().backward()
        results.append([out, input.grad, weight.grad])
    for expected, found in zip(*results, strict=True):
        oracle.compare(expected, found, 5e-2)


@pytest.mark.parametrize("name", ["layer_norm", "group_norm", "batch_norm"])
@pytest.mark.parametrize("dtypes", [("bfloat16", "float64"), ("float32", "float64")])
def test_parameters_of_other_dtypes_are_refused(name, dtypes):
    def program(m):
        x, weight = (m.ones(4, 4, dtype=getattr(m, dtype)) for dtype in dtypes)
        before = {"layer_norm": ((4,),), "group_norm": (2,), "batch_norm": (m.zeros(4), m.ones(4))}[
            name
        ]
        getattr(m.nn.functional, name)(x, *before, weight[0], weight[0])

    oracle.check_refused(program)


@pytest.mark.parametrize("eps", [0.0, -0.5, -2.0])
def test_instance_norm_takes_any_eps(eps):
    """PyTorch checks that of `batch_norm` alone."""
    torch = pytest.importorskip("torch")
    x = [[[1.0, 2.0, 4.0]]]
    found, expected = (T.nn.functional.instance_norm(T.tensor(x), eps=eps) for T in (ag, torch))
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5)


def test_complex_lines_without_elements_have_a_root_mean_square():
    x = ag.zeros(3, 0, dtype=ag.complex64)
    assert ag.rms_norm(x, (0,)).shape == (3, 0)


@pytest.mark.parametrize("name", ["mean", "var"])
def test_running_moments_that_share_memory_are_refused_before_any_is_moved(name):
    """PyTorch moves the one number again for each channel."""
    moments = {"mean": ag.zeros(2), "var": ag.ones(2)}
    moments[name] = ag.ones(1).expand(2)
    before, x = {key: moment.tolist() for key, moment in moments.items()}, ag.rand(3, 2)
    with pytest.raises(RuntimeError, match="memory is read-only, or more than one element"):
        ag.nn.functional.batch_norm(x, *moments.values(), training=True)
    assert {key: moment.tolist() for key, moment in moments.items()} == before
    assert ag.nn.functional.batch_norm(x, *moments.values()).shape == (3, 2)


@pytest.mark.parametrize("name", ["batch_norm", "instance_norm"])
def test_running_moments_of_each_example_are_moved(name):
    """Those of a batch have no array of their own that could be looked at."""
    found = []
    for T in (torch, ag):
        x = T.arange(48.0, dtype=T.float64).reshape(2, 3, 2, 4).sin()
        moments = T.zeros(2, 2, dtype=T.float64), T.ones(2, 2, dtype=T.float64)
        norm = getattr(T.nn.functional, name)
        out = T.func.vmap(lambda x, m, v, norm=norm: norm(x, m, v, None, None, True))(x, *moments)
        found.append((out, *moments))
    oracle.compare(*found)


@pytest.mark.parametrize("name", ["layer_norm", "group_norm", "batch_norm"])
def test_tangents_of_values_far_from_0_keep_their_digits(name):
    """The rounding of a mean of 1,000 was multiplied by the sum of the tangent."""
    F = ag.nn.functional
    norm = {
        "layer_norm": lambda x: F.layer_norm(x, (33,)),
        "group_norm": lambda x: F.group_norm(x, 2),
        "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    }[name]
    rng = np.random.default_rng(0)
    x = (1e3 + rng.standard_normal((6, 4, 33))).astype(np.float32)
    t = rng.uniform(0.5, 1.5, x.shape).astype(np.float32)
    one, exact = [
        ag.func.jvp(norm, (ag.tensor(x).to(dtype),), (ag.tensor(t).to(dtype),))[1].numpy()
        for dtype in (ag.float32, ag.float64)
    ]
    np.testing.assert_allclose(one, exact, atol=1e-4)
