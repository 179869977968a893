"""Changes in place that read memory which they write are refused where PyTorch refuses them."""

import pytest

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = pytest.mark.torch

#: Changes of a row of six elements.
CHANGES = {
    "add": lambda T, x: x[1:].add_(x[:-1]),
    "add by name": lambda T, x: x[1:].add_(other=x[:-1]),
    "sub scaled": lambda T, x: x[1:].sub_(x[:-1], alpha=2),
    "mul": lambda T, x: x[1:].mul_(x[:-1]),
    "pow": lambda T, x: x[1:].pow_(x[:-1]),
    "copy": lambda T, x: x[1:].copy_(x[:-1]),
    "copy one": lambda T, x: x.copy_(x[0]),
    "add one": lambda T, x: x.add_(x[0]),
    "assign": lambda T, x: x.__setitem__(slice(1, None), x[:-1]),
    "assign one": lambda T, x: x.__setitem__(slice(0, 3), x[1]),
    "rows": lambda T, x: x.reshape(3, 2)[1:].add_(x.reshape(3, 2)[:-1]),
    "transposed": lambda T, x: x[:4].reshape(2, 2).add_(x[:4].reshape(2, 2).T),
    "itself": lambda T, x: x.mul_(x),
    "a view of all": lambda T, x: x.add_(x[:]),
    "the same part": lambda T, x: x[:3].add_(x[:3]),
    "another part": lambda T, x: x[:3].add_(x[3:]),
    "with gaps": lambda T, x: x[::2].add_(x[1::2]),
    "converted": lambda T, x: x[1:].add_(x[:-1].to(T.float64)),
    "addcmul": lambda T, x: x[1:].addcmul_(x[:-1], x[:-1]),
    "lerp": lambda T, x: x[1:].lerp_(x[:-1], 0.5),
    "clamp": lambda T, x: x[1:].clamp_(max=x[:-1]),
    "compare": lambda T, x: x[1:].lt_(x[:-1]),
    "masked_fill": lambda T, x: x.masked_fill_(x > 2, x[0]),
    "fill": lambda T, x: x.fill_(x[2]),
    "index_fill": lambda T, x: x.index_fill_(0, T.tensor([0]), x[2]),
    "index_add": lambda T, x: x.index_add_(0, T.tensor([0, 1]), x[:2]),
    "index_copy": lambda T, x: x.index_copy_(0, T.tensor([0, 1]), x[1:3]),
    "index_put": lambda T, x: x.index_put_((T.tensor([0, 1]),), x[1:3]),
    "scatter": lambda T, x: x.scatter_(0, T.tensor([0, 1]), x[1:3]),
    "itself added at places": lambda T, x: x.index_add_(0, T.arange(6), x),
    "itself copied to places": lambda T, x: x.index_copy_(0, T.arange(6), x),
    "itself put at places": lambda T, x: x.index_put_((T.arange(6),), x),
    "itself added by put": lambda T, x: x.index_put_((T.arange(6),), x, accumulate=True),
    "itself assigned to places": lambda T, x: x.__setitem__(T.arange(6), x),
    "a view of all assigned to places": lambda T, x: x.__setitem__(T.arange(6), x[:]),
    "itself assigned to a slice": lambda T, x: x.__setitem__(slice(0, 6), x),
    "itself scattered": lambda T, x: x.scatter_(0, T.arange(6), x),
    "itself scattered and added": lambda T, x: x.scatter_add_(0, T.arange(6), x),
    "itself scattered and reduced": lambda T, x: x.scatter_reduce_(0, T.arange(6), x, "sum"),
    "itself reduced at places": lambda T, x: x.index_reduce_(0, T.arange(6), x, "prod"),
    "itself put": lambda T, x: x.put_(T.arange(6), x),
    "itself scattered, not in place": lambda T, x: x.scatter(0, T.arange(6), x),
    "addmm": lambda T, x: x[:4].reshape(2, 2).addmm_(x[:4].reshape(2, 2), x[2:].reshape(2, 2)),
}


def _outcome(T, change):
    x = T.arange(6, dtype=T.float32)
    try:
        change(T, x)
    except RuntimeError as error:
        return x.tolist(), "refer to a single memory location" in str(error)
    return x.tolist()


@pytest.mark.parametrize("name", CHANGES)
def test_overlapping_operands_are_refused_as_in_pytorch(name):
    assert _outcome(ag, CHANGES[name]) == _outcome(torch, CHANGES[name])


def test_operands_with_gaps_are_read_before_anything_is_written():
    """PyTorch does not see this one, and reads what it has written."""
    x = ag.arange(6.0).reshape(2, 3)
    x[:, 1:].add_(x[:, :-1])
    assert x.tolist() == [[0.0, 1.0, 3.0], [3.0, 7.0, 9.0]]


def test_another_part_of_what_changes_counts_as_changed():
    """The two share a version, as in PyTorch."""
    for T in (ag, torch):
        y = T.arange(4.0).requires_grad_() * 1
        y[:2].mul_(y[2:])
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()
