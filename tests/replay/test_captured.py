"""Programs on CUDA devices that are captured into CUDA graphs."""

import gc
import threading

import pytest
from cupy_stand_in import installed

import asyncgrad as ag
from asyncgrad.devices import cuda_products
from asyncgrad.devices.cuda_products import load


def waves(x, w):
    """More operations than arrays that come in and go out."""
    with ag.no_grad():
        y = ag.tanh(x * w)
        z = ag.sigmoid(y) + y * 2
        return (z * z + ag.exp(-z)) * 0.5


def bits(value):
    return value.detach().cpu().numpy().tobytes(), value._array.strides


def inputs(device, count=6, shape=(4, 3)):
    ag.manual_seed(0)
    return [ag.randn(*shape).to(device) for _ in range(count)]


def compare(function, device, batches, weight):
    """Calls give the bits of eager ones, also later."""
    fast = ag.compile(function)
    found = [fast(x, weight) for x in batches]
    assert [bits(x) for x in found] == [bits(function(x, weight)) for x in batches]
    return fast


def test_a_program_is_one_launch(device):
    """From the third call on; results are never overwritten."""
    batches, weight = inputs(device), ag.full((3,), 0.5).to(device)
    fast = compare(waves, device, batches, weight)
    assert "operations are one CUDA graph" in fast.explain()
    with ag.no_grad():
        weight.mul_(2)
    assert bits(fast(batches[0], weight)) == bits(waves(batches[0], weight))


@pytest.mark.parametrize(
    "function",
    [
        lambda y, at: y.gather(1, at),
        lambda y, at: ag.zeros_like(y).scatter_add(1, at, y),
        lambda y, at: y[[0, 2, 1, 0]],
    ],
)
def test_places_on_the_host_are_no_part_of_a_graph(device, function):
    """They would be copied at each launch, from memory that is used for something else then."""

    def placed(x, w, at):
        return waves(function(waves(x, w), at), w)

    weight, at = ag.full((3,), 0.5).to(device), ag.tensor([[0, 2, 1]] * 4).to(device)
    batches, fast = inputs(device), ag.compile(placed)
    found = [fast(x, weight, at) for x in batches]
    assert [bits(x) for x in found] == [bits(placed(x, weight, at)) for x in batches]
    assert fast.explain().count("operations are one CUDA graph") == 2


def test_work_that_waits_for_the_device_is_no_graph(device):
    """CuPy refuses to copy to the host while a stream captures."""

    def waiting(x, w):
        return waves(ag.linalg.matrix_exp(waves(x, w)), w)

    weight = ag.full((3,), 0.5).to(device)
    fast = compare(waiting, device, inputs(device, shape=(3, 3)), weight)
    assert "are no CUDA graph: the current stream is capturing" in fast.explain()


@pytest.mark.parametrize(
    "function",
    [
        lambda y: y.t(),
        lambda y: y.flatten().unsqueeze(0),
        lambda y: (y.t()[1:], y.t().exp()),
    ],
)
def test_results_that_are_views_of_others(device, function):
    """They are taken of the copies of their bases."""

    def views(x, w):
        y = ag.tanh(x * w)
        z = ag.sigmoid(y) + y * 2
        return function((z * z + ag.exp(-z)) * 0.5)

    weight = ag.full((3,), 0.5).to(device).requires_grad_()
    fast = ag.compile(views)
    kept = []
    for x in inputs(device):
        found = []
        for call in (views, fast):
            y, *_ = result = (
                call(x, weight) if function(x).__class__ is tuple else [call(x, weight)]
            )
            with ag.no_grad():
                y.mul_(2)
            found.append(([bits(part) for part in result], bits(y._base)))
            kept.append((result, found[-1][0]))
        assert found[0] == found[1]
    assert all([bits(part) for part in result] == before for result, before in kept)
    assert "operations are one CUDA graph" in fast.explain()


def test_the_launch_stands_for_the_operations(monkeypatch):
    """A copy in, the graph, a copy out."""
    machine = installed(monkeypatch, devices=2).machine
    fast = ag.compile(waves)
    batches, weight = inputs("cuda:1"), ag.full((3,), 0.5).to("cuda:1")
    for x in batches[:3]:
        fast(x, weight)
    names = []
    launch = machine.launch
    monkeypatch.setattr(
        machine, "launch", lambda name, *rest: names.append(name) or launch(name, *rest)
    )
    fast(batches[3], weight)
    assert names == ["copyto", "graph", "array"]


def test_another_array_in_the_place_of_a_weight(device):
    """The graph is captured anew, until all arrays are copied."""
    batches = inputs(device, 9)
    weight = ag.full((3,), 0.5).to(device)
    fast = ag.compile(waves)
    for number, x in enumerate(batches):
        if number % 3 == 2:
            weight.data = weight.data * 1.5
        assert bits(fast(x, weight)) == bits(waves(x, weight))
    assert "are one CUDA graph" in fast.explain()


def layers(x, w):
    with ag.no_grad():
        y = ag.tanh(x @ w) * 2
        return ag.exp(-y * y) + ag.sigmoid(y)


