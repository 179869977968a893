"""`backward` and `grad`: check the arguments, start a pass, and give its results to the caller."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar, overload

from asyncgrad.aliases import Value
from asyncgrad.autograd.arguments import (
    ONES,
    batches_of,
    differentiable_edge,
    implicit_gradient,
    inputs_of,
    sequence_of,
)
from asyncgrad.autograd.edges import GradientEdge, Root
from asyncgrad.autograd.new_pass import is_set, new_pass, pass_along_chain, start_pass
from asyncgrad.choices import Wait, words
from asyncgrad.core.frames import warn
from asyncgrad.core.graph_task import GraphTask
from asyncgrad.core.history import retain_grad
from asyncgrad.core.metadata import Metadata
from asyncgrad.core.modes import Mode, current
from asyncgrad.core.node import metadata_at
from asyncgrad.core.variable import (
    AccumulateGrad,
    Variable,
    autograd_meta,
    grad_dtype,
    gradient_edge,
    wrap,
    zeros_of,
)
from asyncgrad.errors import AutogradError
from asyncgrad.ops.batching import batch_of, level_of, unwrap_batch, wrap_batch
from asyncgrad.ops.namespace import RECORDED
from asyncgrad.ops.promotion import cast
from asyncgrad.scheduler import BackwardFuture, run_multi_pass
from asyncgrad.scheduler.results import ResultDict, Results
from asyncgrad.types import Tensor

_K = TypeVar("_K")


def backward(
    tensors: Root | Sequence[Root], grad_tensors: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None, create_graph: bool = False,
    grad_variables: Tensor | Sequence[Tensor | None] | None = None,
    inputs: Root | Sequence[Root] | dict[Any, Tensor] | None = None, *, priority: int | None = None,
    deadline: float | None = None, wait: Wait = "done",
) -> BackwardFuture[None]:  # fmt: skip
    """Accumulate the gradients of some tensors into the leaves from which they were computed.

    Args:
        tensors: the roots: tensors or gradient edges.
        grad_tensors: the gradient of each root, of its shape; None for roots of one element.
        retain_graph: keep saved values for another pass; the default is `create_graph`.
        create_graph: record the pass, so that its gradients can be differentiated.
        grad_variables: an old name of `grad_tensors`.
        inputs: accumulate only into these tensors, which need not be leaves: a tensor, a gradient
            edge, several, or a dictionary of tensors.
        priority: larger is more urgent; the default is `request()`'s, or 0.
        deadline: the loop time at which the pass is given up; the default is `request()`'s. For a
            pass that a hook or node starts, the parent's deadline is the latest.
        wait: for devices with streams. With "done" the pass ends when the devices have done its
            work; with "enqueued", once the caller's streams wait for that work. Errors on a
            device then show at the next synchronisation, and `.grad` may have changed.

    Returns:
        A `BackwardFuture` on a running loop. Without a loop, the pass has ended when this returns.

    Raises:
        RuntimeError: if a root requires no grad or its gradient does not fit; from the future,
            for errors on a device.
        TimeoutError: from the future, if the deadline has passed.
    """
    if grad_variables is not None:
        warn("`grad_variables` is deprecated. Use `grad_tensors` instead.", FutureWarning)
        if grad_tensors is not None:
            raise AutogradError(
                "`grad_tensors` and `grad_variables` (deprecated) arguments both passed to "
                "`backward()`. Please only use `grad_tensors`."
            )
        grad_tensors = grad_variables
    roots = sequence_of(tensors)
    return backward_from(
        roots, grad_tensors, retain_graph, create_graph, inputs, priority, deadline, wait
    )


def backward_from(
    roots: tuple[Any, ...], grad_tensors: Value, retain_graph: bool | None, create_graph: bool,
    inputs: Value, priority: int | None, deadline: float | None, wait: Wait,
) -> BackwardFuture[None]:  # fmt: skip
    """`backward`, with the roots as a tuple."""
    if wait != "done" and wait not in words(Wait):
        raise ValueError(f"backward(): wait must be 'done' or 'enqueued', not {wait!r}")
    wanted: tuple[Any, ...] = ()
    edges = None
    if inputs is not None:
        wanted = inputs_of(inputs, "backward")
        edges = [differentiable_edge(tensor) for tensor in wanted]
    elif create_graph is False and priority is None and deadline is None and len(roots) == 1:
        done = pass_along_chain(roots[0], grad_tensors, retain_graph)
        if done is not None:
            return done  # type: ignore[no-any-return]
    task = new_pass(roots, grad_tensors, retain_graph, create_graph, edges, False)
    task.wait_enqueued = wait != "done"
    for tensor in wanted:
        if isinstance(tensor, Variable):
            retain_grad(tensor)
    return start_pass(task, priority, deadline)  # type: ignore[no-any-return]


@overload
def grad(
    outputs: Root | Sequence[Root], inputs: Root | Sequence[Root],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None, retain_graph: bool | None = None,
    create_graph: bool = False, only_inputs: bool = True,
    allow_unused: Literal[False] | None = None, is_grads_batched: bool = False,
    materialize_grads: bool = False, *, priority: int | None = None, deadline: float | None = None,
) -> Results[Tensor]: ...  # fmt: skip
@overload
def grad(
    outputs: Root | Sequence[Root], inputs: Root | Sequence[Root],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None, retain_graph: bool | None = None,
    create_graph: bool = False, only_inputs: bool = True, *, allow_unused: bool,
    is_grads_batched: bool = False, materialize_grads: bool = False, priority: int | None = None,
    deadline: float | None = None,
) -> Results[Tensor | None]: ...  # fmt: skip
@overload
def grad(
    outputs: Root | Sequence[Root], inputs: dict[_K, Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None, retain_graph: bool | None = None,
    create_graph: bool = False, only_inputs: bool = True,
    allow_unused: Literal[False] | None = None, is_grads_batched: bool = False,
    materialize_grads: bool = False, *, priority: int | None = None, deadline: float | None = None,
) -> ResultDict[_K, Tensor]: ...  # fmt: skip
@overload
def grad(
    outputs: Root | Sequence[Root], inputs: dict[_K, Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None, retain_graph: bool | None = None,
    create_graph: bool = False, only_inputs: bool = True, *, allow_unused: Literal[True],
    is_grads_batched: bool = False, materialize_grads: bool = False, priority: int | None = None,
    deadline: float | None = None,
) -> ResultDict[_K, Tensor | None]: ...  # fmt: skip
def grad(
    outputs: Root | Sequence[Root], inputs: Root | Sequence[Root] | dict[Any, Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None, retain_graph: bool | None = None,
    create_graph: bool = False, only_inputs: bool = True, allow_unused: bool | None = None,
    is_grads_batched: bool = False, materialize_grads: bool = False, *, priority: int | None = None,
    deadline: float | None = None,
) -> Any:  # fmt: skip
    """Compute the gradients of some tensors by others, without touching any `.grad`.

    Args:
        outputs: the tensors to differentiate, or their gradient edges.
        inputs: differentiate by these: a tensor, an edge, several, or a dictionary of tensors.
        grad_outputs: the gradient of each output, of its shape; None for outputs of one element.
        retain_graph, create_graph, priority, deadline: as for `backward`.
        only_inputs: ignored, for PyTorch's programs; `backward()` accumulates into leaves.
        allow_unused: give None for inputs that the outputs do not depend on, instead of raising.
        is_grads_batched: the first axis of each gradient in `grad_outputs` is a batch, and so is
            that of each result. One pass does the work of one pass for each gradient of the batch.
        materialize_grads: like `allow_unused`, with zeros instead of None.

    Returns:
        A `BackwardFuture` of a tuple with one gradient for each input, or of a dictionary with the
        keys of `inputs`; without a running loop, the tuple or dictionary itself.

    Raises:
        RuntimeError: as `backward`; from the future also if an input is not part of the graph.
        TimeoutError: from the future, if the deadline has passed.
    """
    if allow_unused is not None:
        allow_unused = is_set(allow_unused)
    if materialize_grads and is_set(materialize_grads) and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: "
            "allow_unused=False."
        )
    if not only_inputs:
        warn(
            "only_inputs argument is deprecated and is ignored now (defaults to True). To "
            "accumulate gradient for other parts of the graph, please use backward.",
            FutureWarning,
        )
    roots = sequence_of(outputs)
    tensors = inputs_of(inputs, "grad")
    keys = tuple(inputs) if type(inputs) is dict else None
    modes = current()
    around = None if modes.batch is None else level_of((*roots, *tensors))
    if around is not None:
        program = _grad_of_examples(
            roots, tensors, keys, grad_outputs, retain_graph=retain_graph,
            create_graph=create_graph, allow_unused=allow_unused,
            is_grads_batched=is_grads_batched, materialize_grads=materialize_grads,
        )  # fmt: skip
        return run_multi_pass(program, "grad", waits=False)
    # The pass may end in other modes.
    recorder = modes.recorder
    edges, metadata = [], []
    # A loop instead of two comprehensions, each of which would be a function call.
    for tensor in tensors:
        if isinstance(tensor, Variable):
            edges.append(gradient_edge(tensor) or differentiable_edge(tensor))
            metadata.append(tensor._metadata)
        else:
            edges.append(differentiable_edge(tensor))
            metadata.append(metadata_at(tensor.node, tensor.output_nr))

    def collect(task: GraphTask, within: Callable[..., Any]) -> Any:
        results: list[Any] = []
        captured: Any
        # `strict=True` takes longer, and the three have the same length.
        for captured, facts, edge in zip(task.captured, metadata, edges):  # noqa: B905
            leads_to_leaf = edge.__class__ is AccumulateGrad
            if (
                captured.__class__ is facts.F.array_type
                and captured.dtype is facts.dtype
                and given is None
                and not (facts.size == 1 and captured is ONES.get(facts))
                and not (leads_to_leaf and edge.variable._autograd.grad_dtype is not None)
            ):
                # The usual case: the rest would take a tenth of a small pass.
                results.append(wrap(captured, facts))
                continue
            if captured is None:
                if materialize_grads:
                    captured = _zeros(tensors[len(results)], facts, create_graph, within)
                    if recorder is not None:
                        recorder.constant(captured._array)
                elif not allow_unused:
                    raise AutogradError(
                        f"The differentiated Tensor at index {len(results)} appears to not have "
                        f"been used in the graph. Set allow_unused=True if this is the desired "
                        f"behavior."
                    )
            elif not isinstance(captured, Variable):
                captured = _as_tensor(captured, facts, given)
            elif level is not None:
                captured = batch_of(captured, level)
            if captured is not None:
                # A leaf may ask for another dtype; None means any.
                dtype = grad_dtype(edge.variable) if leads_to_leaf else facts.dtype
                if dtype is not None and captured._metadata.dtype != dtype:
                    captured = within(cast, captured, dtype)
            results.append(captured)
        return tuple(results) if keys is None else dict(zip(keys, results, strict=True))

    given = None if grad_outputs is None else sequence_of(grad_outputs)
    level = None
    if is_grads_batched:
        gradients, level = batches_of(roots, grad_outputs)
        with Mode(batch=level):
            task = new_pass(roots, gradients, retain_graph, create_graph, edges, True)
    else:
        task = new_pass(roots, grad_outputs, retain_graph, create_graph, edges, True)
    task.collect = collect
    return start_pass(task, priority, deadline)


def _zeros(
    requested: Value, metadata: Metadata, create_graph: bool, within: Callable[..., Any]
) -> Any:
    """Zeros, for an input on which the outputs do not depend."""
    if isinstance(requested, GradientEdge):
        raise AutogradError(
            "materialize_grads cannot be used when the given input is a GradientEdge. Pass the "
            "tensor itself."
        )
    zeros = within(zeros_of, metadata)
    if create_graph:
        autograd_meta(zeros).requires_grad = True
    return zeros


def _as_tensor(array: Value, facts: Metadata, given: tuple[Any, ...] | None) -> Any:
    """The tensor in `grad_outputs` whose array was captured, or a new tensor."""
    for gradient in given or ():
        if isinstance(gradient, Variable) and gradient._array is array:
            return gradient
    F = facts.F
    if facts.size == 1 and array is ONES.get(facts):
        array = F.clone(array)
    if array.__class__ is F.array_type and array.dtype == facts.dtype:
        return wrap(array, facts)
    array = F.as_array(array)
    return wrap(array, F.metadata_of(array))


async def _grad_of_examples(
    roots: tuple[Any, ...], tensors: tuple[Any, ...], keys: Value, given: Value, **flags: Any
) -> Any:
    """`grad` inside of a `vmap`: it runs on the tensors that hold the batches."""
    level = current().batch
    vectors = [None] * len(roots) if given is None else sequence_of(given)
    bottoms = [unwrap_batch(root, level) for root in roots]
    gradients = []
    for place, (root, vector) in enumerate(zip(roots, vectors, strict=True)):
        if vector is None and root._metadata.size != 1:
            implicit_gradient(root._metadata)
        ones = RECORDED.add_scalar(RECORDED.zero(bottoms[place]), 1)
        gradients.append(ones if vector is None else unwrap_batch(vector, level))
    found = await grad(bottoms, [unwrap_batch(x, level) for x in tensors], gradients, **flags)
    results = [None if gradient is None else wrap_batch(gradient, level) for gradient in found]
    return tuple(results) if keys is None else dict(zip(keys, results, strict=True))
