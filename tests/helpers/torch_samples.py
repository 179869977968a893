"""Import PyTorch's databases of samples, without its compiler and `scipy.signal`.

No test uses these two, and they would double the time of the import.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import warnings
from types import ModuleType
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

if TYPE_CHECKING:
    from collections.abc import Iterator

_COMPILER = "torch._dynamo"


class _IdleCompiler(ModuleType):
    """The two functions of its compiler that PyTorch's optimisers call; all else imports it."""

    def graph_break(self) -> None:
        """Do nothing."""

    def disable(self, function: Any, *_: object, **__: object) -> Any:
        """Return the function as it is."""
        return function

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__path__":
            # `inspect` asks all modules for attributes like `__file__`: import nothing for that.
            raise AttributeError(name)
        if sys.modules.get(_COMPILER) is self:
            del sys.modules[_COMPILER]
            # The compiler needs the real modules in place of these.
            _remove(_standing_in)
        return getattr(importlib.import_module(_COMPILER), name)


#: The modules that stand in for PyTorch's and SciPy's while the databases are imported.
_standing_in: dict[str, Any] = {}


def _remove(modules: dict[str, Any]) -> None:
    for name, module in modules.items():
        if sys.modules.get(name) is module:
            del sys.modules[name]


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Import PyTorch's databases in this block."""
    sys.modules.setdefault(_COMPILER, _IdleCompiler(_COMPILER))
    inductor, signal = ModuleType("torch._inductor.utils"), MagicMock()
    inductor.GPU_TYPES = ["cuda", "mps", "xpu", "mtia"]  # type: ignore[attr-defined]
    # The databases import a list of devices from the first, and windows from the second.
    absent = {"torch._inductor.utils": inductor, "scipy.signal": signal}
    absent["torch._inductor"] = ModuleType("torch._inductor")
    _standing_in.update({k: v for k, v in absent.items() if k not in sys.modules})
    sys.modules.update(_standing_in)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        _remove(_standing_in)
        _standing_in.clear()
