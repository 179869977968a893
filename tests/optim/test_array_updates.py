"""Declared updates as functions of arrays: what they give, and how they use memory."""

import itertools
import linecache
import re

import numpy as np
import pytest

from asyncgrad.devices.updates import UPDATES, Update
from asyncgrad.optim.array_updates import array_update, source

WHOLE = {name: update.of_gradient() for name, update in UPDATES.items()}
CASES = [
    (name, flags)
    for name, update in WHOLE.items()
    for flags in itertools.product((False, True), repeat=len(update.flags.split()))
]
CALLED = {
    "T": float, "abs": abs, "larger": max, "smaller": min, "sqrt": np.sqrt, "sign": np.sign,
}  # fmt: skip


def one_by_one(update, known):
    """What the body gives for one element, statement by statement."""
    for statement in update.body.split(";"):
        target, value = statement.split("=", 1)
        choice = re.fullmatch(r"(.*) \? (.*) : (.*)", value.strip())
        if choice:
            value = "({1}) if ({0}) else ({2})".format(*choice.groups())
        known[target.split()[-1]] = eval(value.strip(), CALLED, known)
    return known


@pytest.mark.parametrize(("name", "flags"), CASES)
def test_arrays_get_what_elements_get(name, flags):
    update = WHOLE[name]
    rng = np.random.default_rng(0)
    names = ["p", "g", *update.entries.split()]
    arrays = {name: rng.standard_normal(40) for name in names}
    # Means of squares.
    for entry in {"square", "greatest", "total", "steps"} & arrays.keys():
        arrays[entry] = np.abs(arrays[entry]) + 10
    numbers = dict(zip(update.numbers.split(), rng.uniform(0.2, 0.8, 9), strict=False))
    chosen = dict(zip(update.flags.split(), flags, strict=True))
    # A number that is a flag, too: without it nothing is added.
    numbers["decay"] *= chosen["decay"]
    known = [
        one_by_one(
            update,
            {**{name: array[at] for name, array in arrays.items()}, **chosen, **numbers},
        )
        for at in range(40)
    ]
    gradient, room = arrays["g"].copy(), np.empty(40)
    copies = [array.copy() for array in arrays.values()]
    changed = array_update(name, flags)(*copies, *numbers.values(), out=room)
    arrays["change"] = array_update(name, flags)(*arrays.values(), *numbers.values())
    for name in ("p", "change", *update.entries.split()):
        np.testing.assert_allclose(arrays[name], [found[name] for found in known], rtol=1e-13)
    np.testing.assert_array_equal(arrays["g"], gradient)
    np.testing.assert_array_equal(changed, arrays["change"])


def test_tracebacks_show_the_text_for_the_same_flags():
    update = UPDATES["sgd_momentum"].of_gradient()
    for flags in itertools.product((False, True), repeat=len(update.flags.split())):
        file = array_update("sgd_momentum", flags).__code__.co_filename
        assert "".join(linecache.getlines(file)) == source(update, flags)


def test_a_value_may_be_read_once_it_has_changed():
    """`last` is what `old` was, and `old` what `last` was."""
    update = Update("old last", "lr", "before = old; old = last; last = before; T change = g * lr")
    text = source(update, ())
    known = {**vars(np)}
    exec(text, known)
    old, last = np.zeros(3), np.ones(3)
    known["update"](np.zeros(3), np.zeros(3), old, last, 0.1)
    np.testing.assert_array_equal([old, last], [[1] * 3, [0] * 3])


def test_what_is_written():
    """As it would be written by hand, with one array beside those of the step."""
    assert source(UPDATES["adam"], ()).splitlines() == [
        "def update(p, g, mean, square, lr, share, keep, taken, eps, out=None):",
        "    change = subtract(g, mean, out)",
        "    multiply(change, share, change)",
        "    add(mean, change, mean)",
        "    multiply(g, taken, change)",
        "    multiply(change, g, change)",
        "    multiply(square, keep, square)",
        "    add(square, change, square)",
        "    sqrt(square, change)",
        "    add(change, eps, change)",
        "    divide(mean, change, change)",
        "    multiply(change, lr, change)",
        "    return change",
    ]


@pytest.mark.parametrize(("name", "flags"), CASES)
def test_only_what_is_chosen_is_computed_in_little_memory(name, flags):
    text, numbers = source(WHOLE[name], flags), WHOLE[name].numbers.split()
    assert not set(WHOLE[name].flags.split()).difference(numbers) & set(re.findall(r"\w+", text))
    assert len(set(re.findall(r"\bt\d", text))) <= 3


def test_what_only_another_choice_needs_is_left_out():
    assert "sqrt" in source(UPDATES["radam"], (True,))
    assert "sqrt" not in source(UPDATES["radam"], (False,))
