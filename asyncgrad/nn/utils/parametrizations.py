"""Common parametrizations, PyTorch's `torch.nn.utils.parametrizations`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncgrad import linalg
from asyncgrad.autograd.modes import no_grad
from asyncgrad.choices import OrthogonalMap, words
from asyncgrad.creation import eye, from_numpy, randn, zeros_like
from asyncgrad.nn import functional as F
from asyncgrad.nn import init
from asyncgrad.nn.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from asyncgrad.nn.module import Module
from asyncgrad.nn.utils.parametrize import register_parametrization
from asyncgrad.ops.api.comparison import allclose
from asyncgrad.ops.api.composite import vdot
from asyncgrad.ops.api.linalg import mv
from asyncgrad.ops.api.reduction import vector_norm
from asyncgrad.ops.api.shape import cat
from asyncgrad.ops.arguments import one_dim
from asyncgrad.ops.bfloat16 import floating_info
from asyncgrad.tensor import Tensor

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


def norm_except_dim(v: Tensor, dim: int) -> Any:
    """The norm over all axes but `dim`, or over all axes if `dim` is -1."""
    if dim == -1:
        return vector_norm(v, 2)
    kept = one_dim("weight_norm", dim, v.ndim)
    others = [axis for axis in range(v.ndim) if axis != kept]
    return vector_norm(v, 2, others, keepdim=True) if others else v.abs()


def rows_axis(module: Module, dim: int | None) -> int:
    """`dim`, or if it is None the axis of a weight's outputs."""
    if dim is not None:
        return dim
    transposed = (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)
    return 1 if isinstance(module, transposed) else 0


def rows_first(weight: Tensor, dim: int) -> Any:
    """A weight as a matrix whose rows are the slices along `dim`; a vector becomes a column."""
    return weight.movedim(dim, 0).unsqueeze(-1).flatten(1)


def check_iterations(n_power_iterations: int) -> None:
    """Raise ValueError unless the number of power iterations is positive."""
    if n_power_iterations <= 0:
        raise ValueError(
            f"Expected n_power_iterations to be positive, but got "
            f"n_power_iterations={n_power_iterations}"
        )


class _WeightNorm(Module):
    """Computes a tensor from its direction and lengths."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Any:
        """The tensor with the given lengths and direction."""
        return weight_v * (weight_g / norm_except_dim(weight_v, self.dim))

    def right_inverse(self, weight: Tensor) -> Sequence[Any]:
        """The lengths, and the tensor itself as its direction."""
        return norm_except_dim(weight, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Learn the lengths and the direction of a tensor's slices separately; returns the module.

    Args:
        dim: the axis along which each slice has its own length; one length for all if None.

    Example:
        >>> layer = weight_norm(ag.nn.Linear(3, 2))
        >>> [key for key, _ in layer.named_parameters()]
        ['bias', 'parametrizations.weight.original0', 'parametrizations.weight.original1']
    """
    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def rename(_: Module, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Rename the keys in state dicts of the older `weight_norm`."""
        old = f"{prefix}{name}_g", f"{prefix}{name}_v"
        if all(key in state_dict for key in old):
            for place, key in enumerate(old):
                new = f"{prefix}parametrizations.{name}.original{place}"
                state_dict[new] = state_dict.pop(key)

    module.register_load_state_dict_pre_hook(rename)
    return module


def iterate(matrix: Tensor, u: Tensor, v: Tensor, times: int, eps: float) -> None:
    """Improve estimates of a matrix's singular vectors, first u and then v, in place."""
    with no_grad():
        for _ in range(times):
            u.copy_(F.normalize(mv(matrix, v), dim=0, eps=eps))
            v.copy_(F.normalize(mv(matrix.mH, u), dim=0, eps=eps))


class _SpectralNorm(Module):
    """Divides a matrix by its greatest singular value, estimated by power iteration."""

    _u: Tensor
    _v: Tensor

    def __init__(
        self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        super().__init__()
        ndim = weight.ndim
        if not -ndim <= dim < ndim:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}] but "
                f"got {dim})"
            )
        check_iterations(n_power_iterations)
        self.dim = dim % ndim
        self.eps = eps
        if ndim > 1:
            self.n_power_iterations = n_power_iterations
            matrix = rows_first(weight.detach(), self.dim)
            for key, size in zip(("_u", "_v"), matrix.shape, strict=True):
                vector = init.normal_(matrix.new_empty(size))
                self.register_buffer(key, F.normalize(vector, dim=0, eps=eps))
            iterate(matrix, self._u, self._v, 15, eps)

    def forward(self, weight: Tensor) -> Any:
        """The tensor with a greatest singular value of 1."""
        if weight.ndim == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = rows_first(weight, self.dim)
        if self.training:
            iterate(matrix.detach(), self._u, self._v, self.n_power_iterations, self.eps)
        # The gradient needs the present vectors, but the next iteration changes the buffers.
        u, v = self._u.clone(), self._v.clone()
        return weight / vdot(u, mv(matrix, v))

    def right_inverse(self, value: Tensor) -> Any:
        """The value itself, which is assumed to be normalised."""
        return value


def _tensor_of(module: Module, name: str) -> Tensor:
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    return weight


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12,
    dim: int | None = None,
) -> Module:  # fmt: skip
    """Divide a tensor by the greatest singular value of its matrix; returns the module.

    Args:
        n_power_iterations: the number of power iterations at each look-up in training.
        eps: the lower bound of norms that vectors are divided by.
        dim: the axis of the matrix's rows; 0, or that of the outputs for transposed convolutions,
            if None.

    Example:
        >>> layer = spectral_norm(ag.nn.Linear(3, 2))
        >>> tuple(layer.weight.shape)
        (2, 3)
    """
    weight = _tensor_of(module, name)
    function = _SpectralNorm(weight, n_power_iterations, rows_axis(module, dim), eps)
    return register_parametrization(module, name, function)


