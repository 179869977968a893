"""Every kind of operation under `vmap`: what one example after the other would give."""

import pytest

import asyncgrad as ag
from asyncgrad.nn import functional as F
from asyncgrad.ops.tensors.pytree import flatten

SIZE = 3


def _t(*shape, seed=0, dtype=None):
    count = 1
    for n in shape:
        count *= n
    values = [((seed + 3) * (i + 1) * 7 % 23 - 11) / 6 + 0.05 for i in range(count)]
    return ag.tensor(values, dtype=dtype or ag.float64).reshape(shape)


def _int(high, *shape):
    count = 1
    for n in shape:
        count *= n
    return ag.tensor([(i * 5 + 2) % high for i in range(count)]).reshape(shape)


X, Y, V, M = _t(SIZE, 4, 2), _t(SIZE, 4, 2, seed=1), _t(SIZE, 2, seed=2), _t(SIZE, 2, 4, seed=4)
S = _t(SIZE, seed=5)
IMAGE, KERNEL = _t(SIZE, 2, 2, 5, 5), _t(SIZE, 4, 2, 3, 3, seed=3)

ELEMENTWISE = [
    "sin", "cos", "exp", "tanh", "sigmoid", "abs", "neg", "square", "sign", "floor", "round",
    "reciprocal", "atan", "expm1", "erf", "relu",
]  # fmt: skip

