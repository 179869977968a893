"""An optimizer of parts on several workers, and of the caller's own modules."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextvars import ContextVar
from functools import wraps
from typing import Any, Concatenate, Literal, NoReturn, ParamSpec, TypeAlias, TypeVar

from asyncgrad.distributed.remote import RemoteModule
from asyncgrad.distributed.site import Site, here
from asyncgrad.distributed.staging import check_committed
from asyncgrad.distributed.values import applied, called, check_plain
from asyncgrad.errors import AutogradError
from asyncgrad.nn.utils.clip import clip_grads_with_norm_, get_total_norm
from asyncgrad.optim.state import check_mapping
from asyncgrad.scheduler import check_awaited
from asyncgrad.types import Tensor

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Change: TypeAlias = Callable[Concatenate["RemoteOptimizer", _P], Coroutine[Any, Any, _T]]
#: The calls of `apply` within whose functions this runs.
_applying: ContextVar[tuple[object, ...]] = ContextVar("asyncgrad_applying", default=())


class _Turn(asyncio.Lock):
    """Held by what changes or reads the optimizers, which is one after the other on all."""

    #: The call of `apply` that holds it, or None.
    holder: object = None

    async def acquire(self) -> Literal[True]:
        """Wait for it; raises where that would be for ever."""
        if self.holder in _applying.get():
            raise AutogradError(
                "an optimizer of parts was used within the function that its own apply() calls, "
                "which would wait for itself: use the optimizer that the function is given, or "
                "call the other method after apply()"
            )
        return await super().acquire()


def _whole(change: _Change[_P, _T]) -> _Change[_P, _T]:
    """A method that changes all optimizers in its turn, and to its end though it is cancelled.

    The cancellation is raised then, or after the grace: the change goes on in the background, and
    later ones wait for it.
    """

    @wraps(change)
    async def whole(self: RemoteOptimizer, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        self._check(change.__name__)

        async def begin() -> _T:
            self._check_living()
            return await change(self, *args, **kwargs)

        # If this wait is cancelled, nothing has changed.
        await self._turn.acquire()
        changing: asyncio.Task[_T] = self._site.spawn(begin())
        changing.add_done_callback(lambda _: self._turn.release())
        try:
            # If this wait is cancelled, the change goes on.
            return await asyncio.shield(changing)
        except asyncio.CancelledError:
            if changing.cancelled() and self._site.ended is not None:
                raise self._site.error() from None
            await self._site.wait([changing])
            raise
        finally:
            # The traceback of its error holds this frame: a cycle.
            del changing

    return whole


class RemoteOptimizer:
    """One optimizer on each worker that has parts, and one for the caller's modules."""

    def __init__(self, site: Site, number: int, ranks: Sequence[int], own: Any) -> None:
        """Refer to optimizers; `World.optimizer` makes it."""
        self._site = site
        self._number = number
        self._ranks = ranks
        self._own = own
        self._turn = _Turn()
        #: By rank, the parts that are copies of those on another rank, which workers keep as long.
        self._copies: dict[int, list[RemoteModule]] = {}
        for rank in ranks:
            site.drop_with(self, rank, number)

    @classmethod
    async def make(
        cls, site: Site, number: int, kind: Callable[..., Any], models: Sequence[Any],
        defaults: dict[str, Any],
    ) -> RemoteOptimizer:  # fmt: skip
        """Make the optimizers."""
        if not callable(kind):
            raise _unexpected(kind)
        parts: dict[int, list[RemoteModule]] = {}
        parameters: list[Any] = []
        if not isinstance(models, Iterable):
            raise _unexpected(models)
        for model in models:
            if isinstance(model, RemoteModule):
                if model.site is not site:
                    raise AutogradError("optimizer: a part belongs to another world")
                parts.setdefault(model.rank, []).append(model)
            elif hasattr(model, "parameters"):
                parameters.extend(model.parameters())
            else:
                raise _unexpected(model)
        own = kind(list(dict.fromkeys(parameters)), **defaults) if parameters else None
        # The object is made first. If a call fails or is cancelled, the object goes, and so the
        # workers are told to drop their optimizers.
        made = cls(site, number, tuple(parts), own)
        counted = set[int]()
        for rank, its in parts.items():
            made._copies[rank] = [part for part in its if part.number in counted]
            counted.update(part.number for part in its)
        found = await _ended(
            site.call(rank, "optimizer", number, kind, [part.number for part in its], defaults)
            for rank, its in parts.items()
        )
        made._ranks = tuple(rank for rank, has_any in zip(parts, found, strict=True) if has_any)
        if own is None and not made._ranks:
            # An optimizer without parameters raises, and its error says what is wrong.
            made._own = kind([], **defaults)
        return made

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"an optimizer of parts has no {name!r} here: `await optimizer.step_async()` steps "
            f"all, and `await optimizer.apply(function)` calls it with each worker's optimizer"
        )

    def _check(self, method: str) -> None:
        """Raise, before anything has changed, unless all workers and gradients can be used."""
        check_awaited(f"RemoteOptimizer.{method}")
        self._check_living()

    def _check_living(self) -> None:
        """Raise unless all workers can be used: asked again when the turn has come."""
        self._site.check_living(self._ranks, "optimize")

    async def _all(self, method: Any, *args: Any) -> list[Any]:
        """Call a method of the optimizers on all workers, or a function with each of them."""
        return await self._each(method, dict.fromkeys(self._ranks, args))

    async def _each(self, method: Any, args: dict[int, Any]) -> list[Any]:
        """Do what `_all` does, with other arguments for each rank."""
        return await _ended(
            self._site.call(rank, "optimize", self._number, method, args[rank])
            for rank in self._ranks
        )

    @_whole
    async def step_async(self) -> None:
        """Update all parameters. A cancellation takes effect after the step.

        Raises:
            PendingBackwardError: if this task has started a pass that it has not awaited.
            RuntimeError: within an `autograd.context()`, which has added no gradients yet.
            WorkerLostError: if a worker is lost; if it is lost meanwhile, the others have updated
                theirs.
        """
        check_committed("step_async")
        own = [] if self._own is None else [self._own.step_async()]
        await _ended([*own, self._all("step_async")])

    @_whole
    async def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop all gradients, or set them to zero."""
        if self._own is not None:
            self._own.zero_grad(set_to_none)
        await self._all("zero_grad", set_to_none)

    async def apply(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Await `function(optimizer, *args)` with the optimizer of each worker, and the caller's.

        A schedule of the learning rate is made so, and goes on with the steps: see the example.

        Args:
            function: a function or coroutine function that can be pickled.
            args: its further arguments.

        Returns:
            What it returns: on the workers, in the order of their ranks, and for the optimizer of
            the caller's modules, if there is one.

        Raises:
            PendingBackwardError: if this task has started a pass that it has not awaited.
            WorkerLostError: if a worker is lost; if it is lost meanwhile, the function may have
                been called on others.

        Example:
            >>> def cosine(optimizer, steps):
            ...     schedule = ag.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
            ...     optimizer.register_step_post_hook(lambda *_: schedule.step())
            >>> async def begin(optimizer):
            ...     await optimizer.apply(cosine, 100)
        """
        if not callable(function):
            raise TypeError(f"apply: {function!r} is not callable: give a function")
        self._check("apply")
        check_plain("apply", args)
        within = _applying.get()
        async with self._turn:
            self._check_living()
            self._turn.holder = call = object()
            _applying.set((*within, call))
            try:
                return await self._applied(function, *args)
            finally:
                _applying.set(within)
                self._turn.holder = None

    async def _applied(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        found = await self._all(function, *args)
        if self._own is not None:
            found.append(await applied(function, self._own, *args))
        return found

    @_whole
    async def clip_grad_norm_(
        self, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False
    ) -> Tensor:
        """Scale the gradients of all parameters so that their norm is at most `max_norm`.

        Of the copies of a replicated model, whose gradients are equal, one counts.

        Args:
            max_norm: the greatest norm allowed, of all gradients as if they were one vector.
            norm_type: the norm's order; may be `float("inf")`.
            error_if_nonfinite: raise if the norm is not finite, and change nothing.

        Returns:
            The norm before.

        Raises:
            PendingBackwardError: if this task has started a pass that it has not awaited.
            RuntimeError: within an `autograd.context()`, which has added no gradients yet.
            WorkerLostError: if a worker is lost; if it is lost meanwhile, the gradients of others
                may have been scaled.
        """
        check_committed("clip_grad_norm_")
        copies = {rank: [part.number for part in its] for rank, its in self._copies.items()}
        found = await self._applied(_norms, norm_type, copies)
        norms = [norm for one in found for norm in one]
        total = get_total_norm(norms, norm_type, error_if_nonfinite)
        await self._applied(_scale, max_norm, total)
        return total

    async def state_dict(self) -> dict[str, Any]:
        """The states of all, for `load_state_dict`: by rank, and that of the caller's modules."""
        self._check_living()
        async with self._turn:
            states = await self._all("state_dict")
        return {
            "own": None if self._own is None else self._own.state_dict(),
            "workers": dict(zip(self._ranks, states, strict=True)),
        }

    @_whole
    async def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load states, into an optimizer whose parts are on workers of the same ranks; all or none.

        Raises:
            TypeError: if the state is no dictionary.
            ValueError: if they were of other ranks, or of no such optimizer.
            PendingBackwardError: if this task has started a pass that it has not awaited.
            WorkerLostError: if a worker is lost; if it is lost meanwhile, the others may have
                loaded theirs.
        """
        check_mapping(state)
        if not {"own", "workers"} <= state.keys():
            raise ValueError(
                f"load_state_dict: the state of a RemoteOptimizer has 'own' and 'workers', this "
                f"has {sorted(map(str, state))}"
            )
        check_mapping(state["workers"])
        if set(state["workers"]) != set(self._ranks) or (state["own"] is None) != (
            self._own is None
        ):
            raise ValueError(
                f"load_state_dict: the state is of parts on workers {sorted(state['workers'])}, "
                f"this optimizer's parts are on {sorted(self._ranks)}"
            )
        states = {rank: (state["workers"][rank],) for rank in self._ranks}
        # Nothing has changed so far if one of these raises.
        if self._own is not None:
            await called(_check_load, self._own, state["own"])
        await self._each(_check_load, states)
        if self._own is not None:
            self._own.load_state_dict(state["own"])
        await self._each("load_state_dict", states)


def _unexpected(given: Any) -> TypeError:
    return TypeError(
        f"optimizer: got {type(given).__name__}: expected an optimizer's class, ag.optim.Adam for "
        f"example, and a list of parts and modules, `[part, head]`: no parameters, and of a "
        f"replicated model its `parts`"
    )


async def _ended(calls: Iterable[Awaitable[Any]]) -> list[Any]:
    """Await all, also if one fails: nothing goes on when the first error is raised."""
    found = await asyncio.gather(*calls, return_exceptions=True)
    try:
        for one in found:
            if isinstance(one, BaseException):
                raise one
        return found
    finally:
        # The traceback of an error holds this frame: a cycle.
        found, one = [], None


def _check_load(optimizer: Any, state: Any) -> None:
    """Raise if an optimizer can't load a state. It does not change, nor are its hooks called."""
    copy.copy(optimizer).load_state_dict(state)


def _parameters(optimizer: Any) -> list[Any]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _norms(optimizer: Any, norm_type: float, copies: dict[int, list[int]]) -> list[Any]:
    """The norm of each gradient: their norm is that of all, with the bits of one process."""
    site = here.get()
    left_out: set[Any] = set()
    if site is not None:
        for number in copies.get(site.rank, ()):
            left_out.update(site.host.part(number).parameters())
    gradients = [p.grad for p in _parameters(optimizer) if p not in left_out]
    return [get_total_norm(one, norm_type) for one in gradients if one is not None]


def _scale(optimizer: Any, max_norm: float, total: Any) -> None:
    clip_grads_with_norm_(_parameters(optimizer), max_norm, total)
