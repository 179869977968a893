"""What must hold of every entry of the table, whatever it computes.

The pull is the adjoint of the push, the push is the derivative of the function, a kernel and its
rule give the same, and a result that is declared fresh shares no memory with anything.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

import asyncgrad as ag
from asyncgrad.devices import CPU
from asyncgrad.ops.namespace import RECORDED, metadata_of
from asyncgrad.ops.registry import OPS

_STEP = 1e-6
#: The functions that compute with real and with complex arrays.
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
    entry = OPS[name]
    is_complex = any(x.dtype.kind == "c" for x in inputs)
    rng = np.random.default_rng(0)
    F = _COMPLEX if is_complex else _REAL
    attributes = (*attributes, *_defaults(entry)[len(attributes) :])

    def function(*arrays: Any) -> Any:
        # Some functions write into their first input, so each is given copies.
        return np.asarray(getattr(F, name)(*[x.copy() for x in arrays], *attributes))

    out = function(*inputs)
    values = {"out": out, "out_shape": out.shape}
    values |= dict(zip(entry.inputs, inputs, strict=True))
    values |= dict(zip(entry.attributes, attributes, strict=True))
    for key, x in zip(entry.inputs, inputs, strict=True):
        values |= {f"{key}_shape": x.shape, f"{key}_dtype": x.dtype}
    assert set(entry.pushes) == set(entry.pulls), f"{name}: pulls and pushes of the same inputs"
    # As PyTorch's, a node is made for the output, and pulls with functions for its dtype.
    back = _COMPLEX if out.dtype.kind == "c" else _REAL
    half = any(x.dtype.itemsize < 8 * (1 + (x.dtype.kind == "c")) for x in (out, *inputs))
    near = 1e-5 if half else 1e-9
    for key, pull in entry.pulls.items():
        place = entry.inputs.index(key)
        x = inputs[place]
        g = _like(rng, out)
        t = _like(rng, x)
        saved = [values[n] for n in pull.names]
        pulled = pull.function(back, g, *saved)
        if entry.fresh:
            _check_fresh(name, pulled, [g, *saved])
        push = entry.pushes[key]
        along = np.broadcast_to(t, out.shape) if entry.broadcasts else t
        given = [values[n] if n in entry.attributes else _tensor(values[n]) for n in push.names]
        pushed = push.function(RECORDED, _tensor(along), *given)._array
        assert pushed.shape == out.shape
        if pulled is None:
            assert not pushed.any()
            continue
        pulled = np.asarray(pulled)
        _check_alternatives(entry, pull, back, g, saved, pulled)
        if entry.broadcasts:
            pulled = np.asarray(back.sum_to(pulled, x.shape))
        assert pulled.shape == x.shape
        scale = np.abs(pulled * t).sum() if pulled.size else 0.0
        np.testing.assert_allclose(
            np.vdot(g, pushed).real,
            np.vdot(pulled, t).real,
            rtol=near,
            atol=1e-12 + near * (scale if np.isfinite(scale) else 0.0),
        )
        if not slope or half:
            continue
        moved = [
            function(*[y + side * _STEP * t if i == place else y for i, y in enumerate(inputs)])
            for side in (1, -1)
        ]
        difference = (moved[0] - moved[1]) / (2 * _STEP)
        # A difference of two large numbers has lost digits: the larger they are, the more.
        finite = np.isfinite(difference)
        large = np.abs(out[np.isfinite(out)]).max(initial=1.0)
        large += np.abs(x).max(initial=0.0) * np.abs(pushed[finite]).max(initial=0.0)
        np.testing.assert_allclose(
            pushed[finite], difference[finite], rtol=1e-6, atol=1e-6 + 1e-9 * large
        )


def _tensor(value: Any) -> Any:
    """A tensor of an array, anything else as it is."""
    return ag.from_numpy(value.copy()) if isinstance(value, np.ndarray) else value


def _defaults(entry: Any) -> tuple[Any, ...]:
    """The attributes' defaults, in their places."""
    if not callable(entry.forward) or not entry.attributes:
        return ()
    try:
        parameters = inspect.signature(entry.forward).parameters
    except ValueError:
        return ()
    return tuple(parameters[key].default for key in entry.attributes if key in parameters)


def _like(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
    values = rng.standard_normal(array.shape)
    if array.dtype.kind == "c":
        values = values + 1j * rng.standard_normal(array.shape)
    return np.asarray(values, array.dtype)


def _check_fresh(name: str, pulled: Any, others: list[Any]) -> None:
    """Raise if a result that is declared fresh shares memory."""
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
