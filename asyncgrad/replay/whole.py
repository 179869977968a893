"""A call with passes and steps of optimisers that a CUDA device repeats by one launch.

Passes, clipping and updates become one CUDA graph, which changes the weights where they are. What
only the host does comes before it, as `zero_grad`, or after it, as schedules. A call that finds
anything else than the captured one had, such as a `.grad` that is there already or a weight that an
unfreed graph needs, is replayed step by step.
"""

from __future__ import annotations

import linecache
from threading import Lock, local
from typing import TYPE_CHECKING, Any
from weakref import finalize

from asyncgrad.core.commit import commit
from asyncgrad.core.node import as_edge
from asyncgrad.core.prepared import Prepared
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
from asyncgrad.errors import AcceleratorError, OutOfMemoryError
from asyncgrad.nn.utils import clip
from asyncgrad.optim.captured import CapturedStep
from asyncgrad.optim.elementwise import ElementwiseOptimizer
from asyncgrad.optim.lr_scheduler import LRScheduler
from asyncgrad.optim.optimizer import Optimizer
from asyncgrad.replay.captured import is_work_of_the_device, last_uses, lists_in, take_steps
from asyncgrad.replay.device_arrays import kept_constant, run_on
from asyncgrad.replay.memory import Plan
from asyncgrad.replay.names import is_own
from asyncgrad.replay.order import ends_of, made_by, read_by
from asyncgrad.replay.steps import (
    GRADIENTS_ONLY,
    Again,
    Commit,
    Compute,
    Load,
    Made,
    Place,
    Same,
    Source,
    UnrepeatableError,
    places_in,
)
from asyncgrad.replay.writer import Writer

if TYPE_CHECKING:
    from asyncgrad.optim.captured import Looked
    from asyncgrad.replay.memory import Families

#: How often it is captured again within so many launches because something has been replaced.
_MOST, _LAUNCHES = 4, 50
#: Functions of gradients that read no values on the host.
_CLIPS = frozenset({
    "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm",
})  # fmt: skip


