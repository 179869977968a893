"""Operands on several devices are refused as PyTorch does, whichever comes first."""

import pytest

import asyncgrad as ag
import asyncgrad.nn.functional as F

#: Functions of two tensors of shape (3, 3), which must be in one place.
MIXED = {
    "add": lambda x, y: x + y,
    "pow": lambda x, y: x**y,
    "lt": lambda x, y: x < y,
    "logical_and": lambda x, y: (x > 0) & (y > 0),
    "matmul": lambda x, y: x @ y,
    "mv": lambda x, y: x @ y[0],
    "dot": lambda x, y: x[0] @ y[0],
    "bmm": lambda x, y: ag.bmm(x[None], y[None]),
    "addmm": lambda x, y: ag.addmm(x, x, y),
    "einsum": lambda x, y: ag.einsum("ij,jk->ik", x, y),
    "outer": lambda x, y: ag.outer(x[0], y[0]),
    "cat": lambda x, y: ag.cat([x, y]),
    "stack": lambda x, y: ag.stack([x, y]),
    "where": lambda x, y: ag.where(x > 0, x, y),
    "where, the condition": lambda x, y: ag.where(x > 0, y, y),
    "maximum": lambda x, y: ag.maximum(x, y),
    "lerp": lambda x, y: ag.lerp(x, y, 0.5),
    "equal": lambda x, y: ag.equal(x, y),
    "isin": lambda x, y: ag.isin(x, y),
    "searchsorted": lambda x, y: ag.searchsorted(x, y),
    "meshgrid": lambda x, y: ag.meshgrid(x[0], y[0]),
    "masked_fill": lambda x, y: x.masked_fill(y > 0, 1.0),
    "masked_select": lambda x, y: x.masked_select(y > 0),
    "masked_scatter": lambda x, y: x.masked_scatter(y > 0, x),
    "index_select": lambda x, y: x.index_select(0, y[0].long()),
    "index_add": lambda x, y: x.index_add(0, x[0].long(), y),
    "index_copy": lambda x, y: x.index_copy(0, y[0].long(), x),
    "index_fill": lambda x, y: x.index_fill(0, y[0].long(), 1.0),
    "index_put": lambda x, y: x.index_put((x[0].long(),), y),
    "gather": lambda x, y: x.gather(0, y.long()),
    "take": lambda x, y: x.take(y.long()),
    "scatter": lambda x, y: x.scatter(0, x.long(), y),
    "scatter, the index": lambda x, y: x.scatter(0, y.long(), x),
    "scatter_add": lambda x, y: x.scatter_add(0, x.long(), y),
    "bincount": lambda x, y: ag.bincount(x[0].long(), y[0]),
    "embedding": lambda x, y: F.embedding(x.long(), y),
    "linear": lambda x, y: F.linear(x, y),
    "linear, the bias": lambda x, y: F.linear(x, x, y[0]),
    "conv1d": lambda x, y: F.conv1d(x[None], y[None]),
    "layer_norm": lambda x, y: F.layer_norm(x, (3,), y[0], y[0]),
    "batch_norm": lambda x, y: F.batch_norm(x, y[0], y[0] + 1),
    "attention": lambda x, y: F.scaled_dot_product_attention(x[None], y[None], y[None]),
    "mse_loss": lambda x, y: F.mse_loss(x, y),
    "cross_entropy": lambda x, y: F.cross_entropy(x, y[0].long()),
    "cross_entropy, the weight": lambda x, y: F.cross_entropy(x, x[0].long(), y[0]),
    "nll_loss": lambda x, y: F.nll_loss(x, y[0].long()),
    "cosine_similarity": lambda x, y: F.cosine_similarity(x, y),
    "in place": lambda x, y: x.add_(y),
    "mul_": lambda x, y: x.mul_(y),
    "addcmul_": lambda x, y: x.addcmul_(x, y),
    "a number of a device": lambda x, y: x + y.sum() if x.device.type == "cpu" else x + y,
}


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize(
    ("first", "second"), [("sim:0", "cpu"), ("cpu", "sim:0"), ("sim:0", "sim:1")]
)
def test_operands_on_two_devices_are_refused(name, first, second):
    x, y = ag.zeros(3, 3, device=first), ag.zeros(3, 3, device=second)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        MIXED[name](x, y)
    assert x.tolist() == [[0.0] * 3] * 3
    assert x._version == 0


@pytest.mark.parametrize("name", ["add", "exp", "mm", "cat", "sum"])
def test_an_output_elsewhere_is_refused(name):
    x = ag.zeros(3, 3)
    inputs = {"add": (x, x), "mm": (x, x), "cat": ([x, x],), "sum": (x, 0)}.get(name, (x,))
    out = ag.zeros(3, 3, device="sim:0")
    with pytest.raises(RuntimeError, match="Expected out tensor to have device cpu, but got sim:0"):
        getattr(ag, name)(*inputs, out=out)


def test_what_may_be_elsewhere():
    """Indices of the host, numbers without axes, and values that are copied."""
    x = ag.arange(3.0, device="sim:0")
    two = ag.tensor(2.0)
    assert x[ag.tensor([2, 0])].tolist() == [2.0, 0.0]
    assert x[ag.tensor([True, False, True])].tolist() == [0.0, 2.0]
    assert (x * two).tolist() == (two * x).tolist() == [0.0, 2.0, 4.0]
    assert x.masked_fill(x > 1, two + 5).tolist() == [0.0, 1.0, 7.0]
    x[ag.tensor([0])] = two
    x[1:] = ag.tensor([5.0, 6.0])
    assert x.tolist() == [2.0, 5.0, 6.0]
    with pytest.raises(RuntimeError, match="same device"):
        ag.arange(3.0)[x.long()]
    with pytest.raises(RuntimeError, match="same device"):
        x[ag.tensor([0, 1])] = ag.ones(2)
