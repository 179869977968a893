"""Programs that are wrong: the error names what came and what helps, and nothing has changed."""

from __future__ import annotations

import asyncio
import gc
import warnings

import numpy as np
import pytest

import asyncgrad as ag
from asyncgrad.errors import PendingBackwardError, WrongLoopError


class Program:
    """A leaf with a gradient already, and results of it."""

    def __init__(self) -> None:
        self.x = ag.tensor([1.0, 2.0, 3.0], requires_grad=True)
        self.x.grad = ag.tensor([7.0, 7.0, 7.0])
        self.kept = self.x.grad
        self.vector = self.x.exp()
        self.scalar = self.vector.sum()

    def is_untouched(self) -> bool:
        """`.grad` is the same tensor with the same values, and the graph gives what it would."""
        if self.x.grad is not self.kept or self.kept.tolist() != [7.0, 7.0, 7.0]:
            return False
        (gradient,) = ag.sync.grad(self.scalar, self.x)
        return bool(np.allclose(gradient.numpy(), np.exp([1.0, 2.0, 3.0])))


def _needs_no_gradient(p: Program):
    return ag.autograd.backward([p.scalar, ag.ones(())])


def _is_no_scalar(p: Program):
    return p.vector.backward()


def _gradient_of_another_shape(p: Program):
    return p.vector.backward(ag.ones(2))


def _complex_gradient_of_a_real_result(p: Program):
    return p.vector.backward(ag.ones(3, dtype=ag.complex64))


def _gradient_of_another_number(p: Program):
    return ag.autograd.backward([p.scalar], [None, None])


def _freed(p: Program):
    other = (p.x * p.x).sum()
    ag.sync.grad(other, p.x)
    return other.backward()


def _changed_in_place(p: Program):
    y = p.x * 2
    loss = (y * y).sum()
    y.add_(1)
    return loss.backward()


def _input_needs_no_gradient(p: Program):
    return ag.autograd.grad(p.scalar, ag.ones(3))


def _no_input(p: Program):
    return ag.autograd.grad(p.scalar, [])


BACKWARD = {
    _needs_no_gradient: (
        RuntimeError,
        "element 1 of tensors does not require grad.*requires_grad_",
    ),
    _is_no_scalar: (RuntimeError, r"only for scalar outputs.*\(3,\).*sum\(\)"),
    _gradient_of_another_shape: (RuntimeError, r"grad_output\[0\].*\(2,\).*\(3,\)"),
    _complex_gradient_of_a_real_result: (RuntimeError, "complex64.*float32"),
    _gradient_of_another_number: (RuntimeError, "1 tensors and 2 gradients"),
    _freed: (RuntimeError, "second time.*MulBackward0.*retain_graph"),
    _changed_in_place: (RuntimeError, "(?s)modified by an inplace operation.*version"),
    _input_needs_no_gradient: (RuntimeError, "does not require grad.*requires_grad_"),
    _no_input: ((RuntimeError, ValueError), "inputs.*grad.*cannot be empty"),
}


@pytest.mark.parametrize("wrong", BACKWARD)
def test_a_wrong_pass_fails_inline_and_changes_nothing(wrong):
    p = Program()
    kind, text = BACKWARD[wrong]
    with pytest.raises(kind, match=text):
        wrong(p)
    assert p.is_untouched()


@pytest.mark.asyncio
@pytest.mark.parametrize("wrong", BACKWARD)
async def test_a_wrong_pass_fails_when_awaited_and_changes_nothing(wrong):
    p = Program()
    kind, text = BACKWARD[wrong]
    with pytest.raises(kind, match=text):
        await wrong(p)
    assert await asyncio.to_thread(p.is_untouched)


OPERATORS = {
    "add": (lambda x: x + ag.ones(2), RuntimeError, r"add.*3.*2"),
    "matmul": (lambda x: x @ ag.ones(2, 2), RuntimeError, r"m(at|v|ul).*3.*2"),
    "text": (lambda x: x + "2", TypeError, "Tensor.*str|str.*Tensor"),
    "none": (lambda x: None + x, TypeError, "NoneType"),
    "reshape": (lambda x: x.reshape(2, 2), RuntimeError, r"\[2, 2\].*3|\(2, 2\).*3"),
    "index": (lambda x: x[5], IndexError, "5.*3"),
    "cat": (lambda x: ag.cat([x, ag.ones(1, 1)]), RuntimeError, "cat|dimensions"),
    "truth": (lambda x: bool(x), RuntimeError, "Boolean value"),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_on_what_does_not_fit_names_it_and_records_nothing(name):
    wrong, kind, text = OPERATORS[name]
    p = Program()
    with pytest.raises(kind, match=text):
        wrong(p.x)
    assert p.is_untouched()


def test_a_pass_awaited_in_another_loop_is_refused_and_goes_on_in_its_own():
    async def main():
        p = Program()
        p.x.grad = None
        gate = asyncio.Event()

        async def wait(gradient):
            await gate.wait()

        p.vector.register_hook(wait)
        pending = p.scalar.backward()

        async def elsewhere():
            with pytest.raises(WrongLoopError, match=r"another event loop.*sync"):
                await pending

        await asyncio.to_thread(asyncio.run, elsewhere())
        with pytest.raises(asyncio.InvalidStateError, match="pending: use await"):
            pending.result()
        gate.set()
        await pending
        assert np.allclose(p.x.grad.numpy(), np.exp([1.0, 2.0, 3.0]))

    asyncio.run(main())


@pytest.mark.asyncio
async def test_a_step_before_its_pass_was_awaited_changes_no_parameter():
    p = Program()
    optimizer = ag.optim.SGD([p.x], lr=1.0)
    pending = p.scalar.backward()
    with pytest.raises(PendingBackwardError, match=r"await loss\.backward"):
        optimizer.step()
    assert p.x.tolist() == [1.0, 2.0, 3.0]
    await pending
    optimizer.step()
    assert p.x.tolist() != [1.0, 2.0, 3.0]


@pytest.mark.asyncio
async def test_a_forgotten_await_is_told_with_its_line():
    p = Program()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        p.scalar.backward()
        for _ in range(5):
            await asyncio.sleep(0)  # in debug mode nothing runs at once
        gc.collect()
    assert [w.category for w in caught] == [RuntimeWarning]
    assert "never awaited" in str(caught[0].message)
    assert __file__ in str(caught[0].message)
