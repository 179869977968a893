"""The tensor class that users see: a `Variable` with operators and PyTorch's methods.

This file is long because it is one class, of which Python wants all in one place: what the table's
rows do not give to tensors.
"""

from __future__ import annotations

from operator import methodcaller
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar, overload

import numpy as np

from asyncgrad.autograd.passes import backward_from
from asyncgrad.core.frames import warn
from asyncgrad.core.history import (
    leave_graphs,
    make_constant,
    retain_grad,
    start_requiring,
    stop_requiring,
)
from asyncgrad.core.hooks import RemovableHandle
from asyncgrad.core.modes import current, refuse_in_transform
from asyncgrad.core.node import Edge, Node, as_edge, name_of, shown
from asyncgrad.core.recording import (
    called_anew,
    note_look,
    recorders,
    second_array,
    unrepeatable,
)
from asyncgrad.core.variable import (
    ANY_DTYPE,
    AutogradMeta,
    Variable,
    autograd_meta,
    bump_version,
    counter_of,
    grad_dtype,
    gradient_edge,
    hooks_of,
    is_inference,
    requires_grad,
    version_of,
    view_of,
    wrap,
)
from asyncgrad.devices import CPU, Device
from asyncgrad.errors import AutogradError, class_of
from asyncgrad.ops.api import (
    CHAPTERS,
    complex_parts,
    elementwise,
    linalg,
    rearrange,
    transcendental,
)
from asyncgrad.ops.api import index as indexing
from asyncgrad.ops.api import shape as shaping
from asyncgrad.ops.api.data import by_size_or_data
from asyncgrad.ops.arguments import check_bool, one_dim
from asyncgrad.ops.dispatch import operator_dispatch
from asyncgrad.ops.dtype import DType
from asyncgrad.ops.dtype_device import as_dtype, as_memory_format, layout, memory_format
from asyncgrad.ops.forward import tangent_of
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.namespace import metadata_of
from asyncgrad.ops.promotion import as_number, category, default_dtype
from asyncgrad.ops.registry import OPS
from asyncgrad.ops.storage import Storage, address, part_of, storage_of
from asyncgrad.ops.table.strided import strides_of
from asyncgrad.ops.tensors import copies, in_place
from asyncgrad.ops.tensors.new_tensors import place_of
from asyncgrad.ops.tensors.printing import text_of
from asyncgrad.ops.tensors.sparse_rows import Rows
from asyncgrad.ops.tensors.transfer import on_host, seen

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence

    from asyncgrad._methods import Methods
    from asyncgrad.choices import Wait
    from asyncgrad.core.size import Size
    from asyncgrad.scheduler import BackwardFuture

    #: The type of one element; complex is left out, as in PyTorch's annotations.
    Number = int | float | bool
else:
    Methods = Variable

__all__ = ["Tensor"]

_T = TypeVar("_T", bound="Tensor")
_ITEM = methodcaller("item")
_TOLIST = methodcaller("tolist")

contiguous_format = memory_format.contiguous_format


