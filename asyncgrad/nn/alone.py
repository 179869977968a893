"""PyTorch's modules for several processes or devices, reduced to one process and device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from asyncgrad.nn.module import Module
from asyncgrad.nn.norm import _BatchNorm
from asyncgrad.types import DeviceLike, DTypeLike, Tensor


class SyncBatchNorm(_BatchNorm):
    """Batch norm of inputs with any number of axes, by the statistics of this process alone.

    A `DistributedDataParallel` model of several ranks refuses it.

    Args:
        process_group: must be None, as a forward waits for no other process.

    The other arguments are those of `BatchNorm1d`.

    Raises:
        ValueError: if there is a process group; in a call, if the input has less than two axes.
    """

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1,
        affine: bool = True, track_running_stats: bool = True, process_group: object = None,
        device: DeviceLike | None = None, dtype: DTypeLike | None = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        if process_group is not None:
            raise ValueError(
                "SyncBatchNorm: a forward waits for no other process, so there is no process "
                "group: leave process_group None"
            )
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )
        self.process_group = process_group

    def forward(self, input: Tensor) -> Tensor:
        """The normalised input of shape (n, features, ...)."""
        if input.ndim < 2:
            raise ValueError(f"expected at least 2D input (got {input.ndim}D input)")
        return super().forward(input)

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: object = None) -> Module:
        """Replace the batch norms in a module; the new ones share the old ones' tensors."""
        out = module
        if isinstance(module, _BatchNorm):
            options = {name: getattr(module, name) for name in _BatchNorm._options}
            out = cls(**options, process_group=process_group)
            out._parameters.update(module._parameters)
            out._buffers.update(module._buffers)
            out.training = module.training
        for name, child in module.named_children():
            out.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return out


class DataParallel(Module):
    """Calls a module on one device; several devices are not supported.

    Args:
        device_ids: at most one device.
        output_device, dim: without effect.

    Raises:
        ValueError: if there are several devices.
    """

    def __init__(
        self, module: Module, device_ids: Sequence[DeviceLike] | None = None,
        output_device: DeviceLike | None = None, dim: int = 0,
    ) -> None:  # fmt: skip
        super().__init__()
        if device_ids is not None and len(device_ids) > 1:
            raise ValueError(
                f"DataParallel: a batch is not shared out among devices {list(device_ids)}. Move "
                f"the module to one of them, or await passes on several devices together."
            )
        self.module = module
        self.device_ids = list(device_ids or ())

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Call the wrapped module."""
        return self.module(*inputs, **kwargs)
