"""Gradients reach `.grad` all at once, or not at all.

A pass *stages* what its accumulators receive. When it has succeeded, `commit` checks everything
that could fail, allocates what it needs, and only then touches a `.grad`. Leaves with hooks that
run after accumulation commit as they become ready, because that is what those hooks are for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncgrad.core.locks import lasting_lock
from asyncgrad.core.variable import autograd_meta, bump_version, grad_dtype, version_of, wrap
from asyncgrad.errors import AutogradError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncgrad.core.variable import Variable

#: One pass commits at a time, so that no update is lost. Whoever may not wait does not.
_committing = lasting_lock()


def commit(staged: Sequence[tuple[Variable, Any, bool]], recorded: Any, *, wait: bool) -> bool:
    """Add every staged gradient to its variable's `.grad`, or none.

    Args:
        staged: variables with their gradients, and whether the gradient's array may be kept.
        recorded: the namespace of recorded functions where the gradients are tensors that can
            be differentiated again; None where they are arrays.
        wait: block while another pass commits.

    Returns:
        False, with nothing changed, where another pass commits and `wait` is false.
    """
    if not _committing.acquire(wait):
        return False
    try:
        if recorded is not None:
            _commit_recorded(staged, recorded)
            return True
        fresh = []
        added = []
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
                F.check_writeable(grad._array)
                if gradient.dtype != grad._metadata.dtype:
                    gradient = F.in_dtype(gradient, grad._metadata.dtype)
                added.append((grad, gradient))
                continue
            if (
                not owned
                or meta.grad_dtype is not None
                or gradient.strides != variable._array.strides
                or gradient.dtype != metadata.dtype
            ):
                dtype = grad_dtype(variable) or gradient.dtype
                gradient = F.keep_gradient(gradient, variable._array, owned, dtype)
                if dtype != metadata.dtype:
                    metadata = F.metadata_of(gradient)
            fresh.append((meta, wrap(gradient, metadata)))
        for meta, tensor in fresh:
            if meta.grad is None:
                meta.grad = tensor
            else:
                added.append((meta.grad, tensor._array))
        for grad, gradient in added:
            grad._metadata.F.add_into(grad._array, gradient)
            bump_version(grad)
    finally:
        _committing.release()
    return True


def _commit_recorded(staged: Sequence[tuple[Variable, Any, bool]], recorded: Any) -> None:
    """The same for gradients that can be differentiated: every `.grad` becomes a new tensor."""
    sums: dict[int, tuple[Any, Any]] = {}
    for variable, gradient, _ in staged:
        meta = autograd_meta(variable)
        if gradient._metadata.shape != variable._metadata.shape:
            _refuse(variable, gradient._metadata.shape)
        dtype = grad_dtype(variable)
        if dtype is not None and gradient._metadata.dtype != dtype:
            gradient = recorded.to(gradient, dtype)
        _, grad = sums.get(id(meta), (meta, meta.grad))
        sums[id(meta)] = (
            meta,
            recorded.clone(gradient) if grad is None else recorded.add(grad, gradient),
        )
    for meta, total in sums.values():
        meta.grad = total


def commit_revocably(
    staged: Sequence[tuple[Variable, Any, bool]], recorded: Any
) -> Callable[[], None]:
    """Commit gradients so that it can be undone.

    Returns:
        A function that puts every `.grad` back that nobody has changed since.
    """
    before: list[Any] = []
    for variable, _, _ in staged:
        meta = autograd_meta(variable)
        grad = meta.grad
        before.append((meta, grad, None if grad is None else grad._array.copy()))
    commit(staged, recorded, wait=True)
    after: list[Any] = [(meta.grad, version_of(meta.grad)) for meta, _, _ in before]

    def revoke() -> None:
        with _committing:
            for (meta, grad, array), (new, version) in zip(before, after, strict=True):
                if meta.grad is not new or version_of(new) != version:
                    continue
                meta.grad = grad
                if grad is new:
                    grad._array[...] = array
                    bump_version(grad)

    return revoke


def _refuse(variable: Variable, shape: tuple[int, ...]) -> None:
    raise AutogradError(
        f"accumulating a gradient of shape {shape} into a leaf of shape "
        f"{variable._metadata.shape}: the leaf's data was replaced after the forward pass. Run "
        f"the forward again after changing .data."
    )
