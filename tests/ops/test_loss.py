"""Losses."""

import numpy as np
import oracle
import pytest
from promised import MUST

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

NAMES = MUST["loss"]


test_samples = pytest.mark.filterwarnings(
    "ignore:reduction:UserWarning",
    "ignore:size_average:UserWarning",
    "ignore:Using a target size:UserWarning",
)(oracle.as_in_pytorch(NAMES, errors=False, limit=80))


@pytest.mark.filterwarnings("ignore:Using a target size:UserWarning")
@pytest.mark.parametrize("shapes", [((), (2,)), ((2,), ())])
@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss"])
def test_a_tensor_without_axes_counts_as_much_for_the_dtype(name, shapes):
    """Both are expanded before they meet: unlike in arithmetic."""
    for dtypes in (("float32", "float64"), ("float64", "float32")):
        theirs, ours = (
            getattr(T.nn.functional, name)(
                *[T.ones(s, dtype=getattr(T, d)) for s, d in zip(shapes, dtypes, strict=True)]
            )
            for T in (torch, ag)
        )
        assert oracle.dtype_name(theirs.dtype) == oracle.dtype_name(ours.dtype) == "float64"


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64"])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_absolute_differences_of_integers(dtype, reduction):
    """Booleans can't be subtracted, and integers have no mean."""
    oracle.check_call(lambda T, tensor: T.nn.functional.l1_loss(
        *[tensor(x, dtype=getattr(T, dtype)) for x in ([1, 0, 3], [1, 1, 1])], reduction=reduction
    ))  # fmt: skip


@pytest.mark.parametrize("call", [
    lambda F, x, y, weight: F.nll_loss(x, y, weight),
    lambda F, x, y, weight: F.cross_entropy(x, y, weight),
    lambda F, x, y, weight: F.cross_entropy(x, y, weight, label_smoothing=0.1),
    lambda F, x, y, weight: F.batch_norm(x, weight, weight.detach()),
    lambda F, x, y, weight: F.batch_norm(x, weight.detach(), weight, training=True),
])  # fmt: skip
def test_what_has_no_derivative_may_not_require_grad(call):
    """Its gradient would be missing."""
    oracle.check_refused(
        lambda T: call(
            T.nn.functional, T.ones(2, 3), T.tensor([0, 1]), T.ones(3, requires_grad=True)
        )
    )


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("call", [
    lambda F, x, y, **more: F.soft_margin_loss(x, y, **more),
    lambda F, x, y, **more: F.binary_cross_entropy(x, x, weight=y, **more),
    lambda F, x, y, **more: F.binary_cross_entropy_with_logits(x, x, weight=y, **more),
    lambda F, x, y, **more: F.binary_cross_entropy_with_logits(x, x, pos_weight=y, **more),
])  # fmt: skip
def test_there_are_no_more_losses_than_inputs(call, reduction):
    """A column beside a row would give a loss for each pair of their elements."""
    oracle.check_refused(
        lambda T: call(T.nn.functional, T.ones(3, 1), T.ones(3), reduction=reduction)
    )
    oracle.check_call(
        lambda T, _: call(T.nn.functional, T.ones(2, 3), T.ones(3), reduction=reduction), 1e-6
    )


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("name", ["nll_loss", "cross_entropy"])
def test_the_class_of_one_example_may_have_an_axis(name, reduction):
    """Its loss has none. PyTorch fails in the backward pass."""
    rows = np.random.default_rng(0).standard_normal((2, 3))
    found = []
    for T in (torch, ag):
        loss = getattr(T.nn.functional, name)
        x, y = T.tensor(rows, requires_grad=T is ag), T.tensor([[2], [0]])
        found.append(T.stack([loss(x[i], y[i], reduction=reduction) for i in range(2)]))
    oracle.compare(*found)
    together = loss(x, y[:, 0], reduction="sum")
    assert ag.grad(found[1].sum(), x)[0].tolist() == ag.grad(together, x)[0].tolist()
    oracle.compare(found[0], ag.func.vmap(lambda x, y: loss(x, y, reduction=reduction))(x, y))


