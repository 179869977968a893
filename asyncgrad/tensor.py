"""The tensor that users see: a `Variable` with operators and PyTorch's methods."""

from __future__ import annotations

import warnings
from functools import partial
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np

from asyncgrad.autograd.passes import backward_from
from asyncgrad.core.hooks import RemovableHandle
from asyncgrad.core.modes import current, refuse_in_transform
from asyncgrad.core.node import Edge, Node, as_edge, shown
from asyncgrad.core.variable import (
    ANY_DTYPE,
    AutogradMeta,
    Variable,
    autograd_meta,
    bump_version,
    counter_of,
    cut_off,
    grad_dtype,
    gradient_edge,
    hooks_of,
    is_inference,
    requires_grad,
    retain_grad,
    stop_requiring,
    version_of,
    view_of,
    wrap,
)
from asyncgrad.devices import CPU
from asyncgrad.errors import AutogradError
from asyncgrad.ops import comparison_dispatch, dispatch, elementwise_dispatch, single_dispatch
from asyncgrad.ops.api import CHAPTERS, complex_parts, elementwise, linalg, rearrange
from asyncgrad.ops.api import index as indexing
from asyncgrad.ops.api import shape as shaping
from asyncgrad.ops.api.data import by_size_or_data
from asyncgrad.ops.arguments import check_bool, one_dim
from asyncgrad.ops.dtype import DType
from asyncgrad.ops.dtype_device import as_dtype, as_memory_format, layout, memory_format
from asyncgrad.ops.forward import tangent_of
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.namespace import metadata_of
from asyncgrad.ops.promotion import as_number, category, default_dtype
from asyncgrad.ops.registry import OPERATORS, REFLECTED
from asyncgrad.ops.storage import Storage, address, part_of, storage_of
from asyncgrad.ops.tensors import copies, in_place
from asyncgrad.ops.tensors.new_tensors import place_of
from asyncgrad.ops.tensors.printing import text_of
from asyncgrad.ops.tensors.sparse_rows import Rows
from asyncgrad.ops.tensors.transfer import on_host

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
    from typing import Protocol

    from asyncgrad.core.size import Size

    #: What one element is; complex numbers are left out, as in PyTorch's annotations.
    Number = int | float | bool

    class _Unary(Protocol):
        def __call__(self) -> Tensor: ...

    class _Binary(Protocol):
        def __call__(self, other: Any, /) -> Tensor: ...


__all__ = ["Tensor"]

contiguous_format, preserve_format = memory_format.contiguous_format, memory_format.preserve_format


