"""The methods of pruning: each chooses elements, and is the hook that holds them at zero."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

from asyncgrad.choices import MatrixNorm
from asyncgrad.nn.module import Module
from asyncgrad.ops.api.creation import ones_like, zeros_like
from asyncgrad.ops.api.random import rand, rand_like
from asyncgrad.ops.api.reduction import vector_norm
from asyncgrad.ops.api.sort import topk
from asyncgrad.types import Tensor


class BasePruningMethod:
    """A method that chooses elements, and the forward pre-hook that holds them at zero.

    Subclasses define `PRUNING_TYPE` ("unstructured", "structured" with an attribute `dim`, or
    "global") and `compute_mask`.
    """

    PRUNING_TYPE: str
    _tensor_name: str | None = None

    def __call__(self, module: Module, inputs: tuple[Any, ...]) -> None:
        """Recompute the pruned tensor before a call of the module."""
        setattr(module, str(self._tensor_name), self.apply_mask(module))

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The new mask: ones, and zeros for pruned elements.

        Args:
            t: the importance of each element, usually the parameter itself.
            default_mask: the mask so far.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define compute_mask()")

    def apply_mask(self, module: Module) -> Tensor:
        """The parameter times its mask."""
        name = self._tensor_name
        original: Tensor = getattr(module, f"{name}_orig")
        pruned: Tensor = getattr(module, f"{name}_mask").to(original.dtype) * original
        return pruned

    @classmethod
    def apply(
        cls, module: Module, name: str, *args: Any, importance_scores: Tensor | None = None,
        **kwargs: Any,
    ) -> BasePruningMethod:  # fmt: skip
        """Prune a parameter, in addition to any earlier pruning.

        Args:
            importance_scores: of the parameter's shape; if None, the parameter itself.
            args, kwargs: further arguments of the method.
        """
        method: BasePruningMethod = cls(*args, **kwargs)
        method._tensor_name = name
        original = getattr(module, name)
        scores = _checked(importance_scores, original, f"parameter {name} of {module}")
        found = _pruned_by(module, name)
        if found is None:
            mask = method.compute_mask(scores, default_mask=ones_like(original))
            module.register_parameter(f"{name}_orig", original)
            del module._parameters[name]
        else:
            key, old = found
            both = old if isinstance(old, PruningContainer) else PruningContainer(old)
            both.add_pruning_method(method)
            mask = getattr(module, f"{name}_mask").detach().clone()
            method, mask = both, both.compute_mask(scores, default_mask=mask)
            del module._forward_pre_hooks[key]
        module.register_buffer(f"{name}_mask", mask)
        method(module, ())
        module.register_forward_pre_hook(method)
        return method

    def prune(
        self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None
    ) -> Tensor:
        """A tensor whose chosen elements are zero.

        Args:
            default_mask: the mask so far; ones if None.
            importance_scores: of the tensor's shape; if None, the tensor itself.
        """
        mask = ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(_checked(importance_scores, t, "tensor t"), default_mask=mask)

    def remove(self, module: Module) -> None:
        """Make the parameter an ordinary one again, with zeros for pruned elements."""
        name = str(self._tensor_name)
        original = getattr(module, f"{name}_orig")
        original.data = self.apply_mask(module).detach()
        for attribute in (name, f"{name}_orig", f"{name}_mask"):
            delattr(module, attribute)
        setattr(module, name, original)


class PruningContainer(BasePruningMethod):
    """Methods that prune a parameter in turn, each among the elements that remain."""

    def __init__(self, *args: BasePruningMethod) -> None:
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        if args:
            self._tensor_name = args[0]._tensor_name
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: BasePruningMethod | None) -> None:
        """Add a method."""
        if not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if method._tensor_name != self._tensor_name:
            raise ValueError(
                f"Can only add pruning methods acting on the parameter named "
                f"'{self._tensor_name}' to PruningContainer {self}. Found '{method._tensor_name}'"
            )
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __getitem__(self, idx: int) -> BasePruningMethod:
        return self._pruning_methods[idx]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask after the last method, which chooses among the remaining elements.

        Raises:
            ValueError: if its `PRUNING_TYPE` is unknown.
        """
        method = self._pruning_methods[-1]
        where: Any
        if method.PRUNING_TYPE == "unstructured":
            where = default_mask == 1
        elif method.PRUNING_TYPE == "structured":
            dim = _axis(t, method.dim)  # type: ignore[attr-defined]
            others = [axis for axis in range(t.ndim) if axis != dim]
            where = (*(slice(None),) * dim, default_mask.sum(others) != 0)
        elif method.PRUNING_TYPE == "global":
            where = ...
        else:
            raise ValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
        mask = default_mask.to(t.dtype, copy=True)
        part = method.compute_mask(t.detach()[where], default_mask=default_mask[where])
        mask[where] = part.to(mask.dtype)
        return mask


