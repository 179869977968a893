"""Passes of every kind and fate, and the sequential reference of what they do to their leaves.

Every pass adds a whole number to the gradient of its leaf, or nothing: the gradients are exact, and
at any moment they are the sums over the passes that have ended well.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from invariants import validate
from passes import HEAVY, assert_nothing_runs, calls, chain, leaf, settle

import asyncgrad as ag
from asyncgrad.core.states import State

KINDS = ("small", "long", "heavy", "waiting", "nested", "side by side", "offloaded")
FATES = (None, None, None, ValueError, MemoryError, StopIteration, GeneratorExit)


@dataclass(eq=False)
class Pass:
    """One pass on its way, or at its end."""

    kind: str
    place: int
    amount: int
    fate: type[BaseException] | None
    urgency: dict[str, Any]
    gate: asyncio.Event
    future: Any = None
    machine: Any = None
    #: A cancel was accepted: it wins over an error that nobody had read.
    cancelled: bool = False
    #: Its deadline has been over from the beginning.
    late: bool = False
    #: The pass that one of its nodes awaits.
    inner: Pass | None = None

    @property
    def ended_well(self) -> bool:
        future = self.future
        return future.done() and not future.cancelled() and future.exception() is None


@dataclass
class Traffic:
    """All passes of one loop over the same leaves."""

    leaves: list[ag.Tensor] = field(default_factory=lambda: [leaf() for _ in range(3)])
    passes: list[Pass] = field(default_factory=list)
    #: Sums over passes that have ended well and are forgotten.
    settled: list[int] = field(default_factory=lambda: [0, 0, 0])

    def start(
        self,
        kind: str,
        place: int,
        amount: int,
        fate: type[BaseException] | None = None,
        *,
        late: bool = False,
        **urgency: Any,
    ) -> Pass:
        """Start a pass."""
        started = Pass(kind, place, amount, fate, urgency, asyncio.Event(), late=late)
        loss = self._loss(started)
        if late:
            urgency["deadline"] = asyncio.get_running_loop().time() - 1.0
        started.future = loss.backward(**urgency)
        started.machine = started.future._task
        started.future.add_done_callback(_look)
        self.passes.append(started)
        return started

    def _loss(self, of: Pass) -> ag.Tensor:
        x = self.leaves[of.place] * float(of.amount)

        def node() -> None:
            if of.fate is not None:
                raise of.fate("planned")

        async def waits() -> None:
            await of.gate.wait()
            node()

        if of.kind == "small":
            return chain(calls(chain(x, 2), node), 2).sum()
        if of.kind == "long":
            return chain(calls(chain(x, 200), node), 200).sum()
        if of.kind == "heavy":
            return chain(calls(chain(x, 2, cost=HEAVY), node, HEAVY), 2, cost=HEAVY).sum()
        if of.kind == "waiting":
            return chain(calls(x, waits), 3).sum()
        if of.kind == "side by side":
            return (calls(x, waits) * 0.5 + chain(calls(x, node), 150) * 0.5).sum()
        if of.kind == "offloaded":

            async def offloads() -> None:
                await ag.offload(node)

            return calls(x, offloads).sum()
        inner = of.inner = Pass("inner", (of.place + 1) % 3, 1, None, of.urgency, of.gate)
        inner_loss = chain(self.leaves[inner.place] * 1.0, 200).sum()

        async def nests() -> None:
            inner.future = inner_loss.backward()
            inner.machine = inner.future._task
            inner.future.add_done_callback(_look)
            self.passes.append(inner)
            await inner.future
            node()

        return calls(x, nests).sum()

    def cancel(self, one: Pass) -> None:
        """Cancel a pass."""
        if one.future.cancel():
            one.cancelled = True

    def check(self) -> None:
        """Compare with the reference, and look into every machine that the loop owns."""
        expected = list(self.settled)
        engine = ag.engine()
        for one in self.passes:
            if one.ended_well:
                expected[one.place] += one.amount
                assert not one.cancelled, "a cancel that was accepted was lost"
                assert not one.late
                assert one.fate is None
            elif not one.future.done() and one.machine not in engine.thread_segments.tasks:
                validate(one.machine)
        for x, amount in zip(self.leaves, expected, strict=True):
            found = 0.0 if x.grad is None else x.grad.tolist()[0]
            assert found == amount

    def forget(self) -> None:
        """Let go of the passes that have ended."""
        for one in self.passes:
            if one.ended_well:
                self.settled[one.place] += one.amount
        self.passes = [one for one in self.passes if not one.future.done()]

    async def end(self) -> None:
        """Bring every pass to its end, and see that it is the right one."""
        while pending := [one for one in self.passes if not one.future.done()]:
            for one in pending:
                one.gate.set()
            await asyncio.wait([one.future for one in pending])
        for one in self.passes:
            self._check_end(one)
        self.check()
        await assert_nothing_runs()
        assert ag.engine().thread_segments.tasks == {}
        x = leaf()
        await chain(x, 200).sum().backward()
        assert x.grad.tolist() == [1.0] * 3
        await settle()

    @staticmethod
    def _check_end(one: Pass) -> None:
        assert one.machine is None or one.machine.state in {
            State.DONE,
            State.FAILED,
            State.CANCELLED,
        }
        if one.future.cancelled():
            assert one.cancelled or one.kind == "inner", "nobody has cancelled it"
            return
        error = one.future.exception()
        assert not one.cancelled, "a cancel that was accepted was lost"
        if isinstance(error, TimeoutError) and "deadline" in one.urgency:
            # It was over before the pass met its fate.
            return
        if one.inner is not None and one.inner.cancelled:
            # Its node was given the other's CancelledError, which is an error like any other.
            assert isinstance(error, RuntimeError)
            return
        if one.late:
            # Late, or wrong before anybody looked at the clock.
            assert isinstance(error, TimeoutError)
        elif one.fate in {StopIteration, GeneratorExit}:
            assert isinstance(error, RuntimeError)
        elif one.fate is not None:
            assert type(error) is one.fate
        else:
            assert error is None


def _look(future: Any) -> None:
    """Nobody forgets a pass here."""
    if not future.cancelled():
        future.exception()
