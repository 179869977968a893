"""Warnings show the line of the user's call, however deep in the package they are issued."""

import pytest

import asyncgrad as ag


@pytest.mark.parametrize("call", [
    lambda: ag.nn.functional.softmax(ag.ones(2)),
    lambda: ag.nn.Softmax()(ag.ones(2)),
    lambda: ag.nn.functional.mse_loss(ag.ones(2), ag.ones(1)),
    lambda: (ag.ones(2, requires_grad=True) * 1).grad,
])  # fmt: skip
def test_a_warning_shows_the_users_line(call):
    with pytest.warns(UserWarning, match=".") as found:
        call()
    (one,) = found
    assert (one.filename, one.lineno) == (__file__, call.__code__.co_firstlineno)
