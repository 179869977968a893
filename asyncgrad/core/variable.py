"""What the graph knows about a tensor: its array, where its gradient goes, and its version.

`Variable` holds the fields; `Tensor`, which users see, adds operators and methods and no field.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final
from weakref import ref

from asyncgrad.core.accumulate_grad import AccumulateGrad
from asyncgrad.core.locks import lasting_lock
from asyncgrad.core.node import MAX_SEQUENCE_NR, Edge, as_edge, extras_of
from asyncgrad.core.versions import VersionCounter
from asyncgrad.core.views import View, refuse_change, stop_retaining
from asyncgrad.errors import AutogradError

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncgrad.core.hooks import Hooks, NodeExtras
    from asyncgrad.core.metadata import Metadata


#: As `grad_dtype`: gradients keep whatever dtype they have.
ANY_DTYPE: Final = "any dtype"


class AutogradMeta:
    """What only leaves and few other tensors have besides their array and edge."""

    __slots__ = (
        "accumulator",
        "extras",
        "grad",
        "grad_dtype",
        "inference",
        "name",
        "post_accumulate",
        "requires_grad",
        "retains_grad",
        "turned",
        "view",
    )

    def __init__(self) -> None:
        """Start with nothing set."""
        #: The tensor is a leaf that gradients are accumulated for.
        self.requires_grad = False
        #: The accumulated gradient.
        self.grad: Variable | None = None
        #: The dtype of `grad` where it is not the tensor's own: a dtype or `ANY_DTYPE`.
        self.grad_dtype: Any = None
        #: The leaf's accumulator; graphs hold it strongly, the leaf only weakly.
        self.accumulator: ref[AccumulateGrad] | None = None
        #: The leaf's hooks, kept here because the accumulator may die before the leaf.
        self.extras: NodeExtras | None = None
        self.post_accumulate: Hooks | None = None
        self.retains_grad = False
        #: The tensor's version after the last in-place change of its axes, -1 before the first.
        self.turned = -1
        #: The `View` if the tensor is a view, or None.
        self.view: Any = None
        #: The tensor was made in inference mode.
        self.inference = False
        self.name: str | None = None


class Variable:
    """The fields of a tensor."""

    __slots__ = ("__weakref__", "_array", "_autograd", "_counter", "_edge", "_metadata")

    #: The tensor stands for one example of a batch: see `ops.batching`.
    _batched: ClassVar[bool] = False
    #: The values: an array of the device's library.
    _array: Any
    #: Shape, dtype and device of the array.
    _metadata: Metadata
    #: Where the gradient of a non-leaf goes (a stored edge); None for leaves and constants.
    _edge: Any
    #: Counts in-place changes; created when first needed.
    _counter: VersionCounter | None
    #: What only leaves and few others have, or None.
    _autograd: AutogradMeta | None


#: Held while an accumulator is created, so that two threads never make two for one leaf.
_accumulators = lasting_lock()
#: Makes an empty tensor of the public class; bound by `tensor`.
_face: list[Callable[[], Variable]] = [Variable]


def bind_face(face: Callable[[], Variable]) -> None:
    """Set the function that makes an empty tensor of the public class."""
    _face[0] = face


def face() -> Callable[[], Variable]:
    """The function that makes an empty tensor of the public class."""
    return _face[0]


def wrap(array: Any, metadata: Metadata, edge: Any = None) -> Any:
    """A new tensor with this array, metadata and edge."""
    variable = _face[0]()
    variable._array = array
    variable._metadata = metadata
    variable._edge = edge
    variable._counter = None
    variable._autograd = None
    return variable


def zeros_of(metadata: Metadata) -> Any:
    """A tensor of zeros, which replaces an undefined gradient of this shape, dtype and device."""
    return wrap(metadata.F.xp.zeros(metadata.shape, dtype=metadata.dtype), metadata)


def autograd_meta(variable: Variable) -> AutogradMeta:
    """The variable's `AutogradMeta`, created when first needed."""
    meta = variable._autograd
    if meta.__class__ is not AutogradMeta:
        full = AutogradMeta()
        # Another thread may have made one during the call; from here on there is no switch.
        meta = variable._autograd
        if meta.__class__ is not AutogradMeta:
            full.view = meta
            variable._autograd = full
            return full
    assert meta is not None
    return meta


def requires_grad(variable: Variable) -> bool:
    """Whether gradients flow into or through the variable."""
    if variable._edge is not None:
        return True
    meta = variable._autograd
    if meta is None:
        return False
    # As in PyTorch: a view of a tensor that requires grad does so, even if made in no_grad.
    return meta.requires_grad or (meta.view is not None and requires_grad(meta.view.base))


