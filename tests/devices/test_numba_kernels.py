"""Kernels compiled by Numba: the same numbers as NumPy's, for all values and shapes."""

import asyncio
import math
import subprocess
import sys
import threading
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pytest
from declared_updates import CASES, OPTIMIZERS

import asyncgrad as ag
from asyncgrad.backends import numba as switch
from asyncgrad.devices import cores, pieces
from asyncgrad.devices.kernels import STEPS
from asyncgrad.devices.plain_numpy import COMPILED
from asyncgrad.ops.table import recurrent as table

pytest.importorskip("numba")
#: Numba compiles for most of a minute, unless it has kept what it compiled.
pytestmark = pytest.mark.slow
F = ag.nn.functional
#: Where two kernels of these functions may differ, in units of the dtype's precision.
FUNCTIONS = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "sigmoid": ag.sigmoid,
    "tanh": ag.tanh,
    "relu": F.relu,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.1),
    "leaky_relu of steep slopes": lambda x: F.leaky_relu(x, 1.5),
    "elu": F.elu,
    "elu of another limit": lambda x: F.elu(x, 0.7),
    "softplus": F.softplus,
    "softplus of a bend": lambda x: F.softplus(x, 2, 3),
    "mish": F.mish,
    "logsigmoid": F.logsigmoid,
    "hardswish": F.hardswish,
    "softmax": lambda x: F.softmax(x, -1),
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "rms_norm": lambda x: F.rms_norm(x, x.shape[-1:]),
    "softmax of another axis": lambda x: F.softmax(x, 0),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "cross_entropy": lambda x: F.cross_entropy(
        x, ag.arange(x[:, 0].numel()).reshape(x[:, 0].shape) % x.shape[1]
    ),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
}
#: Not `gelu_tanh`: NumPy's way doubles the result before it halves it, which overflows.
OF_ELEMENTS = {*list(FUNCTIONS)[: list(FUNCTIONS).index("layer_norm")]} - {"gelu_tanh"}
SHAPES = ((3, 5), (64, 128), (4, 3, 8, 8), (2, 3, 600, 33), (70000, 16))


@contextmanager
def compiled():
    before = switch.is_enabled()
    switch.enable()
    try:
        yield
    finally:
        if not before:
            switch.disable()


@contextmanager
def plain():
    before = dict(COMPILED)
    switch.disable()
    try:
        yield
    finally:
        COMPILED.update(before)


def both(function, x):
    """A function's result and gradient, with NumPy and with Numba."""
    found = []
    for library in plain, compiled:
        with library():
            own = x.clone().requires_grad_()
            y = function(own)
            y.backward(ag.cos(ag.arange(y.numel(), dtype=y.dtype)).reshape(y.shape))
            found.append((y.detach().numpy(), own.grad.numpy()))
    return found


@pytest.mark.parametrize("dtype", [ag.float32, ag.float64])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_same_numbers(name, shape, dtype):
    if name == "attention" and math.prod(shape) > 100_000:
        pytest.skip("each element would be a row of scores")
    ag.manual_seed(0)
    x = ag.randn(*shape, dtype=dtype) * 3
    (y, g), (same, same_g) = both(FUNCTIONS[name], x)
    eps = ag.finfo(dtype).eps
    assert np.abs(y - same).max() <= 40 * eps * max(1, np.abs(y).max())
    assert np.abs(g - same_g).max() <= 80 * eps * max(1, np.abs(g).max())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", sorted(OF_ELEMENTS))
def test_values_at_the_edges(name, dtype):
    big = np.finfo(dtype).max
    values = [0.0, -0.0, np.inf, -np.inf, np.nan, big, -big, 1e-30, -1e-30, 88.7, 89, -87.5, -104]
    x = ag.tensor(np.array([values, sorted(values), [1.0] * len(values)], dtype))
    (y, g), (same, same_g) = both(FUNCTIONS[name], x)
    np.testing.assert_allclose(same, y, rtol=1e-6, atol=1e-37)
    np.testing.assert_allclose(same_g, g, rtol=1e-5, atol=1e-37)


