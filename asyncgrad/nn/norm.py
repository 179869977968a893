"""Normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from asyncgrad.core.frames import warn
from asyncgrad.creation import ones, tensor, zeros
from asyncgrad.nn import functional as F
from asyncgrad.nn import init
from asyncgrad.nn.function_module import FunctionModule
from asyncgrad.types import DeviceLike, DTypeLike, Tensor


class _Scaled(FunctionModule, members=("weight", "bias")):
    """The base of norms with a learnt scale and perhaps a shift."""

    def reset_parameters(self) -> None:
        """Set the scale to ones and the shift to zeros."""
        for name, reset in (("weight", init.ones_), ("bias", init.zeros_)):
            parameter = self._parameters.get(name)
            if parameter is not None:
                reset(parameter)


class _NormBase(
    _Scaled, unnamed=("num_features",),
    shown=("eps", "momentum", "affine", "bias", "track_running_stats"),
):  # fmt: skip
    """The base of batch and instance norms: their parameters and running values."""

    #: State dicts have `num_batches_tracked` since version 2.
    _version = 2
    #: The allowed numbers of axes of an input; any number if empty.
    _axes: tuple[int, ...] = ()

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1,
        affine: bool = True, track_running_stats: bool = True, device: DeviceLike | None = None,
        dtype: DTypeLike | None = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        self._keep(locals())
        buffers = dict.fromkeys(("running_mean", "running_var", "num_batches_tracked"))
        if track_running_stats:
            buffers = {
                "running_mean": zeros(num_features, dtype=dtype, device=device),
                "running_var": ones(num_features, dtype=dtype, device=device),
                "num_batches_tracked": tensor(0, device=device),
            }
        for name, buffer in buffers.items():
            self.register_buffer(name, buffer)
        weight = (num_features,) if affine else None
        self._add_parameters({"weight": weight, "bias": weight if bias else None}, device, dtype)
        self.reset_parameters()

    def _check_input_dim(self, input: Tensor) -> None:
        if self._axes and input.ndim not in self._axes:
            raise ValueError(
                f"expected {' or '.join(f'{axes}D' for axes in self._axes)} input (got "
                f"{input.ndim}D input)"
            )

    def reset_running_stats(self) -> None:
        """Reset the running mean, variance and count of batches."""
        if self.track_running_stats:
            init.zeros_(self.running_mean)
            init.ones_(self.running_var)
            init.zeros_(self.num_batches_tracked)

    def reset_parameters(self) -> None:
        """Reset the running values, the scale to ones and the shift to zeros."""
        self.reset_running_stats()
        super().reset_parameters()

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any],
        strict: bool, missing_keys: list[str], unexpected_keys: list[str], error_msgs: list[str],
    ) -> None:  # fmt: skip
        """Add the count of batches, which state dicts before version 2 lack."""
        key = f"{prefix}num_batches_tracked"
        version = local_metadata.get("version")
        if (version is None or version < 2) and self.track_running_stats:
            state_dict.setdefault(key, self.num_batches_tracked)
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )


class _BatchNorm(_NormBase):
    """The base of batch norms, for inputs with any number of axes."""

    def forward(self, input: Tensor) -> Tensor:
        """The input, normalised for each feature."""
        self._check_input_dim(input)
        factor = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked += 1
            if self.momentum is None:
                # Without a momentum, the running values are the mean over all batches.
                factor = 1.0 / float(self.num_batches_tracked)
        mean, variance = self.running_mean, self.running_var
        from_batch = self.training or (mean is None and variance is None)
        if self.training and not self.track_running_stats:
            mean = variance = None
        return F.batch_norm(
            input, mean, variance, self.weight, self.bias, from_batch, factor, self.eps
        )


class BatchNorm1d(_BatchNorm, axes=(2, 3)):
    """Normalises each feature over the batch, and over the positions if there are any.

    Args:
        num_features: how many features there are, the length of the second axis.
        eps: added to the variance.
        momentum: the weight of a new batch in the running values; None for their plain mean.
        affine: learn a scale and shift.
        track_running_stats: keep running values, and use them in evaluation mode.
    """


class BatchNorm2d(_BatchNorm, axes=(4,)):
    """Normalises each channel over a batch of images and their positions; see `BatchNorm1d`."""


class BatchNorm3d(_BatchNorm, axes=(5,)):
    """Normalises each channel over a batch of volumes and their positions; see `BatchNorm1d`."""


class _InstanceNorm(_NormBase):
    """The base of instance norms, for inputs with any number of axes.

    The arguments are those of `BatchNorm1d`, with other defaults.
    """

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = False,
        track_running_stats: bool = False, device: DeviceLike | None = None,
        dtype: DTypeLike | None = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )

    def forward(self, input: Tensor) -> Tensor:
        """The input, normalised for each channel of each example."""
        self._check_input_dim(input)
        batched = input.ndim == self._axes[1]
        dim = int(batched)
        if input.shape[dim] != self.num_features:
            if self.affine:
                raise ValueError(
                    f"expected input's size at dim={dim} to match num_features "
                    f"({self.num_features}), but got: {input.shape[dim]}."
                )
            warn(
                f"input's size at dim={dim} does not match num_features. You can silence this "
                f"warning by not passing in num_features, which is not used because affine=False"
            )
        examples = input if batched else input.unsqueeze(0)
        mean, variance = self.running_mean, self.running_var
        momentum = 0.0 if self.momentum is None else self.momentum
        from_input = self.training or not self.track_running_stats
        out = F.instance_norm(
            examples, mean, variance, self.weight, self.bias, from_input, momentum, self.eps
        )
        return out if batched else out.squeeze(0)


class InstanceNorm1d(_InstanceNorm, axes=(2, 3)):
    """Normalises each channel of each line by itself.

    The arguments are those of `BatchNorm1d`; by default it has no parameters and no buffers.
    """


class InstanceNorm2d(_InstanceNorm, axes=(3, 4)):
    """Normalises each channel of each image by itself; see `InstanceNorm1d`."""


class InstanceNorm3d(_InstanceNorm, axes=(4, 5)):
    """Normalises each channel of each volume by itself; see `InstanceNorm1d`."""


class LocalResponseNorm(
    FunctionModule, function=F.local_response_norm, unnamed=("size",), shown=("alpha", "beta", "k")
):
    """Divides by a power of the mean square over neighbouring channels.

    The arguments are those of `nn.functional.local_response_norm`.
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        self._keep(locals())


