"""A call with passes and steps of optimisers that a CUDA device repeats by one launch.

Operations, passes, clipping and updates become one CUDA graph, which changes the weights in place.
The host takes other steps before it, such as `zero_grad`, or after it, such as schedules of the
learning rate. A launch needs the state in which the graph was captured. In any other state, for
example where an unfreed graph needs the old weights, the call is replayed step by step.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import local
from typing import Any

from asyncgrad.core.commit import commit, commit_revocably
from asyncgrad.core.locks import is_held_here
from asyncgrad.core.node import as_edge
from asyncgrad.core.prepared import Prepared, prepare
from asyncgrad.core.variable import (
    Variable,
    autograd_meta,
    bump_version,
    grad_dtype,
    gradient_edge,
    version_of,
    wrap,
)
from asyncgrad.devices import current_stream
from asyncgrad.errors import AutogradError
from asyncgrad.optim.captured import CapturedStep, StepFacts
from asyncgrad.replay.captured import DeviceGraph, take_steps
from asyncgrad.replay.device_arrays import run_on, shares_memory
from asyncgrad.replay.memory import Families, Memory, Plan, ends_of, last_uses
from asyncgrad.replay.order import is_change
from asyncgrad.replay.steps import (
    GRADIENTS_ONLY,
    Again,
    Commit,
    Load,
    Made,
    Place,
    filled,
    sources_in,
)
from asyncgrad.replay.whole_steps import Sorted, owner_of, parameters_of
from asyncgrad.replay.writer import Writer

#: A graph that is captured more than `_MOST` times within `_LAUNCHES` launches is not used for the
#: next `_LAUNCHES` calls, which are replayed step by step.
_MOST, _LAUNCHES = 4, 50


class WholeGraph(DeviceGraph):
    """A function of the arrays that come in. It changes weights, and sets `.grad`s."""

    def __init__(self, device: Any, found: Sorted) -> None:
        super().__init__(device)
        self._steps = found
        self._over = last_uses(found.inside, ends_of(found.inside, found.outs))
        self._updates = {
            owner: (CapturedStep(owner, device), leaves) for owner, leaves in found.updates.items()
        }
        #: What the captured call has used, and what the call of this thread is about to use.
        self._known: list[StepFacts] = []
        self._found = local()
        #: The versions that the `.grad`s of leaves have afterwards.
        self._versions: list[int] = []
        self._launches = self._pause = 0

    # -- before a launch --------------------------------------------------------------------------

    def is_ready(self, arguments: Any, *, waits: bool = True) -> bool:
        """Whether a call can be made by one launch; captures the graph if it has to be.

        The launch `waits` for the device before it sets `.grad`s, as passes do.
        """
        if self.reason is not None or is_held_here(self._lock):
            return False
        with self._lock:
            if self._pause:
                self._pause -= 1
                return False
            found = self._look()
            if found is None or self._overlaps(arguments):
                return False
            self._found.now, self._found.waits = found, waits
            return self._fits(found) or self._is_new(found)

    def _fits(self, found: list[StepFacts]) -> bool:
        """Whether a call uses what the captured one has used."""
        known = self._known
        return len(found) == len(known) and all(map(StepFacts.fits, found, known))

    def _look(self) -> Any:
        """What this call, and each optimiser, is about to use; None if it is taken step by step."""
        cleared = {x for owner in self._steps.clearing for x in parameters_of(owner)}
        for owner, dropped in self._steps.dropping.items():
            if list(map(id, parameters_of(owner))) != list(map(id, dropped)):
                return None
        for variable in self._steps.bare:
            meta = variable._autograd
            if meta is not None and meta.grad is not None and variable not in cleared:
                return None
        looked = [update.facts(leaves) for update, leaves in self._updates.values()]
        if any(one is None for one in looked):
            return None
        fixed = [None if x is None else x._array for x in self._steps.in_place]
        own = StepFacts([*fixed, *[x._array for x in self._steps.changed]], [], [], [])
        return [own, *looked]

    def _overlaps(self, arguments: Any) -> bool:
        """Whether an argument that is read after a change is in the memory that changes."""
        late = [arguments[number]._array for number in self._steps.read_late]
        groups = [self._steps.changed, *[leaves for _, leaves in self._updates.values()]]
        changed = [tensor._array for group in groups for tensor in group]
        return any(shares_memory(x, y) for x in late for y in changed)

    def _is_new(self, found: Any) -> bool:
        """Whether the graph was captured for what this call uses."""
        self._captures = 1 if self._launches > _LAUNCHES else self._captures + 1
        self._launches = 0
        if self._captures > _MOST:
            self._captures, self._pause = 0, _LAUNCHES
            return False
        if not self._tries(run_on, self._device, self._capture, found):
            self._known = []
        return self.is_captured

    def _capture(self, found: list[StepFacts]) -> None:
        own, *looked = found
        targets = [
            _zeros(self._device.xp, place) if array is None else array
            for place, array in zip(self._steps.inputs, own.fixed, strict=False)
        ]
        for (update, _), one in zip(self._updates.values(), looked, strict=True):
            update.begin(one)
        for event in self._steps.events:
            event.synchronize()
        self._capture_in(self._take, targets)
        self._known = found

    # -- what is captured -------------------------------------------------------------------------

    def _take(self, *arrays: Any) -> tuple[Any, ...]:
        """Do the work of the graph; returns results, and then the gradients of leaves."""
        steps = self._steps
        known: dict[Any, Any] = dict(zip(steps.inputs, arrays, strict=True))
        grads: dict[Any, Any] = {}
        take_steps(steps.inside, self._over, known, lambda step: self._other(step, known, grads))
        self._versions = [version_of(grads[x]) for x in steps.graded]
        return (*[known[p] for p in steps.outs], *[grads[x]._array for x in steps.graded])

    def _other(self, step: Any, known: dict[Any, Any], grads: dict[Any, Any]) -> None:
        """Take a step that is no operation, on gradients that nobody else sees."""
        if step.__class__ is Commit:
            for source, place in step.staged:
                owned = place in self._steps.owned
                _accumulate(grads, source.tensor, known[place], owned)
        elif step.__class__ is Load:
            known[step.out] = grads[step.source.tensor]._array
        elif step.name in GRADIENTS_ONLY:
            for variable in self._steps.dropping[step.arguments[0].value]:
                grads.pop(variable, None)
        elif (owner := owner_of(step)) in self._updates:
            arrays = {variable: grad._array for variable, grad in grads.items()}
            self._updates[owner][0].put(arrays)
        else:
            template = step.arguments, step.keywords
            leaves = {x: _with_gradient(x.tensor, grads) for x in sources_in(template)}
            args, keywords = filled(template, {**known, **leaves})
            result = step.function(*args, **keywords)
            if step.outs.__class__ is Made:
                known[step.outs.place] = result._array

    # -- launches ---------------------------------------------------------------------------------

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        """Launch the graph, and set `.grad`s when the device has done its work."""
        device, stream = self._device, current_stream(self._device)
        with self._lock:
            found = self._found.now
            if not self._fits(found):
                # Another thread has captured a call of its own meanwhile.
                self._capture(found)
            self._launches += 1
            versions, count = self._versions, len(self._steps.outs)
            beside = self._leaves_streams(stream)
            for other in beside:
                stream.wait_stream(other)
            facts = zip(arrays, self._targets, self._steps.in_place, strict=True)
            if any(tensor is not None and x is not target for x, target, tensor in facts):
                raise AutogradError("compile: another thread has replaced a weight meanwhile")
            # What may fail comes before the launch.
            results = [device.xp.empty_like(array) for array in self._graph.result]
            self._launch(stream, arrays, results, partial(self._fill, found[1:]))
            if device.side_streams:
                stream.keep(arrays)
        self._commit(results[count:], versions, stream, beside)
        for (update, _), one in zip(self._updates.values(), found[1:], strict=True):
            update.finish(one)
        for variable, times in self._steps.changed.items():
            _bump(variable, times)
        return tuple(results[:count])

    def _fill(self, looked: list[StepFacts]) -> None:
        """Write the numbers of the optimisers' steps to where the graph reads them."""
        for (update, _), one in zip(self._updates.values(), looked, strict=True):
            update.fill(one)

    def _leaves_streams(self, stream: Any) -> list[Any]:
        """The streams in which leaves are accumulated, other than the current one."""
        if not self._device.side_streams:
            return []
        nodes = [as_edge(gradient_edge(variable)).node for variable in self._steps.leaves]
        return [x for x in dict.fromkeys(getattr(node, "stream", stream) for node in nodes)
                if x is not stream]  # fmt: skip

    def _commit(
        self, gradients: list[Any], versions: list[int], stream: Any, beside: list[Any]
    ) -> None:
        """Set the `.grad`s of all leaves, or none."""
        within = partial(run_on, self._device)
        prepared = []
        for x, array in zip(self._steps.graded, gradients, strict=True):
            after = wrap(array, x._metadata.F.metadata_of(array))
            found = Prepared((x, array, False, None), None, None, 0, after, None, within)
            if autograd_meta(x).grad is not None:
                found = prepare(x, array, True, None, within)
            prepared.append(found)
        for other in beside:
            other.wait_stream(stream)
        event = stream.record_event() if self._steps.waits else None
        if event is None or self._found.waits:
            if event is not None:
                event.synchronize()
            commit((), None, True, prepared)
        else:
            self._found.launched = event, commit_revocably((), None, True, prepared)
        for variable, version in zip(self._steps.graded, versions, strict=True):
            grad = autograd_meta(variable).grad
            if grad is not None:
                _bump(grad, version)

    async def finish(self) -> None:
        """Wait for the last call, if it has not waited; restore `.grad`s if it fails."""
        event, revoke = vars(self._found).pop("launched", (None, None))
        if event is not None and not event.query():
            try:
                # All that the call changes has been put into the stream, so a cancellation here
                # comes after it.
                await event.synchronize_async()
            except Exception:
                revoke(True)
                raise