@pytest.mark.parametrize("dtype", ["f", "d"])
def test_functions_of_one_number(dtype):
    from asyncgrad.devices.host_kernels import functions

    rng = np.random.default_rng(0)
    near = rng.uniform(-2, 2, 5000)
    far = rng.uniform(-110, 100, 5000) if dtype == "f" else rng.uniform(-800, 800, 5000)
    few = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-310 if dtype == "d" else 1e-41]
    given_to = {
        "exp": (near, far, few),
        "tanh": (near, far, few),
        "expm1": (-abs(near), -abs(far), -np.abs(few)),
        "log1p": (rng.uniform(0, 1, 5000), rng.uniform(0, 1, 5000) ** 40, few[2:]),
    }
    for name, ulps in ("exp", 2), ("tanh", 3), ("expm1", 3), ("log1p", 3):
        true = getattr(np, name)
        function = getattr(functions, f"{name}_{dtype}")
        for values in given_to[name]:
            given = np.asarray(values, dtype)
            with np.errstate(all="ignore"):
                wanted = true(given.astype(np.longdouble)).astype(dtype)
            got = np.array([function(value) for value in given], dtype)
            with np.errstate(all="ignore"):
                off = np.abs(got - wanted) / np.spacing(np.abs(wanted))
            right = (got == wanted) | (np.isnan(got) & np.isnan(wanted)) | (off <= ulps)
            assert right.all(), (name, given[~right][:5], got[~right][:5], wanted[~right][:5])


LOSSES = {
    "mse": F.mse_loss,
    "l1": F.l1_loss,
    "huber": lambda x, y, **how: F.huber_loss(x, y, delta=0.7, **how),
    "logits": F.binary_cross_entropy_with_logits,
}


@pytest.mark.parametrize("dtype", [ag.float32, ag.float64])
@pytest.mark.parametrize("size", [1, 700, 1_000_000])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_pairs(name, reduction, size, dtype):
    target = ag.rand(size, dtype=dtype)
    x = ag.randn(size, dtype=dtype) * 2
    (y, g), (same, same_g) = both(lambda x: LOSSES[name](x, target, reduction=reduction), x)
    eps = ag.finfo(dtype).eps
    np.testing.assert_allclose(same, y, rtol=300 * eps, atol=40 * eps)
    np.testing.assert_allclose(same_g, g, rtol=40 * eps, atol=40 * eps * np.abs(g).max())


@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_pairs_at_the_edges(name):
    few = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e38, -1e38, 1e-41, 1.0, -90.0, 90.0]
    x, y = (ag.tensor(part.ravel()) for part in np.meshgrid(np.array(few, "f"), np.array(few, "f")))
    (one, g), (same, same_g) = both(lambda x: LOSSES[name](x, y, reduction="none"), x)
    np.testing.assert_allclose(same, one, rtol=1e-5, atol=1e-37)
    np.testing.assert_allclose(same_g, g, rtol=1e-5, atol=1e-37)
    (_, g), (_, same_g) = both(lambda x: LOSSES[name](x, y, reduction="sum"), x)
    np.testing.assert_allclose(same_g, g, rtol=1e-5, atol=1e-37)


def test_gradients_of_compiled_kernels():
    ag.manual_seed(1)
    functions = FUNCTIONS | {
        name: lambda x, loss=loss: loss(x, ag.ones_like(x)) for name, loss in LOSSES.items()
    }
    with compiled():
        for name, function in functions.items():
            x = ag.randn(4, 3, 3, 9, dtype=ag.float64, requires_grad=True)
            assert ag.autograd.gradcheck(function, x), name


@pytest.mark.parametrize("name", ["tanh", "sigmoid", "silu", "mish", "hardswish", "relu"])
def test_replays_have_the_same_bits(name):
    """A replay does not write a kernel's rule out in NumPy's functions."""

    def step(x, w):
        return ag.grad((FUNCTIONS[name](x * w) ** 2).sum(), w)[0]

    ag.manual_seed(0)
    with compiled():
        fast = ag.compile(step, fullgraph=True)
        for _ in range(20):
            x, w = ag.randn(2, 2), ag.randn(2, 2, requires_grad=True)
            assert fast(x, w).numpy().tobytes() == step(x, w).numpy().tobytes()


def test_what_has_no_kernel_is_computed_by_numpy():
    x = ag.randn(6, 8)
    for given in (x[:0],):
        (y, g), (same, same_g) = both(F.gelu, given)
        np.testing.assert_array_equal(y, same)
        np.testing.assert_array_equal(g, same_g)
    for function in lambda x: F.gelu(x.T), lambda x: F.gelu(x[:, ::2]):
        (y, _), (same, _) = both(function, x)
        np.testing.assert_array_equal(y, same)
    (y, _), (same, _) = both(F.gelu, x.half())
    np.testing.assert_allclose(same, y, rtol=1e-3)