class LayerNorm(
    _Scaled, function=F.layer_norm, unnamed=("normalized_shape",),
    shown=("eps", "elementwise_affine", "bias"),
):  # fmt: skip
    """Normalises over the last axes.

    Args:
        normalized_shape: the lengths of those axes, or the length of the last.
        elementwise_affine: learn a scale and shift for each element.
    """

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float = 1e-5,
        elementwise_affine: bool = True, bias: bool = True, device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:  # fmt: skip
        normalized_shape = _shape(normalized_shape)
        self._keep(locals())
        weight = normalized_shape if elementwise_affine else None
        self._add_parameters({"weight": weight, "bias": weight if bias else None}, device, dtype)
        self.reset_parameters()


class GroupNorm(
    _Scaled, function=F.group_norm, unnamed=("num_groups", "num_channels"),
    shown=("eps", "affine", "bias"),
):  # fmt: skip
    """Normalises groups of channels.

    Args:
        affine: learn a scale and shift for each channel.
    """

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True,
        device: DeviceLike | None = None, dtype: DTypeLike | None = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        if num_channels % num_groups:
            raise ValueError(
                f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})"
            )
        self._keep(locals())
        weight = (num_channels,) if affine else None
        self._add_parameters({"weight": weight, "bias": weight if bias else None}, device, dtype)
        self.reset_parameters()


class RMSNorm(
    _Scaled, function=F.rms_norm, unnamed=("normalized_shape",),
    shown=("eps", "elementwise_affine"),
):  # fmt: skip
    """Divides by the root of the mean square over the last axes.

    Args:
        normalized_shape: the lengths of those axes, or the length of the last.
        eps: added to the mean square; if None the machine epsilon of the dtype in which sums are
            computed: float32 for half precision.
        elementwise_affine: learn a scale for each element.
    """

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float | None = None,
        elementwise_affine: bool = True, device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:  # fmt: skip
        normalized_shape = _shape(normalized_shape)
        self._keep(locals())
        weight = normalized_shape if elementwise_affine else None
        self._add_parameters({"weight": weight}, device, dtype)
        self.reset_parameters()


def _shape(normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    if isinstance(normalized_shape, int):
        return (normalized_shape,)
    return tuple(normalized_shape)
