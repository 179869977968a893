"""Check the arguments of a pass: its roots, their gradients and its inputs."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping
from typing import Any

from asyncgrad.aliases import Gradient, Value
from asyncgrad.autograd.edges import GradientEdge, stored
from asyncgrad.core.metadata import Metadata
from asyncgrad.core.modes import current
from asyncgrad.core.node import Identity, metadata_at
from asyncgrad.core.recording import note_result, recorders
from asyncgrad.core.size import Size
from asyncgrad.core.variable import Variable, gradient_edge, requires_grad
from asyncgrad.errors import AutogradError, class_of
from asyncgrad.ops.batching import Level, lift_batch
from asyncgrad.ops.promotion import cast


def sequence_of(value: Value) -> tuple[Any, ...]:
    """A tuple of the tensors and gradient edges given, which may be one or a sequence."""
    if isinstance(value, (Variable, GradientEdge)):
        return (value,)
    if isinstance(value, (list, tuple)):
        return tuple(value)
    if not isinstance(value, Iterable) or isinstance(value, Awaitable):
        raise TypeError(
            f"backward() and grad() take a Tensor, a GradientEdge or a sequence of them as roots, "
            f"gradients and inputs, not {class_of(value)}"
        )
    return tuple(value)


def inputs_of(inputs: Value, function: str) -> tuple[Any, ...]:
    """A tuple of the inputs requested of a pass, from one, a sequence or a dictionary."""
    # Almost always a list; the check against the abstract class Mapping is slow.
    if not isinstance(inputs, (list, Variable)) and isinstance(inputs, Mapping):
        if type(inputs) is not dict:
            raise TypeError(
                f"`inputs` argument to `{function}()` must be a dict, not "
                f"{class_of(inputs)}. Other mappings are not supported."
            )
        inputs = inputs.values()
    wanted = sequence_of(inputs)
    if not wanted:
        raise AutogradError(f"`inputs` argument to `{function}()` cannot be empty.")
    return wanted


def differentiable_edge(tensor: Value) -> Any:
    """The stored edge over which the gradient of a requested tensor comes."""
    if isinstance(tensor, Variable):
        edge = gradient_edge(tensor)
        if edge is not None:
            return edge
        if requires_grad(tensor):
            # A view, made within no_grad, of a tensor that requires grad: it has no graph.
            return Identity((), (tensor._metadata,))
        raise AutogradError(
            "One of the differentiated Tensors does not require grad. Call requires_grad_() on it "
            "before the forward pass."
        )
    if isinstance(tensor, GradientEdge):
        return stored(tensor)
    raise AutogradError(
        f"all inputs have to be Tensors or GradientEdges, but got {class_of(tensor)}"
    )


#: The gradients of scalars by themselves, shared: one read-only array for each kind of scalar.
ONES: dict[Any, Any] = {}


def implicit_gradient(metadata: Metadata) -> Any:
    """The default gradient of a root: one, if the root is a real scalar."""
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
    ones = metadata.F.xp.ones
    array = ones(metadata.shape, metadata.dtype)
    if not metadata.device.streamed:
        array.flags.writeable = False
        ONES[metadata] = array
    elif recorders:
        note_result(array, ones, metadata.shape, metadata.dtype)
    return array


def wrong_number(roots: tuple[Any, ...], given: tuple[Any, ...]) -> Exception:
    """The error for a number of gradients that differs from the number of roots."""
    for gradient in given:
        if gradient is not None and not isinstance(gradient, Variable):
            return _no_gradient(gradient)
    return AutogradError(
        f"got {len(roots)} tensors and {len(given)} gradients. Give each tensor one, or None where "
        f"it has one element."
    )


def _no_gradient(value: Value) -> TypeError:
    return TypeError(
        f"gradients can be either Tensors or None, but got {class_of(value)}. Make a tensor "
        f"of it with asyncgrad.tensor()."
    )


def checked_gradient(place: int, metadata: Metadata, gradient: Gradient) -> Any:
    """A root's gradient, cast to the root's dtype; raises if shape, device or type do not fit."""
    if not isinstance(gradient, Variable):
        raise _no_gradient(gradient)
    facts = gradient._metadata
    if facts.shape != metadata.shape:
        raise AutogradError(
            f"Mismatch in shape: grad_output[{place}] has a shape of {Size(facts.shape)} "
            f"and output[{place}] has a shape of {Size(metadata.shape)}. Give it a gradient of "
            f"its shape."
        )
    if facts.is_complex != metadata.is_complex:
        raise AutogradError(
            f"For complex Tensors, both grad_output and output are required to have the same "
            f"dtype. Mismatch in dtype: grad_output[{place}] has a dtype of {facts.dtype} and "
            f"output[{place}] has a dtype of {metadata.dtype}. Convert the gradient with .to()."
        )
    if facts.device is not metadata.device:
        raise AutogradError(
            f"Mismatch in device: grad_output[{place}] is on {facts.device} and output[{place}] "
            f"on {metadata.device}. Move the gradient with .to()."
        )
    return cast(gradient, metadata.dtype)


def batches_of(roots: tuple[Any, ...], given: Value) -> tuple[list[Any], Level]:
    """Gradients whose first axis is a batch, lifted to a new batch level."""
    gradients: Any = [None] * len(roots) if given is None else sequence_of(given)
    for place, (root, gradient) in enumerate(zip(roots, gradients, strict=False)):
        edge = isinstance(root, GradientEdge)
        metadata = metadata_at(root.node, root.output_nr) if edge else root._metadata
        if not isinstance(gradient, Variable):
            implicit_gradient(metadata)
            raise ValueError(
                f"grad: with is_grads_batched=True all of grad_outputs have to be given, but "
                f"grad_outputs[{place}] is {class_of(gradient)}."
            )
        shape, expected = gradient._metadata.shape, metadata.shape
        if shape[1:] != expected or not shape:
            raise AutogradError(
                f"If `is_grads_batched=True`, we interpret the first dimension of each grad_output "
                f"as the batch dimension. The sizes of the remaining dimensions are expected to "
                f"match the shape of corresponding output, but a mismatch was detected: "
                f"grad_output[{place}] has a shape of {shape} and output[{place}] has a shape of "
                f"{expected}. If you only want some tensors in `grad_output` to be considered "
                f"batched, consider using vmap."
            )
    sizes = {gradient._metadata.shape[0] for gradient in gradients}
    if len(sizes) != 1:
        raise ValueError(
            f"grad: with is_grads_batched=True all of grad_outputs have to be given and be batches "
            f"of one size, got sizes {sorted(sizes)}."
        )
    level = Level(sizes.pop(), "error", current().batch)
    return [lift_batch(gradient, level) for gradient in gradients], level
