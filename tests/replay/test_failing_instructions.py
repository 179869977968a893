"""Each array function and each call of a replay fails in turn: no step is left half done."""

import asyncio
import copy
from types import BuiltinFunctionType, FunctionType, MethodType

import numpy as np
import pytest

import asyncgrad as ag
from asyncgrad import nn
from asyncgrad.replay.program import Program

#: What a program calls in all cases, and without effects.
_PLUMBING = {"wrap", "bail", "changed", "take", "asarray"}


class Faults:
    """Replaces what programs call by functions of which one fails."""

    def __init__(self, monkeypatch):
        self.calls = 0
        self.failing = None
        write = Program._write

        def patched(program, *, divided):
            function = write(program, divided=divided)
            names = function.__code__.co_varnames[3 : function.__code__.co_argcount]
            function.__defaults__ = tuple(
                self.wrapped(value) if name not in _PLUMBING else value
                for name, value in zip(names, function.__defaults__, strict=True)
            )
            return function

        monkeypatch.setattr(Program, "_write", patched)

    def wrapped(self, value):
        if not isinstance(value, (np.ufunc, FunctionType, BuiltinFunctionType, MethodType)):
            return value

        def call(*args, **kwargs):
            number, self.calls = self.calls, self.calls + 1
            if number == self.failing:
                raise ArithmeticError("a fault")
            return value(*args, **kwargs)

        return call


class Training:
    """A step, and the states that it passes through."""

    def __init__(self):
        ag.manual_seed(1)
        self.model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
        self.optimizer = ag.optim.Adam(self.model.parameters(), lr=0.1)
        self.schedule = ag.optim.lr_scheduler.StepLR(self.optimizer, 1)

    def parts(self, x):
        """The step, part by part."""
        self.optimizer.zero_grad()
        yield
        (self.model(x) ** 2).mean().backward()
        yield
        nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)
        yield
        self.optimizer.step()
        yield
        self.schedule.step()
        yield

    def step(self, x):
        self.optimizer.zero_grad()
        (self.model(x) ** 2).mean().backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)
        self.optimizer.step()
        self.schedule.step()

    async def awaited(self, x):
        self.optimizer.zero_grad()
        await (self.model(x) ** 2).mean().backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)
        self.optimizer.step()
        self.schedule.step()

    def state(self):
        found = []
        for p in self.model.parameters():
            kept = self.optimizer.state[p]
            found += [p.tolist(), None if p.grad is None else p.grad.tolist()]
            found += [value.tolist() for value in kept.values()]
        return [*found, self.optimizer.param_groups[0]["lr"]]


@pytest.mark.parametrize("how", ["called", "awaited", "in slices"])
def test_a_step_is_left_between_two_of_its_parts(how, monkeypatch):
    """Gradients, weights and rates are those before or after a part; the next step is right."""
    faults = Faults(monkeypatch)
    x = ag.arange(12.0).view(3, 4) / 9

    async def in_slices(step):
        with ag.request(deadline=asyncio.get_running_loop().time() + 1000):
            await step(x)

    def run(step):
        if how == "called":
            step(x)
        else:
            asyncio.run(in_slices(step) if how == "in slices" else step(x))

    found = 0
    while True:
        ours, theirs = Training(), Training()
        faults.failing = None
        step = ag.compile(ours.step if how == "called" else ours.awaited, fullgraph=True)
        for _ in range(2):
            run(step)
            theirs.step(x)
        states = [theirs.state(), *[theirs.state() for _ in theirs.parts(x)]]
        faults.calls, faults.failing = 0, found
        try:
            run(step)
        except ArithmeticError:
            assert ours.state() in states, found
        else:
            assert ours.state() == states[-1], found
        if faults.calls <= found:
            break
        found += 1
        faults.failing = None
        theirs = copy.deepcopy(ours)
        run(step)
        theirs.step(x)
        assert ours.state() == theirs.state(), found
    assert found > 10
