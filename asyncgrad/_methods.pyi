"""The methods that tensors get at run time."""

# Written by tools/make_stubs.py from the running package.

from asyncgrad.choices import IndexReduceKind, Interpolation, MatrixNorm, PadMode, Rounding, ScatterKind, ScatterReduceKind
from asyncgrad.core.variable import Variable
from asyncgrad.devices import Stream
from asyncgrad.ops import return_types
from asyncgrad.ops.dtype import DType
from asyncgrad.ops.dtype_device import layout, memory_format
from asyncgrad.ops.tensors.rng import Generator
from asyncgrad.tensor import Tensor
from asyncgrad.types import DTypeLike, DeviceLike, Index, Ints, Number
from collections.abc import Coroutine, Sequence
from typing import Any, Literal, overload
import builtins
import builtins as builtins
import numpy as np

class Methods(Variable):
    """The methods that `Tensor` gets at run time; for type checkers alone."""

    def __abs__(self) -> Tensor:
        """The absolute values, real for complex numbers; the gradient at 0 is 0."""
    def __add__(self, other: Tensor | Number) -> Tensor: ...
    def __and__(self, other: Tensor | Number) -> Tensor: ...
    def __dlpack__(self, *, stream: builtins.int = -1, max_version: tuple[builtins.int, builtins.int] | None = None, dl_device: tuple[builtins.int, builtins.int] | None = None, copy: builtins.bool | None = None) -> Any:
        """A DLPack capsule of the tensor's memory, for another library's `from_dlpack`.

        Args:
            stream: the consumer's stream on the device, as a number, which waits for the work that
                computes the tensor; -1 for no waiting.
            max_version: the newest version of DLPack that the consumer knows.
            dl_device: the device on which the consumer wants it.
            copy: True to require a copy, False to forbid one; None for either.

        Raises:
            BufferError: if the tensor requires grad, or its memory can't be shared.
        """
    def __dlpack_device__(self) -> tuple[builtins.int, builtins.int]:
        """The DLPack type of the tensor's device, and its index.

        Raises:
            BufferError: for a device whose memory no other library can use.
        """
    def __eq__(self, other: Tensor | Number) -> Tensor: ...  # type: ignore[override]
    def __floordiv__(self, other: Tensor | Number) -> Tensor: ...
    def __ge__(self, other: Tensor | Number) -> Tensor: ...
    def __getitem__(self, index: Index) -> Tensor:
        """The elements at an index, with PyTorch's rules.

        Numbers, slices, None and Ellipsis are applied first and select a view. Lists, masks and integer
        tensors then select a copy from that view.

        Raises:
            ValueError: if a slice has a step that is not positive.
        """
    def __gt__(self, other: Tensor | Number) -> Tensor: ...
    def __iadd__(self, other: Tensor | Number) -> Tensor: ...
    def __iand__(self, other: Tensor | Number) -> Tensor: ...
    def __ifloordiv__(self, other: Tensor | Number) -> Tensor: ...
    def __ilshift__(self, other: Tensor | Number) -> Tensor: ...
    def __imod__(self, other: Tensor | Number) -> Tensor: ...
    def __imul__(self, other: Tensor | Number) -> Tensor: ...
    def __ior__(self, other: Tensor | Number) -> Tensor: ...
    def __ipow__(self, other: Tensor | Number) -> Tensor: ...
    def __irshift__(self, other: Tensor | Number) -> Tensor: ...
    def __isub__(self, other: Tensor | Number) -> Tensor: ...
    def __itruediv__(self, other: Tensor | Number) -> Tensor: ...
    def __ixor__(self, other: Tensor | Number) -> Tensor: ...
    def __le__(self, other: Tensor | Number) -> Tensor: ...
    def __lshift__(self, other: Tensor | Number) -> Tensor: ...
    def __lt__(self, other: Tensor | Number) -> Tensor: ...
    def __matmul__(self, other: Tensor) -> Tensor:
        """`_matmul`, or `NotImplemented` so that Python tries the other operand's method."""
    def __mod__(self, other: Tensor | Number) -> Tensor: ...
    def __mul__(self, other: Tensor | Number) -> Tensor: ...
    def __ne__(self, other: Tensor | Number) -> Tensor: ...  # type: ignore[override]
    def __neg__(self) -> Tensor:
        """Each element with its sign changed."""
    def __or__(self, other: Tensor | Number) -> Tensor: ...
    def __pos__(self) -> Tensor:
        """The tensor itself.

        Raises:
            RuntimeError: for booleans.
        """
    def __pow__(self, other: Tensor | Number) -> Tensor: ...
    def __radd__(self, other: Tensor | Number) -> Tensor: ...
    def __rand__(self, other: Tensor | Number) -> Tensor: ...
    def __rdiv__(self, other: Tensor | Number) -> Tensor: ...
    def __rfloordiv__(self, other: Tensor | Number) -> Tensor: ...
    def __rlshift__(self, other: Tensor | Number) -> Tensor: ...
    def __rmod__(self, other: Tensor | Number) -> Tensor: ...
    def __rmul__(self, other: Tensor | Number) -> Tensor: ...
    def __ror__(self, other: Tensor | Number) -> Tensor: ...
    def __rpow__(self, other: Tensor | Number) -> Tensor: ...
    def __rrshift__(self, other: Tensor | Number) -> Tensor: ...
    def __rshift__(self, other: Tensor | Number) -> Tensor: ...
    def __rsub__(self, other: Tensor | Number) -> Tensor: ...
    def __rtruediv__(self, other: Tensor | Number) -> Tensor: ...
    def __rxor__(self, other: Tensor | Number) -> Tensor: ...
    def __setitem__(self, index: Index, value: Tensor | Number) -> None:
        """Write a number or a tensor, broadcast, at an index, in place."""
    def __sub__(self, other: Tensor | Number) -> Tensor: ...
    def __truediv__(self, other: Tensor | Number) -> Tensor: ...
    def __xor__(self, other: Tensor | Number) -> Tensor: ...
    def _indices(self) -> Any:
        """The indices of the stored rows, perhaps with duplicates."""
    def _nnz(self) -> builtins.int:
        """The number of stored rows, duplicates included."""
    def _values(self) -> Any:
        """The values of the stored rows, perhaps with duplicates."""
    def abs(self) -> Tensor:
        """The absolute values, real for complex numbers; the gradient at 0 is 0."""
    def absolute(self) -> Tensor:
        """The absolute values, real for complex numbers; the gradient at 0 is 0."""
    def acos(self) -> Tensor:
        """The inverse cosine of each element."""
    def acos_(self) -> Tensor:
        """`acos`, in place."""
    def acosh(self) -> Tensor:
        """The inverse hyperbolic cosine, NaN below 1."""
    def acosh_(self) -> Tensor:
        """`acosh`, in place."""
    def add(self, other: Tensor | Number, *, alpha: Number = 1, out: Tensor | None = None) -> Tensor:
        """`input + alpha * other`, broadcast.

        Raises:
            RuntimeError: if the shapes can't be broadcast, or `alpha` has a higher kind of dtype.
        """
    def add_(self, other: Tensor | Number, *, alpha: Number = 1) -> Tensor:
        """`add`, in place."""
    def addbmm(self, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1, out: Tensor | None = None) -> Tensor:
        """`beta * input + alpha *` the sum of all `batch1 @ batch2`."""
    def addbmm_(self, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
        """`addbmm`, in place."""
    def addcdiv(self, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1, out: Tensor | None = None) -> Tensor:
        """`input + value * tensor1 / tensor2`, broadcast."""
    def addcdiv_(self, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
        """`addcdiv`, in place."""
    def addcmul(self, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1, out: Tensor | None = None) -> Tensor:
        """`input + value * tensor1 * tensor2`, broadcast."""
    def addcmul_(self, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
        """`addcmul`, in place."""
    def addmm(self, mat1: Tensor, mat2: Tensor, *, beta: Number = 1, alpha: Number = 1, out: Tensor | None = None) -> Tensor:
        """`beta * input + alpha * (mat1 @ mat2)`; with a `beta` of 0 the input is ignored.

        Args:
            input: a tensor that can be broadcast to (m, n).
            mat1: of shape (m, k).
            mat2: of shape (k, n).
        """
    def addmm_(self, mat1: Tensor, mat2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
        """`addmm`, in place."""
    def addmv(self, mat: Tensor, vec: Tensor, *, beta: Number = 1, alpha: Number = 1, out: Tensor | None = None) -> Tensor:
        """`beta * input + alpha * mat @ vec`."""
    def addmv_(self, mat: Tensor, vec: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
        """`addmv`, in place."""
    def addr(self, vec1: Tensor, vec2: Tensor, *, beta: Number = 1, alpha: Number = 1, out: Tensor | None = None) -> Tensor:
        """`beta * input + alpha * outer(vec1, vec2)`."""
    def addr_(self, vec1: Tensor, vec2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
        """`addr`, in place."""
    def adjoint(self) -> Tensor:
        """Exchange the last two axes and conjugate complex numbers."""
    def all(self, dim: Ints | None = None, keepdim: builtins.bool = False, *, out: Tensor | None = None) -> Tensor:
        """Whether all elements are nonzero; no gradient.

        Args:
            input: any tensor; the result is bool, or uint8 for uint8.
            dim: an axis, or a sequence of them; all if None.
        """
    def allclose(self, other: Tensor, rtol: builtins.float = 1e-05, atol: builtins.float = 1e-08, equal_nan: builtins.bool = False) -> builtins.bool:
        """Whether `isclose` holds everywhere."""
    def amax(self, dim: Ints | None = (), keepdim: builtins.bool = False, *, out: Tensor | None = None) -> Tensor:
        """The greatest elements over some axes; the gradient is shared among ties.

        Args:
            input: any real tensor.
            dim: an axis, or a sequence of them; all if it is empty.

        Raises:
            RuntimeError: for a tensor without elements and no `dim`, or if an axis is named twice.
        """
    def amin(self, dim: Ints | None = (), keepdim: builtins.bool = False, *, out: Tensor | None = None) -> Tensor:
        """The smallest elements over some axes; the gradient is shared among ties.

        Args:
            input: any real tensor.
            dim: an axis, or a sequence of them; all if it is empty.

        Raises:
            RuntimeError: for a tensor without elements and no `dim`, or if an axis is named twice.
        """
    def aminmax(self, *, dim: builtins.int | None = None, keepdim: builtins.bool = False, out: Tensor | Sequence[Tensor] | None = None) -> return_types.aminmax:
        """The least and the greatest element, of all or along an axis, as a named tuple."""
    def angle(self, *, out: Tensor | None = None) -> Tensor:
        """The angles of complex numbers in radians; of real ones, 0 or pi."""
    def any(self, dim: Ints | None = None, keepdim: builtins.bool = False, *, out: Tensor | None = None) -> Tensor:
        """Whether any elements are nonzero; no gradient.

        Args:
            input: any tensor; the result is bool, or uint8 for uint8.
            dim: an axis, or a sequence of them; all if None.
        """
    def arccos(self) -> Tensor:
        """The inverse cosine of each element."""
    def arccos_(self) -> Tensor:
        """`arccos`, in place."""
    def arccosh(self) -> Tensor:
        """The inverse hyperbolic cosine, NaN below 1."""
    def arccosh_(self) -> Tensor:
        """`arccosh`, in place."""
    def arcsin(self) -> Tensor:
        """The inverse sine of each element."""
    def arcsin_(self) -> Tensor:
        """`arcsin`, in place."""
    def arcsinh(self) -> Tensor:
        """The inverse hyperbolic sine."""
    def arcsinh_(self) -> Tensor:
        """`arcsinh`, in place."""
    def arctan(self) -> Tensor:
        """The inverse tangent of each element."""
    def arctan2(self, other: Tensor) -> Tensor:
        """The angle of the point (`other`, `input`), broadcast."""
    def arctan2_(self, other: Tensor) -> Tensor:
        """`arctan2`, in place."""
    def arctan_(self) -> Tensor:
        """`arctan`, in place."""
    def arctanh(self) -> Tensor:
        """The inverse hyperbolic tangent, NaN beyond -1 and 1."""
    def arctanh_(self) -> Tensor:
        """`arctanh`, in place."""
    def argmax(self, dim: builtins.int | None = None, keepdim: builtins.bool = False, *, out: Tensor | None = None) -> Tensor:
        """The index of the greatest element, the first of several; no gradient.

        Args:
            input: a real tensor.
            dim: an axis; None for the index into the flattened tensor.

        Raises:
            RuntimeError: for booleans and complex numbers.
        """
    def argmin(self, dim: builtins.int | None = None, keepdim: builtins.bool = False, *, out: Tensor | None = None) -> Tensor:
        """The index of the smallest element, the first of several; no gradient.

        Args:
            input: a real tensor.
            dim: an axis; None for the index into the flattened tensor.

        Raises:
            RuntimeError: for booleans and complex numbers.
        """
    def argsort(self, dim: builtins.int = -1, descending: builtins.bool = False, *, stable: builtins.bool = False, out: Tensor | None = None) -> Tensor:
        """The indices that sort the elements along an axis; see `sort`."""
    def argwhere(self) -> Tensor:
        """The indices of the nonzero elements, one row for each."""
    def as_strided(self, size: Ints, stride: Ints, storage_offset: builtins.int | None = None) -> Tensor:
        """A view, with any strides, of a tensor's or its base's memory, such as a signal's windows.

        Several elements may share memory; their gradients add up. Elements of the base that `input`
        does not contain get no gradient. Tensors outside of host memory are copied.

        Args:
            size: the shape of the view.
            stride: for each axis, the distance of neighbours, in elements.
            storage_offset: the number of the first element in memory; None for that of `input`.

        Raises:
            RuntimeError: if an element would be outside of the memory, strides are negative, or their
                number is not that of the axes.

        Example:
            >>> ag.as_strided(ag.arange(5), (3, 3), (1, 1))
            tensor([[0, 1, 2],
                    [1, 2, 3],
                    [2, 3, 4]])
        """
    def as_strided_(self, size: Ints, stride: Ints, storage_offset: builtins.int | None = None) -> Tensor:
        """`as_strided`, in place: the same tensor with other axes."""
    def as_strided_scatter(self, src: Tensor, size: Ints, stride: Ints, storage_offset: builtins.int | None = None) -> Tensor:
        """A copy of `input` with `src` written to the elements of `as_strided`.

        Args:
            src: the values, of the shape `size`.
            size, stride, storage_offset: as in `as_strided`.
        """
    def asin(self) -> Tensor:
        """The inverse sine of each element."""
    def asin_(self) -> Tensor:
        """`asin`, in place."""
    def asinh(self) -> Tensor:
        """The inverse hyperbolic sine."""
    def asinh_(self) -> Tensor:
        """`asinh`, in place."""
    def atan(self) -> Tensor:
        """The inverse tangent of each element."""
    def atan2(self, other: Tensor) -> Tensor:
        """The angle of the point (`other`, `input`), broadcast."""
    def atan2_(self, other: Tensor) -> Tensor:
        """`atan2`, in place."""
    def atan_(self) -> Tensor:
        """`atan`, in place."""
    def atanh(self) -> Tensor:
        """The inverse hyperbolic tangent, NaN beyond -1 and 1."""
    def atanh_(self) -> Tensor:
        """`atanh`, in place."""
    def baddbmm(self, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1, out: Tensor | None = None) -> Tensor:
        """`beta * input + alpha * batch1 @ batch2`, matrix by matrix."""
    def baddbmm_(self, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
        """`baddbmm`, in place."""
    def bernoulli(self, p: builtins.float | None = None, *, generator: Generator | None = None, out: Tensor | None = None) -> Tensor:
        """Draw 1 with the probabilities in a tensor, and 0 otherwise.

        Args:
            input: the probabilities, floating; only its shape and dtype matter if `p` is given.
            p: one probability for all elements.
            generator: the source of the numbers; the default generator if None.
        """
    def bernoulli_(self, p: Tensor | builtins.float = 0.5, *, generator: Generator | None = None) -> Tensor:
        """Fill with 1, with one probability or those in a floating tensor, and 0 otherwise."""
    def bfloat16(self, memory_format: memory_format | None = None) -> Tensor:
        """Convert the tensor to bfloat16, which the package ml_dtypes provides.

        Raises:
            ImportError: if ml_dtypes is not installed.
        """
    def bincount(self, weights: Tensor | None = None, minlength: builtins.int = 0) -> Tensor:
        """The number of occurrences of each number from 0 to the largest.

        Args:
            input: integers that are not negative, in one axis.
            weights: the weight of each, of the same shape.
            minlength: the least length of the result.
        """
    def bitwise_and(self, other: Tensor | Number) -> Tensor:
        """Bitwise and of booleans or integers, broadcast."""
    def bitwise_and_(self, other: Tensor | Number) -> Tensor:
        """`bitwise_and`, in place."""
    def bitwise_left_shift(self, other: Tensor | Number) -> Tensor:
        """Integers shifted left by `other` bits, broadcast."""
    def bitwise_left_shift_(self, other: Tensor | Number) -> Tensor:
        """`bitwise_left_shift`, in place."""
    def bitwise_not(self) -> Tensor:
        """Booleans or the bits of integers inverted."""
    def bitwise_not_(self) -> Tensor:
        """`bitwise_not`, in place."""
    def bitwise_or(self, other: Tensor | Number) -> Tensor:
        """Bitwise or of booleans or integers, broadcast."""
    def bitwise_or_(self, other: Tensor | Number) -> Tensor:
        """`bitwise_or`, in place."""
    def bitwise_right_shift(self, other: Tensor | Number) -> Tensor:
        """Integers shifted right by `other` bits, broadcast."""
    def bitwise_right_shift_(self, other: Tensor | Number) -> Tensor:
        """`bitwise_right_shift`, in place."""
    def bitwise_xor(self, other: Tensor | Number) -> Tensor:
        """Bitwise exclusive or of booleans or integers, broadcast."""
    def bitwise_xor_(self, other: Tensor | Number) -> Tensor:
        """`bitwise_xor`, in place."""
    def bmm(self, mat2: Tensor, *, out: Tensor | None = None) -> Tensor:
        """The products of two batches of matrices, (b, m, k) and (b, k, n)."""
    def bool(self, memory_format: memory_format | None = None) -> Tensor:
        """The tensor as bool; itself if it is that."""
    def broadcast_to(self, *sizes: Ints, size: Ints | None = None) -> Tensor:
        """The tensor repeated to a shape, given as `expand` takes it."""
    def byte(self, memory_format: memory_format | None = None) -> Tensor:
        """The tensor as uint8; itself if it is that."""
    def cauchy_(self, median: builtins.float = 0.0, sigma: builtins.float = 1.0, *, generator: Generator | None = None) -> Tensor:
        """Fill with numbers from the Cauchy distribution."""
    def cdouble(self, memory_format: memory_format | None = None) -> Tensor:
        """The tensor as complex128; itself if it is that."""
    def ceil(self) -> Tensor:
        """Each element rounded up; the gradient is 0."""
    def ceil_(self) -> Tensor:
        """`ceil`, in place."""
    def cfloat(self, memory_format: memory_format | None = None) -> Tensor:
        """The tensor as complex64; itself if it is that."""
    def char(self, memory_format: memory_format | None = None) -> Tensor:
        """The tensor as int8; itself if it is that."""
    def cholesky(self, upper: builtins.bool = False, *, out: Tensor | None = None) -> Tensor:
        """The Cholesky factors L with `L @ L.mH = input`; see `linalg.cholesky`."""
    def cholesky_inverse(self, upper: builtins.bool = False, *, out: Tensor | None = None) -> Tensor:
        """The inverses of matrices from their Cholesky factors L.

        Args:
            input, upper: the factors, as `cholesky_solve` takes them.

        Raises:
            LinAlgError: if there is a 0 on a diagonal. It is a RuntimeError.
        """
    def cholesky_solve(self, input2: Tensor, upper: builtins.bool = False, *, out: Tensor | None = None) -> Tensor:
        """The solutions of linear systems from the Cholesky factors of their matrices.

        Args:
            input: the right sides, of shape (..., n, k).
            input2: the Cholesky factors L, of shape (..., n, n).
            upper: they are `L.mH`.
        """
    def chunk(self, chunks: builtins.int, dim: builtins.int = 0) -> tuple[Tensor, ...]:
        """At most `chunks` views of equal length along an axis; the last may be shorter."""
    def clamp(self, min: Tensor | Number | None = None, max: Tensor | Number | None = None, *, out: Tensor | None = None) -> Tensor:
        """Clamp each element to [min, max]; at the bounds the gradient passes.

        Args:
            input: any real tensor.
            min: the lower bound: a number, a tensor (broadcast) or None.
            max: the upper bound; it takes precedence where it is below `min`.

        Raises:
            RuntimeError: without a bound, if an integer dtype can't hold a bound, or if the shapes
                can't be broadcast.
            TypeError: if one bound is a number and the other a tensor with axes.
        """
    def clamp_(self, min: Tensor | Number | None = None, max: Tensor | Number | None = None) -> Tensor:
        """`clamp`, in place."""
    def clamp_max(self, max: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
        """The elements, or `max` where they are greater."""
    def clamp_max_(self, max: Tensor | Number) -> Tensor:
        """`clamp_max`, in place."""
    def clamp_min(self, min: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
        """The elements, or `min` where they are less."""
    def clamp_min_(self, min: Tensor | Number) -> Tensor:
        """`clamp_min`, in place."""
    def clip(self, min: Tensor | Number | None = None, max: Tensor | Number | None = None, *, out: Tensor | None = None) -> Tensor:
        """Clamp each element to [min, max]; at the bounds the gradient passes.

        Args:
            input: any real tensor.
            min: the lower bound: a number, a tensor (broadcast) or None.
            max: the upper bound; it takes precedence where it is below `min`.

        Raises:
            RuntimeError: without a bound, if an integer dtype can't hold a bound, or if the shapes
                can't be broadcast.
            TypeError: if one bound is a number and the other a tensor with axes.
        """
    def clip_(self, min: Tensor | Number | None = None, max: Tensor | Number | None = None) -> Tensor:
        """`clip`, in place."""
    def clone(self, *, memory_format: memory_format | None = None) -> Tensor:
        """A recorded copy with the tensor's memory layout."""
    def coalesce(self) -> Tensor:
        """Sort the rows and sum duplicates."""
    def conj(self) -> Tensor:
        """The complex conjugates; a real tensor is returned unchanged."""
    def conj_physical(self, *, out: Tensor | None = None) -> Tensor:
        """The complex conjugates; a real tensor is returned unchanged."""
    def conj_physical_(self) -> Tensor:
        """`conj_physical`, in place."""
    def contiguous(self, memory_format: memory_format | None = None) -> Tensor:
        """The tensor if it is contiguous in memory, else a contiguous copy.

        With `channels_last`, a tensor in that layout is also returned; a copy has the usual layout.
        """
    def copysign(self, other: Tensor | Number) -> Tensor:
        """The absolute values of `input` with the signs of `other`."""
    def copysign_(self, other: Tensor | Number) -> Tensor:
        """`copysign`, in place."""
    def corrcoef(self) -> Tensor:
        """The correlations of variables, whose observations are rows; see `cov`."""
    def cos(self) -> Tensor:
        """The cosine of each element."""
    def cos_(self) -> Tensor:
        """`cos`, in place."""
    def cosh(self) -> Tensor:
        """The hyperbolic cosine of each element."""
    def cosh_(self) -> Tensor:
        """`cosh`, in place."""
    def count_nonzero(self, dim: Ints | None = None, *more: builtins.int) -> Tensor:
        """The number of nonzero elements, of all or over some axes, given as one sequence or singly."""
    def cov(self, *, correction: builtins.int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None) -> Tensor:
        """The covariances of variables: a square matrix, or of one variable its variance.

        Args:
            input: of shape (variables, observations), or one variable's observations.
            correction: subtracted from the number of observations.
            fweights: the number of repetitions of each observation, not negative.
            aweights: the weight of each observation.
        """
    def cpu(self, memory_format: memory_format | None = None) -> Tensor:
        """The tensor in host memory; itself if it is there."""
    def cross(self, other: Tensor, dim: builtins.int | None = None, *, out: Tensor | None = None) -> Tensor:
        """The cross products of vectors of length 3 along an axis; see `linalg.cross`.

        Args:
            dim: the axis of the vectors; the first of length 3 if None.
        """
    def cuda(self, device: DeviceLike | None = None, non_blocking: builtins.bool = False) -> Tensor:
        """Move the tensor to a CUDA device; itself if it is there.

        Args:
            device: the device; `cuda:0` if None.
            non_blocking: don't wait for a copy from pinned memory.
        """
    def cummax(self, dim: builtins.int, *, out: Sequence[Tensor] | None = None) -> return_types.cummax:
        """The greatest elements up to each along an axis, and where they are."""
    def cummin(self, dim: builtins.int, *, out: Sequence[Tensor] | None = None) -> return_types.cummin:
        """The smallest elements up to each along an axis, and where they are."""
    def cumprod(self, dim: builtins.int, *, dtype: DTypeLike | None = None, out: Tensor | None = None) -> Tensor:
        """The cumulative products along an axis; gradients are exact even at zeros; see `cumsum`."""
    def cumprod_(self, dim: builtins.int, *, dtype: DTypeLike | None = None) -> Tensor:
        """`cumprod`, in place."""
    def cumsum(self, dim: builtins.int, *, dtype: DTypeLike | None = None, out: Tensor | None = None) -> Tensor:
        """The cumulative sums along an axis.

        Args:
            dtype: converted to first, not bool; if None, int64 for integers and booleans.
        """
    def cumsum_(self, dim: builtins.int, *, dtype: DTypeLike | None = None) -> Tensor:
        """`cumsum`, in place."""
    def cupy(self) -> Any:
        """The CuPy array of a tensor on a CUDA device; the memory is shared.

        CuPy's current stream waits for the work that computes the tensor.

        Raises:
            RuntimeError: if the tensor requires grad.
            TypeError: if it is on another kind of device.
        """
    def deg2rad(self, *, out: Tensor | None = None) -> Tensor:
        """Convert degrees to radians."""
    def deg2rad_(self) -> Tensor:
        """`deg2rad`, in place."""
    def dense_dim(self) -> builtins.int:
        """The number of axes of a row's values."""
    def det(self) -> Tensor:
        """The determinants of square matrices; see `linalg.det`."""
    def diag(self, diagonal: builtins.int = 0, *, out: Tensor | None = None) -> Tensor:
        """A copy of a matrix's diagonal, or a matrix with a vector on its diagonal."""
    def diag_embed(self, offset: builtins.int = 0, dim1: builtins.int = -2, dim2: builtins.int = -1, *, out: Tensor | None = None) -> Tensor:
        """Matrices with the last axis of a tensor on their diagonals.

        Args:
            input: of shape (..., n).
            offset, dim1, dim2: as in `diagonal`, of the result.
        """
    def diagflat(self, offset: builtins.int = 0) -> Tensor:
        """A matrix with all elements of a tensor on its diagonal; see `diag_embed`."""
    def diagonal(self, offset: builtins.int = 0, dim1: builtins.int = 0, dim2: builtins.int = 1) -> Tensor:
        """A view of the diagonal of two axes, as the last axis.

        Args:
            input: the tensor, of two axes or more.
            offset: above the main diagonal if positive, below if negative.
            dim1: the axis of rows.
            dim2: the axis of columns.
        """
    def diagonal_scatter(self, src: Tensor, offset: builtins.int = 0, dim1: builtins.int = 0, dim2: builtins.int = 1, *, out: Tensor | None = None) -> Tensor:
        """A copy of `input` with `src` on a diagonal.

        Args:
            src: of the shape of `diagonal(input, offset, dim1, dim2)`.
            offset, dim1, dim2: as in `diagonal`.
        """
    def diff(self, n: builtins.int = 1, dim: builtins.int = -1, prepend: Tensor | None = None, append: Tensor | None = None, *, out: Tensor | None = None) -> Tensor:
        """The n-th differences of neighbours along an axis.

        Args:
            prepend: a tensor that is prepended before taking differences.
            append: a tensor that is appended.
        """
    def digamma(self) -> Tensor:
        """The derivative of the logarithm of the gamma function."""
    def digamma_(self) -> Tensor:
        """`digamma`, in place."""
    def dist(self, other: Tensor, p: builtins.float = 2) -> Tensor:
        """The p-norm of `input - other`, broadcast."""
    def div(self, other: Tensor | Number, *, rounding_mode: Rounding | None = None, out: Tensor | None = None) -> Tensor:
        """`input / other`, broadcast.

        Args:
            rounding_mode: None for the true quotient, "trunc" to round it towards 0, "floor" to
                round it down; rounded quotients keep integers and have a gradient of 0.

        Raises:
            RuntimeError: if the shapes can't be broadcast, for another rounding mode, or where
                integers are divided by zero and rounded.
        """
    def div_(self, other: Tensor | Number, *, rounding_mode: Rounding | None = None) -> Tensor:
        """`div`, in place."""
    def divide(self, other: Tensor | Number, *, rounding_mode: Rounding | None = None, out: Tensor | None = None) -> Tensor:
        """`input / other`, broadcast.

        Args:
            rounding_mode: None for the true quotient, "trunc" to round it towards 0, "floor" to
                round it down; rounded quotients keep integers and have a gradient of 0.

        Raises:
            RuntimeError: if the shapes can't be broadcast, for another rounding mode, or where
                integers are divided by zero and rounded.
        """
    def divide_(self, other: Tensor | Number, *, rounding_mode: Rounding | None = None) -> Tensor:
        """`divide`, in place."""
    def dot(self, tensor: Tensor, *, out: Tensor | None = None) -> Tensor:
        """The sum of the products of two vectors, neither conjugated."""
    def double(self, memory_format: memory_format | None = None) -> Tensor:
        """The tensor as float64; itself if it is that."""
    def dsplit(self, indices_or_sections: Ints, *more: builtins.int) -> tuple[Tensor, ...]:
        """`tensor_split` along axis 2, in parts that have to be equal."""
    def eq(self, other: Tensor | Number) -> Tensor:
        """Where `input` equals `other`, broadcast: bool, without a gradient."""
    def eq_(self, other: Tensor | Number) -> Tensor:
        """`eq`, in place."""
    def equal(self, other: Tensor) -> builtins.bool:
        """Whether two tensors have one shape and the same elements."""
    def erf(self) -> Tensor:
        """The error function of each element."""
    def erf_(self) -> Tensor:
        """`erf`, in place."""
    def erfc(self) -> Tensor:
        """One minus the error function."""
    def erfc_(self) -> Tensor:
        """`erfc`, in place."""
    def erfinv(self) -> Tensor:
        """The inverse of the error function, NaN beyond -1 and 1."""
    def erfinv_(self) -> Tensor:
        """`erfinv`, in place."""
    def exp(self) -> Tensor:
        """e to the power of each element."""
    def exp2(self) -> Tensor:
        """2 to the power of each element."""
    def exp2_(self) -> Tensor:
        """`exp2`, in place."""
    def exp_(self) -> Tensor:
        """`exp`, in place."""
    def expand(self, *sizes: Ints, size: Ints | None = None, implicit: builtins.bool = False) -> Tensor:
        """A view that repeats axes of length 1 and adds leading axes; -1 keeps a length."""
    def expand_as(self, other: Tensor) -> Tensor:
        """`expand` to the shape of another tensor."""
    def expm1(self) -> Tensor:
        """exp(x) - 1 of each element, exact near 0."""
    def expm1_(self) -> Tensor:
        """`expm1`, in place."""
    def exponential_(self, lambd: builtins.float = 1.0, *, generator: Generator | None = None) -> Tensor:
        """Fill with numbers from the exponential distribution of rate `lambd`."""
    def fill_diagonal_(self, fill_value: Number, wrap: builtins.bool = False) -> Tensor:
        """Fill the main diagonal with one number, in place.

        Args:
            input: a tensor of two axes, or of more axes of equal length.
            wrap: in a tall matrix, start the diagonal again after its end.
        """
    def fix(self) -> Tensor:
        """Each element rounded towards 0; the gradient is 0."""
    def fix_(self) -> Tensor:
        """`fix`, in place."""
    def flatten(self, start_dim: builtins.int = 0, end_dim: builtins.int = -1) -> Tensor:
        """Merge the axes from `start_dim` to `end_dim` into one."""
    def flip(self, *axes: Ints, dims: Ints | None = None) -> Tensor:
        """A copy with some axes reversed."""
    def fliplr(self) -> Tensor:
        """Reverse the second axis."""
    def flipud(self) -> Tensor:
        """Reverse the first axis.

        Raises:
            RuntimeError: for a tensor without axes.
        """
    def float(self, memory_format: memory_format | None = None) -> Tensor:
        """The tensor as float32; itself if it is that."""
    def float_power(self, exponent: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
        """`input` to the power of `exponent`, computed in double precision."""
    def float_power_(self, exponent: Tensor | Number) -> Tensor:
        """`float_power`, in place."""
    def floor(self) -> Tensor:
        """Each element rounded down; the gradient is 0."""
    def floor_(self) -> Tensor:
        """`floor`, in place."""
    def floor_divide(self, other: Tensor | Number) -> Tensor:
        """`input / other` rounded down, broadcast; as in PyTorch it has no gradient, see `div`."""
    def floor_divide_(self, other: Tensor | Number) -> Tensor:
        """`floor_divide`, in place."""
    def fmax(self, other: Tensor, *, out: Tensor | None = None) -> Tensor:
        """The greater of two elements, broadcast; a number is greater than NaN."""
    def fmin(self, other: Tensor, *, out: Tensor | None = None) -> Tensor:
        """The less of two elements, broadcast; a number is less than NaN."""
    def fmod(self, other: Tensor | Number) -> Tensor:
        """The remainder of a division rounded towards 0, broadcast: it has `input`'s sign."""
    def fmod_(self, other: Tensor | Number) -> Tensor:
        """`fmod`, in place."""
    def frac(self, *, out: Tensor | None = None) -> Tensor:
        """The fractional parts, with the numbers' signs."""
    def frac_(self) -> Tensor:
        """`frac`, in place."""
    def frexp(self, *, out: Tensor | Sequence[Tensor] | None = None) -> return_types.frexp:
        """Split numbers into a mantissa in [0.5, 1), with their sign, and an exponent of 2.

        Args:
            input: a real floating tensor.

        Returns:
            A named tuple of the mantissas and, int32 and without a gradient, of the exponents.
        """
    def gather(self, dim: builtins.int, index: Tensor, *, sparse_grad: builtins.bool = False, out: Tensor | None = None) -> Tensor:
        """The elements at `index` along `dim`; the result has the shape of `index`."""
    def gcd(self, other: Tensor) -> Tensor:
        """The greatest common divisor of integers, broadcast."""
    def gcd_(self, other: Tensor) -> Tensor:
        """`gcd`, in place."""
    def ge(self, other: Tensor | Number) -> Tensor:
        """Where `input` is at least `other`, broadcast: bool, without a gradient."""
    def ge_(self, other: Tensor | Number) -> Tensor:
        """`ge`, in place."""
    def geometric_(self, p: builtins.float, *, generator: Generator | None = None) -> Tensor:
        """Fill with numbers of trials up to the first success, whose probability is `p`.

        Raises:
            NotImplementedError: for booleans and complex numbers.
        """
    def ger(self, vec2: Tensor, *, out: Tensor | None = None) -> Tensor:
        """The outer product of two vectors.

        Args:
            input: of shape (m,).
            vec2: of shape (n,).
        """
    def get_device(self) -> builtins.int:
        """The index of the tensor's device, -1 for the CPU."""
    def greater(self, other: Tensor | Number) -> Tensor:
        """Where `input` is greater than `other`, broadcast: bool, without a gradient."""
    def greater_(self, other: Tensor | Number) -> Tensor:
        """`greater`, in place."""
    def greater_equal(self, other: Tensor | Number) -> Tensor:
        """Where `input` is at least `other`, broadcast: bool, without a gradient."""
    def greater_equal_(self, other: Tensor | Number) -> Tensor:
        """`greater_equal`, in place."""
    def gt(self, other: Tensor | Number) -> Tensor:
        """Where `input` is greater than `other`, broadcast: bool, without a gradient."""
    def gt_(self, other: Tensor | Number) -> Tensor:
        """`gt`, in place."""
    def half(self, memory_format: memory_format | None = None) -> Tensor:
        """The tensor as float16; itself if it is that."""
    def hardshrink(self, lambd: builtins.float = 0.5, *, out: Tensor | None = None) -> Tensor:
        """The elements, and 0 where they are between `-lambd` and `lambd`."""
    def heaviside(self, values: Tensor, *, out: Tensor | None = None) -> Tensor:
        """1 for positive elements, 0 for negative ones, and `values` at 0, broadcast.

        Raises:
            RuntimeError: for complex numbers, or if the dtypes differ.
            NotImplementedError: in the backward pass: there is no derivative.
        """
    def heaviside_(self, values: Tensor) -> Tensor:
        """`heaviside`, in place."""
    def histc(self, bins: builtins.int = 100, min: builtins.float = 0, max: builtins.float = 0, *, out: Tensor | None = None) -> Tensor:
        """The number of elements in each of `bins` bins of equal width; without a gradient.

        Args:
            input: a floating tensor.
            min: the start of the first bin.
            max: the end of the last bin; if both are equal, the elements' extremes are used.
        """
    def histogram(self, bins: Ints | Tensor | Sequence[Tensor], *, range: tuple[builtins.float, builtins.float] | None = None, weight: Tensor | None = None, density: builtins.bool = False, out: Tensor | Sequence[Tensor] | None = None) -> return_types.histogram:
        """The number of elements in each bin, and the bins' edges; without a gradient.

        Args:
            input: a float or double tensor.
            bins: the number of bins of equal width, or the edges, in order.
            range: the start of the first and the end of the last bin; the elements' if None.
            weight: the weight of each element.
            density: divide by the sum, and by the width of each bin.
        """
    def hsplit(self, indices_or_sections: Ints, *more: builtins.int) -> tuple[Tensor, ...]:
        """`tensor_split` along axis 1, in parts that have to be equal."""
    def hypot(self, other: Tensor) -> Tensor:
        """The length of the hypotenuse, `sqrt(input**2 + other**2)`, broadcast."""
    def hypot_(self, other: Tensor) -> Tensor:
        """`hypot`, in place."""
    def i0(self) -> Tensor:
        """The modified Bessel function of the first kind, of order 0."""
    def i0_(self) -> Tensor:
        """`i0`, in place."""
    def igamma(self, other: Tensor) -> Tensor:
        """The lower incomplete gamma function, over the whole; no derivative by `input`. Needs SciPy."""
    def igamma_(self, other: Tensor) -> Tensor:
        """`igamma`, in place."""
    def igammac(self, other: Tensor) -> Tensor:
        """The upper incomplete gamma function, over the whole; no derivative by `input`. Needs SciPy."""
    def igammac_(self, other: Tensor) -> Tensor:
        """`igammac`, in place."""
    def index_add(self, dim: builtins.int, index: Tensor, source: Tensor, *, alpha: Number = 1, out: Tensor | None = None) -> Tensor:
        """A copy of `input` with `alpha` times the slices of `source` added at `index` along `dim`.

        Args:
            index: the position of each slice, of one axis; repeated positions add up.
            source: of the dtype of `input`, and of its shape apart from `dim`.
        """
    def index_add_(self, dim: builtins.int, index: Tensor, source: Tensor, *, alpha: Number = 1) -> Tensor:
        """`index_add`, in place."""
    def index_copy(self, dim: builtins.int, index: Tensor, source: Tensor, *, out: Tensor | None = None) -> Tensor:
        """A copy of `input` with the slices of `source` written at `index` along `dim`."""
    def index_copy_(self, dim: builtins.int, index: Tensor, source: Tensor) -> Tensor:
        """`index_copy`, in place."""
    def index_fill(self, dim: builtins.int, index: Tensor, value: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
        """A copy of `input` with one value in all slices at `index` along `dim`."""
    def index_fill_(self, dim: builtins.int, index: Tensor, value: Tensor | Number) -> Tensor:
        """`index_fill`, in place."""
    def index_put(self, indices: Sequence[Tensor | None], values: Tensor, accumulate: builtins.bool = False) -> Tensor:
        """A copy of `input` with `values`, broadcast, at the tensors of integers or masks `indices`.

        Args:
            indices: one tensor for each of the leading axes.
            values: of the dtype of `input`.
            accumulate: add the values instead of replacing; repeated indices add up.
        """
    def index_put_(self, indices: Sequence[Tensor | None], values: Tensor, accumulate: builtins.bool = False) -> Tensor:
        """`index_put`, in place."""
    def index_reduce(self, dim: builtins.int, index: Tensor, source: Tensor, reduce: IndexReduceKind, *, include_self: builtins.bool = True, out: Tensor | None = None) -> Tensor:
        """A copy of `input` in which slices along `dim` are reduced with those of `source`.

        Args:
            index, source: as in `index_add`.
            reduce, include_self: as in `scatter_reduce`, but not "sum".

        Raises:
            NotImplementedError: for extremes of complex numbers, or means of booleans; without
                `include_self`, for all complex numbers and booleans.
        """
    def index_reduce_(self, dim: builtins.int, index: Tensor, source: Tensor, reduce: IndexReduceKind, *, include_self: builtins.bool = True) -> Tensor:
        """`index_reduce`, in place."""
    def index_select(self, dim: builtins.int, index: Tensor, *, out: Tensor | None = None) -> Tensor:
        """The slices of `input` along `dim` at `index`, a tensor with at most one axis."""
    def indices(self) -> Tensor:
        """The indices of the stored rows, of shape (1, rows).

        Raises:
            RuntimeError: if the tensor is dense, or may have duplicate rows.
        """
    def inner(self, other: Tensor, *, out: Tensor | None = None) -> Tensor:
        """The sums of products along the last axes of two tensors.

        Args:
            input: of shape (..., k).
            other: of shape (..., k).
        """
    def int(self, memory_format: memory_format | None = None) -> Tensor:
        """The tensor as int32; itself if it is that."""
    def inverse(self, *, out: Tensor | None = None) -> Tensor:
        """The inverses of square matrices; see `linalg.inv`."""
    def is_coalesced(self) -> builtins.bool:
        """Whether the rows are sorted and without duplicates."""
    def is_conj(self) -> builtins.bool:
        """Return False: there are no lazy conjugates here."""
    def is_neg(self) -> builtins.bool:
        """Return False: there are no lazy conjugates here."""
    def is_nonzero(self) -> builtins.bool:
        """Whether the one element of a tensor is not zero."""
    def is_pinned(self, device: DeviceLike | None = None) -> builtins.bool:
        """Whether the tensor lies in pinned memory."""
    def is_same_size(self, other: Tensor) -> builtins.bool:
        """Whether two tensors have one shape."""
    def is_signed(self) -> builtins.bool:
        """Whether a tensor's dtype has negative numbers."""
    def isclose(self, other: Tensor, rtol: builtins.float = 1e-05, atol: builtins.float = 1e-08, equal_nan: builtins.bool = False) -> Tensor:
        """Where `|input - other| <= atol + rtol * |other|` or both are equal infinities; broadcast.

        Args:
            other: a tensor of its dtype.
            rtol: the tolerance relative to `other`.
            atol: the absolute tolerance.
            equal_nan: treat NaN as close to NaN.
        """
    def isfinite(self) -> Tensor:
        """Where elements are neither infinite nor NaN: bool, without a gradient."""
    def isinf(self) -> Tensor:
        """Where elements are infinite: bool, without a gradient."""
    def isnan(self) -> Tensor:
        """Where elements are NaN: bool, without a gradient."""
    def isneginf(self) -> Tensor:
        """Where elements are negative infinity."""
    def isposinf(self) -> Tensor:
        """Where elements are positive infinity."""
    def isreal(self) -> Tensor:
        """Where elements have no imaginary part."""
    def istft(self, n_fft: builtins.int, hop_length: builtins.int | None = None, win_length: builtins.int | None = None, window: Tensor | None = None, center: builtins.bool = True, normalized: builtins.bool = False, onesided: builtins.bool | None = None, length: builtins.int | None = None, return_complex: builtins.bool = False) -> Tensor:
        """The signal whose `stft` is nearest: its inverse with the same arguments.

        Args:
            input: a complex tensor of shape (frequencies, frames) or (batch, frequencies, frames).
            n_fft, hop_length, win_length, window, center, normalized: as for `stft`.
            onesided: the conjugate half is missing; if None, the number of frequencies tells.
            length: the length of the signal.
            return_complex: the signal is complex.

        Raises:
            RuntimeError: if sizes do not fit, or the windows do not cover the signal.
        """
    def item_async(self) -> Coroutine[Any, Any, builtins.int | builtins.float]:
        """An awaitable `item`: yields to the event loop while the number is computed and copied.

        Raises:
            RuntimeError: if there is not exactly one element, or for errors on the device.
        """
    def kron(self, other: Tensor, *, out: Tensor | None = None) -> Tensor:
        """The Kronecker product: a block of the second tensor for each element of the first."""
    def kthvalue(self, k: builtins.int, dim: builtins.int = -1, keepdim: builtins.bool = False, *, out: Tensor | Sequence[Tensor] | None = None) -> return_types.kthvalue:
        """The `k`-th smallest element along an axis, counted from 1, and its index, an int64.

        Args:
            input: a real tensor, not of booleans. NaN is greater than all numbers.
        """
    def lcm(self, other: Tensor) -> Tensor:
        """The least common multiple of integers, broadcast."""
    def lcm_(self, other: Tensor) -> Tensor:
        """`lcm`, in place."""
    def ldexp(self, other: Tensor, *, out: Tensor | None = None) -> Tensor:
        """`input * 2**other`, broadcast; integers in `other` leave the dtype of floating `input`."""
    def ldexp_(self, other: Tensor) -> Tensor:
        """`ldexp`, in place."""
    def le(self, other: Tensor | Number) -> Tensor:
        """Where `input` is at most `other`, broadcast: bool, without a gradient."""
    def le_(self, other: Tensor | Number) -> Tensor:
        """`le`, in place."""
    def lerp(self, end: Tensor, weight: Tensor | builtins.float, *, out: Tensor | None = None) -> Tensor:
        """`input + weight * (end - input)`, broadcast, computed from the nearer end."""
    def lerp_(self, end: Tensor, weight: Tensor | builtins.float) -> Tensor:
        """`lerp`, in place."""
    def less(self, other: Tensor | Number) -> Tensor:
        """Where `input` is less than `other`, broadcast: bool, without a gradient."""
    def less_(self, other: Tensor | Number) -> Tensor:
        """`less`, in place."""
    def less_equal(self, other: Tensor | Number) -> Tensor:
        """Where `input` is at most `other`, broadcast: bool, without a gradient."""
    def less_equal_(self, other: Tensor | Number) -> Tensor:
        """`less_equal`, in place."""
    def lgamma(self) -> Tensor:
        """The logarithm of the absolute value of the gamma function."""
    def lgamma_(self) -> Tensor:
        """`lgamma`, in place."""
    def log(self) -> Tensor:
        """The natural logarithm of each element."""
    def log10(self) -> Tensor:
        """The logarithm to base 10 of each element."""
    def log10_(self) -> Tensor:
        """`log10`, in place."""
    def log1p(self) -> Tensor:
        """log(1 + x) of each element, exact near 0."""
    def log1p_(self) -> Tensor:
        """`log1p`, in place."""
    def log2(self) -> Tensor:
        """The logarithm to base 2 of each element."""
    def log2_(self) -> Tensor:
        """`log2`, in place."""
    def log_(self) -> Tensor:
        """`log`, in place."""
    def log_normal_(self, mean: builtins.float = 1.0, std: builtins.float = 2.0, *, generator: Generator | None = None) -> Tensor:
        """Fill a floating tensor with numbers whose logarithms are normal."""
    def log_softmax(self, dim: builtins.int, dtype: DTypeLike | None = None, *, out: Tensor | None = None) -> Tensor:
        """The logarithm of the softmax along `dim`.

        Args:
            input: a tensor of a floating dtype, or of any if `dtype` is given.
            dtype: the floating dtype to compute in.

        Raises:
            NotImplementedError: for a dtype that is not floating.
        """
    def logaddexp(self, other: Tensor, *, out: Tensor | None = None) -> Tensor:
        """`log(exp(input) + exp(other))`, broadcast, without overflow.

        Raises:
            NotImplementedError: if both are integers.
        """
    def logaddexp2(self, other: Tensor, *, out: Tensor | None = None) -> Tensor:
        """The logarithm to base 2 of the sum of powers of 2, broadcast."""
    def logcumsumexp(self, dim: builtins.int, *, out: Tensor | None = None) -> Tensor:
        """The cumulative `logsumexp` along an axis, without overflow.

        Args:
            input: a floating or complex tensor.
        """
    def logdet(self) -> Tensor:
        """The logarithms of determinants, NaN for negative ones.

        Args:
            input: of shape (..., n, n), floating or complex.
        """
    def logical_and(self, other: Tensor) -> Tensor:
        """Where both are not 0, broadcast: bool, without a gradient."""
    def logical_and_(self, other: Tensor) -> Tensor:
        """`logical_and`, in place."""
    def logical_not(self) -> Tensor:
        """Where elements are 0: bool, without a gradient."""
    def logical_not_(self) -> Tensor:
        """`logical_not`, in place."""
    def logical_or(self, other: Tensor) -> Tensor:
        """Where one of the two is not 0, broadcast: bool, without a gradient."""
    def logical_or_(self, other: Tensor) -> Tensor:
        """`logical_or`, in place."""
    def logical_xor(self, other: Tensor) -> Tensor:
        """Where exactly one of the two is not 0, broadcast: bool, without a gradient."""
    def logical_xor_(self, other: Tensor) -> Tensor:
        """`logical_xor`, in place."""
    def logit(self, eps: builtins.float | None = None, *, out: Tensor | None = None) -> Tensor:
        """The logarithm of the odds, `log(x / (1 - x))`.

        Args:
            input: probabilities.
            eps: probabilities are clamped to [eps, 1 - eps]; outside there is no gradient.
        """
    def logit_(self, eps: builtins.float | None = None) -> Tensor:
        """`logit`, in place."""
    def logsumexp(self, dim: Ints | None, keepdim: builtins.bool = False, *, out: Tensor | None = None) -> Tensor:
        """The logarithm of the sum of the exponentials over some axes, without overflow.

        Args:
            input: any tensor; integers become floating.
            dim: an axis, or a sequence of them.
        """
    def long(self, memory_format: memory_format | None = None) -> Tensor:
        """The tensor as int64; itself if it is that."""
    def lt(self, other: Tensor | Number) -> Tensor:
        """Where `input` is less than `other`, broadcast: bool, without a gradient."""
    def lt_(self, other: Tensor | Number) -> Tensor:
        """`lt`, in place."""
    def lu(self, pivot: builtins.bool = True, get_infos: builtins.bool = False) -> tuple[Tensor, ...]:
        """The LU decomposition, packed in one matrix, and the pivots; see `linalg.lu_factor`.

        Args:
            get_infos: also return the position of the first 0 on the diagonal of U, or 0.
        """
    def lu_solve(self, LU_data: Tensor, LU_pivots: Tensor, *, out: Tensor | None = None) -> Tensor:
        """The solutions of linear systems from LU decompositions; see `linalg.lu_solve`."""
    def masked_fill(self, mask: Tensor, value: Tensor | Number) -> Tensor:
        """`input` with `value` where the mask holds, broadcast.

        Args:
            input: any tensor; the result has its dtype.
            mask: a bool tensor.
            value: a number, or a tensor without dimensions.
        """
    def masked_fill_(self, mask: Tensor, value: Tensor | Number) -> Tensor:
        """`masked_fill`, in place."""
    def masked_scatter(self, mask: Tensor, source: Tensor) -> Tensor:
        """A copy of `input` with the first elements of `source`, in order, where the mask is True."""
    def masked_scatter_(self, mask: Tensor, source: Tensor) -> Tensor:
        """`masked_scatter`, in place."""
    def masked_select(self, mask: Tensor, *, out: Tensor | None = None) -> Tensor:
        """The elements where `mask` is True, as a vector; both are broadcast."""
    def matmul(self, other: Tensor) -> Tensor:
        """The matrix product, batched and broadcast over leading axes.

        Args:
            input: of shape (..., m, k), or (k,).
            other: of shape (..., k, n), or (k,).
        """
    def matrix_exp(self) -> Tensor:
        """The exponentials of square matrices; see `linalg.matrix_exp`."""
    def matrix_power(self, n: builtins.int, *, out: Tensor | None = None) -> Tensor:
        """Integer powers of square matrices; see `linalg.matrix_power`."""
    @overload
    def max(self, *, out: Tensor | None = None) -> Tensor:
        """The greatest element of all, along an axis, or of each pair.

        Args:
            input: any real tensor.
            dim: None for the greatest of all, whose gradient is shared among ties; an axis for a
                named tuple of `values` and `indices`, where all of the gradient goes to the index that
                is returned; another tensor for `maximum`.
            other: the other tensor, by name.

        Raises:
            RuntimeError: for complex numbers, or a tensor without elements and no `dim`.
            TypeError: for `keepdim` and no `dim`.
        """
    @overload
    def max(self, dim: builtins.int, keepdim: builtins.bool = False, *, out: Sequence[Tensor] | None = None) -> return_types.max: ...
    @overload
    def max(self, dim: Tensor, *, out: Tensor | None = None) -> Tensor: ...
    @overload
    def max(self, *, other: Tensor, out: Tensor | None = None) -> Tensor: ...
    def maximum(self, other: Tensor) -> Tensor:
        """The greater of two elements, broadcast; the gradient of a tie is split in halves."""
    def mean(self, dim: Ints | None = None, keepdim: builtins.bool = False, *, dtype: DTypeLike | None = None, out: Tensor | None = None) -> Tensor:
        """The mean over some axes, of a floating or complex tensor; see `sum`.

        Raises:
            RuntimeError: for integers and booleans, or if an axis is named twice.
        """
    @overload
    def median(self, *, out: Tensor | None = None) -> Tensor:
        """The middle element, the lower of two; NaN where there is any.

        Args:
            input: a real tensor.
            dim: None for the middle of all elements, whose gradient is shared among ties; an axis for a
                named tuple of `values` and `indices`, where all of the gradient goes to the index.

        Raises:
            NotImplementedError: for booleans and complex numbers.
        """
    @overload
    def median(self, dim: builtins.int, keepdim: builtins.bool = False, *, out: Sequence[Tensor] | None = None) -> return_types.median: ...
    @overload
    def min(self, *, out: Tensor | None = None) -> Tensor:
        """The smallest element of all, along an axis, or of each pair.

        Args:
            input: any real tensor.
            dim: None for the smallest of all, whose gradient is shared among ties; an axis for a
                named tuple of `values` and `indices`, where all of the gradient goes to the index that
                is returned; another tensor for `minimum`.
            other: the other tensor, by name.

        Raises:
            RuntimeError: for complex numbers, or a tensor without elements and no `dim`.
            TypeError: for `keepdim` and no `dim`.
        """
    @overload
    def min(self, dim: builtins.int, keepdim: builtins.bool = False, *, out: Sequence[Tensor] | None = None) -> return_types.min: ...
    @overload
    def min(self, dim: Tensor, *, out: Tensor | None = None) -> Tensor: ...
    @overload
    def min(self, *, other: Tensor, out: Tensor | None = None) -> Tensor: ...
    def minimum(self, other: Tensor) -> Tensor:
        """The smaller of two elements, broadcast; the gradient of a tie is split in halves."""
    def mm(self, mat2: Tensor, *, out: Tensor | None = None) -> Tensor:
        """The product of two matrices, (m, k) and (k, n)."""
    def mode(self, dim: builtins.int = -1, keepdim: builtins.bool = False, *, out: Tensor | Sequence[Tensor] | None = None) -> return_types.mode:
        """The most frequent element along an axis, the least of several, and its index, an int64.

        Args:
            input: a real tensor.
        """
    def moveaxis(self, source: Ints, destination: Ints) -> Tensor:
        """Move axes to other positions; the rest keep their order."""
    def movedim(self, source: Ints, destination: Ints) -> Tensor:
        """Move axes to other positions; the rest keep their order."""
    def msort(self, *, out: Tensor | None = None) -> Tensor:
        """The elements sorted along the first axis."""
    def mul(self, other: Tensor | Number) -> Tensor:
        """`input * other`, broadcast."""
    def mul_(self, other: Tensor | Number) -> Tensor:
        """`mul`, in place."""
    def multinomial(self, num_samples: builtins.int, replacement: builtins.bool = False, *, generator: Generator | None = None, out: Tensor | None = None) -> Tensor:
        """Indices, (num_samples,) or (m, num_samples), drawn with the weights in each row of a tensor.

        Args:
            input: the weights, not negative: of shape (n,) or (m, n).
            num_samples: how many to draw from each row.
            replacement: an index may be drawn again.
            generator: the source of the numbers; the default generator if None.

        Raises:
            RuntimeError: if the weights are none, or too few to draw from.
        """
    def multiply(self, other: Tensor | Number) -> Tensor:
        """`input * other`, broadcast."""
    def multiply_(self, other: Tensor | Number) -> Tensor:
        """`multiply`, in place."""
    def mv(self, vec: Tensor, *, out: Tensor | None = None) -> Tensor:
        """The product of a matrix and a vector, (m, k) and (k,)."""
    def mvlgamma(self, p: builtins.int, *, out: Tensor | None = None) -> Tensor:
        """The logarithm of the multivariate gamma function of dimension `p`.

        Args:
            input: any real tensor, above `(p - 1) / 2`.
        """
    def mvlgamma_(self, p: builtins.int) -> Tensor:
        """`mvlgamma`, in place."""
    def nan_to_num(self, nan: builtins.float | None = None, posinf: builtins.float | None = None, neginf: builtins.float | None = None, *, out: Tensor | None = None) -> Tensor:
        """Replace NaN by 0 and infinities by the dtype's limits, unless other numbers are given."""
    def nan_to_num_(self, nan: builtins.float | None = None, posinf: builtins.float | None = None, neginf: builtins.float | None = None) -> Tensor:
        """`nan_to_num`, in place."""
    def nanmean(self, dim: Ints | None = None, keepdim: builtins.bool = False, *, dtype: DTypeLike | None = None, out: Tensor | None = None) -> Tensor:
        """The mean over some axes, without NaN."""
    @overload
    def nanmedian(self, *, out: Tensor | None = None) -> Tensor:
        """The middle element of those that are not NaN, the lower of two.

        Args:
            input: a real tensor.
            dim: None for the middle of all elements, whose gradient is shared among ties; an axis for a
                named tuple of `values` and `indices`, where all of the gradient goes to the index.

        Raises:
            NotImplementedError: for booleans and complex numbers.
        """
    @overload
    def nanmedian(self, dim: builtins.int, keepdim: builtins.bool = False, *, out: Sequence[Tensor] | None = None) -> return_types.nanmedian: ...
    def nanquantile(self, q: Tensor | builtins.float, dim: builtins.int | None = None, keepdim: builtins.bool = False, *, interpolation: Interpolation = 'linear', out: Tensor | None = None) -> Tensor:
        """The quantiles without NaN; see `quantile`."""
    def nansum(self, dim: Ints | None = None, keepdim: builtins.bool = False, *, dtype: DTypeLike | None = None, out: Tensor | None = None) -> Tensor:
        """The sum over some axes, without NaN."""
    def narrow(self, dim: builtins.int, start: Tensor | builtins.int, length: builtins.int) -> Tensor:
        """A view of `length` elements of an axis, from `start`."""
    def narrow_copy(self, dim: builtins.int, start: Tensor | builtins.int, length: builtins.int, *, out: Tensor | None = None) -> Tensor:
        """A copy of `length` elements of an axis, from `start`."""
    def ne(self, other: Tensor | Number) -> Tensor:
        """Where `input` differs from `other`, broadcast: bool, without a gradient."""
    def ne_(self, other: Tensor | Number) -> Tensor:
        """`ne`, in place."""
    def neg(self) -> Tensor:
        """Each element with its sign changed."""
    def neg_(self) -> Tensor:
        """`neg`, in place."""
    def negative(self) -> Tensor:
        """Each element with its sign changed."""
    def negative_(self) -> Tensor:
        """`negative`, in place."""
    def new(self, *args: Any, device: DeviceLike | None = None, **kwargs: Any) -> Tensor:
        """A tensor of this tensor's dtype and device; the arguments are those of `Tensor`."""
    def new_empty(self, *sizes: Ints, size: Ints | None = None, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: builtins.bool = False, layout: layout | None = None, pin_memory: builtins.bool = False) -> Tensor:
        """Arbitrary values of this tensor's dtype and on its device, in another shape."""
    def new_full(self, size: Ints, fill_value: Tensor | Number, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: builtins.bool = False, layout: layout | None = None, pin_memory: builtins.bool = False) -> Tensor:
        """One value of this tensor's dtype and on its device, in another shape."""
    def new_ones(self, *sizes: Ints, size: Ints | None = None, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: builtins.bool = False, layout: layout | None = None, pin_memory: builtins.bool = False) -> Tensor:
        """Ones of this tensor's dtype and on its device, in another shape."""
    def new_tensor(self, data: object, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: builtins.bool = False) -> Tensor:
        """A tensor with a copy of some data, of this tensor's dtype and on its device."""
    def new_zeros(self, *sizes: Ints, size: Ints | None = None, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: builtins.bool = False, layout: layout | None = None, pin_memory: builtins.bool = False) -> Tensor:
        """Zeros of this tensor's dtype and on its device, in another shape."""
    def nextafter(self, other: Tensor) -> Tensor:
        """The next number after `input` in the direction of `other`."""
    def nextafter_(self, other: Tensor) -> Tensor:
        """`nextafter`, in place."""
    @overload
    def nonzero(self, *, as_tuple: Literal[False] = False, out: Tensor | None = None) -> Tensor:
        """The indices of nonzero elements: a row for each, or with `as_tuple` a tensor by axis."""
    @overload
    def nonzero(self, *, as_tuple: Literal[True], out: Sequence[Tensor] | None = None) -> tuple[Tensor, ...]: ...
    @overload
    def nonzero(self, *, as_tuple: builtins.bool = False, out: Tensor | None = None) -> Tensor | tuple[Tensor, ...]: ...
    def nonzero_static(self, *, size: builtins.int, fill_value: builtins.int = -1, out: Tensor | None = None) -> Tensor:
        """The indices of the first `size` nonzero elements, a row for each; absent rows are filled."""
    def norm(self, p: builtins.float | MatrixNorm | None = 'fro', dim: Ints | None = None, keepdim: builtins.bool = False, dtype: DTypeLike | None = None, *, out: Tensor | None = None) -> Tensor:
        """The norm of a tensor as a vector, over some axes; PyTorch's older name.

        Args:
            input: a floating or complex tensor.
            p: the order: a number, "fro" or None for the Euclidean norm, "nuc" for the sum of the
                singular values of matrices.
            dim: an axis, or a sequence of them; all if None.
            dtype: the dtype that the elements are converted to first.
        """
    def normal_(self, mean: builtins.float = 0.0, std: builtins.float = 1.0, *, generator: Generator | None = None) -> Tensor:
        """Fill with normal numbers, floating or complex."""
    def not_equal(self, other: Tensor | Number) -> Tensor:
        """Where `input` differs from `other`, broadcast: bool, without a gradient."""
    def not_equal_(self, other: Tensor | Number) -> Tensor:
        """`not_equal`, in place."""
    def outer(self, vec2: Tensor, *, out: Tensor | None = None) -> Tensor:
        """The outer product of two vectors.

        Args:
            input: of shape (m,).
            vec2: of shape (n,).
        """
    def permute(self, *order: Ints, dims: Ints | None = None) -> Tensor:
        """The axes in another order."""
    def pin_memory(self, device: DeviceLike | None = None) -> Tensor:
        """A copy in pinned memory, from which devices copy asynchronously; itself if it is there.

        Args:
            input: a tensor in host memory.
            device: the accelerator to pin it for.

        Raises:
            RuntimeError: if there is no accelerator, or the tensor is not in the host's memory.
        """
    def pinverse(self, rcond: Tensor | builtins.float = 1e-15) -> Tensor:
        """The pseudo-inverses of matrices; see `linalg.pinv`."""
    def positive(self) -> Tensor:
        """The tensor itself.

        Raises:
            RuntimeError: for booleans.
        """
    def pow(self, exponent: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
        """`input` to the power of `exponent`, broadcast.

        Raises:
            RuntimeError: if the shapes can't be broadcast, or for integers to a negative number.
            NotImplementedError: for booleans.
        """
    def pow_(self, exponent: Tensor | Number) -> Tensor:
        """`pow`, in place."""
    def prelu(self, weight: Tensor) -> Tensor:
        """The elements, the negative ones times a learnt slope.

        Args:
            input: a floating tensor.
            weight: one slope, or one for each index of the second axis.
        """
    def prod(self, dim: builtins.int | None = None, keepdim: builtins.bool = False, *, dtype: DTypeLike | None = None, out: Tensor | None = None) -> Tensor:
        """The product of all elements, or along an axis; gradients are exact even at zeros.

        Args:
            dim: an axis; all if None.
            dtype: converted to before the reduction; if None, int64 for integers and booleans.
        """
    def put(self, index: Tensor, source: Tensor, accumulate: builtins.bool = False) -> Tensor:
        """A copy of `input` with the elements of `source` at flat indices.

        Args:
            index: int64; negative numbers count from the end.
            source: of the dtype of `input`, with as many elements as `index`.
            accumulate: add the values instead of replacing; repeated indices add up.
        """
    def put_(self, index: Tensor, source: Tensor, accumulate: builtins.bool = False) -> Tensor:
        """`put`, in place."""
    def qr(self, some: builtins.bool = True, *, out: Tensor | Sequence[Tensor] | None = None) -> return_types.qr:
        """The QR decomposition; see `linalg.qr`.

        Args:
            some: the reduced form.
        """
    def quantile(self, q: Tensor | builtins.float, dim: builtins.int | None = None, keepdim: builtins.bool = False, *, interpolation: Interpolation = 'linear', out: Tensor | None = None) -> Tensor:
        """The quantiles of all elements, or along an axis; NaN if there is one.

        Args:
            input: a float or double tensor, not empty.
            q: a number from 0 to 1, or a vector of them, whose axis is the result's first.
            interpolation: between two elements: "linear", "lower", "higher", "midpoint", "nearest".
        """
    def rad2deg(self, *, out: Tensor | None = None) -> Tensor:
        """Convert radians to degrees."""
    def rad2deg_(self) -> Tensor:
        """`rad2deg`, in place."""
    def random_(self, *args: builtins.int, generator: Generator | None = None, **kwargs: builtins.int) -> Tensor:
        """Fill with integers uniform in [from, to): `random_()`, `random_(to)` or `random_(from, to)`.

        Without `to`, the bound is the largest integer up to which the dtype holds every integer.

        Raises:
            RuntimeError: if there are no such integers or the dtype can't hold them.
            NotImplementedError: for complex numbers.
        """
    def ravel(self) -> Tensor:
        """Flatten the tensor to one axis, contiguous in memory."""
    def reciprocal(self) -> Tensor:
        """1 / x of each element."""
    def reciprocal_(self) -> Tensor:
        """`reciprocal`, in place."""
    def record_stream(self, stream: Stream) -> None:
        """Keep the tensor's memory until a stream has finished its present and upcoming work.

        Call it after using a tensor in another stream than the one it was made in.
        """
    def relu(self) -> Tensor:
        """Each element, or 0 where it is negative; the gradient at 0 is 0."""
    def relu_(self) -> Tensor:
        """`relu`, in place."""
    def remainder(self, other: Tensor | Number) -> Tensor:
        """The remainder of a division rounded down, broadcast: it has `other`'s sign."""
    def remainder_(self, other: Tensor | Number) -> Tensor:
        """`remainder`, in place."""
    def renorm(self, p: builtins.float, dim: builtins.int, maxnorm: builtins.float, *, out: Tensor | None = None) -> Tensor:
        """Scale slices along an axis down to a norm of at most `maxnorm`.

        Args:
            input: a floating tensor of two axes at least.
            p: the order of the norm, above 0.
        """
    def renorm_(self, p: builtins.float, dim: builtins.int, maxnorm: builtins.float) -> Tensor:
        """`renorm`, in place."""
    def repeat(self, *counts: Ints, repeats: Ints | None = None) -> Tensor:
        """Repeat the tensor along each axis, and along new leading axes."""
    def repeat_interleave(self, repeats: Tensor | builtins.int | None = None, dim: builtins.int | None = None, *, output_size: builtins.int | None = None) -> Tensor:
        """Repeat each element, or each slice along an axis.

        Args:
            input: the tensor; without `repeats`, the counts, and the result repeats their indices.
            repeats: the number of repetitions: a number, or a tensor with one for each slice.
            dim: the axis; None flattens the tensor first.
            output_size: the expected length of the result; another length raises.
        """
    def reshape(self, *sizes: Ints, shape: Ints | None = None) -> Tensor:
        """The same elements in another shape, a view where the memory allows it."""
    def reshape_as(self, other: Tensor) -> Tensor:
        """`reshape` to the shape of another tensor."""
    def resize_(self, *sizes: Ints, memory_format: memory_format | None = None) -> Tensor:
        """Change a tensor's shape in place; elements keep their order in memory.

        If there are more elements than before, new memory is allocated and the added ones are zero. A
        resize to the present shape does nothing.

        Args:
            input: the tensor, which must not require grad, except in inference mode.
            sizes: the shape, as integers or one sequence of them.
            memory_format: for PyTorch compatibility: the rows are always the last axis.

        Raises:
            RuntimeError: outside of inference mode if the tensor requires grad; for a negative length.
        """
    def resize_as_(self, the_template: Tensor, *, memory_format: memory_format | None = None) -> Tensor:
        """Give a tensor the shape of another, in place: see `resize_`."""
    def resolve_conj(self) -> Tensor:
        """Return the tensor itself: there are no lazy conjugates here."""
    def resolve_neg(self) -> Tensor:
        """Return the tensor itself: there are no lazy conjugates here."""
    def roll(self, shifts: Ints, dims: Ints | None = None) -> Tensor:
        """A copy with elements shifted cyclically along axes.

        Args:
            shifts: the distance for each axis in `dims`.
            dims: the axes; None for the flattened tensor.
        """
    def rot90(self, k: builtins.int = 1, dims: Sequence[builtins.int] = (0, 1)) -> Tensor:
        """Rotate by 90 degrees `k` times, from the first of two axes towards the second."""
    def round(self, *, decimals: builtins.int = 0, out: Tensor | None = None) -> Tensor:
        """Each element rounded to the nearest, halves to even; the gradient is 0.

        Args:
            input: any real tensor.
            decimals: how many decimal places are kept; if negative, places before the point.

        Raises:
            NotImplementedError: for dtypes that are not rounded, or integers with `decimals`.
        """
    def round_(self, *, decimals: builtins.int = 0) -> Tensor:
        """`round`, in place."""
    def rsqrt(self) -> Tensor:
        """1 / sqrt(x) of each element."""
    def rsqrt_(self) -> Tensor:
        """`rsqrt`, in place."""
    def scatter(self, dim: builtins.int, index: Tensor, src: Tensor | Number | None = None, *, value: Number | None = None, reduce: ScatterKind | None = None, out: Tensor | None = None) -> Tensor:
        """A copy of `input` with the elements of `src` written at `index` along `dim`.

        Args:
            index: the positions, no larger than `src`, nor than `input` apart from `dim`.
            src: a tensor of the dtype of `input`, or a number.
            value: the number, as a keyword, instead of `src`.
            reduce: None to replace elements, or "add" or "multiply"; as in PyTorch these have no
                gradient, which `scatter_add` and `scatter_reduce` have.
        """
    def scatter_(self, dim: builtins.int, index: Tensor, src: Tensor | Number | None = None, *, value: Number | None = None, reduce: ScatterKind | None = None) -> Tensor:
        """`scatter`, in place."""
    def scatter_add(self, dim: builtins.int, index: Tensor, src: Tensor, *, out: Tensor | None = None) -> Tensor:
        """A copy of `input` with the elements of `src` added at `index` along `dim`."""
    def scatter_add_(self, dim: builtins.int, index: Tensor, src: Tensor) -> Tensor:
        """`scatter_add`, in place."""
    def scatter_reduce(self, dim: builtins.int, index: Tensor, src: Tensor, reduce: ScatterReduceKind, *, include_self: builtins.bool = True, out: Tensor | None = None) -> Tensor:
        """A copy of `input` in which elements are reduced with those of `src` along `dim`.

        Args:
            index, src: as in `scatter`.
            reduce: "sum", "prod", "mean", "amax" or "amin", whose gradient is shared among ties.
            include_self: include the elements of `input`; else they stay only where none is scattered.

        Raises:
            NotImplementedError: for extremes of complex numbers, or means of booleans.
        """
    def scatter_reduce_(self, dim: builtins.int, index: Tensor, src: Tensor, reduce: ScatterReduceKind, *, include_self: builtins.bool = True) -> Tensor:
        """`scatter_reduce`, in place."""
    def select(self, dim: builtins.int, index: Tensor | builtins.int) -> Tensor:
        """A view of the slice at `index` along an axis, without that axis."""
    def select_scatter(self, src: Tensor, dim: builtins.int, index: builtins.int) -> Tensor:
        """A copy of `input` with `src` as the slice at `index` along `dim`."""
    def sgn(self) -> Tensor:
        """Each element divided by its absolute value, and 0 at 0."""
    def sgn_(self) -> Tensor:
        """`sgn`, in place."""
    def short(self, memory_format: memory_format | None = None) -> Tensor:
        """The tensor as int16; itself if it is that."""
    def sigmoid(self) -> Tensor:
        """1 / (1 + exp(-x)) of each element."""
    def sigmoid_(self) -> Tensor:
        """`sigmoid`, in place."""
    def sign(self) -> Tensor:
        """-1, 0 or 1 for each element; the gradient is 0."""
    def sign_(self) -> Tensor:
        """`sign`, in place."""
    def signbit(self) -> Tensor:
        """Where elements are negative or -0."""
    def sin(self) -> Tensor:
        """The sine of each element."""
    def sin_(self) -> Tensor:
        """`sin`, in place."""
    def sinc(self) -> Tensor:
        """`sin(pi x) / (pi x)`, and 1 at 0."""
    def sinc_(self) -> Tensor:
        """`sinc`, in place."""
    def sinh(self) -> Tensor:
        """The hyperbolic sine of each element."""
    def sinh_(self) -> Tensor:
        """`sinh`, in place."""
    def slice_scatter(self, src: Tensor, dim: builtins.int = 0, start: builtins.int | None = None, end: builtins.int | None = None, step: builtins.int = 1, *, out: Tensor | None = None) -> Tensor:
        """A copy of `input` with `src` as the slice along `dim`."""
    def slogdet(self, *, out: Tensor | Sequence[Tensor] | None = None) -> return_types.slogdet:
        """The signs and logarithms of absolute values of determinants; see `linalg.slogdet`."""
    def softmax(self, dim: builtins.int, dtype: DTypeLike | None = None, *, out: Tensor | None = None) -> Tensor:
        """The exponentials, divided by their sum along `dim`.

        Args:
            input: a tensor of a floating dtype, or of any if `dtype` is given.
            dtype: the floating dtype to compute in.

        Raises:
            NotImplementedError: for a dtype that is not floating.
        """
    def sort(self, dim: builtins.int = -1, descending: builtins.bool = False, stable: builtins.bool | None = False, *, out: Tensor | Sequence[Tensor] | None = None) -> return_types.sort:
        """The sorted `values` along an axis, and their int64 `indices`.

        NaN is greater than all numbers. Equal elements always keep their order.

        Args:
            input: a real tensor.
            descending: sort the greatest first.
            stable: without effect, as the sort is always stable.
        """
    def sparse_dim(self) -> builtins.int:
        """The number of sparse axes: 1, or 0 for a dense tensor."""
    def split(self, split_size_or_sections: Ints, dim: builtins.int = 0) -> tuple[Tensor, ...]:
        """Split an axis into consecutive views.

        Args:
            split_size_or_sections: the length of each view (the last may be shorter), or a sequence
                of all lengths.
        """
    def split_with_sizes(self, split_size_or_sections: Ints, dim: builtins.int = 0) -> tuple[Tensor, ...]:
        """Split an axis into consecutive views.

        Args:
            split_size_or_sections: the length of each view (the last may be shorter), or a sequence
                of all lengths.
        """
    def sqrt(self) -> Tensor:
        """The square root of each element."""
    def sqrt_(self) -> Tensor:
        """`sqrt`, in place."""
    def square(self) -> Tensor:
        """Each element times itself."""
    def square_(self) -> Tensor:
        """`square`, in place."""
    def squeeze(self, *dims: Ints, dim: Ints | None = None) -> Tensor:
        """Remove the axes of length 1, all of them or those in `dim`."""
    def squeeze_(self, *dims: Ints, dim: Ints | None = None) -> Tensor:
        """`squeeze`, in place: the same tensor with other axes."""
    def std(self, dim: Ints | None = None, unbiased: builtins.bool | None = None, keepdim: builtins.bool = False, *, correction: Number | None = None, out: Tensor | None = None) -> Tensor:
        """The standard deviation over some axes; the gradient of 0 is 0; see `var`."""
    def stft(self, n_fft: builtins.int, hop_length: builtins.int | None = None, win_length: builtins.int | None = None, window: Tensor | None = None, center: builtins.bool = True, pad_mode: PadMode = 'reflect', normalized: builtins.bool = False, onesided: builtins.bool | None = None, return_complex: builtins.bool | None = None, align_to_window: builtins.bool | None = None) -> Tensor:
        """The short-time Fourier transform: transforms of overlapping frames of a signal.

        Args:
            input: signals, of shape (length,) or (batch, length).
            n_fft: the number of points in a frame.
            hop_length: the distance between the starts of frames; `n_fft // 4` if None.
            win_length: the length of the window, centred in a frame; `n_fft` if None.
            window: the factors of a frame, of shape (win_length,); ones if None.
            center: pad the signal, so that the first frame is centred at the first element.
            pad_mode: the mode of this padding, as in `pad`.
            normalized: divide by the root of `n_fft`.
            onesided: drop the conjugate half; True if None and all is real.
            return_complex: True; False returns real numbers with the two parts along a last axis.
            align_to_window: without `center`, align frames with the window's start.

        Returns:
            A complex tensor of shape (..., frequencies, frames).

        Raises:
            RuntimeError: if sizes do not fit, or `return_complex` is not given for real numbers.
        """
    def sub(self, other: Tensor | Number, *, alpha: Number = 1, out: Tensor | None = None) -> Tensor:
        """`input - alpha * other`, broadcast.

        Raises:
            RuntimeError: if the shapes can't be broadcast, for booleans, or if `alpha` has a dtype
                above theirs.
        """
    def sub_(self, other: Tensor | Number, *, alpha: Number = 1) -> Tensor:
        """`sub`, in place."""
    def subtract(self, other: Tensor | Number, *, alpha: Number = 1, out: Tensor | None = None) -> Tensor:
        """`input - alpha * other`, broadcast.

        Raises:
            RuntimeError: if the shapes can't be broadcast, for booleans, or if `alpha` has a dtype
                above theirs.
        """
    def subtract_(self, other: Tensor | Number, *, alpha: Number = 1) -> Tensor:
        """`subtract`, in place."""
    def sum(self, dim: Ints | None = None, keepdim: builtins.bool = False, *, dtype: DTypeLike | None = None, out: Tensor | None = None) -> Tensor:
        """The sum over some axes.

        Args:
            dim: an axis, or a sequence of them; all if None.
            keepdim: keep the reduced axes with length 1.
            dtype: converted to before the reduction; if None, int64 for integers and booleans.
        """
    def sum_to_size(self, *sizes: Ints, size: Ints | None = None) -> Tensor:
        """Sum over axes to a shape that broadcasts to the tensor's: the adjoint of broadcasting.

        Args:
            sizes: the shape, as one sequence or as several numbers.
        """
    def svd(self, some: builtins.bool = True, compute_uv: builtins.bool = True, *, out: Tensor | Sequence[Tensor] | None = None) -> return_types.svd:
        """The singular values and vectors, with `U @ diag(S) @ V.mH = input`; see `linalg.svd`.

        Args:
            some: the reduced form.
            compute_uv: compute the vectors, which are otherwise zeros.
        """
    def swapaxes(self, axis0: builtins.int, axis1: builtins.int) -> Tensor:
        """`transpose` by NumPy's name: a view with two axes exchanged."""
    def swapaxes_(self, axis0: builtins.int, axis1: builtins.int) -> Tensor:
        """`swapaxes`, in place: the same tensor with other axes."""
    def swapdims(self, dim0: builtins.int, dim1: builtins.int) -> Tensor:
        """Exchange two axes; the result is a view."""
    def swapdims_(self, dim0: builtins.int, dim1: builtins.int) -> Tensor:
        """`swapdims`, in place: the same tensor with other axes."""
    def t(self) -> Tensor:
        """Transpose a matrix; tensors of fewer axes are not changed."""
    def t_(self) -> Tensor:
        """`t`, in place: the same tensor with other axes."""
    def take(self, index: Tensor, *, out: Tensor | None = None) -> Tensor:
        """The elements at flat indices, in the shape of `index`."""
    def take_along_dim(self, indices: Tensor, dim: builtins.int | None = None, *, out: Tensor | None = None) -> Tensor:
        """`gather` with broadcasting apart from `dim`; if `dim` is None, of the flattened input."""
    def tan(self) -> Tensor:
        """The tangent of each element."""
    def tan_(self) -> Tensor:
        """`tan`, in place."""
    def tanh(self) -> Tensor:
        """The hyperbolic tangent of each element."""
    def tanh_(self) -> Tensor:
        """`tanh`, in place."""
    def tensor_split(self, indices_or_sections: Tensor | Ints, dim: builtins.int = 0) -> tuple[Tensor, ...]:
        """Split an axis into nearly equal views, or at given indices.

        Args:
            indices_or_sections: the number of views, or the indices to split at; tensors are read.
        """
    def tile(self, *repeats: Ints, dims: Ints | None = None) -> Tensor:
        """Repeat the tensor along its axes; `dims` is aligned to the last axis."""
    @overload
    def to(self, dtype: DTypeLike, non_blocking: builtins.bool = False, copy: builtins.bool = False, *, memory_format: memory_format | None = None) -> Tensor:
        """Convert the tensor to another dtype or device, recorded; itself if nothing changes.

        Called as `to(dtype)`, `to(device, dtype)` or `to(other)`, each followed by `non_blocking` and
        `copy`; all can be keywords.

        Args:
            args: see above.
            kwargs: the same by name, and `memory_format`, which is only checked.
        """
    @overload
    def to(self, device: DeviceLike | None = None, dtype: DTypeLike | None = None, non_blocking: builtins.bool = False, copy: builtins.bool = False, *, memory_format: memory_format | None = None) -> Tensor: ...
    @overload
    def to(self, other: Tensor, non_blocking: builtins.bool = False, copy: builtins.bool = False, *, memory_format: memory_format | None = None) -> Tensor: ...
    def to_async(self, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Tensor]:
        """An awaitable `to`: the call starts the copy, and awaiting it yields to the event loop.

        Args:
            args, kwargs: those of `to`.

        Raises:
            RuntimeError: for errors on the device.

        Example:
            >>> import asyncio
            >>> async def main():
            ...     x = await ag.ones(2).to_async("sim:0")
            ...     return await (x + 1).to_async("cpu")
            >>> asyncio.run(main())
            tensor([2., 2.])
        """
    def to_dense(self, dtype: DTypeLike | None = None) -> Tensor:
        """The dense tensor with all elements; a dense tensor of that dtype is returned unchanged.

        Args:
            dtype: of the result; that of `input` if None.
        """
    def topk(self, k: builtins.int, dim: builtins.int = -1, largest: builtins.bool = True, sorted: builtins.bool = True, *, out: Tensor | Sequence[Tensor] | None = None) -> return_types.topk:
        """The `k` greatest or smallest `values` along an axis, and their int64 `indices`.

        Args:
            input: a real tensor. NaN is greater than all numbers.
            largest: return the greatest, otherwise the smallest.
            sorted: without effect, as the result is always sorted.
        """
    def trace(self) -> Tensor:
        """The sum of the diagonal of a matrix, not of booleans."""
    def transpose(self, dim0: builtins.int, dim1: builtins.int) -> Tensor:
        """Exchange two axes; the result is a view."""
    def transpose_(self, dim0: builtins.int, dim1: builtins.int) -> Tensor:
        """`transpose`, in place: the same tensor with other axes."""
    def tril(self, diagonal: builtins.int = 0, *, out: Tensor | None = None) -> Tensor:
        """The elements of matrices on and below a diagonal, zeros above."""
    def tril_(self, diagonal: builtins.int = 0) -> Tensor:
        """`tril`, in place."""
    def triu(self, diagonal: builtins.int = 0, *, out: Tensor | None = None) -> Tensor:
        """The elements of matrices on and above a diagonal, zeros below."""
    def triu_(self, diagonal: builtins.int = 0) -> Tensor:
        """`triu`, in place."""
    def true_divide(self, other: Tensor | Number, *, rounding_mode: Rounding | None = None, out: Tensor | None = None) -> Tensor:
        """`input / other`, broadcast.

        Args:
            rounding_mode: None for the true quotient, "trunc" to round it towards 0, "floor" to
                round it down; rounded quotients keep integers and have a gradient of 0.

        Raises:
            RuntimeError: if the shapes can't be broadcast, for another rounding mode, or where
                integers are divided by zero and rounded.
        """
    def true_divide_(self, other: Tensor | Number, *, rounding_mode: Rounding | None = None) -> Tensor:
        """`true_divide`, in place."""
    def trunc(self) -> Tensor:
        """Each element rounded towards 0; the gradient is 0."""
    def trunc_(self) -> Tensor:
        """`trunc`, in place."""
    @overload
    def type(self) -> str:
        """Convert to another dtype, or return the type's name, such as "asyncgrad.FloatTensor".

        Args:
            dtype: a dtype, a name or a type of tensors; None for the name.
            non_blocking: for PyTorch compatibility.
        """
    @overload
    def type(self, dtype: DTypeLike, non_blocking: Any = False) -> Tensor: ...
    def type_as(self, other: Tensor) -> Tensor:
        """Convert the tensor to the dtype of another."""
    def unbind(self, dim: builtins.int = 0) -> tuple[Tensor, ...]:
        """Views of all slices along an axis, without that axis."""
    def unflatten(self, dim: builtins.int, sizes: Sequence[builtins.int]) -> Tensor:
        """Split the axis `dim` into several; one of `sizes` may be -1."""
    def unfold(self, dimension: builtins.int, size: builtins.int, step: builtins.int) -> Tensor:
        """A view of all windows along an axis, whose elements come last.

        Args:
            size: the length of a window.
            step: the distance between the starts of windows.
        """
    def uniform_(self, *args: builtins.float, generator: Generator | None = None, **kwargs: builtins.float) -> Tensor:
        """Fill with floating or complex numbers uniform in [from, to): `uniform_(from=0, to=1)`."""
    @overload
    def unique(self, sorted: builtins.bool = True, return_inverse: Literal[False] = False, return_counts: Literal[False] = False, dim: builtins.int | None = None) -> Tensor:
        """The distinct elements, or distinct slices along an axis, in order.

        Args:
            sorted: for PyTorch compatibility: they are always sorted.
            return_inverse: also return the index in the result of each element.
            return_counts: also return the number of occurrences of each.

        Raises:
            RuntimeError: if parts along an axis have no elements.
            NotImplementedError: in the backward pass: there is no derivative.
        """
    @overload
    def unique(self, sorted: builtins.bool = True, *, return_inverse: Literal[True], return_counts: Literal[False] = False, dim: builtins.int | None = None) -> tuple[Tensor, Tensor]: ...
    @overload
    def unique(self, sorted: builtins.bool = True, return_inverse: Literal[False] = False, *, return_counts: Literal[True], dim: builtins.int | None = None) -> tuple[Tensor, Tensor]: ...
    @overload
    def unique(self, sorted: builtins.bool = True, *, return_inverse: Literal[True], return_counts: Literal[True], dim: builtins.int | None = None) -> tuple[Tensor, Tensor, Tensor]: ...
    @overload
    def unique(self, sorted: builtins.bool = True, return_inverse: builtins.bool = False, return_counts: builtins.bool = False, dim: builtins.int | None = None) -> Tensor | tuple[Tensor, ...]: ...
    @overload
    def unique_consecutive(self, return_inverse: Literal[False] = False, return_counts: Literal[False] = False, dim: builtins.int | None = None) -> Tensor:
        """The elements, or slices along an axis, without those equal to the one before.

        Args:
            return_inverse: also return the index in the result of each element.
            return_counts: also return the length of each run.

        Raises:
            RuntimeError, NotImplementedError: as `unique`.
        """
    @overload
    def unique_consecutive(self, return_inverse: Literal[True], return_counts: Literal[False] = False, dim: builtins.int | None = None) -> tuple[Tensor, Tensor]: ...
    @overload
    def unique_consecutive(self, return_inverse: Literal[False] = False, *, return_counts: Literal[True], dim: builtins.int | None = None) -> tuple[Tensor, Tensor]: ...
    @overload
    def unique_consecutive(self, return_inverse: Literal[True], return_counts: Literal[True], dim: builtins.int | None = None) -> tuple[Tensor, Tensor, Tensor]: ...
    @overload
    def unique_consecutive(self, return_inverse: builtins.bool = False, return_counts: builtins.bool = False, dim: builtins.int | None = None) -> Tensor | tuple[Tensor, ...]: ...
    def unsafe_chunk(self, chunks: builtins.int, dim: builtins.int = 0) -> tuple[Tensor, ...]:
        """`chunk` in parts that autograd does not treat as views: they can be changed in place."""
    def unsafe_split(self, split_size: Ints, dim: builtins.int = 0) -> tuple[Tensor, ...]:
        """`split` in parts that autograd does not treat as views, so they can be changed in place.

        Changes of a part also change the input's values, but gradients ignore that.
        """
    def unsafe_split_with_sizes(self, split_sizes: Ints, dim: builtins.int = 0) -> tuple[Tensor, ...]:
        """`unsafe_split` with the lengths of the parts."""
    def unsqueeze(self, dim: builtins.int) -> Tensor:
        """Insert a new axis of length 1 at `dim`."""
    def unsqueeze_(self, dim: builtins.int) -> Tensor:
        """`unsqueeze`, in place: the same tensor with other axes."""
    def values(self) -> Tensor:
        """The values of the stored rows, of shape (rows, ...).

        Raises:
            RuntimeError: if the tensor is dense, or may have duplicate rows.
        """
    def var(self, dim: Ints | None = None, unbiased: builtins.bool | None = None, keepdim: builtins.bool = False, *, correction: Number | None = None, out: Tensor | None = None) -> Tensor:
        """The variance over some axes.

        Args:
            input: a floating or complex tensor; the result is real.
            dim: an axis, or a sequence of them; all if None. A bool here is `unbiased`.
            unbiased: the old form of `correction`: 1 if True, 0 if False.
            correction: subtracted from the number of elements; 1 if left out.

        Raises:
            RuntimeError: for integers and booleans, or if an axis is named twice.
        """
    def vdot(self, other: Tensor, *, out: Tensor | None = None) -> Tensor:
        """The sum of the products of two vectors, the first conjugated."""
    def view(self, *shape: Ints | DType | np.dtype[Any] | builtins.type[Any], size: Ints | None = None, dtype: DTypeLike | None = None) -> Tensor:
        """A view of the memory in another shape; or, given a dtype, its bits as that dtype.

        Raises:
            RuntimeError: if the elements do not fit, or the memory has to be copied.
        """
    def view_as(self, other: Tensor) -> Tensor:
        """`view` in the shape of another tensor."""
    def vsplit(self, indices_or_sections: Ints, *more: builtins.int) -> tuple[Tensor, ...]:
        """`tensor_split` along axis 0, in parts that have to be equal."""
    def xlogy(self, other: Tensor | Number) -> Tensor:
        """`input * log(other)`, and 0 where `input` is, broadcast."""
    def xlogy_(self, other: Tensor | Number) -> Tensor:
        """`xlogy`, in place."""
