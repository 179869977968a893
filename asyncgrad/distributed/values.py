"""What users' functions are given and return: tensors, plain data and awaitables."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from inspect import isawaitable
from typing import Any, cast

from asyncgrad.autograd.modes import no_grad
from asyncgrad.core.variable import Variable
from asyncgrad.errors import AutogradError
from asyncgrad.ops.tensors.pytree import flatten, tree_map
from asyncgrad.scheduler import offload, waits
from asyncgrad.types import Tensor


def cut(value: Any) -> Any:
    """A tensor without its graph; plain data as it is."""
    return value.detach() if isinstance(value, Variable) else value  # type: ignore[attr-defined]


def without_graphs(value: Any) -> Any:
    """A structure with its tensors cut."""
    return tree_map(cut, value)


def requires_grad(value: Any) -> bool:
    """Whether a value is a tensor that requires grad."""
    return isinstance(value, Variable) and value.requires_grad  # type: ignore[attr-defined]


def check_plain(who: str, given: Any) -> None:
    """Raise if a tensor that requires grad is in plain data: also in sets, deques, dataclasses."""
    for leaf in flatten(given)[0]:
        if requires_grad(leaf):
            raise AutogradError(
                f"{who}: a tensor in plain data requires grad, but no gradient would come back to "
                f"it: give x.detach(), or call a part with it. Only tensors that a part takes or "
                f"gives as they are, or in lists, tuples and dictionaries, have gradients"
            )
        if isinstance(leaf, (set, frozenset, deque)):
            check_plain(who, list(leaf))
        if is_dataclass(leaf) and not isinstance(leaf, type):
            check_plain(who, [getattr(leaf, field.name, None) for field in fields(leaf)])


async def awaited(found: Any) -> Any:
    """Await what a coroutine function has returned; tensors can be awaited, but are results."""
    return await found if isawaitable(found) and not isinstance(found, Variable) else found


async def called(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a user's function: in a thread, lest it block the loop, unless it can be awaited."""
    if not callable(function):
        raise TypeError(f"{function!r} is not callable: give a function, or a class")
    # `waits` is also true of a class if calls of its instances are awaited. A call of the class is
    # not awaited.
    if waits(function) and not isinstance(function, type):
        return await function(*args, **kwargs)
    return await offload(function, *args, **kwargs)


async def applied(function: Callable[..., Any], to: Any, *args: Any) -> Any:
    """Call a user's function with an object of this package's, and record no gradients."""
    with no_grad():
        return without_graphs(await called(function, to, *args))


def as_loss(name: str, found: Any) -> Tensor:
    """What a loss function has given; raises unless it is a tensor of one element."""
    if not isinstance(found, Variable) or found._metadata.size != 1:
        shape = f" of shape {tuple(found.shape)}" if isinstance(found, Variable) else ""  # type: ignore[attr-defined]
        raise AutogradError(
            f"{name}: the loss function gave {type(found).__name__}{shape}, not a tensor of one "
            f"element"
        )
    return cast("Tensor", found)
