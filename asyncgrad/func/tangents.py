"""`jvp` and `linearize`: tangents in forward mode."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from asyncgrad.autograd.forward_ad import make_dual, nested_level, unpack_dual
from asyncgrad.autograd.modes import enable_grad
from asyncgrad.core.modes import current
from asyncgrad.creation import zeros_like
from asyncgrad.errors import AutogradError
from asyncgrad.func import levels
from asyncgrad.func.gradients import check_tensors, outside_inference, pulled, split_aux, transform
from asyncgrad.ops.batching import Level, unwrap_batch, wrap_batch
from asyncgrad.ops.tensors.pytree import Structure, flatten, tree_map, unflatten
from asyncgrad.scheduler import call, run_multi_pass, waits
from asyncgrad.scheduler.results import Results
from asyncgrad.types import Tensor, Tree

__all__ = ["jvp", "linearize"]

_JVP = "jvp(f, primals, tangents)"


def jvp(
    func: Callable[..., Any], primals: tuple[Any, ...], tangents: tuple[Any, ...], *,
    strict: bool = False, has_aux: bool = False,
) -> Results[Any]:  # fmt: skip
    """Compute the value of a function and its directional derivative, in forward mode.

    Args:
        func: a function or coroutine function that returns a tensor or a tree of tensors.
        primals: a tuple of its arguments, tensors or trees of tensors.
        tangents: the direction, structured like the arguments.
        strict: raise where an output does not depend on the arguments, instead of giving zeros.
        has_aux: `func` returns a pair, and only its first part is differentiated.

    Returns:
        `(output, jvp_out)`, with `has_aux` `(output, jvp_out, aux)`; on a running loop, a future
        of it.

    Raises:
        RuntimeError: if the tangents do not fit the primals, the output holds anything but
            tensors, or `strict` and an output is independent of the arguments.

    Example:
        >>> x = ag.tensor(2.0)
        >>> ag.func.jvp(lambda x: x * x, (x,), (ag.tensor(1.0),))[1].item()
        4.0
    """
    program = _jvp(func, primals, tangents, strict, has_aux)
    return run_multi_pass(program, "jvp", waits=waits(func))  # type: ignore[no-any-return]


def linearize(func: Callable[..., Any], *primals: Tree) -> Results[Any]:
    """Compute the value of a function, and its linear approximation at the arguments.

    Args:
        func: a function or coroutine function that returns a tensor or a tree of tensors.
        primals: its arguments, tensors or trees of them.

    Returns:
        `(output, jvp_fn)`; on a running loop, a future of it. `jvp_fn` takes a tangent for each
        argument and gives the output's tangent, without calling `func` again.
    """
    program = _linearize(func, primals)
    return run_multi_pass(program, "linearize", waits=waits(func))  # type: ignore[no-any-return]


@outside_inference
async def _jvp(
    func: Callable[..., Any], primals: tuple[Any, ...], tangents: tuple[Any, ...], strict: bool,
    has_aux: bool,
) -> Any:  # fmt: skip
    if not isinstance(primals, tuple):
        raise AutogradError(
            f"{_JVP}: Expected primals to be a tuple. E.g. it should be valid to call f(*primals)."
        )
    given, structure = flatten(primals)
    directions, other = flatten(tangents)
    if other != structure:
        raise AutogradError(
            f"{_JVP}: Expected primals and tangents to have the same python structure. For "
            f"example, if primals is a tuple of 3 tensors, tangents also must be. Got primals "
            f"with structure {structure} and tangents with structure {other}"
        )
    for what, leaves in (("primals", given), ("tangents", directions)):
        if not leaves:
            raise AutogradError(f"{_JVP}: Expected {what} to contain at least one Tensor.")
        for leaf in leaves:
            if not levels.is_tensor(leaf):
                raise AutogradError(
                    f"{_JVP}: Expected {what} to only contain Tensors, got {type(leaf)}"
                )
    batch = current().batch
    vectors = [unwrap_batch(t, batch) for t in directions]
    with levels.differentiated(func, tuple(given)):
        out_structure, values, slopes, aux = await pushed(
            func, structure, given, vectors, strict, has_aux
        )
    slopes = [wrap_batch(slope, batch) for slope in slopes]
    result = unflatten(out_structure, values), unflatten(out_structure, slopes)
    return (*result, aux) if has_aux else result


async def pushed(
    func: Callable[..., Any], structure: Structure, given: Sequence[Tensor],
    vectors: Sequence[Tensor], strict: bool, has_aux: bool, recorded: bool = False,
) -> tuple[Any, Any, Any, Any]:  # fmt: skip
    """A function's outputs, their tangents (which hold all batches), and aux.

    Args:
        structure: the structure of the tuple of its arguments.
        vectors: their tangents, which hold all batches.
        recorded: record how tangents are computed, whatever the grad mode.
    """
    batch = current().batch
    with nested_level(recorded=recorded):
        duals = [
            wrap_batch(
                make_dual(levels.ordinary(unwrap_batch(x, batch)), levels.ordinary(vector)), batch
            )
            for x, vector in zip(given, vectors, strict=True)
        ]
        out = await call(func, *unflatten(structure, duals))
        out, aux = split_aux(out, has_aux, _JVP)
        outputs, out_structure = flatten(out)
        check_tensors(outputs, _JVP)
        values, slopes = zip(*[_parted(x, batch, strict) for x in outputs], strict=True)
        aux = tree_map(lambda x: _parted(x, batch, False)[0] if levels.is_tensor(x) else x, aux)
    return out_structure, values, slopes, aux


def _parted(x: Tensor, batch: Level | None, strict: bool) -> tuple[Any, Any]:
    """The value of an output, and its tangent, which holds all batches."""
    value, tangent = unpack_dual(unwrap_batch(x, batch))
    if tangent is None:
        if strict:
            raise AutogradError(
                "jvp(f, primals, tangents, strict=True): The output of f is independent of the "
                "inputs. This is not allowed with strict=True."
            )
        tangent = zeros_like(value)
    return wrap_batch(value, batch), tangent


@outside_inference
async def _linearize(func: Callable[..., Any], primals: tuple[Tree, ...]) -> Any:
    batch = current().batch
    given, structure = flatten(primals)
    for leaf in given:
        if not levels.is_tensor(leaf):
            raise ValueError(f"Thing passed to transform API must be Tensor, got {type(leaf)}")
    arguments = [unwrap_batch(x, batch) for x in given]
    leaves = [levels.as_leaf(zeros_like(x)) for x in arguments]
    around = current().transform
    with enable_grad():
        # The function may change its arguments in place; their tangents change with them.
        vectors = [leaf.clone() for leaf in leaves]
    with levels.differentiated(func, tuple(given)):
        out_structure, values, slopes, _ = await pushed(
            func, structure, given, vectors, strict=False, has_aux=False, recorded=True
        )
    with enable_grad():
        # A pass is linear in its starting gradients: its derivative by these is `jvp_fn`.
        dummies = [levels.as_leaf(zeros_like(slope)) for slope in slopes]
        transposed = await pulled(slopes, leaves, dummies, create_graph=True)
    own = list(map(weakref.ref, [*leaves, *dummies]))
    if around is not None:
        around.add_leaves(own)
    # Transforms inside the function may have left leaves of their own; ignore these.
    differentiable = any(x.requires_grad for x in (*given, *values))

    @outside_inference
    async def push(*tangents: Tree) -> Any:
        directions, other = flatten(tangents)
        if other != structure:
            raise AutogradError(
                f"linearize: Expected the tangents {other} to have the same argspec as the primals "
                f"{structure}"
            )
        vectors = [levels.exposed(t, batch) for t in directions]
        for place, (vector, x) in enumerate(zip(vectors, arguments, strict=True)):
            for what in ("shape", "dtype", "device"):
                if getattr(vector, what) != getattr(x, what):
                    raise AutogradError(
                        f"linearize: the tangent at index {place} in flattened pytree doesn't "
                        f"match the {what} of its primal: {getattr(vector, what)} and "
                        f"{getattr(x, what)}"
                    )
        recording = current().grad
        with enable_grad():
            beyond = recording and (
                (differentiable and levels.leads_beyond(transposed, own))
                or any(vector.requires_grad for vector in vectors)
            )
        found = await pulled(transposed, dummies, vectors, create_graph=beyond, retain_graph=True)
        return unflatten(out_structure, [levels.exposed(t, batch, hide=True) for t in found])

    return unflatten(out_structure, values), transform("jvp_fn", push, push)
