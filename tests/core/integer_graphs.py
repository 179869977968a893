"""Graphs on paper: gradients are integers or words, and nothing is an array.

With integers the gradient at a leaf is the number of paths that lead to it. Words are tuples that
a sum concatenates: they show the order in which a sum was made.
"""

from __future__ import annotations

from heapq import heappop
from typing import TYPE_CHECKING, Any, NamedTuple

from invariants import validate

from asyncgrad.core.delivery import take_report
from asyncgrad.core.graph_task import GraphTask
from asyncgrad.core.metadata import Metadata
from asyncgrad.core.node import Edge, Node, as_edge, as_stored, init_node
from asyncgrad.core.rule import Rule
from asyncgrad.core.states import RUNNING, Outcome
from asyncgrad.core.variable import AccumulateGrad, Variable, autograd_meta, gradient_edge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

#: More than any pass on paper costs.
ENDLESS = 2**62


class Namespace:
    """What a pass asks of a library of arrays, for numbers and words."""

    array_type = object

    def accumulate(self, value: Any, owned: bool, gradient: Any, gradient_owned: bool) -> Any:
        return value + gradient, True

    def own_copy(self, gradient: Any) -> Any:
        """Integers can't be changed."""
        return gradient

    def in_own_dtype(self, gradient: Any, dtype: Any) -> Any:
        """They have one dtype."""
        return gradient

    def as_array(self, value: Any) -> Any:
        return value


class Paper:
    """The device of numbers and words."""

    streamed = False

    def __str__(self) -> str:
        return "paper"


class Lends:
    """Has room for some more nodes, or parts of them, which the test runs itself."""

    def __init__(self, room: int = 1, *, splits: bool = False) -> None:
        self._room, self._splits = room, splits
        self.jobs: list[Callable[[], None]] = []

    def gives_way(self, cost: int, suspended: int) -> bool:
        return False

    def room(self) -> int:
        return max(0, self._room - len(self.jobs))

    def splits(self) -> bool:
        return self._splits

    def lend(self, job: Callable[[], None], *, part: bool = False) -> None:
        self.jobs.append(job)


def facts() -> Metadata:
    costs = {"cost": 1_000, "line_cost": 1_000}
    return Metadata(
        (), "int", Paper(), Namespace(), size=1, **costs, is_complex=False, is_float=True
    )


FACTS = facts()


def leaf() -> Variable:
    """A variable that gradients are accumulated for."""
    variable = Variable()
    variable._array = None
    variable._metadata = FACTS
    variable._edge = None
    variable._counter = None
    variable._autograd = None
    autograd_meta(variable).requires_grad = True
    return variable


class Step(Node):
    """Sends the sum of its gradients along every edge, and notes that it ran."""

    __slots__ = ("label", "log")

    def __init__(
        self,
        edges: Sequence[Edge | Node | Variable | None],
        *,
        outputs: int = 1,
        label: str = "",
        log: list[Any] | None = None,
        cost: int = 2_000,
    ) -> None:
        stored = tuple(_stored(edge) for edge in edges)
        init_node(
            self,
            stored[0] if len(stored) == 1 else stored,
            FACTS if outputs == 1 else (FACTS,) * outputs,
            cost,
        )
        self.label = label
        self.log = log

    def apply(self, gradients: tuple[Any, ...], task: Any) -> Any:
        if self.log is not None:
            self.log.append(self.label)
        return self.compute(gradients)

    def compute(self, gradients: tuple[Any, ...]) -> Any:
        defined = [gradient for gradient in gradients if gradient is not None]
        total = sum(defined[1:], defined[0]) if defined else None
        return (total,) * len(self.next_edges)


class Fails(Step):
    """Raises."""

    __slots__ = ("error",)

    def compute(self, gradients: tuple[Any, ...]) -> Any:
        raise self.error


class Asks(Step):
    """Wants something awaited before it can answer: it is handed out and resumed."""

    __slots__ = ()

    def compute(self, gradients: tuple[Any, ...]) -> Any:
        return Question()


def by_rule(node: Step, *, fresh: bool = False, passes: bool = False, apart: bool = False) -> Step:
    """Let a node of one output be run as those of the table are: by a rule, not by `apply`."""
    single = node.following.__class__ is not tuple
    arity = len(node.next_edges)

    def compute(F: Any, gradient: Any, saved: Any) -> Any:
        received = node.apply((gradient,), None)
        return received[0] if single else received

    def pull_for(place: int) -> Any:
        return lambda F, gradient, saved: node.apply((gradient,), None)[place]

    node.rule = Rule(
        "ByRule",
        compute,
        pulls=tuple(pull_for(place) for place in range(arity)),
        fresh=fresh,
        passes=passes,
        places=tuple(range(arity)),
        arity=arity,
        apart=apart,
    )
    return node


class Question:
    """An awaitable that the tests answer themselves."""

    def __await__(self) -> Any:
        raise AssertionError("nothing here waits")


class Answer(tuple):
    """What an `Asks` node answers when it is asked: the gradients for its edges."""

    __slots__ = ()


def _stored(edge: Any) -> Any:
    if edge is None or isinstance(edge, Node):
        return edge
    return gradient_edge(edge) if isinstance(edge, Variable) else as_stored(edge)


def pass_over(
    *roots: Any, gradients: Iterable[Any] | None = None, inputs: Any = None, **options: Any
) -> GraphTask:
    """A pass that has not begun, from nodes, edges or leaves, with 1 as their gradients."""
    edges = [_stored(root) for root in roots]
    if inputs is not None:
        inputs = [as_edge(_stored(edge)) for edge in inputs]
    values = [1] * len(edges) if gradients is None else list(gradients)
    return GraphTask(edges, values, inputs=inputs, **options)


class Ready(NamedTuple):
    """A node with its gradients, as they are in `PassState.ready`."""

    key: int
    order: int
    node: Any
    gradient: Any
    owned: Any


def launch(task: GraphTask) -> Ready | None:
    """Hand out the next ready node, None if there is none."""
    if task.state is not RUNNING or not task.ready:
        return None
    entry = Ready(*heappop(task.ready))
    task.launched[entry.node] = entry.node.sequence_nr
    return entry


def finish(task: GraphTask, node: Node, gradients: Any) -> list[Ready]:
    """Report a node that was handed out by `launch`; returns the nodes that have become ready."""
    before = {entry[2] for entry in task.ready}
    take_report(task, node, gradients, False)
    task.take_last_steps()
    return [Ready(*entry) for entry in task.ready if entry[2] not in before]


def run_through(task: GraphTask) -> GraphTask:
    """Run a pass to its end; what it stages stays where it is."""
    task.start()
    validate(task)
    outcome = task.run(ENDLESS)
    assert outcome is Outcome.FINISHED
    validate(task)
    return task


def staged(task: GraphTask) -> dict[Variable, Any]:
    """What the leaves would be given."""
    gradients = {variable: gradient for variable, gradient, _ in task.staged}
    assert len(gradients) == len(task.staged), "a leaf is staged twice"
    return gradients


def accumulate(task: GraphTask, node: Any, gradient: Any) -> None:
    """Do as the driver of a launched accumulator does."""
    assert node.__class__ is AccumulateGrad
    if gradient is not None:
        task.staged.append((node.variable, gradient, False))