class WholeCall:
    """What the host does before and after, and the graph between."""

    def __init__(
        self,
        device: Any,
        steps: list[Any],
        outputs: Any,
        families: Families,
        owned: set[Place],
        constants: set[Place],
    ) -> None:
        """Divide the steps.

        Args:
            outputs: the template of what the call returns.
            families: which places share memory.
            owned: gradients whose arrays nothing else refers to.
            constants: the places of arrays that are the same in each call.

        Raises:
            UnrepeatableError: if they can't be captured as one.
        """
        self._device = device
        self._owned = owned
        self._before: list[Any] = []
        self._inside: list[Any] = []
        self._after: list[Any] = []
        #: The leaves that get gradients.
        self._leaves: dict[Any, None] = {}
        self._updates: dict[Any, CapturedStep] = {}
        #: Those whose `zero_grad` comes first.
        self._clearing: list[Any] = []
        #: Tensors of which only the gradients of this call may be there.
        self._bare: dict[Any, None] = {}
        #: Events after which constants are there.
        self._constants: list[Any] = []
        #: A pass waits until the device has done its work.
        self._waits = False
        outside = set(constants)
        lists = lists_in(steps)
        for step in steps:
            self._sort(step, outside, lists)
        if not any(step.__class__ is not Compute for step in self._inside):
            raise UnrepeatableError("it runs no pass")
        made = {place for step in self._inside for place in made_by(step)}
        read = dict.fromkeys(place for step in self._inside for place in read_by(step))
        later = {*places_in(outputs), *(place for step in self._after for place in read_by(step))}
        #: The places that the graph reads and does not make, and those that are read later.
        self._inputs = [place for place in read if place not in made]
        self._outs = [place for place in made if place in later]
        self._outs.sort(key=lambda place: place.number)
        roots = [families.of(place) for place in self._outs]
        shared = {families.of(place) for place in self._inputs}
        if len(set(roots)) < len(roots) or not shared.isdisjoint(roots):
            raise UnrepeatableError("a result shares memory with another array")
        if any(not place.sample.is_array for place in (*self._inputs, *self._outs)):
            raise UnrepeatableError("something else than arrays comes in or out")
        #: The tensors whose arrays come in, None for those that may be others in each call.
        loaded = {step.out: step.source for step in self._before if step.__class__ is Load}
        sources = [loaded.get(place) for place in self._inputs]
        self._read_in_place = [
            None if source is None or source.argument is not None or source.is_array
            else source.tensor
            for source in sources
        ]  # fmt: skip
        self._over = last_uses(self._inside, self._outs)
        call = Again("graph", self, tuple(self._inputs), {}, tuple(self._outs), True)
        steps = [*self._before, call, *self._after]
        ends = ends_of(steps, outputs)
        self._plan = Plan(steps, outputs, families, ends)
        self._writer = Writer(constants, steps, outputs, self._plan, ends, divided=False)
        self.length = len(steps)
        self.anew = [step.name for step in (*self._before, *self._after) if _has_effect(step)]
        self._run: Any = None
        self._lock = Lock()
        self._graph: Any = None
        #: What the captured call has used, and what this thread's call uses.
        self._known: tuple[list[Any], list[Looked]] | None = None
        self._found = local()
        self._targets: list[Any] = []
        self._grads: list[Any] = []
        self._made_in: Any = None
        self._captures = self._launches = 0
        self._last: Any = None
        #: Why it is not captured, None while it may be.
        self.reason: str | None = None

    # -- which step goes where --------------------------------------------------------------------

    def _sort(self, step: Any, outside: set[Place], lists: set[Place]) -> None:
        """Put a step before the graph, into it or after it."""
        ready = all(place in outside for place in read_by(step))
        kept = kept_constant(step)
        if kept is not None:
            array, made = kept
            self._constants.append(made)
            step = Compute("constant", self._device.xp.array, (Same(array),), step.outs, step.cost)
        if step.__class__ is Again:
            self._sort_call(step, ready)
        elif step.__class__ is Load:
            if step.gradient:
                raise UnrepeatableError("it reads .grad")
            if self._updates:
                raise UnrepeatableError("it reads a tensor after a step of an optimizer")
            self._before.append(step)
        elif step.__class__ is Commit:
            self._add_inside(step)
            self._waits = self._waits or step.waits
            for source, place in step.staged:
                self._bare[self._leaf(source)] = self._leaves[source.tensor] = None
                if not place.sample.is_array or place.sample.on_host:
                    raise UnrepeatableError("a gradient is not an array of the device")
        elif kept is not None or is_work_of_the_device(step, lists):
            self._add_inside(step)
            return
        else:
            (self._before if ready else self._after).append(step)
        if ready and step in self._before:
            outside.update(made_by(step))

    def _add_inside(self, step: Any) -> None:
        late = {place for one in self._after for place in made_by(one)}
        if any(map(_has_effect, self._after)) or not late.isdisjoint(read_by(step)):
            raise UnrepeatableError("the device works on after the host")
        self._inside.append(step)

    def _sort_call(self, step: Again, ready: bool) -> None:
        """Put a function that is called anew where it belongs."""
        first = step.arguments[0] if step.arguments else None
        owner = first.value if first.__class__ is Same else None
        if step.name in GRADIENTS_ONLY:
            to_none = [*step.arguments[1:], *step.keywords.values()]
            if to_none and to_none[0] is not True:
                raise UnrepeatableError("zero_grad() fills gradients with zeros")
            if self._inside and self._leaves:
                self._after.append(step)
            else:
                self._clearing.append(owner)
                self._before.append(step)
        elif step.name in _CLIPS and getattr(clip, step.name).__wrapped__ is step.function:
            if True in step.arguments[3:4] or step.keywords.get("error_if_nonfinite"):
                raise UnrepeatableError("clipping looks at the norm")
            for source in _sources_in((step.arguments, step.keywords)):
                self._bare[self._leaf(source)] = None
            self._add_inside(step)
        elif isinstance(owner, Optimizer) and step.name.endswith(".step"):
            plain = len(step.arguments) == 1 and not step.keywords and owner not in self._updates
            if not (
                plain and isinstance(owner, ElementwiseOptimizer) and is_own(type(owner).__module__)
            ):
                raise UnrepeatableError(f"{type(owner).__name__}.step can't be captured")
            self._updates[owner] = CapturedStep(owner, self._device)
            self._add_inside(step)
        elif isinstance(owner, LRScheduler):
            self._after.append(step)
        elif not step.effect and ready:
            self._before.append(step)
        else:
            raise UnrepeatableError(f"{step.name} is called between")

    def _leaf(self, source: Source) -> Any:
        if source.argument is not None or source.tensor._metadata.device is not self._device:
            raise UnrepeatableError("a leaf is an argument, or elsewhere")
        return source.tensor

    # -- calls ------------------------------------------------------------------------------------

    @property
    def run(self) -> Any:
        """The function of a program, of which the graph is one step."""
        if self._run is None:
            self._run = self._writer.function()
            finalize(self, linecache.cache.pop, self._writer.file, None)
        return self._run

    def memory(self) -> Any:
        """The buffers of one call."""
        return self._plan.new_memory()

    def is_ready(self) -> bool:
        """Whether this call can be made by one launch; captures the graph if it has to be."""
        if self.reason is not None:
            return False
        with self._lock:
            found = self._look()
            if found is None:
                return False
            self._found.now = found
            if self._known is not None and _fits(found, self._known):
                return True
            self._captures = 1 if self._launches > _LAUNCHES else self._captures + 1
            self._launches = 0
            try:
                if self._captures > _MOST:
                    raise NotImplementedError("its arrays are others at each call")
                run_on(self._device, self._capture, found)
            except (NotImplementedError, AcceleratorError, OutOfMemoryError) as error:
                self.reason = str(error)
                self._graph = self._known = None
                self._targets.clear()
            return self.reason is None

    def _look(self) -> Any:
        """What this call is about to use; None if it has to be replayed step by step."""
        cleared: set[Any] = set()
        for owner in self._clearing:
            if isinstance(owner, Optimizer):
                cleared.update(p for group in owner.param_groups for p in group["params"])
            else:
                cleared.update(owner.parameters())
        for variable in self._bare:
            meta = variable._autograd
            if meta is None or (meta.grad is not None and variable not in cleared):
                return None
        graded = set(self._leaves)
        looked = [update.look(graded) for update in self._updates.values()]
        if any(one is None for one in looked):
            return None
        arrays = [None if x is None else x._array for x in self._read_in_place]
        return arrays, looked

    def _capture(self, found: Any) -> None:
        """Capture the graph for what this call uses."""
        arrays, looked = found
        xp = self._device.xp
        self._made_in = current_stream(self._device)
        self._targets = [
            _empty(xp, place.sample) if array is None else array
            for place, array in zip(self._inputs, arrays, strict=True)
        ]
        for update, one in zip(self._updates.values(), looked, strict=True):
            update.begin(one)
        for event in self._constants:
            event.synchronize()
        self._graph = self._device.capture(self._take, *self._targets)
        results = self._graph.result
        if any(not (a.flags.c_contiguous or a.flags.f_contiguous) for a in results):
            raise NotImplementedError("a result has a layout that a copy would not have")
        self._known = found

    def _take(self, *arrays: Any) -> tuple[Any, ...]:
        """Do the work of the graph."""
        known: dict[Any, Any] = dict(zip(self._inputs, arrays, strict=True))
        grads: dict[Any, Any] = {}
        take_steps(
            self._inside, self._over, known, lambda step: self._take_other(step, known, grads)
        )
        self._grads = [(x, version_of(grads[x])) for x in self._leaves]
        return (*[known[p] for p in self._outs], *[grads[x]._array for x in self._leaves])

    def _take_other(self, step: Any, known: dict[Any, Any], grads: dict[Any, Any]) -> None:
        """Take a step that is no operation, on gradients that nobody else sees."""
        if step.__class__ is Commit:
            for source, place in step.staged:
                _accumulate(grads, source.tensor, known[place], place in self._owned)
        elif step.name in _CLIPS:
            filled = [
                _with_gradients(part, known, grads) for part in (step.arguments, step.keywords)
            ]
            result = step.function(*filled[0], **filled[1])
            if step.outs.__class__ is Made:
                known[step.outs.place] = result._array
        else:
            arrays = {variable: grad._array for variable, grad in grads.items()}
            self._updates[step.arguments[0].value].put(arrays)

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        """Launch the graph, and set `.grad`s when the device has done its work."""
        device, stream = self._device, current_stream(self._device)
        _, looked = self._found.now
        with self._lock:
            if not _fits(self._found.now, self._known):
                # Another thread has captured its own call meanwhile.
                self._capture(self._found.now)
            self._launches += 1
            graph = self._graph
            beside = self._beside(stream)
            if self._last is not None and self._last[0] is not stream:
                stream.wait_event(self._last[1])
            # What may fail comes before the launch.
            results = [device.xp.empty_like(array) for array in graph.result]
            for target, array in zip(self._targets, arrays, strict=True):
                if target is not array:
                    device.xp.copyto(target, array)
            for update, one in zip(self._updates.values(), looked, strict=True):
                update.fill(one)
            graph.launch(stream)
            for result, array in zip(results, graph.result, strict=True):
                device.xp.copyto(result, array)
            event = stream.record_event()
            self._last = stream, event
        if device.side_streams:
            stream.keep(arrays, *([] if stream is self._made_in else self._targets))
        for other in beside:
            other.wait_event(event)
        if self._waits:
            event.synchronize()
        self._commit(results[len(self._outs) :])
        for update, one in zip(self._updates.values(), looked, strict=True):
            update.finish(one)
        return tuple(results[: len(self._outs)])

    def _beside(self, stream: Any) -> list[Any]:
        """The streams of leaves, for which this one waits."""
        if not self._device.side_streams:
            return []
        nodes = [as_edge(gradient_edge(variable)).node for variable in self._leaves]
        found = dict.fromkeys(getattr(node, "stream", stream) for node in nodes)
        found.pop(stream, None)
        for other in found:
            stream.wait_stream(other)
        return list(found)

    def _commit(self, results: list[Any]) -> None:
        """Set the `.grad`s of all leaves."""
        prepared = [
            Prepared((x, array, False, None), None, None, 0, array, None, self._within)
            for x, array in zip(self._leaves, results, strict=True)
        ]
        commit((), None, True, prepared)
        for variable, version in self._grads:
            grad: Any = autograd_meta(variable).grad
            for _ in range(version if grad is not None else 0):
                bump_version(grad)

    def _within(self, function: Any, *args: Any) -> Any:
        return run_on(self._device, function, *args)

    @property
    def is_captured(self) -> bool:
        """Whether there is a graph."""
        return self._graph is not None

    def words(self) -> str:
        """What becomes of the call, for `explain()`."""
        steps = [optimizer.__class__.__name__ for optimizer in self._updates]
        what = " and ".join(
            [f"{len(self._inside) - len(steps)} operations", *[f"the step of {x}" for x in steps]]
        )
        if self.reason is None:
            return f"{what} {'can be' if self._graph is None else 'are'} one CUDA graph"
        return f"{what} are no CUDA graph: {self.reason}"