class WholeCall:
    """What the host does before and after a graph, and the graph between."""

    def __init__(
        self, device: Any, steps: list[Any], outputs: Any, families: Families, constants: set[Place]
    ) -> None:
        """Sort the steps; raises an `UnrepeatableError` if they can't be captured as one."""
        found = self._steps = Sorted(device, steps, outputs, families, constants)
        self.graph = WholeGraph(device, found)
        call = Again("graph", self.graph, tuple(found.inputs), {}, tuple(found.outs), True)
        steps = [*found.before, call, *found.after]
        plan = Plan(steps, outputs, families)
        #: The memory of one call.
        self.new_memory: Callable[[], Memory] = plan.new_memory
        #: The function of a program, of which the graph is one step.
        self.run = Writer(constants, steps, outputs, plan, divided=False).function()
        self.anew = [step.name for step in (*found.before, *found.after) if is_change(step)]
        #: The expected nanoseconds of the caller's time.
        self.cost = 20_000 * (len(found.inputs) + len(found.outs) + len(found.leaves))

    def words(self) -> str:
        """What becomes of the call, for `explain()`."""
        found = self._steps
        updates = [f"the step of {type(optimizer).__name__}" for optimizer in found.updates]
        what = " and ".join([f"{len(found.inside) - len(updates)} operations", *updates])
        return self.graph.fate(what, "are" if self.graph.is_captured else "can be")


