"""`compile`, and the module that it makes of a module."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload

from asyncgrad.errors import class_of
from asyncgrad.nn.module import Module
from asyncgrad.replay.compiled import Compiled

if TYPE_CHECKING:
    from collections.abc import Callable

    class _Decorator(Protocol):
        """What `compile` returns where it gets nothing to compile."""

        def __call__(self, model: Callable[_P, _R], /) -> Compiled[_P, _R]: ...


_P = ParamSpec("_P")
_R = TypeVar("_R")
_M = TypeVar("_M", bound=Module)


class CompiledModule(Module):
    """A module whose calls are recorded once and then replayed; made by `compile`.

    It shares parameters, buffers and attributes with the module.
    """

    _stands_for_another = True

    def __init__(self, module: Module, *, fullgraph: bool) -> None:
        """Keep the module as `_orig_mod`."""
        super().__init__()
        self._orig_mod = module
        vars(self)["_compiled"] = Compiled(module, fullgraph=fullgraph)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Replay the module's call, or make it."""
        return vars(self)["_compiled"](*args, **kwargs)

    @property
    def training(self) -> bool:
        """The module's own mode, which may be set there."""
        return self._orig_mod.training

    @training.setter
    def training(self, mode: bool) -> None:
        self._orig_mod.training = mode

    def explain(self) -> str:
        """See `Compiled.explain`."""
        text: str = vars(self)["_compiled"].explain()
        return text

    def __len__(self) -> int:
        """The original's length, if it has one."""
        length: int = len(self._orig_mod)  # type: ignore[arg-type]
        return length

    def __bool__(self) -> bool:
        return bool(self._orig_mod)

    def __getattr__(self, name: str) -> Any:
        """The module's own tables first, then the attributes of the original."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("_orig_mod"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute of the original, which its `forward` reads, if it is not this one's."""
        if self._is_own(name):
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        if self._is_own(name):
            super().__delattr__(name)
        else:
            delattr(self._orig_mod, name)

    def _is_own(self, name: str) -> bool:
        return name == "_orig_mod" or name in vars(self) or hasattr(type(self), name)


#: PyTorch's options of its compilers.
_OPTIONS = frozenset({
    "backend", "disable", "isolate_recompiles", "mode", "name", "options", "recompile_limit",
    "shapes_spec",
})  # fmt: skip


@overload
def compile(model: _M, *, fullgraph: bool = False, dynamic: bool = False, **options: Any) -> _M: ...
@overload
def compile(
    model: Callable[_P, _R], *, fullgraph: bool = False, dynamic: bool = False, **options: Any
) -> Compiled[_P, _R]: ...
@overload
def compile(
    model: None = None, *, fullgraph: bool = False, dynamic: bool = False, **options: Any
) -> _Decorator: ...
def compile(
    model: Any = None, *, fullgraph: bool = False, dynamic: bool = False, **options: Any
) -> Any:
    """Make a function whose calls are recorded once and then replayed.

    Args:
        model: a function, coroutine function or module; None makes a decorator.
        fullgraph: raise an error, which names the line, where a call can't be replayed. Otherwise
            such calls are made eagerly.
        dynamic: accepted for PyTorch's programs: each shape is recorded by itself.
        options: PyTorch's other options, without effect.

    Returns:
        A function, or a module, with the same results and errors, and with a method `explain()`.

    Raises:
        TypeError: if `model` can't be called, or PyTorch has no such option.

    Example:
        >>> import asyncgrad as ag
        >>> @ag.compile
        ... def slope(x):
        ...     x = x.detach().requires_grad_()
        ...     return ag.grad((x * x).sum(), x)[0]
        >>> slope(ag.ones(2)), slope(ag.ones(2) * 2)
        (tensor([2., 2.]), tensor([4., 4.]))
    """
    for name in options:
        if name not in _OPTIONS:
            raise TypeError(f"compile() got an unexpected keyword argument {name!r}")
    if model is None:
        return functools.partial(compile, fullgraph=fullgraph, dynamic=dynamic, **options)
    if isinstance(model, (Compiled, CompiledModule)):
        return model
    if isinstance(model, Module):
        return CompiledModule(model, fullgraph=fullgraph)
    if not callable(model):
        raise TypeError(f"compile() takes a function or a module, not {class_of(model)}")
    return Compiled(model, fullgraph=fullgraph)
