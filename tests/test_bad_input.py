"""Programs that are wrong: the error names what came and what helps, and nothing has changed."""

from __future__ import annotations

import asyncio
import gc
import warnings

import numpy as np
import pytest

import asyncgrad as ag
import asyncgrad.nn.functional as F
from asyncgrad.errors import PendingBackwardError, WrongLoopError


class LeafWithResults:
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


def _needs_no_gradient(p: LeafWithResults):
    return ag.autograd.backward([p.scalar, ag.ones(())])


def _is_no_scalar(p: LeafWithResults):
    return p.vector.backward()


def _gradient_of_another_shape(p: LeafWithResults):
    return p.vector.backward(ag.ones(2))


def _complex_gradient_of_a_real_result(p: LeafWithResults):
    return p.vector.backward(ag.ones(3, dtype=ag.complex64))


def _gradient_of_another_number(p: LeafWithResults):
    return ag.autograd.backward([p.scalar], [None, None])


def _gradient_that_is_an_array(p: LeafWithResults):
    return p.vector.backward(np.ones(3))


def _gradients_that_are_numbers(p: LeafWithResults):
    return p.vector.backward([1.0, 1.0, 1.0])


def _gradient_that_is_a_number(p: LeafWithResults):
    return p.vector.backward(1.0)


def _root_that_is_a_number(p: LeafWithResults):
    return ag.autograd.backward(1)


def _root_that_is_to_be_awaited(p: LeafWithResults):
    loop = asyncio.new_event_loop()
    try:
        return ag.autograd.backward(loop.create_future())
    finally:
        loop.close()


def _priority_that_is_a_text(p: LeafWithResults):
    return p.scalar.backward(priority="high")


def _deadline_that_is_a_text(p: LeafWithResults):
    return ag.autograd.grad(p.scalar, p.x, deadline="soon")


def _freed(p: LeafWithResults):
    other = (p.x * p.x).sum()
    ag.sync.grad(other, p.x)
    return other.backward()


def _changed_in_place(p: LeafWithResults):
    y = p.x * 2
    loss = (y * y).sum()
    y.add_(1)
    return loss.backward()


def _input_needs_no_gradient(p: LeafWithResults):
    return ag.autograd.grad(p.scalar, ag.ones(3))


def _no_input(p: LeafWithResults):
    return ag.autograd.grad(p.scalar, [])


BACKWARD = {
    _needs_no_gradient: (
        RuntimeError,
        "element 1 of tensors does not require grad.*requires_grad_",
    ),
    _is_no_scalar: (RuntimeError, r"only for scalar outputs.*\(3,\).*sum\(\)"),
    _gradient_of_another_shape: (RuntimeError, r"grad_output\[0\].*Size\(\[2\]\).*Size\(\[3\]\)"),
    _complex_gradient_of_a_real_result: (RuntimeError, "complex64.*float32"),
    _gradient_of_another_number: (RuntimeError, "1 tensors and 2 gradients"),
    _gradient_that_is_an_array: (TypeError, r"Tensors or None, but got float64.*tensor\(\)"),
    _gradients_that_are_numbers: (TypeError, r"Tensors or None, but got float\..*tensor\(\)"),
    _gradient_that_is_a_number: (TypeError, r"grad.*take a Tensor.*not float"),
    _root_that_is_a_number: (TypeError, r"backward.*take a Tensor.*not int"),
    _root_that_is_to_be_awaited: (TypeError, r"backward.*take a Tensor.*not Future"),
    _priority_that_is_a_text: (TypeError, "priority must be an int, not str"),
    _deadline_that_is_a_text: (TypeError, "deadline must be a number, not str"),
    _freed: (RuntimeError, "second time.*MulBackward0.*retain_graph"),
    _changed_in_place: (RuntimeError, "(?s)modified by an inplace operation.*version"),
    _input_needs_no_gradient: (RuntimeError, "does not require grad.*requires_grad_"),
    _no_input: ((RuntimeError, ValueError), "inputs.*grad.*cannot be empty"),
}


@pytest.mark.parametrize("wrong", BACKWARD)
def test_a_wrong_pass_fails_inline_and_changes_nothing(wrong):
    p = LeafWithResults()
    kind, text = BACKWARD[wrong]
    with pytest.raises(kind, match=text):
        wrong(p)
    assert p.is_untouched()


