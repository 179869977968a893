"""PyTorch's databases of samples, without its compiler and SciPy's signals, which no test runs.

To import these takes as long as to import PyTorch and the databases.
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
    """What PyTorch's optimisers ask of its compiler; anything else imports the real one."""

    def graph_break(self) -> None:
        """Nothing is compiled."""

    def disable(self, function: Any, *_: object, **__: object) -> Any:
        """Nothing is compiled anyway."""
        return function

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__path__":
            # `inspect` asks all modules for their files.
            raise AttributeError(name)
        if sys.modules.get(_COMPILER) is self:
            del sys.modules[_COMPILER]
        return getattr(importlib.import_module(_COMPILER), name)


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Import PyTorch's databases in this block."""
    sys.modules.setdefault(_COMPILER, _IdleCompiler(_COMPILER))
    inductor, signal = ModuleType("torch._inductor.utils"), MagicMock()
    inductor.GPU_TYPES = ["cuda", "mps", "xpu", "mtia"]  # type: ignore[attr-defined]
    # The databases take a list of devices from the one, and references of windows from the other.
    absent = {"torch._inductor.utils": inductor, "scipy.signal": signal}
    absent["torch._inductor"] = ModuleType("torch._inductor")
    absent = {name: module for name, module in absent.items() if name not in sys.modules}
    sys.modules.update(absent)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for name in absent:
            del sys.modules[name]
