"""Optimizers whose state is divided among the ranks of a run."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NoReturn

from asyncgrad.autograd.modes import no_grad
from asyncgrad.core.variable import Variable
from asyncgrad.distributed.group import check_sendable, current_group
from asyncgrad.distributed.waiting import begins
from asyncgrad.errors import AutogradError
from asyncgrad.nn.parameter import clear_gradients
from asyncgrad.optim.state import check_mapping
from asyncgrad.remedies import remedies
from asyncgrad.scheduler import check_awaited, offload

__all__ = ["ZeroRedundancyOptimizer"]

if not TYPE_CHECKING:
    __getattr__ = remedies(__name__, {
        "`await world.optimizer(kind, parts)` makes one of parts on workers": (
            "DistributedOptimizer"
        ),
    })  # fmt: skip


class ZeroRedundancyOptimizer:
    """An optimizer of which every rank keeps the state of a share of the parameters.

    Each rank updates its share and sends it to the others: memory for the state is divided by the
    number of ranks, and all ranks have the same parameters afterwards. Make it within `World.run`,
    with the same parameters in the same order on all ranks.

    Args:
        params: the parameters of a model whose gradients are the same on all ranks, or pairs of
            a name and a parameter, or dictionaries with `params` and options. The first step
            compares them: the names, or the places in data parallel models.
        optimizer_class: the class of the optimizer that updates a share.
        defaults: its arguments.

    Attributes:
        optim: the optimizer of this rank's share. It has all groups, so that a scheduler of
            `asyncgrad.optim.lr_scheduler` takes it on every rank.

    Raises:
        RuntimeError: outside of `World.run`, or if there is no parameter.
        ValueError: if a parameter is given twice.

    Example:
        >>> from asyncgrad import distributed as dist
        >>> async def train(x):
        ...     model = await dist.nn.parallel.DistributedDataParallel(ag.nn.Linear(4, 1))
        ...     optimizer = dist.optim.ZeroRedundancyOptimizer(
        ...         model.parameters(), ag.optim.Adam, lr=0.1
        ...     )
        ...     await model(x).mean().backward()
        ...     await optimizer.step_async()
    """

    def __init__(
        self, params: Iterable[Any], optimizer_class: Callable[..., Any], **defaults: Any
    ) -> None:
        """Divide the parameters: the largest first, each to the rank that has least."""
        self._group = current_group("ZeroRedundancyOptimizer")
        self._number = next(self._group.models)
        given: list[Any] = list(params)
        if not given:
            raise AutogradError("ZeroRedundancyOptimizer: got no parameters")
        groups = given if isinstance(given[0], dict) else [{"params": given}]
        members = [(i, one) for i, group in enumerate(groups) for one in _members(group)]
        named = [one if isinstance(one, tuple) else (None, one) for _, one in members]
        self._group_of = [number for number, _ in members]
        self._names = [name for name, _ in named]
        self._parameters = [parameter for _, parameter in named]
        for parameter in self._parameters:
            if not isinstance(parameter, Variable):
                raise TypeError(
                    f"ZeroRedundancyOptimizer: expected parameters, not {type(parameter).__name__}"
                )
        if len(set(map(id, self._parameters))) < len(self._parameters):
            raise ValueError(
                "ZeroRedundancyOptimizer: a parameter is given twice, and would be updated twice"
            )
        sizes = [0] * self._group.size
        #: By rank, the places of the parameters that it updates.
        self._places: list[list[int]] = [[] for _ in sizes]
        order = sorted(range(len(self._parameters)), key=lambda i: -self._parameters[i].numel())
        for place in order:
            owner = min(range(len(sizes)), key=sizes.__getitem__)
            insort(self._places[owner], place)
            sizes[owner] += self._parameters[place].numel()
        shares: list[dict[str, Any]] = [{**group, "params": []} for group in groups]
        for place in self._places[self._group.rank]:
            number, member = members[place]
            shares[number]["params"].append(member)
        for share in shares:
            if not share["params"] and isinstance(members[0][1], tuple):
                # Either all groups of an optimizer have names, or none has.
                share["param_names"] = []
        self.optim = optimizer_class(shares, **defaults)
        #: How many exchanges of the ranks have succeeded; in the first they compare parameters.
        self._exchanges = 0
        places = self._group.starts.places()
        self._facts = [
            f"{p._metadata.dtype} {p._metadata.shape} {name or places.get(id(p), '')}".rstrip()
            + f" of group {number}" * (len(groups) > 1)
            for (name, p), (number, _) in zip(named, members, strict=True)
        ]

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"ZeroRedundancyOptimizer has no {name!r}: `await optimizer.step_async()` steps on all "
            f"ranks, and `optimizer.optim` is the optimizer of this rank's share"
        )

    def _share(self, rank: int) -> list[Any]:
        return [self._parameters[place] for place in self._places[rank]]

    @begins
    async def step_async(self) -> None:
        """Update all parameters, on all ranks.

        Raises:
            RuntimeError: in the first step, before it changes anything, if the ranks' parameters
                are unlike or in another order.
            WorkerLostError: if a rank is lost.
        """
        check_awaited("ZeroRedundancyOptimizer.step_async")
        group, what = self._group, "a step of ZeroRedundancyOptimizer"
        group.check()
        if not self._exchanges:
            with group.whole(what):
                for rank, facts in enumerate(await self._exchange(self._facts)):
                    self._compare(rank, facts)
            self._exchanges = 1
        # If this fails, or is cancelled, nothing has been sent. The rank may try again.
        await self.optim.step_async()
        with group.whole(what):
            found = await self._exchange([p.detach() for p in self._share(group.rank)])
            self._exchanges += 1
            for rank in group.others:
                await offload(_assign, self._share(rank), found[rank])

    async def _exchange(self, own: list[Any]) -> list[list[Any]]:
        tag = "ZeroRedundancyOptimizer.step_async", self._number, self._exchanges
        return await self._group.exchange(tag, dict.fromkeys(range(self._group.size), own), own)

    def _compare(self, rank: int, facts: list[str]) -> None:
        """Raise unless another rank has the same parameters."""
        for place, (own, other) in enumerate(zip_longest(self._facts, facts, fillvalue="none")):
            if own != other:
                raise AutogradError(
                    f"ZeroRedundancyOptimizer: parameter {place} is {other} on rank {rank} and "
                    f"{own} on this rank, {self._group.rank}: give the same parameters in the same "
                    f"order on all ranks"
                )

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or set them to zero."""
        check_awaited("ZeroRedundancyOptimizer.zero_grad")
        clear_gradients(self._parameters, set_to_none)

    def state_dict(self) -> Any:
        """The state of this rank's share, with the places of its parameters."""
        return self.optim.state_dict() | {"places": self._places[self._group.rank]}

    @begins
    async def consolidate_state_dict(self, to: int = 0) -> Any:
        """The state of all parameters, on one rank, as the undivided optimizer gives it.

        All ranks have to call it. A run with any number of ranks can load what it returns, and so
        can the undivided optimizer.

        Args:
            to: the rank that gets it; it returns None on the others.

        Raises:
            TypeError: before anything is sent, if this rank's state can't be pickled.
            WorkerLostError: if a rank is lost.
        """
        group = self._group
        to = group.checked("consolidate_state_dict", to)
        # Drawn before the state is tried: that of a later collective may be sent sooner.
        number = next(group.numbers)
        own = self.optim.state_dict()
        if group.rank != to:
            await offload(check_sendable, own)
        contents = dict.fromkeys(group.others) | {to: own}
        name = f"ZeroRedundancyOptimizer.consolidate_state_dict(to={to})"
        with group.collective(name, number) as tag:
            found = await group.exchange(tag, contents, own)
        if group.rank != to:
            return None
        state = {
            place: share["state"][number]
            for rank, share in enumerate(found)
            for number, place in enumerate(self._places[rank])
            if number in share["state"]
        }
        every = range(len(self._parameters))
        return {"state": dict(sorted(state.items())), "param_groups": self._options(own, every)}

    def _options(self, state: Any, places: Sequence[int]) -> list[dict[str, Any]]:
        """The options of a state's groups, of which each has those of some parameters."""
        groups = []
        for number, options in enumerate(state["param_groups"]):
            within = [i for i, place in enumerate(places) if self._group_of[place] == number]
            groups.append({**options, "params": within})
            if "param_names" in options:
                groups[-1]["param_names"] = [self._names[places[i]] for i in within]
        return groups

    def load_state_dict(self, state: Any) -> None:
        """Load a state: of this rank's share, of a run with as many ranks, or of all parameters.

        Raises:
            TypeError: if the state is no dictionary.
            ValueError: if it is that of another share, or of other groups.
        """
        state = {} if state is None else state
        check_mapping(state)
        state = dict(state)
        places = self._places[self._group.rank]
        if "places" not in state and "param_groups" in state:
            state = self._share_of(state, places)
        elif state.pop("places", None) != places:
            raise ValueError(
                f"load_state_dict: the state is not of the parameters {places}, which this rank "
                f"updates: load what the same rank of as many has saved, or what "
                f"consolidate_state_dict() has returned"
            )
        self.optim.load_state_dict(state)

    def _share_of(self, state: Any, places: Sequence[int]) -> dict[str, Any]:
        """The state of some parameters, from one of all."""
        sizes = [len(group["params"]) for group in state["param_groups"]]
        own = [self._group_of.count(number) for number in range(len(self.optim.param_groups))]
        if sizes != own:
            raise ValueError(
                f"load_state_dict: the state is of groups of {sizes} parameters, this optimizer "
                f"has groups of {own}"
            )
        numbers = [number for group in state["param_groups"] for number in group["params"]]
        found = {
            i: state["state"][numbers[place]]
            for i, place in enumerate(places)
            if numbers[place] in state["state"]
        }
        return {"state": found, "param_groups": self._options(state, places)}


def _members(group: dict[str, Any]) -> list[Any]:
    """What a group of options holds: parameters, or pairs of a name and a parameter."""
    found = group["params"]
    return [found] if isinstance(found, Variable) else list(found)


def _assign(parameters: list[Any], values: list[Any]) -> None:
    with no_grad():
        for parameter, value in zip(parameters, values, strict=True):
            parameter.copy_(value)