def test_class_weights_of_probabilities_have_a_derivative():
    gradients = []
    for T in (torch, ag):
        weight = T.tensor([1.0, 2.0], requires_grad=True)
        x = T.tensor([[0.5, -1.0]])
        T.nn.functional.cross_entropy(x, x.softmax(1), weight).backward()
        gradients.append(weight.grad.tolist())
    assert gradients[1] == pytest.approx(gradients[0])


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_smoothed_cross_entropies_of_many_classes_do_not_overflow_float16(soft, weighted):
    """Gradients were infinite from 65,504 classes on, and losses from some thousand."""
    values = np.random.default_rng(0).standard_normal((3, 70_000)).astype("float16")
    found = []
    for dtype in (ag.float16, ag.float32):
        x = ag.from_numpy(values).to(dtype).requires_grad_()
        target = ag.full_like(x, 1 / 70_000).detach() if soft else ag.tensor([1, 5, 69_999])
        weight = ag.full((70_000,), 0.5, dtype=dtype) if weighted else None
        loss = ag.nn.functional.cross_entropy(x, target, weight, label_smoothing=0.1)
        loss.backward()
        assert loss.dtype == x.grad.dtype == dtype
        found.append((loss.item(), x.grad.to(ag.float32).numpy()))
    assert found[0][0] == pytest.approx(found[1][0], rel=2e-3)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=2e-3, atol=1e-7)


@pytest.mark.torch
@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
def test_a_single_row_without_reduction(name):
    """One loss, of one row of classes."""
    import torch

    gradients = []
    for T in (torch, ag):
        x = T.tensor([[0.5, -1.0]], requires_grad=True)
        loss = getattr(T.nn.functional, name)(x, T.tensor([1]), reduction="none")
        (loss * 3).sum().backward()
        gradients.append(x.grad.tolist())
    assert gradients[1][0] == pytest.approx(gradients[0][0])


def test_the_gradient_of_cross_entropy_of_logits_that_do_not_lie_in_a_row():
    """A transposed tensor, as from a matrix product with a transposed weight."""
    import torch

    gradients = []
    for T in (torch, ag):
        x = T.tensor([[0.1, 0.9, 0.4], [0.8, 0.2, 0.3]], requires_grad=True)
        T.nn.functional.cross_entropy(x.T * 1, T.tensor([0, 1, 1])).backward()
        gradients.append(x.grad.tolist())
    assert gradients[1] == [pytest.approx(row) for row in gradients[0]]


def test_the_gradient_of_a_divergence_by_its_target_is_undefined_at_zero():
    found = []
    for T in (torch, ag):
        x = T.tensor([0.5, -1.0, 2.0], dtype=T.float64)
        y = T.tensor([0.0, 0.25, 1.0], dtype=T.float64, requires_grad=True)
        loss = T.nn.functional.kl_div(x, y, reduction="sum")
        (first,) = T.autograd.grad(loss, y, create_graph=True)
        found.append((first.tolist(), T.autograd.grad(first.sum(), y)[0].tolist()))
    np.testing.assert_allclose(*found)


def test_the_gradient_of_binary_cross_entropy_by_its_target():
    """PyTorch's between 0 and 1; at the ends that of the bounded logarithms, also when recorded."""
    probabilities = [0.25, 0.5, 0.9]
    gradients = []
    for T in (torch, ag):
        target = T.tensor([0.2, 0.7, 1.0], dtype=T.float64, requires_grad=True)
        x = T.tensor(probabilities, dtype=T.float64)
        T.nn.functional.binary_cross_entropy(x, target, reduction="sum").backward()
        gradients.append(target.grad.tolist())
    assert gradients[1] == pytest.approx(gradients[0])
    ends = ag.tensor([0.0, 1.0], dtype=ag.float64)
    target = ag.tensor([0.2, 0.3], dtype=ag.float64, requires_grad=True)
    for recorded in (False, True):
        loss = ag.nn.functional.binary_cross_entropy(ends, target, reduction="sum")
        (gradient,) = ag.autograd.grad(loss, target, create_graph=recorded)
        assert gradient.tolist() == [100, -100]


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32"])
@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
def test_classes_of_images_may_be_small_integers(name, dtype):
    """A class times the places of an image may not fit their dtype."""
    loss = getattr(ag.nn.functional, name)
    logits = ag.randn(2, 5, 10, 10)
    classes = ag.randint(0, 5, (2, 10, 10))
    found = []
    for target in (classes, classes.to(getattr(ag, dtype))):
        x = logits.clone().requires_grad_()
        made = loss(x, target)
        made.backward()
        found += [(made.item(), x.grad.tolist())]
    assert found[0] == found[1]


