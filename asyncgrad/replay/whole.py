"""A call with passes and steps of optimisers that a CUDA device repeats by one launch.

Operations, passes, clipping and updates become one CUDA graph, which changes the weights in place.
The host takes other steps before it, such as `zero_grad`, or after it, such as schedules of the
learning rate. A launch needs the state in which the graph was captured. In any other state, for
example where an unfreed graph needs the old weights, the call is replayed step by step.
"""

from __future__ import annotations

from typing import Any

from asyncgrad.replay.memory import Families, Memory, Plan
from asyncgrad.replay.steps import Again, Place
from asyncgrad.replay.whole_graph import WholeGraph
from asyncgrad.replay.whole_steps import Sorted, has_effect
from asyncgrad.replay.writer import Writer


class WholeCall:
    """What the host does before and after a graph, and the graph between."""

    def __init__(
        self,
        device: Any,
        steps: list[Any],
        outputs: Any,
        families: Families,
        constants: set[Place],
    ) -> None:
        """Sort the steps.

        Args:
            outputs: the template of what the call returns.
            families: which places share memory.
            constants: the places of arrays that are the same in each call.

        Raises:
            UnrepeatableError: if they can't be captured as one.
        """
        found = self._steps = Sorted(device, steps, outputs, families, constants)
        self.graph = WholeGraph(device, found)
        call = Again("graph", self.graph, tuple(found.inputs), {}, tuple(found.outs), True)
        steps = [*found.before, call, *found.after]
        self._plan = Plan(steps, outputs, families)
        self._writer = Writer(constants, steps, outputs, self._plan, divided=False)
        self.anew = [step.name for step in (*found.before, *found.after) if has_effect(step)]
        self._run: Any = None
        #: The expected nanoseconds of the caller's time.
        self.cost = 20_000 * (len(found.inputs) + len(found.outs) + len(found.leaves))

    @property
    def run(self) -> Any:
        """The function of a program, of which the graph is one step."""
        if self._run is None:
            self._run = self._writer.function()
        return self._run

    def new_memory(self) -> Memory:
        """The memory of one call."""
        return self._plan.new_memory()

    def words(self) -> str:
        """What becomes of the call, for `explain()`."""
        found, graph = self._steps, self.graph
        updates = [f"the step of {type(optimizer).__name__}" for optimizer in found.updates]
        what = " and ".join([f"{len(found.inside) - len(updates)} operations", *updates])
        if graph.reason is None:
            return f"{what} {'are' if graph.is_captured else 'can be'} one CUDA graph"
        return f"{what} are no CUDA graph: {graph.reason}"
