"""Attention and transformers beside PyTorch."""

import numpy as np
import pytest
from module_parity import X, check, refusal

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

QUERIES, KEYS, BATCH, HEADS = 3, 5, 2, 2
Q, K = X((QUERIES, BATCH, 6)), X((KEYS, BATCH, 6))
HIDDEN = np.arange(QUERIES * KEYS).reshape(QUERIES, KEYS) % 4 == 1
PADDED = np.array([[False, False, True, False, True], [False] * 4 + [True]])
ADDED = X((BATCH * HEADS, QUERIES, KEYS))


ATTENTION = {
    "plain": {},
    "no_bias": {"bias": False},
    "extra": {"add_bias_kv": True, "add_zero_attn": True},
    "no_weights": {"need_weights": False},
    "extra_no_weights": {"add_bias_kv": True, "add_zero_attn": True, "need_weights": False},
    "each_head": {"average_attn_weights": False},
    "booleans": {"attn_mask": HIDDEN, "key_padding_mask": PADDED},
    "booleans_no_weights": {
        "attn_mask": HIDDEN, "key_padding_mask": PADDED, "need_weights": False,
    },
    "numbers": {"attn_mask": ADDED},
    "numbers_no_weights": {"attn_mask": ADDED, "need_weights": False},
    "padding_only": {"key_padding_mask": PADDED, "need_weights": False},
    "extra_and_masks": {
        "add_bias_kv": True, "add_zero_attn": True, "attn_mask": HIDDEN,
        "key_padding_mask": PADDED,
    },
}  # fmt: skip
OPTIONS = {"bias", "add_bias_kv", "add_zero_attn"}


def parted(keywords):
    """The options of the layer, and the arguments of the call."""
    options = {key: value for key, value in keywords.items() if key in OPTIONS}
    return options, {key: value for key, value in keywords.items() if key not in OPTIONS}


@pytest.mark.parametrize("keywords", ATTENTION.values(), ids=ATTENTION)
def test_attention(keywords):
    options, arguments = parted(keywords)
    check(lambda nn: nn.MultiheadAttention(6, HEADS, **options), Q, K, K + 1, **arguments)


def test_attention_to_itself():
    """One product makes queries, keys and values."""
    x = ag.from_numpy(Q).requires_grad_()
    y = torch.from_numpy(Q).requires_grad_()
    other = torch.nn.MultiheadAttention(6, HEADS, batch_first=True).double()
    mine = ag.nn.MultiheadAttention(6, HEADS, batch_first=True).double()
    mine.load_state_dict({k: ag.from_numpy(v.numpy()) for k, v in other.state_dict().items()})
    for need_weights in (True, False):
        (a, _), (b, _) = (m(t, t, t, need_weights=need_weights) for m, t in ((mine, x), (other, y)))
        (a * a).sum().backward()
        (b * b).sum().backward()
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), atol=1e-12)
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), atol=1e-12)


def test_attention_with_features_of_its_own():
    key, value = X((KEYS, BATCH, 4)), X((KEYS, BATCH, 7))
    check(lambda nn: nn.MultiheadAttention(6, HEADS, kdim=4, vdim=7), Q, key, value)
    check(lambda nn: nn.MultiheadAttention(6, HEADS, kdim=4, vdim=7, bias=False), Q, key, value)


def test_attention_without_a_batch():
    check(
        lambda nn: nn.MultiheadAttention(6, HEADS), Q[:, 0], K[:, 0], K[:, 1],
        key_padding_mask=PADDED[0], attn_mask=HIDDEN,
    )  # fmt: skip


def test_attention_with_the_batch_first():
    q, k = Q.swapaxes(0, 1).copy(), K.swapaxes(0, 1).copy()
    check(lambda nn: nn.MultiheadAttention(6, HEADS, batch_first=True), q, k, k + 1)
    causal = np.triu(np.ones((KEYS, KEYS), bool), 1)
    check(
        lambda nn: nn.MultiheadAttention(6, HEADS, batch_first=True), k, k, k,
        attn_mask=causal, is_causal=True, need_weights=False,
    )  # fmt: skip


def test_weights_are_dropped_in_training_alone():
    ag.manual_seed(3)
    layer = ag.nn.MultiheadAttention(6, HEADS, dropout=0.5).double()
    q, k = ag.from_numpy(Q), ag.from_numpy(K)
    first, weights = layer(q, k, k, average_attn_weights=False)
    assert (weights == 0).any()
    assert not (first == layer(q, k, k)[0]).all()
    layer.eval()
    assert (layer(q, k, k)[0] == layer(q, k, k)[0]).all()


