"""How the gradients of a data parallel model are averaged, pass by pass.

Hooks on the parameters gather the gradients in buckets. A full bucket is reduced while the pass
goes on. When the last node has run, the other buckets are reduced, too. Then one place decides
whether the pass succeeds on all ranks. If the caller of the world has asked for the pass, the ranks
keep the averages back, and the caller decides. Otherwise rank 0 does: the others give it their
votes when nothing on their side can end the pass any more, and then do as it says. If rank 0 dies,
they ask one another whether it has told anybody that the pass succeeds.
"""

from __future__ import annotations

import weakref
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import blake2b
from itertools import count
from typing import Any

from asyncgrad.autograd import graph
from asyncgrad.autograd.modes import is_grad_enabled
from asyncgrad.core import modes
from asyncgrad.core.graph_task import GraphTask
from asyncgrad.core.hooks import RemovableHandle
from asyncgrad.distributed.averages import Kept, Voting
from asyncgrad.distributed.errors import PassEndedError
from asyncgrad.distributed.group import Group
from asyncgrad.distributed.staging import check_no_context
from asyncgrad.distributed.sums import Held, Stays
from asyncgrad.errors import AutogradError

#: The ids of the reducers that reduce nothing here.
unsynced: ContextVar[frozenset[int]] = ContextVar("asyncgrad_unsynced", default=frozenset())
#: This rank's part in the pass of a replicated model that the caller has asked for; the list is
#: empty when the pass has come to the model.
_asked: ContextVar[list[Kept]] = ContextVar("asyncgrad_asked_pass")