def test_products_are_captured(device):
    """Of matrices in any layout, and of vectors."""

    def slopes(x, w, v):
        y = ag.tanh(x @ w)
        z = (ag.tanh(y @ w.T) * ag.sigmoid(y @ v)[:, None]).exp()
        return ag.grad((z * z).sum() + (x.T @ y)[:2, 1].sum(), (w, v))

    w, v = (x.requires_grad_() for x in (ag.randn(3, 3).to(device), ag.randn(3).to(device)))
    fast = ag.compile(slopes)
    for x in inputs(device):
        assert [*map(bits, fast(x, w, v))] == [*map(bits, slopes(x, w, v))]
    assert "are one CUDA graph" in fast.explain()
    with ag.no_grad():
        w.mul_(2)
    assert [*map(bits, fast(x, w, v))] == [*map(bits, slopes(x, w, v))]


@pytest.mark.parametrize("dtype", [ag.float32, ag.float64, ag.complex64, ag.complex128])
def test_products_of_batches_are_captured(device, dtype):
    def layers(x, w):
        with ag.no_grad():
            y = ag.tanh(ag.bmm(x, w) * 0.1)
            return ag.exp(-y * y) + y * ag.bmm(y, w.mT)

    w = ag.randn(2, 3, 3).to(device, dtype)
    batches = [x.to(dtype) for x in inputs(device, 4, (2, 4, 3))]
    assert "are one CUDA graph" in compare(layers, device, batches, w).explain()


def test_products_without_cublas_are_not_captured(monkeypatch):
    installed(monkeypatch, devices=2)
    monkeypatch.setattr(cuda_products, "load", lambda name: load("none.so"))
    fast = compare(layers, "cuda:1", inputs("cuda:1"), inputs("cuda:1", 1, (3, 3))[0])
    assert "are no CUDA graph: a product can't be captured without cuBLAS" in fast.explain()
    assert "0 replayed" not in fast.explain()


def test_gradients_are_captured(device):
    """The operations of a pass, up to where the host takes part."""

    def slope(x, w):
        return ag.grad((ag.tanh(x * w) * ag.sigmoid(w)).sum(), w)[0]

    weight = ag.full((3,), 0.5).to(device).requires_grad_()
    fast = compare(slope, device, inputs(device), weight)
    assert "are one CUDA graph" in fast.explain()


def test_graphs_of_results(device):
    """A forward pass and the pass through its graph."""

    def loss(x, w):
        y = ag.tanh(x * w)
        return ((y * y + ag.exp(-y)) * ag.sigmoid(y)).sum()

    fast = ag.compile(loss)
    weight = ag.full((3,), 0.5).to(device).requires_grad_()
    for x in inputs(device):
        expected = ag.grad(loss(x, weight), weight)[0]
        assert bits(ag.grad(fast(x, weight), weight)[0]) == bits(expected)


def test_views_of_arguments_are_not_copied(device):
    """They share memory with the argument, as eagerly."""

    def view(x, w):
        with ag.no_grad():
            y = ag.tanh(x * w) + ag.exp(x) * ag.sigmoid(w) - x
            return y * y, x.reshape(-1)

    fast = ag.compile(view)
    weight = ag.full((3,), 0.5).to(device)
    for x in inputs(device):
        _, same = fast(x, weight)
        same.add_(1)
        assert bits(same.reshape(4, 3)) == bits(x)


def test_launches_in_several_streams_and_threads(device):
    """They share the graph's memory, so each waits for the last."""
    batches, weight = inputs(device, 12), ag.full((3,), 0.5).to(device)
    expected = [bits(waves(x, weight)) for x in batches]
    fast = ag.compile(waves)
    for x in batches[:3]:
        fast(x, weight)
    streams = [ag.Stream(device=device) for _ in range(2)]
    found = {}

    def calls(number):
        stream = streams[number % 2]
        stream.wait_stream(stream.device.default_stream)
        with stream:
            for place in range(number, 12, 2):
                found[place] = bits(fast(batches[place], weight))

    threads = [threading.Thread(target=calls, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[place] for place in range(12)] == expected


def test_a_graph_that_is_dropped_while_a_stream_reads_it(monkeypatch):
    """Its memory is not given to the stream of its capture meanwhile."""
    installed(monkeypatch, devices=2)
    batches, weight = inputs("cuda:1"), ag.full((3,), 0.5).to("cuda:1")
    fast = ag.compile(waves)
    for x in batches[:3]:
        fast(x, weight)
    side = ag.Stream(device="cuda:1")
    side.wait_stream(side.device.default_stream)
    with side:
        found = fast(batches[3], weight)
    del fast
    gc.collect()
    for _ in range(4):
        ag.zeros(4, 3, device="cuda:1")
    side.device.default_stream.wait_stream(side)
    assert bits(found) == bits(waves(batches[3], weight))


def test_the_scale_of_a_loss_is_read_anew(device):
    """It changes between launches; so do the results of decompositions."""
    found = []
    for compiled in (False, True):
        ag.manual_seed(0)
        w = ag.randn(4, 3).to(device).requires_grad_()
        optimizer = ag.optim.SGD([w], lr=0.01)
        scaler = ag.amp.GradScaler("cuda", init_scale=2.0, growth_interval=1)

        def step(x, w=w, optimizer=optimizer, scaler=scaler):
            optimizer.zero_grad()
            loss = (waves(x, w.detach()) * w).sum() + ag.linalg.svdvals(w * x).sum()
            scaled = scaler.scale(loss)
            scaled.backward()
            scaler.step(optimizer)
            scaler.update()
            return scaled.detach() * 2

        call = ag.compile(step) if compiled else step
        results = [(bits(call(x)), bits(w), scaler.get_scale()) for x in inputs(device)]
        found.append(results)
    assert found[0] == found[1]
    assert call.explain().splitlines()[0].endswith("5 replayed")