REFUSED = {
    "no heads": lambda nn, z: nn.MultiheadAttention(6, 0),
    "heads": lambda nn, z: nn.MultiheadAttention(6, 4),
    "features": lambda nn, z: nn.MultiheadAttention(6, 2)(z(3, 2, 5), z(3, 2, 5), z(3, 2, 5)),
    "lengths": lambda nn, z: nn.MultiheadAttention(6, 2)(z(3, 2, 6), z(3, 2, 6), z(4, 2, 6)),
    "axes": lambda nn, z: nn.MultiheadAttention(6, 2)(z(6), z(6), z(6)),
    "mixed axes": lambda nn, z: nn.MultiheadAttention(6, 2)(z(3, 2, 6), z(3, 6), z(3, 6)),
    "mask": lambda nn, z: nn.MultiheadAttention(6, 2)(
        z(3, 2, 6), z(3, 2, 6), z(3, 2, 6), attn_mask=z(2, 3)
    ),
    "mask axes": lambda nn, z: nn.MultiheadAttention(6, 2)(
        z(3, 2, 6), z(3, 2, 6), z(3, 2, 6), attn_mask=z(3)
    ),
    "padding": lambda nn, z: nn.MultiheadAttention(6, 2)(
        z(3, 2, 6), z(3, 2, 6), z(3, 2, 6), key_padding_mask=z(3, 2)
    ),
    "hint": lambda nn, z: nn.MultiheadAttention(6, 2)(
        z(3, 2, 6), z(3, 2, 6), z(3, 2, 6), is_causal=True
    ),
    "activation": lambda nn, z: nn.TransformerEncoderLayer(6, 2, activation="tanh"),
    "batches": lambda nn, z: nn.Transformer(6, 2, 1, 1, 8)(z(3, 2, 6), z(3, 1, 6)),
    "model": lambda nn, z: nn.Transformer(6, 2, 1, 1, 8)(z(3, 2, 5), z(3, 2, 5)),
}


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_refused(call):
    with pytest.raises(refusal(lambda: call(torch.nn, torch.zeros))):
        call(ag.nn, ag.zeros)


def layer(nn, kind="Encoder", **options):
    make = getattr(nn, f"Transformer{kind}Layer")
    return make(6, HEADS, 8, dropout=0.0, **options)


CAUSAL = np.triu(np.full((QUERIES, QUERIES), -np.inf), 1)


@pytest.mark.parametrize(
    "options",
    [{}, {"norm_first": True}, {"activation": "gelu"}, {"bias": False}, {"batch_first": True}],
)
def test_encoder_layers(options):
    check(lambda nn: layer(nn, **options), Q)
    assert repr(layer(ag.nn, **options)) == repr(layer(torch.nn, **options))


def test_encoder_layers_with_masks():
    check(layer, Q, CAUSAL, np.array([[False, False, True], [False] * 3]).astype(float))
    check(layer, Q, CAUSAL, is_causal=True)


def test_activations_may_be_modules():
    check(lambda nn: layer(nn, activation=nn.SiLU()), Q)


@pytest.mark.parametrize("options", [{}, {"norm_first": True}])
def test_decoder_layers(options):
    check(lambda nn: layer(nn, "Decoder", **options), Q, K)
    check(lambda nn: layer(nn, "Decoder", **options), Q, K, CAUSAL, ADDED, tgt_is_causal=True)
    assert repr(layer(ag.nn, "Decoder", **options)) == repr(layer(torch.nn, "Decoder", **options))


def stack(nn, kind, norm):
    options = {"enable_nested_tensor": False} if kind == "Encoder" else {}
    last = nn.LayerNorm(6) if norm else None
    return getattr(nn, f"Transformer{kind}")(layer(nn, kind), 2, last, **options)


@pytest.mark.parametrize("norm", [True, False])
def test_stacks(norm):
    check(lambda nn: stack(nn, "Encoder", norm), Q)
    check(lambda nn: stack(nn, "Encoder", norm), Q, CAUSAL, is_causal=True)
    check(lambda nn: stack(nn, "Decoder", norm), Q, K, tgt_mask=CAUSAL)
    assert repr(stack(ag.nn, "Encoder", norm)) == repr(stack(torch.nn, "Encoder", norm))


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_transformers():
    check(lambda nn: nn.Transformer(6, HEADS, 1, 2, 8, 0.0), K, Q, tgt_mask=CAUSAL)
    ours, theirs = (
        m.nn.Transformer.generate_square_subsequent_mask(4).numpy() for m in (ag, torch)
    )
    np.testing.assert_array_equal(ours, theirs)