class Tensor(Variable):
    """An array that remembers how it was computed.

    Made by `asyncgrad.tensor`, `zeros` and their kin, and by operations on other tensors. Called
    itself it does what PyTorch's does: see `__new__`.
    """

    __slots__ = ()

    #: NumPy leaves operators between arrays and tensors to the tensor.
    __array_ufunc__ = None

    if TYPE_CHECKING:
        # The methods that `_attach_functions` adds give a tensor, but for these.
        allclose: Callable[..., bool]
        equal: Callable[..., bool]
        is_coalesced: Callable[..., bool]
        is_conj: Callable[..., bool]
        is_neg: Callable[..., bool]
        is_nonzero: Callable[..., bool]
        is_pinned: Callable[..., bool]
        is_same_size: Callable[..., bool]
        dense_dim: Callable[..., int]
        get_device: Callable[..., int]
        sparse_dim: Callable[..., int]
        chunk: Callable[..., tuple[Tensor, ...]]
        dsplit: Callable[..., tuple[Tensor, ...]]
        hsplit: Callable[..., tuple[Tensor, ...]]
        split: Callable[..., tuple[Tensor, ...]]
        split_with_sizes: Callable[..., tuple[Tensor, ...]]
        tensor_split: Callable[..., tuple[Tensor, ...]]
        unbind: Callable[..., tuple[Tensor, ...]]
        unsafe_chunk: Callable[..., tuple[Tensor, ...]]
        unsafe_split: Callable[..., tuple[Tensor, ...]]
        unsafe_split_with_sizes: Callable[..., tuple[Tensor, ...]]
        vsplit: Callable[..., tuple[Tensor, ...]]
        aminmax: Callable[..., Any]
        cummax: Callable[..., Any]
        cummin: Callable[..., Any]
        cupy: Callable[..., Any]
        kthvalue: Callable[..., Any]
        lu: Callable[..., Any]
        max: Callable[..., Any]
        median: Callable[..., Any]
        min: Callable[..., Any]
        mode: Callable[..., Any]
        nanmedian: Callable[..., Any]
        nonzero: Callable[..., Any]
        qr: Callable[..., Any]
        slogdet: Callable[..., Any]
        sort: Callable[..., Any]
        svd: Callable[..., Any]
        topk: Callable[..., Any]
        type: Callable[..., Any]
        unique: Callable[..., Any]
        unique_consecutive: Callable[..., Any]
        item_async: Callable[..., Coroutine[Any, Any, Any]]
        to_async: Callable[..., Coroutine[Any, Any, Any]]
        record_stream: Callable[..., None]

        def __getattr__(self, name: str) -> Callable[..., Tensor]:
            """Any other of them."""

    def __new__(cls, *args: Any, device: Any = None, **kwargs: Any) -> Self:
        """A tensor of the default dtype; `tensor` and `empty` say better what is meant.

        Args:
            args: a shape, as numbers or as one `Size`, whose values may be any; or data: a sequence
                of numbers, an array, or a tensor, whose memory is shared.
            device: where it is made; the default device if None.
            kwargs: one of these by its name: `size`, `data` or `other`.

        Raises:
            TypeError: if the arguments fit no form.
            RuntimeError: for a negative size.
        """
        place = place_of("new", device)
        made = by_size_or_data("new", default_dtype(), place, args, any_dtype=True, **kwargs)
        return made if cls is Tensor else made.as_subclass(cls)

    def as_subclass(self, cls: Any) -> Any:
        """The tensor as one of a subclass, with its memory and history; results are plain tensors.

        Raises:
            TypeError: for what is no such class.
        """
        if not (isinstance(cls, type) and issubclass(cls, Tensor)):
            raise TypeError(f"as_subclass: cls must be a type that inherits from Tensor, got {cls}")
        seen = shaping.view(self, self._metadata.shape)
        made: Any = object.__new__(cls)
        for name in Variable.__slots__:
            if name != "__weakref__":
                setattr(made, name, getattr(seen, name))
        return made

    @staticmethod
    def _make_subclass(cls: Any, data: Tensor, require_grad: bool = False) -> Any:
        """A leaf of a subclass that shares a tensor's memory."""
        made: Any = data.detach().as_subclass(cls)
        return made.requires_grad_(require_grad)

    # -- facts ------------------------------------------------------------------------------------

    @property
    def shape(self) -> Size:
        """The length of each axis."""
        return self._metadata.user_shape

    @property
    def dtype(self) -> Any:
        """What the elements are."""
        return self._metadata.user_dtype

    @property
    def device(self) -> Any:
        """Where the elements are."""
        return self._metadata.device

    @property
    def ndim(self) -> int:
        """How many axes there are."""
        return len(self._metadata.shape)

    def dim(self) -> int:
        """How many axes there are."""
        return len(self._metadata.shape)

    def numel(self) -> int:
        """How many elements there are."""
        return self._metadata.size

    ndimension = dim
    nelement = numel

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the length of one axis."""
        shape = self._metadata.user_shape
        return shape if dim is None else shape[one_dim("size", dim, len(shape))]

    def stride(self, dim: int | None = None) -> Any:
        """How many elements lie between neighbours along each axis, or along one."""
        size = self._metadata.dtype.itemsize
        strides = tuple(step // size for step in self._array.strides)
        return strides if dim is None else strides[dim]

    def storage_offset(self) -> int:
        """How many elements before the first one belong to the memory that a view is part of."""
        view = view_of(self)
        if view is None:
            return 0
        return (self.data_ptr() - address(view.base._array)) // self.element_size()

    def is_contiguous(self, memory_format: Any = contiguous_format) -> bool:
        """Whether the elements lie in memory one after the other, the last axis first.

        Args:
            memory_format: channels-last ones ask for the second axis to be the last in memory.
        """
        array = self._array
        if memory_format is not contiguous_format:
            as_memory_format("is_contiguous", memory_format)
            if self.ndim < 4 or memory_format is preserve_format:
                return False
            array = np.moveaxis(array, 1, -1)
        return bool(array.flags.c_contiguous)

    def element_size(self) -> int:
        """The bytes of one element."""
        return int(self._metadata.dtype.itemsize)

    @property
    def itemsize(self) -> int:
        """The bytes of one element."""
        return int(self._metadata.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """The bytes of all elements."""
        return self._metadata.size * int(self._metadata.dtype.itemsize)

    @property
    def layout(self) -> layout:
        """How the elements are held."""
        return layout.strided

    def is_signed(self) -> bool:
        """Whether the dtype has negative numbers."""
        return bool(self._metadata.dtype.kind not in "bu")

    @property
    def is_cpu(self) -> bool:
        """Whether the elements are in the host's memory."""
        return bool(self._metadata.device.type == "cpu")

    @property
    def is_cuda(self) -> bool:
        """Whether the elements are on a CUDA device."""
        return bool(self._metadata.device.type == "cuda")

    #: There are no such tensors.
    is_ipu = is_maia = is_meta = is_mkldnn = is_mps = is_mtia = is_nested = is_quantized = False
    is_sparse_csr = is_vulkan = is_xla = is_xpu = False

    def is_shared(self) -> bool:
        """False: no tensor is in memory that processes share."""
        return False

    def to_sparse(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: of sparse tensors there are gradients made of rows alone.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            "to_sparse: COO and CSR tensors are left out. Keep the tensor dense, or use "
            "nn.functional.embedding(sparse=True), whose gradients are made of rows."
        )

    def untyped_storage(self) -> Storage:
        """The memory that the tensor looks into, as bytes."""
        return storage_of(self, None)

    def storage(self) -> Storage:
        """The memory that the tensor looks into, as elements of its dtype."""
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
        """Whether the dtype is a real floating one."""
        return category(self._metadata.dtype) == 2

    @property
    def is_sparse(self) -> bool:
        """Whether the tensor, a gradient, is made of some rows of a table."""
        return isinstance(self._array, Rows)

    def is_complex(self) -> bool:
        """Whether the dtype is complex."""
        return self._metadata.is_complex

    @property
    def is_leaf(self) -> bool:
        """Made by the user, or by nothing that needs a gradient."""
        return self.grad_fn is None

    @property
    def grad_fn(self) -> Node | None:
        """The function that made the tensor, None for leaves."""
        return shown(as_edge(self._edge_now()).node)

    def _edge_now(self) -> Any:
        """Where a computed tensor's gradient goes: a view whose base has changed is asked anew."""
        if self._edge is None and view_of(self) is not None:
            gradient_edge(self)
        return self._edge

    @property
    def output_nr(self) -> int:
        """Which output of `grad_fn` the tensor is."""
        edge = self._edge_now()
        return edge.input_nr if edge.__class__ is Edge else 0

    @property
    def _version(self) -> int:
        return version_of(self)

    # -- gradients --------------------------------------------------------------------------------

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow into or through the tensor."""
        return requires_grad(self)

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if value is not True and value is not False:
            raise AutogradError(f"requires_grad must be a bool, not {type(value).__name__}")
        # As PyTorch, whose method takes True for what was computed.
        self.requires_grad_(value and self.is_leaf)

    @requires_grad.deleter
    def requires_grad(self) -> None:
        raise AutogradError("requires_grad must be a bool. Set it to False, or detach the tensor.")

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Ask for a gradient of this leaf, or no longer.

        Raises:
            RuntimeError: for a tensor that was computed, or whose dtype has no gradient; inside
                of a function that `asyncgrad.func` is taking the derivative of.
            TypeError: for what is no bool.
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
            autograd_meta(self).requires_grad = True
        else:
            stop_requiring(self)
        return self

    @property
    def grad(self) -> Tensor | None:
        """The gradient that passes have accumulated, None before the first."""
        meta = self._autograd
        grad = None if meta is None else meta.grad
        if grad is None and not self.is_leaf and not self.retains_grad:
            warnings.warn(
                "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its "
                ".grad attribute won't be populated during autograd.backward(). If you indeed "
                "want the .grad field to be populated for a non-leaf Tensor, use .retain_grad() "
                "on the non-leaf Tensor. If you access the non-leaf Tensor by mistake, make sure "
                "you access the leaf Tensor instead.",
                UserWarning,
                stacklevel=2,
            )
        return grad  # type: ignore[return-value]

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            if not isinstance(value, Variable):
                raise TypeError(
                    f"assigned grad expected to be a Tensor or None but got grad of type "
                    f"{type(value).__name__}"
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
        meta = self._autograd
        if meta.__class__ is not AutogradMeta:
            meta = autograd_meta(self)
        meta.grad = value

    @grad.deleter
    def grad(self) -> None:
        autograd_meta(self).grad = None

    @property
    def grad_dtype(self) -> Any:
        """The dtype that this leaf's gradient is brought to; None leaves it as it comes.

        Raises:
            RuntimeError: for a tensor that was computed, and where a gradient of another dtype
                is there already.
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
        self,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Sequence[Tensor] | Tensor | None = None,
        *,
        priority: int | None = None,
        deadline: float | None = None,
        wait: str = "done",
    ) -> Any:
        """Accumulate the gradients of this tensor into the leaves it was computed from.

        Arguments are checked and the pass is started by the call. On a running event loop it
        returns a future to await; elsewhere the pass has ended when the call returns.

        Args:
            gradient: the gradient of whatever is computed from this tensor, of its shape; may be
                left out if the tensor has one element.
            retain_graph: keep saved values for another pass; the default is `create_graph`.
            create_graph: record the pass, so that its gradients can be differentiated.
            inputs: accumulate into these tensors only.
            priority: larger is more urgent; the default is `request()`'s, or 0.
            deadline: the loop's time at which the pass gives up; the default is `request()`'s.
            wait: when a pass ends that works on devices with streams: "done" when they have done
                its work, "enqueued" when it is in the order of the caller's streams.

        Returns:
            A `BackwardFuture`, or a finished awaitable where no loop runs.

        Raises:
            RuntimeError: if the tensor needs no gradient, `gradient` does not fit, or, from the
                future, the graph has been freed or a node fails.
        """
        return backward_from(
            (self,), gradient, retain_graph, create_graph, inputs, priority, deadline, wait
        )

    def detach(self) -> Tensor:
        """The same values, cut off from the graph; the memory is shared."""
        # A tangent belongs to an array: the same memory as another array has none.
        array = self._array if current().dual_level is None else self._array.view()
        out: Tensor = wrap(array, self._metadata)
        if is_inference(self):
            autograd_meta(out).inference = True
        else:
            out._counter = counter = counter_of(self)
            if self._edge is None and self._autograd is not None:
                counter.register_alias(out)
        return out

    def detach_(self) -> Tensor:
        """Cut this tensor off from the graph.

        Raises:
            RuntimeError: for a view, which would lead to its base again.
        """
        if view_of(self) is not None:
            raise AutogradError("Can't detach views in-place. Use detach() instead.")
        cut_off(self)
        if current().dual_level is not None:
            self._array = self._array.view()
        return self

    def is_inference(self) -> bool:
        """Whether the tensor was made in inference mode: it can't be saved for backward."""
        return is_inference(self)

    def _is_view(self) -> bool:
        return view_of(self) is not None

    @property
    def _base(self) -> Tensor | None:
        view = view_of(self)
        return None if view is None else view.base  # type: ignore[return-value]

    @property
    def data(self) -> Tensor:
        """The same memory, without graph and without shared version counter."""
        array = self._array if current().dual_level is None else self._array.view()
        out = wrap(array, self._metadata)
        if is_inference(self):
            autograd_meta(out).inference = True
        return out

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, Variable):
            raise TypeError(f"Variable data has to be a tensor, but got {type(value).__name__}")
        if category(value._metadata.dtype) < 2 and self.requires_grad:
            raise AutogradError(
                f"data set to a tensor that requires gradients must be floating point or complex "
                f"dtype, got {value._metadata.dtype}"
            )
        self._array = value._array
        self._metadata = value._metadata

    @data.deleter
    def data(self) -> None:
        raise AutogradError("Deleting tensor data is not allowed. Delete tensor instead!")

    def set_(
        self, source: Any = None, storage_offset: int = 0, size: Any = None, stride: Any = None
    ) -> Tensor:
        """Look into other memory from here on, with the shape that is there or asked for.

        Args:
            source: a tensor of the same dtype, or a storage on the host; no memory if None.
            storage_offset: how many elements of a storage come before the first one.
            size: the shape; the whole storage in a row if None.
            stride: the strides; those of elements in a row if None.

        Raises:
            RuntimeError: for another dtype or device, a tensor that leads into a graph or is a
                view, or a storage that is too small.
            TypeError: for another source.
        """
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
                f"needed, not {type(source).__name__}"
            )
        if found.dtype != metadata.dtype:
            raise AutogradError(
                f"Could not set tensor of type {found.dtype} to a tensor of type {metadata.dtype}"
            )
        self._array, self._metadata = array, found
        bump_version(self)
        return self

    @property
    def retains_grad(self) -> bool:
        """Whether this computed tensor keeps its gradient in `.grad`."""
        return self._autograd is not None and self._autograd.retains_grad

    def retain_grad(self) -> None:
        """Keep the gradient of this computed tensor in `.grad`, too.

        Raises:
            RuntimeError: if the tensor needs no gradient.
        """
        refuse_in_transform("Tensor.retain_grad()")
        retain_grad(self)

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
        """Call a function with each gradient of this tensor; what it returns takes its place.

        Args:
            hook: a function or coroutine function of the gradient that returns None or a
                gradient like it.

        Returns:
            A handle with `remove()`.

        Raises:
            RuntimeError: if the tensor needs no gradient.
        """
        extras, position = hooks_of(self, "register a hook on")
        return RemovableHandle(extras.tensor.setdefault(position, {}), hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> RemovableHandle:
        """Call a function with this leaf each time a pass has accumulated into its `.grad`.

        The leaf's gradient is committed as soon as it is complete and not at the end of the pass:
        if the pass fails later, it stays.

        Args:
            hook: a function or coroutine function of the leaf that returns None.

        Returns:
            A handle with `remove()`.

        Raises:
            RuntimeError: if the tensor is no leaf or needs no gradient.
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
        """The elements as an array that shares the tensor's memory.

        Args:
            force: give the values of a tensor that requires grad, too.

        Raises:
            RuntimeError: if the tensor requires grad, unless forced or under `no_grad`.
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
        array: np.ndarray[Any, Any] = self._array
        return array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """For `numpy.asarray`."""
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    def item(self) -> Number:
        """The one element as a Python number.

        Raises:
            RuntimeError: if there is not exactly one element.
        """
        if self._metadata.size != 1:
            raise AutogradError(
                f"a Tensor with {self._metadata.size} elements cannot be converted to Scalar. "
                f"Reduce it or index it first."
            )
        return on_host(self).item()

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers."""
        return on_host(self).tolist()

    def __float__(self) -> float:
        """The one element."""
        return float(self._real_number())

    def __int__(self) -> int:
        """The one element, cut off at the point."""
        return int(self._real_number())

    def __complex__(self) -> complex:
        """The one element."""
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
        """Whether the one element is not zero."""
        size = self._metadata.size
        if size != 1:
            count = "more than one value" if size else "no values"
            raise AutogradError(
                f"Boolean value of Tensor with {count} is ambiguous. Use .any() or .all()."
            )
        return bool(on_host(self).item())

    def __index__(self) -> int:
        """The one integer element."""
        if category(self._metadata.dtype) > 1 or self._metadata.size != 1:
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return int(self.item())

    def __len__(self) -> int:
        """The length of the first axis."""
        if not self._metadata.shape:
            raise TypeError("len() of a 0-d tensor")
        return self._metadata.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        """The parts along the first axis."""
        if not self._metadata.shape:
            raise TypeError("iteration over a 0-d tensor")
        return iter(shaping.unbind(self, 0))

    def __contains__(self, element: Any) -> bool:
        """Whether a number, or an element of a tensor that can be broadcast, is there.

        Raises:
            RuntimeError: for anything else.
        """
        if isinstance(element, Variable) or as_number(element) is not None:
            return bool((self == element).any())
        raise AutogradError(
            f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a "
            f"{type(element).__name__}."
        )

    def __delitem__(self, index: Any) -> NoReturn:
        """Refused.

        Raises:
            TypeError: always.
        """
        raise TypeError("Tensor does not support deleting items. Index what is to stay.")

    def __reversed__(self) -> Tensor:
        """The parts along the first axis, the last one first."""
        return shaping.flip(self, (0,)) if self.ndim else self

    def __format__(self, format_spec: str) -> str:
        """The format of the number, where there are no dimensions; else what `repr` says."""
        if self._metadata.shape or type(self) is not Tensor:
            return object.__format__(self, format_spec)
        return format(self.item(), format_spec)

    def __await__(self) -> Generator[Any, None, Tensor]:
        """The tensor itself: a result that is here may be awaited like one that is not yet."""
        yield from ()
        return self

    def __repr__(self) -> str:
        """The values, and how the tensor stands in the graph."""
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
            name = None if node is None else node.name()
        except AutogradError:
            # A view of what has changed in a way that forbids to take it anew.
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

    # -- operators --------------------------------------------------------------------------------

    __add__: _Binary = OPERATORS.add
    __sub__: _Binary = OPERATORS.sub
    __mul__: _Binary = OPERATORS.mul
    __truediv__: _Binary = OPERATORS.div
    __floordiv__: _Binary = OPERATORS.floor_divide
    __mod__: _Binary = OPERATORS.remainder
    __pow__: _Binary = OPERATORS.pow
    __matmul__ = linalg.operator_product
    __neg__: _Unary = R.neg
    __pos__ = elementwise.positive
    __abs__: _Unary = R.abs
    __eq__: _Binary = OPERATORS.eq  # type: ignore[assignment]
    __ne__: _Binary = OPERATORS.ne  # type: ignore[assignment]
    __lt__: _Binary = OPERATORS.lt
    __le__: _Binary = OPERATORS.le
    __gt__: _Binary = OPERATORS.gt
    __ge__: _Binary = OPERATORS.ge
    __and__: _Binary = OPERATORS.bitwise_and
    __or__: _Binary = OPERATORS.bitwise_or
    __xor__: _Binary = OPERATORS.bitwise_xor
    __lshift__: _Binary = OPERATORS.bitwise_left_shift
    __rshift__: _Binary = OPERATORS.bitwise_right_shift
    __radd__: _Binary = REFLECTED.add
    __rsub__: _Binary = REFLECTED.sub
    __rmul__: _Binary = REFLECTED.mul
    __rtruediv__: _Binary = REFLECTED.div
    __rdiv__: _Binary = __rtruediv__
    __rfloordiv__: _Binary = REFLECTED.floor_divide
    __rmod__: _Binary = REFLECTED.remainder
    __rpow__: _Binary = REFLECTED.pow
    __rand__: _Binary = REFLECTED.bitwise_and
    __ror__: _Binary = REFLECTED.bitwise_or
    __rxor__: _Binary = REFLECTED.bitwise_xor
    __rlshift__: _Binary = REFLECTED.bitwise_left_shift
    __rrshift__: _Binary = REFLECTED.bitwise_right_shift
    __getitem__ = indexing.getitem
    __setitem__ = indexing.setitem

    def __rmatmul__(self, other: Any) -> Tensor:
        """`other @ self`."""
        return linalg.operator_product(other, self)

    def __invert__(self) -> Tensor:
        """Booleans or the bits of integers inverted."""
        if category(self._metadata.dtype) > 1:
            raise TypeError(
                f"~ (operator.invert) is only implemented on integer and Boolean-type tensors, "
                f"got {self._metadata.dtype}"
            )
        return R.bitwise_not(self)

    def where(self, condition: Any, other: Any) -> Tensor:
        """The elements where the condition holds, those of `other` elsewhere."""
        return elementwise.where(condition, self, other)

    # -- in place ---------------------------------------------------------------------------------

    __iadd__: _Binary = in_place.operator(R.add, "add_")
    __isub__: _Binary = in_place.operator(R.sub, "sub_")
    __imul__: _Binary = in_place.operator(R.mul, "mul_")
    __itruediv__: _Binary = in_place.operator(R.div, "div_")
    __ifloordiv__: _Binary = in_place.operator(R.floor_divide, "floor_divide_")
    __imod__: _Binary = in_place.operator(R.remainder, "remainder_")
    __ipow__: _Binary = in_place.operator(R.pow, "pow_")
    __iand__: _Binary = in_place.operator(R.bitwise_and, "bitwise_and_")
    __ior__: _Binary = in_place.operator(R.bitwise_or, "bitwise_or_")
    __ixor__: _Binary = in_place.operator(R.bitwise_xor, "bitwise_xor_")
    __ilshift__: _Binary = in_place.operator(R.bitwise_left_shift, "bitwise_left_shift_")
    __irshift__: _Binary = in_place.operator(R.bitwise_right_shift, "bitwise_right_shift_")

    def abs_(self) -> Tensor:
        """Absolute values in place.

        Raises:
            RuntimeError: for complex numbers, whose absolute values are real.
        """
        if self._metadata.is_complex:
            raise AutogradError("In-place abs is not supported for complex tensors. Use abs().")
        return in_place.change(self, "abs_", elementwise.abs)

    absolute_ = abs_

    def copy_(self, source: Any, non_blocking: bool = False) -> Tensor:
        """Take the values of another tensor, broadcast, from wherever it is.

        Args:
            source: the other tensor.
            non_blocking: don't wait for a copy from pinned memory.
        """
        return in_place.copy(self, source, non_blocking=non_blocking)

    def zero_(self) -> Tensor:
        """Set every element to zero."""
        return in_place.fill(self, 0, "zero_")

    def fill_(self, value: Any) -> Tensor:
        """Set every element to a number."""
        return in_place.fill(self, value)

    # -- parts and other arrangements -------------------------------------------------------------

    @property
    def real(self) -> Tensor:
        """The real parts: a view of a complex tensor, a real tensor itself."""
        return complex_parts.real(self)

    @real.setter
    def real(self, value: Tensor | complex) -> None:
        complex_parts.real(self)[...] = value

    @property
    def imag(self) -> Tensor:
        """The imaginary parts: a view.

        Raises:
            RuntimeError: for a real tensor.
        """
        return complex_parts.imag(self)

    @imag.setter
    def imag(self, value: Tensor | complex) -> None:
        complex_parts.imag(self)[...] = value

    @property
    def H(self) -> Tensor:
        """A matrix with its axes exchanged, and complex numbers conjugated.

        Raises:
            RuntimeError: for a tensor of one axis, or of more than two.
        """
        if self.ndim not in {0, 2}:
            raise AutogradError(
                f"tensor.H is only supported on matrices (2-D tensors). Got {self.ndim}-D tensor. "
                f"For batches of matrices, consider using tensor.mH"
            )
        return rearrange.adjoint(self)

    @property
    def mH(self) -> Tensor:
        """The last two axes exchanged, and complex numbers conjugated."""
        return rearrange.adjoint(self)

    @property
    def T(self) -> Tensor:
        """The axes reversed."""
        return R.permute(self, tuple(range(self.ndim))[::-1])

    @property
    def mT(self) -> Tensor:
        """The last two axes exchanged.

        Raises:
            RuntimeError: for a tensor of one axis.
        """
        if self.ndim == 1:
            raise AutogradError(
                "tensor.mT is only supported on matrices or batches of matrices. Got 1-D tensor."
            )
        if not self.ndim:
            warnings.warn(
                "Tensor.mT is deprecated on 0-D tensors. This function is the identity in these "
                "cases.",
                UserWarning,
                stacklevel=2,
            )
            return self
        return shaping.transpose(self, -2, -1)


def _attach_functions() -> None:
    """Make the functions that are methods methods, and their forms in place."""
    for chapter in CHAPTERS:
        for name in chapter.METHODS:
            function = getattr(chapter, name)
            setattr(Tensor, name, getattr(function, "dispatch", function))
        for name in chapter.IN_PLACE:
            function = getattr(chapter, name)
            function = getattr(function, "dispatch", function)
            setattr(Tensor, f"{name}_", in_place.method(function, f"{name}_"))


ForkingPickler.register(Tensor, copies.sent)
for _doors in (comparison_dispatch, dispatch, elementwise_dispatch, single_dispatch):
    # Not the class itself, which would look at arguments that there are not.
    _doors.bind_face(partial(object.__new__, Tensor))
_attach_functions()
