"""What every entry of the table owes, whatever it computes.

The pull is the adjoint of the push, the push is the derivative of the function, a kernel and its
rule give the same, and what is called fresh shares no memory with anything.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncgrad.devices import CPU
from asyncgrad.ops.namespace import metadata_of
from asyncgrad.ops.table import ENTRIES

_STEP = 1e-6
#: What arrays of real and of complex dtypes are computed with.
_REAL, _COMPLEX = (metadata_of(np.zeros(1, dtype), CPU).F for dtype in ("float64", "complex128"))


def check_entry(
    name: str,
    inputs: tuple[np.ndarray, ...],
    attributes: tuple[Any, ...] = (),
    *,
    slope: bool = True,
) -> None:
    """Check one entry with some double-precision inputs, away from kinks.

    Args:
        name: the entry.
        inputs: its inputs.
        attributes: its attributes.
        slope: compare the push with a difference of two values of the function.
    """
    entry = ENTRIES[name]
    is_complex = any(x.dtype.kind == "c" for x in inputs)
    rng = np.random.default_rng(0)
    F = _COMPLEX if is_complex else _REAL
    function = getattr(F, name)
    out = np.asarray(function(*inputs, *attributes))
    values = {"out": out, "out_shape": out.shape}
    values |= dict(zip(entry.inputs, inputs, strict=True))
    values |= dict(zip(entry.attributes, attributes, strict=True))
    for key, x in zip(entry.inputs, inputs, strict=True):
        values |= {f"{key}_shape": x.shape, f"{key}_dtype": x.dtype}
    assert set(entry.pushes) == set(entry.pulls), f"{name}: pulls and pushes of the same inputs"
    # PyTorch's node is made for the output: it computes with what fits the output.
    back = _COMPLEX if out.dtype.kind == "c" else _REAL
    for key, pull in entry.pulls.items():
        place = entry.inputs.index(key)
        g = _like(rng, out)
        t = _like(rng, inputs[place])
        saved = [values[n] for n in pull.names]
        pulled = pull.function(back, g, *saved)
        if entry.fresh:
            _check_fresh(name, pulled, [g, *saved])
        push = entry.pushes[key]
        pushed = np.asarray(push.function(F, t, *[values[n] for n in push.names]))
        if pulled is None:
            assert not pushed.any()
            continue
        pulled = np.asarray(pulled)
        assert pulled.shape == inputs[place].shape
        _check_alternatives(entry, pull, back, g, saved, pulled)
        np.testing.assert_allclose(
            np.vdot(g, pushed).real, np.vdot(pulled, t).real, rtol=1e-9, atol=1e-12
        )
        if not slope:
            continue
        moved = [
            np.asarray(
                function(
                    *[x + side * _STEP * t if i == place else x for i, x in enumerate(inputs)],
                    *attributes,
                )
            )
            for side in (1, -1)
        ]
        difference = (moved[0] - moved[1]) / (2 * _STEP)
        np.testing.assert_allclose(pushed, difference, rtol=1e-6, atol=1e-6)


def _like(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
    values = rng.standard_normal(array.shape)
    if array.dtype.kind == "c":
        values = values + 1j * rng.standard_normal(array.shape)
    return np.asarray(values, array.dtype)


def _check_fresh(name: str, pulled: Any, others: list[Any]) -> None:
    """Raise if a fresh result is somebody else's memory."""
    if not isinstance(pulled, np.ndarray):
        return  # NumPy's scalars never change.
    for other in others:
        if isinstance(other, np.ndarray):
            assert not np.shares_memory(pulled, other), f"{name}: what it pulls is not fresh"


def _check_alternatives(
    entry: Any, pull: Any, F: Any, g: np.ndarray, saved: list[Any], pulled: np.ndarray
) -> None:
    """Raise unless the rule gives what the kernel gives."""
    if not F.fused:
        return
    rule = np.asarray(pull.function(_COMPLEX, g, *saved))
    np.testing.assert_allclose(rule, pulled, rtol=1e-10, atol=1e-12)
    if entry.kernel is not None:
        kernel = entry.kernel(F.xp, g, saved[0] if len(saved) == 1 else tuple(saved))
        np.testing.assert_allclose(kernel, pulled, rtol=1e-10, atol=1e-12)
