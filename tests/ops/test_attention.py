"""Attention."""

import itertools

import numpy as np
import oracle
import pytest

import asyncgrad as ag
from asyncgrad.ops.table import attention

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402  after the check

pytestmark = pytest.mark.torch

NAME = "nn.functional.scaled_dot_product_attention"
#: What is dropped at random is not comparable.
SKIP = {"random": lambda sample: sample.kwargs.get("dropout_p", 0.0) > 0}


def test_attention_matches_pytorch():
    # PyTorch's own fused kernel has no second derivative.
    with sdpa_kernel(SDPBackend.MATH):
        oracle.check(NAME, limit=80, skip=SKIP)


@pytest.mark.parametrize(
    "wanted", [w for w in itertools.product((True, False), repeat=3) if any(w)]
)
def test_gradients_do_not_depend_on_which_are_wanted(wanted):
    """One kernel makes them all, or some."""
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape) for shape in ((2, 4, 3), (2, 5, 3), (2, 5, 2))]
    results = []
    for needed in ((True,) * 3, wanted):
        leaves = [
            ag.from_numpy(x).requires_grad_(flag) for x, flag in zip(arrays, needed, strict=True)
        ]
        (ag.nn.functional.scaled_dot_product_attention(*leaves) ** 2).sum().backward()
        results.append([leaf.grad for leaf in leaves])
    for every, one, flag in zip(*results, wanted, strict=True):
        assert (one is not None) == flag
        if flag:
            np.testing.assert_allclose(one.numpy(), every.numpy(), rtol=0, atol=1e-14)


def test_heads_stay_where_a_projection_has_put_them():
    """Side by side, also in the result and the gradients: each other order would cost a copy."""
    array = np.random.default_rng(0).standard_normal((3, 5, 2, 4))
    results = []
    for library in (ag, torch):
        heads = library.from_numpy(array).transpose(1, 2).requires_grad_()
        out = library.nn.functional.scaled_dot_product_attention(heads, heads, heads)
        out.square().sum().backward()
        results.append((out, heads.grad))
    for ours, theirs in zip(*results, strict=True):
        assert ours.stride() == theirs.stride() == (40, 4, 8, 1)
        np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-12)


def test_gradients_of_given_inputs_are_made_together_after_a_hook(monkeypatch):
    """Each alone would compute the weights again, and a compiled kernel round in another order."""
    calls, weights = [], attention._exponentials_of

    def counted(xp, *arrays):
        calls.append(arrays)
        return weights(xp, *arrays)

    monkeypatch.setattr(attention, "_exponentials_of", counted)
    leaves = [ag.randn(2, 4, 3, requires_grad=True) for _ in range(3)]
    out = ag.nn.functional.scaled_dot_product_attention(*leaves)
    out.register_hook(lambda gradient: gradient * 2)
    ag.grad(out.sum(), leaves, retain_graph=True)
    assert len(calls) == 1
    out.sum().backward(inputs=leaves[:2])
    assert len(calls) == 3


def test_masks_of_empty_batches():
    for m in (torch, ag):
        query, key = (m.zeros(0, 3, n, 2, requires_grad=True) for n in (1, 2))
        mask = m.ones(1, 3, 1, 2, dtype=m.bool)
        out = m.nn.functional.scaled_dot_product_attention(query, key, key, mask)
        gradients = m.autograd.grad(out.sum(), (query, key), create_graph=m is ag)
        assert [tuple(g.shape) for g in gradients] == [(0, 3, 1, 2), (0, 3, 2, 2)]


def _flat(values):
    return [*values[:2], *values[2]]


def _heads(m, separate=False, **more):
    """The arguments of PyTorch's function, the same in both libraries."""
    random = np.random.default_rng(5)

    def made(*shape):
        return m.from_numpy(random.standard_normal(shape)).requires_grad_()

    query, key, value = made(3, 2, 8), made(4, 2, 6 if separate else 8), made(4, 2, 8)
    weights = made(24, 8), made(24)
    rest = made(8, 8), made(8)
    if separate:
        more |= {
            "use_separate_proj_weight": True,
            "q_proj_weight": made(8, 8), "k_proj_weight": made(8, 6), "v_proj_weight": made(8, 8),
        }  # fmt: skip
    if more.pop("static", False):
        more |= {"static_k": made(4, 4, 4), "static_v": made(4, 4, 4)}
    for name in ("attn_mask", "key_padding_mask"):
        if name in more:
            more[name] = m.from_numpy(more[name])
    biases = (made(1, 1, 8), made(1, 1, 8)) if more.pop("biases", False) else (None, None)
    zero = more.pop("zero", False)
    call = (query, key, value, 8, 2, *weights, *biases, zero, 0.0, *rest)
    out, found = m.nn.functional.multi_head_attention_forward(*call, **more)
    total = (out * out).sum() + (0 if found is None else (found * found * found).sum())
    leaves = [query, key, value, weights[1], *rest]
    leaves += [v for k, v in more.items() if k.startswith("static") or k.endswith("weight")]
    leaves = [leaf for leaf in leaves if isinstance(leaf, m.Tensor)]
    return out, found, m.autograd.grad(total, leaves, allow_unused=True)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"separate": True},
        {"need_weights": False},
        {"biases": True, "zero": True, "average_attn_weights": False},
        {"static": True},
        {"attn_mask": np.triu(np.ones((3, 4), bool), 2), "is_causal": True},
        {"key_padding_mask": np.array([[False, True, False, False], [False] * 4])},
    ],
    ids=lambda more: "-".join(more) or "plain",
)
def test_attention_of_heads_from_its_parameters(more):
    expected, found = _heads(torch, **dict(more)), _heads(ag, **dict(more))
    for theirs, ours in zip(_flat(expected), _flat(found), strict=True):
        assert (ours is None) == (theirs is None)
        if theirs is not None:
            np.testing.assert_allclose(
                ours.detach().numpy(), theirs.detach().numpy(), rtol=0, atol=1e-9
            )


