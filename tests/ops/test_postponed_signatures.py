"""A signature that is put together late can do what one of the standard library's can."""

import copy
import inspect
import pickle

import pytest

import asyncgrad as ag
from asyncgrad.ops.signatures import Postponed, extended


def plain(a, b: int = 1, *rest) -> int:
    """Something with a signature."""


USUAL = inspect.Signature(
    [
        *inspect.signature(plain).parameters.values(),
        inspect.Parameter(
            "out",
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation="Tensor | Sequence[Tensor] | None",
        ),
    ],
    return_annotation=int,
)


class Holder:
    """Has a method with one."""

    def method(*given, **named):
        """Without arguments of its own."""

    method.__signature__ = Postponed(extended, plain, {"out": None})


@pytest.mark.parametrize(
    "look",
    [
        str,
        repr,
        hash,
        copy.copy,
        lambda signature: pickle.loads(pickle.dumps(signature)),
        lambda signature: list(signature.parameters.values()),
        lambda signature: signature.return_annotation,
        lambda signature: signature.replace(return_annotation=str),
        lambda signature: signature.bind(1, 2, 3, out=4).arguments,
        lambda signature: signature == USUAL,
    ],
)
def test_it_is_as_good_as_a_usual_one(look):
    assert look(inspect.signature(Holder.method)) == look(USUAL)


def test_methods_leave_their_object_out():
    assert str(inspect.signature(Holder().method)) == str(USUAL).replace("a, ", "")


def test_it_is_put_together_when_it_is_asked_for():
    asked = []

    def make():
        asked.append(True)
        return USUAL

    late = Postponed(make)
    assert not asked
    assert late.parameters == USUAL.parameters
    assert asked


def test_functions_say_all_that_they_take():
    assert list(inspect.signature(ag.zeros).parameters)[-3:] == ["layout", "pin_memory", "out"]
    lazy = inspect.signature(ag.nn.LazyLinear).parameters
    assert list(lazy) == ["out_features", "bias", "device", "dtype"]
