"""Long sums in half precision: added up in more bits, they neither stand still nor overflow."""

import numpy as np
import pytest

import asyncgrad as ag
from asyncgrad.autograd import forward_ad

pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")

F = ag.nn.functional
N = 5000
ZEROS = ag.zeros(N, dtype=ag.int64)


def pairs(x):
    """The same number in each of `N` rows."""
    return x.reshape(1, 2).expand(N, 2)


def image(x, *shape):
    return x[0].expand(*shape)


#: Functions of two numbers that add up thousands of them.
CASES = {
    "sum": lambda x: pairs(x).sum(0),
    "mean": lambda x: image(x, 70_000).mean(),
    "mean of rows": lambda x: pairs(x).mean(0),
    "cumsum": lambda x: pairs(x).cumsum(0)[-1],
    "cumsum backward": lambda x: pairs(x).cumsum(0)[-1:],
    "avg_pool1d": lambda x: F.avg_pool1d(image(x, 1, 1, 4096), 2048),
    "avg_pool2d": lambda x: F.avg_pool2d(image(x, 1, 1, 60, 60), 30, 1),
    "avg_pool3d": lambda x: F.avg_pool3d(image(x, 1, 1, 16, 16, 16), 16),
    "adaptive_avg_pool1d": lambda x: F.adaptive_avg_pool1d(image(x, 1, 1, N), 3),
    "lp_pool1d": lambda x: F.lp_pool1d(image(x, 1, 1, 4096), 2.0, 2048),
    "scatter_add": lambda x: ag.zeros(2, dtype=x.dtype).scatter_add(0, ZEROS, image(x, N))[:1],
    "index_add": lambda x: ag.zeros(2, dtype=x.dtype).index_add(0, ZEROS, image(x, N))[:1],
    "index": lambda x: x[ZEROS],
    "embedding": lambda x: F.embedding(ZEROS, x.reshape(1, 2)),
    "embedding_bag": lambda x: F.embedding_bag(ZEROS[None], x.reshape(1, 2)),
    "linear": lambda x: F.linear(ag.ones(N, 2, dtype=x.dtype), ag.ones(2, 2, dtype=x.dtype), x),
    "addmm": lambda x: ag.addmm(x, ag.ones(N, 2, dtype=x.dtype), ag.ones(2, 2, dtype=x.dtype)),
    "conv1d": lambda x: F.conv1d(
        ag.ones(1, 1, N, dtype=x.dtype), ag.ones(2, 1, 1, dtype=x.dtype), x
    ),
    "conv2d": lambda x: F.conv2d(
        ag.ones(N, 1, 2, 2, dtype=x.dtype), ag.ones(2, 1, 1, 1, dtype=x.dtype), x
    ),
    "batch_norm": lambda x: F.batch_norm(
        pairs(x) * 1, ag.zeros(2, dtype=x.dtype), ag.ones(2, dtype=x.dtype), x, x
    ),
    "batch_norm of batches": lambda x: F.batch_norm(
        (ag.arange(2 * N) % 3).to(x.dtype).reshape(N, 2), None, None, x, x, training=True
    ),
    "layer_norm": lambda x: F.layer_norm(
        (ag.arange(2 * N) % 2).to(x.dtype).reshape(N, 2), (2,), x, x
    ),
    "rms_norm": lambda x: F.rms_norm((ag.arange(2 * N) % 2).to(x.dtype).reshape(N, 2), (2,), x),
    "group_norm": lambda x: F.group_norm(
        (ag.arange(4 * N) % 3).to(x.dtype).reshape(N, 2, 2), 1, x, x
    ),
    "prelu": lambda x: F.prelu(-ag.ones(N, 2, dtype=x.dtype), x),
    "amax": lambda x: pairs(x).amax(0),
    "norm of greatest": lambda x: ag.linalg.vector_norm(pairs(x), float("inf"), 0),
    "norm of nonzero": lambda x: ag.linalg.vector_norm(pairs(x), 0, 0) * x,
    "mse_loss": lambda x: F.mse_loss(pairs(x), ag.zeros(N, 2, dtype=x.dtype)),
    "l1_loss": lambda x: F.l1_loss(pairs(x), ag.zeros(N, 2, dtype=x.dtype)),
    "huber_loss": lambda x: F.huber_loss(pairs(x), ag.zeros(N, 2, dtype=x.dtype)),
    "nll_loss": lambda x: F.nll_loss(pairs(x), ZEROS),
    "cross_entropy": lambda x: F.cross_entropy(pairs(x), ZEROS),
    "binary_cross_entropy": lambda x: F.binary_cross_entropy(
        pairs(x) / 4, ag.zeros(N, 2, dtype=x.dtype)
    ),
    "logits": lambda x: F.binary_cross_entropy_with_logits(pairs(x), ag.zeros(N, 2, dtype=x.dtype)),
    "kl_div": lambda x: F.kl_div(pairs(x), ag.ones(N, 2, dtype=x.dtype), reduction="batchmean"),
    "cosine_similarity": lambda x: F.cosine_similarity(pairs(x), pairs(x), dim=0),
    "softmax": lambda x: (pairs(x) * 1).softmax(0)[:1],
    "logsumexp": lambda x: pairs(x).logsumexp(0),
    "nearest": lambda x: F.interpolate(x.reshape(1, 1, 2), size=N, mode="nearest"),
    "bilinear": lambda x: F.interpolate(x.reshape(1, 1, 1, 2), size=(100, 100), mode="bilinear"),
    "lstm": lambda x: recurrent("LSTM", x),
    "gru": lambda x: recurrent("GRU", x),
    "rnn": lambda x: recurrent("RNN", x),
}


