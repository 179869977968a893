"""`backward` and `grad`: check the arguments, make a graph task and start it."""

from __future__ import annotations

import warnings
from contextvars import copy_context
from operator import index
from typing import TYPE_CHECKING, Any, TypeVar, overload

from asyncgrad.autograd.arguments import (
    ONES,
    batches_of,
    by_old_name,
    differentiable_edge,
    fitting,
    inputs_of,
    one_of,
    sequence_of,
    wrong_number,
)
from asyncgrad.autograd.edges import GradientEdge, metadata_at, stored
from asyncgrad.autograd.request import checked_deadline, checked_priority
from asyncgrad.core.graph_task import GraphTask
from asyncgrad.core.history import retain_grad
from asyncgrad.core.modes import DEFAULT, Mode, current, refuse_in_transform
from asyncgrad.core.pass_state import running_pass
from asyncgrad.core.variable import (
    AccumulateGrad,
    Variable,
    autograd_meta,
    grad_dtype,
    gradient_edge,
    wrap,
    zeros_of,
)
from asyncgrad.errors import AutogradError, NestingError
from asyncgrad.ops.batching import batch_of, level_of, unwrap_batch, wrap_batch
from asyncgrad.ops.namespace import RECORDED
from asyncgrad.ops.promotion import cast
from asyncgrad.scheduler import check_deadline, run_multi_pass, start

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Literal

    from asyncgrad.aliases import DType, Namespace, Value
    from asyncgrad.autograd.edges import Root
    from asyncgrad.core.metadata import Metadata
    from asyncgrad.scheduler import BackwardFuture
    from asyncgrad.scheduler.results import ResultDict, Results
    from asyncgrad.tensor import Tensor

_K = TypeVar("_K")