#: Functions and the batches that they are mapped over.
CASES = {
    **{name: (getattr(ag, name), (X,)) for name in ELEMENTWISE if hasattr(ag, name)},
    "log": (lambda x: ag.log(x.abs() + 1), (X,)),
    "numbers": (lambda x: (2 * x + 1 - x / 3) ** 2 - 1 / (x * x + 1), (X,)),
    "broadcast up": (lambda x, v: x * v + v - x / (v * v + 1), (X, V)),
    "with a scalar example": (lambda x, s: x * s + s, (X, S)),
    "scalar examples": (lambda s, t: s * t.exp() - 1, (S, S)),
    "maximum": (lambda x, y: ag.maximum(x, y) + ag.minimum(x, y * 2), (X, Y)),
    "comparison": (lambda x, y: (x > y) | (x < 0.5), (X, Y)),
    "comparison with a number": (lambda x: x >= 0, (X,)),
    "where": (lambda x, y: ag.where(x > 0, x, y), (X, Y)),
    "where with a number": (lambda x: ag.where(x > 0, x, 0.0), (X,)),
    "masked_fill": (lambda x, y: x.masked_fill(y > 0, -1.0), (X, Y)),
    "clamp": (lambda x: x.clamp(-0.5, 0.5), (X,)),
    "clamp by tensors": (lambda x, y: x.clamp(y - 1, y + 1), (X, Y)),
    "atan2": (lambda x, y: ag.atan2(x, y), (X, Y)),
    "remainder": (lambda x: x % 2, (X,)),
    "pow": (lambda x, y: (x.abs() + 1) ** y, (X, Y)),
    "dtype": (lambda x: x.to(ag.float32) * 2, (X,)),
    "sum": (lambda x: x.sum(), (X,)),
    "sum over an axis": (lambda x: x.sum(0) + x.sum(-1, keepdim=True).sum(0), (X,)),
    "sum of scalars": (lambda s: s.sum(), (S,)),
    "mean": (lambda x: x.mean() + x.mean(1).sum(), (X,)),
    "var, std": (lambda x: x.var(0) + x.std() + x.var(correction=0), (X,)),
    "prod": (lambda x: x.prod(1) + x.prod(), (X,)),
    "amax": (lambda x: x.amax(1) - x.amin((0, 1)), (X,)),
    "max": (lambda x: x.max() - x.min(), (X,)),
    "max along": (lambda x: x.max(0).values - x.min(dim=1).values.sum(), (X,)),
    "indices of max": (lambda x: x.max(0).indices + x.argmax(1).sum() + x.argmin(), (X,)),
    "logsumexp": (lambda x: x.logsumexp(1), (X,)),
    "norm": (lambda x: x.norm() + x.norm(dim=1).sum(), (X,)),
    "any, all": (lambda x: (x > 0).any(1) & (x > -9).all(), (X,)),
    "cumsum": (lambda x: x.cumsum(1) + x.cumsum(0), (X,)),
    "sort": (lambda x: x.sort(0).values + x.sort(1, descending=True).values, (X,)),
    "argsort": (lambda x: x.argsort(0), (X,)),
    "topk": (lambda x: x.topk(2, 0).values, (X,)),
    "matmul": (lambda x, m: x @ m, (X, M)),
    "matrix and vector": (lambda x, v: x @ v, (X, V)),
    "vector and matrix": (lambda v, m: v @ m, (V, M)),
    "dot": (lambda v: v @ v, (V,)),
    "outer": (lambda v, s: ag.outer(v, v * s), (V, S)),
    "batched matmul": (lambda x, m: x.reshape(2, 2, 2) @ m.reshape(2, 2, 2), (X, M)),
    "transposed": (lambda x: x.T @ x.mT.T, (X,)),
    "einsum": (lambda x, m: ag.einsum("ij,jk->ki", x, m), (X, M)),
    "linear": (lambda x, m, v: F.linear(x, m.T, m[0]) * v.sum(), (X, M, V)),
    "addmm": (lambda x, m: ag.addmm(m.sum(0), x, m, beta=0.5, alpha=2), (X, M)),
    "reshape": (lambda x: x.reshape(-1, 4).reshape(2, 2, 2), (X,)),
    "view": (lambda x: x.view(8) * 2, (X,)),
    "flatten": (lambda x: x.flatten() + x.ravel(), (X,)),
    "squeeze": (lambda x: x.unsqueeze(0).squeeze(0)[:, None].squeeze(), (X,)),
    "permute": (lambda x: x.unsqueeze(-1).permute(2, 0, 1).movedim(0, 1), (X,)),
    "expand": (lambda x, s: s.expand(2, 2) + x[:2].expand(5, 2, 2), (X, S)),
    "cat": (lambda x, y: ag.cat([x, y, x], 1), (X, Y)),
    "stack": (lambda x, y: ag.stack([x, y], -1), (X, Y)),
    "split": (lambda x: x.split(2)[1] + x.chunk(2)[0], (X,)),
    "unbind": (lambda x: sum(x.unbind(1)), (X,)),
    "flip, roll": (lambda x: x.flip(0) + x.roll(1, 1) + x.roll(1), (X,)),
    "repeat": (lambda x: x.repeat(2, 1, 3), (X,)),
    "tile": (lambda x: x.tile((2,)), (X,)),
    "triangles": (lambda x: x.tril() + x.triu(1), (X,)),
    "diagonal": (lambda x: x.diagonal() + x.diagonal(1)[0], (X,)),
    "diag": (lambda v: ag.diag(v), (V,)),
    "narrow, select": (lambda x: x.narrow(0, 1, 2) + x.select(1, 0)[:2, None], (X,)),
    "slices": (lambda x: x[1:, ::2] + x[..., 0, None][:3], (X,)),
    "numbers as index": (lambda x: x[-1] * x[0, 1], (X,)),
    "a list as index": (lambda x: x[[0, 2]] + x[:, [1, 0]][:2], (X,)),
    "lists apart": (lambda x: x[:, None][[0, 1], :, [1, 0]], (X,)),
    "a tensor as index": (lambda x: x[ag.tensor([3, 0, 0])], (X,)),
    "a batched index": (lambda x, i: x[i], (X, _int(4, SIZE, 3))),
    "a batched number": (lambda x, i: x[i], (X, _int(4, SIZE))),
    "index of the constant": (lambda i: X[0][i], (_int(4, SIZE, 3),)),
    "gather": (lambda x, i: x.gather(0, i), (X, _int(4, SIZE, 3, 2))),
    "gather with one index": (lambda x: x.gather(0, _int(4, 3, 2)), (X,)),
    "index_select": (lambda x, i: x.index_select(0, i), (X, _int(4, SIZE, 3))),
    "take_along_dim": (lambda x, i: x.take_along_dim(i, 0), (X, _int(4, SIZE, 3, 2))),
    "scatter_add": (lambda x, i: x.scatter_add(0, i, x), (X, _int(4, SIZE, 4, 2))),
    "scatter": (lambda x: x.scatter(0, _int(4, 1, 2), x * 2), (X,)),
    "index_add": (lambda x: x.index_add(0, ag.tensor([0, 3]), x[:2]), (X,)),
    "softmax": (lambda x: x.softmax(-1) + x.log_softmax(0), (X,)),
    "softmax of scalars": (lambda s: s.softmax(0), (S,)),
    "activations": (
        lambda x: F.gelu(x) + F.silu(x) + F.softplus(x) + F.elu(x) + F.leaky_relu(x),
        (X,),
    ),
    "logsigmoid": (lambda x: F.logsigmoid(x), (X,)),
    "mse": (lambda x, y: F.mse_loss(x, y), (X, Y)),
    "losses": (
        lambda x, y: F.l1_loss(x, y, reduction="sum") + F.smooth_l1_loss(x, y, reduction="none"),
        (X, Y),
    ),
    "bce": (
        lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()),
        (X, Y),
    ),
    "cross entropy": (lambda x, i: F.cross_entropy(x, i), (X, _int(2, SIZE, 4))),
    "cross entropy of one": (lambda v, i: F.cross_entropy(v, i), (V, _int(2, SIZE))),
    "cross entropy, weighted": (
        lambda x, i: F.cross_entropy(x, i, weight=ag.tensor([1.0, 3.0], dtype=ag.float64)),
        (X, _int(2, SIZE, 4)),
    ),
    "cross entropy, smoothed": (
        lambda x, i: F.cross_entropy(x, i, label_smoothing=0.1, reduction="sum"),
        (X, _int(2, SIZE, 4)),
    ),
    "cross entropy, ignoring": (
        lambda x, i: F.cross_entropy(x, i, ignore_index=1),
        (X, _int(2, SIZE, 4)),
    ),
    "cross entropy, shared target": (lambda x: F.cross_entropy(x, _int(2, 4)), (X,)),
    "cross entropy of probabilities": (
        lambda x, y: F.cross_entropy(x, y.softmax(-1)),
        (X, Y),
    ),
    "nll": (lambda x, i: F.nll_loss(x.log_softmax(1), i), (X, _int(2, SIZE, 4))),
    "cosine": (lambda x, y: F.cosine_similarity(x, y, dim=1), (X, Y)),
    "layer norm": (lambda x: F.layer_norm(x, (2,)), (X,)),
    "layer norm, weighted": (lambda x, v: F.layer_norm(x, (2,), v, v + 1), (X, V)),
    "layer norm, shared weight": (lambda x: F.layer_norm(x, (2,), V[0], V[1]), (X,)),
    "rms norm": (lambda x, v: F.rms_norm(x, (2,), v), (X, V)),
    "batch norm": (lambda x: F.batch_norm(x, None, None, training=True), (IMAGE,)),
    "convolution": (lambda x: F.conv2d(x, KERNEL[0], padding=1), (IMAGE,)),
    "convolution by kernels": (lambda k: F.conv2d(IMAGE[0], k, k[:, 0, 0, 0]), (KERNEL,)),
    "convolution of both": (lambda x, k: F.conv2d(x, k, stride=2), (IMAGE, KERNEL)),
    "convolution of one image": (lambda x, k: F.conv2d(x[0], k), (IMAGE, KERNEL)),
    "convolution in groups": (
        lambda x, k: F.conv2d(x, k[:, :1], groups=2, padding=1),
        (IMAGE, KERNEL),
    ),
    "pooling": (lambda x: F.max_pool2d(x, 2) + F.avg_pool2d(x, 2), (IMAGE,)),
    "attention": (
        lambda x, y: F.scaled_dot_product_attention(x[None], y[None], x[None]),
        (X, Y),
    ),
    "embedding": (lambda i: F.embedding(i, X[0]), (_int(4, SIZE, 3),)),
    "embedding by weights": (lambda w: F.embedding(_int(4, 5), w), (X,)),
    "one hot": (lambda i: F.one_hot(i, 4), (_int(4, SIZE, 3),)),
    "dropout, not training": (lambda x: F.dropout(x, training=False), (X,)),
    "like": (lambda x: ag.zeros_like(x) + ag.ones_like(x) * x, (X,)),
    "in place": (lambda x: (x * 1).add_(1).mul_(x).exp_(), (X,)),
    "in place, part": (lambda x: _changed(x * 1), (X,)),
    "in place, zeros like": (lambda x: _changed(ag.zeros_like(x)) + x, (X,)),
    "several outputs": (lambda x, y: (x + y, {"sum": x.sum()}), (X, Y)),
    "an output of no batch": (lambda x: (x * 2, ag.ones(2)), (X,)),
    "complex": (lambda x, y: ((x + 1j * y) * (x - 2j)).abs(), (X, Y)),
}


