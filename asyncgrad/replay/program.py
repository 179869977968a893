"""A recorded call that can be repeated: its code, its memory, and what is known of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any
from weakref import ref

from asyncgrad.core.locks import is_held_here, lasting_lock
from asyncgrad.devices.arena import Arena, BlockPlan, Lives
from asyncgrad.devices.pieces import here
from asyncgrad.devices.pool import POOL
from asyncgrad.replay.arrays import KnownArrays
from asyncgrad.replay.captured import CapturedSteps, with_graphs
from asyncgrad.replay.device_arrays import run_on
from asyncgrad.replay.inlined import inlined
from asyncgrad.replay.memory import Families, Memory, Plan
from asyncgrad.replay.order import (
    LASTING,
    checks_first,
    effects_of,
    folded,
    loads_first,
    read_once,
    useful,
    with_slopes,
)
from asyncgrad.replay.steps import (
    IN_PLACE,
    Again,
    Commit,
    Compute,
    Load,
    Place,
    UnrepeatableError,
    UnwritableError,
    places_in,
)
from asyncgrad.replay.whole_graph import WholeCall
from asyncgrad.replay.writer import Writer

#: Held while a program is written: two threads may ask for it at once.
_writing = lasting_lock()
#: The most buffers that are kept for replays to come.
MEMORIES = 8


class Program:
    """The code of one recorded call, and what is known of it.

    `run(arguments, state, buffers)` takes the tensors among the arguments, and returns what the
    function returns. It sets `state[0]` before it changes anything that others can see.
    `walk(arguments, state, buffers)` is a generator that does the same in parts.
    """

    def __init__(self, recorder: KnownArrays, outputs: Any, returned: Any = None) -> None:
        """Choose the steps; raises if a check would come after an effect.

        Of `outputs`, the caller of the function gets that part of which `returned` is the template.
        """
        self._steps = recorder.steps
        self.families = Families(recorder)
        if self.families.shared:
            self._make_anew(recorder, returned)
        constants = self._constants = recorder.constants
        for place in recorder.places:
            if place in constants:
                # The caller may change the array where it has got it.
                place.sample = place.sample.copy("K")
                place.strides = place.sample.strides
            else:
                place.sample = None
        self._outputs = outputs
        self._plan: Plan | None = None
        #: Memory that no replay uses now.
        self._memories: list[Memory] = []
        #: Whether it makes large arrays in host memory; and where they are, once that is known.
        self._large = False
        self._lives: Lives | None = None
        self._block_plan: BlockPlan | None = None
        self.length = len(recorder.steps)
        self.passes = recorder.passes
        #: It calls user code in a pass; a pass over a device with streams ends there.
        self.within = self.streamed = False
        #: What it calls anew, and whether what it does depends on which tensors share memory.
        self.anew: list[str] = []
        self.depends_on_sharing = False
        if not set(map(type, recorder.steps)) <= {Compute, Load}:
            self._take_effects(recorder.steps)
        #: The device with streams that the program uses, or None; whether passes over it end there.
        self.device: Any = None
        if recorder.devices:
            self._take_device(recorder)
        #: Steps that are launched as one, where the device can.
        self.graphs: list[CapturedSteps] = []
        self._whole: WholeCall | None = None
        self._divided: str | None = None
        self._code: Callable[[Any, Any, Any], Any] | None = None
        self._walk: Callable[[Any, Any, Any], Any] | None = None
        #: What `walk` does between two yields: see `Writer`.
        self.parts: list[tuple[str, int]] = []
        self.source = ""

    def _take_effects(self, steps: list[Any]) -> None:
        """Check in which order functions are called anew, and gradients committed."""
        reached = 0
        ordered = checks_first(steps, self._constants)
        for step, effect in zip(ordered, effects_of(ordered), strict=True):
            if reached and step.__class__ is Again and not (step.effect or step.only_raises):
                raise UnrepeatableError(f"{step.name} is checked after something has changed")
            user_call = step.user_call if step.__class__ is Again else None
            if reached == LASTING and user_call is not None and user_call.strict:
                raise UnrepeatableError(f"{step.name} is called after something has changed")
            reached = max(reached, effect)
        called = [step for step in steps if step.__class__ is Again]
        commits = [step for step in steps if step.__class__ is Commit]
        self.within = any(step.user_call is not None and step.user_call.within for step in called)
        self.streamed = any(step.streamed for step in commits)
        self.anew = [step.name for step in called if step.effect]
        self.depends_on_sharing = IN_PLACE in self.anew or (
            len(commits) > 0 and self._reads_behind_commit(steps)
        )

    def _take_device(self, recorder: KnownArrays) -> None:
        """Note on which device the program runs."""
        if len(recorder.devices) > 1:
            raise UnrepeatableError("it uses several devices with streams")
        if self.within:
            raise UnrepeatableError("code of the user's runs in a pass over a device with streams")
        (self.device,) = recorder.devices
        for step in recorder.steps:
            if step.__class__ is Compute and any(not x.on_host for x in step.made):
                step.cost = self.device.launch_cost

    @cached_property
    def cost(self) -> int:
        """The expected nanoseconds of a replay."""
        return sum([step.cost for step in self._steps if step.__class__ is Compute])

    def _reads_behind_commit(self, steps: list[Any]) -> bool:
        """Whether it reads an argument after a pass, which changes a `.grad` in place."""
        given: set[Place] = set()
        committed = False
        for step in steps:
            if step.__class__ is Load and step.source.argument is not None:
                given.add(self.families.of(step.out))
            elif step.__class__ is Commit:
                committed = True
            elif committed and any(self.families.of(x) in given for x in step.read):
                return True
        return False

    def _make_anew(self, recorder: KnownArrays, returned: Any) -> None:
        """Copy constants in each replay if others get views of them, and may change these."""
        shown = recorder.given.union(places_in(returned)) - recorder.constants
        views = set(map(self.families.of, shown))
        for place in [*recorder.places]:
            if place in recorder.constants and self.families.of(place) in views:
                recorder.make_anew(place)
                self.families.foreign.discard(place)

    @property
    def run(self) -> Callable[[Any, Any, Any], Any]:
        """The function, written when it is first needed: many calls are never repeated."""
        return self._code or self._write(divided=False)

    @property
    def walk(self) -> Callable[[Any, Any, Any], Any]:
        """The generator, written when it is first needed."""
        return self._walk or self._write(divided=True)

    def _write(self, *, divided: bool) -> Any:
        """Write the function or the generator; after an error, another attempt would fail, too."""
        with _writing:
            try:
                plan = self._planned()
                writer = Writer(self._constants, self._steps, self._outputs, plan, divided=divided)
                function = writer.function()
            except Exception as error:
                # A syntax error's arguments hold a line of the program, however long that is.
                why = error.msg if isinstance(error, SyntaxError) else repr(error)
                raise UnwritableError(f"its program can't be written: {why}") from error
            if divided:
                self.parts, self._walk = writer.parts, function
            else:
                self.source, self._code = writer.text, function
        return function

    def is_being_planned(self) -> bool:
        """Whether this thread may be within `_planned`: code that interrupts it can't replay."""
        return self._plan is None and is_held_here(_writing)

    def _planned(self) -> Plan:
        """Choose and order the steps, and plan their memory."""
        if self._plan is not None:
            return self._plan
        loads = [step for step in self._steps if step.__class__ is Load]
        #: The tensors that are read.
        self.sources = list(dict.fromkeys([step.source for step in loads]))
        steps = useful(self._steps, self._outputs)
        if self.device is None:
            steps = folded(steps, self._outputs, self._constants, self.families)
        steps = loads_first(checks_first(steps, self._constants))
        steps = inlined(with_slopes(steps, self._outputs, self.families))
        steps = read_once(steps, self._outputs)
        if self.device is not None and self.device.captures:
            if self.streamed:
                try:
                    self._whole = WholeCall(
                        self.device, steps, self._outputs, self.families, self._constants
                    )
                except UnrepeatableError as error:
                    self._divided = f"not one CUDA graph: {error}"
            steps, self.graphs = with_graphs(steps, self._outputs, self.families, self.device)
        self._steps = steps
        self.length = len(self._steps)
        self._large = self.device is None and any(
            place.nbytes >= POOL.large for step in steps for place in step.made
        )
        self._plan = Plan(self._steps, self._outputs, self.families)
        return self._plan

    @property
    def whole(self) -> WholeCall | None:
        """The whole call as one launch, if that can be."""
        if self._plan is None and self.device is not None and self.device.captures:
            with _writing:
                self._planned()
        return self._whole

    def words(self) -> list[str]:
        """What `explain()` says of graphs and of what is called anew."""
        whole, anew = self._whole, self.anew
        found = [] if self._divided is None else [self._divided]
        if whole is not None:
            found.append(whole.words())
        if whole is not None and whole.graph.is_captured:
            anew = whole.anew
        else:
            found += [graph.words() for graph in self.graphs]
        return [*found, f"called anew: {', '.join(anew)}"] if anew else found

    def take_memory(self) -> Memory:
        """The memory for one replay."""
        try:
            memory = self._memories.pop()
        except IndexError:
            # None is left, or another thread was faster.
            memory = self._planned().new_memory()
        if self._large:
            # Where its arrays are, or what notes how long they live.
            if self._block_plan is None:
                lives, self._lives = self._lives, None
                memory.arena = lives or Lives()
            elif self._block_plan.size:
                memory.arena = memory.last() or Arena(self._block_plan)
            if memory.arena is not None:
                memory.arena.start()
        return memory

    def give_memory(self, memory: Memory) -> None:
        """Give back the memory of a replay that has ended."""
        if memory.arena is not None:
            arena, memory.arena = memory.arena, None
            if isinstance(arena, Arena):
                memory.last = ref(arena)
            elif self._block_plan is None:
                if arena.end():
                    self._block_plan = BlockPlan(arena)
                else:
                    self._lives = arena
        if len(self._memories) < MEMORIES:
            self._memories.append(memory)

    def call(self, memory: Memory, function: Callable[..., Any], *args: Any) -> Any:
        """Call what runs the program, or a part of it, on its device and with its memory."""
        if memory.arena is None:
            device = self.device
            return function(*args) if device is None else run_on(device, function, *args)
        before, here.arena = here.arena, memory.arena
        try:
            return function(*args)
        finally:
            here.arena = before
