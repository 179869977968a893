"""Gradients reach `.grad` all at once, or not at all.

A pass *stages* what its accumulators receive. When it has succeeded, `commit` checks everything
that could fail, allocates what it needs, and only then touches a `.grad`. Leaves with hooks that
run after accumulation commit as they become ready, because that is what those hooks are for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import setitem
from typing import Any

from asyncgrad.aliases import Namespace
from asyncgrad.core import commit_turns
from asyncgrad.core.locks import acquiring
from asyncgrad.core.prepared import Prepared, check_fit, exchange, recorded_sum, renewed, restoring
from asyncgrad.core.variable import (
    REPLACES,
    AutogradMeta,
    Staged,
    Variable,
    autograd_meta,
    bump_version,
    grad_dtype,
    version_of,
    wrap,
)

#: The arguments of `_apply_all` while it runs. A signal handler or `__del__` may interrupt it and
#: commit another pass: that commit first does what is left of this one.
_unfinished: Any = None
#: How often commits have computed their changes. If another commit interrupts that, this grows, and
#: the interrupted one computes its changes again: the `.grad`s are not those it has seen.
_computed = 0

#: Gradients with at least this many elements are not copied in one go.
_LARGE = 1 << 18

#: What is changed, what is new, and how far that has come. The classes of the first two say what
#: is done:
#:
#:     a leaf's `AutogradMeta`, a tensor   the tensor becomes its `.grad`
#:     a `.grad`, an array                 the array is added to it
#:     a `.grad`, sparse rows              they are added to it; if it has sparse rows itself, these
#:                                         are the sum already, and it takes them over
#:     a `.grad`, a `partial`              it is called, and writes the new values
#:
#: The last is a list of one number, so that a commit that was interrupted goes on where it, or the
#: one that has interrupted it, has stopped. 0 is the start, but `REPLACES` for a tensor that takes
#: the place of a `.grad`; 1 is the end. `Raw.add_into` notes how much of the first axis is added,
#: and for a `partial` come `_WRITTEN` and then `_COUNTED`: the version was raised, too.
_Change = tuple[AutogradMeta | Variable, Any, list[int]]
_WRITTEN, _COUNTED = 1, 2


def commit(
    staged: Sequence[Staged], recorded: Namespace, wait: bool,
    prepared: Sequence[Prepared] = (), begin: Callable[[], list[_Change] | None] | None = None,
    end: Callable[[], None] | None = None, task: Any = None,
) -> bool:  # fmt: skip
    """Add every staged gradient to its variable's `.grad`, or none.

    Args:
        staged: variables with their gradients, and whether the gradient's array may be kept.
        recorded: the namespace of recorded functions where the gradients are tensors that can
            be differentiated again; None where they are arrays.
        wait: block while another pass commits; otherwise the result is then False.
        prepared: what devices have computed already.
        begin, end: called first and last, with the commit lock held, and `end` again if there is an
            interrupt. If `begin` returns changes, these take the place of what is staged.
        task: the pass, to note that it is committed. An interrupt may be raised after that, and
            after `end`.

    Raises:
        RuntimeError: if a gradient does not fit its leaf, or a `.grad` is read-only.
    """
    global _unfinished, _computed
    if commit_turns.line and wait:
        commit_turns.wait_for_line()
    for taken in acquiring(commit_turns.committing, wait):
        if not taken:
            return False
        try:
            if _unfinished is not None:
                _apply_all(*_unfinished)
            number = None
            while number != _computed:
                number = _computed = _computed + 1
                given = None if begin is None else begin()
                changes = given or (
                    _changes(staged) if recorded is None else _made_anew(staged, recorded)
                )
                whole: Any = changes, [(one, []) for one in prepared], end
            _unfinished = whole
            try:
                _apply_all(*whole)
            except BaseException:
                # On the host nothing that it calls fails, so this is an interrupt. Update the other
                # leaves, too.
                _apply_all(*whole)
                raise
            finally:
                if task is not None:
                    task.committed = True
        finally:
            _unfinished = None
            try:
                commit_turns.committing.release()
            finally:
                if commit_turns.awaiting:
                    commit_turns.call_awaiting()
        break
    return True


def check_staged(staged: Sequence[Staged]) -> None:
    """Raise what `commit` would raise, for those who must not fail once others rely on them."""
    for variable, gradient, _ in staged:
        grad = check_fit(variable, gradient)
        if grad is not None:
            variable._metadata.F.check_writeable(grad._array)


def _changes(staged: Sequence[Staged]) -> list[_Change]:
    """The changes that add what is staged. Everything that can fail happens here."""
    changes: list[_Change] = []
    #: For each `.grad` that is, or becomes, one of sparse rows, or that is retained by a computed
    #: tensor: the present one, the array and metadata of the new one, and whether the present one
    #: may change.
    sums: dict[AutogradMeta, tuple[Any, Any, Any, bool]] = {}
    for variable, gradient, owned in staged:
        meta = variable._autograd or autograd_meta(variable)
        metadata = variable._metadata
        F = metadata.F
        if gradient.__class__ is not F.array_type:
            gradient = F.as_array(gradient)
        if gradient.shape != metadata.shape:
            check_fit(variable, gradient)
        grad = meta.grad
        if grad is not None:
            before = grad._array
            if before.shape != metadata.shape:
                check_fit(variable, gradient)
            F.check_writeable(before)
            metadata = grad._metadata
            if gradient.dtype != metadata.dtype:
                gradient = F.in_dtype(gradient, metadata.dtype)
            # What `retain_grad` has kept does not change: each pass sets a new tensor.
            in_place = not meta.retains_grad
            if in_place and before.__class__ is F.array_type:
                change = partial(setitem, before, ..., gradient) if owned is None else gradient
                changes.append((grad, change, [0]))
                continue
        else:
            before, in_place = None, False
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
            if gradient.__class__ is F.array_type and meta not in sums:
                changes.append((meta, wrap(gradient, metadata), [0]))
                continue
        before = sums[meta][1] if meta in sums else before
        if before is not None:
            # NumPy's sum of two 0-d arrays is a scalar.
            gradient = gradient.copy() if owned is None else F.as_array(F.xp.add(before, gradient))
        sums[meta] = grad, gradient, metadata, in_place
    for meta, (grad, total, metadata, in_place) in sums.items():
        if in_place and total.__class__ is grad._array.__class__:
            changes.append((grad, total, [0]))
        else:
            progress = [0 if grad is None else REPLACES]
            changes.append((meta, wrap(total, metadata), progress))
    return changes


def _apply_all(
    changes: list[_Change], prepared: Sequence[tuple[Prepared, list[_Change]]],
    end: Callable[[], None] | None,
) -> None:  # fmt: skip
    """Apply changes, and then what devices have computed: that of each leaf after the one before.

    `.grad`s may share memory, so each is compared with what it was when the others have changed.
    """
    _apply(changes)
    for one, own in prepared:
        if not own:
            exchange(one, own)
        _apply(own)
    if end is not None:
        end()


def _apply(changes: list[_Change]) -> None:
    """Update every `.grad`, or those that are left if an interrupt has ended an earlier call."""
    target: Any
    for target, gradient, done in changes:
        if target.__class__ is AutogradMeta:
            if done[0] <= 0:
                if target.grad is None or done[0] == REPLACES:
                    target.grad = gradient
                    done[0] = 1
                elif target.grad is not gradient:
                    # The pass has reached a leaf without a `.grad` twice.
                    changes.append((target.grad, gradient._array, done))
            continue
        if gradient.__class__ is partial:
            if not done[0]:
                # Nothing runs between these two: Python handles signals after the second.
                done[0] = _WRITTEN
                gradient()
            if done[0] == _WRITTEN:
                # Not before: what another thread prepares from the old values would look valid.
                bump_version(target)
                done[0] = _COUNTED
            continue
        if not done[0]:
            bump_version(target)
        array, F = target._array, target._metadata.F
        if array.__class__ is F.array_type:
            F.add_into(array, gradient, done)
        else:
            array.become(gradient, done)


def _made_anew(staged: Sequence[Staged], recorded: Namespace) -> list[_Change]:
    """As `_changes`, with sums that can be differentiated: every `.grad` becomes a new tensor."""
    sums: dict[AutogradMeta, Any] = {}
    for variable, gradient, _ in staged:
        meta = autograd_meta(variable)
        grad = check_fit(variable, gradient)
        dtype = grad_dtype(variable)
        if dtype is not None and gradient._metadata.dtype != dtype:
            gradient = recorded.to(gradient, dtype)
        sums[meta] = recorded_sum(variable, sums.get(meta, grad), gradient, recorded)
    return [(meta, total, [REPLACES]) for meta, total in sums.items()]


def commit_revocably(
    staged: Sequence[Staged], recorded: Namespace, wait: bool, prepared: Sequence[Prepared] = (),
    task: Any = None,
) -> Callable[[bool], bool] | None:  # fmt: skip
    """Commit gradients, and return a function that undoes it; None where `commit` returns False.

    The pass `task` gets it, too, as `revoke`: an interrupt may be raised instead of the result.

    `revoke(wait)` restores every `.grad` that nobody has changed since the commit. `revoke(False)`
    changes nothing and returns False if it would have to copy much, or if another pass commits.
    """
    before: list[Any] = []
    copied = 0
    prepared = list(prepared)

    def remember() -> None:
        nonlocal copied
        copied = 0
        before.clear()
        # Another pass may have added since, and what it has added is not undone.
        prepared[:] = map(renewed, prepared)
        for variable, _, _ in staged:
            meta = autograd_meta(variable)
            grad = meta.grad
            kept = None
            if grad is not None:
                array, F = grad._array, grad._metadata.F
                kept = F.keep_gradient(array, array, False, array.dtype)
                copied += kept.size
                if array.__class__ is F.array_type:
                    kept = partial(setitem, array, ..., kept)
            before.append((meta, grad, kept))
        before.extend(
            (autograd_meta(one.arguments[0]), one.grad, restoring(one)) for one in prepared
        )

    after: list[Any] = []

    def note_versions() -> None:
        # None if another thread has just dropped the `.grad`.
        grads = [meta.grad for meta, _, _ in before]
        noted = [(new, None if new is None else version_of(new)) for new in grads]
        if not after:
            # Otherwise a commit that has interrupted this one has called this, and added since.
            after.extend(noted)
        if task is not None:
            task.revoke = revoke

    def put_back() -> list[_Change]:
        # All are checked before any is restored. To restore one raises the version of every `.grad`
        # that shares its memory, and those would then look changed.
        unchanged = [
            (new, *old)
            for old, (new, version) in zip(before, after, strict=True)
            if new is not None and old[0].grad is new and version_of(new) == version
        ]
        replaced: list[_Change] = [(meta, grad, [REPLACES]) for _, meta, grad, _ in unchanged]
        return replaced + [(grad, kept, [0]) for new, _, grad, kept in unchanged if grad is new]

    def revoke(wait: bool) -> bool:
        return (wait or copied < _LARGE) and commit((), None, wait, (), put_back)

    return revoke if commit(staged, recorded, wait, prepared, remember, note_versions) else None