def _changed(x):
    x[0] = 5.0
    x[1:, 0] += 1
    x[[2, 3]] = x[[0, 1]] * 2
    x[:, 1].mul_(3)
    return x


def _leaves(tree):
    return flatten(tree)[0] if not isinstance(tree, ag.Tensor) else [tree]


def _stacked(function, batches):
    rows = [_leaves(function(*[batch[i] for batch in batches])) for i in range(SIZE)]
    return [ag.stack(list(parts)) for parts in zip(*rows, strict=True)]


def _same(found, expected):
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        assert ((a - b).abs() < 1e-9).all() if a.dtype != ag.bool else (a == b).all()


@pytest.mark.parametrize("name", CASES)
def test_values(name):
    """One call gives what one for each example gives."""
    function, batches = CASES[name]
    with ag.no_grad():
        _same(_leaves(ag.func.vmap(function)(*batches)), _stacked(function, batches))


@pytest.mark.parametrize("name", CASES)
def test_an_inner_axis(name):
    """Wherever the batch lies, also with another round it."""
    function, batches = CASES[name]
    turned = [batch.movedim(0, -1) for batch in batches]
    found = ag.func.vmap(function, in_dims=-1)(*turned)
    _same(_leaves(found), _stacked(function, batches))
    twice = ag.func.vmap(ag.func.vmap(function))(*[ag.stack([b, b]) for b in batches])
    for nested, plain in zip(_leaves(twice), _leaves(found), strict=True):
        _same([nested[1]], [plain])


