"""Modules that take the shapes of their parameters from their first input."""

from __future__ import annotations

import inspect
import itertools
from typing import Any

from asyncgrad.nn import conv, norm
from asyncgrad.nn.linear import Linear
from asyncgrad.nn.module import Module
from asyncgrad.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy
from asyncgrad.ops.signatures import Postponed
from asyncgrad.tensor import Tensor


class _Lazy:
    """A module whose first call creates its parameters and changes its class to the usual one.

    Its arguments are those of that class without the first, which comes from the first input.
    """

    cls_to_become: Any
    #: The attribute whose value comes from the first input, such as `in_features`.
    _inferred: str
    #: Options that are True by default: lazy instance norms have parameters and statistics.
    _true_by_default: tuple[str, ...] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Set the class to become, and a signature without its first argument."""
        super().__init_subclass__(**kwargs)
        if len(cls.__bases__) < 2:
            return
        cls.cls_to_become = cls.__bases__[1]
        cls.__signature__ = Postponed(cls._signature)  # type: ignore[attr-defined]

    @classmethod
    def _signature(cls) -> inspect.Signature:
        """The signature of `cls_to_become` without the first argument."""
        known = inspect.signature(cls.cls_to_become)
        _, *rest = known.parameters.values()
        return known.replace(
            parameters=[
                p.replace(default=True) if p.name in cls._true_by_default else p for p in rest
            ]
        )

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        bound = inspect.signature(type(self)).bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        self.cls_to_become.__init__(self, given.get("groups", 1), **given)
        self._arguments = given
        setattr(self, self._inferred, 0)
        for table, kind in (
            (self._parameters, UninitializedParameter),
            (self._buffers, UninitializedBuffer),
        ):
            for name, tensor in table.items():
                if tensor is not None and name != "num_batches_tracked":
                    table[name] = kind(tensor.requires_grad, tensor.device, tensor.dtype)

    def _count(self: Any, input: Tensor) -> int:
        """The value of the attribute `_inferred`, from the first input."""
        raise NotImplementedError

    def has_uninitialized_params(self: Any) -> bool:
        """Whether a parameter or buffer has no shape yet."""
        members = itertools.chain(self._parameters.values(), self._buffers.values())
        return any(map(is_lazy, members))

    def reset_parameters(self: Any) -> None:
        """Reset the parameters; do nothing as long as they have no shapes."""
        if not self.has_uninitialized_params():
            super().reset_parameters()  # type: ignore[misc]

    def initialize_parameters(self: Any, input: Tensor, *rest: Any, **options: Any) -> None:
        """Create the parameters for an input; other arguments of `forward` do not matter."""
        count = self._count(input)
        lazy = [*filter(is_lazy, (*self._parameters.values(), *self._buffers.values()))]
        where = {"device": lazy[0].device, "dtype": lazy[0].dtype} if lazy else {}
        made = self.cls_to_become(count, **{**self._arguments, **where})
        for table in ("_parameters", "_buffers"):
            for name, tensor in getattr(self, table).items():
                if is_lazy(tensor):
                    tensor._become(getattr(made, table)[name].data)
        setattr(self, self._inferred, count)

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Create the parameters, change the class and call the module."""
        self.initialize_parameters(*args, **kwargs)
        del self._arguments
        self.__class__ = self.cls_to_become
        return self(*args, **kwargs)

    def _load_from_state_dict(
        self: Any, state_dict: dict[str, Any], prefix: str, *rest: Any
    ) -> None:
        """Give tensors without a shape the shapes of the saved ones, then load."""
        for name, tensor in (*self._parameters.items(), *self._buffers.items()):
            given = state_dict.get(prefix + name)
            if is_lazy(tensor) and isinstance(given, Tensor) and not is_lazy(given):
                tensor.materialize(given.shape)
        self.cls_to_become._load_from_state_dict(self, state_dict, prefix, *rest)


class LazyLinear(_Lazy, Linear):
    """A `Linear` that takes `in_features` from its first input."""

    _inferred = "in_features"

    def _count(self, input: Tensor) -> int:
        return int(input.shape[-1])


class _LazyConvolution(_Lazy):
    """The base of lazy convolutions."""

    _inferred = "in_channels"

    def _count(self: Any, input: Tensor) -> int:
        axes = self._ndim
        if input.ndim not in {axes + 1, axes + 2}:
            raise RuntimeError(
                f"Expected {axes + 1}D (unbatched) or {axes + 2}D (batched) input to "
                f"{type(self).__name__}, but got input of size: {tuple(input.shape)}"
            )
        return int(input.shape[-axes - 1])


class _LazyNorm(_Lazy):
    """The base of lazy norms."""

    _inferred = "num_features"
    _true_by_default = ("affine", "track_running_stats")

    def _count(self: Any, input: Tensor) -> int:
        self._check_input_dim(input)
        return int(input.shape[1])


def _lazy(base: type[Module], kind: type[_Lazy]) -> Any:
    name = f"Lazy{base.__name__}"
    words = f"A `{base.__name__}` that takes `{kind._inferred}` from its first input."
    return type(name, (kind, base), {"__doc__": words, "__module__": __name__})


LazyConv1d = _lazy(conv.Conv1d, _LazyConvolution)
LazyConv2d = _lazy(conv.Conv2d, _LazyConvolution)
LazyConv3d = _lazy(conv.Conv3d, _LazyConvolution)
LazyConvTranspose1d = _lazy(conv.ConvTranspose1d, _LazyConvolution)
LazyConvTranspose2d = _lazy(conv.ConvTranspose2d, _LazyConvolution)
LazyConvTranspose3d = _lazy(conv.ConvTranspose3d, _LazyConvolution)
LazyBatchNorm1d = _lazy(norm.BatchNorm1d, _LazyNorm)
LazyBatchNorm2d = _lazy(norm.BatchNorm2d, _LazyNorm)
LazyBatchNorm3d = _lazy(norm.BatchNorm3d, _LazyNorm)
LazyInstanceNorm1d = _lazy(norm.InstanceNorm1d, _LazyNorm)
LazyInstanceNorm2d = _lazy(norm.InstanceNorm2d, _LazyNorm)
LazyInstanceNorm3d = _lazy(norm.InstanceNorm3d, _LazyNorm)
