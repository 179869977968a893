"""Attributes and methods of tensors in unusual and wrong use, beside PyTorch's."""

import pytest

short_programs = pytest.importorskip("short_programs", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

TENSORS = """
    x.is_contiguous(memory_format=T.channels_last)
    T.ones(2, 3, 4, 5).is_contiguous(memory_format=T.channels_last)
    T.ones(2, 4, 5, 3).permute(0, 3, 1, 2).is_contiguous(memory_format=T.channels_last)
    T.ones(2, 4, 5, 3).permute(0, 3, 1, 2).is_contiguous(memory_format=T.channels_last_3d)
    T.ones(2, 4, 5, 6, 3).permute(0, 4, 1, 2, 3).is_contiguous(memory_format=T.channels_last_3d)
    T.ones(2, 4, 5, 6, 3).permute(0, 4, 1, 2, 3).is_contiguous(memory_format=T.channels_last)
    T.ones(2, 3, 4, 5).is_contiguous(memory_format=T.preserve_format)
    x.clone(memory_format=T.channels_last)
    x.float(memory_format=T.channels_last)
    x.resize_(2, 1, memory_format=T.channels_last)
    T.zeros_like(x, memory_format=T.channels_last_3d)
    T.full_like(x, 1, memory_format=T.channels_last)
    T.rand_like(x, memory_format=T.channels_last)
    T.empty(2, 3, memory_format=T.channels_last)
    y.requires_grad = False
    x.requires_grad = 1
    del x.requires_grad
    y.requires_grad_().is_leaf
    y.requires_grad_(False)
    i.requires_grad_()
    y.grad is None
    x.grad = 1
    x.grad = x
    x.grad = t([1.0, 2.0], dtype=T.float64)
    x.grad = T.ones(3)
    del x.grad; x.grad is None
    y.grad_dtype
    y.grad_dtype = T.float64
    x.grad_dtype = "float64"
    x.grad_dtype = T.float64; x.grad = T.ones(2, dtype=T.float64); x.grad_dtype = T.float32
    x.data = 1
    x.data = i
    del x.data
    x.set_(T.ones(3))
    T.ones(4).set_(T.arange(6.0), 1, (2, 2))
    T.ones(4).set_(T.arange(6.0), 1, (2, 2), (1, 2))
    T.ones(4).set_(i)
    T.ones(4).set_(i.storage())
    T.ones(4).set_(1)
    T.ones(4).set_().shape
    x.numpy()
    x.numpy(force=True).tolist()
    np.asarray(i, dtype="float32").tolist()
    y.item()
    float(y)
    complex(y[0])
    float(t(1j))
    int(t(2.7))
    bool(x)
    bool(T.ones(0))
    [10, 20, 30][t(1)]
    [10, 20, 30][t(1.0)]
    len(t(1.0))
    iter(t(1.0))
    2.0 in x
    t(2.0) in x
    "a" in x
    del x[0]
    list(reversed(i))
    t(1.0).__reversed__()
    ~x
    ~i
    x.where(x > 1, 0.0)
    t([1j]).abs_()
    c = t([1j, 2.0 + 1j]); c.real = t([3.0, 4.0]); c
    c = t([1j, 2.0 + 1j]); c.imag = 5.0; c
    T.ones(2, 2, 2).H
    x.H
    x.mT
    t(1.0).mT
    f"{t(1.5):.2f}"
    f"{x:.2f}"
    y.retain_grad(); y.retains_grad
    i.retain_grad()
    y.register_post_accumulate_grad_hook(print)
    i.register_hook(print)
    T.ones(4)[1:].detach_()
    T.ones(4)[1:].storage_offset()
    x.is_set_to(x.detach())
    x.as_subclass(int)
    x.size(5)
"""

_BEFORE = """
x = t([1.0, 2.0], requires_grad=True)
y = x * 2
i = t([1, 2])
"""


def test_what_unusual_use_does():
    assert not short_programs.differences(TENSORS, _BEFORE)
