"""What is compared of tensors that have to be equal to the last bit."""

from __future__ import annotations

from typing import Any

import asyncgrad as ag


def bits(value: Any) -> Any:
    """A tensor, or a tree of them: bytes, layout, device and version."""
    if isinstance(value, ag.Tensor):
        array = value.detach().cpu().numpy()
        return array.tobytes(), array.shape, value._array.strides, value.device, value._version
    if isinstance(value, dict):
        return {key: bits(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [bits(part) for part in value]
    return value
