"""Random graphs over devices and streams, in any order of service, equal the CPU's."""

import asyncio
import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import asyncgrad as ag
from asyncgrad.testing import simulate
from asyncgrad.utils.checkpoint import checkpoint

PLACES = ("cpu", "sim:0", "sim:1", "sim:2")
STREAMS = 3
NAMES = (
    *("mul", "add", "exp", "tanh", "sum", "move", "square", "inplace", "split"),
    *("view", "view inplace", "hook", "checkpoint", "offload", "matrix"),
)

Step = tuple[str, int, int, int, int]
programs = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.integers(0, 20),
        st.integers(0, 20),
        st.integers(0, STREAMS - 1),
        st.integers(0, 3),
    ),
    min_size=2,
    max_size=14,
)


class Split(ag.autograd.Function):
    """Two values in two places."""

    @staticmethod
    def forward(ctx, x, place):
        ctx.here = x.device
        return x * 2, x.to(place) * 3

    @staticmethod
    def backward(ctx, here, there):
        return here * 2 + there.to(ctx.here) * 3, None


def changed_through_a_view(x):
    y = x * 1
    y[1:3].mul_(2).add_(y[:2].detach().clone())
    return y


def hooked(x):
    """The gradient is changed on its way, by a hook that awaits nothing."""
    y = x * 2
    y.register_hook(lambda g: g * 3)
    return y


def heavy(x):
    return ag.tanh(x).exp().sin()


def offloaded(x):
    with ag.autograd.graph.save_on_cpu(pin_memory=True):
        return heavy(x) * heavy(x * 2)


class Runner:
    """Builds a program's graph, each operation in a stream of its own choice."""

    def __init__(self, streams):
        self.streams = streams
        #: In which stream each value was made.
        self.made = {}

    def stream(self, device, choice):
        if self.streams is None or device.type == "cpu":
            return None
        if choice == 0:
            return device.default_stream
        return self.streams.setdefault((device, choice), ag.Stream(device=device))

    def enter(self, stream, inputs):
        """As a user does it: wait for what is read, and keep its memory."""
        for x in inputs:
            other = self.made.get(id(x))
            if other is not None and stream is not None and other.device is stream.device:
                stream.wait_stream(other)
                x.record_stream(stream)

    def run(self, stream, inputs, function):
        self.enter(stream, inputs)
        if stream is None:
            out = function(*inputs)
        else:
            with stream:
                out = function(*inputs)
        for one in out if isinstance(out, tuple) else (out,):
            device = one.device
            if device.streamed:
                here = stream is not None and stream.device is device
                self.made[id(one)] = stream if here else device.default_stream
        if stream is not None:
            for x in inputs:
                x.record_stream(stream)
        return out

    def moved(self, x, place):
        """Copies are ordered with the default streams of both devices."""
        if str(x.device) == place or self.streams is None:
            return x
        stream = x.device.default_stream if x.device.streamed else None
        return self.run(stream, [x], lambda x: x.to(place))


def build(program, streams):
    runner = Runner(streams)
    values = [
        ag.full((4,), 0.5 + i, device=place if streams is not None else "cpu", requires_grad=True)
        for i, place in enumerate(PLACES)
    ]
    for value in values:
        if value.device.streamed:
            runner.made[id(value)] = value.device.default_stream
    leaves = list(values)
    # All are held, so that no two have the same identity.
    held = list(values)
    for name, i, j, choice, place in program:
        x = values[i % len(values)]
        if name == "move":
            out = runner.moved(x, PLACES[place])
        elif name in {"mul", "add"}:
            y = runner.moved(values[j % len(values)], str(x.device))
            held.append(y)
            stream = runner.stream(x.device, choice)
            function = (lambda x, y: ag.tanh(x) * y) if name == "mul" else lambda x, y: x + y
            out = runner.run(stream, [x, y], function)
        elif name == "split":
            where = PLACES[place] if streams is not None else "cpu"
            stream = runner.stream(x.device, 0)
            here, out = runner.run(stream, [x], lambda x, where=where: Split.apply(x, where))
            values.append(here)
        else:
            functions = {
                "exp": lambda x: ag.exp(ag.tanh(x)),
                "tanh": ag.tanh,
                "sum": lambda x: x.sum() * ag.ones_like(x),
                "square": lambda x: ag.tanh(x) ** 2,
                "inplace": lambda x: (x * 1).mul_(2),
                "view": lambda x: x[1:].flip(0).sum() * x.reshape(2, 2).T.reshape(4),
                "view inplace": changed_through_a_view,
                "hook": hooked,
                "checkpoint": lambda x: checkpoint(heavy, x, use_reentrant=False),
                "offload": offloaded,
                "matrix": lambda x: (x.reshape(2, 2) @ x.reshape(2, 2)).softmax(0).reshape(4),
            }
            out = runner.run(runner.stream(x.device, choice), [x], functions[name])
        values.append(out)
        held.append(out)
    total = None
    for value in values:
        stream = runner.stream(value.device, 0)
        part = runner.moved(runner.run(stream, [value], lambda x: ag.tanh(x).sum()), "cpu")
        held.append(part)
        total = part if total is None else total + part
    return leaves, total


@settings(max_examples=40)
@given(
    program=programs,
    latency=st.sampled_from([0.0, 1e-6, 1e-3]),
    order=st.one_of(st.none(), st.lists(st.integers(0, 5), min_size=1, max_size=40)),
    end=st.sampled_from([None, 1, 2]),
    again=st.booleans(),
)
def test_random_graphs_over_streams_equal_the_cpu(program, latency, order, end, again):
    leaves, total = build(program, None)
    for _ in range(1 + again):
        total.backward(retain_graph=True)
    expected = [leaf.grad for leaf in leaves]
    schedule = None
    if order is not None:
        choices = itertools.cycle(order)
        schedule = lambda heads: next(choices)  # noqa: E731
    with simulate(devices=3, latency=latency, schedule=schedule):

        async def main():
            leaves, total = build(program, {})
            for _ in range(1 + again):
                if end is None:
                    await total.backward(retain_graph=True)
                else:
                    root = total if end == 1 else total.to("sim:1")
                    await root.backward(retain_graph=True, wait="enqueued")
            return [
                None if leaf.grad is None else (await leaf.grad.to_async("cpu")).numpy()
                for leaf in leaves
            ]

        found = asyncio.run(main())
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            np.testing.assert_allclose(one, other.numpy(), rtol=1e-5)


@settings(max_examples=20)
@given(
    program=programs,
    latency=st.sampled_from([0.0, 1e-3]),
    order=st.one_of(st.none(), st.lists(st.integers(0, 5), min_size=1, max_size=40)),
)
def test_second_derivatives_over_streams_equal_the_cpu(program, latency, order):
    """A pass that records itself does so in the streams of the nodes."""
    kept = {"split", "checkpoint", "offload"}
    program = [step for step in program if step[0] not in kept]

    async def twice(streams):
        leaves, total = build(program, streams)
        first = await ag.grad(total, leaves, create_graph=True, materialize_grads=True,
                              allow_unused=True)  # fmt: skip
        squares = None
        for g in first:
            part = (g * g).sum().to("cpu")
            squares = part if squares is None else squares + part
        await squares.backward()
        return [
            None if leaf.grad is None else (await leaf.grad.to_async("cpu")).numpy()
            for leaf in leaves
        ]

    expected = asyncio.run(twice(None))
    schedule = None
    if order is not None:
        choices = itertools.cycle(order)
        schedule = lambda heads: next(choices)  # noqa: E731
    with simulate(devices=3, latency=latency, schedule=schedule):
        found = asyncio.run(twice({}))
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