def _scalar(function):
    def scalar(*inputs):
        total = 0.0
        for leaf in _leaves(function(*inputs)):
            if leaf.dtype.kind == "f":
                total = total + (leaf.to(ag.float64) * leaf).sum()
        return total

    return scalar


def _is_differentiable(function, batches):
    if batches[0].dtype.kind != "f":
        return False
    return isinstance(_scalar(function)(*[batch[0] for batch in batches]), ag.Tensor)


DIFFERENTIABLE = [name for name, case in CASES.items() if _is_differentiable(*case)]


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_derivatives(name):
    """A gradient for each example, mapped and differentiated in either order."""
    function, batches = CASES[name]
    scalar = _scalar(function)
    one_by_one = ag.stack([ag.func.grad(scalar)(*[b[i] for b in batches]) for i in range(SIZE)])
    _same([ag.func.vmap(ag.func.grad(scalar))(*batches)], [one_by_one])
    summed = ag.func.grad(lambda *inputs: ag.func.vmap(scalar)(*inputs).sum())
    _same([summed(*batches)], [one_by_one])


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_batches_of_gradients(name):
    """`is_grads_batched` gives what one pass for each gradient gives."""
    function, batches = CASES[name]
    inputs = [b[0].detach().clone() for b in batches]
    inputs[0].requires_grad_()
    outputs = [out for out in _leaves(function(*inputs)) if out.requires_grad]
    gradients = [ag.stack([out.detach() * k + 1 for k in range(3)]) for out in outputs]
    wanted = [x for x in inputs if x.requires_grad]
    found = ag.grad(outputs, wanted, gradients, is_grads_batched=True, retain_graph=True)
    rows = [
        ag.grad(outputs, wanted, [g[k] for g in gradients], retain_graph=True) for k in range(3)
    ]
    _same(found, [ag.stack(list(parts)) for parts in zip(*rows, strict=True)])


@pytest.mark.parametrize("name", CASES)
def test_batches_without_examples(name):
    """Results have the shape and the dtype that they have with examples."""
    function, batches = CASES[name]
    some, none = [
        [(x.dtype, tuple(x.shape[1:])) for x in _leaves(ag.func.vmap(function)(*given))]
        for given in (batches, [batch[:0] for batch in batches])
    ]
    assert none == some


def test_jacobians_of_functions_without_results():
    x = ag.eye(3).expand(0, 3, 3)
    for transform in (ag.func.jacfwd, ag.func.jacrev, ag.func.hessian):
        shape = transform(lambda x: ag.linalg.inv(x).topk(2)[0])(x).shape
        assert shape == (0, 3, 2, *x.shape * (2 if transform is ag.func.hessian else 1))


def test_an_example_with_too_few_values_for_its_mask_is_refused():
    x, mask = ag.zeros(2, 3), ag.tensor([[True, False, True], [True, True, True]])
    with pytest.raises(RuntimeError, match="at least 3 elements in source, got 2"):
        ag.func.vmap(lambda x, mask, y: x.masked_scatter(mask, y))(x, mask, ag.ones(2, 2))


def test_view_of_an_example_that_would_have_to_be_copied_is_refused():
    """What is written into the copy would not reach the example."""
    x = ag.arange(12.0).reshape(2, 3, 2)
    written = ag.func.vmap(lambda x: (y := x * 1, y.view(4).add_(1))[0])
    assert (written(x.movedim(1, 0).contiguous()) == x.movedim(1, 0) + 1).all()
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        ag.func.vmap(lambda x: x.view(4), in_dims=1)(x)
    assert ag.func.vmap(lambda x: x.reshape(4), in_dims=1)(x).shape == (3, 4)


@pytest.mark.parametrize("requires_grad", [True, False])
def test_examples_of_examples_say_whether_they_are_part_of_a_graph(requires_grad):
    """Programs select what they differentiate by it."""
    seen = []

    def note(x):
        seen.append((x.requires_grad, (x * 2).requires_grad, x.detach().requires_grad))
        return x

    transform = ag.func.vmap(ag.func.vmap(ag.func.vmap(note)))
    transform(ag.ones(2, 2, 2, requires_grad=requires_grad))
    assert seen == [(requires_grad, requires_grad, False)]


def test_vmap_is_at_the_top_level_too():
    assert ag.vmap is ag.func.vmap
