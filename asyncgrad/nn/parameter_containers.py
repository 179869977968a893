"""Modules that hold parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

from asyncgrad.nn.containers import member_name
from asyncgrad.nn.module import Module
from asyncgrad.nn.parameter import Parameter


class ParameterList(Module):
    """A list of parameters, which are registered.

    Args:
        values: tensors; those that are no parameters become parameters.
    """

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self.extend(values or ())

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._parameters.values())

    def __getitem__(self, index: int | slice) -> Any:
        """A parameter, or for a slice a list of the same parameters."""
        if isinstance(index, slice):
            return type(self)(list(self)[index])
        return self._parameters[member_name(self, index)]

    def __setitem__(self, index: int, value: Any) -> None:
        self.register_parameter(member_name(self, index), _parameter(value))

    def __iadd__(self, values: Iterable[Any]) -> Self:
        return self.extend(values)

    def append(self, value: Any) -> Self:
        """Add a parameter at the end."""
        self.register_parameter(str(len(self)), _parameter(value))
        return self

    def extend(self, values: Iterable[Any]) -> Self:
        """Add parameters at the end."""
        for value in values:
            self.append(value)
        return self


class ParameterDict(Module):
    """A dictionary of parameters, which are registered.

    Args:
        parameters: a mapping, or pairs, of tensors; what is no parameter becomes one.
    """

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        if parameters is not None:
            self.update(parameters)

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    def __contains__(self, key: object) -> bool:
        return key in self._parameters

    def __getitem__(self, key: str) -> Any:
        return self._parameters[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.register_parameter(key, _parameter(value))

    def __delitem__(self, key: str) -> None:
        del self._parameters[key]

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._parameters)

    def __or__(self, other: Any) -> ParameterDict:
        joined = self.copy()
        joined.update(other)
        return joined

    def __ror__(self, other: Any) -> ParameterDict:
        joined = ParameterDict(other)
        joined.update(self)
        return joined

    def __ior__(self, other: Any) -> Self:
        self.update(other)
        return self

    def copy(self) -> ParameterDict:
        """A dictionary of the same parameters."""
        return ParameterDict(self)

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The parameter of a name; `default` becomes that if there is none."""
        if key not in self:
            self[key] = default
        return self[key]

    def get(self, key: str, default: Any = None) -> Any:
        """The parameter of a name, or else `default`."""
        return self._parameters.get(key, default)

    def clear(self) -> None:
        """Take out all."""
        self._parameters.clear()

    def pop(self, key: str) -> Any:
        """Take out one."""
        return self._parameters.pop(key)

    def popitem(self) -> tuple[str, Any]:
        """Take out the last, with its name."""
        return self._parameters.popitem()

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A dictionary with one value under several names."""
        return ParameterDict(dict.fromkeys(keys, default))

    def keys(self) -> Any:
        """The names."""
        return self._parameters.keys()

    def values(self) -> Any:
        """The parameters."""
        return self._parameters.values()

    def items(self) -> Any:
        """Names with parameters."""
        return self._parameters.items()

    def update(self, parameters: Any) -> None:
        """Add parameters from a mapping or from pairs."""
        pairs = (
            parameters.items() if isinstance(parameters, (Mapping, ParameterDict)) else parameters
        )
        for name, value in pairs:
            self[name] = value


def _parameter(value: Any) -> Parameter:
    return value if isinstance(value, Parameter) else Parameter(value)