def backward(
    tensors: Root | Sequence[Root],
    grad_tensors: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Tensor | Sequence[Tensor | None] | None = None,
    inputs: Root | Sequence[Root] | dict[Any, Tensor] | None = None,
    *,
    priority: int | None = None,
    deadline: float | None = None,
    wait: str = "done",
) -> BackwardFuture[None]:
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
        ValueError: if the deadline is NaN.
        TimeoutError: from the future, if the deadline has passed.
    """
    if grad_variables is not None:
        grad_tensors = by_old_name(grad_tensors, grad_variables)
    roots = sequence_of(tensors)
    return backward_from(
        roots, grad_tensors, retain_graph, create_graph, inputs, priority, deadline, wait
    )


def backward_from(
    roots: tuple[Any, ...],
    grad_tensors: Value,
    retain_graph: bool | None,
    create_graph: bool,
    inputs: Value,
    priority: int | None,
    deadline: float | None,
    wait: str,
) -> BackwardFuture[None]:
    """`backward`, with the roots as a tuple."""
    enqueued = wait != "done" and _is_enqueued(wait)
    if inputs is None:
        task = _graph_task(roots, grad_tensors, retain_graph, create_graph, None, False)
        task.wait_enqueued = enqueued
        return _start(task, priority, deadline)  # type: ignore[no-any-return]
    wanted = inputs_of(inputs, "backward")
    edges = [differentiable_edge(tensor) for tensor in wanted]
    task = _graph_task(roots, grad_tensors, retain_graph, create_graph, edges, False)
    task.wait_enqueued = enqueued
    for tensor in wanted:
        if isinstance(tensor, Variable):
            retain_grad(tensor)
    return _start(task, priority, deadline)  # type: ignore[no-any-return]


def _is_enqueued(wait: str) -> bool:
    """Whether a pass ends when its work is enqueued; raises for an unknown `wait`."""
    if wait not in {"done", "enqueued"}:
        raise ValueError(f"backward(): wait must be 'done' or 'enqueued', not {wait!r}")
    return wait == "enqueued"


def _start(task: GraphTask, priority: int | None, deadline: float | None) -> Any:
    """Start a pass, with priority and deadline of the call, the context or the parent pass."""
    modes = current()
    if modes is DEFAULT and priority is None and deadline is None:
        return start(task)
    parent = task.parent
    if parent is not None and task.depth > modes.nesting_limit:
        raise NestingError(modes.nesting_limit)
    if priority is not None:
        task.priority = checked_priority(priority)
    elif parent is None:
        task.priority = modes.priority
    else:
        task.priority = max(parent.priority, modes.priority)
    deadline = modes.deadline if deadline is None else checked_deadline(deadline)
    if parent is not None and parent.deadline is not None:
        # The parent waits for this pass, so its deadline holds for both.
        deadline = parent.deadline if deadline is None else min(deadline, parent.deadline)
    if deadline is not None:
        task.deadline = deadline
        check_deadline(task)
    if modes.recorder is not None:
        modes.recorder.begin(task)
    return start(task)


def start_pass(task: GraphTask) -> Any:
    """Start a pass with the priority and deadline of the context."""
    return _start(task, None, None)


@overload
def grad(
    outputs: Root | Sequence[Root],
    inputs: Root | Sequence[Root],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: Literal[False] | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
    *,
    priority: int | None = None,
    deadline: float | None = None,
) -> Results[Tensor]: ...
@overload
def grad(
    outputs: Root | Sequence[Root],
    inputs: Root | Sequence[Root],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    *,
    allow_unused: bool,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
    priority: int | None = None,
    deadline: float | None = None,
) -> Results[Tensor | None]: ...
@overload
def grad(
    outputs: Root | Sequence[Root],
    inputs: dict[_K, Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: Literal[False] | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
    *,
    priority: int | None = None,
    deadline: float | None = None,
) -> ResultDict[_K, Tensor]: ...
@overload
def grad(
    outputs: Root | Sequence[Root],
    inputs: dict[_K, Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    *,
    allow_unused: Literal[True],
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
    priority: int | None = None,
    deadline: float | None = None,
) -> ResultDict[_K, Tensor | None]: ...
def grad(
    outputs: Root | Sequence[Root],
    inputs: Root | Sequence[Root] | dict[Any, Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
    *,
    priority: int | None = None,
    deadline: float | None = None,
) -> Any:
    """Compute the gradients of some tensors by others, without touching any `.grad`.

    Args:
        outputs: the tensors to differentiate, or their gradient edges.
        inputs: differentiate by these: a tensor, an edge, several, or a dictionary of tensors.
        grad_outputs: the gradient of each output, of its shape; None for outputs of one element.
        retain_graph: keep saved values for another pass; the default is `create_graph`.
        create_graph: record the pass, so that its gradients can be differentiated.
        only_inputs: ignored, for PyTorch's programs; `backward()` accumulates into leaves.
        allow_unused: give None for inputs that the outputs do not depend on, instead of raising.
        is_grads_batched: the first axis of each gradient in `grad_outputs` is a batch, and so is
            that of each result. One pass does the work of one pass for each gradient of the batch.
        materialize_grads: like `allow_unused`, with zeros instead of None.
        priority: larger is more urgent; the default is `request()`'s, or 0.
        deadline: the loop time at which the pass is given up; the default is `request()`'s. For a
            pass that a hook or node starts, the parent's deadline is the latest.

    Returns:
        A `BackwardFuture` of a tuple with one gradient for each input, or of a dictionary with the
        keys of `inputs`; without a running loop, the tuple or dictionary itself.

    Raises:
        RuntimeError: if an output or input requires no grad, or a gradient does not fit; from the
            future, if an input is not part of the graph, or for errors on a device.
        ValueError: if `materialize_grads` comes with `allow_unused=False`, or the deadline is NaN.
        TimeoutError: from the future, if the deadline has passed.
    """
    if allow_unused is not None:
        allow_unused = _is_set(allow_unused)
    if materialize_grads and _is_set(materialize_grads) and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: "
            "allow_unused=False."
        )
    if not only_inputs:
        warnings.warn(
            "only_inputs argument is deprecated and is ignored now (defaults to True). To "
            "accumulate gradient for other parts of the graph, please use backward.",
            FutureWarning,
            stacklevel=2,
        )
    roots = sequence_of(outputs)
    tensors = inputs_of(inputs, "grad")
    keys = tuple(inputs) if type(inputs) is dict else None
    around = None if current().batch is None else level_of((*roots, *tensors))
    if around is not None:
        flags = (retain_graph, create_graph, allow_unused, is_grads_batched, materialize_grads)
        program = _grad_of_examples(roots, tensors, keys, grad_outputs, flags)
        return run_multi_pass(program, waits=False)
    edges, metadata = [], []
    # A loop instead of two comprehensions, each of which would be a function call.
    for tensor in tensors:
        if isinstance(tensor, Variable):
            edges.append(gradient_edge(tensor) or differentiable_edge(tensor))
            metadata.append(tensor._metadata)
        else:
            edges.append(differentiable_edge(tensor))
            metadata.append(metadata_at(tensor))

    def collect(task: GraphTask, within: Callable[..., Any]) -> Any:
        results: list[Any] = []
        captured: Any
        for captured, facts, edge in zip(task.captured, metadata, edges):  # noqa: B905  quicker
            leads_to_leaf = edge.__class__ is AccumulateGrad
            if captured.__class__ is facts.F.array_type and (
                captured.dtype is facts.dtype or captured.dtype == facts.dtype
            ):
                if given is not None:
                    captured = _given(given, captured, facts)
                elif facts.size == 1 and captured is ONES.get(facts):
                    captured = wrap(captured.copy(), facts)  # type: ignore[union-attr]
                else:
                    captured = wrap(captured, facts)
                if not leads_to_leaf or edge.variable._autograd.grad_dtype is None:
                    # The usual case: no cast to another dtype is needed.
                    results.append(captured)
                    continue
            used = captured is not None
            if not used:
                if materialize_grads:
                    captured = _zeros(tensors[len(results)], facts, create_graph, within)
                elif not allow_unused:
                    raise _not_used(len(results))
            elif not isinstance(captured, Variable):
                array = facts.F.as_array(captured)
                captured = wrap(array, facts.F.metadata_of(array))
            if captured is not None:
                dtype = grad_dtype(edge.variable) if leads_to_leaf else facts.dtype
                captured = _in_dtype(captured, dtype, within)
            if used and level is not None:
                captured = batch_of(captured, level)
            results.append(captured)
        return tuple(results) if keys is None else dict(zip(keys, results, strict=True))

    given = None if grad_outputs is None else sequence_of(grad_outputs)
    level = None
    if is_grads_batched:
        gradients, level = batches_of(roots, grad_outputs)
        with Mode(batch=level):
            task = _graph_task(roots, gradients, retain_graph, create_graph, edges, True)
    else:
        task = _graph_task(roots, grad_outputs, retain_graph, create_graph, edges, True)
    task.collect = collect
    return _start(task, priority, deadline)


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


def _not_used(place: int) -> AutogradError:
    return AutogradError(
        f"The differentiated Tensor at index {place} appears to not have been used in the graph. "
        f"Set allow_unused=True if this is the desired behavior."
    )


def _given(given: tuple[Any, ...], captured: Value, facts: Value) -> Any:
    """The tensor in `grad_outputs` whose array was captured, or a new tensor."""
    for gradient in given:
        if isinstance(gradient, Variable) and gradient._array is captured:
            return gradient
    return wrap(captured, facts)


async def _grad_of_examples(
    roots: tuple[Any, ...], tensors: tuple[Any, ...], keys: Value, given: Value, flags: Any
) -> Any:
    """`grad` inside of a `vmap`: it runs on the tensors that hold the batches."""
    level = current().batch
    vectors = [None] * len(roots) if given is None else sequence_of(given)
    bottoms = [unwrap_batch(root, level) for root in roots]
    gradients = []
    for place, (root, vector) in enumerate(zip(roots, vectors, strict=True)):
        if vector is None and root._metadata.size != 1:
            one_of(root._metadata)
        ones = RECORDED.add_scalar(RECORDED.zeros_of(bottoms[place]), 1)
        gradients.append(ones if vector is None else unwrap_batch(vector, level))
    retain_graph, create_graph, allow_unused, batched, materialize = flags
    found = await grad(
        bottoms,
        [unwrap_batch(x, level) for x in tensors],
        gradients,
        retain_graph,
        create_graph,
        allow_unused=allow_unused,
        is_grads_batched=batched,
        materialize_grads=materialize,
    )
    results = [None if gradient is None else wrap_batch(gradient, level) for gradient in found]
    return tuple(results) if keys is None else dict(zip(keys, results, strict=True))


def _in_dtype(captured: Value, dtype: DType, within: Callable[..., Any]) -> Any:
    """A leaf's gradient, cast to the dtype that the leaf asks for; None means any."""
    if dtype is None or captured._metadata.dtype == dtype:
        return captured
    return within(cast, captured, dtype)


