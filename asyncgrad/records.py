"""Named tuples that are made quickly.

`typing.NamedTuple` compiles the annotation of each field, which is most of what it takes to make
the class. This one leaves annotations as they are written, and is the same in all else. That fields
with defaults come last is left to the type checker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from collections import namedtuple

    #: What `collections.namedtuple` has given the class already.
    _GIVEN = frozenset({"__annotations__", "__module__", "__qualname__"})

    class _Maker(type):
        """Makes classes of `collections.namedtuple` of class bodies."""

        def __new__(cls, name, bases, namespace):  # noqa: ANN001, ANN204  untyped at run time
            """The class, or the one that others are made from."""
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

    class NamedTuple(metaclass=_Maker):
        """The base of named tuples, which none of them keeps."""


__all__ = ["NamedTuple"]
