"""`backward` and `grad`: check everything, make a graph task, start it."""

from __future__ import annotations

from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from asyncgrad.core.graph_task import GraphTask
from asyncgrad.core.modes import Mode, current
from asyncgrad.core.variable import Variable, gradient_edge, retain_grad, wrap
from asyncgrad.errors import AutogradError
from asyncgrad.ops.namespace import RECORDED
from asyncgrad.scheduler import start

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncgrad.tensor import Tensor


def backward(
    tensors: Tensor | Sequence[Tensor],
    grad_tensors: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Tensor | Sequence[Tensor] | None = None,
    *,
    priority: int | None = None,
    deadline: float | None = None,
) -> Any:
    """Accumulate the gradients of some tensors into the leaves they were computed from.

    Args:
        tensors: the roots.
        grad_tensors: the gradient of each root, of its shape; None for roots of one element.
        retain_graph: keep saved values for another pass; the default is `create_graph`.
        create_graph: record the pass, so that its gradients can be differentiated.
        inputs: accumulate into these tensors only.
        priority: larger is more urgent; the default is `request()`'s, or 0.
        deadline: the loop's time at which the pass gives up; the default is `request()`'s.

    Returns:
        A `BackwardFuture` on a running loop; elsewhere the pass has ended.

    Raises:
        RuntimeError: if a root needs no gradient or its gradient does not fit.
        TimeoutError: from the future, if the deadline has passed.
    """
    roots = _sequence(tensors)
    if inputs is None:
        task = _graph_task(roots, grad_tensors, retain_graph, create_graph, None, grad=False)
        return _start(task, priority, deadline)
    wanted = _sequence(inputs)
    edges = _inputs(wanted)
    task = _graph_task(roots, grad_tensors, retain_graph, create_graph, edges, grad=False)
    for tensor in wanted:
        retain_grad(tensor)
    return _start(task, priority, deadline)


def _start(task: GraphTask, priority: int | None, deadline: float | None) -> Any:
    """Start a pass with its own urgency, its surroundings', or its parent's."""
    request = current().request
    if request is not None:
        task.priority, task.deadline = request
    parent = task.parent
    if parent is not None and parent.priority > task.priority:
        task.priority = parent.priority
    if priority is not None:
        task.priority = priority
    if deadline is not None:
        task.deadline = deadline
    return start(task)


class request(Mode):
    """Urgency for all passes started within.

    Args:
        priority: larger is more urgent.
        deadline: the loop's time at which they give up.
    """

    def __init__(self, *, priority: int = 0, deadline: float | None = None) -> None:
        """Note the urgency; it holds from `__enter__` on."""
        super().__init__(request=(priority, deadline))


def _sequence(value: Any) -> tuple[Any, ...]:
    return (value,) if isinstance(value, Variable) else tuple(value)


def _inputs(inputs: tuple[Any, ...]) -> list[Any]:
    """The edges of the tensors that `backward(inputs=)` accumulates into."""
    if not inputs:
        raise AutogradError("'inputs' argument to backward() cannot be empty.")
    return [_differentiable_edge(tensor) for tensor in inputs]


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool | None = None,
    materialize_grads: bool = False,
    *,
    priority: int | None = None,
    deadline: float | None = None,
) -> Any:
    """The gradients of some tensors by others, without touching any `.grad`.

    Args:
        outputs: what is differentiated.
        inputs: by what.
        grad_outputs: the gradient of each output, of its shape; None for outputs of one element.
        retain_graph: keep saved values for another pass; the default is `create_graph`.
        create_graph: record the pass, so that its gradients can be differentiated.
        allow_unused: give None for inputs that the outputs do not depend on, instead of raising.
        materialize_grads: give zeros for them.
        priority: larger is more urgent; the default is `request()`'s, or 0.
        deadline: the loop's time at which the pass gives up; the default is `request()`'s.

    Returns:
        A `BackwardFuture` of a tuple with one gradient for each input; where no loop runs, the
        tuple itself.

    Raises:
        RuntimeError: if an output or input needs no gradient, or a gradient does not fit.
        ValueError: if `materialize_grads` comes with `allow_unused=False`.
    """
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: "
            "allow_unused=False."
        )
    roots = _sequence(outputs)
    tensors = _sequence(inputs)
    if not tensors:
        raise ValueError("grad requires non-empty inputs.")
    edges = [_differentiable_edge(tensor) for tensor in tensors]
    metadata = [tensor._metadata for tensor in tensors]

    def collect(task: GraphTask) -> Any:
        results: list[Any] = []
        captured: Any
        for captured, facts in zip(task.captured, metadata, strict=True):
            if captured is None:
                if materialize_grads:
                    array = facts.F.xp.zeros(facts.shape, dtype=facts.dtype)
                    captured = wrap(array, facts)
                elif not allow_unused:
                    raise AutogradError(
                        f"The differentiated Tensor at index {len(results)} appears to not have "
                        f"been used in the graph. Set allow_unused=True if this is the desired "
                        f"behavior."
                    )
            elif captured.__class__ is facts.F.array_type and captured.dtype == facts.dtype:
                if facts in _ones and captured is _ones[facts]:
                    captured = captured.copy()
                captured = wrap(captured, facts)
            elif not isinstance(captured, Variable):
                array = facts.F.as_array(captured)
                captured = wrap(array, facts.F.metadata_of(array))
            results.append(captured)
        return tuple(results)

    task = _graph_task(roots, grad_outputs, retain_graph, create_graph, edges, grad=True)
    task.collect = collect
    return _start(task, priority, deadline)


