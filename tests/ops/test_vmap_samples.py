"""Every promised function under `vmap`, over PyTorch's samples: what a loop would give."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
from promised import MUST
from recorded_calls import FUNCTIONS

import asyncgrad as ag
from asyncgrad.ops.tensors.pytree import flatten, unflatten

pytestmark = pytest.mark.torch

NAMES = [
    name
    for chapter, names in MUST.items()
    if chapter not in {"random", "creation", "not_in_op_db"}
    for name in names
]
#: What has no answer of one shape for each example, with the arguments it is not mapped over.
REFUSED = {
    "nonzero": "as many rows as there are elements that are not zero",
    "masked_select": "as many elements as the mask has ones",
    "nn.functional.one_hot": "as many classes as the greatest number says",
}
#: Samples that are random, or that the function itself refuses.
LEFT_OUT = {
    "to": lambda sample: "channels_last" in str(sample.kwargs.get("memory_format")),
    "nn.functional.dropout": lambda sample: sample.kwargs.get("training", True),
    "nn.functional.scaled_dot_product_attention": lambda sample: sample.kwargs.get("dropout_p"),
}
#: Arguments that are read as numbers, change the others, or belong to all examples.
FIXED = {
    "narrow": {1},
    "nn.functional.embedding": {1},
    "nn.functional.batch_norm": {0},
}


def _none(sample):
    return False


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in NAMES if name not in REFUSED])
def test_an_example_gets_what_it_would_get_alone(name):
    """Over each tensor argument by itself, and over all of them."""
    function = FUNCTIONS.get(name) or oracle.resolve(name)
    compared = 0
    for info in oracle.infos(name):
        for sample in oracle.first_samples(info, "float64", 2, requires_grad=False):
            if not LEFT_OUT.get(name, _none)(sample):
                compared += _compare(name, function, sample)
    assert compared


def _compare(name, function, sample):
    """How many ways of mapping over a sample's arguments there are, all of them compared."""
    _, arguments = oracle.Twins(copy=True).of(((sample.input, *sample.args), sample.kwargs))
    leaves, structure = flatten(arguments)
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, ag.Tensor)]
    mapped = [place for number, place in enumerate(places) if number not in FIXED.get(name, ())]

    def call(*given):
        args, kwargs = unflatten(structure, given)
        return function(*args, **kwargs)

    ways = [(place,) for place in mapped] + ([tuple(mapped)] if len(mapped) > 1 else [])
    for way in ways:
        others = [_turned(x) if place in way else x for place, x in enumerate(leaves)]
        expected = [call(*leaves), call(*others)]
        batches = [
            ag.stack([x, y]) if place in way else x
            for place, (x, y) in enumerate(zip(leaves, others, strict=True))
        ]
        dims = tuple(0 if place in way else None for place in range(len(leaves)))
        found = flatten(ag.func.vmap(call, in_dims=dims)(*batches))[0]
        for i, alone in enumerate(expected):
            for x, batch in zip(flatten(alone)[0], found, strict=True):
                assert x.dtype == batch.dtype
                assert x.shape == batch.shape[1:]
                np.testing.assert_allclose(batch[i].numpy(), x.numpy(), rtol=1e-9, atol=1e-9)
    return len(ways)


def _turned(x):
    """The same values at other places, so that they stay where the function is defined."""
    array = x.numpy()
    return ag.from_numpy(np.roll(array.reshape(-1), 1).reshape(array.shape))


@pytest.mark.parametrize("name", REFUSED)
def test_results_whose_size_depends_on_values_are_refused(name):
    x = ag.tensor([[1.0, 0.0], [1.0, 1.0]])
    calls = {
        "nonzero": ag.nonzero,
        "masked_select": lambda x: ag.masked_select(x, x > 0),
        "nn.functional.one_hot": lambda x: ag.nn.functional.one_hot(x.long()),
    }
    with pytest.raises(RuntimeError, match="dynamic shape"):
        ag.func.vmap(calls[name])(x)
