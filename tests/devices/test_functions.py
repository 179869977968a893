"""The table's functions and whole training steps give on every device what they give on the CPU."""

import numpy as np
import pytest

import asyncgrad as ag
import asyncgrad.nn.functional as F


def at(x, *numbers):
    return ag.tensor(list(numbers), device=x.device)


def written(x):
    y = x * 1
    y[0] = 3.0
    y[1:, 0] = x[1:, 1]
    return y


FUNCTIONS = {
    "softmax": lambda x: F.softmax(x, -1),
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "gelu": F.gelu,
    "layer_norm": lambda x: F.layer_norm(x, (4,)),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "var": lambda x: x.var(1),
    "max": lambda x: x.max(1)[0],
    "sort": lambda x: x.sort(1)[0],
    "cumsum": lambda x: x.cumsum(1),
    "prod": lambda x: x.prod(1),
    "norm": lambda x: x.norm(),
    "logsumexp": lambda x: x.logsumexp(1),
    "slices": lambda x: x[1:, ::2],
    "indices": lambda x: x[at(x, 0, 2, 2)],
    "mask": lambda x: x[x > 0.5],
    "where": lambda x: ag.where(x > 0.5, x, x * 2),
    "cat": lambda x: ag.cat([x, x * 2]),
    "stack": lambda x: ag.stack([x, x]),
    "split": lambda x: x.split(2, 1)[1],
    "gather": lambda x: x.gather(1, at(x, [0, 1], [1, 1], [2, 3])),
    "einsum": lambda x: ag.einsum("ij,kj->ik", x, x),
    "matmul": lambda x: x @ x.T,
    "clamp": lambda x: x.clamp(0.3, 0.7),
    "pow": lambda x: x**3,
    "erf": lambda x: x.erf(),
    "topk": lambda x: x.topk(2)[0],
    "expand": lambda x: x[:1].expand(5, 4),
    "masked_fill": lambda x: x.masked_fill(x > 0.5, 0.0),
    "cross_entropy": lambda x: F.cross_entropy(x, at(x, 0, 1, 2)),
    "embedding": lambda x: F.embedding(at(x, [0, 1], [2, 0]), x),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
    "conv2d": lambda x: F.conv2d(x[None, None], x[None, None, :2, :2], padding=1),
    "max_pool2d": lambda x: F.max_pool2d(x[None, None], 2),
    "maximum": lambda x: ag.maximum(x, x.flip(0)),
    "written": written,
}


def gradients(function, device):
    values = np.linspace(0.1, 1.2, 12).reshape(3, 4)[:, [2, 0, 3, 1]]
    x = ag.tensor(values, device=device, requires_grad=True)
    out = function(x)
    (out * 1.5).exp().sum().backward()
    assert out.device is x.device is x.grad.device
    return out.tolist(), x.grad.tolist()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_and_their_gradients(name, accelerator):
    found, expected = (gradients(FUNCTIONS[name], place) for place in (accelerator, "cpu"))
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-6, atol=1e-12)


def test_scatter_with_a_gradient_for_what_is_written_over(accelerator):
    found = {}
    for place in (accelerator, "cpu"):
        x = ag.ones(4, 3, device=place, requires_grad=True)
        src = ag.ones(2, 3, device=place, requires_grad=True)
        index = ag.tensor([[0, 1, 2], [3, 3, 0]], device=place)
        (x.scatter(0, index, src) * 2).sum().backward()
        multiplied = (x * 3).scatter_reduce(0, index, src * 5, "prod")
        found[place] = x.grad.tolist(), src.grad.tolist(), multiplied.tolist()
    assert found[accelerator] == found["cpu"]


def trained(make, device):
    ag.manual_seed(0)
    model = ag.nn.Sequential(
        ag.nn.Linear(4, 8), ag.nn.LayerNorm(8), ag.nn.GELU(), ag.nn.Linear(8, 3)
    ).to(device)
    optimizer = make(model.parameters())
    x = ag.linspace(0, 1, 20).reshape(5, 4).to(device)
    target = ag.tensor([0, 1, 2, 1, 0], device=device)
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(model(x), target).backward()
        ag.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return [parameter.cpu().tolist() for parameter in model.parameters()]


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad"])
def test_training(name, accelerator):
    def make(parameters):
        more = {"momentum": 0.9} if name == "SGD" else {}
        return getattr(ag.optim, name)(parameters, lr=0.05, **more)

    for one, other in zip(trained(make, accelerator), trained(make, "cpu"), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "dtype", [ag.bool, ag.uint8, ag.int16, ag.int64, ag.float16, ag.bfloat16, ag.complex64]
)
def test_dtypes_of_which_cupy_adds_nothing_at_places(accelerator, dtype):
    """Nor does it take the greatest there."""
    x = ag.tensor([[1, -2, 0], [100, 5, 0]]).to(dtype)
    at = ag.tensor([0, 2, 0, 0])
    calls = [
        lambda x, at: ag.zeros_like(x).index_add(1, at, x[:, at]),
        lambda x, at: x.index_put((at - at, at), x[1, at], accumulate=True),
    ]
    if not dtype.is_complex:
        calls.append(
            lambda x, at: x.scatter_reduce(1, at[None] + 0 * at[:2, None], x[:, at], "amax")
        )
    for call in calls:
        found = call(x.to(accelerator), at.to(accelerator))
        expected = call(x, at)
        assert found.dtype == expected.dtype
        assert found.tolist() == expected.tolist()


def test_gradients_of_complex_elements_at_places(accelerator):
    found = []
    for device in ("cpu", accelerator):
        x = ag.tensor([1 + 2j, 3 - 1j, 2j], device=device, requires_grad=True)
        y = x[ag.tensor([0, 2, 0], device=device)]
        (y * y.conj()).real.sum().backward()
        rows = x.detach().requires_grad_()
        rows.as_strided((2, 2), (1, 1)).abs().sum().backward()
        found.append((x.grad.tolist(), rows.grad.tolist()))
    assert found[0] == found[1]


@pytest.mark.parametrize("dtype", [ag.float16, ag.bfloat16])
def test_gradients_of_strided_views_in_half_precision(accelerator, dtype):
    x = ag.full((4,), 0.5, dtype=dtype, device=accelerator, requires_grad=True)
    (x.as_strided((2, 3), (1, 1)) * 0.25).sum().backward()
    assert x.grad.tolist() == [0.25, 0.5, 0.5, 0.25]
