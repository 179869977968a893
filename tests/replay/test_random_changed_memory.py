"""Random changes of gradients, parameters and other memory that was there, beside eager calls."""

from __future__ import annotations

import asyncio
import random
import textwrap
from typing import Any

import numpy as np
import pytest
import replay_counts
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import asyncgrad as ag
from asyncgrad import nn
from asyncgrad.replay import awaited, writer

#: Of a leaf `p` that has a gradient.
OF_GRADIENTS = (
    "p.grad.mul_(c)", "p.grad.clamp_(-1, 1)", "p.grad.add_(p.detach(), alpha=0.1)",
    "p.grad.copy_(p.grad * 2)", "p.grad = p.grad * c", "p.grad = None", "p.grad.zero_()",
    "p.grad /= 2", "p.grad[0] = 0", "p.grad[p.grad > 0] = c", "p.grad[n] = c", "p.grad[n] = x",
    "p.grad.index_put_((n,), x[0], accumulate=True)", "p.grad.T[0].mul_(2)",
    "p.grad.reshape(-1)[1:3].add_(1)", "p.grad.data.mul_(2)", "v = p.grad.reshape(-1)",
    "v = p.grad.T", "v = p.grad", "v = p.grad.detach()", "out = out + p.grad.sum()",
    "out = (p.grad.reshape(-1) * 2 + out).exp().sum()", "t.add_(p.grad.sum())",
    "g = p.grad; p.grad = None; BACKWARD; p.grad.add_(g)", "g = p.grad * 2; p.grad = g; g.mul_(2)",
    "g = p.grad * 2; w.grad = g; b.grad = g; w.grad.mul_(2)", "g = p.grad; w.grad = g; g.mul_(2)",
    "seen.append(p.grad)", "seen.append(p.grad * 2)", "nn.utils.clip_grad_value_([p], 0.5)",
)  # fmt: skip
OTHERS = (
    "BACKWARD", "BACKWARD", "BACKWARD", "BACKWARD", "w.data.mul_(c)", "w.detach().add_(0.01)",
    "b.data.copy_(b.data * 0.9 + 0.1)", "with ag.no_grad(): w.sub_(0.1 * x)",
    "with ag.no_grad(): w[0] = 0", "w.data = w.data * c", "w.data = x", "w.data = h",
    "b.data, w.data = w.data, b.data", "t.data = t * 2", "v.data = x * 2", "t.data = w.data",
    "nn.utils.vector_to_parameters(nn.utils.parameters_to_vector([w, b]) * c, [w, b])",
    "with ag.no_grad(): w[n] = x", "w.data[1] = x[0]",
    "w.data[x > 0] = 0.5", "with ag.no_grad(): t.copy_(w)", "t.mul_(0.5)", "t.data.add_(1)",
    "t[0] = x[0]", "t[n] = x", "t[n] = w", "row.add_(1)", "row.mul_(c)", "n.add_(1)",
    "n.remainder_(3)", "n.data.add_(1).remainder_(3)", "n[0] = 2", "rest.fill_(1)",
    "out = out + v.sum()", "seen.append(v * 1)", "out = out + t.sum()", "out = out + row.sum()",
    "v = t.view(-1)", "v = t.data", "v = w.data", "v = w.detach().view(-1)", "v.mul_(2)",
    "v.reshape(-1)[0] = 1", "out = out + nn.functional.cross_entropy(x, n)",
    "out = out + nn.functional.one_hot(n, 3).sum()", "out = out + t[rest].sum()", "update.step()",
    "update.zero_grad()", "update.zero_grad(set_to_none=False)", "h = h * 2 + x", "h[n] = x * 2",
    "nn.utils.clip_grad_norm_([w, b], 1.0)", "if float(t.sum()) > 0: out = out + 1", "h.add_(t)",
    "out = out + h.sum()", "seen.append((w * t).sum())",
)  # fmt: skip
#: What happens between two calls.
BETWEEN = (
    "", "", "w.grad = None", "w.grad = ag.arange(9.0).reshape(3, 3).T", "w.grad = ag.ones(3, 3)",
    "w.grad = ag.ones(3).expand(3, 3)", "held = [w.grad]", "held = [w.data, w.view(-1)]",
    "held = [t.view(-1), t.detach()]", "held = []", "update.param_groups[0]['lr'] *= 1.5",
    "b.grad = t.clone()", "held = [w.grad if w.grad is None else w.grad.T]",
)  # fmt: skip


