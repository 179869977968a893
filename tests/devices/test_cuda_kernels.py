"""Kernels in one launch give what the chains give, and are compiled beside the loop."""

import asyncio
import itertools
import threading
import warnings
from functools import partial

import numpy as np
import pytest
from cupy_stand_in import installed
from declared_updates import CASES, OPTIMIZERS

import asyncgrad as ag
import asyncgrad.nn.functional as F
from asyncgrad.devices.cuda_kernels import Kernels
from asyncgrad.devices.kernels import FUNCTIONS, SOURCES

X = np.random.default_rng(0).standard_normal((6, 5))
TARGET = [0, 4, 1, 1, 2, 3]


@pytest.fixture
def cupy(monkeypatch):
    return installed(monkeypatch, devices=2)


def norm(x, *parameters):
    return F.layer_norm(x, (5,), *(ag.linspace(*p, 5).to(x.device, x.dtype) for p in parameters))


def batch_norm(x, count):
    """Over so many channels of 30 numbers."""
    weight, bias = (ag.linspace(start, 2, count).to(x.device, x.dtype) for start in (1, 0))
    return F.batch_norm(x.reshape(3, count, -1), None, None, weight, bias, training=True)


def recurrent(kind, x, **options):
    """A layer over three steps of two sequences."""
    layer = getattr(ag.nn, kind)(5, 3, device=x.device, dtype=x.dtype, **options)
    with ag.no_grad():
        for p in layer.parameters():
            p.copy_(ag.linspace(-1, 1, p.numel()).reshape(p.shape))
    return layer(x.reshape(3, 2, 5))[0]


CHAINS = {
    "relu": F.relu,
    "sigmoid": ag.sigmoid,
    "tanh": ag.tanh,
    "batch_norm": lambda x: batch_norm(x, 2),
    "batch_norm of one channel": lambda x: batch_norm(x, 1),
    "batch_norm of an input without a gradient": lambda x: F.batch_norm(
        x.detach().reshape(3, 2, 5), None, None, x[0, :2], x[1, :2], training=True
    ),
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.1),
    "elu": lambda x: F.elu(x, 0.5),
    "softplus": lambda x: F.softplus(x, 2, 1),
    "mish": F.mish,
    "logsigmoid": F.logsigmoid,
    "hardswish": lambda x: F.hardswish(x * 4),
    "mse_loss": lambda x: F.mse_loss(x, x.detach() * x.detach()),
    "mse_loss of each": lambda x: F.mse_loss(x, x.detach() * 2, reduction="none"),
    "l1_loss": lambda x: F.l1_loss(x, x.detach() * x.detach()),
    "l1_loss of each": lambda x: F.l1_loss(x, x.detach() * 2, reduction="none"),
    "huber_loss": lambda x: F.huber_loss(x, x.detach() * 3, delta=0.7),
    "huber_loss of each": lambda x: F.huber_loss(x, x.detach() * 3, reduction="none", delta=0.7),
    "binary_cross_entropy_with_logits": lambda x: F.binary_cross_entropy_with_logits(
        x, ag.sigmoid(x.detach())
    ),
    "binary_cross_entropy_with_logits of each": lambda x: F.binary_cross_entropy_with_logits(
        x, ag.sigmoid(x.detach()), reduction="none"
    ),
    "softmax": lambda x: F.softmax(x, 1),
    "softmax by columns": lambda x: F.softmax(x, 0),
    "log_softmax": lambda x: F.log_softmax(x, 1),
    "layer_norm": lambda x: norm(x, (1, 2), (0, 1)),
    "layer_norm of weights": lambda x: norm(x, (1, 2)),
    "layer_norm alone": norm,
    "rms_norm": lambda x: F.rms_norm(x, (5,), ag.linspace(1, 2, 5).to(x.device, x.dtype)),
    "rms_norm alone": lambda x: F.rms_norm(x, (5,)),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
    "attention where all is masked": lambda x: F.scaled_dot_product_attention(
        x[None], x[None] * 2, x[None] * 3, ag.tensor([True, False] * 3, device=x.device)[:, None]
    ),
    "cross_entropy": lambda x: F.cross_entropy(x, ag.tensor(TARGET, device=x.device)),
    "cross_entropy of one": lambda x: F.cross_entropy(x[0], ag.tensor(3, device=x.device)),
    "cross_entropy of each": lambda x: F.cross_entropy(
        x, ag.tensor(TARGET, device=x.device), reduction="none", label_smoothing=0.1
    ),
    "cross_entropy of one, smoothed": lambda x: F.cross_entropy(
        x[:1], ag.tensor(TARGET[:1], device=x.device), label_smoothing=0.1
    ),
    "rnn": lambda x: recurrent("RNN", x),
    "rnn of relu": lambda x: recurrent("RNN", x, nonlinearity="relu"),
    "gru": lambda x: recurrent("GRU", x, bidirectional=True),
    "lstm": lambda x: recurrent("LSTM", x),
    "lstm of projected states": lambda x: recurrent("LSTM", x, proj_size=2),
    "nll_loss": lambda x: F.nll_loss(x, ag.tensor(TARGET, device=x.device)),
}