def _bump(variable: Variable, times: int) -> None:
    for _ in range(times):
        bump_version(variable)


def _with_gradient(variable: Variable, grads: dict[Any, Any]) -> Any:
    """A tensor of a leaf's array that has the gradient of the graph."""
    tensor: Any = wrap(variable._array, variable._metadata)
    autograd_meta(tensor).grad = grads.get(variable)
    return tensor


def _accumulate(grads: dict[Any, Any], variable: Variable, gradient: Any, owned: bool) -> None:
    """Add a gradient to what the call has computed of a leaf's `.grad`."""
    F = variable._metadata.F
    grad = grads.get(variable)
    if grad is None:
        dtype = grad_dtype(variable) or gradient.dtype
        total = F.keep_gradient(gradient, variable._array, owned, dtype)
        grads[variable] = wrap(total, F.metadata_of(total))
        return
    total, _ = F.accumulate(grad._array, False, gradient, False)
    same = total.dtype == grad._metadata.dtype
    grad._array = total if same else F.in_dtype(total, grad._metadata.dtype)
    bump_version(grad)


def _zeros(xp: Any, layout: Any) -> Any:
    """Memory of a layout."""
    for order in ("C", "F"):
        made = xp.zeros(layout.shape, layout.dtype, order=order)
        if made.strides == layout.strides:
            return made
    raise NotImplementedError("an array comes in with gaps")
