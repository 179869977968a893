"""Named tuples that are made quickly are those of `typing`, annotations apart."""

import pickle
import typing

import pytest

from asyncgrad import records


class Ours(records.NamedTuple):
    """A record."""

    name: str
    #: With a default.
    size: int = 3

    def doubled(self) -> int:
        """A method."""
        return 2 * self.size

    @property
    def text(self) -> str:
        """A property."""
        return f"{self.name}{self.size}"


class Theirs(typing.NamedTuple):
    """A record."""

    name: str
    size: int = 3

    def doubled(self) -> int:
        """A method."""
        return 2 * self.size

    @property
    def text(self) -> str:
        """A property."""
        return f"{self.name}{self.size}"


@pytest.mark.parametrize(
    "look",
    [
        lambda kind: kind("a"),
        lambda kind: kind(size=5, name="b")._asdict(),
        lambda kind: kind("a", 4)._replace(name="c"),
        lambda kind: kind._make(["d", 1]).doubled(),
        lambda kind: kind("e").text,
        lambda kind: (kind._fields, kind._field_defaults, kind.__match_args__, kind.__doc__),
        lambda kind: (kind.__mro__[1:], kind.__module__),
        lambda kind: hasattr(kind("f"), "__dict__"),
        lambda kind: repr(kind("g")).replace(kind.__name__, ""),
        lambda kind: typing.get_type_hints(kind),
        lambda kind: pickle.loads(pickle.dumps(kind("h"))) == kind("h"),
    ],
)
def test_they_are_those_of_typing(look):
    assert look(Ours) == look(Theirs)


@pytest.mark.parametrize("wrong", [("a", 1, 2), ()])
def test_they_refuse_what_those_of_typing_refuse(wrong):
    said = []
    for kind in (Ours, Theirs):
        with pytest.raises(TypeError) as caught:
            kind(*wrong)
        said.append(str(caught.value).replace(kind.__name__, ""))
    assert said[0] == said[1]
