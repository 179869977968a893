"""How PyTorch multiplies on GPUs: what is set here is kept, and changes nothing.

CuPy multiplies; its precision is set by the environment variable CUPY_TF32.
"""

from __future__ import annotations

from types import SimpleNamespace

from asyncgrad.devices.discovery import available

#: `allow_tf32` and its kin.
matmul = SimpleNamespace(
    allow_tf32=False,
    allow_fp16_reduced_precision_reduction=True,
    allow_bf16_reduced_precision_reduction=True,
    fp32_precision="none",
)


def is_built() -> bool:
    """Whether CuPy is installed and sees a GPU."""
    return any(device.type == "cuda" for device in available())