def _graph_task(
    roots: tuple[Any, ...],
    given: Value,
    retain_graph: bool | None,
    create_graph: bool,
    inputs: list[Any] | None,
    grad: bool,
    recorded: Namespace = None,
) -> GraphTask:
    """Check the roots and their gradients, and make the pass.

    Arguments are passed by position here and below: keywords would cost a tenth of a small pass.
    """
    if given is not None:
        given = sequence_of(given)
        if len(given) != len(roots):
            raise wrong_number(roots, given)
    edges: list[Any] = []
    gradients = []
    streamed = False
    modes = current()
    if modes is not DEFAULT:
        if not grad and (modes.transform is not None or modes.batch is not None):
            refuse_in_transform("backward()")
        if modes.dual_level is not None:
            # Here gradients have tangents, and only recorded functions compute tangents.
            recorded = RECORDED
    if create_graph and _is_set(create_graph):
        recorded = RECORDED
    for root in roots:
        # Quicker than `enumerate` for a single root, the usual case.
        place = len(edges)
        if isinstance(root, Variable):
            edge = root._edge or gradient_edge(root)
            metadata = root._metadata
        elif isinstance(root, GradientEdge):
            edge = stored(root)
            metadata = metadata_at(root)
        else:
            raise TypeError(
                f"element {place} of tensors must be a Tensor or a GradientEdge, not "
                f"{type(root).__name__}"
            )
        gradient = None if given is None else given[place]
        if gradient is not None:
            gradient = fitting(place, metadata, gradient)
        if edge is None:
            raise AutogradError(
                f"element {place} of tensors does not require grad and does not have a grad_fn. "
                f"Call requires_grad_() on a leaf it is computed from, outside of no_grad()."
            )
        if gradient is None:
            array = ONES.get(metadata)
            if array is None:
                array = one_of(metadata)
                streamed = streamed or metadata.device.streamed
            gradients.append(array if recorded is None else wrap(array, metadata))
        else:
            if recorded is None:
                if gradient._batched:
                    # Only recorded functions support batched gradients.
                    flags = (retain_graph, create_graph, inputs, grad)
                    return _graph_task(roots, given, *flags, RECORDED)
                gradient = gradient._array
            gradients.append(gradient)
            streamed = streamed or metadata.device.streamed
        edges.append(edge)
    if create_graph and not grad:
        _warn_of_cycle()
    keep_graph = create_graph if retain_graph is None else _is_set(retain_graph)
    parent = modes.graph_task
    if parent is not None:
        # An asyncio task that a hook started may outlive the hook's pass.
        parent = running_pass(parent)
    task = GraphTask(
        edges, gradients, keep_graph, create_graph, inputs, not grad, recorded, copy_context(),
        parent,
    )  # fmt: skip
    if modes is not DEFAULT and (modes.observer is not None or modes.anomaly):
        task.observer = modes.observer
        task.careful = True
    if streamed:
        task.enter_streams().begin(task)
    return task


def _is_set(flag: Any) -> bool:
    """A flag as a bool; PyTorch also accepts integers."""
    return flag if flag.__class__ is bool else index(flag) != 0


#: Not empty once the warning about `backward(create_graph=True)` has been shown.
_warned: list[bool] = []


def _warn_of_cycle() -> None:
    """Warn once that `create_graph=True` makes a reference cycle of a leaf and its gradient."""
    if not _warned:
        _warned.append(True)
        warnings.warn(
            "Using backward() with create_graph=True will create a reference cycle between the "
            "parameter and its gradient which can cause a memory leak. We recommend using "
            "autograd.grad when creating the graph to avoid this. If you have to use this "
            "function, make sure to reset the .grad fields of your parameters to None after use "
            "to break the cycle and avoid the leak.",
            UserWarning,
            stacklevel=5,
        )
