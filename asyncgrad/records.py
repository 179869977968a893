"""Named tuples whose classes are made quickly.

`typing.NamedTuple` compiles the annotation of each field, which takes most of the time to make the
class. This one leaves annotations as strings and is otherwise the same. It does not check that
fields with defaults come last; the type checker does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from collections import namedtuple
    from sys import _getframe

    #: Names that `collections.namedtuple` has already set on the class.
    _GIVEN = frozenset({"__annotations__", "__module__", "__qualname__"})

    class _Maker(type):
        """Makes a `collections.namedtuple` class from a class body."""

        def __new__(cls, name, bases, namespace):  # noqa: ANN001, ANN204  untyped at run time
            """Make the class; without bases, the base class itself."""
            if not bases:
                return super().__new__(cls, name, bases, namespace)
            fields = namespace.get("__annotations__", {})
            defaults = [namespace[field] for field in fields if field in namespace]
            module = namespace["__module__"]
            made = namedtuple(name, fields, defaults=defaults, module=module)
            made.__annotations__ = fields
            made.__qualname__ = namespace["__qualname__"]
            for key, value in namespace.items():
                if key not in fields and key not in _GIVEN:
                    setattr(made, key, value)
            return made

        def __call__(cls, name, fields):  # noqa: ANN001, ANN204
            """Make a class from its name, and pairs of fields and their types."""
            made = namedtuple(name, dict(fields), module=_getframe(1).f_globals["__name__"])
            made.__annotations__ = dict(fields)
            return made

    class NamedTuple(metaclass=_Maker):
        """The base class to write; the classes made do not inherit from it."""


__all__ = ["NamedTuple"]