@pytest.mark.asyncio
@pytest.mark.parametrize("wrong", BACKWARD)
async def test_a_wrong_pass_fails_when_awaited_and_changes_nothing(wrong):
    p = LeafWithResults()
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
    "array": (lambda x: x + np.ones(3), TypeError, r"add.*Tensor, not ndarray.*from_numpy"),
    "array first": (lambda x: np.ones(3) * x, TypeError, r"mul.*Tensor, not ndarray.*from_numpy"),
    "equal array": (lambda x: x == np.ones(3), TypeError, r"eq.*Tensor, not ndarray.*from_numpy"),
    "array product": (lambda x: np.ones(3) @ x, TypeError, r"matmul.*not ndarray.*from_numpy"),
    "tuple": (lambda x: x * (1, 2, 3), TypeError, r"mul.*Tensor, not tuple.*tensor\(\)"),
    "list first": (lambda x: [1, 2, 3] - x, TypeError, "sub.*Tensor, not list"),
    "product with a number": (lambda x: x @ 3, TypeError, "matmul.*Tensor, not int"),
    "product with a text": (lambda x: x @ "2", TypeError, "@.*'Tensor' and 'str'"),
    "flag": (lambda x: x.requires_grad_("no"), TypeError, "requires_grad.*bool, not str"),
    "mode": (lambda x: ag.set_grad_enabled(None), TypeError, "enabled.*bool, not NoneType"),
    "anomaly": (lambda x: ag.autograd.set_detect_anomaly("no"), TypeError, "bool, not str"),
    "default": (lambda x: ag.set_default_dtype("S"), TypeError, "floating-point"),
    "type": (lambda x: x.type("nope"), ValueError, "invalid type: 'nope'.*FloatTensor"),
    "view_as": (lambda x: x.view_as(3), TypeError, "view_as.*Tensor, not int"),
    "expand_as": (lambda x: x.expand_as(3), TypeError, "expand_as.*Tensor, not int"),
    "reshape_as": (lambda x: x.reshape_as([3]), TypeError, "reshape_as.*Tensor, not list"),
    "linear": (lambda x: F.linear(x, x, "no"), TypeError, "linear.*argument 3.*not str"),
    "distance": (lambda x: F.pairwise_distance(x, 0), TypeError, "distance.*Tensor, not int"),
    "search": (lambda x: ag.searchsorted(x, "2"), TypeError, "searchsorted.*Tensor, not str"),
    "relu": (lambda x: ag.relu(x > 0), RuntimeError, "Boolean inputs not supported for relu"),
    "type_as": (lambda x: x.type_as(3), TypeError, "type_as.*Tensor, not int"),
    "node": (lambda x: x.exp().grad_fn(3), TypeError, "ExpBackward0.*not a Variable, but int"),
    "stride": (lambda x: x.stride(5), IndexError, r"stride.*range of \[-1, 0\], but got 5"),
    "keep": (lambda x: x.sum().backward(retain_graph="no"), TypeError, "retain_graph.*not str"),
    "labels": (lambda x: ag.einsum(x, "i"), TypeError, "einsum.*ints, not str.*equation"),
    "group": (lambda x: ag.optim.SGD({"params": [x]}), TypeError, "one dict. Put it into a list"),
    "version": (
        lambda x: ag.autograd.graph.increment_version([x, 3]),
        RuntimeError,
        "Tensor.*a int",
    ),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_on_what_does_not_fit_names_it_and_records_nothing(name):
    wrong, kind, text = OPERATORS[name]
    p = LeafWithResults()
    with pytest.raises(kind, match=text):
        wrong(p.x)
    assert p.is_untouched()


@pytest.mark.torch
def test_a_tensor_of_pytorch_is_told_from_ours():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x, other = ag.ones(3), torch.ones(3)
    wrong = {
        r"add\(\): argument 2 must be Tensor, not torch.Tensor.*from_dlpack": lambda: x + other,
        r"add\(\): argument 1 must be Tensor, not torch.Tensor.*from_dlpack": lambda: other + x,
        r"mse_loss.*not torch.Tensor.*from_dlpack": lambda: F.mse_loss(x, other),
        r"cat.*argument 2 must be Tensor, not torch.Tensor": lambda: ag.cat([x, other]),
        r"copy_.*not torch.Tensor": lambda: x.copy_(other),
        r"params is torch.Tensor": lambda: ag.optim.SGD([other]),
        r"from torch.Parameter": lambda: ag.nn.Parameter(torch.nn.Parameter(other)),
        r"torch.Linear is not a Module": lambda: ag.nn.Sequential(torch.nn.Linear(2, 2)),
        r"device, not torch.device": lambda: ag.zeros(2, device=torch.device("cpu")),
        r"such as asyncgrad.float32, not torch.float64": lambda: x.to(torch.float64),
        r"set_default_dtype.*not torch.float64": lambda: ag.set_default_dtype(torch.float64),
    }
    for text, call in wrong.items():
        with pytest.raises(TypeError, match=text):
            call()
    assert (x == other) is False
    for made in (ag.tensor(other), ag.as_tensor(other), ag.asarray(other), ag.from_dlpack(other)):
        assert made.tolist() == [1.0, 1.0, 1.0]