def gradients(function, device, dtype):
    x = ag.tensor(X, device=device, dtype=dtype, requires_grad=True)
    out = function(x)
    (out * out).sum().backward()
    return out.detach().cpu().numpy(), x.grad.cpu().numpy()


@pytest.mark.parametrize("dtype", [ag.float32, ag.float64, ag.float16])
@pytest.mark.parametrize("name", CHAINS)
def test_one_launch_gives_what_a_chain_gives(name, dtype, cupy):
    found, expected = (gradients(CHAINS[name], place, dtype) for place in ("cuda:0", "cpu"))
    rtol = {"float16": 1e-2, "float32": 1e-4, "float64": 1e-10}[dtype.name]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol)
    kernels = ag.device("cuda:0")._kernels
    assert kernels._ready or dtype == ag.float16
    assert not kernels._refused


def stepped(device, name, options):
    p = ag.tensor(X, device=device, requires_grad=True)
    optimiser = OPTIMIZERS[name]([p], **options)
    for _ in range(8):
        optimiser.zero_grad()
        (p * p).sum().backward()
        optimiser.step()
    return p.detach().cpu().numpy()


@pytest.mark.parametrize(("name", "options"), CASES)
def test_a_step_in_one_launch(name, options, cupy):
    found, expected = (stepped(place, name, options) for place in ("cuda:0", "cpu"))
    np.testing.assert_allclose(found, expected, rtol=1e-8)
    kernels = ag.device("cuda:0")._kernels
    assert not kernels._refused
    assert vars(kernels)[name.split(",")[0]].launched > 8


def test_every_kernel_is_used(cupy):
    for name in CHAINS:
        gradients(CHAINS[name], "cuda:0", ag.float64)
    for name in OPTIMIZERS:
        stepped("cuda:0", name, {})
    device = ag.device("cuda:0")
    assert {name for name, *_ in device._kernels._ready} == FUNCTIONS.keys()
    assert SOURCES.keys() <= vars(device._kernels).keys()


TARGETS = {
    "all count": [[0, 3, 1], [1, 2, 0]],
    "some are ignored": [[-100, 3, 1], [1, -100, 0]],
    "all are ignored": [[-100, -100, -100]] * 2,
    "one is out of range": [[0, 4, 1], [1, -100, 0]],
    "one is negative": [[0, -1, 1], [1, 2, 0]],
}


