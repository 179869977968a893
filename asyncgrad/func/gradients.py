"""`grad`, `grad_and_value` and `vjp`: transforms that use reverse mode."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from asyncgrad.autograd.arguments import implicit_gradient
from asyncgrad.autograd.functional_parts import grad_where_required
from asyncgrad.autograd.modes import enable_grad
from asyncgrad.autograd.signatures import gradient, gradient_and_value
from asyncgrad.core.modes import Mode, current
from asyncgrad.creation import ones_like, zeros_like
from asyncgrad.errors import AutogradError
from asyncgrad.func import levels
from asyncgrad.ops.batching import Level, unwrap_batch, wrap_batch
from asyncgrad.ops.promotion import category
from asyncgrad.ops.tensors.pytree import flatten, tree_map, unflatten
from asyncgrad.scheduler import awaitable, call, run_multi_pass, waits
from asyncgrad.scheduler.results import Results
from asyncgrad.types import Tensor, Tree

__all__ = ["grad", "grad_and_value", "vjp"]

#: Derivatives are taken with inference mode off: its tensors could not be part of a graph.
outside_inference = Mode(inference=False)


def transform(
    name: str, program: Callable[..., Any], func: Callable[..., Any], multi_pass: bool = True
) -> Callable[..., Any]:
    """A function whose calls run a program.

    On a running loop it returns a future, unless the program has neither passes nor a coroutine
    function to await: then `multi_pass` is False, and a call behaves like any other operation.
    """
    waiting = waits(func)

    @functools.wraps(func, assigned=("__module__", "__name__", "__qualname__", "__doc__"))
    def transformed(*args: object, **kwargs: object) -> Any:
        if multi_pass:
            return run_multi_pass(program(*args, **kwargs), name, waits=waiting)
        with Mode(blocking=True):
            return awaitable(run_multi_pass(program(*args, **kwargs), name, waits=False))

    transformed._program = program  # type: ignore[attr-defined]
    transformed._waits = waiting  # type: ignore[attr-defined]
    transformed._multi_pass = multi_pass  # type: ignore[attr-defined]
    return transformed


# -- the public functions -------------------------------------------------------------------------


@gradient
def grad(
    func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Make a function that computes the gradient of a function with one output element.

    Args:
        func: a function or coroutine function that returns a tensor without axes.
        argnums: the positional arguments to differentiate by, tensors or trees of tensors.
        has_aux: `func` returns a pair, and only its first part is differentiated.

    Returns:
        A function of the same arguments. It gives the gradients by the argument, or a tuple of
        them for a tuple of `argnums`; with `has_aux`, a pair of these and the second part. On a
        running loop it returns a future.

    Raises:
        RuntimeError: from the function, if `argnums` does not fit or the output has axes.

    Example:
        >>> square = lambda x: x * x
        >>> ag.func.grad(ag.func.grad(square))(ag.tensor(3.0)).item()
        2.0
    """

    return transform("grad", partial(_grad, func, argnums, has_aux, False), func)