def _differentiable_edge(tensor: Any) -> Any:
    """Where the gradient of a requested tensor is caught, as a stored edge."""
    if not isinstance(tensor, Variable):
        raise TypeError(f"inputs must be Tensors, not {type(tensor).__name__}")
    edge = gradient_edge(tensor)
    if edge is None:
        raise AutogradError(
            "One of the differentiated Tensors does not require grad. Call requires_grad_() on it "
            "before the forward pass."
        )
    return edge


def _graph_task(
    roots: tuple[Any, ...],
    given: Any,
    retain_graph: bool | None,
    create_graph: bool,
    inputs: list[Any] | None,
    *,
    grad: bool,
) -> GraphTask:
    """The pass from some roots, whose gradients are checked."""
    if given is None:
        given = (None,) * len(roots)
    else:
        given = _sequence(given)
        if len(given) != len(roots):
            raise AutogradError(f"got {len(roots)} tensors and {len(given)} gradients")
    edges = []
    gradients = []
    owned = True
    for place, root in enumerate(roots):
        if not isinstance(root, Variable):
            raise TypeError(
                f"element {place} of tensors must be a Tensor, not {type(root).__name__}"
            )
        edge = gradient_edge(root)
        if edge is None:
            raise AutogradError(
                f"element {place} of tensors does not require grad and does not have a grad_fn. "
                f"Call requires_grad_() on a leaf it is computed from, outside of no_grad()."
            )
        gradient = given[place]
        if gradient is None:
            owned = False
            metadata = root._metadata
            array = _ones.get(metadata)
            if array is None:
                array = _ones[metadata] = _one(metadata)
            gradients.append(wrap(array, metadata) if create_graph else array)
        else:
            owned = False
            _check_gradient(place, root, gradient)
            gradients.append(gradient if create_graph else gradient._array)
        edges.append(edge)
    modes = current()
    task = GraphTask(
        edges,
        gradients,
        owned=owned,
        keep_graph=create_graph if retain_graph is None else retain_graph,
        create_graph=create_graph,
        inputs=inputs,
        accumulate=not grad,
        recorded=RECORDED if create_graph else None,
        context=copy_context(),
        parent=modes.graph_task,
    )
    if modes.observer is not None or modes.anomaly:
        task.observer = modes.observer
        task.careful = True
    return task


#: The gradient of a scalar by itself is nobody's own: one for each kind of scalar, read-only.
_ones: dict[Any, Any] = {}


def _one(metadata: Any) -> Any:
    """The gradient of a real scalar by itself."""
    if metadata.size != 1:
        raise AutogradError(
            f"grad can be implicitly created only for scalar outputs, this one has shape "
            f"{metadata.shape}. Reduce it with .sum() or .mean(), or pass its gradient."
        )
    if metadata.is_complex:
        raise AutogradError(
            f"grad can be implicitly created only for real scalar outputs but got "
            f"{metadata.dtype}. Pass its gradient."
        )
    array = metadata.F.xp.ones(metadata.shape, dtype=metadata.dtype)
    array.flags.writeable = False
    return array


def _check_gradient(place: int, root: Any, gradient: Any) -> None:
    """Raise unless a gradient fits its root."""
    if not isinstance(gradient, Variable):
        raise TypeError(
            f"gradients can be either Tensors or None, but got {type(gradient).__name__}"
        )
    if gradient._metadata is root._metadata:
        return
    shape, expected = gradient._metadata.shape, root._metadata.shape
    if shape != expected:
        raise AutogradError(
            f"Mismatch in shape: grad_output[{place}] has a shape of {shape} and "
            f"output[{place}] has a shape of {expected}."
        )
    if gradient._metadata.is_complex != root._metadata.is_complex:
        raise AutogradError(
            f"For complex Tensors, both grad_output and output are required to have the same "
            f"dtype. Mismatch in dtype: grad_output[{place}] has a dtype of "
            f"{gradient._metadata.dtype} and output[{place}] has a dtype of "
            f"{root._metadata.dtype}."
        )
