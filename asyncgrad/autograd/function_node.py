"""The node of a Function; it is also the `ctx` argument of `forward` and `backward`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from asyncgrad.aliases import Device, Gradient, Steps, StoredEdge, Value
from asyncgrad.core.frames import warn
from asyncgrad.core.graph_task import GraphTask
from asyncgrad.core.hook_calls import as_tensor
from asyncgrad.core.hooks import NodeExtras
from asyncgrad.core.metadata import Metadata
from asyncgrad.core.modes import current
from asyncgrad.core.node import (
    Edge,
    Freed,
    Node,
    as_edge,
    init_node,
    metadata_at,
    name_of,
    refuse_freed,
)
from asyncgrad.core.run_node import is_wanted
from asyncgrad.core.saved_attributes import SavedNone
from asyncgrad.core.variable import AccumulateGrad, Variable, grad_dtype, zeros_of
from asyncgrad.errors import AutogradError, class_of
from asyncgrad.ops.arguments import is_expandable
from asyncgrad.ops.namespace import RECORDED
from asyncgrad.types import Tensor

#: The cost and the numbers of a node that is not connected.
_UNSET: Final = -1
#: Attributes that the engine reads of a node, and that are no slots.
_READ: Final = frozenset({
    "apply", "conclude", "direct", "prefetch", "release_saved", "sees_modes",
})  # fmt: skip
#: Stands for saved tensors released by their first access (`clear_saved_tensors_on_access`).
ACCESSED: Final = Freed().remember()


class FunctionCtx:
    """The context through which `forward` and `setup_context` pass data to `backward`."""

    #: Whether each argument of `forward` is a tensor that requires grad; set before `forward`.
    needs_input_grad: tuple[bool, ...]
    if TYPE_CHECKING:

        @property
        def saved_tensors(self) -> tuple[Tensor, ...]:
            """The tensors kept by `save_for_backward`."""

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep inputs, outputs or intermediate results for `backward`.

        They come back as `ctx.saved_tensors`, which checks them for in-place changes. Inputs and
        outputs are connected to the graph, so that `create_graph=True` can differentiate by them.
        None stays None.
        """
        self.to_save = tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for `jvp`."""
        if not all(tensor is None or isinstance(tensor, Variable) for tensor in tensors):
            raise AssertionError(
                "save_for_forward expects all arguments to be tensors; you should save "
                "non-tensors as attributes on ctx."
            )
        self.saved_for_forward = tensors

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Declare which inputs `forward` has changed in place; it has to return them."""
        for number, tensor in enumerate(tensors):
            if not isinstance(tensor, Variable):
                raise AutogradError(
                    f"mark_dirty can only accept variables, but argument {number} is of type "
                    f"{class_of(tensor)}"
                )
        self.dirty_tensors = tensors

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Declare outputs without a gradient; `backward` receives zeros for them."""
        for tensor in tensors:
            if not isinstance(tensor, Variable):
                raise AutogradError(
                    f"mark_non_differentiable only accepts variable arguments, but got "
                    f"{class_of(tensor)}"
                )
        self.non_differentiable = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Choose whether `backward` receives zeros (the default) or None for missing gradients."""
        self.materialize_grads = value