def gradient_edge(variable: Variable) -> Any:
    """The stored edge that the variable's gradient goes to, None where it needs no gradient.

    A leaf's edge is its accumulator, which is created for the first graph that leads to it.
    """
    edge = variable._edge
    if edge is not None:
        return edge
    meta = variable._autograd
    if meta is None:
        return None
    if not meta.requires_grad:
        return None if meta.view is None else _renewed_edge(variable, meta.view)
    reference = meta.accumulator
    if reference is not None:
        accumulator = reference()
        if accumulator is not None:
            return accumulator
    if meta.inference:
        # No gradient flows to a tensor made in inference mode, even if it requires grad.
        return None
    # `with`, because an interrupt between `acquire()` and `try` would leave the lock taken.
    with _accumulators:
        latest = meta.accumulator
        if latest is not reference and latest is not None:
            # Another thread has just replaced it.
            accumulator = latest()
            if accumulator is not None:
                return accumulator
        accumulator = AccumulateGrad()
        accumulator.following = ()
        accumulator.topological_nr = 0
        accumulator.sequence_nr = MAX_SEQUENCE_NR
        accumulator.output_metadata = metadata = variable._metadata
        # The cost matters only with hooks; `GraphTask.run` counts none for other leaves.
        accumulator.cost = metadata.cost
        accumulator.extras = meta.extras
        accumulator.variable = variable
        meta.accumulator = ref(accumulator)
        return accumulator


#: Recomputes the stored edge of a view from its base; bound by `ops.in_place`.
_replay: list[Callable[[View], Any]] = []


def bind_replay(replay: Callable[[View], Any]) -> None:
    """Set the function that recomputes a view's edge from its base."""
    _replay[:] = [replay]


def _renewed_edge(variable: Variable, view: View) -> Any:
    """The edge of a view that lacks one because its base has changed or needs no gradient."""
    counter = variable._counter
    if counter is None or counter.value == view.version or gradient_edge(view.base) is None:
        return None
    if creation_of(view) is not None:
        refuse_change(view, indirect=True)
    edge = _replay[0](view)
    view.version = counter.value
    variable._edge = edge
    counter.register(variable)
    meta = variable._autograd
    if meta is not None and meta.retains_grad:
        _retain(variable)
    return edge


def view_of(variable: Variable) -> View | None:
    """The `View` of a variable, None if it is not a view."""
    meta = variable._autograd
    return None if meta is None else meta.view


def creation_of(view: View) -> str | None:
    """Why a view can't be changed in place while recording, or None."""
    meta = view.base._autograd
    if meta is not None and view.version < meta.turned and view.creation is None:
        # The path started from the base's old axes, which have changed since.
        view.creation = "turned"
    return view.creation


def note_view(
    variable: Variable, source: Variable, name: str, attributes: Any, creation: str | None = None
) -> None:
    """Note that a result is a view of the tensor it was taken from.

    Args:
        variable: the result, with its array and its edge.
        source: the tensor it was taken from.
        name: the table's name of the view function.
        attributes: the function's attributes.
        creation: why the view can't be changed in place while recording, or None.
    """
    # Inlined `looks_into`: this runs for every view.
    array, held = source._array, variable._array.base
    if held is not array and (held is None or held is not array.base):
        # The function returned a copy.
        if creation == "inference":
            autograd_meta(variable).inference = True
        return
    meta = source._autograd
    parent = None
    if meta is not None:
        if meta.inference:
            if variable._edge is None:
                autograd_meta(variable).inference = True
            return
        parent = meta.view
    counter = source._counter or counter_of(source)
    variable._counter = counter
    if parent is None:
        view = View(source, (None, name, attributes), counter.value, creation)
    else:
        known = creation_of(parent)
        path = None if parent.path is None else (parent.path, name, attributes)
        view = View(parent.base, path, counter.value, known or creation)
    variable._autograd = view  # type: ignore[assignment]
    if variable._edge is not None:
        counter.register(variable)
    elif meta is not None and meta.requires_grad:
        counter.register_alias(variable)


def rebase_history(variable: Variable, edge: Any) -> None:
    """Give a variable that was changed in place a new history; it must not be a view."""
    lead_elsewhere(variable, edge)
    counter_of(variable).forget_edges()


def lead_elsewhere(variable: Variable, edge: Any) -> None:
    """Replace a variable's edge; if it retains its gradient, that of the new values."""
    meta = variable._autograd
    retains = meta is not None and meta.retains_grad
    if retains:
        stop_retaining(variable)
    variable._edge = edge
    if retains and edge is not None:
        _retain(variable)


def collect_next_edges(*variables: Variable) -> tuple[Any, ...]:
    """The stored edges of an operation's inputs, None for those that need no gradient."""
    return tuple(gradient_edge(variable) for variable in variables)


def set_history(variable: Variable, edge: Any) -> None:
    """Make the variable a function's output: its gradient will go to `edge`."""
    variable._edge = edge
    counter = variable._counter
    if counter is not None and edge.__class__ is not Edge:
        edge.guard = counter
        edge.version = counter.value