def test_attention_of_heads_refuses_what_does_not_fit():
    for m in (ag, torch):
        x, w, b = m.ones(3, 2, 8), m.ones(24, 8), m.ones(24)
        function = m.nn.functional.multi_head_attention_forward
        rest = (w, b, None, None, False, 0.0, m.ones(8, 8), m.ones(8))
        with pytest.raises(AssertionError, match="not divisible by num_heads"):
            function(x, x, x, 8, 3, *rest)
        with pytest.raises(AssertionError, match="embedding dimension"):
            function(x, x, x, 6, 2, *rest)
        with pytest.raises(AssertionError, match="static_k"):
            function(x, x, x, 8, 2, *rest, static_k=m.ones(3, 2, 4))


@pytest.mark.parametrize(("queries", "causal"), [(300, False), (300, True), (5, True), (0, False)])
def test_sums_over_several_tiles_begin_with_the_first(queries, causal):
    """Their memory is not cleared before; a causal tile leaves the later keys out."""
    random = np.random.default_rng(0)
    arrays = [random.standard_normal((1, n, 64)) for n in (queries, 1200, 1200)]
    attention = {m: m.nn.functional.scaled_dot_product_attention for m in (ag, torch)}
    found = {}
    with ag.testing.poisoned_memory():
        for m in (ag, torch):
            leaves = [m.from_numpy(x.copy()).requires_grad_() for x in arrays]
            (attention[m](*leaves, is_causal=causal) ** 2).sum().backward()
            found[m] = [leaf.grad.numpy() for leaf in leaves]
    for ours, theirs in zip(found[ag], found[torch], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_causal_attention_masks_later_keys_of_any_value(value):
    """Only the last query sees the last key; PyTorch's others are NaN, too."""
    array = np.random.default_rng(0).standard_normal((1, 8, 4))
    found = []
    for last in (0, value):
        keys = array.copy()
        keys[0, -1] = last
        x, k = ag.tensor(array), ag.tensor(keys)
        out = ag.nn.functional.scaled_dot_product_attention(x, k, x, is_causal=True)
        found.append(out[0, :-1].numpy())
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (2, 2, 3, 3), (3, 2, 3, 3)])
@pytest.mark.parametrize("dtype", ["bool", "float32"])
@pytest.mark.parametrize("learned", [False, True])
def test_masks_of_another_shape_are_refused(shape, dtype, learned):
    """Rows that no query has would be left out without a word."""
    for T in (torch, ag):
        mask = T.ones(shape, dtype=getattr(T, dtype))
        q = T.ones(1, 2, 3, 4)
        with pytest.raises(RuntimeError):
            T.nn.functional.scaled_dot_product_attention(
                q, q, q, mask.requires_grad_() if learned and dtype != "bool" else mask
            )


@pytest.mark.parametrize("boolean", [True, False])
def test_each_example_has_a_mask_of_its_own(boolean):
    """Also one that leaves a query no key."""
    array = np.random.default_rng(0).standard_normal((2, 3, 4))
    seen = np.array([[[1, 0, 1], [0, 0, 0], [1, 1, 1]], [[1, 1, 0], [1, 1, 1], [0, 1, 0]]], bool)
    results = []
    for T in (torch, ag):
        x = T.tensor(array, requires_grad=True)
        mask = T.tensor(seen if boolean else np.where(seen, 0.5, -np.inf))

        def call(x, mask, T=T):
            return T.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None], mask)

        results.append((T.func.vmap(call)(x, mask), x))
    (expected, theirs), (found, ours) = results
    oracle.compare(expected, found)
    oracle.compare_derivatives(expected, found, [(theirs, ours)], 2)