class FunctionNode(FunctionCtx, Node):
    """The node of a `Function`, and its `ctx`; each Function has a subclass of it."""

    #: The `Function` of this node class.
    _forward_cls: ClassVar[Any]

    # What only table nodes need. Users may have attributes of these names on ctx.
    saved = None
    guard = None
    version = 0

    to_save: tuple[Any, ...] = ()
    saved_for_forward: tuple[Any, ...] = ()
    dirty_tensors: tuple[Any, ...] = ()
    non_differentiable: tuple[Any, ...] = ()
    materialize_grads = True
    #: Whether `backward` receives zeros for non-differentiable outputs, too.
    _materialize_non_diff_grads = True
    #: The numbers of the non-differentiable outputs.
    _non_differentiable: frozenset[int] = frozenset()
    #: Saved tensors, each with its output number or -1; a `Freed` once they are released.
    _kept: Any = ()
    #: While the node runs: the saved tensors, if unpacking had to be awaited.
    _unpacked: tuple[Any, ...] | None = None
    #: In a replay, whose pass knows nothing of this node: what `wants_grad` was.
    _wanted: tuple[bool, ...] | None = None
    #: Whether each argument of `forward` was a tensor.
    _tensors: tuple[bool, ...] = ()
    #: Results of `forward` kept on ctx, each with its output number or -1.
    _hidden: tuple[tuple[Variable, int], ...] = ()

    def __init__(self) -> None:
        """Make an unconnected node; `connected` completes it after `forward`."""
        self.rule = None
        self.extras = None
        self.following = ()
        self.cost = self.sequence_nr = self.topological_nr = _UNSET
        self.output_metadata = None

    def _check_names(self, device: Device) -> None:
        """Raise if `forward` has set an attribute that the engine uses."""
        if (
            self.cost is not _UNSET
            or self.sequence_nr is not _UNSET
            or self.topological_nr is not _UNSET
            or self.output_metadata is not None
            or self.rule is not None
            or self.following
            or (self.extras is not None and self.extras.__class__ is not NodeExtras)
            or (device.streamed and hasattr(self, "stream"))
            or not _READ.isdisjoint(vars(self))
        ):
            raise AutogradError(
                f"{self._forward_cls.__name__}: forward() has set an attribute of ctx that "
                f"asyncgrad uses itself: cost, extras, following, output_metadata, rule, "
                f"sequence_nr, stream, topological_nr, {', '.join(sorted(_READ))}. Choose another "
                f"name."
            )

    # -- what backward uses -----------------------------------------------------------------------

    @property
    def saved_tensors(self) -> tuple[Tensor, ...]:
        """The tensors kept by `save_for_backward`; in `jvp`, those kept by `save_for_forward`.

        Raises:
            RuntimeError: if they have been released or changed in place.
        """
        if self.saved_for_forward:
            return self.saved_for_forward
        values, kept = self._unpacked, self._kept
        if kept is ACCESSED:
            raise AutogradError(
                f"{name_of(self)}: with clear_saved_tensors_on_access, saved tensors can only be "
                f"accessed once. Keep what ctx.saved_tensors gives in a variable."
            )
        if values is None:
            if kept.__class__ is Freed:
                refuse_freed(self, kept)
            values = tuple(
                None if one is None else one.unpack(self, self._edge_of(number))
                for one, number in kept
            )
        if self._forward_cls.clear_saved_tensors_on_access:
            self._kept, self._unpacked = ACCESSED, None
        return values

    @property
    def saved_variables(self) -> tuple[Any, ...]:
        """Deprecated name of `saved_tensors`."""
        warn("'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning)
        return self.saved_tensors

    @property
    def _raw_saved_tensors(self) -> tuple[Any, ...]:
        if self._kept.__class__ is Freed:
            refuse_freed(self, self._kept)
        return tuple(SavedNone() if one is None else one for one, _ in self._kept)

    @property
    def wants_grad(self) -> tuple[bool, ...]:
        """`needs_input_grad`, restricted to the gradients that the current pass needs."""
        if self._wanted is not None:
            return self._wanted
        task = current().graph_task
        if task is None:
            return self.needs_input_grad
        edges = iter(self.following)
        return tuple(tensor and is_wanted(task, next(edges)) for tensor in self._tensors)

    def _edge_of(self, number: int) -> Any:
        """The gradient edge of an output; None for a negative number."""
        if number < 0:
            return None
        return self if number == 0 else Edge(self, number)

    # -- what a pass uses -------------------------------------------------------------------------

    @property
    def fresh(self) -> bool:
        """Whether the gradients are new arrays, so that a leaf may take them without a copy."""
        return bool(self._forward_cls.fresh_gradients)

    def prefetch(self) -> Steps[None]:
        """Unpack saved tensors whose hooks are coroutine functions, before `apply`."""
        kept = self._kept
        if kept.__class__ is Freed or not any(one is not None and one.waits for one, _ in kept):
            return
        values: list[Any] = []
        for one, number in kept:
            if one is None:
                values.append(None)
            else:
                values.append((yield from one.unpack_steps(self, self._edge_of(number))))
        self._unpacked = tuple(values)

    def apply(self, gradients: tuple[Any, ...], task: GraphTask | None) -> Any:
        """Call the user's `backward`."""
        metadata = self._input_metadata
        without = frozenset() if self._materialize_non_diff_grads else self._non_differentiable
        given = [
            None if number in without else self._given(gradient, facts)
            for number, (gradient, facts) in enumerate(zip(gradients, metadata, strict=True))
        ]
        function = self._forward_cls._chosen_backward()
        if self._hidden and current().grad and not getattr(function, "_once", False):
            self._reveal()
        arguments = (given,) if self._forward_cls.boxed_grads_call else given
        return function(self, *arguments)

    def _given(self, gradient: Gradient, metadata: Metadata) -> Any:
        """A gradient as the user's `backward` receives it."""
        if gradient is None and metadata is not None and self.materialize_grads:
            return zeros_of(metadata)
        return as_tensor(gradient, metadata)

    def _reveal(self) -> None:
        """Connect the results kept on ctx to the graph, while a recorded `backward` runs."""
        message = f"{name_of(self)}: {_KEPT_ON_CTX}"
        unknown = Error(self.following, self._input_metadata[0], message)
        for variable, number in self._hidden:
            variable._edge = unknown if number < 0 else self._edge_of(number)

    def _after_apply(self) -> None:
        """Drop what was unpacked for `backward`, and the edges that `_reveal` has set."""
        self._unpacked = None
        for variable, _ in self._hidden:
            variable._edge = None

    def conclude(self, received: Value, task: GraphTask | None) -> tuple[Any, ...]:
        """Check what the user's function returned, and give one gradient for each next edge."""
        values = received if isinstance(received, tuple) else (received,)
        expected = len(self._tensors)
        if len(values) > expected and all(value is None for value in values[expected:]):
            values = values[:expected]
        if len(values) != expected:
            raise AutogradError(
                f"function {name_of(self)} returned an incorrect number of gradients (expected "
                f"{expected}, got {len(values)}). Return one for each argument of forward, None "
                f"for those without."
            )
        gradients: list[Any] = []
        edges = iter(self.following)
        for place, (value, tensor) in enumerate(zip(values, self._tensors, strict=True)):
            if not tensor:
                if value is not None:
                    raise AutogradError(
                        f"function {name_of(self)} returned a gradient different than None at "
                        f"position {place + 1}, but the corresponding forward input was not a "
                        f"Variable"
                    )
                continue
            edge = next(edges)
            if value is not None and not isinstance(value, Variable):
                raise AutogradError(f"expected Variable or None (got {class_of(value)})")
            gradients.append(
                None if value is None else self._checked(value, edge, len(gradients), task)
            )
        return tuple(gradients)

    def _checked(self, value: Value, edge: StoredEdge, place: int, task: GraphTask | None) -> Any:
        """A gradient in the shape and dtype of its input, as a tensor or array for the pass."""
        recorded = task is None or task.recorded is not None
        if edge is None:
            return value if recorded else value._array
        target = as_edge(edge)
        assert target.node is not None
        metadata = metadata_at(target.node, target.input_nr)
        facts = value._metadata
        if facts.device is not metadata.device:
            raise AutogradError(
                f"Function {name_of(self)} returned an invalid gradient at index {place} - "
                f"expected device {metadata.device} but got {facts.device}"
            )
        if facts.is_complex and not metadata.is_complex:
            raise AutogradError(
                f"Function {name_of(self)} returned an invalid gradient at index {place} - "
                f"expected a real dtype like {metadata.dtype} but got {facts.dtype}. Take its real "
                f"part."
            )
        if facts.shape != metadata.shape:
            if not is_expandable(metadata.shape, facts.shape):
                raise AutogradError(
                    f"Function {name_of(self)} returned an invalid gradient at index {place} - got "
                    f"{list(facts.shape)} but expected shape compatible with "
                    f"{list(metadata.shape)}"
                )
            value = RECORDED.sum_to(value, metadata.shape)
        dtype = metadata.dtype
        if target.node.__class__ is AccumulateGrad:
            dtype = grad_dtype(target.node.variable)
        if dtype is not None and facts.dtype != dtype:
            value = RECORDED.to(value, dtype)
        return value if recorded else value._array

    def release_saved(self, freed: Freed) -> None:
        """Release the tensors saved for backward; a node that saved none can run again."""
        self._kept = freed


class Error(Node):
    """A node of tensors that can't be differentiated: it raises when a pass reaches it."""

    __slots__ = ("_message",)

    def __init__(self, following: tuple[Any, ...], metadata: Value, message: str) -> None:
        """Make the node; a pass that needs no gradient beyond `following` prunes it."""
        init_node(self, following, metadata)
        self._message = message

    def apply(self, gradients: tuple[Any, ...], task: Any) -> Any:
        """Raise the error."""
        raise AutogradError(self._message)


_KEPT_ON_CTX = (
    "backward() has used a tensor that forward() computed from its inputs and kept on ctx. It "
    "would count as a constant, and the second derivative be silently wrong. Compute it again in "
    "backward() from ctx.saved_tensors, return it as an output too, decorate backward() with "
    "once_differentiable, or, if it is meant as a constant, set constants_on_ctx = True in the "
    "Function."
)
