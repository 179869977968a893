"""Convolutions and pooling beside PyTorch."""

import pytest
from module_parity import X, check, refusal

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

LINE, IMAGE, VOLUME = (2, 4, 9), (2, 4, 6, 7), (1, 2, 4, 3, 5)
LAYERS = {
    "conv1d": (lambda nn: nn.Conv1d(4, 6, 3), LINE),
    "conv1d_same": (lambda nn: nn.Conv1d(4, 6, 4, padding="same", dilation=2), LINE),
    "conv1d_unbatched": (lambda nn: nn.Conv1d(4, 6, 3, bias=False), (4, 9)),
    "conv1d_circular": (
        lambda nn: nn.Conv1d(4, 6, 4, padding="same", padding_mode="circular"),
        LINE,
    ),
    "conv2d": (lambda nn: nn.Conv2d(4, 6, 3, padding=1), IMAGE),
    "conv2d_options": (
        lambda nn: nn.Conv2d(4, 6, (3, 2), (2, 1), (1, 0), (1, 2), groups=2, bias=False),
        IMAGE,
    ),
    "conv2d_valid": (lambda nn: nn.Conv2d(4, 6, 3, padding="valid"), IMAGE),
    "conv2d_reflect": (
        lambda nn: nn.Conv2d(4, 6, 3, padding=(2, 1), padding_mode="reflect"),
        IMAGE,
    ),
    "conv2d_replicate": (
        lambda nn: nn.Conv2d(4, 6, 3, padding=(2, 1), padding_mode="replicate"),
        IMAGE,
    ),
    "conv3d": (lambda nn: nn.Conv3d(2, 3, 2, stride=(1, 1, 2), padding=1), VOLUME),
    "conv_transpose1d": (lambda nn: nn.ConvTranspose1d(4, 6, 3, 2, 1, 1), LINE),
    "conv_transpose2d": (
        lambda nn: nn.ConvTranspose2d(4, 6, (3, 2), (2, 3), (1, 0), (1, 2), 2, dilation=(1, 2)),
        IMAGE,
    ),
    "conv_transpose2d_no_bias": (lambda nn: nn.ConvTranspose2d(4, 2, 3, bias=False), IMAGE),
    "conv_transpose3d": (lambda nn: nn.ConvTranspose3d(2, 3, 2, padding=1), VOLUME),
    "max_pool1d": (lambda nn: nn.MaxPool1d(3, 2, padding=1), LINE),
    "max_pool1d_ceil": (lambda nn: nn.MaxPool1d(2, ceil_mode=True, dilation=3), (4, 9)),
    "max_pool2d": (lambda nn: nn.MaxPool2d(2), IMAGE),
    "max_pool2d_options": (lambda nn: nn.MaxPool2d((3, 2), (2, 1), (1, 0), (1, 2)), IMAGE),
    "max_pool2d_indices": (lambda nn: nn.MaxPool2d(2, return_indices=True), IMAGE),
    "max_pool1d_indices": (lambda nn: nn.MaxPool1d(2, return_indices=True), LINE),
    "avg_pool1d": (lambda nn: nn.AvgPool1d(3, 2, 1, count_include_pad=False), LINE),
    "avg_pool2d": (lambda nn: nn.AvgPool2d(3, 2, 1, ceil_mode=True), IMAGE),
    "avg_pool2d_divisor": (lambda nn: nn.AvgPool2d((2, 3), divisor_override=5), IMAGE),
    "adaptive_avg_pool1d": (lambda nn: nn.AdaptiveAvgPool1d(4), LINE),
    "adaptive_avg_pool1d_even": (lambda nn: nn.AdaptiveAvgPool1d(3), LINE),
    "adaptive_avg_pool2d": (lambda nn: nn.AdaptiveAvgPool2d((4, None)), IMAGE),
    "adaptive_avg_pool2d_one": (lambda nn: nn.AdaptiveAvgPool2d(1), IMAGE),
    "adaptive_max_pool1d": (lambda nn: nn.AdaptiveMaxPool1d(4), LINE),
    "adaptive_max_pool2d": (lambda nn: nn.AdaptiveMaxPool2d((4, 5), return_indices=True), IMAGE),
    "adaptive_max_pool2d_even": (lambda nn: nn.AdaptiveMaxPool2d((3, 7)), IMAGE),
    "unflatten": (lambda nn: nn.Unflatten(1, (2, -1)), LINE),
    "unflatten_list": (lambda nn: nn.Unflatten(-1, [3, 3]), LINE),
}


@pytest.mark.parametrize(("make", "shape"), LAYERS.values(), ids=LAYERS)
def test_layers_of_images(make, shape):
    check(make, X(shape))
    assert repr(make(ag.nn)) == repr(make(torch.nn))


@pytest.mark.parametrize("size", [(12, 14), (2, 4, 11, 13)])
def test_the_output_size_of_a_transposed_convolution_can_be_chosen(size):
    check(lambda nn: nn.ConvTranspose2d(4, 4, 3, 2, 1), X(IMAGE), output_size=size)


REFUSED = {
    "groups": lambda nn: nn.Conv2d(4, 4, 1, groups=0),
    "channels in": lambda nn: nn.Conv2d(3, 4, 1, groups=2),
    "channels out": lambda nn: nn.Conv2d(4, 3, 1, groups=2),
    "padding": lambda nn: nn.Conv2d(4, 3, 1, padding="sam"),
    "strided": lambda nn: nn.Conv2d(4, 3, 1, 2, padding="same"),
    "padding mode": lambda nn: nn.Conv2d(4, 3, 1, padding_mode="zero"),
    "transposed mode": lambda nn: nn.ConvTranspose2d(4, 3, 1, padding_mode="reflect"),
    "unflatten": lambda nn: nn.Unflatten(1, 2),
    "unflatten lengths": lambda nn: nn.Unflatten(1, (2, 1.5)),
}


@pytest.mark.parametrize("make", REFUSED.values(), ids=REFUSED)
def test_layers_that_can_not_be_made(make):
    with pytest.raises(refusal(lambda: make(torch.nn))):
        make(ag.nn)


@pytest.mark.parametrize("size", [(9, 9), (1, 2, 3)])
def test_output_sizes_that_can_not_be(size):
    for library in (torch, ag):
        with pytest.raises(ValueError, match="output"):
            library.nn.ConvTranspose2d(4, 4, 3, 2, 1)(library.zeros(IMAGE), size)
