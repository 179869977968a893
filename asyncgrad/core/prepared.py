"""The new `.grad` of a leaf, computed ahead of the commit where a device does the work."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from sys import getrefcount
from typing import Any

from asyncgrad.aliases import Gradient, Namespace
from asyncgrad.core.variable import REPLACES, Variable, autograd_meta, grad_dtype, version_of, wrap
from asyncgrad.errors import AutogradError
from asyncgrad.records import NamedTuple

_held = [object()]
#: The `getrefcount` of an object that only a list refers to.
_ALONE = getrefcount(_held[0])


class Prepared(NamedTuple):
    """The new `.grad` of a leaf on a device with streams."""

    #: The arguments of `prepare` that it was computed from.
    arguments: tuple[Variable, Any, bool, Any]
    #: The leaf's `.grad` when it was computed (or None), with its array and version.
    grad: Variable | None
    before: Any
    version: int
    #: The new array of `.grad`, or a new tensor in the place of the old one.
    after: Any
    #: A copy of the old array, if others share its memory: then `.grad` is changed in place.
    kept: Any
    #: Calls a function in the stream of the leaf, and makes the caller's stream wait for it.
    within: Callable[..., Any]

    def is_valid(self) -> bool:
        """Whether `.grad` is unchanged since `prepare`."""
        grad = self.grad
        if autograd_meta(self.arguments[0]).grad is not grad:
            return False
        return grad is None or (grad._array is self.before and version_of(grad) == self.version)


def prepare(
    variable: Variable, gradient: Gradient, owned: bool, recorded: Namespace,
    within: Callable[..., Any],
) -> Prepared:  # fmt: skip
    """Compute what `commit` would make a leaf's `.grad`, without touching it.

    `within` calls a function in the stream of the leaf.
    """
    arguments = (variable, gradient, owned, recorded)
    metadata = variable._metadata
    F = metadata.F
    grad = check_fit(variable, gradient)
    seen = grad is not None and recorded is None and _is_seen(grad)
    before: Any = None if grad is None else grad._array
    version = 0 if grad is None else version_of(grad)
    kept = None
    if recorded is not None:
        after = recorded_sum(variable, grad, gradient, recorded)
    elif grad is None:
        dtype = grad_dtype(variable) or gradient.dtype
        total = F.keep_gradient(gradient, variable._array, owned, dtype)
        after = wrap(total, F.metadata_of(total))
        arguments = (variable, gradient, False, recorded)
    else:
        # The sum is a new array: if `.grad` changes before the commit, both are added again.
        after, _ = F.accumulate(before, False, gradient, False)
        if after.dtype != grad._metadata.dtype:
            after = F.in_dtype(after, grad._metadata.dtype)
        if autograd_meta(variable).retains_grad:
            # What `retain_grad` has kept does not change: each pass sets a new tensor.
            after = wrap(after, F.metadata_of(after))
        elif seen:
            kept = before.copy()
    return Prepared(arguments, grad, before, version, after, kept, within)


def _is_seen(grad: Variable) -> bool:
    """Whether others can see the memory of a `.grad`: they hold its array, or that array's base."""
    # One reference besides the list's is expected: from the tensor to its array, and from the array
    # to its base.
    held: list[Any] = [grad._array]
    if getrefcount(held[0]) > _ALONE + 1:
        return True
    held = [held[0].base]
    return held[0] is not None and getrefcount(held[0]) > _ALONE + 1


def renewed(prepared: Prepared) -> Prepared:
    """A leaf's new `.grad`, computed again if the present one has changed since it was prepared."""
    if prepared.is_valid():
        return prepared
    again: Prepared = prepared.within(prepare, *prepared.arguments, prepared.within)
    return again


def exchange(prepared: Prepared, changes: list[Any]) -> None:
    """Put a leaf's change into an empty list; prepare it again if `.grad` has changed."""
    prepared = renewed(prepared)
    grad, after, variable = prepared.grad, prepared.after, prepared.arguments[0]
    change: Any = autograd_meta(variable), after, [REPLACES]
    if not isinstance(after, Variable):
        if prepared.kept is None:
            write = partial(setattr, grad, "_array", after)
        else:
            assign = variable._metadata.F.assign
            write = partial(prepared.within, assign, prepared.before, after)
        change = grad, write, [0]
    if not changes:
        # Otherwise a commit in a signal handler or `__del__` has done this since the call began.
        changes.append(change)


def restoring(one: Prepared) -> Callable[[], None]:
    """A function that restores the values of a `.grad` as they were when it was prepared."""
    if one.grad is not None and one.kept is not None:
        return partial(one.within, one.grad._metadata.F.assign, one.before, one.kept)
    # `exchange` replaces the array, so the old one is unchanged and needs no copy.
    return partial(setattr, one.grad, "_array", one.before)


def recorded_sum(
    variable: Variable, grad: Variable | None, gradient: Gradient, recorded: Namespace
) -> Any:
    """The new, recorded `.grad`, with the memory layout of the old one or else of the leaf."""
    made = recorded.clone(gradient) if grad is None else recorded.add(grad, gradient)
    array, like = made._array, (variable if grad is None else grad)._array
    made._array = made._metadata.F.keep_gradient(array, like, True, array.dtype)
    return made


def check_fit(variable: Variable, gradient: Gradient) -> Variable | None:
    """Raise unless a gradient for a leaf, and its `.grad`, have its shape; returns the `.grad`."""
    facts = gradient._metadata if isinstance(gradient, Variable) else gradient
    own, shape = variable._metadata.shape, tuple(facts.shape)
    if shape != own:
        raise AutogradError(
            f"accumulating a gradient of shape {shape} into a leaf of shape {own}: the leaf's data "
            f"was replaced after the forward pass. Run the forward again after changing .data."
        )
    grad = autograd_meta(variable).grad
    if grad is not None and grad._metadata.shape != own:
        raise AutogradError(
            f"accumulating a gradient of shape {shape} into a .grad of shape "
            f"{grad._metadata.shape}: the leaf's data was replaced by data of another shape. Set "
            f".grad to None after that."
        )
    return grad