class Tensor(Methods):
    """An array that records how it was computed.

    Made by `asyncgrad.tensor`, `zeros` and similar functions, and by operations on tensors. The
    constructor itself behaves as PyTorch's: see `__new__`.
    """

    __slots__ = ()

    #: Makes NumPy leave operators between arrays and tensors to the tensor's methods.
    __array_ufunc__ = None

    def __new__(cls, *args: Any, device: Any = None, **kwargs: Any) -> Self:
        """Make a tensor of the default dtype; `tensor` and `empty` are clearer.

        Args:
            args: a shape, as numbers or as one `Size` (the values are arbitrary); or data: a
                sequence of numbers, an array, or a tensor, whose memory is shared.
            device: the device of the new tensor; the default device if None.
            kwargs: one of `size`, `data` or `other`, instead of `args`.
        """
        place = place_of("new", device)
        made = by_size_or_data("new", default_dtype(), place, args, any_dtype=True, **kwargs)
        return made if cls is Tensor else made.as_subclass(cls)

    def as_subclass(self, cls: type[_T]) -> _T:
        """The same tensor as an instance of a subclass; results computed from it are plain."""
        if not (isinstance(cls, type) and issubclass(cls, Tensor)):
            raise TypeError(f"as_subclass: cls must be a type that inherits from Tensor, got {cls}")
        same: _T = copies.of_class(shaping.view(self, self._metadata.shape), cls)
        return same

    @staticmethod
    def _make_subclass(cls: Any, data: Tensor, require_grad: bool = False) -> Any:
        """A leaf of a subclass that shares a tensor's memory."""
        made: Any = data.detach().as_subclass(cls)
        return made.requires_grad_(require_grad)

    # -- properties of the elements and of memory -------------------------------------------------

    @property
    def shape(self) -> Size:
        """The length of each axis."""
        return self._metadata.user_shape

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        return self._metadata.user_dtype

    @property
    def device(self) -> Device:
        """The device that the elements are on."""
        return self._metadata.device

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._metadata.shape)

    def dim(self) -> int:
        """The number of axes."""
        return len(self._metadata.shape)

    def numel(self) -> int:
        """The number of elements."""
        return self._metadata.size

    ndimension = dim
    nelement = numel

    @overload
    def size(self, dim: None = None) -> Size: ...
    @overload
    def size(self, dim: int) -> int: ...
    def size(self, dim: int | None = None) -> Size | int:
        """The shape, or the length of one axis."""
        shape = self._metadata.user_shape
        return shape if dim is None else shape[one_dim("size", dim, len(shape))]

    @overload
    def stride(self, dim: None = None) -> tuple[int, ...]: ...
    @overload
    def stride(self, dim: int) -> int: ...
    def stride(self, dim: int | None = None) -> tuple[int, ...] | int:
        """The distance in elements between neighbours along each axis, or along one."""
        strides = strides_of(self._array)
        return strides if dim is None else strides[one_dim("stride", dim, len(strides))]

    def storage_offset(self) -> int:
        """The offset of the first element in the memory of a view's base, in elements."""
        view = view_of(self)
        if view is None:
            return 0
        return (self.data_ptr() - address(view.base._array)) // self.element_size()

    def is_contiguous(self, memory_format: Any = contiguous_format) -> bool:
        """Whether the elements are contiguous in memory, in row-major order.

        Args:
            memory_format: channels-last formats require the second axis to be innermost in memory.
        """
        array = self._array
        if memory_format is not contiguous_format:
            rank = as_memory_format("is_contiguous", memory_format)
            if rank:
                if array.ndim != rank:
                    return False
                array = np.moveaxis(array, 1, -1)
        return bool(array.flags.c_contiguous)

    def element_size(self) -> int:
        """The size of one element in bytes."""
        return int(self._metadata.dtype.itemsize)

    @property
    def itemsize(self) -> int:
        """The size of one element in bytes."""
        return int(self._metadata.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """The size of all elements in bytes."""
        return self._metadata.size * int(self._metadata.dtype.itemsize)

    @property
    def layout(self) -> layout:
        """How the elements are stored; always `strided`."""
        return layout.strided

    @property
    def is_cpu(self) -> bool:
        """Whether the elements are in host memory."""
        return bool(self._metadata.device.type == "cpu")

    @property
    def is_cuda(self) -> bool:
        """Whether the elements are on a CUDA device."""
        return bool(self._metadata.device.type == "cuda")

    #: asyncgrad has no such tensors.
    is_ipu = is_maia = is_meta = is_mkldnn = is_mps = is_mtia = is_nested = is_quantized = False
    is_sparse_csr = is_vulkan = is_xla = is_xpu = False

    def is_shared(self) -> bool:
        """Always False: no tensor is in memory shared by processes."""
        return False

    def to_sparse(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse: gradients of embedding rows are the only sparse tensors."""
        raise NotImplementedError(
            "to_sparse: COO and CSR tensors are left out. Keep the tensor dense, or use "
            "nn.functional.embedding(sparse=True), whose gradients are made of rows."
        )

    def untyped_storage(self) -> Storage:
        """The tensor's memory as bytes."""
        return storage_of(self, None)

    def storage(self) -> Storage:
        """The tensor's memory as elements of its dtype."""
        return storage_of(self, self.dtype)

    def is_set_to(self, tensor: Tensor) -> bool:
        """Whether another tensor has the same memory, shape and strides."""
        return bool(
            self.data_ptr() == tensor.data_ptr()
            and self.shape == tensor.shape
            and self.stride() == tensor.stride()
        )

    def data_ptr(self) -> int:
        """The address of the first element."""
        return address(self._array)

    def is_floating_point(self) -> bool:
        """Whether the dtype is a real floating-point type."""
        return category(self._metadata.dtype) == 2

    @property
    def is_sparse(self) -> bool:
        """Whether the tensor is a sparse gradient: some rows of a table."""
        return isinstance(self._array, Rows)

    def is_complex(self) -> bool:
        """Whether the dtype is complex."""
        return self._metadata.is_complex

    @property
    def is_leaf(self) -> bool:
        """Whether the tensor has no `grad_fn`."""
        return self.grad_fn is None

    @property
    def grad_fn(self) -> Node | None:
        """The node that computed the tensor, None for leaves."""
        if recorders and (recorder := current().recorder) is not None:
            recorder.shows_node(self)
        return shown(as_edge(self._edge_now()).node)

    def _edge_now(self) -> Any:
        """The tensor's edge; for a view whose base was changed, the edge is made anew."""
        if self._edge is None and view_of(self) is not None:
            gradient_edge(self)
        return self._edge

    @property
    def output_nr(self) -> int:
        """The number of the tensor among the outputs of `grad_fn`."""
        edge = self._edge_now()
        return edge.input_nr if edge.__class__ is Edge else 0

    @property
    def _version(self) -> int:
        return version_of(self)

    # -- gradients --------------------------------------------------------------------------------

    @property
    def requires_grad(self) -> bool:
        """Whether the tensor is part of a graph, or a leaf that asks for gradients."""
        return requires_grad(self)

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if value is not True and value is not False:
            raise AutogradError(f"requires_grad must be a bool, not {class_of(value)}")
        # As in PyTorch, the setter raises for computed tensors also for True.
        self.requires_grad_(value and self.is_leaf)

    @requires_grad.deleter
    def requires_grad(self) -> None:
        raise AutogradError("requires_grad must be a bool. Set it to False, or detach the tensor.")

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Start or stop to require a gradient of this leaf.

        Raises:
            RuntimeError: for a computed tensor, or a dtype without gradients; or inside of a
                function that `asyncgrad.func` differentiates.
        """
        check_bool("requires_grad_", "requires_grad", requires_grad)
        if requires_grad:
            refuse_in_transform("Tensor.requires_grad_()")
        if self._edge_now() is not None:
            if requires_grad:
                return self
            raise AutogradError(
                "you can only change requires_grad flags of leaf variables. If you want to use a "
                "computed variable in a subgraph that doesn't require differentiation use "
                "var_no_grad = var.detach()."
            )
        if requires_grad and category(self._metadata.dtype) < 2:
            raise AutogradError(
                f"only Tensors of floating point dtype can require gradients, got "
                f"{self._metadata.dtype}. Convert it with .to(asyncgrad.float32) first."
            )
        if requires_grad and is_inference(self) and not current().inference:
            raise AutogradError(
                "Setting requires_grad=True on inference tensor outside InferenceMode is not "
                "allowed. Make a clone to get a normal tensor."
            )
        if requires_grad:
            start_requiring(self)
        else:
            stop_requiring(self)
        return self

    @property
    def grad(self) -> Tensor | None:
        """The gradient that passes have accumulated; None before the first pass."""
        meta = self._autograd
        grad = None if meta is None else meta.grad
        if recorders and (recorder := current().recorder) is not None:
            recorder.reads_gradient(self, grad)
        if grad is None and not self.is_leaf and not self.retains_grad:
            warn(
                "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its "
                ".grad attribute won't be populated during autograd.backward(). If you indeed "
                "want the .grad field to be populated for a non-leaf Tensor, use .retain_grad() "
                "on the non-leaf Tensor. If you access the non-leaf Tensor by mistake, make sure "
                "you access the leaf Tensor instead."
            )
        return grad  # type: ignore[return-value]

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        meta = self._autograd
        if value is None and meta.__class__ is AutogradMeta and not recorders:
            # Every training step does this to every parameter.
            meta.grad = None
        else:
            self._set_grad(value)

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    @called_anew
    def _set_grad(self, value: Tensor | None) -> None:
        if value is not None:
            if not isinstance(value, Variable):
                raise TypeError(
                    f"assigned grad expected to be a Tensor or None but got grad of type "
                    f"{class_of(value)}"
                )
            if value is self:
                raise AutogradError("can't assign Variable as its own grad")
            dtype = grad_dtype(self)
            if dtype is not None and value._metadata.dtype != dtype:
                raise AutogradError(
                    f"attempting to assign a gradient with dtype '{value.dtype}' to a tensor with "
                    f"grad_dtype '{dtype}'. The gradient must match the tensor's grad_dtype "
                    f"(defaults to the tensor's dtype). Convert it, or set grad_dtype first."
                )
            if value._metadata.device is not self._metadata.device:
                raise AutogradError(
                    f"attempting to assign a gradient on device '{value.device}' to a tensor on "
                    f"device '{self.device}'. Please ensure that the gradient and the tensor are "
                    f"on the same device"
                )
            if value._metadata.shape != self._metadata.shape:
                raise AutogradError(
                    f"attempting to assign a gradient of size '{list(value.shape)}' to a tensor "
                    f"of size '{list(self.shape)}'. Please ensure that the gradient and the "
                    f"tensor are the same size"
                )
        autograd_meta(self).grad = value

    @property
    def grad_dtype(self) -> DType | None:
        """The dtype to which this leaf's gradient is cast; None means no cast.

        Raises:
            RuntimeError: for a computed tensor, or if a gradient of another dtype is already there.
        """
        if not self.is_leaf:
            raise AutogradError("grad_dtype can only be accessed on leaf tensors.")
        dtype = grad_dtype(self)
        return None if dtype is None else DType(dtype)

    @grad_dtype.setter
    def grad_dtype(self, dtype: Any) -> None:
        if not self.is_leaf:
            raise AutogradError("grad_dtype can only be set on leaf tensors.")
        if dtype is not None:
            if not isinstance(dtype, (DType, np.dtype)):
                raise AutogradError(
                    f"grad_dtype must be a dtype or None, but got {type(dtype).__name__}"
                )
            dtype = as_dtype("grad_dtype", dtype)
        meta = autograd_meta(self)
        if dtype is not None and meta.grad is not None and meta.grad._metadata.dtype != dtype:
            raise AutogradError(
                f"Cannot set grad_dtype to '{dtype}' because there is already a gradient with "
                f"dtype '{meta.grad._metadata.dtype}'. Please clear the gradient (.grad = None) "
                f"before changing grad_dtype."
            )
        meta.grad_dtype = ANY_DTYPE if dtype is None else dtype

    def backward(
        self, gradient: Tensor | None = None, retain_graph: bool | None = None,
        create_graph: bool = False, inputs: Sequence[Tensor] | Tensor | None = None, *,
        priority: int | None = None, deadline: float | None = None, wait: Wait = "done",
    ) -> BackwardFuture[None]:  # fmt: skip
        """Accumulate the gradients of this tensor into the leaves from which it was computed.

        The call checks the arguments and starts the pass. On a running event loop it returns a
        future to await. Without a loop, the pass has ended when the call returns.

        Args:
            gradient: the derivative of the final result by this tensor, of the tensor's shape;
                may be left out for a tensor with one element.
            retain_graph: keep saved values for another pass; the default is `create_graph`.
            create_graph: record the pass, so that its gradients can be differentiated.
            inputs: accumulate only into these tensors.
            priority: larger is more urgent; the default is `request()`'s, or 0.
            deadline: the loop time at which the pass is given up; the default is `request()`'s.
            wait: for devices with streams. With "done" the pass ends when the devices have done its
                work; with "enqueued", once the caller's streams wait for that work.

        Returns:
            A `BackwardFuture`; without a loop, a finished awaitable.

        Raises:
            RuntimeError: if the tensor requires no grad or `gradient` does not fit; from the
                future, if the graph has been freed or a node fails.
        """
        return backward_from(
            (self,), gradient, retain_graph, create_graph, inputs, priority, deadline, wait
        )

    def detach(self) -> Tensor:
        """A tensor that shares the memory and has no graph."""
        array = self._array
        if recorders or current().dual_level is not None:
            array = second_array(self, current())
        out: Tensor = wrap(array, self._metadata)
        if is_inference(self):
            autograd_meta(out).inference = True
        else:
            out._counter = counter = counter_of(self)
            if self._autograd is not None or counter.aliases is not None:
                counter.register_alias(out)
        return out

    def detach_(self) -> Tensor:
        """Remove this tensor from the graph.

        Raises:
            RuntimeError: for a view, which would get its graph back from its base.
        """
        if view_of(self) is not None:
            raise AutogradError("Can't detach views in-place. Use detach() instead.")
        if recorders and (recorder := current().recorder) is not None:
            recorder.cuts_off(self)
        make_constant(self)
        if current().dual_level is not None:
            self._array = self._array.view()
        return self

    def is_inference(self) -> bool:
        """Whether the tensor was made in inference mode; then it can't be saved for backward."""
        return is_inference(self)

    def _is_view(self) -> bool:
        return view_of(self) is not None

    @property
    def _base(self) -> Tensor | None:
        view = view_of(self)
        return None if view is None else view.base  # type: ignore[return-value]

    @called_anew
    def _set_data(self, array: Any, metadata: Any) -> None:
        before = self._metadata
        if metadata.dtype != before.dtype or metadata.device is not before.device:
            leave_graphs(self)
        self._array, self._metadata = array, metadata

    @property
    def data(self) -> Tensor:
        """A tensor that shares the memory, without graph and with its own version counter."""
        array = self._array
        if recorders or current().dual_level is not None:
            array = second_array(self, current())
        out = wrap(array, self._metadata)
        if is_inference(self):
            autograd_meta(out).inference = True
        return out

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, Variable):
            raise TypeError(f"Variable data has to be a tensor, but got {class_of(value)}")
        if category(value._metadata.dtype) < 2 and self.requires_grad:
            raise AutogradError(
                f"data set to a tensor that requires gradients must be floating point or complex "
                f"dtype, got {value._metadata.dtype}"
            )
        self._set_data(value._array, value._metadata)

    @data.deleter
    def data(self) -> None:
        raise AutogradError("Deleting tensor data is not allowed. Delete tensor instead!")

    def set_(
        self, source: Any = None, storage_offset: int = 0, size: Any = None, stride: Any = None
    ) -> Tensor:
        """Make this tensor use other memory, with that memory's shape or a given one.

        A leaf is then no input of graphs that were made before: `grad()` doesn't find it there.

        Args:
            source: a tensor of the same dtype, or a storage on the host; None is an empty tensor.
            storage_offset: the number of elements in a storage before the first one.
            size: the shape; if None, the whole storage as one axis.
            stride: the strides; if None, those of a contiguous tensor.

        Raises:
            RuntimeError: for another dtype or device, a tensor that requires grad or is a view, or
                a storage that is too small.
        """
        unrepeatable("gives a tensor other memory")
        metadata = self._metadata
        if requires_grad(self) and current().grad:
            raise AutogradError(
                "a leaf Variable that requires grad is being used in an in-place operation."
                if self.is_leaf
                else "set_ of a computed tensor would lose its history. Use the source instead."
            )
        if view_of(self) is not None:
            raise AutogradError("set_ of a view is not supported. Make a clone first.")
        if source is None:
            source = self.new()
        if isinstance(source, Variable) and size is not None:
            source = storage_of(source, source._metadata.user_dtype)
        if isinstance(source, Storage) and source.dtype not in {None, metadata.user_dtype}:
            raise AutogradError(
                f"set_: Expected a Storage of type {metadata.user_dtype} or an UntypedStorage, but "
                f"got type {source.dtype}"
            )
        if isinstance(source, Storage) and source.device is CPU is metadata.device:
            array = part_of(source, metadata.dtype, storage_offset, size, stride)
            found = metadata_of(array, CPU)
        elif isinstance(source, Variable) and source._metadata.device is metadata.device:
            array, found = source._array, source._metadata
        elif isinstance(source, (Variable, Storage)):
            raise AutogradError(
                f"set_: expected memory on {metadata.device}, got {source.device}. Move it first."  # type: ignore[union-attr]
            )
        else:
            raise TypeError(
                f"set_() received an invalid combination of arguments: a Tensor or a storage is "
                f"needed, not {class_of(source)}"
            )
        if found.dtype != metadata.dtype:
            raise AutogradError(
                f"Could not set tensor of type {found.dtype} to a tensor of type {metadata.dtype}"
            )
        if not current().inference:
            leave_graphs(self)
        self._array, self._metadata = array, found
        bump_version(self)
        return self

    @property
    def retains_grad(self) -> bool:
        """Whether this computed tensor keeps its gradient in `.grad`, after `retain_grad()`."""
        return self._autograd is not None and self._autograd.retains_grad

    def retain_grad(self) -> None:
        """Make passes keep the gradient of this computed tensor in `.grad`, too."""
        refuse_in_transform("Tensor.retain_grad()")
        retain_grad(self)

    def register_hook(
        self, hook: Callable[[Tensor], Tensor | Coroutine[Any, Any, Tensor | None] | None]
    ) -> RemovableHandle:
        """Call a function with each gradient of this tensor; its result replaces the gradient.

        Args:
            hook: a function or coroutine function of the gradient that returns None or a
                gradient of the same shape.
        """
        extras, position = hooks_of(self, "register a hook on")
        return RemovableHandle(extras.tensor.setdefault(position, {}), hook)

    def register_post_accumulate_grad_hook(
        self, hook: Callable[[Tensor], Coroutine[Any, Any, None] | None]
    ) -> RemovableHandle:
        """Call a function with this leaf each time a pass has accumulated into its `.grad`.

        With such a hook, the leaf's gradient is committed as soon as it is complete, not at the end
        of the pass; it stays if the pass fails later.

        Args:
            hook: a function or coroutine function of the leaf that returns None.

        Raises:
            RuntimeError: if the tensor is no leaf or requires no grad.
        """
        if self._edge_now() is not None:
            raise AutogradError(
                "post accumulate grad hooks cannot be registered on non-leaf tensors"
            )
        hooks_of(self, "register a hook on")
        meta = autograd_meta(self)
        if meta.post_accumulate is None:
            meta.post_accumulate = {}
        return RemovableHandle(meta.post_accumulate, hook)

    # -- values -----------------------------------------------------------------------------------

    def numpy(self, *, force: bool = False) -> np.ndarray[Any, Any]:
        """The elements as a NumPy array that shares the tensor's memory.

        Args:
            force: also allow a tensor that requires grad.

        Raises:
            RuntimeError: if the tensor requires grad, unless `force` or within `no_grad`.
        """
        if not force and requires_grad(self) and current().grad:
            raise AutogradError(
                "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() "
                "instead."
            )
        if self._metadata.device.streamed:
            raise TypeError(
                f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() to "
                f"copy the tensor to host memory first."
            )
        if self.is_sparse:
            self._array.__array__()
        if recorders:
            note_look("numpy()")
        array: np.ndarray[Any, Any] = self._array
        return array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """The elements as an array, for `numpy.asarray`."""
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    def item(self) -> Number:
        """The single element as a Python number."""
        if self._metadata.size != 1:
            raise AutogradError(
                f"a Tensor with {self._metadata.size} elements cannot be converted to Scalar. "
                f"Reduce it or index it first."
            )
        # Loops that log read an item in each step, and a call of `_ITEM` costs half as much.
        return seen(self, _ITEM) if recorders else on_host(self).item()

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers."""
        return seen(self, _TOLIST)

    def __float__(self) -> float:
        return float(self._real_number())

    def __int__(self) -> int:
        """The single element, truncated to an int."""
        return int(self._real_number())

    def __complex__(self) -> complex:
        return complex(self._one_number())

    def _one_number(self) -> Any:
        if self._metadata.size != 1:
            raise ValueError(
                f"only one element tensors can be converted to Python scalars, got shape "
                f"{self._metadata.shape}. Reduce or index it first."
            )
        return self.item()

    def _real_number(self) -> Any:
        number = self._one_number()
        if isinstance(number, complex):
            if number.imag:
                raise AutogradError(
                    f"value cannot be converted to type double without overflow: {number}. Take "
                    f"its real part first."
                )
            return number.real
        return number

    def __bool__(self) -> bool:
        size = self._metadata.size
        if size != 1:
            count = "more than one value" if size else "no values"
            raise AutogradError(
                f"Boolean value of Tensor with {count} is ambiguous. Use .any() or .all()."
            )
        return seen(self, bool)

    def __index__(self) -> int:
        if category(self._metadata.dtype) > 1 or self._metadata.size != 1:
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return int(self.item())

    def __len__(self) -> int:
        if not self._metadata.shape:
            raise TypeError("len() of a 0-d tensor")
        return self._metadata.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self._metadata.shape:
            raise TypeError("iteration over a 0-d tensor")
        return iter(shaping.unbind(self, 0))

    def __contains__(self, element: Any) -> bool:
        """Whether a number is among the elements, or any element equals a tensor's, broadcast."""
        if isinstance(element, Variable) or as_number(element) is not None:
            return bool((self == element).any())
        raise AutogradError(
            f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a "
            f"{type(element).__name__}."
        )

    def __delitem__(self, index: Any) -> NoReturn:
        """Refuse: elements can't be deleted."""
        raise TypeError("Tensor does not support deleting items. Index what is to stay.")

    def __reversed__(self) -> Tensor:
        return shaping.flip(self, (0,)) if self.ndim else self

    def __format__(self, format_spec: str) -> str:
        """Format the number of a 0-d tensor; other tensors are formatted as their `repr`."""
        if self._metadata.shape or type(self) is not Tensor:
            return object.__format__(self, format_spec)
        return format(self.item(), format_spec)

    def __await__(self) -> Generator[Any, None, Tensor]:
        """Give the tensor itself, so that finished results can be awaited like pending ones."""
        yield from ()
        return self

    def __repr__(self) -> str:
        """The values, and `grad_fn` or `requires_grad`."""
        if self.is_sparse:
            rows = self._array
            return (
                f"tensor(rows={rows.indices.tolist()}, values={np.array2string(rows.values)}, "
                f"size={self.shape}, nnz={len(rows.indices)}, layout=sparse_rows)"
            )
        device = self._metadata.device
        values = on_host(self)
        suffixes = [f"device='{device}'"] if device.type != "cpu" else []
        try:
            node = self.grad_fn
            name = None if node is None else name_of(node)
        except AutogradError:
            # The tensor is a view whose base was changed in a way that forbids its use.
            name = "Invalid"
        if name is not None:
            suffixes.append(f"grad_fn=<{name}>")
        elif self.requires_grad:
            suffixes.append("requires_grad=True")
        level = current().dual_level
        tangent = None if level is None else tangent_of(self, level)
        if tangent is not None:
            suffixes.append(f"tangent={tangent!r}")
        return text_of(values, suffixes)

    __hash__ = object.__hash__
    __copy__ = copies.shallow_copy
    __deepcopy__ = copies.deep_copy
    __reduce_ex__ = copies.reduced

    # -- operators; those with two operands are in `_OPERATORS` below -----------------------------

    if not TYPE_CHECKING:  # Their types are in `Methods`.
        __matmul__ = linalg.operator_product
        __neg__ = R.neg
        __pos__ = elementwise.positive
        __abs__ = R.abs
        __getitem__ = indexing.getitem
        __setitem__ = indexing.setitem

    def __rmatmul__(self, other: Any) -> Tensor:
        return linalg.operator_product(other, self)

    def __invert__(self) -> Tensor:
        """Invert booleans, or the bits of integers."""
        if category(self._metadata.dtype) > 1:
            raise TypeError(
                f"~ (operator.invert) is only implemented on integer and Boolean-type tensors, "
                f"got {self._metadata.dtype}"
            )
        return R.bitwise_not(self)

    def where(self, condition: Tensor, other: Tensor | complex) -> Tensor:
        """The elements where the condition is true, those of `other` elsewhere."""
        return elementwise.where(condition, self, other)

    def polygamma(self, n: int) -> Tensor:
        """The derivative of `digamma` of order `n`."""
        return transcendental.polygamma(n, self)

    def polygamma_(self, n: int) -> Tensor:
        """`polygamma`, in place."""
        return in_place.change(self, "polygamma_", Tensor.polygamma, n)

    # -- in place ---------------------------------------------------------------------------------

    def abs_(self) -> Tensor:
        """Replace elements by their absolute values.

        Raises:
            RuntimeError: for complex numbers, whose absolute values are real.
        """
        if self._metadata.is_complex:
            raise AutogradError("In-place abs is not supported for complex tensors. Use abs().")
        return in_place.change(self, "abs_", R.abs)

    absolute_ = abs_

    def copy_(self, other: Tensor, non_blocking: bool = False) -> Tensor:
        """Copy the values of another tensor, broadcast, from any device.

        Args:
            non_blocking: do not wait for a copy from pinned memory.
        """
        return in_place.copy(self, other, non_blocking=non_blocking)

    def zero_(self) -> Tensor:
        """Set all elements to zero."""
        return in_place.fill(self, 0, "zero_")

    def fill_(self, value: Tensor | complex) -> Tensor:
        """Set all elements to a number."""
        return in_place.fill(self, value)

    # -- complex parts and transposed tensors -----------------------------------------------------

    @property
    def real(self) -> Tensor:
        """The real part: a view of a complex tensor, a real tensor itself."""
        return complex_parts.real(self)

    @real.setter
    def real(self, value: Tensor | complex) -> None:
        complex_parts.real(self)[...] = value

    @property
    def imag(self) -> Tensor:
        """The imaginary part of a complex tensor, a view."""
        return complex_parts.imag(self)

    @imag.setter
    def imag(self, value: Tensor | complex) -> None:
        complex_parts.imag(self)[...] = value

    @property
    def H(self) -> Tensor:
        """The conjugate transpose of a matrix; raises RuntimeError unless there are 0 or 2 axes."""
        if self.ndim not in {0, 2}:
            raise AutogradError(
                f"tensor.H is only supported on matrices (2-D tensors). Got {self.ndim}-D tensor. "
                f"For batches of matrices, consider using tensor.mH"
            )
        return rearrange.adjoint(self)

    @property
    def mH(self) -> Tensor:
        """The conjugate transpose: the last two axes exchanged."""
        return rearrange.adjoint(self)

    @property
    def T(self) -> Tensor:
        """The tensor with its axes reversed."""
        return R.permute(self, tuple(range(self.ndim))[::-1])

    @property
    def mT(self) -> Tensor:
        """The tensor with its last two axes exchanged."""
        if self.ndim == 1:
            raise AutogradError(
                "tensor.mT is only supported on matrices or batches of matrices. Got 1-D tensor."
            )
        if not self.ndim:
            warn(
                "Tensor.mT is deprecated on 0-D tensors. This function is the identity in these "
                "cases."
            )
            return self
        return shaping.transpose(self, -2, -1)


#: The operators of two operands that have reflected and in-place forms, and their functions.
_OPERATORS = {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floor_divide",
    "mod": "remainder", "pow": "pow", "and": "bitwise_and", "or": "bitwise_or",
    "xor": "bitwise_xor", "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift",
}  # fmt: skip


def _attach_functions() -> None:
    """Add operators, and the methods and in-place methods that the chapters list, to `Tensor`."""
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        setattr(Tensor, f"__{name}__", operator_dispatch(OPS[name]))
    for name, function in _OPERATORS.items():
        setattr(Tensor, f"__{name}__", operator_dispatch(OPS[function]))
        setattr(Tensor, f"__r{name}__", operator_dispatch(OPS[function], reflected=True))
        setattr(Tensor, f"__i{name}__", in_place.operator(getattr(R, function), f"{function}_"))
    Tensor.__rdiv__ = operator_dispatch(OPS["div"], reflected=True)  # type: ignore[method-assign]
    for chapter in CHAPTERS:
        for name in chapter.METHODS:
            function = getattr(chapter, name)
            setattr(Tensor, name, getattr(function, "dispatch", function))
        for name in chapter.IN_PLACE:
            function = getattr(chapter, name)
            function = getattr(function, "dispatch", function)
            setattr(Tensor, f"{name}_", in_place.method(function, f"{name}_"))


_attach_functions()