def test_arrays_that_are_not_aligned_or_swapped_are_left_to_numpy():
    odd = np.frombuffer(bytes(4 * 300 + 1), np.uint8)[1:].view(np.float32)
    swapped = np.ones((20, 15), ">f4")
    with compiled():
        for x in odd.reshape(20, 15), swapped:
            for name, given in {
                "gelu": (x,), "silu_gradient": (x, x), "softmax": (x, 1), "log_softmax": (x, 0),
                "softmax_gradient": (x, x, 1), "layer_norm": (x, 1, None, None, 1e-5, []),
                "squared_loss_total": (x, x, None, 1.0),
            }.items():  # fmt: skip
                assert COMPILED[name](*given) is NotImplemented, name
        x = ag.from_numpy(odd.reshape(20, 15))
        assert (F.cross_entropy(x, ag.zeros(20, dtype=ag.int64)) - math.log(15)).abs() < 1e-6


def test_layers_take_arrays_that_are_not_aligned():
    """Kernels of convolutions, batch norms, sequences and attention refuse them, or copy."""

    def odd(*shape):
        size = math.prod(shape)
        memory = np.frombuffer(np.random.default_rng(0).bytes(4 * size + 1), np.uint8).copy()
        array = memory[1:].view(np.float32).reshape(shape)
        array[...] = np.sin(np.arange(size)).reshape(shape)
        assert not array.flags.aligned
        return ag.from_numpy(array)

    layers = [
        (ag.nn.Conv2d(3, 4, 3), odd(2, 3, 9, 9)),
        (ag.nn.BatchNorm2d(3), odd(2, 3, 9, 9)),
        (ag.nn.LSTM(3, 4), odd(5, 2, 3)),
        (lambda x: ag.nn.GRU(3, 4)(x, odd(1, 2, 4)), odd(5, 2, 3)),
        (lambda q: F.scaled_dot_product_attention(q, q, q, odd(5, 5)), odd(2, 5, 8)),
    ]
    for layer, x in layers:
        found = []
        for library in plain, compiled:
            with library():
                ag.manual_seed(0)
                given = x.detach().requires_grad_()
                out = layer(given)
                out = out[0] if isinstance(out, tuple) else out
                out.backward(odd(*out.shape))
                found.append((out.detach().numpy(), given.grad.numpy()))
        for one, other in zip(*found, strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-5)


def test_arrays_that_are_read_only():
    values = np.linspace(-3, 3, 2000, dtype="f")
    values.flags.writeable = False
    with compiled():
        y = F.gelu(ag.from_numpy(values))
        assert y.numpy()[-1] == F.gelu(ag.tensor(values)).numpy()[-1]


def steps(name, options, dtype, shapes):
    """The values and states of parameters after some steps."""
    rng = np.random.default_rng(0)

    def drawn(shape):
        return ag.tensor(rng.standard_normal(shape), dtype=dtype)

    leaves = [drawn(shape).requires_grad_() for shape in shapes]
    optimizer = OPTIMIZERS[name](leaves, **options)
    for _ in range(8):
        for leaf in leaves:
            leaf.grad = drawn(leaf.shape)
        optimizer.step()
    states = [
        value for leaf in leaves for key, value in optimizer.state[leaf].items() if value.dim()
    ]
    return [value.detach().numpy() for value in (*leaves, *states)]


@pytest.mark.parametrize("dtype", [ag.float32, ag.float64])
@pytest.mark.parametrize(("name", "options"), CASES)
def test_steps_of_optimizers(name, options, dtype):
    """Of one parameter, and of small ones that are updated together, in one call or in three."""
    for shapes in [(30, 100)], [(3, 4), (5,), (), (40, 30)], [(size, 3) for size in range(1, 20)]:
        found = []
        for library in plain, compiled:
            with library():
                found.append(steps(name, options, dtype, shapes))
        for one, other in zip(*found, strict=True):
            rtol = 100 * ag.finfo(dtype).eps
            np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_kernel_takes_every_step(name, monkeypatch):
    """What it does not take would be computed by NumPy, with the same result."""
    from asyncgrad.devices.host_kernels.updates import Prepared

    calls, take = [], Prepared.__call__
    monkeypatch.setattr(Prepared, "__call__", lambda *given: calls.append(take(*given)))
    with compiled():
        steps(name, {}, ag.float32, [(3, 4), (40, 30)])
    one_by_one = name in {"asgd", "nadam", "nadam, decoupled"}
    assert calls == [None] * 8 * (2 if one_by_one else 1)


