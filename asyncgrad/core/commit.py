"""Gradients reach `.grad` all at once, or not at all.

A pass *stages* what its accumulators receive. When it has succeeded, `commit` checks everything
that could fail, allocates what it needs, and only then touches a `.grad`. Leaves with hooks that
run after accumulation commit as they become ready, because that is what those hooks are for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from asyncgrad.aliases import Namespace
from asyncgrad.core.locks import acquiring, lasting_lock
from asyncgrad.core.prepared import Prepared, exchange, recorded_sum, refuse, restoring
from asyncgrad.core.variable import (
    AutogradMeta,
    Staged,
    Variable,
    autograd_meta,
    bump_version,
    grad_dtype,
    version_of,
    wrap,
)

#: Passes commit one at a time, so that no update is lost.
_committing = lasting_lock()

#: Functions to call once, as soon as no pass is committing. The thread that has committed does it.
_awaiting: deque[Callable[[], None]] = deque()

#: Gradients with at least this many elements are not copied in one go.
_LARGE = 1 << 18


def commit(
    staged: Sequence[Staged], recorded: Namespace, wait: bool,
    prepared: Sequence[Prepared] = (), begin: Callable[[], None] | None = None,
    end: Callable[[], None] | None = None,
) -> bool:  # fmt: skip
    """Add every staged gradient to its variable's `.grad`, or none.

    Args:
        staged: variables with their gradients, and whether the gradient's array may be kept.
        recorded: the namespace of recorded functions where the gradients are tensors that can
            be differentiated again; None where they are arrays.
        wait: block while another pass commits; otherwise the result is then False.
        prepared: what devices have computed already.
        begin, end: called first and last, with the commit lock held.

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
                exchange(one)
            if end is not None:
                end()
        finally:
            try:
                _committing.release()
            finally:
                if _awaiting:
                    _call_awaiting()
        break
    return True


def check_staged(staged: Sequence[Staged]) -> None:
    """Raise what `commit` would raise, for those who must not fail once others rely on them."""
    for variable, gradient, _ in staged:
        metadata = variable._metadata
        if tuple(gradient.shape) != metadata.shape:
            refuse(variable, gradient.shape)
        grad = autograd_meta(variable).grad
        if grad is not None:
            if grad._metadata.shape != metadata.shape:
                refuse(variable, metadata.shape)
            metadata.F.check_writeable(grad._array)


def _changes(staged: Sequence[Staged]) -> tuple[Any, Any, Any]:
    """The arguments for `_apply`. Everything that can fail or allocates memory happens here."""
    fresh = []
    added: list[tuple[Variable, Any, Any]] = []
    #: For each `.grad` that is sparse, or retained by a computed tensor: it and its new value. None
    #: if there are none.
    sums: dict[AutogradMeta, tuple[Variable, Any]] | None = None
    for variable, gradient, owned in staged:
        meta = variable._autograd or autograd_meta(variable)
        metadata = variable._metadata
        F = metadata.F
        if gradient.__class__ is not F.array_type:
            gradient = F.as_array(gradient)
        if gradient.shape != metadata.shape:
            refuse(variable, gradient.shape)
        grad = meta.grad
        if grad is not None:
            before = grad._array
            if before.shape != metadata.shape:
                refuse(variable, metadata.shape)
            F.check_writeable(before)
            if gradient.dtype != grad._metadata.dtype:
                gradient = F.in_dtype(gradient, grad._metadata.dtype)
            if meta.retains_grad or before.__class__ is not F.array_type:
                # What `retain_grad` has kept does not change: each pass sets a new tensor.
                if sums is None:
                    sums = {}
                elif meta in sums:
                    before = sums[meta][1]
                sums[meta] = grad, _grown(F.xp.add, before, gradient, owned)
                continue
            added.append((grad, gradient, [0] * (owned is not None)))
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
            gradient = F.keep_gradient(gradient, variable._array, bool(owned), dtype)
            if dtype != metadata.dtype:
                metadata = F.metadata_of(gradient)
            if sums is None and gradient.__class__ is not F.array_type:
                sums = {}
        fresh.append((meta, wrap(gradient, metadata)))
    if sums is None:
        return [], fresh, added
    return _outgrown(sums, added), _summed(fresh), added


def _grown(add: Any, rows: Any, gradient: Any, owned: bool | None) -> Any:
    """What a `.grad` of sparse rows becomes."""
    return gradient.copy() if owned is None else add(rows, gradient)


def _outgrown(
    sums: dict[AutogradMeta, tuple[Variable, Any]], added: list[tuple[Variable, Any, Any]]
) -> list[tuple[AutogradMeta, Any]]:
    """Return sums as new tensors; those of leaves that stay sparse join `added`."""
    replaced = []
    for meta, (grad, total) in sums.items():
        if total.__class__ is grad._array.__class__ and not meta.retains_grad:
            added.append((grad, total, None))
        else:
            replaced.append((meta, wrap(total, grad._metadata)))
    return replaced


def _summed(fresh: Sequence[tuple[AutogradMeta, Any]]) -> list[tuple[AutogradMeta, Any]]:
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
            added, or nothing if it is to be copied; or with the new sparse rows, and None.
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
        elif not done:
            grad._metadata.F.assign(grad._array, gradient)
        else:
            grad._metadata.F.add_into(grad._array, gradient, done)
        bump_version(grad)


def _made_anew(staged: Sequence[Staged], recorded: Namespace) -> list[tuple[AutogradMeta, Any]]:
    """Sums that can be differentiated: every `.grad` becomes a new tensor."""
    sums: dict[AutogradMeta, Any] = {}
    for variable, gradient, _ in staged:
        meta = autograd_meta(variable)
        if gradient._metadata.shape != variable._metadata.shape:
            refuse(variable, gradient._metadata.shape)
        dtype = grad_dtype(variable)
        if dtype is not None and gradient._metadata.dtype != dtype:
            gradient = recorded.to(gradient, dtype)
        sums[meta] = recorded_sum(variable, sums.get(meta, meta.grad), gradient, recorded)
    return list(sums.items())


def commit_revocably(
    staged: Sequence[Staged], recorded: Namespace, wait: bool, prepared: Sequence[Prepared] = ()
) -> Callable[[bool], bool] | None:
    """Commit gradients, and return a function that undoes it; None where `commit` returns False.

    `revoke(wait)` restores every `.grad` that nobody has changed since the commit. `revoke(False)`
    changes nothing and returns False if it would have to copy much, or if another pass commits.
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
                restore = partial(facts.F.assign, array, kept)
                copied += kept.size
            before.append((meta, grad, restore))
        before.extend((autograd_meta(one.staged[0]), one.grad, restoring(one)) for one in prepared)

    after: list[Any] = []

    def note_versions() -> None:
        for meta, _, _ in before:
            # None if another thread has just dropped the `.grad`.
            new = meta.grad
            after.append((new, None if new is None else version_of(new)))

    def put_back() -> None:
        # All are checked before any is restored. To restore one raises the version of every `.grad`
        # that shares its memory, and those would then look changed.
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

    return revoke if commit(staged, recorded, wait, prepared, remember, note_versions) else None


def when_free(call: Callable[[], None]) -> None:
    """Call a function once, in any thread, as soon as no pass commits; perhaps now."""
    _awaiting.append(call)
    if not _committing.locked():
        _call_awaiting()


def _call_awaiting() -> None:
    """Call the functions that wait until no pass commits."""
    while _awaiting:
        with suppress(IndexError):
            # Another thread may take the last entry first.
            _awaiting.popleft()()