def _fits(found: Any, known: Any) -> bool:
    """Whether a call uses what the captured one has used."""
    return (
        len(found[1]) == len(known[1])
        and all(map(lambda a, b: a is b, found[0], known[0]))
        and all(map(lambda a, b: a.fits(b), found[1], known[1]))
    )


def _has_effect(step: Any) -> bool:
    return step.__class__ is Again and bool(step.effect)


def _sources_in(template: Any) -> list[Any]:
    if template.__class__ is Source:
        return [template]
    if isinstance(template, (tuple, list)):
        return [source for part in template for source in _sources_in(part)]
    if template.__class__ is dict:
        return _sources_in(list(template.values()))
    return []


def _with_gradients(template: Any, known: dict[Any, Any], grads: dict[Any, Any]) -> Any:
    """Arguments with tensors that have the gradients of the graph."""
    kind = template.__class__
    if kind is Source:
        variable = template.tensor
        tensor: Any = wrap(variable._array, variable._metadata)
        autograd_meta(tensor).grad = grads.get(variable)
        return tensor
    if kind is Made:
        return wrap(known[template.place], template.metadata)
    if kind is Same:
        return template.value
    if kind is tuple or kind is list:
        return kind([_with_gradients(part, known, grads) for part in template])
    if kind is dict:
        return {key: _with_gradients(part, known, grads) for key, part in template.items()}
    return template


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


def _empty(xp: Any, layout: Any) -> Any:
    """Memory of a layout."""
    for order in ("C", "F"):
        made = xp.empty(layout.shape, layout.dtype, order=order)
        if made.strides == layout.strides:
            return made
    raise NotImplementedError("an array comes in with gaps")