class Reducer:
    """Averages the gradients of one model on one rank; hooks on its parameters call it."""

    def __init__(
        self, group: Group, parameters: list[Any], buckets: list[list[int]], module: Any
    ) -> None:
        self.group = group
        self.number = next(group.models)
        #: How errors call the model.
        self.name = f"model {self.number} ({type(module).__name__})"
        # Weakly: the module's parameters have the hooks, which have this object.
        self.module = weakref.ref(module)
        self.parameters = parameters
        self._known = set(map(id, parameters))
        self.buckets = buckets
        self.bucket_of = {place: i for i, places in enumerate(buckets) for place in places}
        self.passes = count()
        #: The parameters to which passes that were not reduced have added gradients.
        self.used: set[int] = set()
        self.running: Voting | Kept | _Local | None = None
        self._running_id = -1
        #: The passes that have come to the model, each with the part that could not join it.
        self._entered: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        #: The handles of the hooks on the parameters.
        self.hooks: list[RemovableHandle] = []
        #: The model belongs to the caller of the world, who asks for its passes.
        self.is_replica = False
        #: What the ranks compare, until they are known to have had equal parameters; then None.
        self.compared: list[Any] | None = list(module.parameters())
        #: Why the ranks are no longer equal.
        self.broken: str | None = None
        group.starts.add(self)

    def leave(self) -> None:
        """Take the hooks off: with them the parameters would be in a cycle, which keeps them."""
        self.broken = "the model was made anew from its module: use the new one"
        for hook in self.hooks:
            hook.remove()

    def check_parameters(self, parameters: Iterable[Any]) -> None:
        """Raise if the gradient of one of the module's parameters would not be averaged."""
        for parameter in parameters:
            if parameter.requires_grad and id(parameter) not in self._known:
                raise AutogradError(
                    f"DistributedDataParallel: a parameter of shape {parameter._metadata.shape} "
                    f"was added or replaced, or requires grad, only after the model was made, so "
                    f"its gradient would not be averaged: make the model anew"
                )

    def check(self) -> None:
        """Raise if this rank has missed what the others have committed, or has left them alone."""
        self.group.check()
        if self.broken is not None:
            raise PassEndedError(self.broken)

    def digest(self) -> bytes:
        """What the ranks compare if nobody has awaited the model."""
        found = blake2b()
        for parameter in self.compared or ():
            found.update(f"{parameter.dtype} {parameter.shape}".encode())
            found.update(parameter._array.tobytes())
        return found.digest()

    @contextmanager
    def staged_pass(self, name: Any, key: Any, held: Held) -> Iterator[dict[Any, Any]]:
        """Collect the gradients of the first pass in the block, by leaf, for who decides on it.

        Args:
            name: its name on all ranks.
            key: what hosts stage it under, and other ranks' messages about it.
            held: takes its participants.
        """
        gradients: dict[Any, Any] = {}
        asked = [Kept(self, name, key, gradients, held)]
        token = _asked.set(asked)
        try:
            yield gradients
            if asked:
                raise AutogradError(
                    "forward_backward: on this worker the loss depends on no parameter of the "
                    "model, and the other workers wait for its gradients: compute the loss with "
                    "the model that the loss function is given"
                )
        finally:
            asked.clear()
            _asked.reset(token)

    def enter(self) -> Voting | Kept | _Local:
        """Take part in the current pass."""
        running = graph.current_pass()
        assert running is not None
        found = self.running
        if found is not None and self._running_id == running.id:
            return found
        if found is not None:
            raise AutogradError(
                "DistributedDataParallel: two passes of one model at the same time, which the "
                "ranks could not tell apart: await one before the next"
            )
        self.check()
        task = modes.current().graph_task
        found = _Local(self) if id(self) in unsynced.get() else self._averaging(task)
        graph.join(found)
        self._entered[task] = None
        self.running, self._running_id = found, running.id
        return found

    def _averaging(self, task: GraphTask) -> Voting | Kept:
        """This rank's part in averaging the gradients of a pass."""
        if is_grad_enabled():
            raise AutogradError(
                "DistributedDataParallel: the averages of a pass with create_graph=True can't be "
                "recorded: differentiate a second time by autograd.grad() on each rank"
            )
        asked = _asked.get([])
        if self.is_replica and not any(part.model is self for part in asked):
            raise AutogradError(
                "a pass went through one copy of a replicated model, and would wait for the "
                "others: call `await model.forward_backward(loss_fn, shards)`"
            )
        found = asked.pop() if self.is_replica else Voting(self, next(self.passes))
        found.together = self.group.standstill.together(task)
        found.together[found.key] = self.name
        self._entered[task] = found
        if isinstance(found, Voting):
            check_no_context()
        return found

    def is_voted(self) -> bool:
        """Whether the ranks decide together on a pass that starts now."""
        return not self.is_replica and id(self) not in unsynced.get()

    def missed(self, task: GraphTask) -> Coroutine[Any, Any, None] | None:
        """Give up a failed pass that has not come here, or in which the model took no part."""
        known = task in self._entered
        part = self._entered[task] if known else Voting(self, next(self.passes))
        return None if part is None else part.abort()

    def arrived(self, place: int, gradients: tuple[Any]) -> None:
        """Take a parameter's gradient; called by its hook, perhaps in a thread."""
        running = graph.current_pass()
        if running is None:
            return
        if running.accumulates or id(self) in unsynced.get():
            # As in one process, a parameter that a hook has frozen meanwhile gets no gradient.
            gradient = gradients[0] if self.parameters[place].requires_grad else None
            self.enter().arrived(place, gradient)
        elif not modes.current().graph_task.captures:
            # Passes of grad() concern this rank alone.
            raise AutogradError(
                "DistributedDataParallel: backward(inputs=) is not reduced: do without inputs="
            )


class _Local(Stays):
    """Takes part in a pass that is not reduced, lest another average `.grad` at the same time."""

    def __init__(self, model: Reducer) -> None:
        self._model = model
        self._used: set[int] = set()

    def arrived(self, place: int, gradient: Any) -> None:
        """Do nothing: the gradient is added to this rank's `.grad`."""

    async def prepare(self, gradients: dict[Any, Any]) -> None:
        self._used = {i for i, p in enumerate(self._model.parameters) if p in gradients}

    async def commit(self) -> None:
        self._model.used |= self._used
        self._model.running = None

    async def abort(self) -> None:
        self._model.running = None
