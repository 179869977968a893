"""From tensors inside of `vmap` to the tensors that hold their batches, and back.

Derivatives are taken of the tensors that hold the batches. Examples do not depend on one another,
so one pass gives each example its own gradient. Values shared by all examples are repeated first.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from asyncgrad.autograd.modes import no_grad
from asyncgrad.core.modes import Mode, current
from asyncgrad.core.node import as_edge
from asyncgrad.core.variable import (
    AccumulateGrad,
    Variable,
    autograd_meta,
    gradient_edge,
    is_inference,
    view_of,
    wrap,
)
from asyncgrad.errors import AutogradError
from asyncgrad.ops.api.shape import movedim
from asyncgrad.ops.batching import Level, batch_of, lift_batch, unwrap_batch, wrap_batch
from asyncgrad.ops.namespace import RECORDED
from asyncgrad.ops.promotion import category
from asyncgrad.types import Tensor

if TYPE_CHECKING:
    import weakref


class Transform:
    """A function under differentiation, and the tensors that it must not change in place."""

    __slots__ = ("_captured", "_outer", "leaves")

    def __init__(
        self, func: Callable[..., Any], args: tuple[Any, ...], outer: Transform | None
    ) -> None:
        """Find the tensors that the function refers to and that are not its arguments."""
        given = {id(x) for x in args}
        captured = [x for x in _captured(func) if id(x) not in given]
        captured += [view.base for x in captured if (view := view_of(x)) is not None]
        #: Keyed by id; the tensors are kept alive so that no id is reused.
        self._captured = {id(x): x for x in captured}
        self._outer = outer
        #: The new tensors that the function, and transforms within it, are differentiated by.
        self.leaves: list[weakref.ref[Tensor]] = []

    def add_leaves(self, leaves: Iterable[weakref.ref[Tensor]]) -> None:
        """Note leaves that lead nowhere outside of this transform and those around it."""
        self.leaves += leaves
        if self._outer is not None:
            self._outer.add_leaves(leaves)

    def check_change(self, tensor: Tensor, name: str) -> None:
        """Raise before an in-place change of a captured tensor: its gradient would be lost."""
        view = view_of(tensor)
        if id(tensor) in self._captured or (view is not None and id(view.base) in self._captured):
            raise AutogradError(
                f"During a grad (vjp, jvp, grad, etc) transform, the function provided attempted "
                f"to call in-place operation ({name}) that would mutate a captured Tensor. This "
                f"is not supported; please rewrite the function being transformed to explicitly "
                f"accept the mutated Tensor(s) as inputs."
            )
        if self._outer is not None:
            self._outer.check_change(tensor, name)


def _captured(func: Callable[..., Any]) -> Iterator[Variable]:
    """The tensors that a function refers to by closure, default or global name."""
    while isinstance(func, functools.partial):
        yield from filter(is_tensor, (*func.args, *func.keywords.values()))
        func = func.func
    code = getattr(func, "__code__", None)
    if code is None:
        return
    yield from filter(is_tensor, func.__defaults__ or ())
    names = func.__globals__
    yield from filter(is_tensor, [names.get(name) for name in code.co_names])
    for cell in func.__closure__ or ():
        try:
            value = cell.cell_contents
        except ValueError:
            # The closure's variable is not bound yet.
            continue
        if is_tensor(value):
            yield value


def exposed(x: Any, level: Level | None, *, hide: bool = False) -> Any:
    """Do what `unwrap_batch` does for a level, in each example of a `vmap` within it, too.

    To `hide` is the inverse.
    """
    if level is None or (inner := _levels_within(level)) is None:
        return x
    # The batches of inner levels are the first axes, or come behind those of the level.
    first = tuple(range(len(inner)))
    behind = tuple(_depth(level) + axis for axis in first)
    for each in reversed(inner):
        x = batch_of(x, each)
    if hide:
        x = wrap_batch(movedim(x, first, behind), level)
    else:
        x = movedim(unwrap_batch(x, level), behind, first)
    for each in inner:
        x = lift_batch(x, each)
    return x


def _levels_within(level: Level) -> list[Level] | None:
    """The levels here that are within another one, outermost first; None if it has ended."""
    found: list[Level] = []
    inner = current().batch
    while inner is not level:
        if inner is None:
            return None
        if not inner.tangents:
            found.insert(0, inner)
        inner = inner.outer
    return found


def _depth(level: Level | None) -> int:
    """The number of axes that the batches of a level and its outer ones take."""
    return 0 if level is None else _depth(level.outer) + (not level.tangents)


def differentiated(func: Callable[..., Any], args: tuple[Any, ...], **changes: object) -> Mode:
    """The mode in which a function under differentiation runs."""
    return Mode(transform=Transform(func, args, current().transform), **changes)


def argument(x: Tensor, level: Level | None) -> Any:
    """A new tensor for an argument, to differentiate by.

    A new one, because the function may also hold the argument as a constant. If the argument is
    part of a graph, or has a tangent, the new tensor is connected to it.
    """
    bottom = ordinary(unwrap_batch(x, level))
    if bottom.requires_grad or current().dual_level is not None:
        alias = RECORDED.reshape(bottom, bottom.shape)
        # A view that was made under `no_grad` requires grad, but leads nowhere.
        return as_leaf(alias) if alias._edge is None else alias
    return as_leaf(bottom.detach())


def ordinary(x: Tensor) -> Any:
    """The tensor; if it is an inference tensor, which can't be saved, an ordinary one like it."""
    return wrap(x._array, x._metadata) if is_inference(x) else x


def as_leaf(x: Tensor) -> Any:
    """Make a tensor a leaf that requires grad; `requires_grad_()` is refused in transforms."""
    if category(x._metadata.dtype) < 2:
        raise AutogradError(
            f"only Tensors of floating point dtype can require gradients, got "
            f"{x._metadata.dtype}. Convert the argument first, or leave it out of argnums."
        )
    autograd_meta(x).requires_grad = True
    return x


def cut_off(x: Tensor) -> Any:
    """A tensor that shares the values without the graph; tangents are kept."""
    if current().dual_level is None:
        return x.detach()
    with no_grad():
        return RECORDED.reshape(x, x.shape)


def leads_beyond(outputs: Iterable[Tensor], leaves: Iterable[weakref.ref[Tensor]]) -> bool:
    """Whether outputs depend on leaves other than these."""
    alive = [x for x in (reference() for reference in leaves) if x is not None]
    own = {gradient_edge(x) for x in alive if x._edge is None}
    pending = [gradient_edge(out) for out in outputs]
    seen: set[Any] = set()
    while pending:
        node = as_edge(pending.pop()).node
        if node is None or node in seen:
            continue
        if node.__class__ is AccumulateGrad and node not in own:
            return True
        seen.add(node)
        following = node.following
        pending += following if following.__class__ is tuple else (following,)
    return False


def is_tensor(x: object) -> bool:
    """Whether a leaf of a tree is a tensor."""
    return isinstance(x, Variable)
