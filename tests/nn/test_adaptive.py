"""The softmax over many classes, and random slopes."""

import numpy as np
import pytest

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = pytest.mark.torch


def _twins(*args, **options):
    theirs = torch.nn.AdaptiveLogSoftmaxWithLoss(*args, **options).double()
    ours = ag.nn.AdaptiveLogSoftmaxWithLoss(*args, **options).double()
    state = {k: ag.from_numpy(v.numpy().copy()) for k, v in theirs.state_dict().items()}
    assert list(ours.state_dict()) == list(state)
    assert repr(ours) == repr(theirs)
    ours.load_state_dict(state)
    return theirs, ours


@pytest.mark.parametrize("targets", [[0, 3, 5, 9, 1, 7], [0, 1, 0, 1, 2, 2], [9] * 6, 4, 0])
@pytest.mark.parametrize("options", [{}, {"div_value": 2.0, "head_bias": True}])
def test_losses_and_gradients_are_pytorchs(options, targets):
    modules = _twins(32, 10, [3, 6], **options)
    shape = (6, 32) if isinstance(targets, list) else (32,)
    values = np.random.default_rng(0).standard_normal(shape)
    found = []
    for T, module in zip((torch, ag), modules, strict=True):
        x = T.tensor(values, requires_grad=True)
        out = module(x, T.tensor(targets))
        assert out._fields == ("output", "loss")
        leaves = [x, *module.parameters()]
        gradients = T.autograd.grad(out.loss + out.output.sum(), leaves, allow_unused=True)
        found.append([out.output, out.loss, *gradients])
    for theirs, ours in zip(*found, strict=True):
        known = np.zeros(ours.shape) if theirs is None and ours is not None else None
        if ours is None:
            assert theirs is None or not theirs.any()
        else:
            expected = theirs.detach().numpy() if known is None else known
            np.testing.assert_allclose(ours.detach().numpy(), expected, rtol=1e-9, atol=1e-12)


def test_all_classes_and_predictions_are_pytorchs():
    theirs, ours = _twins(32, 10, [3, 6])
    for seed in range(5):
        x = np.random.default_rng(seed).standard_normal((7, 32)) * 5
        a, b = torch.tensor(x), ag.tensor(x)
        np.testing.assert_allclose(
            ours.log_prob(b).detach().numpy(), theirs.log_prob(a).detach().numpy(), rtol=1e-9
        )
        assert ours.predict(b).tolist() == theirs.predict(a).tolist()


@pytest.mark.parametrize("cutoffs", [[], [3, 2], [2, 2], [0, 2], [5, 10], [1.5]])
def test_cutoffs_that_do_not_fit_are_refused(cutoffs):
    for T in (torch, ag):
        with pytest.raises(ValueError, match="cutoffs"):
            T.nn.AdaptiveLogSoftmaxWithLoss(32, 10, cutoffs)


@pytest.mark.parametrize(
    ("shape", "target"),
    [
        ((2, 32), [1, 10]),
        ((2, 32), [-1, 1]),
        ((2, 32), [[1], [2]]),
        ((3, 32), [1, 2]),
        ((2, 32), 1),
    ],
)
def test_targets_that_do_not_fit_are_refused(shape, target):
    for T in (torch, ag):
        module = T.nn.AdaptiveLogSoftmaxWithLoss(32, 10, [3, 6])
        with pytest.raises(RuntimeError):
            module(T.ones(shape), T.tensor(target))


def test_random_slopes_are_between_their_bounds():
    x = ag.tensor([-1.0, -2.0, 3.0, 0.0] * 200, requires_grad=True)
    y = ag.nn.functional.rrelu(x, 0.2, 0.6, training=True)
    (g,) = ag.grad(y.sum(), x)
    y, g, x = (t.detach().numpy() for t in (y, g, x))
    np.testing.assert_allclose(y, g * x, rtol=1e-6)
    assert (g[x > 0] == 1).all()
    slopes = g[x <= 0]
    assert 0.2 <= slopes.min() < 0.25
    assert 0.55 < slopes.max() <= 0.6


def test_without_training_slopes_are_their_mean():
    values = [-1.0, -2.0, 3.0, 0.0]
    results = []
    for T in (torch, ag):
        x = T.tensor(values, requires_grad=True)
        y = T.nn.RReLU(0.1, 0.5).eval()(x)
        held = x * 1
        assert T.nn.functional.rrelu_(held, 0.1, 0.5) is held
        names = [t.grad_fn.name() for t in (y,)]
        results.append([y.tolist(), held.tolist(), T.autograd.grad(y.sum(), x)[0].tolist(), names])
    np.testing.assert_allclose(results[1][:3], results[0][:3], rtol=1e-6)
    assert results[0][3] == results[1][3]
    assert repr(ag.nn.RReLU(inplace=True)) == repr(torch.nn.RReLU(inplace=True))


@pytest.mark.parametrize(
    "call",
    [
        lambda T: T.nn.functional.rrelu(T.ones(3, dtype=T.int64)),
        lambda T: T.nn.functional.rrelu(T.ones(3) * 1j),
        lambda T: T.nn.functional.rrelu(T.ones(3), 2.0, 1.0),
        lambda T: T.nn.functional.rrelu(T.ones(3), 0.5, 0.1, True),
    ],
)
def test_slopes_that_do_not_fit_are_refused(call):
    with pytest.raises(RuntimeError) as expected:
        call(torch)
    with pytest.raises(expected.type):
        call(ag)


def test_a_draw_from_the_gumbel_softmax_has_the_soft_gradient():
    x = ag.tensor([[1.0, 2.0, 0.5], [0.0, 0.0, 3.0]], dtype=ag.float64, requires_grad=True)
    weights = ag.tensor([1.0, 2.0, 4.0], dtype=ag.float64)
    results = []
    for hard in (False, True):
        ag.manual_seed(3)
        y = ag.nn.functional.gumbel_softmax(x, tau=0.7, hard=hard)
        results.append((y.detach().numpy(), ag.grad((y * weights).sum(), x)[0].numpy()))
    (soft, soft_gradient), (drawn, gradient) = results
    np.testing.assert_array_equal(drawn.round(12), soft == soft.max(1, keepdims=True))
    np.testing.assert_array_equal(gradient, soft_gradient)
    ag.manual_seed(3)
    noise = torch.from_numpy(ag.empty_like(x).exponential_().numpy()).log()
    theirs = torch.tensor(x.tolist(), dtype=torch.float64, requires_grad=True)
    y = torch.softmax((theirs - noise) / 0.7, -1)
    np.testing.assert_allclose(soft, y.detach().numpy())
    (expected,) = torch.autograd.grad((y * torch.from_numpy(weights.numpy())).sum(), theirs)
    np.testing.assert_allclose(gradient, expected.numpy())


def test_draws_from_the_gumbel_softmax_are_as_frequent_as_probable():
    x = ag.tensor([[1.0, 2.0], [2.0, 0.5], [0.5, 3.0]])
    ag.manual_seed(0)
    drawn = ag.nn.functional.gumbel_softmax(x.expand(20_000, 3, 2), tau=0.1, hard=True, dim=1)
    np.testing.assert_allclose(drawn.mean(0).numpy(), ag.softmax(x, 0).numpy(), atol=0.02)


def test_the_gumbel_softmax_of_integers_is_refused():
    with pytest.raises(RuntimeError, match="floating"):
        ag.nn.functional.gumbel_softmax(ag.ones(3, dtype=ag.int64))
    with pytest.warns(UserWarning, match="no effect"):
        ag.nn.functional.gumbel_softmax(ag.ones(3), eps=1e-9)