def _reflected(columns: Tensor, lengths: Tensor) -> Any:
    """The first k columns of a product of Householder reflections `1 - length * v @ v.T`.

    Args:
        columns: the vectors, of shape (..., n, k), below the diagonal; ones on it are implied.
        lengths: the factors, of shape (..., k).
    """
    n, k = columns.shape[-2:]
    vectors = columns.tril(-1) + eye(n, k, dtype=columns.dtype, device=columns.device)
    out = eye(n, k, dtype=columns.dtype, device=columns.device)
    for number in reversed(range(k)):
        vector = vectors[..., number : number + 1]
        out = out - lengths[..., number, None, None] * vector @ (vector.mT @ out)
    return out


def _vectors_of(matrix: Tensor) -> Any:
    """The Householder vectors of a matrix, with the signs of its columns on the diagonal."""
    array, lengths = np.linalg.qr(matrix.detach().cpu().numpy(), mode="raw")
    packed = array.swapaxes(-1, -2).copy()
    diagonal = np.arange(packed.shape[-1])
    signs = np.sign(packed[..., diagonal, diagonal])
    # LAPACK skips reflections of factor 0; `_reflected` does not, which flips the sign.
    packed[..., diagonal, diagonal] = np.where(lengths == 0, -signs, signs)
    return from_numpy(packed).to(matrix.device)


class _Orthogonal(Module):
    """Computes a matrix with orthonormal columns, or rows if these are longer."""

    base: Tensor | None

    def __init__(
        self, weight: Tensor, orthogonal_map: OrthogonalMap, use_trivialization: bool
    ) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map == "householder":
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape = weight.shape
        self.orthogonal_map = orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, x: Tensor) -> Any:
        """The orthogonal matrix that any matrix is mapped to."""
        wide = x.shape[-2] < x.shape[-1]
        x = x.mT if wide else x
        n, k = x.shape[-2:]
        if self.orthogonal_map == "householder":
            lower = x.tril(-1)
            q = _reflected(lower, 2.0 / (1.0 + (lower * lower).sum(-2)))
            q = q * x.diagonal(dim1=-2, dim2=-1).to(np.int32).unsqueeze(-2)
        else:
            lower = F.pad(x.tril(), (0, n - k))
            skew = lower - lower.mH
            if self.orthogonal_map == "matrix_exp":
                q = linalg.matrix_exp(skew)
            else:
                one = eye(n, dtype=skew.dtype, device=skew.device)
                q = linalg.solve(one - skew / 2, one + skew / 2)
            q = q[..., :k]
        if "base" in self._buffers:
            q = self.base @ q
        return q.mT if wide else q

    def right_inverse(self, matrix: Tensor) -> Any:
        """A matrix that is mapped to the given one, or to an orthogonal matrix near it."""
        if matrix.shape != self.shape:
            raise ValueError(
                f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of "
                f"shape {matrix.shape}."
            )
        with no_grad():
            wide = matrix.shape[-2] < matrix.shape[-1]
            q = matrix.mT if wide else matrix
            n, k = q.shape[-2:]
            if "base" not in self._buffers:
                if self.orthogonal_map != "householder":
                    raise NotImplementedError(
                        "It is not possible to assign to the matrix exponential or the Cayley "
                        "parametrizations when use_trivialization=False."
                    )
                packed = _vectors_of(q)
                return packed.mT if wide else packed
            extra = randn(*q.shape[:-1], n - k, dtype=q.dtype, device=q.device)
            one = eye(k, dtype=q.dtype, device=q.device)
            near = 10.0 * n * float(floating_info(np.dtype(q.dtype)).eps)
            if n > k or not allclose(q.mH @ q, one, atol=near):
                # The factor Q with which R has a positive diagonal.
                q, r = linalg.qr(cat([q, extra], -1))
                q = q * r.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)
            self.base = q.clone()
            return zeros_like(matrix) - eye(
                *matrix.shape[-2:], dtype=matrix.dtype, device=matrix.device
            )


def orthogonal(
    module: Module, name: str = "weight", orthogonal_map: OrthogonalMap | None = None, *,
    use_trivialization: bool = True,
) -> Module:  # fmt: skip
    """Learn a matrix whose columns, or rows if longer, stay orthonormal; returns the module.

    Args:
        module: the module that has the matrix, or a batch of them.
        orthogonal_map: maps any matrix to an orthogonal one: "matrix_exp", "cayley", or for real
            ones "householder". If None, "matrix_exp" for square and complex matrices, else
            "householder".
        use_trivialization: start from the present matrix, made orthogonal, or an assigned one.

    Example:
        >>> layer = orthogonal(ag.nn.Linear(2, 3).double())
        >>> ag.allclose(layer.weight.mT @ layer.weight, ag.eye(2, dtype=ag.float64))
        True
    """
    weight = _tensor_of(module, name)
    if weight.ndim < 2:
        raise ValueError(
            f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions."
        )
    if orthogonal_map is None:
        square = weight.shape[-2] == weight.shape[-1]
        orthogonal_map = "matrix_exp" if square or weight.is_complex() else "householder"
    if orthogonal_map not in words(OrthogonalMap):
        raise ValueError(
            f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: '
            f"{orthogonal_map}"
        )
    chosen = _Orthogonal(weight, orthogonal_map, use_trivialization)
    register_parametrization(module, name, chosen, unsafe=True)
    return module