def counter_of(variable: Variable) -> VersionCounter:
    """The variable's version counter, created when first needed.

    If the function that made the variable has saved it, its node gets the counter, too. A
    variable without a counter has never been changed, so the function saw version 0.
    """
    counter = variable._counter
    if counter is None:
        meta = variable._autograd
        if meta is not None and meta.inference:
            raise AutogradError(
                "Inference tensors cannot be saved for backward. To work around you can make a "
                "clone to get a normal tensor and use it in autograd."
            )
        counter = VersionCounter()
        # Another thread may have made one during the call; from here on there is no switch.
        if variable._counter is not None:
            return variable._counter
        edge = variable._edge
        if edge is not None and edge.__class__ is not Edge:
            rule = edge.rule
            if rule is not None and rule.arrays:
                if edge.guard is None:
                    edge.guard = counter
                    edge.version = 0
                elif rule.arrays == _OUTPUT and edge.guard.__class__ is VersionCounter:
                    # Someone has read the saved output, which made this counter for it.
                    counter = edge.guard
        variable._counter = counter
    return counter


#: `Rule.arrays` of a rule that saves only the output.
_OUTPUT = ((0, -1),)


def bump_version(variable: Variable) -> None:
    """Count an in-place change of the variable; call it before the change.

    A pass in a thread may be reading the values, and checks the version afterwards: the version
    must be greater before the first value changes.
    """
    if not is_inference(variable):
        counter_of(variable).value += 1


def version_of(variable: Variable) -> int:
    """How many in-place changes the variable and its aliases have seen.

    Raises:
        RuntimeError: for a tensor made in inference mode.
    """
    if is_inference(variable):
        raise AutogradError("Inference tensors do not track version counter.")
    counter = variable._counter
    return 0 if counter is None else counter.version


def cut_off(variable: Variable) -> None:
    """Make a variable a constant, and note the cut for nodes that have saved it."""
    edge, counter = variable._edge, variable._counter
    variable._edge = None
    stop_requiring(variable)
    if edge is not None and counter is not None:
        node, input_nr = as_edge(edge)
        assert node is not None
        counter.cut(node, input_nr)


def stop_requiring(variable: Variable) -> None:
    """Stop gradients to a leaf, also from graphs that lead to it already."""
    if variable._autograd is None:
        return
    meta = autograd_meta(variable)
    meta.requires_grad = False
    _keep_extras(meta)


def leave_graphs(variable: Variable) -> None:
    """Lead later graphs to a leaf by a new accumulator, by which `grad()` tells them from earlier.

    `backward()` through earlier graphs still reaches the leaf.
    """
    meta = variable._autograd
    if meta.__class__ is AutogradMeta:
        _keep_extras(meta)
        meta.accumulator = None


def _keep_extras(meta: AutogradMeta) -> None:
    """Give a leaf's accumulator extras: passes then run it in the general way, which checks."""
    accumulator = None if meta.accumulator is None else meta.accumulator()
    if accumulator is not None:
        meta.extras = extras_of(accumulator)


def is_inference(variable: Variable) -> bool:
    """Whether the variable was made in inference mode."""
    meta = variable._autograd
    return meta is not None and meta.inference


def hooks_of(variable: Variable, what: str) -> tuple[NodeExtras, int]:
    """Where hooks on a tensor are stored: with its node, or with the leaf's accumulator.

    Raises:
        RuntimeError: if the tensor needs no gradient.
    """
    edge = gradient_edge(variable)
    if edge is None:
        raise AutogradError(
            f"cannot {what} a tensor that doesn't require gradient. Call requires_grad_() first."
        )
    node: Any = edge
    position = 0
    if edge.__class__ is Edge:
        node, position = edge
    extras = extras_of(node)
    if variable._edge is None:
        autograd_meta(variable).extras = extras
    return extras, position


def grad_dtype(variable: Variable) -> Any:
    """The dtype that a leaf's gradients are converted to; None to keep theirs."""
    meta = variable._autograd
    dtype = None if meta is None else meta.grad_dtype
    if dtype is None:
        return variable._metadata.dtype
    return None if dtype is ANY_DTYPE else dtype


def retain_grad(variable: Variable) -> None:
    """Keep a computed tensor's gradient in its `.grad`; leaves do so anyway.

    Raises:
        RuntimeError: if the tensor needs no gradient.
    """
    if not requires_grad(variable):
        raise AutogradError("can't retain_grad on Tensor that has requires_grad=False")
    if gradient_edge(variable) is None or variable._edge is None:
        return
    if autograd_meta(variable).retains_grad:
        return
    _retain(variable)
    autograd_meta(variable).retains_grad = True


def _retain(variable: Variable) -> None:
    extras, position = hooks_of(variable, "retain the gradient of")
    extras.retain[position] = ref(variable)
