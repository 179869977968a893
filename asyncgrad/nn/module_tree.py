"""The members of a module: its parameters, buffers and submodules, accessed as attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from asyncgrad.creation import zeros
from asyncgrad.errors import class_of
from asyncgrad.nn.parameter import Buffer, Parameter
from asyncgrad.tensor import Tensor
from asyncgrad.types import DeviceLike, DTypeLike

#: The dictionaries in which a module keeps its parameters, buffers and submodules.
_TABLES = ("_parameters", "_buffers", "_modules")
_TOO_EARLY = "cannot assign {} before Module.__init__() call. Call super().__init__() first."


class Members:
    """Registration and traversal of a module's members. Only `Module` inherits from it."""

    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Any]
    _non_persistent_buffers_set: set[str]
    #: Whether calls go on to another module, for which the hooks of all modules are called.
    _stands_for_another = False

    # -- attributes -------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        """Look up a parameter, module or buffer; Python calls this only if no attribute matches."""
        own: Any = self.__dict__
        # Unrolled: a loop over the tables would take a third longer (0.3 us for a module).
        if "_modules" in own:
            if name in (table := own["_parameters"]):
                return table[name]
            if name in (table := own["_modules"]):
                return table[name]
            if name in (table := own["_buffers"]):
                return table[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __setattr__(self, name: str, value: Any) -> None:
        """Register parameters and modules, replace buffers, set anything else."""
        own = self.__dict__
        if isinstance(value, Parameter):
            self._forget(name, "_parameters")
            self.register_parameter(name, value)
        elif isinstance(value, Members):
            if "_modules" not in own:
                raise AttributeError(_TOO_EARLY.format("module"))
            if name in own["_parameters"]:
                raise TypeError(
                    f"cannot assign '{class_of(value)}' as parameter '{name}' "
                    f"(asyncgrad.nn.Parameter or None expected)"
                )
            self._forget(name, "_modules")
            own["_modules"][name] = value
        else:
            for table, kind, role, wanted in _REPLACEABLE:
                if name in own.get(table, ()):
                    if value is not None and not isinstance(value, kind):
                        raise TypeError(
                            f"cannot assign '{class_of(value)}' as {role} '{name}' "
                            f"({wanted} or None expected)"
                        )
                    if not isinstance(value, Buffer):
                        own[table][name] = value
                        return
            if isinstance(value, Buffer):
                self.register_buffer(name, value, value.persistent)
            else:
                object.__setattr__(self, name, value)

    def _forget(self, name: str, keep: str) -> None:
        """Remove a name from all places but the table `keep`, before it is registered there."""
        own = self.__dict__
        own.pop(name, None)
        for table in _TABLES:
            if table != keep and table in own:
                own[table].pop(name, None)
        if "_non_persistent_buffers_set" in own:
            own["_non_persistent_buffers_set"].discard(name)

    def __delattr__(self, name: str) -> None:
        for table in _TABLES:
            if name in self.__dict__[table]:
                del self.__dict__[table][name]
                self.__dict__["_non_persistent_buffers_set"].discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        names = {*super().__dir__()}
        for table in _TABLES:
            names.update(self.__dict__[table])
        return sorted(name for name in names if not name[0].isdigit())

    def _check_name(self, kind: str, table: str, name: object) -> None:
        """Raise unless `name` is a valid name that is not in use."""
        if table not in self.__dict__:
            raise AttributeError(_TOO_EARLY.format(kind))
        if not isinstance(name, str):
            raise TypeError(f"{kind} name should be a string. Got {type(name).__name__}")
        if "." in name:
            raise KeyError(f'{kind} name can\'t contain ".", got {name!r}')
        if name == "":
            raise KeyError(f'{kind} name can\'t be empty string ""')
        if name not in self.__dict__[table] and (name in self.__dict__ or hasattr(self, name)):
            raise KeyError(f"attribute '{name}' already exists")

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter, or None for a parameter that the module does not have.

        Raises:
            KeyError: if the name is taken, empty or has a dot.
            ValueError: if the parameter is not a leaf.
        """
        self._check_name("parameter", "_parameters", name)
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(
                f"cannot assign '{class_of(param)}' object to parameter '{name}' "
                f"(asyncgrad.nn.Parameter or None required)"
            )
        if param is not None and param._edge is not None:
            raise ValueError(
                f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be "
                f"created explicitly. To express '{name}' as a function of another Tensor, "
                f"compute the value in the forward() method."
            )
        self._parameters[name] = param

    def _add_parameters(
        self, shapes: Mapping[str, tuple[int, ...] | None], device: DeviceLike | None,
        dtype: DTypeLike | None,
    ) -> None:  # fmt: skip
        """Register parameters of zeros by their names, and None where there is no shape."""
        for name, shape in shapes.items():
            made = None if shape is None else Parameter(zeros(shape, dtype=dtype, device=device))
            self.register_parameter(name, made)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is not trained; if it is persistent, state dicts have it.

        Raises:
            KeyError: if the name is taken, empty or has a dot.
        """
        self._check_name("buffer", "_buffers", name)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"cannot assign '{class_of(tensor)}' object to buffer '{name}' "
                f"(asyncgrad.Tensor or None required)"
            )
        self._buffers[name] = tensor
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def register_module(self, name: str, module: Members | None) -> None:
        """Add a module under a name.

        Raises:
            KeyError: if the name is taken, empty or has a dot.
        """
        if module is not None and not isinstance(module, Members):
            raise TypeError(
                f"{class_of(module)} is not a Module subclass: pass the items of a list one by "
                f"one, as by Sequential(*layers); call a function in the `forward` of a Module, or "
                f"await its call there if it is a part on a worker"
            )
        self._check_name("module", "_modules", name)
        self._modules[name] = module

    add_module = register_module

    def get_submodule(self, target: str) -> Any:
        """The module at a dotted path."""
        module: Any = self
        for part in target.split(".") if target else ():
            if part not in module._modules:
                raise AttributeError(f"{class_of(module)} has no attribute `{part}`")
            found = module._modules[part]
            if found is None:
                raise AttributeError(f"`{part}` is not an nn.Module")
            module = found
        return module

    def set_submodule(self, target: str, module: Members, strict: bool = False) -> None:
        """Put a module at a dotted path, where, if `strict`, there has to be one already.

        Raises:
            AttributeError: if a parent in the path (with `strict`, also its end) is not a module.
        """
        if target == "":
            raise ValueError("Cannot set the submodule without a target name!")
        if not isinstance(module, Members):
            raise ValueError(f"`module` is not an nn.Module, found {class_of(module)}")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            raise AttributeError(f"{type(parent).__name__} has no attribute `{name}`")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Members):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(parent, name, module)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a dotted path."""
        path, _, name = target.rpartition(".")
        found: Parameter | None = self.get_submodule(path)._parameters.get(name)
        if found is None:
            raise AttributeError(f"`{target}` is not an nn.Parameter")
        return found

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a dotted path."""
        path, _, name = target.rpartition(".")
        buffers: dict[str, Any] = self.get_submodule(path)._buffers
        if name not in buffers:
            raise AttributeError(f"`{target}` is not a buffer")
        found: Tensor = buffers[name]
        return found

    # -- walks ------------------------------------------------------------------------------------

    def named_modules(
        self, memo: set[Any] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """This module and all submodules, each once, with their dotted names."""
        memo = set() if memo is None else memo
        waiting: list[tuple[str, Any]] = [(prefix, self)]
        while waiting:
            path, module = waiting.pop()
            if module in memo:
                continue
            if remove_duplicate:
                memo.add(module)
            yield path, module
            waiting += [
                (f"{path}.{name}" if path else name, child)
                for name, child in reversed(module._modules.items())
                if child is not None
            ]

    def modules(self, remove_duplicate: bool = True) -> Iterator[Any]:
        """This module and all submodules; with `remove_duplicate`, each only once."""
        return (module for _, module in self.named_modules(remove_duplicate=remove_duplicate))

    def named_children(self) -> Iterator[tuple[str, Any]]:
        """The direct submodules, each once, with their names."""
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator[Any]:
        """The direct submodules, each once."""
        return (module for _, module in self.named_children())

    def _named_members(
        self, table: str, prefix: str, recurse: bool, remove_duplicate: bool
    ) -> Iterator[tuple[str, Any]]:
        """The tensors of one kind, with their dotted names."""
        seen: set[int] = set()
        owners = (
            self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
            if recurse
            else [(prefix, self)]
        )
        for path, module in owners:
            for name, member in getattr(module, table).items():
                if member is None or id(member) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(member))
                yield (f"{path}.{name}" if path else name), member

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """All parameters, each once, with their dotted names."""
        return self._named_members("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """All parameters, each once."""
        return (parameter for _, parameter in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """All buffers, each once, with their dotted names."""
        return self._named_members("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """All buffers, each once."""
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))


#: What may be assigned to a registered name: table, class, and their names in error messages.
_REPLACEABLE: tuple[tuple[str, Any, str, str], ...] = (
    ("_parameters", Parameter, "parameter", "asyncgrad.nn.Parameter"),
    ("_modules", Members, "child module", "asyncgrad.nn.Module"),
    ("_buffers", Tensor, "buffer", "asyncgrad.Tensor"),
)