class Foreign:
    """Knows what to do with tensors."""

    def __radd__(self, other):
        return "sum"

    def __rmatmul__(self, other):
        return "product"


def test_operators_leave_what_they_do_not_know_to_the_other_operand():
    x = ag.ones(3)
    assert x + Foreign() == "sum"
    assert x @ Foreign() == "product"
    assert (x == [1.0, 1.0, 1.0]) is False


@pytest.mark.asyncio
async def test_the_outcome_of_a_pass_is_its_own():
    p = LeafWithResults()
    p.x.grad = None
    pending = p.scalar.backward()
    with pytest.raises(RuntimeError, match=r"cancel\(\)"):
        pending.set_result(None)
    with pytest.raises(RuntimeError, match=r"cancel\(\)"):
        pending.set_exception(ValueError())
    await pending
    assert np.allclose(p.x.grad.numpy(), np.exp([1.0, 2.0, 3.0]))


@pytest.mark.asyncio
async def test_results_used_without_await_are_refused_with_the_remedy():
    p = LeafWithResults()
    pending = ag.autograd.grad(p.scalar, p.x, retain_graph=True)
    for use in (lambda: pending[0], lambda: list(pending), lambda: p.x * pending):
        with pytest.raises(TypeError, match=r"(?i)\bawait\b"):
            use()
    (gradient,) = await pending
    assert np.allclose(gradient.numpy(), np.exp([1.0, 2.0, 3.0]))
    assert await asyncio.to_thread(p.is_untouched)


async def _await(pending):
    await pending


@pytest.mark.parametrize(
    "wait", [_await, asyncio.gather, asyncio.shield, lambda pending: asyncio.wait([pending])]
)
def test_every_way_to_wait_in_another_loop_is_refused(wait):
    """`asyncio.wait` would wait for ever: nobody wakes it from the pass's own loop."""

    async def elsewhere(pending):
        with pytest.raises(WrongLoopError, match="another event loop"):
            await wait(pending)

    async def main():
        p = LeafWithResults()
        gate = asyncio.Event()

        async def hold(gradient):
            await gate.wait()

        p.vector.register_hook(hold)
        pending = p.scalar.backward()
        await asyncio.to_thread(asyncio.run, elsewhere(pending))
        with pytest.raises(asyncio.InvalidStateError, match="await"):
            pending.exception()
        gate.set()
        await pending

    asyncio.run(main())


def test_a_pass_awaited_in_another_loop_is_refused_and_goes_on_in_its_own():
    async def main():
        p = LeafWithResults()
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
    p = LeafWithResults()
    optimizer = ag.optim.SGD([p.x], lr=1.0)
    pending = p.scalar.backward()
    with pytest.raises(PendingBackwardError, match=r"await loss\.backward"):
        optimizer.step()
    assert p.x.tolist() == [1.0, 2.0, 3.0]
    await pending
    optimizer.step()
    assert p.x.tolist() != [1.0, 2.0, 3.0]


@pytest.mark.asyncio
async def test_gradients_are_not_cleared_before_their_pass_was_awaited():
    model = ag.nn.Linear(3, 1)
    pending = model(ag.ones(2, 3)).sum().backward()
    with pytest.raises(PendingBackwardError, match=r"Linear\.zero_grad.*await loss\.backward"):
        model.zero_grad()
    await pending
    assert model.weight.grad.tolist() == [[2.0, 2.0, 2.0]]
    model.zero_grad()
    assert model.weight.grad is None


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "start",
    [
        lambda x: ag.autograd.functional.jacobian(lambda y: y * 2, x),
        lambda x: ag.func.grad(lambda y: y.sum())(x),
    ],
)
async def test_a_forgotten_transform_is_told_with_its_line(start):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start(ag.ones(3))
        while not caught:
            await asyncio.sleep(0)
            gc.collect()
    assert [w.category for w in caught] == [RuntimeWarning]
    assert "never awaited" in str(caught[0].message)
    assert __file__ in str(caught[0].message)


@pytest.mark.asyncio
async def test_a_forgotten_await_is_told_with_its_line():
    p = LeafWithResults()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        p.scalar.backward()
        while not caught:
            await asyncio.sleep(0)
            gc.collect()
    assert [w.category for w in caught] == [RuntimeWarning]
    assert "never awaited" in str(caught[0].message)
    assert __file__ in str(caught[0].message)
