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
