"""Expensive nodes of one pass on several cores: who computes changes no bit."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from passes import HEAVY, assert_nothing_runs

import asyncgrad as ag
from asyncgrad.core.node import OpNode
from asyncgrad.core.rule import Rule
from asyncgrad.core.variable import gradient_edge, wrap
from asyncgrad.devices import pieces
from asyncgrad.ops.table import recurrent
from asyncgrad.scheduler import blas, loop_thread
from asyncgrad.scheduler.helpers import Helpers

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.asyncio


def leaf() -> ag.Tensor:
    return ag.tensor(np.ones(3), requires_grad=True)


def heavy(
    x: ag.Tensor, *pulls: Callable[[Any], Any], others: tuple[ag.Tensor, ...] = ()
) -> ag.Tensor:
    """`x` behind a costly node of the table's kind, with an edge for each pull: to it or others."""
    functions = tuple(lambda F, g, saved, pull=pull: pull(g) for pull in pulls)
    run: Any = functions[0]
    following: Any = gradient_edge(x)
    if len(pulls) > 1:
        run = lambda F, g, saved: tuple(f(F, g, saved) for f in functions)  # noqa: E731
        targets = others + (x,) * (len(pulls) - len(others))
        following = tuple(gradient_edge(target) for target in targets)
    node = OpNode.__new__(OpNode)
    node.rule = Rule(
        "HeavyBackward0",
        run,
        pulls=functions if len(pulls) > 1 else None,
        fresh=True,
        arity=len(pulls),
        places=tuple(range(len(pulls))),
        apart=True,
    )
    node.following = following
    node.saved = node.guard = node.extras = None
    node.output_metadata = x._metadata
    node.cost = HEAVY
    node.sequence_nr = heavy.next = getattr(heavy, "next", 10**9) + 1
    node.topological_nr = 1
    return wrap(x._array, x._metadata, node)


class Meeting:
    """Nodes that all have to be there at the same time, and note where they ran."""

    def __init__(self, parties: int) -> None:
        self.barrier = threading.Barrier(parties, timeout=30)
        self.threads: list[str] = []

    def __call__(self, gradient: Any) -> Any:
        self.threads.append(threading.current_thread().name)
        self.barrier.wait()
        return gradient * 2.0


@pytest.fixture
def two_cores() -> None:
    if blas.CORES < 2:
        pytest.skip("one core")


