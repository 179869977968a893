"""What the functions of `functional` share: checks, steps, and Jacobians in three ways."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from asyncgrad.aliases import Value
from asyncgrad.autograd.forward_ad import make_dual, nested_level, unpack_dual
from asyncgrad.autograd.modes import enable_grad
from asyncgrad.autograd.passes import grad
from asyncgrad.choices import Strategy
from asyncgrad.core.modes import Mode, current
from asyncgrad.core.recording import note_constant
from asyncgrad.core.variable import Variable
from asyncgrad.creation import zeros, zeros_like
from asyncgrad.errors import AutogradError
from asyncgrad.ops.api.shape import stack
from asyncgrad.ops.batching import Level, batch_of, lift_batch
from asyncgrad.records import NamedTuple
from asyncgrad.scheduler import call

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


def _prepared(tensor: Any, create_graph: bool, requires_grad: bool = True) -> Any:
    """A new tensor for an argument: the function may hold the same tensor as a constant."""
    if create_graph and tensor.requires_grad:
        alias = tensor.reshape(tensor.shape)
        # A view that was made under `no_grad` requires grad, but leads nowhere.
        if alias._edge is not None:
            return alias
    return tensor.detach().requires_grad_(requires_grad)


class Call(NamedTuple):
    """A call of one of the functions: its arguments, and the steps that programs share."""

    name: str
    func: Callable[..., Any]
    #: Whether the inputs are a single tensor, and the inputs as a tuple.
    single: bool
    values: tuple[Any, ...]
    create_graph: bool
    strict: bool

    def inputs(self) -> tuple[Any, ...]:
        """New tensors for the inputs."""
        return tuple([_prepared(tensor, self.create_graph) for tensor in self.values])

    def vector(self, v: Value, like: Value, alone: bool, what: str) -> tuple[Any, ...] | None:
        """The vector of a product, checked to have the shapes of the tensors that are `what`.

        It may be None for a single tensor with one element.
        """
        if v is None:
            if len(like) != 1 or like[0].numel() != 1:
                raise AutogradError(
                    f"The vector v can only be None if the {what} a single Tensor with a single "
                    f"element."
                )
            return None
        _, vectors = tuple_of(v, "v", self.name)
        if len(vectors) != len(like):
            raise AutogradError(
                "The given v should contain a single Tensor."
                if alone
                else f"v is a tuple of invalid length: should be {len(like)} but got "
                f"{len(vectors)}."
            )
        for place, (vector, tensor) in enumerate(zip(vectors, like, strict=True)):
            if vector.shape != tensor.shape:
                raise AutogradError(
                    f"{'' if alone else f'Entry {place} in '}v has invalid size: should be "
                    f"{tensor.shape} but got {vector.shape}."
                )
        return tuple([_prepared(vector, self.create_graph, False) for vector in vectors])

    def check_dependent(self, tensors: Value, what: str) -> None:
        """In strict mode, raise for tensors that do not depend on the inputs."""
        for place, tensor in enumerate(tensors if self.strict else ()):
            if tensor is None:
                raise AutogradError(
                    f"The output of the user-provided function is independent of input {place}. "
                    f"This is not allowed in strict mode."
                )
            if not tensor.requires_grad:
                raise AutogradError(_CONSTANT[what].format(place))

    async def outputs(self, tensors: Value) -> tuple[bool, Any]:
        """Call the user's function: whether it returned a single tensor, and all as a tuple."""
        found = await call(self.func, *tensors)
        alone, outputs = tuple_of(found, "outputs of the user-provided function", self.name)
        self.check_dependent(outputs, "outputs")
        return alone, outputs

    async def scalar(self, tensors: Value) -> Any:
        """Call the user's function, which has to return a single tensor with one element."""
        alone, outputs = await self.outputs(tensors)
        if not alone:
            raise AutogradError(f"The function given to {self.name} should return a single Tensor")
        if outputs[0].numel() != 1:
            raise AutogradError(
                f"The Tensor returned by the function given to {self.name} should contain a single "
                f"element"
            )
        return outputs[0]

    def filled(self, found: Value, like: Value, messages: tuple[str, str]) -> tuple[Any, ...]:
        """Replace missing gradients by zeros, or raise in strict mode."""
        for place, gradient in enumerate(found if self.strict else ()):
            if gradient is None:
                raise AutogradError(
                    f"{messages[0].format(place)} This is not allowed in strict mode."
                )
            if self.create_graph and not gradient.requires_grad:
                raise AutogradError(
                    f"{messages[1].format(place)} This is not allowed in strict mode when "
                    f"create_graph=True."
                )
        return tuple(
            zeros_like(tensor) if gradient is None else gradient
            for gradient, tensor in zip(found, like, strict=True)
        )

    def finished(self, tensors: Value, alone: bool) -> Any:
        """Detach results unless `create_graph`, and unpack a single result."""
        if not self.create_graph:
            tensors = tuple(tensor.detach() for tensor in tensors)
        return tensors[0] if alone else tuple(tensors)


async def grad_where_required(
    outputs: Sequence[Any], tensors: Sequence[Any], vectors: Value, create_graph: bool,
    retain_graph: bool | None = None, batched: bool = False,
) -> Sequence[Any]:  # fmt: skip
    """`grad` of the outputs that require grad; None for all inputs if none does."""
    vectors = (None,) * len(outputs) if vectors is None else vectors
    pairs = [
        (out, vector)
        for out, vector in zip(outputs, vectors, strict=True)
        if out is not None and out.requires_grad
    ]
    if not pairs or not tensors:
        return (None,) * len(tensors)
    roots, gradients = zip(*pairs, strict=True)
    found: Sequence[Any] = await grad(
        roots, tensors, gradients, retain_graph, create_graph, allow_unused=True,
        is_grads_batched=batched,
    )  # fmt: skip
    return found


