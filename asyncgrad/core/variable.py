"""What the graph knows about a tensor: its array, where its gradient goes, and its version.

`Variable` holds the fields; `Tensor`, which users see, adds operators and methods and no field.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final, TypeAlias
from weakref import ref

from asyncgrad._unbound import unbound
from asyncgrad.aliases import Array, Gradient, StoredEdge, Value
from asyncgrad.core.hooks import Hooks, NodeExtras
from asyncgrad.core.metadata import Metadata
from asyncgrad.core.node import MAX_SEQUENCE_NR, Edge, Node, as_edge, extras_of
from asyncgrad.core.versions import VersionCounter, refuse_change
from asyncgrad.errors import AutogradError

#: As `grad_dtype`: gradients keep whatever dtype they have.
ANY_DTYPE: Final = "any dtype"


class AutogradMeta:
    """What only leaves and few other tensors have besides their array and edge."""

    __slots__ = (
        "accumulator", "extras", "grad", "grad_dtype", "inference", "name", "post_accumulate",
        "requires_grad", "retains_grad", "transposed_at", "view",
    )  # fmt: skip

    def __init__(self) -> None:
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
        self.transposed_at = -1
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


class View:
    """What a view keeps in `_autograd` until it needs an `AutogradMeta`.

    It has the same attributes for reading.
    """

    __slots__ = ("base", "creation_meta", "path", "version")

    #: The defaults of `AutogradMeta`.
    requires_grad = False
    grad = None
    grad_dtype = None
    accumulator = None
    extras = None
    post_accumulate = None
    retains_grad = False
    inference = False
    name = None
    transposed_at = -1

    def __init__(
        self, base: Variable, path: Value, version: int, creation_meta: str | None
    ) -> None:
        #: The tensor that is not itself a view.
        self.base = base
        #: How to get from there to the view: (path, function, attributes); None if that can't be
        #: repeated.
        self.path = path
        #: The version of the base when the view's edge was made.
        self.version = version
        #: Why the view can't be changed in place while recording, or None.
        self.creation_meta = creation_meta

    @property
    def view(self) -> View:
        """Itself, as in `AutogradMeta.view`."""
        return self


class AccumulateGrad(Node):
    """Stages the gradients that reach the leaf; `commit` adds them to `.grad` after success."""

    __slots__ = ("variable",)

    #: The leaf. It creates this node when its gradient edge is first needed.
    variable: Variable

    # Constants for all instances. Other attributes are in slots, where Python finds them faster.
    rule = None
    saved = None
    guard = None


#: What is to be added to a `.grad`: the leaf, its gradient, and whether nothing else refers to the
#: gradient's array. None in place of the latter: the gradient replaces the `.grad`, and is copied.
Staged: TypeAlias = tuple[Variable, Gradient, bool | None]
#: In the progress of a change (see `core/commit.py`): it is to put a tensor in place of a `.grad`.
REPLACES: Final = -1

# Set in `asyncgrad/_wiring.py`.
#: Makes an empty tensor of the public class.
new_tensor: Callable[[], Variable] = Variable
#: Takes a view again from its base, recorded, and returns its edge.
edge_from_base: Callable[[View], StoredEdge] = unbound


def wrap(array: Array, metadata: Metadata, edge: StoredEdge = None) -> Any:
    """A new tensor with this array, metadata and edge."""
    variable = new_tensor()
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
        # As in `extras_of`.
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
    accumulator = AccumulateGrad()
    accumulator.following = ()
    accumulator.topological_nr = 0
    accumulator.sequence_nr = MAX_SEQUENCE_NR
    accumulator.output_metadata = metadata = variable._metadata
    # The cost matters only with hooks; `GraphTask.run` counts none for other leaves.
    accumulator.cost = metadata.cost
    accumulator.variable = variable
    latest = ref(accumulator)
    # As in `extras_of`.
    if meta.accumulator is not reference:
        return gradient_edge(variable)
    accumulator.extras = meta.extras
    meta.accumulator = latest
    return accumulator


def _renewed_edge(variable: Variable, view: View) -> Any:
    """The edge of a view that lacks one because its base has changed or needs no gradient."""
    counter = variable._counter
    if counter is None or counter.value == view.version or gradient_edge(view.base) is None:
        return None
    if creation_meta_of(view) is not None:
        refuse_change(view.creation_meta, indirect=True)
    edge = edge_from_base(view)
    view.version = counter.value
    variable._edge = edge
    counter.register(variable)
    meta = variable._autograd
    if meta is not None and meta.retains_grad:
        retain(variable)
    return edge


def view_of(variable: Variable) -> View | None:
    """The `View` of a variable, None if it is not a view."""
    meta = variable._autograd
    return None if meta is None else meta.view


def creation_meta_of(view: View) -> str | None:
    """Why a view can't be changed in place while recording, or None."""
    meta = view.base._autograd
    if meta is not None and view.version < meta.transposed_at and view.creation_meta is None:
        # The path started from the base's old axes, which have changed since.
        view.creation_meta = "transposed"
    return view.creation_meta


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
        # As in `extras_of`.
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
    meta = variable._autograd
    if meta is None or not meta.inference:
        (variable._counter or counter_of(variable)).value += 1


def version_of(variable: Variable) -> int:
    """How many in-place changes the variable and its aliases have seen."""
    if is_inference(variable):
        raise AutogradError("Inference tensors do not track version counter.")
    counter = variable._counter
    return 0 if counter is None else counter.version


def is_inference(variable: Variable) -> bool:
    """Whether the variable was made in inference mode."""
    meta = variable._autograd
    return meta is not None and meta.inference


def hooks_of(variable: Variable, what: str) -> tuple[NodeExtras, int]:
    """Where hooks on a tensor are stored: with its node, or with the leaf's accumulator."""
    edge = gradient_edge(variable)
    if edge is None:
        raise AutogradError(
            f"cannot {what} a tensor that doesn't require gradient. Call requires_grad_() first."
        )
    node, position = as_edge(edge)
    assert node is not None
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


def retain(variable: Variable) -> None:
    """Keep the gradient that reaches a variable's node in the variable's `.grad`."""
    extras, position = hooks_of(variable, "retain the gradient of")
    extras.retain[position] = ref(variable)
