"""Arguments that PyTorch's methods take in more than one form."""

import numpy as np
import pytest

import asyncgrad as ag

DTYPES = [ag.int32, np.dtype(np.int32), np.int32]


@pytest.mark.parametrize("dtype", DTYPES, ids=["asyncgrad", "numpy", "class"])
@pytest.mark.parametrize("call", [
    lambda x, dtype: x.view(dtype),
    lambda x, dtype: x.view(dtype=dtype),
    lambda x, dtype: x.to(dtype),
    lambda x, dtype: x.type(dtype),
    lambda x, dtype: x.new_zeros(2, dtype=dtype),
    lambda x, dtype: x.cumsum(0, dtype=dtype),
    lambda x, dtype: x.sum(dtype=dtype),
    lambda x, dtype: x.to_dense(dtype=dtype),
])  # fmt: skip
def test_a_dtype_may_be_asyncgrads_or_numpys(call, dtype):
    assert call(ag.tensor([1.0, 2.0]), dtype).dtype == ag.int32


def test_a_view_as_another_dtype_has_the_same_bits():
    x = ag.tensor([1.0, -2.0])
    assert x.view(ag.int32).tolist() == [0x3F800000, 0xC0000000 - (1 << 32)]
    assert x.view(ag.int32).view(ag.float32).tolist() == [1.0, -2.0]


@pytest.mark.parametrize("name", ["hsplit", "vsplit", "dsplit"])
def test_places_to_split_at_may_be_several_numbers(name):
    x = ag.arange(27.0).reshape(3, 3, 3)
    parts = getattr(x, name)(1, 2)
    expected = getattr(x, name)([1, 2])
    assert len(parts) == 3
    assert [part.tolist() for part in parts] == [part.tolist() for part in expected]


def test_axes_to_count_over_may_be_several_numbers():
    x = ag.arange(24).reshape(2, 3, 4)
    assert x.count_nonzero(0, 1).tolist() == [5, 6, 6, 6]
    assert x.count_nonzero((0, 1)).tolist() == x.count_nonzero(dim=(0, 1)).tolist()


def test_what_is_copied_may_be_given_by_name():
    assert ag.zeros(2).copy_(other=ag.ones(2)).tolist() == [1, 1]


def test_the_operand_is_called_input_where_pytorch_calls_it_so():
    x = ag.arange(3)
    assert ag.nn.functional.one_hot(input=x, num_classes=3).tolist() == ag.eye(3).tolist()
    assert ag.split_with_sizes(input=x, split_sizes=[1, 2])[1].tolist() == [1, 2]


F = ag.nn.functional


@pytest.mark.parametrize("call", [
    lambda x, n: F.layer_norm(x, (3,), eps=n(0.1)),
    lambda x, n: F.rms_norm(x, (3,), eps=n(0.1)),
    lambda x, n: F.group_norm(x, 1, eps=n(0.1)),
    lambda x, n: F.batch_norm(x, None, None, training=True, momentum=n(0.1), eps=n(0.1)),
    lambda x, n: F.instance_norm(x[None], eps=n(0.1)),
    lambda x, n: F.cosine_similarity(x, x, eps=n(0.1)),
    lambda x, n: F.pad(x, (1, 1), value=n(2.0)),
    lambda x, n: F.avg_pool2d(x[None], 2, divisor_override=n(3)),
    lambda x, n: F.multi_margin_loss(x, ag.tensor([0, 1]), p=n(2)),
    lambda x, n: x.renorm(n(1), 0, n(2.0)), lambda x, n: (x / 9).logit(n(0.25)),
    lambda x, n: x.lerp(x * 2, n(0.5)),
    lambda x, n: ag.histc(x, n(3), n(0.5), n(5)),
    lambda x, n: ag.cdist(x, x, n(1.0)),
    lambda x, n: F.softplus(x, n(0.5), n(2.0)),
    lambda x, n: F.smooth_l1_loss(x, x * 2, beta=n(0.3)),
    lambda x, n: F.cross_entropy(x, ag.tensor([0, 1]), label_smoothing=n(0.1)),
    lambda x, n: F.rrelu(-x, n(0.25), n(0.25), training=True),
])  # fmt: skip
@pytest.mark.parametrize("kind", [np.array, ag.tensor], ids=["numpy", "tensor"])
def test_a_number_may_be_numpys_or_a_tensor_without_axes(call, kind):
    x = ag.arange(1.0, 7.0).reshape(2, 3)
    given = call(x, lambda number: kind(number, dtype="f8" if number % 1 else None)[()])
    expected = call(x, lambda number: number)
    assert given.dtype == expected.dtype
    assert given.tolist() == expected.tolist()


@pytest.mark.parametrize("call", [
    lambda x, axis: ag.softmax(x, **axis),
    lambda x, axis: x.log_softmax(**axis),
    lambda x, axis: F.cosine_similarity(x, x + 1, **axis),
    lambda x, axis: ag.trapezoid(x, **axis),
    lambda x, axis: ag.cumulative_trapezoid(x, **axis),
    lambda x, axis: ag.gradient(x, **axis)[0],
    lambda x, axis: ag.select_scatter(x, x[:, 0], index=1, **axis),
    lambda x, axis: ag.unsafe_chunk(x, 2, **axis)[1],
    lambda x, axis: ag.unsafe_split(x, 2, **axis)[0],
    lambda x, axis: x.split_with_sizes([1, 2], **axis)[1],
])  # fmt: skip
def test_an_axis_may_be_called_axis(call):
    x = ag.arange(6.0).reshape(2, 3)
    assert call(x, {"axis": 1}).tolist() == call(x, {"dim": 1}).tolist()


@pytest.mark.parametrize("name", ["tensor_split", "hsplit"])
def test_places_to_split_at_have_a_name_for_each_kind(name):
    split, along = getattr(ag, name), {"dim": 1} if name == "tensor_split" else {}
    x = ag.arange(12).reshape(2, 6)
    assert [part.shape[1] for part in split(x, sections=3, **along)] == [2, 2, 2]
    assert [part.shape[1] for part in split(x, indices=[1, 3], **along)] == [1, 2, 3]
    assert [part.shape[1] for part in split(x, np.int64(2), **along)] == [3, 3]
    assert [part.shape[1] for part in x.split_with_sizes(split_sizes=[2, 4], dim=1)] == [2, 4]


def test_a_shape_to_sum_to_may_have_its_name():
    x = ag.ones(2, 3)
    assert x.sum_to_size(size=(1, 3)).tolist() == x.sum_to_size(1, 3).tolist() == [[2.0, 2.0, 2.0]]
