"""`vmap`: run a function of one example once for a whole batch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from asyncgrad.choices import Randomness, words
from asyncgrad.core.modes import Mode, current
from asyncgrad.func.gradients import transform
from asyncgrad.func.levels import is_tensor
from asyncgrad.ops.api.shape import cat, movedim, narrow
from asyncgrad.ops.batching import Level, batch_of, lift_batch
from asyncgrad.ops.tensors.pytree import Structure, flatten, spread, unflatten
from asyncgrad.scheduler import call, waits
from asyncgrad.types import Dims, Tensor, Tree

_P = ParamSpec("_P")
_R = TypeVar("_R")

__all__ = ["debug_unwrap", "vmap"]


def check_randomness(randomness: Randomness) -> None:
    """Raise unless `randomness` is "error", "different" or "same"."""
    if randomness not in words(Randomness):
        raise RuntimeError(
            f"Only allowed values for randomness are 'error', 'different', or 'same'. Got "
            f"{randomness}"
        )


def vmap(
    func: Callable[_P, _R], in_dims: Dims = 0, out_dims: Dims = 0, randomness: Randomness = "error",
    *, chunk_size: int | None = None,
) -> Callable[_P, _R]:  # fmt: skip
    """Make a function that maps a function over an axis of its arguments, in one call.

    The function sees one example, and its operations compute all examples at once. It can't read
    values (`item()`, `if`), because they differ between examples.

    Args:
        func: a function or coroutine function that returns a tensor or a tree of tensors.
        in_dims: the axis to map over in each positional argument, None for none: a single value
            for all, or a tree like the arguments, whose leaves may stand for subtrees. Keyword
            arguments are not mapped over.
        out_dims: the position of the batch axis in each output.
        randomness: "error" refuses random numbers, "different" draws them for each example,
            "same" draws once for all examples.
        chunk_size: the number of examples to compute at once; None for all.

    Returns:
        A function of the same arguments. On a running loop it returns a future if `func` is a
        coroutine function or a transform.

    Raises:
        RuntimeError: for another `randomness`, or if the function reads values.

    Example:
        >>> dot = ag.func.vmap(lambda x, y: (x * y).sum(), in_dims=(0, None))
        >>> dot(ag.ones(3, 2), ag.tensor([1.0, 2.0])).tolist()
        [3.0, 3.0, 3.0]
    """
    check_randomness(randomness)
    if not (chunk_size is None or chunk_size > 0):
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")
    name = _name_of(func)
    _check_out_dims(out_dims, name)

    async def program(*args: object, **kwargs: object) -> Any:
        leaves, structure, dims, size = _mapped(name, in_dims, args)
        step = size if chunk_size is None else chunk_size
        chunks = []
        for start in range(0, max(size, 1), max(step, 1)):
            count = min(step, size - start)
            level = Level(count, randomness, current().batch)
            given = [
                leaf if dim is None else lift_batch(_part(leaf, dim, start, count), level)
                for leaf, dim in zip(leaves, dims, strict=True)
            ]
            with Mode(batch=level):
                out = await call(func, *unflatten(structure, given), **kwargs)
            chunks.append(_unmapped(name, out, out_dims, level))
        return _joined(chunks)

    return transform("vmap", program, func, waits(func) or hasattr(func, "_program"))


def debug_unwrap(tensor: Any, *, recurse: bool = True) -> Any:
    """The tensor that holds the batch of an example, for debugging inside of `vmap`.

    Args:
        tensor: the example; any other tensor is returned unchanged.
        recurse: go through all levels of `vmap` instead of one.

    Returns:
        The tensor with the level's batch as its first axis. Use it for debugging only: with it, a
        function can treat examples differently.
    """
    while getattr(tensor, "_batched", False):
        tensor = tensor._value
        if not recurse:
            break
    return tensor


def _part(x: Tensor, dim: int, start: int, count: int) -> Any:
    """Some examples, with their axis in front; the tensor itself if that is all of it."""
    x = x if count == x.shape[dim] else narrow(x, dim, start, count)
    return movedim(x, dim, 0) if dim else x


def _mapped(
    name: str, in_dims: Tree, args: tuple[Any, ...]
) -> tuple[list[Any], Structure, list[Any], int]:
    """The leaves of the arguments, their structure and batch axes, and the number of examples."""
    where = f"vmap({name}, in_dims={in_dims}, ...)(<inputs>)"
    if not isinstance(in_dims, (int, tuple)):
        raise ValueError(
            f"{where}: expected `in_dims` to be int or a (potentially nested) tuple matching the "
            f"structure of inputs, got: {type(in_dims)}."
        )
    if not args:
        raise ValueError(
            f"vmap({name})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are "
            f"trying to vmap over a function with no inputs. The latter is unsupported."
        )
    leaves, structure = flatten(args)
    dims = spread(in_dims, structure)
    if dims is None:
        raise ValueError(
            f"{where}: in_dims is not compatible with the structure of `inputs`: the inputs have "
            f"structure {structure}."
        )
    sizes = []
    for i, (leaf, dim) in enumerate(zip(leaves, dims, strict=True)):
        if dim is None:
            continue
        if not isinstance(dim, int):
            raise ValueError(
                f"{where}: Got in_dim={dim} for an input but in_dim must be either an integer "
                f"dimension or None."
            )
        if not is_tensor(leaf):
            raise ValueError(
                f"{where}: Got in_dim={dim} for an input but the input is of type {type(leaf)}. "
                f"We cannot vmap over non-Tensor arguments, please use None as the respective "
                f"in_dim"
            )
        ndim = leaf.ndim
        if not -ndim <= dim < ndim:
            raise ValueError(
                f"{where}: Got in_dim={dim} for some input, but that input is a Tensor of "
                f"dimensionality {ndim} so expected in_dim to satisfy -{ndim} <= in_dim < {ndim}."
            )
        dims[i] = dim % ndim
        sizes.append(leaf.shape[dim])
    if not sizes:
        raise ValueError("vmap: Expected at least one Tensor to vmap over")
    if len({*sizes}) > 1:
        raise ValueError(
            f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
            f"{sizes} for the mapped dimension"
        )
    return leaves, structure, dims, sizes[0]


def _unmapped(name: str, out: Tree, out_dims: Tree, level: Level) -> Any:
    """The outputs with the batch axis moved to its place: leaves, axes and structure."""
    leaves, structure = flatten(out)
    if is_tensor(out) and isinstance(out_dims, tuple) and len(out_dims) == 1:
        out_dims = out_dims[0]
    dims = spread(out_dims, structure)
    if dims is None:
        raise ValueError(
            f"vmap({name}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible with "
            f"the structure of `outputs`: the outputs have structure {structure}."
        )
    found = []
    for leaf, dim in zip(leaves, dims, strict=True):
        own = is_tensor(leaf) and leaf._batched and leaf._level is level
        if dim is None:
            if own:
                raise ValueError(
                    f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is "
                    f"None"
                )
            found.append(leaf)
            continue
        if not is_tensor(leaf):
            raise ValueError(
                f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(leaf)}. "
                f"Did you mean to set out_dims= to None for output?"
            )
        value = batch_of(leaf, level)
        found.append(movedim(value, 0, dim) if dim else value)
    return found, dims, structure


def _joined(chunks: list[Any]) -> Any:
    first, dims, structure = chunks[0]
    if len(chunks) == 1:
        return unflatten(structure, first)
    outputs = zip(*[leaves for leaves, _, _ in chunks], strict=True)
    joined = [
        parts[0] if dim is None else cat(parts, dim)
        for dim, parts in zip(dims, outputs, strict=True)
    ]
    return unflatten(structure, joined)


def _check_out_dims(out_dims: Tree, name: str) -> None:
    for dim in flatten(out_dims)[0]:
        if not (dim is None or isinstance(dim, int)):
            raise ValueError(
                f"vmap({name}, ..., out_dims={out_dims}): `out_dims` must be an int, None or a "
                f"python collection of ints representing where in the outputs the vmapped "
                f"dimension should appear."
            )


def _name_of(func: Callable[..., Any]) -> str:
    if isinstance(func, functools.partial):
        return f"functools.partial({_name_of(func.func)}, ...)"
    return str(getattr(func, "__name__", None) or repr(func))
