"""Argument checks of `functional`, and functions that put its results together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncgrad.choices import Strategy, words
from asyncgrad.core.variable import Variable
from asyncgrad.creation import zeros, zeros_like
from asyncgrad.errors import AutogradError

if TYPE_CHECKING:
    from asyncgrad.aliases import Value


#: Strict mode's messages for a missing gradient, and for one that is independent of the inputs.
_JACOBIAN = "The jacobian of the user-provided function is independent of input {}."
_HESSIAN = "The hessian of the user-provided function is independent of input {}."
BACK = ("The output of the user-provided function is independent of input {}.", _JACOBIAN)
BACK_TRICK = (
    "The gradient with respect to the input is independent of entry {} in the grad_outputs when "
    "using the double backward trick to compute forward mode gradients.",
    _JACOBIAN,
)
DOUBLE_BACK = (_JACOBIAN, _HESSIAN)
DOUBLE_BACK_TRICK = (
    "The hessian of the user-provided function is independent of entry {} in the grad_jacobian.",
    _HESSIAN,
)
_CONSTANT = {
    "outputs": "Output {} of the user-provided function does not require gradients. The outputs "
    "must be computed in a differentiable manner from the input when running in strict mode.",
    "grad_inputs": "The gradient with respect to input {} is independent of the inputs of the "
    "user-provided function. This is not allowed in strict mode.",
    "jacobian": "While computing the hessian, found that the jacobian of the user-provided "
    "function with respect to input {} is independent of the input. This is not allowed in strict "
    "mode. The function has to be twice differentiable, and its jacobian to depend on the inputs.",
    "hessian": "The hessian of the user-provided function with respect to input {} is independent "
    "of the input. This is not allowed in strict mode. The function has to be thrice "
    "differentiable, and its hessian to depend on the inputs.",
}


def tuple_of(value: Value, what: str, name: str) -> tuple[bool, tuple[Any, ...]]:
    """Whether a value is a single tensor, and the value as a tuple of tensors."""
    alone = not isinstance(value, tuple)
    values = (value,) if alone else tuple(value)
    for place, element in enumerate(values):
        if not isinstance(element, Variable):
            where = f"given {what} has" if alone else f"value at index {place} has"
            raise TypeError(
                f"The {what} given to {name} must be either a Tensor or a tuple of Tensors but "
                f"the {where} type {type(element)}."
            )
    return alone, values


def prepared(tensors: Value, create_graph: bool, requires_grad: bool = True) -> tuple[Any, ...]:
    """New tensors for the arguments: the function may hold the same tensors as constants."""
    return tuple(
        tensor.reshape(tensor.shape)
        if create_graph and tensor.requires_grad
        else tensor.detach().requires_grad_(requires_grad)
        for tensor in tensors
    )


def vector(v: Value, like: Value, alone: bool, create_graph: bool, name: str) -> tuple[Any, ...]:
    """The vector of a product, checked to have the shapes of some tensors."""
    _, vectors = tuple_of(v, "v", name)
    if len(vectors) != len(like):
        raise AutogradError(
            "The given v should contain a single Tensor."
            if alone
            else f"v is a tuple of invalid length: should be {len(like)} but got {len(vectors)}."
        )
    for place, (vector, tensor) in enumerate(zip(vectors, like, strict=True)):
        if vector.shape != tensor.shape:
            raise AutogradError(
                f"{'' if alone else f'Entry {place} in '}v has invalid size: should be "
                f"{tensor.shape} but got {vector.shape}."
            )
    return prepared(vectors, create_graph, requires_grad=False)


def hessian_vector(v: Value, tensors: Value, alone: bool, create_graph: bool, name: str) -> Any:
    """The vector of a product with the Hessian; None is allowed if there is one element."""
    if v is None:
        check_one_element(tensors, "input to the user-provided function is")
        return None
    return vector(v, tensors, alone, create_graph, name)


def unpacked(rows: Value, alone: bool, single: bool) -> Any:
    """Drop the tuple by output or by input where there is only a single tensor."""
    if single:
        rows = tuple(row[0] for row in rows)
    return rows[0] if alone else rows


def finished(tensors: Value, alone: bool, create_graph: bool) -> Any:
    """Detach results unless `create_graph`, and unpack a single result."""
    if not create_graph:
        tensors = tuple(tensor.detach() for tensor in tensors)
    return tensors[0] if alone else tuple(tensors)


def filled(
    found: Value, like: Value, strict: bool, create_graph: bool, messages: tuple[str, str]
) -> tuple[Any, ...]:
    """Replace missing gradients by zeros, or raise in strict mode."""
    for place, gradient in enumerate(found):
        if strict and gradient is None:
            raise AutogradError(f"{messages[0].format(place)} This is not allowed in strict mode.")
        if strict and create_graph and not gradient.requires_grad:
            raise AutogradError(
                f"{messages[1].format(place)} This is not allowed in strict mode when "
                f"create_graph=True."
            )
    return tuple(
        zeros_like(tensor) if gradient is None else gradient
        for gradient, tensor in zip(found, like, strict=True)
    )


def row_messages(place: int) -> tuple[str, str]:
    """Strict mode's messages; as in PyTorch, the second puts the output's number for an input's."""
    missing = f"Output {place} of the user-provided function is independent of input {{}}."
    return missing, _JACOBIAN.format(place)


