"""Selective checkpoints: keep some results of the first run, and recompute the others.

Each table function that a checkpointed function calls is counted by name. In the first run, a
policy chooses the results to keep. The second run takes these instead of computing them, and
records the same nodes as if it had computed them.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from asyncgrad.core.metadata import Metadata
from asyncgrad.core.modes import Mode
from asyncgrad.core.variable import Variable, counter_of, gradient_edge, is_inference, wrap
from asyncgrad.core.versions import VersionCounter
from asyncgrad.errors import AutogradError
from asyncgrad.ops.op import Op
from asyncgrad.records import NamedTuple
from asyncgrad.types import Array

if TYPE_CHECKING:
    Operands = tuple[Any, ...]


class CheckpointPolicy(enum.Enum):
    """What happens to a result: it is kept or recomputed."""

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    #: The two offload policies just keep the result.
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


_COMPUTED_AGAIN = frozenset({CheckpointPolicy.MUST_RECOMPUTE, CheckpointPolicy.PREFER_RECOMPUTE})


class SelectiveCheckpointContext(NamedTuple):
    """Facts that a policy gets beside the call."""

    #: Always False: policies are only asked in the first run.
    is_recompute: bool
    #: The result of the call.
    op_output: Any


class _Kept(NamedTuple):
    """A result kept from the first run."""

    array: Any
    counter: VersionCounter | None
    version: int


#: Stand for a result that was not kept, and for a result that was taken.
_AGAIN: Final = object()
_TAKEN: Final = object()


class _Keeper:
    """The `selection` of the first run's modes: it asks the policy after each call."""

    def __init__(self, policy: Callable[..., Any], allow_mutation: bool) -> None:
        self._policy = policy
        self.allow_mutation = allow_mutation
        #: By function name, in the order of the calls: the results that are kept.
        self.results: defaultdict[str, list[Any]] = defaultdict(list)

    def evaluate(
        self, entry: Op, dispatch: Callable[..., Any], inputs: Operands, attributes: Operands
    ) -> Any:
        """Compute a result, and keep it if the policy wants it."""
        with Mode(selection=None):
            out = dispatch(*inputs, *attributes)
            told = SelectiveCheckpointContext(is_recompute=False, op_output=out)
            policy = self._policy(told, entry.name, *inputs, *attributes)
        kept: Any = _AGAIN
        if policy if isinstance(policy, bool) else policy not in _COMPUTED_AGAIN:
            counter = None if is_inference(out) else counter_of(out)
            kept = _Kept(out._array, counter, 0 if counter is None else counter.value)
        self.results[entry.name].append(kept)
        return out


class _Replayer:
    """The `selection` of a second run's modes: it takes kept results in the order of the calls."""

    def __init__(self, keeper: _Keeper) -> None:
        self._keeper = keeper
        self._calls: defaultdict[str, int] = defaultdict(int)

    def evaluate(
        self, entry: Op, dispatch: Callable[..., Any], inputs: Operands, attributes: Operands
    ) -> Any:
        """Take a kept result, or compute a result that was not kept."""
        kept = self._take(entry.name)
        with Mode(selection=None):
            if kept is _AGAIN:
                return dispatch(*inputs, *attributes)
            out = dispatch(_having(inputs[0], entry.name, kept.array), *inputs[1:], *attributes)
        metadata = out._metadata
        if metadata.__class__ is _Known:
            # Functions that keep shape and dtype share their operand's metadata with the result,
            # whose next function would find the kernel of this one alone.
            out._metadata = metadata.of
            if out._edge is not None:
                out._edge.output_metadata = metadata.of
        return out

    def _take(self, name: str) -> Any:
        results, place = self._keeper.results[name], self._calls[name]
        self._calls[name] += 1
        if place >= len(results):
            raise AutogradError(
                f"checkpoint: {name} is called more often when the function runs again than it "
                f"was at first. This can happen if the function is not deterministic or depends "
                f"on what has changed between forward and backward."
            )
        kept = results[place]
        if kept is _TAKEN:
            raise AutogradError(
                "Trying to backward an extra time. You are only allowed to backward once on any "
                "region computed under selective activation checkpoint."
            )
        if kept is not _AGAIN:
            results[place] = _TAKEN
            counter = kept.counter
            if (
                counter is not None
                and counter.changed_since(kept.version)
                and not self._keeper.allow_mutation
            ):
                raise AutogradError(
                    f"checkpoint: a result of {name} that was kept has been mutated since. Clone "
                    f"it before, or pass allow_cache_entry_mutation=True."
                )
        return kept


class _Again(Mode):
    """The context of a second run."""

    def __init__(self, keeper: _Keeper) -> None:
        super().__init__()
        self._keeper = keeper

    def __enter__(self) -> Any:
        self._put({"selection": _Replayer(self._keeper)})
        return self


class _Known:
    """Metadata of an operand whose `kernels` return a known result instead of computing it."""

    __slots__ = ("kernels", "of")

    def __init__(self, metadata: Metadata, name: str, array: Array) -> None:
        self.of = metadata
        self.kernels = {name: lambda *_: array}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.of, name)


def _having(x: Variable, name: str, array: Array) -> Variable:
    """A copy of an operand, with which the named function returns a known result."""
    operand: Variable = wrap(x._array, _Known(x._metadata, name, array), gradient_edge(x))  # type: ignore[arg-type]
    if not is_inference(x):
        operand._counter = counter_of(x)
    return operand


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Callable[..., Any] | Sequence[Any], allow_cache_entry_mutation: bool = False
) -> tuple[Mode, Mode]:
    """Contexts for `checkpoint` that keep some results and recompute the others.

    Functions go by their names in the table of derivatives, such as "mm", "bmm" and "exp". Views,
    and functions that join tensors, are always computed again.

    Args:
        policy_fn_or_list: a list of functions, or of their names, whose results are kept; or a
            function of a `SelectiveCheckpointContext`, the name and the arguments of a call, that
            returns a `CheckpointPolicy`, or True to keep the result.
        allow_cache_entry_mutation: allow in-place changes of kept results.

    Returns:
        The contexts of the first and of the second run. The function can run again only once.

    Raises:
        ValueError: if the list holds anything but functions and names.

    Example:
        >>> import functools
        >>> from asyncgrad.utils import checkpoint as ck
        >>> keep = functools.partial(ck.create_selective_checkpoint_contexts, [ag.mm])
        >>> w = ag.ones(2, 2, requires_grad=True)
        >>> y = ck.checkpoint(lambda w: (w @ w).exp(), w, use_reentrant=False, context_fn=keep)
        >>> _ = y.sum().backward()
    """
    policy = policy_fn_or_list
    if isinstance(policy_fn_or_list, (list, tuple)):
        names = frozenset([_name(one) for one in policy_fn_or_list])

        def policy(told: SelectiveCheckpointContext, name: str, *args: object) -> bool:
            return name in names

    if not callable(policy):
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    keeper = _Keeper(policy, allow_cache_entry_mutation)
    return Mode(selection=keeper), _Again(keeper)


def _name(op: object) -> str:
    name = op if isinstance(op, str) else getattr(op, "__name__", None)
    if not isinstance(name, str):
        raise ValueError(
            f"Expected op in `op_list` to be a function of asyncgrad or its name but got: {op} of "
            f"type {type(op)}"
        )
    return name