@gradient_and_value
def grad_and_value(
    func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """`grad`, with the value: pairs `(gradients, value)`, or `(gradients, (value, aux))`."""

    return transform("grad_and_value", partial(_grad, func, argnums, has_aux, True), func)


def vjp(func: Callable[..., Any], *primals: Tree, has_aux: bool = False) -> Results[Any]:
    """Compute the value of a function, and the function that multiplies its Jacobian from the left.

    Args:
        func: a function or coroutine function that returns a tensor or a tree of tensors.
        primals: its arguments, tensors or trees of them.
        has_aux: `func` returns a pair, and only its first part is differentiated.

    Returns:
        `(output, vjp_fn)`, with `has_aux` `(output, vjp_fn, aux)`; on a running loop, a future of
        it. `vjp_fn` takes cotangents shaped like the output and gives a tuple with a gradient for
        each argument; it may be called several times.

    Example:
        >>> y, pull = ag.func.vjp(lambda x: x.sin(), ag.tensor(0.0))
        >>> pull(ag.tensor(2.0))[0].item()
        2.0
    """
    found: Results[Any] = run_multi_pass(_vjp(func, primals, has_aux), "vjp", waits=waits(func))
    return found


# -- the programs ---------------------------------------------------------------------------------


@outside_inference
async def _grad(
    func: Callable[..., Any], argnums: int | tuple[int, ...], has_aux: bool, valued: bool, /,
    *args: Any, **kwargs: Any,
) -> Any:  # fmt: skip
    """The gradients, with the value if it is `valued`, and aux."""
    level, wanted = current().batch, current().grad
    places = wrapped_argnums(argnums, len(args))
    with levels.differentiated(func, args, grad=True):
        structure, arguments, given = renewed(args, places, level)
        leaves = current().transform.leaves
        out = await call(func, *given, **kwargs)
        out, aux = split_aux(out, has_aux, "grad_and_value(f)(*args)")
        _check_scalar(out)
        root = unwrap_batch(out, level)
    beyond = wanted and levels.leads_beyond([root], leaves)
    found = await pulled([root], arguments, [ones_like(root)], create_graph=beyond)
    trees = unflatten(structure, [wrap_batch(gradient, level) for gradient in found])
    gradients = trees if isinstance(argnums, tuple) else trees[0]
    value = out if beyond else levels.cut_off(out)
    aux = outward(aux, leaves, level, wanted)
    if valued:
        return gradients, ((value, aux) if has_aux else value)
    return (gradients, aux) if has_aux else gradients


@outside_inference
async def _vjp(func: Callable[..., Any], primals: tuple[Any, ...], has_aux: bool) -> Any:
    level, wanted = current().batch, current().grad
    with levels.differentiated(func, primals, grad=True):
        structure, arguments, given = renewed(primals, range(len(primals)), level)
        leaves = current().transform.leaves
        out = await call(func, *given)
        out, aux = split_aux(out, has_aux, "vjp(f, *primals)")
        outputs, out_structure = flatten(out)
        check_differentiable(outputs, "vjp(f, *primals)")
        roots = [unwrap_batch(tensor, level) for tensor in outputs]

    @outside_inference
    async def pull(
        cotangents: Tree, retain_graph: bool = True, create_graph: bool | None = None
    ) -> Any:
        given, given_structure = flatten(cotangents)
        if given_structure != out_structure:
            raise AutogradError(
                f"Expected pytree structure of cotangents to be the same as pytree structure of "
                f"outputs to the function. cotangents: {given_structure}, primal output: "
                f"{out_structure}"
            )
        for place, (vector, root) in enumerate(zip(given, outputs, strict=True)):
            if vector is None:
                if root.requires_grad:
                    implicit_gradient(root._metadata)
                given[place] = ones_like(root)
            elif not levels.is_tensor(vector):
                raise TypeError(
                    f"vjp_fn: gradients can be either Tensors or None, but got "
                    f"{type(vector).__name__}. Pass one Tensor for each output."
                )
        # The cotangents may belong to a `vmap` around this call but not around the function's.
        vectors = [levels.exposed(vector, level) for vector in given]
        beyond, recording = create_graph, current().grad
        if beyond is None:
            with enable_grad():
                beyond = recording and (
                    levels.leads_beyond(roots, leaves) or any(v.requires_grad for v in vectors)
                )
        found = await pulled(roots, arguments, vectors, create_graph=beyond, retain_graph=True)
        return unflatten(structure, [levels.exposed(x, level, hide=True) for x in found])

    value = outward(out, leaves, level, wanted)
    pull_back = transform("vjp_fn", pull, pull)
    if has_aux:
        return value, pull_back, outward(aux, leaves, level, wanted)
    return value, pull_back


# -- steps of a program ---------------------------------------------------------------------------


def renewed(args: tuple[Any, ...], places: Iterable[int], level: Level | None) -> Any:
    """Replace the differentiated arguments by new tensors.

    Returns:
        The structure of the tuple of differentiated arguments, the new tensors (which hold the
        batches of all levels), and all arguments.
    """
    leaves, structure = flatten(tuple(args[place] for place in places))
    for leaf in leaves:
        if not levels.is_tensor(leaf):
            raise ValueError(f"Thing passed to transform API must be Tensor, got {type(leaf)}")
    arguments = [levels.argument(leaf, level) for leaf in leaves]
    current().transform.add_leaves(list(map(weakref.ref, arguments)))
    trees = unflatten(structure, [wrap_batch(x, level) for x in arguments])
    given = list(args)
    for place, tree in zip(places, trees, strict=True):
        given[place] = tree
    return structure, arguments, given


async def pulled(
    roots: Sequence[Tensor], arguments: list[Tensor], vectors: list[Tensor], *, create_graph: bool,
    retain_graph: bool | None = None, batched: bool = False,
) -> Any:  # fmt: skip
    """The gradients of some tensors by others; zeros where there is no dependence."""
    found = await grad_where_required(
        roots, arguments, vectors, create_graph, retain_graph, batched
    )

    def zeros(x: Tensor) -> Tensor:
        return zeros_like(x).expand(vectors[0].shape[0], *x.shape) if batched else zeros_like(x)

    return [
        zeros(x) if gradient is None else gradient
        for x, gradient in zip(arguments, found, strict=True)
    ]


def outward(
    tree: Tree, leaves: list[weakref.ref[Tensor]], level: Level | None, wanted: bool
) -> Any:
    """The function's output, detached where it depends on nothing but a transform's leaves."""

    def leaf(x: Any) -> Any:
        if not levels.is_tensor(x) or not x.requires_grad:
            return x
        beyond = wanted and levels.leads_beyond([unwrap_batch(x, level)], leaves)
        return x if beyond else levels.cut_off(x)

    return tree_map(leaf, tree)


def split_aux(out: Any, has_aux: bool, name: str) -> tuple[Any, Any]:
    """Split a function's return value into output and aux; raises if it is no pair."""
    if not has_aux:
        return out, None
    if not (isinstance(out, tuple) and len(out) == 2):
        raise AutogradError(
            f"{name}: output of function f should be a tuple: (output, aux) if has_aux is True"
        )
    for leaf in flatten(out[1])[0]:
        if not levels.is_tensor(leaf):
            raise AutogradError(
                f"{name}: Expected tensors, got unsupported type {type(leaf)} in the second part "
                f"of the output, which has_aux=True hands on"
            )
    return out


def wrapped_argnums(argnums: object, count: int) -> tuple[int, ...]:
    """The argument indices, counted from the front; raises for a wrong or repeated index."""
    if not isinstance(argnums, (int, tuple)):
        raise AutogradError(f"argnums must be int or Tuple[int, ...], got: {type(argnums)}")
    several = argnums if isinstance(argnums, tuple) else (argnums,)
    if not several:
        raise AutogradError("argnums must be non-empty")
    for place in several:
        if not isinstance(place, int):
            raise AutogradError(f"argnum must be int, got: {type(place)}")
        if not -count <= place < count:
            raise AutogradError(f"Got argnum={place}, but only {count} positional inputs")
    places = tuple(place % count for place in several)
    if len({*places}) < len(places):
        raise AutogradError(f"argnums elements must be unique, got {argnums}")
    return places


def check_tensors(outputs: Sequence[object], name: str) -> None:
    """Raise unless the outputs are tensors, at least one."""
    if not outputs or (len(outputs) == 1 and outputs[0] is None):
        raise AutogradError(
            f"{name}: Expected f to be a function that has non-empty output (got output = "
            f"{outputs})"
        )
    for out in outputs:
        if not levels.is_tensor(out):
            raise AutogradError(
                f"{name}: expected f(*primals) to return only tensors, got unsupported type "
                f"{type(out)}"
            )


def check_differentiable(outputs: Sequence[Any], name: str) -> None:
    """Raise unless the outputs are floating or complex tensors, at least one."""
    check_tensors(outputs, name)
    for out in outputs:
        if category(out._metadata.dtype) < 2:
            raise AutogradError(
                f"vjp(f, ...): All outputs of f must be floating-point or complex Tensors, got "
                f"Tensor with dtype {out._metadata.dtype}"
            )


def _check_scalar(out: Any) -> None:
    name = "grad_and_value(f)(*args)"
    if not levels.is_tensor(out):
        raise AutogradError(f"{name}: Expected f(*args) to return a single tensor, got {type(out)}")
    if out.ndim:
        raise AutogradError(
            f"{name}: Expected f(*args) to return a scalar tensor, got tensor with {out.ndim} "
            f"dims. Maybe you wanted to use the vjp or jacrev APIs instead?"
        )
    if out._metadata.is_complex:
        raise AutogradError(
            f"{name}: grad can be implicitly created only for real scalar outputs but got "
            f"{out.dtype}. Take its real part or its absolute value, or use vjp."
        )