def recurrent(kind, x):
    """The outputs of a layer all of whose parameters come from two numbers."""
    layer = getattr(ag.nn, kind)(1, 2, dtype=x.dtype)
    values = {
        name: x.repeat((p.numel() + 1) // 2)[: p.numel()].reshape(p.shape) / 4
        for name, p in layer.named_parameters()
    }
    return ag.func.functional_call(layer, values, (ag.ones(2, N, 1, dtype=x.dtype),))[0].mean(1)


def both(case, dtype):
    """The result and the gradient in a dtype."""
    x = ag.tensor([1.5, 0.5], dtype=dtype, requires_grad=True)
    out = CASES[case](x)
    (gradient,) = ag.grad(out, x, ag.ones_like(out))
    return [y.detach().float().numpy() for y in (out, gradient)]


@pytest.mark.parametrize("dtype", [ag.bfloat16, ag.float16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize("case", CASES)
def test_results_and_gradients_are_near_those_of_float32(case, dtype):
    for half, exact in zip(both(case, dtype), both(case, ag.float32), strict=True):
        np.testing.assert_allclose(half, exact, rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize("dtype", [ag.bfloat16, ag.float16], ids=["bfloat16", "float16"])
def test_sparse_gradients_add_up_in_float32(dtype):
    table = ag.ones(3, 2, dtype=dtype, requires_grad=True)
    F.embedding(ZEROS, table, sparse=True).sum().backward()
    total = ag.tensor(float(N)).to(dtype)
    for gradient in (table.grad.to_dense(), table.grad.coalesce().values()):
        assert (gradient[0] == total).all()


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x: F.layer_norm(x, (4,), x[0], x[1]), id="layer_norm"),
        pytest.param(lambda x: F.rms_norm(x, (4,), x[0]), id="rms_norm"),
        pytest.param(lambda x: F.batch_norm(x, None, None, x[0], x[1], True), id="batch_norm"),
        pytest.param(lambda x: F.cosine_similarity(x[:2], x[1:]), id="cosine_similarity"),
        pytest.param(lambda x: x.var(1), id="var"),
        pytest.param(lambda x: x.std(1), id="std"),
        pytest.param(lambda x: ag.linalg.vector_norm(x, 3, 1), id="vector_norm"),
        pytest.param(
            lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None] / 700),
            id="attention",
        ),
    ],
)
def test_recorded_gradients_and_tangents_do_not_overflow(function):
    """Squares of these numbers are too large for float16."""
    values = [[300.0, 500, -650, 700], [520.0, -340, 610, 480], [-400.0, 700, 310, -620]]
    found = []
    for dtype in (ag.float16, ag.float32):
        x = ag.tensor(values, dtype=dtype, requires_grad=True)
        out = function(x)
        direction = ag.ones_like(out).cumsum(-1)
        (gradient,) = ag.grad(out, x, direction, create_graph=True)
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x.detach(), ag.tensor(values, dtype=dtype).sign())
            tangent = forward_ad.unpack_dual(function(dual)).tangent
        found.append([y.detach().float().numpy() for y in (gradient, tangent)])
    for half, exact in zip(*found, strict=True):
        np.testing.assert_allclose(half, exact, rtol=2e-2, atol=5e-3 * abs(exact).max())


@pytest.mark.parametrize("dtype", [ag.bfloat16, ag.float16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize("function", [F.kl_div, F.binary_cross_entropy], ids=lambda f: f.__name__)
def test_gradients_by_the_target_are_rounded_once(function, dtype):
    input = (ag.arange(1, 200) / 200).to(dtype)
    target = input.flip(0).requires_grad_()
    (half,) = ag.grad(function(input, target, reduction="none").sum(), target)
    wide = target.detach().float().requires_grad_()
    (exact,) = ag.grad(function(input.float(), wide, reduction="none").sum(), wide)
    assert ag.equal(half, exact.to(dtype))