def test_a_step_that_a_kernel_refuses_changes_nothing():
    """NumPy takes it then."""
    with compiled():
        kernel = COMPILED["adagrad"]
    values, gradients, totals = ([np.ones(3, "f") for _ in range(40)] for _ in range(3))
    numbers = (1.0, 0.0, 1.0, 0.0, 0.0)

    def changed():
        result = kernel(values, gradients, totals, *numbers)
        return result, any((array != 1).any() for array in (*values, *totals))

    apart, fixed = np.ones(6, "f")[::2], np.broadcast_to(np.float32(1), 3)
    unaligned = np.frombuffer(b" " + np.ones(3, "f").tobytes(), "f", offset=1)
    for arrays, wrong in (
        (gradients, [np.ones(4, "f"), np.ones(3), np.ones(3, "e"), unaligned]),
        (values, [np.ones(4, "f"), np.ones(3), unaligned.copy()[:2], apart, fixed]),
        (totals, [np.ones(4, "f"), np.ones(3), np.ones(3, "e"), apart, fixed]),
    ):
        for array in wrong:
            kept, arrays[-1] = arrays[-1], array
            assert changed() == (NotImplemented, False)
            arrays[-1] = kept
    read_only = np.ones(3, "f")
    read_only.flags.writeable = False
    gradients[-3:] = apart, fixed, read_only
    assert changed() == (None, True)
    assert all((value != 1).all() for value in values)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_from_gradients_that_are_not_finite(name):
    found = []
    for library in plain, compiled:
        with library():
            leaf = ag.zeros(20, requires_grad=True)
            optimizer = OPTIMIZERS[name]([leaf])
            for shift in 0, 1, 3:
                row = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1e15, 1e-15, -1.0, 1.0, 2.0]
                leaf.grad = ag.tensor(row * 2).roll(shift)
                optimizer.step()
            states = optimizer.state[leaf].values()
            found.append([value.detach().numpy() for value in (leaf, *states)])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_that_numpy_takes(name):
    """Of parameters whose memory is not one row, and of other dtypes."""
    found = []
    for library in plain, compiled:
        with library():
            leaves = [ag.linspace(-1, 1, 12).reshape(3, 4).t(), ag.linspace(-1, 1, 6).half()]
            leaves = [leaf.detach().requires_grad_() for leaf in leaves]
            optimizer = OPTIMIZERS[name](leaves)
            for step in range(3):
                for leaf in leaves:
                    leaf.grad = ag.sin(leaf.detach() * (step + 1))
                optimizer.step()
            found.append([leaf.detach().numpy().tobytes() for leaf in leaves])
    assert found[0] == found[1]


@pytest.mark.parametrize("name", ["adam", "sgd_momentum"])
def test_a_cancelled_step_has_the_bits_of_others(name):
    """A large one, in a thread and in pieces, beside small ones that take one call."""
    shapes = [(900, 1000), (7,), (3, 5)]

    def made():
        rng = np.random.default_rng(0)
        leaves = [ag.tensor(rng.standard_normal(shape), dtype=ag.float32) for shape in shapes]
        leaves = [leaf.requires_grad_() for leaf in leaves]
        return leaves, OPTIMIZERS[name](leaves)

    def give(leaves, step):
        for leaf in leaves:
            leaf.grad = ag.sin(leaf.detach() * (step + 1))

    async def cancelled(leaves, optimizer):
        loop, reached, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

        def hold(*_):
            loop.call_soon_threadsafe(reached.set)
            assert go_on.wait(30)

        optimizer.register_step_pre_hook(hold)
        for step in range(3):
            give(leaves, step)
            stepping = asyncio.create_task(optimizer.step_async())
            await reached.wait()
            stepping.cancel()
            await asyncio.sleep(0)
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await stepping
            reached.clear()
            go_on.clear()

    def taken(leaves, optimizer):
        for step in range(3):
            give(leaves, step)
            optimizer.step()

    with compiled():
        found = []
        for way in lambda *made: asyncio.run(cancelled(*made)), taken:
            leaves, optimizer = made()
            way(leaves, optimizer)
            found.append([leaf.detach().numpy().tobytes() for leaf in leaves])
    assert found[0] == found[1]


