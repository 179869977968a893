"""The idea of the engine in under 100 lines: `await backward(y)` on plain floats.

Shows: nodes and edges, counted dependencies, a ready heap (latest node first), many passes that
one worker serves in slices, a future per pass, gradients committed all at once or not at all.
Leaves out: arrays, threads for heavy nodes, errors, double backward, hooks, devices.
Run: python examples/engine_in_100_lines.py (it checks itself against finite differences)
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math

sequence = itertools.count()
queue: asyncio.Queue[GraphTask] = asyncio.Queue()  # passes that have something ready


class Value:
    """A float and the node that made it: its edges are (producer, local derivative)."""

    def __init__(self, data: float, *edges: tuple[Value, float]) -> None:
        self.data, self.edges, self.grad = data, edges, 0.0
        self.sequence = next(sequence)

    def __add__(self, other: Value) -> Value:
        return Value(self.data + other.data, (self, 1.0), (other, 1.0))

    def __mul__(self, other: Value) -> Value:
        return Value(self.data * other.data, (self, other.data), (other, self.data))


class GraphTask:
    """One backward pass: what waits for how many others, what is ready, what was summed so far."""

    def __init__(self, root: Value) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.dependencies, self.gradients, self.staged = {root: 0}, {root: 1.0}, {}
        self.ready, stack = [(-root.sequence, root)], [root]
        while stack:  # a loop, not recursion: a graph may be a million nodes deep
            for producer, _ in stack.pop().edges:
                if producer not in self.dependencies:
                    stack.append(producer)
                self.dependencies[producer] = self.dependencies.get(producer, 0) + 1

    def run_slice(self, nodes: int) -> None:
        """Run some ready nodes, then queue for the next slice or end the pass."""
        while self.ready and (nodes := nodes - 1) >= 0:
            _, node = heapq.heappop(self.ready)
            gradient = self.gradients.pop(node)
            if not node.edges:
                self.staged[node] = gradient  # .grad changes only when everything went well
            for producer, local in node.edges:
                self.gradients[producer] = self.gradients.get(producer, 0.0) + gradient * local
                self.dependencies[producer] -= 1
                if not self.dependencies[producer]:
                    heapq.heappush(self.ready, (-producer.sequence, producer))
        if self.ready:
            return queue.put_nowait(self)
        for leaf, gradient in self.staged.items():
            leaf.grad += gradient
        return self.future.set_result(None)


async def work() -> None:
    """Give each waiting pass a slice in turn, and the loop a turn between two slices."""
    while task := await queue.get():
        if not task.future.cancelled():
            task.run_slice(nodes=100)
        await asyncio.sleep(0)


def backward(root: Value) -> asyncio.Future[None]:
    """Start a pass and return its future at once."""
    queue.put_nowait(task := GraphTask(root))
    return task.future


async def main() -> None:
    """Compare 50 passes that run at once, beside one that is given up, with differences."""

    def f(x: Value, w: Value) -> Value:
        y = x * w + x
        return y * y + w * y  # y is used three times: its gradients must meet before it runs

    x, w, e, worker = Value(0.7), Value(-0.3), 1e-6, asyncio.create_task(work())
    long = backward(sum((x * w for _ in range(50_000)), x))
    await asyncio.gather(*(backward(f(x, w)) for _ in range(50)))
    assert long.cancel()  # it was under way, and leaves no trace in the gradients
    worker.cancel()
    dx = f(Value(0.7 + e), w).data - f(Value(0.7 - e), w).data
    dw = f(x, Value(-0.3 + e)).data - f(x, Value(-0.3 - e)).data
    for gradient, numeric in ((x.grad / 50, dx / (2 * e)), (w.grad / 50, dw / (2 * e))):
        print(f"gradient {gradient:+.9f}   by finite differences {numeric:+.9f}")
        assert math.isclose(gradient, numeric, rel_tol=1e-6)


asyncio.run(main())