@pytest.mark.usefixtures("two_cores")
class TestAtTheSameTime:
    async def test_independent_nodes_run_on_different_cores(self) -> None:
        x, promote_binary = leaf(), Meeting(2)
        loss = (heavy(x, promote_binary) + heavy(x, promote_binary)).sum()
        await loss.backward()
        assert x.grad.tolist() == [4.0] * 3
        assert len(set(promote_binary.threads)) == 2
        assert all(name.startswith("asyncgrad") for name in promote_binary.threads)
        await assert_nothing_runs()

    async def test_no_thread_is_woken_for_a_view_of_a_gradient(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """However large it is."""
        lent, lend = [], Helpers.lend

        def noted(self: Helpers, call: Callable[[], None], *, part: bool = False) -> None:
            lent.append(call)
            lend(self, call, part=part)

        monkeypatch.setattr(Helpers, "lend", noted)
        for form, expected in ((lambda x: x.reshape(3, 1), 0), (lambda x: x * 2.0, 1)):
            made = [form(leaf()) for _ in range(2)]
            for x in made:
                gradient_edge(x).cost = HEAVY
            await ag.cat(made).sum().backward()
            assert len(lent) == expected

    @pytest.mark.parametrize(("cores", "loop_goes_first"), [(2, True), (3, False)])
    async def test_the_pulls_of_one_node_do_where_the_loop_gets_a_core(
        self, cores: int, loop_goes_first: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One that runs at once when it wakes, or one that is left to it."""
        self.engine(monkeypatch, cores, loop_goes_first)
        x, promote_binary = leaf(), Meeting(2)
        await heavy(x, promote_binary, promote_binary).sum().backward()
        assert x.grad.tolist() == [4.0] * 3
        assert len(set(promote_binary.threads)) == 2

    async def test_the_pass_goes_on_while_another_thread_computes_the_gradient_of_a_leaf(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Two layers: the first one's node meets the gradient of the second one's weight."""
        self.engine(monkeypatch, 2, loop_goes_first=True)
        x, w, promote_binary = leaf(), leaf(), Meeting(2)
        y = heavy(x, promote_binary)
        await heavy(y, promote_binary, lambda g: g * 3.0, others=(w,)).sum().backward()
        assert (w.grad.tolist(), x.grad.tolist()) == ([2.0] * 3, [6.0] * 3)
        await assert_nothing_runs()

    @pytest.mark.parametrize("failing", [0, 1])
    async def test_an_error_in_either_part_of_a_node_is_the_passs(
        self, failing: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.engine(monkeypatch, 2, loop_goes_first=True)
        x, w, meeting = leaf(), leaf(), Meeting(2)

        def part_of(place: int) -> Callable[[Any], Any]:
            def part(gradient: Any) -> Any:
                meeting(gradient)
                if place == failing:
                    raise ValueError("no")
                return gradient

            return part

        loss = heavy(x * 2, part_of(0), part_of(1), others=(w,)).sum()
        with pytest.raises(ValueError, match="no") as caught:
            await loss.backward()
        assert sum("HeavyBackward0" in note for note in caught.value.__notes__) >= 1
        assert (x.grad, w.grad) == (None, None)
        await assert_nothing_runs()

    async def test_of_two_cores_one_is_left_to_a_loop_that_would_have_to_wait_for_it(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.engine(monkeypatch, 2, loop_goes_first=False)
        x, promote_binary = leaf(), Meeting(1)
        await heavy(x, promote_binary, promote_binary).sum().backward()
        assert x.grad.tolist() == [4.0] * 3
        assert len(set(promote_binary.threads)) == 1

    async def test_pulls_that_share_their_work_do_it_once(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An LSTM goes through all steps for whichever gradient it is asked for."""
        self.engine(monkeypatch, 2, loop_goes_first=True)
        begun: list[str] = []
        for_steps = recurrent._for_steps

        def noted(xp: Any, name: str, *values: Any) -> Any:
            begun.append(name)
            return for_steps(xp, name, *values)

        loss = ag.nn.LSTM(2, 2)(ag.ones(100, 1, 2))[0].sum()
        monkeypatch.setattr(recurrent, "_for_steps", noted)
        await loss.backward()
        assert begun == ["lstm_step_gradient"]

    @staticmethod
    def engine(monkeypatch: pytest.MonkeyPatch, cores: int, loop_goes_first: bool) -> None:
        """Start the engine of a machine."""
        monkeypatch.setattr(blas, "CORES", cores)
        monkeypatch.setattr(loop_thread, "shorten_slice", lambda engine: loop_goes_first)
        ag.engine()
        monkeypatch.setattr(pieces, "threads", cores)

    @pytest.mark.parametrize("kind", [ValueError, MemoryError, StopIteration])
    @pytest.mark.parametrize("failing", [0, 1])
    async def test_an_error_in_any_of_them_is_the_passs(
        self, failing: int, kind: type[Exception]
    ) -> None:
        """The other one ends first, then the future."""
        x, promote_binary = leaf(), Meeting(2)
        left: list[int] = []

        def node_of(place: int) -> Callable[[Any], Any]:
            def node(gradient: Any) -> Any:
                promote_binary(gradient)
                left.append(place)
                if place == failing:
                    raise kind("no")
                return gradient

            return node

        loss = (heavy(x, node_of(0)) + heavy(x, node_of(1))).sum()
        with pytest.raises(RuntimeError if kind is StopIteration else kind, match="no"):
            await loss.backward()
        assert sorted(left) == [0, 1]
        assert x.grad is None
        await assert_nothing_runs()

    async def test_a_cancelled_pass_waits_for_all_of_them(self) -> None:
        x, left = leaf(), []
        loop, entered = asyncio.get_running_loop(), asyncio.Event()
        go_on = threading.Event()
        promote_binary = Meeting(2)

        def node(gradient: Any) -> Any:
            promote_binary(gradient)
            loop.call_soon_threadsafe(entered.set)
            go_on.wait(30)
            left.append(1)
            return gradient

        future = (heavy(x, node) + heavy(x, node)).sum().backward()
        await entered.wait()
        future.cancel()
        await asyncio.sleep(0)
        assert not future.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await future
        assert left == [1, 1]
        assert x.grad is None
        await assert_nothing_runs()


async def test_nobody_waits_for_a_thread_that_is_busy_elsewhere() -> None:
    """As many passes as threads, each with more to share than there are threads."""
    leaves = [leaf() for _ in range(blas.CORES + 2)]
    losses = []
    for x in leaves:
        y = heavy(x, lambda g: g * 1.0)
        for _ in range(blas.CORES + 2):
            y = y + heavy(x, lambda g: g * 2.0, lambda g: g * 3.0)
        losses.append(y.sum())
    await asyncio.gather(*(loss.backward() for loss in losses))
    expected = 1.0 + 5.0 * (blas.CORES + 2)
    assert all(x.grad.tolist() == [expected] * 3 for x in leaves)
    await assert_nothing_runs()


@pytest.mark.parametrize("inputs", [False, True])
async def test_the_bits_are_those_of_a_blocking_pass(inputs: bool) -> None:
    """Sums go in one order, whoever is faster. Run often, beside other passes."""
    # Products have the same bits only while an engine runs.
    ag.engine()
    rng = np.random.default_rng(0)
    w = [
        ag.tensor(rng.standard_normal((192, 192)).astype(np.float32), requires_grad=True)
        for _ in range(4)
    ]
    x = ag.tensor(rng.standard_normal((192, 192)).astype(np.float32))

    def loss() -> ag.Tensor:
        branches = [ag.tanh(x @ a @ w[(i + 1) % 4]) * (i + 0.1) for i, a in enumerate(w)]
        total = branches[0]
        for branch in branches[1:]:
            total = total * 0.3 + branch @ w[0]
        return total.sum()

    wanted = w[:2] if inputs else w
    with ag.blocking():
        expected = [g.numpy().tobytes() for g in ag.grad(loss(), wanted)]
    for _ in range(4):
        several = await asyncio.gather(*(ag.grad(loss(), wanted) for _ in range(3)))
        for gradients in several:
            assert [g.numpy().tobytes() for g in gradients] == expected


async def test_a_released_graph_says_so_from_any_thread() -> None:
    x = ag.tensor(np.ones((256, 256), np.float32), requires_grad=True)
    loss = ((x @ x) + (x.T @ x)).sum()
    await loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        await loss.backward()


async def test_what_was_changed_in_place_says_so_from_any_thread() -> None:
    x = ag.tensor(np.ones((256, 256), np.float32), requires_grad=True)
    y = x * 1.0
    loss = ((y @ y) + (y.T @ y)).sum()
    y.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        await loss.backward()