class _Amount(BasePruningMethod):
    """A method that prunes a number or a fraction of the elements or channels."""

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: float) -> None:
        kind: Any = type(amount)
        if not issubclass(kind, Real):
            raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
        #: The amount is a fraction, not a number.
        self._is_part = not issubclass(kind, Integral)
        if amount < 0 or (self._is_part and amount > 1):
            raise ValueError(
                f"amount={amount} should either be a float in the range [0, 1] or a non-negative "
                f"integer"
            )
        self.amount = amount

    def _number(self, size: int) -> int:
        """The number to prune out of `size`."""
        number = round(self.amount * size) if self._is_part else int(self.amount)
        if number > size:
            raise ValueError(
                f"amount={self.amount} should be smaller than the number of parameters to "
                f"prune={size}"
            )
        return number

    def _scores(self, t: Tensor) -> Tensor:
        """The importance of each element or channel."""
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask with zeros for the elements of the lowest scores."""
        mask = default_mask.detach().clone().reshape(-1)
        scores = self._scores(t.detach()).reshape(-1)
        mask[topk(scores, self._number(mask.numel()), largest=False).indices] = 0
        return mask.reshape(default_mask.shape)


class _Channels(_Amount):
    """The base of methods that prune whole channels."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, dim: int = -1) -> None:
        super().__init__(amount)
        self.dim = dim

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask with zeros for the channels of the lowest scores."""
        if t.ndim <= 1:
            raise ValueError(
                f"Structured pruning can only be applied to multidimensional tensors. Found tensor "
                f"of shape {t.shape} with {t.ndim} dims"
            )
        dim = _axis(t, self.dim)
        size = t.shape[dim]
        number = self._number(size)
        if not number:
            return default_mask
        kept = topk(self._scores(t.detach()), size - number).indices
        mask = zeros_like(default_mask)
        mask[(*(slice(None),) * dim, kept)] = 1
        return mask * default_mask


class Identity(BasePruningMethod):
    """Prunes nothing."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The unchanged mask."""
        return default_mask


class RandomUnstructured(_Amount):
    """Prunes elements at random.

    Args:
        amount: their number, or, as a float in [0, 1], their fraction.
    """

    def _scores(self, t: Tensor) -> Tensor:
        return rand_like(t)


class L1Unstructured(_Amount):
    """Prunes the elements of the least absolute values; see `RandomUnstructured`."""

    def _scores(self, t: Tensor) -> Tensor:
        return t.abs()


class RandomStructured(_Channels):
    """Prunes channels at random.

    Args:
        amount: their number, or, as a float in [0, 1], their fraction.
        dim: the axis of the channels.
    """

    def _scores(self, t: Tensor) -> Tensor:
        return rand(t.shape[self.dim], device=t.device)


class LnStructured(_Channels):
    """Prunes the channels of the least norms, of order `n`; see `RandomStructured`."""

    def __init__(self, amount: float, n: float | MatrixNorm, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def _scores(self, t: Tensor) -> Tensor:
        others = [axis for axis in range(t.ndim) if axis != self.dim % t.ndim]
        order: float = 2 if self.n == "fro" else self.n  # type: ignore[assignment]
        return vector_norm(t, order, others)


class CustomFromMask(BasePruningMethod):
    """Prunes by a mask of ones, and zeros for elements to prune."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The product of both masks."""
        if default_mask.shape != self.mask.shape:
            raise AssertionError(
                f"default_mask shape {default_mask.shape} must match self.mask shape "
                f"{self.mask.shape}"
            )
        return default_mask * self.mask.to(default_mask.dtype)


def _pruned_by(module: Module, name: str) -> tuple[int, BasePruningMethod] | None:
    """The hook that prunes a parameter, and its key."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            return key, hook
    return None


def _checked(scores: Tensor | None, tensor: Tensor, words: str) -> Any:
    """The scores, checked to have the tensor's shape; if None, the tensor itself."""
    if scores is None:
        return tensor
    if scores.shape != tensor.shape:
        raise AssertionError(
            f"importance_scores should have the same shape as {words}, got {scores.shape} vs "
            f"{tensor.shape}"
        )
    return scores


def _axis(t: Tensor, dim: int) -> int:
    """An axis, counted from the front."""
    if not -t.ndim <= dim < t.ndim:
        raise IndexError(f"Invalid index {dim} for tensor of size {t.shape}")
    return dim % t.ndim
