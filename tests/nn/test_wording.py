"""Errors of layers contain PyTorch's words, for which users search."""

import numpy as np
import pytest

import asyncgrad as ag

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", reason="PyTorch is not installed")


def attend(m, *shapes, **masks):
    q, k, v = (m.ones(*shape, 4) for shape in shapes)
    m.nn.MultiheadAttention(4, 2)(q, k, v, **{k: m.ones(*s) for k, s in masks.items()})


def parametrize(m, returned, times=1):
    class Same(m.nn.Module):
        def forward(self, *x):
            return x[0]

    class Wrong(Same):
        def right_inverse(self, x):
            return returned(x)

    layer = m.nn.Linear(2, 2)
    for module in [Same()] * (times - 1) + [Wrong()]:
        m.nn.utils.parametrize.register_parametrization(layer, "weight", module)


#: Calls that raise, with the words that both messages contain.
CASES = {
    "expected `key` and `value` to be 3-D but found 2-D and 3-D tensors respectively": lambda m: (
        attend(m, (2, 2), (2,), (2, 2))
    ),
    "For unbatched (2-D) `query`, expected `key` and": lambda m: attend(m, (2,), (2, 2), (2, 2)),
    "expected `key_padding_mask` to be `None` or 1-D but found 2-D": lambda m: attend(
        m, (2,), (2,), (2,), key_padding_mask=(2, 2)
    ),
    "expected `attn_mask` to be `None`, 2-D or 3-D but found 1-D": lambda m: attend(
        m, (2, 2), (2, 2), (2, 2), attn_mask=(2,)
    ),
    "right_inverse must return a tensor": lambda m: parametrize(m, lambda x: (x, x), 2),
    "Got element 0 of the sequence with type NoneType": lambda m: parametrize(
        m, lambda x: (None, x)
    ),
    "must return a Tensor or a Sequence of tensors (list, tuple...). Got int": lambda m: (
        parametrize(m, lambda x: 3)
    ),
    "Registering a parametrization may not change the shape of the tensor": lambda m: parametrize(
        m, lambda x: x[0]
    ),
    "Tensor-like object from checkpoint but received <class 'numpy.ndarray'>": lambda m: (
        m.nn.Linear(2, 2, bias=False).load_state_dict({"weight": np.ones((2, 2))})
    ),
    "Expected iterable for input sequences, but got arg of type": lambda m: (
        m.nn.utils.rnn.pad_sequence(5)
    ),
    "Cannot pack empty tensors": lambda m: m.nn.utils.rnn.pack_padded_sequence(m.ones(0, 0), []),
    "have the same type as": lambda m: m.nn.functional.embedding_bag(
        m.tensor([[0]]), m.ones(4, 2), per_sample_weights=m.ones(1, 1).double(), mode="sum"
    ),
    "to have non-zero size for non-batch dimensions": lambda m: m.nn.FractionalMaxPool2d(
        2, output_size=1
    )(m.ones(1, 0, 8, 8)),
}


@pytest.mark.parametrize("words", CASES)
def test_errors_contain_pytorchs_words(words):
    classes = []
    for m in (torch, ag):
        with pytest.raises(Exception) as caught:  # noqa: PT011
            CASES[words](m)
        assert words in str(caught.value)
        classes.append(type(caught.value))
    assert issubclass(classes[1], classes[0])


@pytest.mark.parametrize("name", ["long", "int", "short", "char", "byte", "half", "double"])
def test_packed_sequences_convert_as_pytorchs(name):
    names = []
    for m in (torch, ag):
        packed = m.nn.utils.rnn.pack_sequence([m.ones(2), m.ones(1)])
        names.append(str(getattr(packed, name)().data.dtype).rpartition(".")[2])
    assert names[0] == names[1]
