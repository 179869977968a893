"""The user's code runs in the order of a pass without threads, whoever computes the rest."""

from __future__ import annotations

import random
import threading

import pytest
from passes import HEAVY, calls, hold, leaf, until

import asyncgrad as ag

pytestmark = pytest.mark.asyncio


def program(seed: int, log: list[tuple[str, int]]) -> ag.Tensor:
    """A random graph of cheap and expensive nodes, with hooks of every kind and nodes of a user."""
    rng = random.Random(seed)
    values = [leaf(), leaf()]
    for x, name in zip(values, (0, 1), strict=True):
        x.register_hook(lambda gradient, name=name: log.append(("leaf", name)))
        x.register_post_accumulate_grad_hook(lambda x, name=name: log.append(("added", name)))
    for place in range(14):
        a, b = rng.choice(values), rng.choice(values)
        kind = rng.randrange(5)
        value = (a + b, a * b, ag.tanh(a), a * 2.0, None)[kind]
        if value is None:
            value = calls(a, lambda place=place: log.append(("node", place)))
        if rng.random() < 0.5:
            value.grad_fn.cost = HEAVY
        hook = rng.random()
        if hook < 0.3:
            value.register_hook(lambda gradient, place=place: log.append(("tensor", place)))
        elif hook < 0.4:
            value.grad_fn.register_prehook(lambda *_, place=place: log.append(("before", place)))
        elif hook < 0.5:
            value.grad_fn.register_hook(lambda *_, place=place: log.append(("behind", place)))
        values.append(value)
    loss = values[-1].sum()
    for value in values[-4:-1]:
        loss = loss + value.sum()
    return loss


async def test_random_programs_run_their_hooks_in_one_order() -> None:
    for seed in range(150):
        expected: list[tuple[str, int]] = []
        with ag.blocking():
            program(seed, expected).backward()
        for _ in range(2):
            found: list[tuple[str, int]] = []
            await program(seed, found).backward()
            assert found == expected, seed


async def test_a_hook_waits_for_what_a_helper_has_that_comes_before_it() -> None:
    """The hook's node is ready while another thread still computes a younger one."""
    order: list[str] = []
    x = leaf()
    old = x * 2.0
    old.register_hook(lambda gradient: order.append("old"))
    lent = x * 3.0
    lent.register_hook(lambda gradient: order.append("young"))
    young, owned = ag.tanh(lent), ag.tanh(x * 5.0)
    hooked = threading.Event()
    for value in (young, owned):
        value.grad_fn.cost = HEAVY
    old.register_hook(lambda gradient: hooked.set())
    hold(young, lambda: hooked.wait(0.05))
    await (old + young + owned).sum().backward()
    assert order == ["young", "old"]


@pytest.mark.parametrize("of_the_user", [False, True])
async def test_the_users_code_in_a_thread_does_not_wait_for_code_that_awaits_it(
    of_the_user: bool,
) -> None:
    """No thread computes that code, so the pass would go to and fro between loop and threads."""
    x = leaf()
    ran: list[bool] = []
    in_time: list[bool] = []

    async def waits(*_: object) -> None:
        await until(lambda: ran or ag.engine().statistics().segments > 3)
        in_time.append(bool(ran))

    old = calls(x, lambda: ran.append(True), HEAVY)
    young = calls(x, waits) if of_the_user else x * 2.0
    if not of_the_user:
        young.register_hook(waits)
    await (old + young).sum().backward()
    assert in_time == [True]
