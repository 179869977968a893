"""Modules that hold parameters and other values."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self

from asyncgrad.core.variable import Variable
from asyncgrad.nn.containers import Keyed, place_of
from asyncgrad.nn.module import Module
from asyncgrad.nn.parameter import Parameter


class ParameterList(Module):
    """A list of parameters, which are registered.

    Args:
        values: tensors, which become parameters, and other values, which are kept unchanged.
    """

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return (getattr(self, str(place)) for place in range(self._size))

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)(list(self)[index])
        return getattr(self, str(place_of(self, index)))

    def __setitem__(self, index: int, value: Any) -> None:
        setattr(self, str(place_of(self, index)), _member(value))

    def __iadd__(self, values: Iterable[Any]) -> Self:
        return self.extend(values)

    def append(self, value: Any) -> Self:
        """Add a member at the end."""
        setattr(self, str(self._size), _member(value))
        self._size += 1
        return self

    def extend(self, values: Iterable[Any]) -> Self:
        """Add members at the end."""
        if isinstance(values, Variable) or not isinstance(values, Iterable):
            raise TypeError(
                f"ParameterList.extend should be called with an iterable, but got "
                f"{type(values).__name__}"
            )
        for value in list(values):
            self.append(value)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raise: a list of parameters has no `forward`."""
        raise RuntimeError("ParameterList should not be called.")

    def extra_repr(self) -> str:
        """A line about each member."""
        return _described(enumerate(self), lambda tensor: tensor.dtype)


class ParameterDict(Keyed):
    """A dictionary of parameters, which are registered.

    Args:
        parameters: a mapping or pairs. Tensors become parameters, other values are kept unchanged.
            The keys of a plain dictionary are sorted.
    """

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        #: The keys, in order; the members are attributes.
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    @property
    def _members(self) -> Mapping[str, Any]:
        return self._keys

    def __getitem__(self, key: str) -> Any:
        _check_key(key)
        return getattr(self, key)

    def __setitem__(self, key: str, value: Any) -> None:
        _check_key(key)
        setattr(self, key, _member(value))
        self._keys[key] = None

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, key)

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._keys)

    def __or__(self, other: Any) -> ParameterDict:
        joined = self.copy()
        joined.update(other)
        return joined

    def __ror__(self, other: Any) -> Any:
        joined = other.copy()
        joined.update(self)
        return joined

    def __ior__(self, other: Any) -> Self:
        self.update(other)
        return self

    def copy(self) -> ParameterDict:
        """A dictionary of the same members."""
        return ParameterDict(self)

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The member of a name; if there is none, `default` is added and returned."""
        if key not in self:
            self[key] = default
        return self[key]

    def get(self, key: str, default: Any = None) -> Any:
        """The member of a name, or else `default`."""
        return self[key] if key in self else default  # noqa: SIM401  this is get()

    def clear(self) -> None:
        """Remove all members."""
        for key in list(self._keys):
            del self[key]

    def pop(self, key: str) -> Any:
        """Remove and return the member of a name."""
        member = self[key]
        del self[key]
        return member

    def popitem(self) -> tuple[str, Any]:
        """Remove and return the last name and member."""
        if not self._keys:
            raise KeyError("popitem(): dictionary is empty")
        key = next(reversed(self._keys))
        return key, self.pop(key)

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A dictionary with one value under several names."""
        return ParameterDict((key, default) for key in keys)

    def values(self) -> Iterator[Any]:
        """The members."""
        return (self[key] for key in self._keys)

    def items(self) -> Iterator[tuple[str, Any]]:
        """Pairs of names and members."""
        return ((key, self[key]) for key in self._keys)

    def update(self, parameters: Any) -> None:
        """Add members from a mapping or from pairs; the keys of a plain dictionary are sorted."""
        if isinstance(parameters, (OrderedDict, ParameterDict)):
            pairs: Iterable[Any] = parameters.items()
        elif isinstance(parameters, Mapping):
            pairs = sorted(parameters.items())
        elif isinstance(parameters, Iterable):
            pairs = parameters
        else:
            raise TypeError(
                f"ParameterDict.update should be called with an iterable of key/value pairs, but "
                f"got {type(parameters).__name__}"
            )
        for place, pair in enumerate(list(pairs)):
            if not isinstance(pair, Iterable):
                raise TypeError(
                    f"ParameterDict update sequence element #{place} should be Iterable; is "
                    f"{type(pair).__name__}"
                )
            parts = [*pair]
            if len(parts) != 2:
                raise ValueError(
                    f"ParameterDict update sequence element #{place} has length {len(parts)}; "
                    f"2 is required"
                )
            self[parts[0]] = parts[1]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raise: a dictionary of parameters has no `forward`."""
        raise RuntimeError("ParameterDict should not be called.")

    def extra_repr(self) -> str:
        """A line about each member."""
        return _described(self.items(), lambda tensor: tensor.type())


def _check_key(key: object) -> None:
    if not isinstance(key, str):
        raise TypeError(
            f"Index given to ParameterDict cannot be used as a key as it is not a string (type is "
            f"'{type(key).__name__}'). Use str(key)."
        )


def _member(value: Any) -> Any:
    """Make tensors parameters; other values are returned unchanged."""
    plain = isinstance(value, Variable) and not isinstance(value, Parameter)
    return Parameter(value) if plain else value


def _described(members: Iterable[tuple[Any, Any]], kind: Callable[[Any], Any]) -> str:
    """A line about each member; `kind` gives the type of a tensor's elements."""
    lines = []
    for name, value in members:
        if isinstance(value, Variable):
            size = "x".join(map(str, value._metadata.shape))
            words = f"Parameter containing: [{kind(value)} of size {size}]"
        else:
            words = f"Object of type: {type(value).__name__}"
        lines.append(f"  ({name}): {words}")
    return "\n".join(lines)
