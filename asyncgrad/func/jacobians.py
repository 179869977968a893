"""`jacrev`, `jacfwd` and `hessian`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Concatenate, Literal, ParamSpec, overload

from asyncgrad.autograd.functional_parts import (
    blocks_of_columns,
    blocks_of_rows,
    unit_vectors,
)
from asyncgrad.autograd.signatures import OfTensor
from asyncgrad.choices import Randomness
from asyncgrad.core.modes import Mode, current
from asyncgrad.errors import AutogradError
from asyncgrad.func import gradients
from asyncgrad.func.levels import differentiated, is_tensor, leads_beyond
from asyncgrad.func.mapping import check_randomness
from asyncgrad.func.tangents import pushed
from asyncgrad.ops.api.shape import cat
from asyncgrad.ops.batching import Level, batch_of, lift_batch, unwrap_batch, wrap_batch
from asyncgrad.ops.tensors.pytree import Structure, flatten, tree_map, unflatten
from asyncgrad.scheduler import call
from asyncgrad.types import Tensor, Tree

_P = ParamSpec("_P")

__all__ = ["hessian", "jacfwd", "jacrev"]

_VJP = "vjp(f, *primals)"


# -- the public functions -------------------------------------------------------------------------


@overload
def jacrev(
    func: Callable[Concatenate[Tensor, _P], Tensor], argnums: Literal[0] = 0, *,
    has_aux: Literal[False] = False, chunk_size: int | None = None,
    _preallocate_and_copy: bool = False,
) -> OfTensor[_P, Tensor]: ...  # fmt: skip
@overload
def jacrev(
    func: Callable[_P, Any], argnums: int | tuple[int, ...] = 0, *, has_aux: bool = False,
    chunk_size: int | None = None, _preallocate_and_copy: bool = False,
) -> Callable[_P, Any]: ...  # fmt: skip
def jacrev(
    func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, *, has_aux: bool = False,
    chunk_size: int | None = None, _preallocate_and_copy: bool = False,
) -> Callable[..., Any]:  # fmt: skip
    """Make a function that computes a Jacobian, all rows in one reverse pass.

    Args:
        func: a function or coroutine function that returns a tensor or a tree of tensors.
        argnums: the positional arguments to differentiate by, tensors or trees of tensors.
        has_aux: `func` returns a pair, and only its first part is differentiated.
        chunk_size: the number of rows to compute at once; None for all.

    Returns:
        A function of the same arguments. In place of each output it gives the tree of the
        arguments (a tuple of trees for a tuple of `argnums`). Its tensors have the output's shape
        followed by the argument's. With `has_aux` it gives a pair of this and the second part. On
        a running loop it returns a future.

    Example:
        >>> ag.func.jacrev(lambda x: x * x)(ag.tensor([1.0, 2.0])).tolist()
        [[2.0, 0.0], [0.0, 4.0]]
    """
    if not (chunk_size is None or chunk_size > 0):
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")

    program = partial(_jacrev, func, argnums, has_aux, chunk_size)
    return gradients.transform("jacrev", program, func)


@overload
def jacfwd(
    func: Callable[Concatenate[Tensor, _P], Tensor], argnums: Literal[0] = 0,
    has_aux: Literal[False] = False, *, chunk_size: int | None = None,
    randomness: Randomness = "error",
) -> OfTensor[_P, Tensor]: ...  # fmt: skip
@overload
def jacfwd(
    func: Callable[_P, Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False, *,
    chunk_size: int | None = None, randomness: Randomness = "error",
) -> Callable[_P, Any]: ...  # fmt: skip
def jacfwd(
    func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False, *,
    chunk_size: int | None = None, randomness: Randomness = "error",
) -> Callable[..., Any]:  # fmt: skip
    """Make a function that computes `jacrev`'s Jacobian, all columns at once in forward mode.

    Args:
        chunk_size: the number of columns to compute at once; None for all.
        randomness: how random numbers in `func` behave, as in `vmap`. The other arguments are
            those of `jacrev`.
    """
    if not (chunk_size is None or chunk_size > 0):
        raise ValueError("jacfwd: `chunk_size` should be greater than 0.")
    check_randomness(randomness)

    program = partial(_jacfwd, func, argnums, has_aux, chunk_size, randomness)
    return gradients.transform("jacfwd", program, func)


@overload
def hessian(
    func: Callable[Concatenate[Tensor, _P], object], argnums: Literal[0] = 0
) -> OfTensor[_P, Tensor]: ...
@overload
def hessian(func: Callable[_P, Any], argnums: int | tuple[int, ...] = 0) -> Callable[_P, Any]: ...
def hessian(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    """Make a function that computes a Hessian: `jacfwd` of `jacrev`.

    Example:
        >>> ag.func.hessian(lambda x: (x**3).sum())(ag.tensor([1.0, 2.0])).tolist()
        [[6.0, 0.0], [0.0, 12.0]]
    """
    columns: Any = jacfwd(jacrev(func, argnums), argnums)
    return gradients.transform("hessian", columns._program, func)


# -- the programs ---------------------------------------------------------------------------------


@gradients.outside_inference
async def _jacrev(
    func: Callable[..., Any], argnums: int | tuple[int, ...], has_aux: bool, chunk_size: int | None,
    /, *args: Any, **kwargs: Any,
) -> Any:  # fmt: skip
    batch, wanted = current().batch, current().grad
    places = gradients.wrapped_argnums(argnums, len(args))
    with differentiated(func, args, grad=True):
        structure, arguments, given = gradients.renewed(args, places, batch)
        leaves = current().transform.leaves
        _check_real(arguments, "jacrev", "inputs")
        out = await call(func, *given, **kwargs)
        out, aux = gradients.split_aux(out, has_aux, _VJP)
        outputs, out_structure = flatten(out)
        gradients.check_differentiable(outputs, _VJP)
        _check_real(outputs, "jacrev", "outputs")
        roots = [unwrap_batch(x, batch) for x in outputs]
    beyond = wanted and leads_beyond([root for root in roots if root.requires_grad], leaves)
    total = sum(x.numel() for x in outputs)
    parts = []
    step = total if chunk_size is None else chunk_size
    for start in range(0, total, max(step, 1)):
        count = min(step, total - start)
        vectors = unit_vectors(outputs, roots, start, count)
        if chunk_size == 1:
            # A single row needs no batch, and so works with any backward.
            vectors = [vector[0] for vector in vectors]
        rows = await gradients.pulled(
            roots,
            arguments,
            vectors,
            create_graph=beyond,
            retain_graph=True,
            batched=chunk_size != 1,
        )
        parts.append([row.unsqueeze(0) for row in rows] if chunk_size == 1 else rows)
    depth = roots[0].ndim - outputs[0].ndim
    columns: list[Any] = [cat(chunks, 0) for chunks in zip(*parts, strict=True)]
    columns = columns or [None] * len(arguments)
    blocks = blocks_of_rows(columns, outputs, arguments, depth)
    several = isinstance(argnums, tuple)
    result = _tree_of_blocks(blocks, out_structure, structure, several, batch)
    return (result, gradients.outward(aux, leaves, batch, wanted)) if has_aux else result


def _check_real(tensors: Sequence[Tensor], name: str, what: str) -> None:
    """Raise if a tensor is complex: the Jacobian would lack half of the derivatives."""
    for x in tensors:
        if x._metadata.is_complex:
            raise AutogradError(
                f"{name}: Expected all {what} to be real but received complex tensor(s). Take the "
                f"real and imaginary parts apart, or use vjp or jvp."
            )


def _tree_of_blocks(
    blocks: Sequence[Sequence[Any]], out_structure: Structure, structure: Structure, several: bool,
    batch: Level | None,
) -> Any:  # fmt: skip
    trees = []
    for row in blocks:
        tree = unflatten(structure, [wrap_batch(block, batch) for block in row])
        trees.append(tree if several else tree[0])
    return unflatten(out_structure, trees)


@gradients.outside_inference
async def _jacfwd(
    func: Callable[..., Any], argnums: int | tuple[int, ...] | None, has_aux: bool,
    chunk_size: int | None, randomness: Randomness, /, *args: Any, **kwargs: Any,
) -> Any:  # fmt: skip
    if argnums is None:
        argnums = tuple(range(len(args)))
    places = gradients.wrapped_argnums(argnums, len(args))
    leaves, structure = flatten(tuple(args[place] for place in places))
    gradients.check_tensors(leaves, "jacfwd(f)(*args)")
    _check_real(leaves, "jacfwd", "inputs")
    total = sum(x.numel() for x in leaves)
    outer = current().batch
    roots = [unwrap_batch(x, outer) for x in leaves]
    depth = roots[0].ndim - leaves[0].ndim
    own = tuple(flatten(args)[0])
    # The value is the same in all columns, unless each column draws its own random numbers.
    alike = randomness != "different"
    parts: list[Any] = []
    out_structure: Any = None
    aux: Any = None

    async def chosen(*chosen_args: Tree) -> Any:
        given = list(args)
        for place, arg in zip(places, chosen_args, strict=True):
            given[place] = arg
        return await call(func, *given, **kwargs)

    step = total if chunk_size is None else chunk_size
    for start in range(0, max(total, 1), max(step, 1)):
        count = min(step, total - start)
        level = Level(count, randomness, outer, tangents=alike)
        if alike:
            units = unit_vectors(leaves, roots, start, count)
            # The function may change its arguments in place, and then changes these vectors, too.
            units = [lift_batch(v.clone() if depth else v, level) for v in units]
        else:
            units = [unwrap_batch(v, outer) for v in unit_vectors(leaves, leaves, start, count)]
        with Mode(batch=level), differentiated(func, own):
            out_structure, _, slopes, aux = await pushed(
                chosen, structure, leaves, units, False, has_aux
            )
        _check_real(slopes, "jacfwd", "outputs")
        if alike:
            slopes = [batch_of(slope, level).movedim(0, depth) for slope in slopes]
        else:
            aux = tree_map(partial(_first, level=level), aux)
        parts.append([wrap_batch(slope, outer) for slope in slopes])
    columns = [cat(chunks, 0) for chunks in zip(*parts, strict=True)]
    blocks = [blocks_of_columns(column, leaves) for column in columns]
    result = _tree_of_blocks(blocks, out_structure, structure, isinstance(argnums, tuple), None)
    return (result, aux) if has_aux else result


def _first(x: Any, level: Level) -> Any:
    """The first example of a value that is the same for all examples."""
    return x._value[0] if is_tensor(x) and x._batched and x._level is level else x
