"""Operands have to be in one place: who has others is refused, in PyTorch's words.

On a device, arguments are looked at before its library is called, which might take a host array or
another device's for its own. On the CPU, where calls are short, NumPy's refusal is put into words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncgrad.devices import CPU

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from asyncgrad.devices import Device

#: The devices whose arrays are known.
_known: list[Device] = []
#: Raw functions that are given indices of the host's; nothing else of theirs is.
_INDEXED = frozenset({
    "extreme_at", "getitem", "index", "put", "put_add", "scatter_multiply", "zero_at", "zero_ranks",
    "zeros_plus", "zeros_put", "zeros_with",
})  # fmt: skip


def apart(name: str, first: Device, second: Device) -> RuntimeError:
    """The error for operands on two devices."""
    return RuntimeError(
        f"{name}: Expected all tensors to be on the same device, but found at least two devices, "
        f"{first} and {second}! Move one with .to()."
    )


def know(device: Device) -> None:
    """Have a device's arrays told from others."""
    if device not in _known:
        _known.append(device)


def in_one_place(name: str, function: Callable[..., Any], device: Device) -> Callable[..., Any]:
    """A raw function that refuses arrays of other devices than its own."""
    welcome = (device, CPU) if name in _INDEXED else (device,)
    kind, owns = device.array_type, device.owns

    def checked(*args: Any, **kwargs: Any) -> Any:
        for value in args:
            if value.__class__ is kind and owns(value):
                continue
            for place in _places(device, (value,)):
                if place not in welcome:
                    raise apart(name, device, place)
        return function(*args, **kwargs)

    return checked


def reason(name: str, device: Device, error: Exception, *arguments: Any) -> Exception:
    """Why a device's raw function refused arguments: they are apart, or the error it raised."""
    places = list(dict.fromkeys(_places(device, arguments)))
    return apart(name, *places[:2]) if len(places) > 1 else error


def _places(here: Device, values: Iterable[Any]) -> Iterator[Device]:
    """The devices of the arrays among some values, and among the parts of those."""
    for value in values:
        if value.__class__ is tuple or value.__class__ is list:
            yield from _places(here, value)
        elif hasattr(value, "dtype"):
            for device in (here, *_known):
                if device.owns(value):
                    yield device
                    break