@pytest.mark.parametrize("dtypes", [("float16", "float32"), ("float32", "float64")])
def test_cross_entropies_have_the_dtype_of_wider_probabilities(dtypes):
    results = []
    for m in (torch, ag):
        x, target = (m.tensor([[0.2, 0.8]], dtype=getattr(m, dtype)) for dtype in dtypes)
        x.requires_grad_()
        loss = m.nn.functional.cross_entropy(x, target)
        results.append([loss, *m.autograd.grad(loss, x)])
    for expected, found in zip(*results, strict=True):
        oracle.compare(expected, found, 2e-3)


@pytest.mark.parametrize("smoothing", [0, 0.1])
@pytest.mark.parametrize(
    "shape", [(3, 7), (3, 7, 2), (16, 32), (300, 1), (300, 10), (40, 4000), (9, 500, 40)]
)
@pytest.mark.parametrize("device", ["cpu", "sim:0"])
def test_cross_entropies_of_large_logits_keep_their_digits(device, shape, smoothing):
    """A loss of 2 beside logits of 100,000 would lose all digits but two if these were added up."""
    rng = np.random.default_rng(0)
    logits = (rng.standard_normal(shape) + 1e5).astype(np.float32)
    classes = rng.integers(0, shape[1], (shape[0], *shape[2:]))
    found = []
    for dtype in (ag.float32, ag.float64):
        x = ag.tensor(logits, device=device).to(dtype).requires_grad_()
        loss = ag.nn.functional.cross_entropy(
            x, ag.tensor(classes, device=device), reduction="none", label_smoothing=smoothing
        )
        loss.sum().backward()
        found.append([loss.detach().cpu().numpy(), x.grad.cpu().numpy()])
    for one, exact in zip(*found, strict=True):
        np.testing.assert_allclose(one, exact, rtol=2e-6, atol=3e-7)


@pytest.mark.parametrize("lines", [4, 40])
def test_cross_entropies_of_logits_that_are_no_numbers(lines):
    """Each line by itself, however many there are."""
    import torch

    values = [[np.inf, 1, 2], [-np.inf, 1, 2], [-np.inf] * 3, [np.nan, 1, 2]]
    found = []
    for T in (torch, ag):
        x = T.tensor(values * (lines // 4), requires_grad=True)
        loss = T.nn.functional.cross_entropy(
            x, T.tensor([0, 1, 2, 1] * (lines // 4)), reduction="none"
        )
        loss.sum().backward()
        found.append((loss.detach().numpy(), x.grad.numpy()))
    for theirs, ours in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_cross_entropies_of_probabilities_near_1_keep_their_digits():
    """The logarithm of 1 - x, which counts nothing here, took them from the logarithm of x."""
    probabilities = np.float32([1 - 2**-24, 1 - 2**-20, 0.999, 0.5, 2**-24])
    for target, exact in (
        (1.0, -np.log(probabilities.astype(np.float64))),
        (0.0, -np.log1p(-probabilities.astype(np.float64))),
    ):
        x = ag.tensor(probabilities)
        found = ag.nn.functional.binary_cross_entropy(x, x * 0 + target, reduction="none").numpy()
        np.testing.assert_allclose(found, exact, rtol=1e-6)


def test_soft_margin_losses_of_wrong_scores_have_pytorchs_second_derivatives():
    """The powers of exp(60) overflow."""
    scores = np.float32([-60, -30, -3, 0, 3, 30])
    x = ag.tensor(scores, requires_grad=True)
    loss = ag.nn.functional.soft_margin_loss(x, ag.ones(6), reduction="sum")
    (slope,) = ag.autograd.grad(loss, x, create_graph=True)
    (found,) = ag.autograd.grad(slope.sum(), x)
    e = np.exp(-np.abs(scores.astype(np.float64)))
    np.testing.assert_allclose(slope.detach().numpy(), -1 / (1 + np.exp(scores)), rtol=1e-6)
    np.testing.assert_allclose(found.numpy(), e / (1 + e) ** 2, atol=1e-7)