@pytest.mark.parametrize("dtype", [ag.float32, ag.float64])
@pytest.mark.parametrize("weights", [None, [0.5, 1, 0, 2], [0.0] * 4])
@pytest.mark.parametrize("classes", TARGETS)
def test_class_losses(classes, weights, dtype, cupy, monkeypatch):
    """With images, and as the chain gives them; ignored ones may hold NaN."""
    values = np.random.default_rng(0).standard_normal((2, 4, 3))
    values[0, :, 0] = np.nan if classes == "some are ignored" else 1

    def results():
        found = []
        target = ag.tensor(TARGETS[classes], device="cuda:0")
        weight = None if weights is None else ag.tensor(weights, device="cuda:0", dtype=dtype)
        for reduction, smoothing in itertools.product(("mean", "sum", "none"), (0, 0.1, None)):
            x = ag.tensor(values, device="cuda:0", dtype=dtype, requires_grad=True)
            function = F.nll_loss
            if smoothing is not None:
                function = partial(F.cross_entropy, label_smoothing=smoothing)
            loss = function(x, target, weight, reduction=reduction)
            loss.sum().backward()
            found += [loss.detach().cpu().numpy(), x.grad.cpu().numpy()]
        return found

    found = results()
    assert not ag.device("cuda:0")._kernels._refused
    monkeypatch.setattr(Kernels, "_run", lambda *arguments: NotImplemented)
    installed(monkeypatch)
    for one, other in zip(found, results(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_launches_of_a_class_loss(cupy):
    x, target = ag.ones(4, 5, device="cuda:0"), ag.zeros(4, dtype=ag.int64, device="cuda:0")
    for function, launches in ((F.cross_entropy, 8), (F.nll_loss, 7)):
        function(x, target)
        before = cupy.machine.launched
        function(x, target)
        assert cupy.machine.launched - before == launches


def test_fewer_launches(cupy):
    x = ag.ones(4, 5, device="cuda:0")
    F.softmax(x, 1)
    before = cupy.machine.launched
    F.softmax(x, 1)
    assert cupy.machine.launched - before == 1


@pytest.mark.parametrize(
    ("kind", "forwards", "backwards"), [("RNN", 2, 2), ("GRU", 3, 3), ("LSTM", 3, 3)]
)
def test_launches_of_a_step_of_a_recurrent_layer(kind, forwards, backwards, cupy):
    """A product, a kernel, and copies to where the next product reads."""
    layer = getattr(ag.nn, kind)(4, 3, device="cuda:0")
    counts = []
    for steps in (4, 4, 5):
        x = ag.ones(steps, 2, 4, device="cuda:0")
        start = cupy.machine.launched
        out, _ = layer(x)
        middle = cupy.machine.launched
        (out * out).sum().backward()
        counts.append((middle - start, cupy.machine.launched - middle))
    (_, one, more) = counts
    assert (more[0] - one[0], more[1] - one[1]) == (forwards, backwards)


def test_what_does_not_fit_is_a_chain(cupy):
    x = ag.tensor(X, device="cuda:0").to(ag.complex128)
    assert ag.device("cuda:0").compiled["softmax"](x._array, 1) is NotImplemented
    y = ag.tensor(X, device="cuda:0")
    pair = y._array, y.to(ag.float32)._array
    assert ag.device("cuda:0").compiled["gelu_gradient"](*pair) is NotImplemented


def test_a_loop_does_not_wait_for_the_compiler(cupy, monkeypatch):
    """Until the kernel is there the chain serves."""
    go, threads = threading.Event(), []
    device = ag.device("cuda:0")
    original = type(device._kernels)._compile

    def compiling(self, *what):
        threads.append(threading.current_thread())
        assert go.wait(60)
        original(self, *what)

    monkeypatch.setattr(type(device._kernels), "_compile", compiling)

    async def main():
        x = ag.tensor(X, device=device)
        first = F.gelu(x)
        assert not device._kernels._ready
        F.gelu(x)
        (thread,) = threads
        assert thread is not threading.current_thread()
        go.set()
        await asyncio.to_thread(thread.join)
        assert device._kernels._ready
        before = cupy.machine.launched
        second = F.gelu(x)
        assert cupy.machine.launched - before == 1
        return await first.to_async("cpu"), await second.to_async("cpu")

    first, second = asyncio.run(main())
    np.testing.assert_allclose(first.numpy(), second.numpy(), rtol=1e-10)


def test_a_compiler_that_refuses_is_not_asked_again_and_warned_of_once(cupy, monkeypatch):
    asked = []

    def refuse(*source, preamble):
        asked.append(source[-1])
        raise RuntimeError("nvrtc is not there")

    monkeypatch.setattr(cupy, "ElementwiseKernel", refuse)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for dtype in (ag.float32, ag.float64, ag.float64):
            found, _ = gradients(F.gelu, "cuda:0", dtype)
    assert [str(one.message) for one in warned] == [
        f"The CUDA kernel of {name} failed, so a slower chain is used: nvrtc is not there"
        for name in ("gelu", "gelu_gradient")
    ]
    np.testing.assert_allclose(found, gradients(F.gelu, "cpu", ag.float64)[0], rtol=1e-10)
    assert len(asked) == 4


def test_a_graph_waits_for_the_compiler(cupy, monkeypatch):
    """Otherwise it would hold the chain for good."""
    device = ag.device("cuda:0")
    begun, original = threading.Event(), type(device._kernels)._compile

    def compiling(self, *what):
        assert begun.wait(60)
        original(self, *what)

    monkeypatch.setattr(type(device._kernels), "_compile", compiling)

    async def main():
        x = ag.tensor(X, device=device)
        F.gelu(x)
        with ag.Stream(device=device):
            capture = device.capture(lambda: begun.set() or F.gelu(x))
        assert device._kernels._ready
        return capture

    (one,) = asyncio.run(main())._graph.calls
    assert one[0].__name__ == "compute"
