"""Gradients reach `.grad` all at once, or not at all.

A pass *stages* what its accumulators receive. When it has succeeded, `commit` checks everything
that could fail, allocates what it needs, and only then touches a `.grad`. Leaves with hooks that
run after accumulation commit as they become ready, because that is what those hooks are for.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from functools import partial
from sys import getrefcount
from typing import TYPE_CHECKING, Any

from asyncgrad.core.locks import acquiring, lasting_lock
from asyncgrad.core.variable import (
    Variable,
    autograd_meta,
    bump_version,
    grad_dtype,
    version_of,
    wrap,
)
from asyncgrad.errors import AutogradError
from asyncgrad.records import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncgrad.aliases import Array, Gradient, Namespace
    from asyncgrad.core.variable import AutogradMeta

#: Passes commit one at a time, so that no update is lost.
_committing = lasting_lock()

#: Functions to call, once, as soon as no pass commits; the thread that has committed calls them.
_awaiting: deque[Callable[[], None]] = deque()

#: Gradients with at least this many elements are not copied in one go.
_LARGE = 1 << 18

_held = [object()]
#: The `getrefcount` of an object that only a list refers to.
_ALONE = getrefcount(_held[0])


class Prepared(NamedTuple):
    """The new `.grad` of a leaf on a device with streams."""

    #: The arguments of `prepare` that it was computed from.
    staged: tuple[Variable, Any, bool, Any]
    #: The leaf's `.grad` when it was computed (or None), with its array and version.
    grad: Variable | None
    before: Any
    version: int
    #: The new array, or a new tensor in the place of the old.
    after: Any
    #: A copy of the old array, if others share its memory: then `.grad` is changed in place.
    kept: Any
    #: Calls a function in the stream of the leaf, and makes the caller's stream wait for it.
    within: Callable[..., Any]

    def is_valid(self) -> bool:
        """Whether `.grad` is unchanged since `prepare`."""
        grad = self.grad
        if autograd_meta(self.staged[0]).grad is not grad:
            return False
        return grad is None or (grad._array is self.before and version_of(grad) == self.version)


def _is_seen(grad: Variable) -> bool:
    """Whether anything but its tensor, or but the array for its base, refers to the memory."""
    # One more reference than the list's: the tensor's to its array, or the array's to its base.
    held: list[Any] = [grad._array]
    if getrefcount(held[0]) > _ALONE + 1:
        return True
    held = [held[0].base]
    return held[0] is not None and getrefcount(held[0]) > _ALONE + 1


def prepare(
    variable: Variable,
    gradient: Gradient,
    owned: bool,
    recorded: Namespace,
    within: Callable[..., Any],
) -> Prepared:
    """Compute what `commit` would make a leaf's `.grad`, without touching it.

    Args:
        variable: the leaf.
        gradient: what is added.
        owned: nothing else refers to the gradient's array.
        recorded: the recorded functions, if the pass records itself.
        within: calls a function in the stream of the leaf.

    Raises:
        RuntimeError: if the gradient does not fit the leaf.
    """
    staged = (variable, gradient, owned, recorded)
    metadata = variable._metadata
    F = metadata.F
    facts = gradient._metadata if isinstance(gradient, Variable) else gradient
    if facts.shape != metadata.shape:
        _refuse(variable, facts.shape)
    grad = autograd_meta(variable).grad
    seen = grad is not None and recorded is None and _is_seen(grad)
    before: Any = None if grad is None else grad._array
    version = 0 if grad is None else version_of(grad)
    if recorded is not None:
        total = _recorded_sum(variable, grad, gradient, recorded)
        return Prepared(staged, grad, before, version, total, None, within)
    if grad is not None:
        # Into a new array: if `.grad` changes meanwhile, the sum is made again from both.
        total, _ = F.accumulate(before, False, gradient, False)
        if total.dtype != grad._metadata.dtype:
            total = F.in_dtype(total, grad._metadata.dtype)
        kept = before.copy() if seen else None
        return Prepared(staged, grad, before, version, total, kept, within)
    dtype = grad_dtype(variable) or gradient.dtype
    total = F.keep_gradient(gradient, variable._array, owned, dtype)
    return Prepared((variable, gradient, False, recorded), None, None, 0, total, None, within)


def _exchange(prepared: Prepared) -> None:
    """Set a leaf's `.grad` to the prepared one; prepare it again if `.grad` has changed."""
    if not prepared.is_valid():
        prepared = prepared.within(prepare, *prepared.staged, prepared.within)
    after = prepared.after
    variable = prepared.staged[0]
    meta = autograd_meta(variable)
    if isinstance(after, Variable):
        meta.grad = after
    elif prepared.grad is None:
        meta.grad = wrap(after, variable._metadata.F.metadata_of(after))
    else:
        if prepared.kept is not None:
            prepared.within(variable._metadata.F.assign, prepared.before, after)
        else:
            prepared.grad._array = after
        bump_version(prepared.grad)