@pytest.mark.parametrize("replayed", [False, True])
@pytest.mark.parametrize("dtype", [ag.float32, ag.float64, ag.float16])
@pytest.mark.parametrize("kind", ["ema", "swa"])
def test_averages_of_models(kind, dtype, replayed):
    make = getattr(ag.optim.swa_utils, f"get_{kind}_multi_avg_fn")
    found = []
    for library in plain, compiled:
        with library():
            means = [ag.linspace(-1, 1, size).to(dtype) for size in range(1, 40)]
            values = [ag.linspace(2, 1, size).to(dtype) for size in range(1, 40)]
            average = make()

            def call(average=average, means=means, values=values):
                average(means, values, ag.tensor(3))

            fast = ag.compile(call) if replayed else call
            versions = [mean._version for mean in means]
            for _ in range(4):
                fast()
            assert all(
                mean._version > version for mean, version in zip(means, versions, strict=True)
            )
            found.append(np.concatenate([mean.numpy() for mean in means]))
    rtol = 10 * ag.finfo(dtype).eps
    np.testing.assert_allclose(*found, rtol=rtol, atol=rtol)


#: Recurrent layers by name, for 7 features and a size.
LAYERS = {
    "rnn": lambda size: ag.nn.RNN(7, size),
    "rnn of relu": lambda size: ag.nn.RNN(7, size, nonlinearity="relu"),
    "gru": lambda size: ag.nn.GRU(7, size, 2, bidirectional=True),
    "lstm": lambda size: ag.nn.LSTM(7, size, 2, bidirectional=True),
    "lstm of projected states": lambda size: ag.nn.LSTM(7, size, proj_size=size - 2),
}
#: Batches and sizes: some weights are cut into blocks, and some read the inputs in each step.
BATCHES = ((1, 3), (3, 5), (8, 16), (40, 160))


def trained(layer, x, forwards, backwards):
    """The outputs, and the gradients of inputs and parameters, each with a library."""
    x = x.clone().requires_grad_()
    leaves = [x, *layer.parameters()]
    with forwards():
        out, states = layer(x)
        parts = [out, *(states if isinstance(states, tuple) else (states,))]
        loss = sum((ag.cos(ag.arange(p.numel()).reshape(p.shape)) * p).sum() for p in parts)
    with backwards():
        gradients = ag.grad(loss, leaves)
    return [part.detach().numpy() for part in (*parts, *gradients)]


@pytest.fixture
def no_product(monkeypatch):
    """NumPy's BLAS has no function that compiled kernels could multiply with."""
    from asyncgrad.devices.host_kernels import recurrent

    monkeypatch.setattr(recurrent, "PRODUCTS", {})


@pytest.mark.parametrize("dtype", [ag.float32, ag.float64])
@pytest.mark.parametrize(("batch", "size"), BATCHES)
@pytest.mark.parametrize("name", LAYERS)
def test_recurrent_layers_without_a_product(name, batch, size, dtype, no_product):
    test_recurrent_layers(name, batch, size, dtype)


@pytest.mark.parametrize("dtype", [ag.float32, ag.float64])
@pytest.mark.parametrize(("batch", "size"), BATCHES)
@pytest.mark.parametrize("name", LAYERS)
def test_recurrent_layers(name, batch, size, dtype):
    """Also where NumPy's values are read by compiled kernels, and the other way round."""
    ag.manual_seed(0)
    layer = LAYERS[name](size).to(dtype)
    x = ag.randn(6, batch, 7, dtype=dtype)
    wanted = trained(layer, x, plain, plain)
    for libraries in (compiled, compiled), (plain, compiled), (compiled, plain):
        for one, other in zip(trained(layer, x, *libraries), wanted, strict=True):
            most = max(1, np.abs(other).max())
            np.testing.assert_allclose(one, other, atol=300 * ag.finfo(dtype).eps * most, rtol=0)


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_of_recurrent_layers(name):
    ag.manual_seed(0)
    layer = LAYERS[name](4).double()
    x = ag.randn(3, 2, 7, dtype=ag.float64, requires_grad=True)
    with compiled():
        assert ag.autograd.gradcheck(lambda x, *_: layer(x)[0], (x, *layer.parameters()))