def check_dependent(tensors: Value, what: str, strict: bool) -> None:
    """In strict mode, raise for tensors that do not depend on the inputs."""
    for place, tensor in enumerate(tensors if strict else ()):
        if tensor is None:
            raise AutogradError(
                f"The output of the user-provided function is independent of input {place}. This "
                f"is not allowed in strict mode."
            )
        if not tensor.requires_grad:
            raise AutogradError(_CONSTANT[what].format(place))


def check_one_element(tensors: Value, what: str) -> None:
    """Raise unless there is a single tensor with one element."""
    if len(tensors) != 1 or tensors[0].numel() != 1:
        raise AutogradError(
            f"The vector v can only be None if the {what} a single Tensor with a single element."
        )


def check_scalar(alone: bool, outputs: Value, name: str) -> None:
    """Raise unless the user's function returned a single tensor with one element."""
    if not alone:
        raise AutogradError(f"The function given to {name} should return a single Tensor")
    if outputs[0].numel() != 1:
        raise AutogradError(
            f"The Tensor returned by the function given to {name} should contain a single element"
        )


def check_strategy(strategy: Strategy) -> None:
    """Raise for an unknown strategy."""
    if strategy not in words(Strategy):
        raise AssertionError(
            'Expected strategy to be either "forward-mode" or "reverse-mode". Hint: If your '
            'function has more outputs than inputs, "forward-mode" tends to be more performant. '
            'Otherwise, prefer to use "reverse-mode".'
        )


def check_forward(strict: bool, vectorize: bool) -> None:
    """Raise for options that forward mode does not support."""
    if strict:
        raise AutogradError(
            'strict=True and strategy="forward-mode" are not supported together. Set '
            'strict=False or strategy="reverse-mode".'
        )
    if not vectorize:
        raise NotImplementedError(
            "Computing Jacobian using forward-AD or forward-over-reverse Hessian is only "
            "implemented for `vectorize=True`."
        )


def basis(tensors: Value) -> list[Any]:
    """For each tensor, the part of the unit vectors of all tensors that lies in it, as a batch."""
    total = sum(tensor.numel() for tensor in tensors)
    batches = []
    first = 0
    for tensor in tensors:
        size = tensor.numel()
        batch = zeros((total, size), dtype=tensor.dtype, device=tensor.device)
        batch[range(first, first + size), range(size)] = 1
        batches.append(batch.reshape(total, *tensor.shape))
        first += size
    return batches