def commit(
    staged: Sequence[tuple[Variable, Any, bool]],
    recorded: Namespace,
    wait: bool,
    prepared: Sequence[Prepared] = (),
    begin: Callable[[], None] | None = None,
    end: Callable[[], None] | None = None,
) -> bool:
    """Add every staged gradient to its variable's `.grad`, or none.

    Args:
        staged: variables with their gradients, and whether the gradient's array may be kept.
        recorded: the namespace of recorded functions where the gradients are tensors that can
            be differentiated again; None where they are arrays.
        wait: block while another pass commits.
        prepared: what devices have computed already.
        begin: called first, with the commit lock held.
        end: called last, with the commit lock still held.

    Returns:
        False, with nothing changed, where another pass commits and `wait` is false.

    Raises:
        RuntimeError: if a gradient does not fit its leaf, or a `.grad` is read-only.
    """
    for taken in acquiring(_committing, wait):
        if not taken:
            return False
        try:
            if begin is not None:
                begin()
            if recorded is None:
                replaced, fresh, added = _changes(staged)
            else:
                replaced, fresh, added = _made_anew(staged, recorded), [], []
            try:
                _apply(replaced, fresh, added)
            except BaseException:
                # `_apply` allocates nothing, so this is an interrupt. Update the other leaves, too.
                _apply(replaced, fresh, added)
                raise
            for one in prepared:
                _exchange(one)
            if end is not None:
                end()
        finally:
            try:
                _committing.release()
            finally:
                if _awaiting:
                    _tell()
        break
    return True


def _changes(staged: Sequence[tuple[Variable, Any, bool]]) -> tuple[Any, Any, Any]:
    """The arguments for `_apply`. Everything that can fail or allocates memory happens here."""
    fresh = []
    added: list[tuple[Variable, Any, Any]] = []
    #: For leaves with a sparse `.grad`: it and its new value. None where all gradients are dense.
    sums: dict[AutogradMeta, tuple[Variable, Any]] | None = None
    for variable, gradient, owned in staged:
        meta = variable._autograd or autograd_meta(variable)
        metadata = variable._metadata
        F = metadata.F
        if gradient.__class__ is not F.array_type:
            gradient = F.as_array(gradient)
        if gradient.shape != metadata.shape:
            _refuse(variable, gradient.shape)
        grad = meta.grad
        if grad is not None:
            before = grad._array
            F.check_writeable(before)
            if gradient.dtype != grad._metadata.dtype:
                gradient = F.in_dtype(gradient, grad._metadata.dtype)
            if before.__class__ is not F.array_type:
                if sums is None:
                    sums = {}
                elif meta in sums:
                    before = sums[meta][1]
                sums[meta] = grad, F.xp.add(before, gradient)
                continue
            added.append((grad, gradient, [0]))
            continue
        dtype = gradient.dtype
        if (
            meta.grad_dtype is None
            and gradient.strides == variable._array.strides
            and (dtype is metadata.dtype or dtype == metadata.dtype)
            and (owned or gradient.size < _LARGE)
        ):
            if not owned:
                gradient = gradient.copy("K")
        else:
            dtype = grad_dtype(variable) or dtype
            gradient = F.keep_gradient(gradient, variable._array, owned, dtype)
            if dtype != metadata.dtype:
                metadata = F.metadata_of(gradient)
            if sums is None and gradient.__class__ is not F.array_type:
                sums = {}
        fresh.append((meta, wrap(gradient, metadata)))
    if sums is None:
        return [], fresh, added
    return _outgrown(sums, added), _summed(fresh), added


def _outgrown(
    sums: dict[AutogradMeta, tuple[Variable, Any]], added: list[tuple[Variable, Any, Any]]
) -> list[tuple[AutogradMeta, Any]]:
    """Return sums that have become dense, as new tensors; sums that stay sparse join `added`."""
    replaced = []
    for meta, (grad, total) in sums.items():
        if total.__class__ is grad._array.__class__:
            added.append((grad, total, None))
        else:
            replaced.append((meta, wrap(total, grad._metadata)))
    return replaced


def _summed(
    fresh: Sequence[tuple[AutogradMeta, Any]],
) -> list[tuple[AutogradMeta, Any]]:
    """Sum the gradients of leaves reached twice here: `_apply` can't add into sparse rows."""
    found: dict[AutogradMeta, Any] = {}
    for meta, tensor in fresh:
        first = found.setdefault(meta, tensor)
        if first is not tensor:
            total = tensor._metadata.F.xp.add(first._array, tensor._array)
            found[meta] = wrap(total, first._metadata)
    return list(found.items())