# -- Jacobians ------------------------------------------------------------------------------------


async def jacobian_program(
    given: Call, vectorize: bool, strategy: Strategy = "reverse-mode"
) -> Any:
    """The Jacobian, by the chosen strategy."""
    if strategy == "forward-mode":
        alone, blocks = await _blocks_forward(given)
    else:
        with enable_grad():
            tensors = given.inputs()
            alone, outputs = await given.outputs(tensors)
            if vectorize and given.strict:
                raise AutogradError(
                    "jacobian: `strict=True` and `vectorized=True` are not supported together. "
                    "Set strict=False or vectorize=False."
                )
            blocks = ()
            if vectorize:
                units = unit_vectors(outputs, outputs, 0, sum(out.numel() for out in outputs))
                columns = await grad_where_required(
                    outputs, tensors, units, given.create_graph, batched=True
                )
                blocks = blocks_of_rows(columns, outputs, tensors, 0)
            for place, out in enumerate(() if vectorize else outputs):
                columns = await _columns(given, place, out, tensors)
                blocks += blocks_of_rows(columns, (out,), tensors, 0)
        if not given.create_graph:
            blocks = tuple(tuple(block.detach() for block in row) for row in blocks)
    if given.single:
        blocks = tuple(row[0] for row in blocks)
    return blocks[0] if alone else blocks


async def _columns(given: Call, place: int, out: Value, tensors: Value) -> Any:
    """By input, the derivatives of an output's elements, computed one element at a time."""
    flat = out.reshape(-1)
    missing = f"Output {place} of the user-provided function is independent of input {{}}."
    # As in PyTorch, the second message has the output's number in place of an input's.
    messages = missing, _JACOBIAN.format(place)
    rows = []
    for row in range(out.numel()):
        found = await grad_where_required(
            (flat[row],), tensors, None, given.create_graph, retain_graph=True
        )
        rows.append(given.filled(found, tensors, messages))
    return list(map(stack, zip(*rows, strict=True))) if rows else (None,) * len(tensors)


def blank(tensor: Value, *lead: int) -> Any:
    """Zeros with the dtype and device of a tensor, and extra axes before its own."""
    return zeros((*lead, *tensor.shape), dtype=tensor.dtype, device=tensor.device)


async def _blocks_forward(given: Call) -> tuple[bool, Any]:
    """Whether there is a single output; and for each output, its derivatives by each input."""
    inputs = given.values
    count = sum(x.numel() for x in inputs)
    level = Level(count, "error", current().batch, loops=True, tangents=True)
    with Mode(batch=level), nested_level():
        duals = [
            make_dual(x, lift_batch(unit, level))
            for x, unit in zip(inputs, unit_vectors(inputs, inputs, 0, count), strict=True)
        ]
        alone, outputs = await given.outputs(duals)
        columns = []
        for out in outputs:
            value, tangent = unpack_dual(out)
            tangent = zeros_like(value) if tangent is None else tangent
            columns.append(batch_of(tangent.detach(), level))
    return alone, tuple(blocks_of_columns(column, inputs) for column in columns)


# -- shared with `asyncgrad.func` -----------------------------------------------------------------


def unit_vectors(
    tensors: Sequence[Any], holders: Sequence[Any], start: int, count: int
) -> list[Any]:
    """By tensor, its part of unit vectors of all; `holders` have axes of batches, too."""
    vectors = []
    first = 0
    for x, holder in zip(tensors, holders, strict=True):
        size = x.numel()
        depth = holder.ndim - x.ndim
        inside = range(max(first, start), min(first + size, start + count))
        with Mode(recorder=None, before_change=None):
            vector = zeros((count, size), dtype=holder.dtype, device=holder.device)
            if inside:
                vector[[i - start for i in inside], [i - first for i in inside]] = 1
        note_constant(vector._array)
        vector = vector.reshape(count, *(1,) * depth, *x.shape)
        vectors.append(vector.expand(count, *holder.shape) if depth else vector)
        first += size
    return vectors


def blocks_of_rows(
    columns: Sequence[Any], outputs: Sequence[Any], inputs: Sequence[Any], depth: int
) -> tuple[tuple[Any, ...], ...]:
    """By output and input, the derivatives by each input of all outputs' elements, its first axis.

    The inputs' first `depth` axes belong to batches. None in place of derivatives stands for zeros.
    """
    blocks = []
    first = 0
    for out in outputs:
        row = []
        for column, x in zip(columns, inputs, strict=True):
            count = out.numel()
            rows = blank(x, count) if column is None else column.narrow(0, first, count)
            rows = rows.movedim(0, depth) if depth else rows
            row.append(rows.reshape((*x.shape[:depth], *out.shape, *x.shape[depth:])))
        blocks.append(tuple(row))
        first += out.numel()
    return tuple(blocks)


def blocks_of_columns(columns: Value, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """By input, an output's derivatives by the elements of all inputs, the first axis."""
    shape = columns.shape[1:]
    blocks = []
    first = 0
    for x in inputs:
        own = columns.narrow(0, first, x.numel()).movedim(0, len(shape))
        blocks.append(own.reshape((*shape, *x.shape)))
        first += x.numel()
    return tuple(blocks)
