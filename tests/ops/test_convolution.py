"""Convolution and pooling."""

import itertools

import numpy as np
import oracle
import pytest

import asyncgrad as ag
from asyncgrad.ops.table import convolution

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

NAMES = (
    "nn.functional.conv1d",
    "nn.functional.conv2d",
    "nn.functional.conv3d",
    "nn.functional.conv_transpose1d",
    "nn.functional.conv_transpose2d",
    "nn.functional.conv_transpose3d",
    "nn.functional.max_pool1d",
    "nn.functional.max_pool2d",
    "nn.functional.avg_pool1d",
    "nn.functional.avg_pool2d",
    "nn.functional.adaptive_avg_pool1d",
    "nn.functional.adaptive_avg_pool2d",
    "nn.functional.adaptive_max_pool1d",
    "nn.functional.adaptive_max_pool2d",
)


test_samples = oracle.as_in_pytorch(NAMES, limit=40)


@pytest.mark.parametrize("channels", [1, 4])
@pytest.mark.parametrize("dilation", [1, 2, 3])
@pytest.mark.parametrize("stride", [1, 2, 3, 4])
def test_gradients_by_inputs_of_strided_convolutions(monkeypatch, stride, dilation, channels):
    """By places between which the strides lie, or place by place for few channels."""
    monkeypatch.setattr(convolution, "_SMALL", 0)
    random = np.random.default_rng(0)
    for kernel, padding, groups in itertools.product((1, 2, 3, 5), (0, 1, 3), (1, 2)):
        x = random.standard_normal((3, channels * groups, 11, 16))
        w = random.standard_normal((8 * groups, channels, kernel, 2))
        if 11 + 2 * padding <= dilation * (kernel - 1):
            continue
        results = []
        for library in (ag, torch):
            a, b = (library.from_numpy(v.copy()).requires_grad_() for v in (x, w))
            options = ((stride, 2), padding, (dilation, 1), groups)
            out = library.nn.functional.conv2d(a, b, None, *options)
            (out * out).sum().backward()
            results.append([t.detach().numpy() for t in (out, a.grad, b.grad)])
        for ours, theirs in zip(*results, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-9)


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("dilation", [1, 4])
@pytest.mark.parametrize("padding", [0, 1, 3])
def test_outputs_of_transposed_convolutions_can_be_longer(stride, dilation, padding):
    """Any output padding below the stride or the dilation, also above the padding."""
    random = np.random.default_rng(0)
    x, w = random.standard_normal((2, 4, 5)), random.standard_normal((4, 3, 3))
    for extra in range(max(stride, dilation)):
        options = {
            "stride": stride, "dilation": dilation, "padding": padding, "output_padding": extra,
        }  # fmt: skip
        results = []
        for library in (ag, torch):
            a, b = (library.from_numpy(v.copy()).requires_grad_() for v in (x, w))
            out = library.nn.functional.conv_transpose1d(a, b, **options)
            (out * out).sum().backward()
            results.append([t.detach().numpy() for t in (out, a.grad, b.grad)])
        for ours, theirs in zip(*results, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-9)


@pytest.mark.parametrize("images", [1, 9])
@pytest.mark.parametrize("stride", [1, 2])
def test_images_without_channels_have_gradients(images, stride):
    x = ag.zeros(images, 0, 3, 4, requires_grad=True)
    weight = ag.zeros(3, 0, 1, 2, requires_grad=True)
    gradients = ag.grad(ag.nn.functional.conv2d(x, weight, stride=stride).sum(), (x, weight))
    assert [g.shape for g in gradients] == [x.shape, weight.shape]


def refused(call):
    try:
        call()
    except Exception as error:
        return oracle.error_class(error)
    return None


@pytest.mark.parametrize(
    "call",
    {
        "padding": lambda F, z: F.conv_transpose1d(z(1, 2, 3), z(2, 3, 2), padding=-1),
        "output padding": lambda F, z: F.conv_transpose1d(z(1, 2, 3), z(2, 3, 2), output_padding=1),
        "channels": lambda F, z: F.conv_transpose1d(z(1, 3, 3), z(2, 3, 2)),
        "no channels": lambda F, z: F.conv_transpose1d(z(9, 0, 3), z(0, 3, 2)),
        "bias": lambda F, z: F.conv_transpose1d(z(1, 2, 3), z(2, 3, 2), z(2)),
        "no image": lambda F, z: F.conv_transpose1d(z(1, 2, 0), z(2, 3, 2), dilation=2),
        "nothing left": lambda F, z: F.conv_transpose1d(z(1, 2, 1), z(2, 3, 2), padding=2),
        "axes": lambda F, z: F.conv_transpose2d(z(1, 2, 3), z(2, 3, 2)),
        "lines": lambda F, z: F.max_pool1d(z(3), 2),
        "windows": lambda F, z: F.avg_pool1d(z(1, 1, 3), 4),
        "sizes": lambda F, z: F.adaptive_avg_pool2d(z(1, 1, 3, 3), (2, 2, 2)),
        "negative": lambda F, z: F.adaptive_max_pool1d(z(1, 1, 3), -1),
        "empty": lambda F, z: F.adaptive_avg_pool1d(z(1, 1, 0), 2),
    }.values(),
)
def test_bad_numbers_are_refused(call):
    theirs = refused(lambda: call(torch.nn.functional, torch.zeros))
    assert theirs is not None
    assert refused(lambda: call(ag.nn.functional, ag.zeros)) is theirs


@pytest.mark.parametrize("shape", [(0, 1, 1), (0, 1, 0), (0, 1, 3)])
@pytest.mark.parametrize("padding", [0, 1])
def test_no_images_have_outputs_of_any_length(shape, padding):
    def outcome(T):
        x = T.zeros(shape, requires_grad=True)
        try:
            out = T.nn.functional.conv_transpose1d(x, T.ones(1, 1, 2), padding=padding)
        except RuntimeError:
            return RuntimeError
        out.sum().backward()
        return tuple(out.shape), tuple(x.grad.shape)

    assert outcome(ag) == outcome(pytest.importorskip("torch"))
