"""Modules that hold modules."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import index as as_index
from typing import TYPE_CHECKING, Any, Generic, Self, SupportsIndex, TypeAlias, overload

from asyncgrad.errors import class_of
from asyncgrad.nn.module import Module

if TYPE_CHECKING:
    from collections.abc import ItemsView, KeysView, ValuesView

    from typing_extensions import TypeVar

    from asyncgrad.tensor import Tensor

    M = TypeVar("M", bound=Module, default=Module)
else:
    from typing import TypeVar

    M = TypeVar("M")
#: What a `ModuleDict` is made of.
Modules: TypeAlias = Mapping[str, M] | Iterable[tuple[str, M]]


class _Sequence(Module, Generic[M]):
    """The base of containers whose modules are numbered."""

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[M]:
        return iter(self._modules.values())

    @overload
    def __getitem__(self, index: int) -> M: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return self._of(list(self._modules.items())[index])
        return list(self._modules.values())[place_of(self, index)]

    def _of(self, pairs: list[tuple[str, M]]) -> Self:
        """A container of the same kind."""
        return type(self)([module for _, module in pairs])  # type: ignore[call-arg]

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, list(self._modules)[place_of(self, index)], module)

    def __delitem__(self, index: int | slice) -> None:
        """Remove modules, and number those that are left."""
        members = list(self._modules.values())
        del members[index]
        self._number(members)

    def _number(self, members: list[Module]) -> None:
        """Hold these modules under the numbers of their places."""
        self._modules.clear()
        self._modules.update({str(place): member for place, member in enumerate(members)})

    def append(self, module: M) -> Self:
        """Add a module at the end."""
        self.register_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[M]) -> Self:
        """Add modules at the end."""
        for module in modules:
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> Any:
        """Add a module before a place."""
        if not isinstance(module, Module):
            raise AssertionError(f"module should be of type: Module, got {class_of(module)}")
        length = len(self)
        if not -length <= index <= length:
            raise IndexError(f"Index out of range: {index} of {length} members")
        members = list(self._modules.values())
        members.insert(index, module)
        self._number(members)

    def pop(self, key: int | slice) -> Any:
        """Remove and return a module."""
        module = self[key]
        del self[key]
        return module


class Sequential(_Sequence[Module]):
    """Modules called one after another, each with the output of the one before.

    Args:
        args: modules, or one ordered dictionary of them.
    """

    def __init__(self, *args: Module | OrderedDict[str, Module]) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            named: Iterable[tuple[str, Any]] = args[0].items()
        else:
            named = ((str(place), module) for place, module in enumerate(args))
        for name, module in named:
            self.register_module(name, module)

    def forward(self, input: Tensor) -> Tensor:
        """The output of the last module."""
        for module in self._modules.values():
            input = module(input)
        return input

    def _of(self, pairs: list[tuple[str, Module]]) -> Self:
        return type(self)(OrderedDict(pairs))

    def __add__(self, other: Iterable[Module]) -> Sequential:
        _check_sequential(other)
        return Sequential(*self, *other)

    def __iadd__(self, other: Iterable[Module]) -> Self:
        _check_sequential(other)
        return self.extend(list(other))

    def __mul__(self, other: int) -> Sequential:
        return Sequential(*[*self] * _times(other))

    __rmul__ = __mul__

    def __imul__(self, other: int) -> Self:
        return self.extend([*self] * (_times(other) - 1))

    def insert(self, index: int, module: Module) -> Self:
        """Add a module before a place."""
        super().insert(index, module)
        return self


class ModuleList(_Sequence[M]):
    """A list of modules, which are registered.

    Args:
        modules: the first members.
    """

    def __init__(self, modules: Iterable[M] | None = None) -> None:
        super().__init__()
        self.extend(modules or ())

    def __contains__(self, module: object) -> bool:
        return module in self._modules.values()

    def __iadd__(self, modules: Iterable[M]) -> Self:
        return self.extend(modules)

    def __add__(self, modules: Iterable[M]) -> ModuleList[M]:
        return ModuleList([*self, *modules])

    def __repr__(self) -> str:
        """The modules; consecutive ones with equal `repr` are shown as one."""
        if not len(self):
            return f"{self._get_name()}()"
        lines = []
        first = 0
        for words, alike in groupby(map(repr, self)):
            count = len(list(alike))
            place = f"{first}-{first + count - 1}): {count} x " if count > 1 else f"{first}): "
            lines.append(f"({place}{words}".replace("\n", "\n  "))
            first += count
        return f"{self._get_name()}(\n  " + "\n  ".join(lines) + "\n)"


class Keyed(Module):
    """The base of modules that hold members by name."""

    @property
    def _members(self) -> Mapping[str, Any]:
        """The members, or something else, by their names."""
        return self._modules

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __contains__(self, key: object) -> bool:
        return key in self._members

    def keys(self) -> KeysView[str]:
        """The names of the members."""
        return self._members.keys()


class ModuleDict(Keyed, Generic[M]):
    """A dictionary of modules, which are registered.

    Args:
        modules: a mapping, or pairs.
    """

    def __init__(self, modules: Modules[M] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> M:
        return self._modules[key]

    def __setitem__(self, key: str, module: M) -> None:
        self.register_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def clear(self) -> None:
        """Remove all modules."""
        self._modules.clear()

    def pop(self, key: str) -> M:
        """Remove and return the module of a name."""
        return self._modules.pop(key)

    def values(self) -> ValuesView[M]:
        """The modules."""
        return self._modules.values()

    def items(self) -> ItemsView[str, M]:
        """Pairs of names and modules."""
        return self._modules.items()

    def update(self, modules: Modules[M]) -> None:
        """Add modules from a mapping or from pairs."""
        if not isinstance(modules, (Mapping, ModuleDict, Iterable)):
            raise TypeError(
                f"ModuleDict.update should be called with an iterable of key/value pairs, but got "
                f"{type(modules).__name__}"
            )
        pairs = modules.items() if isinstance(modules, (Mapping, ModuleDict)) else modules
        for name, module in pairs:
            self[name] = module


def _check_sequential(other: object) -> None:
    """Raise unless `other` is a `Sequential`."""
    if not isinstance(other, Sequential):
        raise ValueError(
            f"add operator supports only objects of Sequential class, but "
            f"{type(other).__name__} is given."
        )


def _times(other: object) -> int:
    """The number of times to repeat a sequence."""
    if not isinstance(other, int):
        raise TypeError(f"unsupported operand type(s) for *: Sequential and {type(other).__name__}")
    if other <= 0:
        raise ValueError(f"Non-positive multiplication factor {other} for Sequential")
    return other


def place_of(container: Any, index: SupportsIndex) -> int:
    """An index as one from 0; negative indices count from the end."""
    place = as_index(index)
    length = len(container)
    if not -length <= place < length:
        raise IndexError(f"index {place} is out of range of {length} members")
    return place % length