class World:
    """A step made of the text of statements, and what it changes; two of a kind are alike."""

    def __init__(self, statements: list[str], *, waits: bool, compiled: bool) -> None:
        w = ag.arange(9.0).reshape(3, 3).sub(4).div(4).requires_grad_()
        b, t, n = ag.ones(3, 3, requires_grad=True), ag.arange(9.0).reshape(3, 3) - 3, ag.arange(3)
        update = ag.optim.SGD([w, b], lr=0.1, momentum=0.9)
        #: What the step's code reads.
        self.scope: dict[str, Any] = {
            "ag": ag, "nn": nn, "w": w, "b": b, "t": t, "row": t[1], "n": n, "rest": n[1:],
            "update": update,
        }  # fmt: skip
        #: Other tensors of that memory, which only the test has.
        self.scope["held"] = []
        backward = f"{'await ' * waits}((x @ w + b) * b).tanh().sum().backward()"
        body = "\n".join(statements).replace("BACKWARD", backward)
        head = (
            f"{'async ' * waits}def step(x, c):\n    out, seen, h, v = ag.zeros(()), [], x * 1, x"
        )
        text = f"{head}\n{textwrap.indent(body, '    ')}\n    return [out.detach(), *seen]"
        exec(compile(text, "<step>", "exec"), self.scope)
        self.step = self.scope["step"]
        if compiled:
            self.step = ag.compile(self.step)

    def call(self, before: str, seed: int, c: float) -> Any:
        """Change something, make the step, and describe what it returns or raises, and leaves."""
        exec(before, self.scope)
        x = ag.from_numpy(np.random.default_rng(seed).standard_normal((3, 3), np.float32))
        try:
            result = self.step(x, c)
            result = bits(asyncio.run(result) if asyncio.iscoroutine(result) else result)
        except Exception as error:
            result = type(error), str(error)
        left = [self.scope[name] for name in ("w", "b", "t", "row", "n", "rest")]
        left += [leaf.grad for leaf in left[:2]] + self.scope["held"]
        arrays = [x.detach().numpy() for x in left if x is not None]
        shared = [[np.shares_memory(one, other) for one in arrays] for other in arrays]
        return result, bits(left), shared


def bits(value: Any) -> Any:
    """What can be compared of tensors: bits, history, and how often they were changed."""
    if isinstance(value, ag.Tensor):
        array = value.detach().numpy()
        return array.tobytes(), array.shape, array.dtype, value.requires_grad, value._version
    return [bits(part) for part in value] if isinstance(value, list) else value


@pytest.mark.parametrize("way", ["called", "awaited", "in_passes"])
def test_memory_is_changed_as_in_eager_calls(way: str, monkeypatch: Any) -> None:
    """Also by views, where others hold it, and with errors; many steps are replayed."""
    if way == "in_passes":
        for place, name in ((awaited, "_AT_ONCE_NS"), (awaited, "_REST_NS"), (writer, "PART_NS")):
            monkeypatch.setattr(place, name, 1)
    counts = [0, 0]
    _compare(counts, way != "called")
    assert counts[1] > counts[0] / 4


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 10**9))
def _compare(counts: list[int], waits: bool, seed: int) -> None:
    chance = random.Random(seed)
    statements = []
    for _ in range(chance.randint(2, 9)):
        if chance.random() < 0.5:
            leaf = chance.choice("wwb")
            one = chance.choice(OF_GRADIENTS).replace("p.", f"{leaf}.").replace("[p]", f"[{leaf}]")
            statements.append(f"if {leaf}.grad is not None:\n    {one}")
        else:
            statements.append(chance.choice(OTHERS))
    eager, replayed = [World(statements, waits=waits, compiled=x) for x in (False, True)]
    for number in range(6):
        before = chance.choice(BETWEEN) if number else ""
        values = chance.randint(0, 10**6), chance.choice((0.5, 0.5, 2.0))
        assert replayed.call(before, *values) == eager.call(before, *values), "\n".join(statements)
    for place, count in enumerate(replay_counts.counts(replayed.step)):
        counts[place] += count
