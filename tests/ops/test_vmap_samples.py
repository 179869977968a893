"""Every promised function under `vmap`, over PyTorch's samples: what a loop would give."""

from itertools import product

import numpy as np
import oracle
import pytest
from promised import MUST

import asyncgrad as ag
from asyncgrad.ops.tensors.pytree import flatten, unflatten

pytestmark = pytest.mark.torch

NAMES = [
    name
    for chapter, names in MUST.items()
    if chapter not in {"random", "creation", "not_in_op_db"}
    for name in names
]
#: More functions that read values, count or copy.
NAMES += [
    name
    for name in (
        "cdist", "combinations", "corrcoef", "cov", "cummax", "cummin", "diagonal_scatter", "frexp",
        "gradient", "histc", "histogram", "index_copy", "index_reduce", "kthvalue", "linalg.det",
        "linalg.lstsq", "linalg.lu", "linalg.lu_factor", "linalg.lu_solve", "linalg.matrix_rank",
        "linalg.svdvals", "linalg.vander", "linspace", "logspace", "lu_unpack", "masked_scatter",
        "matrix_exp", "median", "mode", "nanquantile", "nn.functional.adaptive_avg_pool3d",
        "nn.functional.adaptive_max_pool3d", "nn.functional.avg_pool3d", "nn.functional.ctc_loss",
        "nn.functional.embedding_bag", "nn.functional.grid_sample", "nn.functional.max_pool3d",
        "nn.functional.max_unpool2d", "nn.functional.pdist", "put", "quantile", "renorm",
        "repeat_interleave", "scatter_reduce", "select_scatter", "slice_scatter", "stft", "take",
        "trapezoid",
    )
    if name not in NAMES
]  # fmt: skip
#: What has no answer of one shape for each example, with the arguments it is not mapped over.
REFUSED = {
    "nonzero": "as many rows as there are elements that are not zero",
    "masked_select": "as many elements as the mask has ones",
    "nn.functional.one_hot": "as many classes as the greatest number says",
}
#: Samples that are random, or that the function itself refuses.
LEFT_OUT = {
    "nn.functional.dropout": lambda sample: sample.kwargs.get("training", True),
    "nn.functional.scaled_dot_product_attention": lambda sample: sample.kwargs.get("dropout_p"),
}
#: Arguments that are read as numbers, change the others, or belong to all examples.
FIXED = {
    "cov": {1, 2},
    "narrow": {1},
    "nn.functional.embedding": {1},
    "nn.functional.embedding_bag": {2},
    "nn.functional.batch_norm": {0},
}


def _none(sample):
    return False


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in NAMES if name not in REFUSED])
def test_an_example_gets_what_it_would_get_alone(name):
    """Over each tensor argument by itself, and over all of them."""
    function = oracle.resolve(name)
    compared = 0
    for info in oracle.infos(name):
        for sample in oracle.first_samples(info, "float64", 3, requires_grad=False):
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
        # If all are mapped over, the batch is the last axis. It changes what strides reach.
        axis = -1 if len(way) > 1 and name != "as_strided_scatter" else 0
        batches = [
            ag.stack([x, y], axis) if place in way else x
            for place, (x, y) in enumerate(zip(leaves, others, strict=True))
        ]
        dims = tuple(axis if place in way else None for place in range(len(leaves)))
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


#: Functions of a vector, two indices and two values.
OF_INDICES = {
    "diagonal_scatter": lambda x, i, y: ag.diagonal_scatter(ag.outer(x[:2], i * 1.0), y),
    "gather": lambda x, i, y: ag.gather(x, 0, i) * y,
    "index_add": lambda x, i, y: ag.index_add(x, 0, i, y),
    "index_copy": lambda x, i, y: ag.index_copy(x, 0, i, y),
    "index_put": lambda x, i, y: ag.index_put(x, (i,), y),
    "index_reduce": lambda x, i, y: ag.index_reduce(x, 0, i, y, "prod"),
    "masked_scatter": lambda x, i, y: ag.masked_scatter(x[:2], i > 0, y),
    "put": ag.put,
    "scatter": lambda x, i, y: ag.scatter(x, 0, i, y),
    "scatter_add": lambda x, i, y: ag.scatter_add(x, 0, i, y),
    "scatter_reduce": lambda x, i, y: ag.scatter_reduce(x, 0, i, y, "amax"),
    "select_scatter": lambda x, i, y: ag.select_scatter(x[i], y.sum(), 0, 1),
    "slice_scatter": lambda x, i, y: ag.slice_scatter(x[i], y[:1], 0, 0, 1),
    "take": lambda x, i, y: ag.take(x, i) * y,
}
_WAYS = [way for way in product((None, 0), repeat=3) if any(axis == 0 for axis in way)]


@pytest.mark.parametrize("name", OF_INDICES)
def test_operands_may_be_batched_at_different_levels(name):
    """All 49 ways in which three operands have a batch of an outer and of an inner `vmap`."""
    function = OF_INDICES[name]
    operands = ag.tensor([2.0, 3.0, 0.5, 4.0, 1.5]), ag.tensor([0, 2]), ag.tensor([1.0, 7.0])
    for inner, outer in product(_WAYS, _WAYS):
        batches = []
        for x, *axes in zip(operands, inner, outer, strict=True):
            for axis in axes:
                x = x if axis is None else ag.stack([x, x + 1])
            batches.append(x)
        found = ag.func.vmap(ag.func.vmap(function, in_dims=inner), in_dims=outer)(*batches)
        for i, j in product((0, 1), repeat=2):
            alone = [
                x[(i,) * (far == 0) + (j,) * (near == 0)]
                for x, near, far in zip(batches, inner, outer, strict=True)
            ]
            assert found[i, j].tolist() == function(*alone).tolist(), (inner, outer)


@pytest.mark.parametrize(
    "index",
    [
        (None, slice(None), None),
        (None, ..., None, 0),
        (slice(1), None, [0, 1]),
        ([0, 1], None, [0, 1]),
        (0, None, [0, 1]),
        (None, [1], slice(None), None),
    ],
    ids=str,
)
def test_new_axes_in_an_index(index):
    """Also two that are not beside one another."""
    x = ag.arange(12.0).reshape(2, 2, 3)
    index = tuple(ag.tensor(part) if isinstance(part, list) else part for part in index)
    expected = [part[index].tolist() for part in x]
    assert ag.func.vmap(lambda part: part[index])(x).tolist() == expected
    y = ag.zeros_like(x)

    def put(part, values):
        part[index] = values
        return part

    ag.func.vmap(put)(y, ag.func.vmap(lambda part: part[index])(x) + 1)
    assert ag.func.vmap(lambda part: part[index])(y).tolist() == (ag.tensor(expected) + 1).tolist()


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