@pytest.mark.parametrize("name", [f"{name}s" for name in sorted(STEPS)])
def test_recurrent_layers_use_every_kernel(name):
    asked = []
    with compiled():
        kernel = COMPILED[name]

        def recording(*given):
            asked.append(kernel(*given))
            return asked[-1]

        with patch.dict(COMPILED, {name: recording}):
            for make in LAYERS.values():
                make(3)(ag.ones(2, 2, 7))[0].sum().backward()
        assert asked
        assert NotImplemented not in asked


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", ["rnn", "gru", "lstm"])
def test_recurrent_layers_of_arrays_in_any_layout(name, batch):
    """Rows of one state for the whole batch, columns, and gradients that are one number."""
    make = {"rnn": ag.nn.RNN, "gru": ag.nn.GRU, "lstm": ag.nn.LSTM}[name]
    found = []
    for library in plain, compiled:
        with library():
            ag.manual_seed(0)
            layer = make(7, 5)
            x = ag.randn(7, batch, 4).permute(2, 1, 0).requires_grad_()
            state = ag.randn(1, 1, 5).expand(1, batch, 5)
            wide = ag.randn(1, batch, 10)[..., ::2]
            out = layer(x, (state, wide) if name == "lstm" else state)[0]
            turned = layer(x, (wide, state) if name == "lstm" else wide)[0]
            gradient = ag.randn(5, batch, 4).permute(2, 1, 0)
            ag.autograd.backward([out.sum(), turned], [None, gradient])
            found.append([out, turned, x.grad, *(p.grad for p in layer.parameters())])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(*(t.detach().numpy() for t in (one, other)), atol=1e-5)


@pytest.mark.parametrize("name", LAYERS)
def test_recurrent_layers_have_the_same_bits_in_every_way(name, monkeypatch):
    """Halves of a batch are computed apart, whether a second thread takes one of them or not."""
    monkeypatch.setattr(table, "_LARGE", 1)
    ag.manual_seed(0)
    layer, x = LAYERS[name](33), ag.randn(table._LONG, 9, 7)
    leaves = [*layer.parameters()]

    def loss(out):
        return out[0].square().sum()

    async def main():
        ag.engine()
        found = []
        for _ in range(3):
            found.append(await ag.grad(loss(await ag.offload(layer, x)), leaves))
            with ag.blocking():
                found.append(ag.grad(loss(layer(x)), leaves))
                found.append(replayed())
        return found

    with compiled():
        replayed = ag.compile(lambda: ag.grad(loss(layer(x)), leaves))
        found = asyncio.run(main())
    assert len({b"".join(t.numpy().tobytes() for t in gradients) for gradients in found}) == 1


def test_the_steps_of_recurrent_layers_offer_the_core_while_an_engine_lives(monkeypatch):
    offers = []
    monkeypatch.setattr(pieces, "threads", 1)
    monkeypatch.setattr(cores, "_stretch", 1)
    monkeypatch.setattr(cores, "waited", lambda: 0)
    monkeypatch.setattr(cores, "_yield", lambda: offers.append(None))
    with compiled():
        for make in ag.nn.RNN, ag.nn.GRU, ag.nn.LSTM:
            offers.clear()
            out = make(3, 2)(ag.ones(9, 1, 3))[0]
            assert len(offers) == 5
            out.sum().backward()
            assert len(offers) == 10


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30, -1e30])
def test_recurrent_layers_of_values_at_the_edges(value):
    for name in "rnn", "rnn of relu", "gru", "lstm":
        ag.manual_seed(0)
        layer = LAYERS[name](3)
        x = ag.ones(3, 2, 7)
        x[1, 0, 2] = value
        with np.errstate(all="ignore"):
            found, wanted = (trained(layer, x, library, library) for library in (compiled, plain))
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_the_switch():
    with plain():
        assert not switch.is_enabled()
        switch.enable()
        assert switch.is_enabled()
        switch.disable()
        assert not switch.is_enabled()


def test_kernels_are_compiled_where_nothing_can_be_kept(monkeypatch, tmp_path):
    from numba.core.caching import CacheImpl

    from asyncgrad.devices.host_kernels import declared

    file = tmp_path / "file"
    file.write_text("no folder")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(file / "kernels"))
    monkeypatch.setattr(CacheImpl, "_locator_classes", [])
    monkeypatch.setattr(declared, "_OWN", {"gelu": declared.SOURCES["gelu"]})
    x, y = np.linspace(-3, 3, 50, dtype="f"), np.empty(50, "f")
    declared._compiled("f").gelu(0, 50, x, y)
    np.testing.assert_allclose(y, F.gelu(ag.from_numpy(x)).numpy(), rtol=1e-5, atol=1e-6)


def test_without_numba_enabling_says_what_to_install():
    program = (
        "import sys; sys.modules['numba'] = None\n"
        "import importlib.util, asyncgrad as ag\n"
        "ag.backends.numba.find_spec = lambda name: None\n"
        "assert not ag.backends.numba.is_available()\n"
        "try: ag.backends.numba.enable()\n"
        "except ImportError as error: assert 'asyncgrad[numba]' in str(error)\n"
        "else: raise SystemExit(1)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