def _apply(
    replaced: Sequence[tuple[AutogradMeta, Any]],
    fresh: Sequence[tuple[AutogradMeta, Any]],
    added: list[tuple[Variable, Any, Any]],
) -> None:
    """Update every `.grad`; called again after an interrupt, it completes the update.

    Args:
        replaced: leaves' records, each with the tensor that replaces its `.grad`.
        fresh: records of leaves without a `.grad`, each with the tensor that becomes it.
        added: other `.grad`s, each with the gradient to add and, in a list, how much of it has been
            added; or with the new sparse rows, and None.
    """
    for meta, tensor in replaced:
        meta.grad = tensor
    for meta, tensor in fresh:
        if meta.grad is None:
            meta.grad = tensor
        elif meta.grad is not tensor and all(one[1] is not tensor._array for one in added):
            # The pass has reached this leaf twice: add the second gradient to the first.
            added.append((meta.grad, tensor._array, [0]))
    for grad, gradient, done in added:
        if done is None:
            grad._array.become(gradient)
        else:
            grad._metadata.F.add_into(grad._array, gradient, done)
        bump_version(grad)


def _made_anew(
    staged: Sequence[tuple[Variable, Any, bool]], recorded: Namespace
) -> list[tuple[AutogradMeta, Any]]:
    """Sums that can be differentiated: every `.grad` becomes a new tensor."""
    sums: dict[int, tuple[AutogradMeta, Any]] = {}
    for variable, gradient, _ in staged:
        meta = autograd_meta(variable)
        if gradient._metadata.shape != variable._metadata.shape:
            _refuse(variable, gradient._metadata.shape)
        dtype = grad_dtype(variable)
        if dtype is not None and gradient._metadata.dtype != dtype:
            gradient = recorded.to(gradient, dtype)
        _, grad = sums.get(id(meta), (meta, meta.grad))
        sums[id(meta)] = (meta, _recorded_sum(variable, grad, gradient, recorded))
    return list(sums.values())


def _recorded_sum(
    variable: Variable, grad: Variable | None, gradient: Gradient, recorded: Namespace
) -> Any:
    """The new, recorded `.grad`, with the memory layout of the old one or else of the leaf."""
    made = recorded.clone(gradient) if grad is None else recorded.add(grad, gradient)
    array, like = made._array, (variable if grad is None else grad)._array
    made._array = made._metadata.F.keep_gradient(array, like, True, array.dtype)
    return made


def commit_revocably(
    staged: Sequence[tuple[Variable, Any, bool]],
    recorded: Namespace,
    wait: bool,
    prepared: Sequence[Prepared] = (),
) -> Callable[[bool], bool] | None:
    """Commit gradients so that it can be undone.

    Returns:
        `revoke(wait)`, which restores every `.grad` that is unchanged since the commit. Without
        `wait` it returns False, with nothing changed, if much must be copied or another pass
        commits. None instead, with nothing changed, where one commits now and `wait` is false.
    """
    before: list[Any] = []
    copied = 0

    def remember() -> None:
        nonlocal copied
        for variable, _, _ in staged:
            meta = autograd_meta(variable)
            grad = meta.grad
            restore = None
            if grad is not None:
                array, facts = grad._array, grad._metadata
                kept = facts.F.keep_gradient(array, array, False, facts.dtype)
                restore = partial(_write, array, kept)
                copied += kept.size
            before.append((meta, grad, restore))
        before.extend((autograd_meta(one.staged[0]), one.grad, _restoring(one)) for one in prepared)

    after: list[Any] = []

    def look() -> None:
        for meta, _, _ in before:
            # None if another thread has just dropped the `.grad`.
            new = meta.grad
            after.append((new, None if new is None else version_of(new)))

    def put_back() -> None:
        # All checked before any is restored: `.grad`s that share memory share a version, too.
        unchanged = [
            (new, *old)
            for old, (new, version) in zip(before, after, strict=True)
            if new is not None and old[0].grad is new and version_of(new) == version
        ]
        for new, meta, grad, restore in unchanged:
            meta.grad = grad
            if grad is new:
                restore()
                bump_version(grad)

    def revoke(wait: bool) -> bool:
        return (wait or copied < _LARGE) and commit((), None, wait, (), put_back)

    return revoke if commit(staged, recorded, wait, prepared, remember, look) else None


def _restoring(one: Prepared) -> Callable[[], None]:
    """A function that restores the values of a `.grad` as they were when it was prepared."""
    if one.grad is not None and one.kept is not None:
        return partial(one.within, one.grad._metadata.F.assign, one.before, one.kept)
    # `_exchange` replaces the array, so the old one is unchanged and needs no copy.
    return partial(setattr, one.grad, "_array", one.before)


def _write(target: Array, values: Array) -> None:
    target[...] = values


def when_free(call: Callable[[], None]) -> None:
    """Call a function once, in any thread, as soon as no pass commits; perhaps now."""
    _awaiting.append(call)
    if not _committing.locked():
        _tell()


def _tell() -> None:
    while _awaiting:
        with suppress(IndexError):
            # Another thread may take the last entry first.
            _awaiting.popleft()()


def _refuse(variable: Variable, shape: tuple[int, ...]) -> None:
    raise AutogradError(
        f"accumulating a gradient of shape {shape} into a leaf of shape "
        f"{variable._metadata.shape}: the leaf's data was replaced after the forward pass. Run "
        f"the forward again after changing .data."
    )
