"""`gradcheck` and `gradgradcheck`, beside PyTorch's."""

import asyncio
import warnings

import numpy as np
import pytest
from functions import function_of
from parity import torch

import asyncgrad as ag

pytestmark = [
    pytest.mark.torch,
    # PyTorch's forward mode compiles with what PyTorch deprecates.
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated"),
]


def _input(T, *shape, dtype="float64", seed=1):
    count = 1
    for n in shape:
        count *= n
    values = [((seed * 7 + i * 5) % 11 - 5) / 4 + 0.1 for i in range(count)]
    if dtype == "complex128":
        values = [complex(v, 0.3 - v / 2) for v in values]
    return T.tensor(values, dtype=getattr(T, dtype)).reshape(shape).detach().requires_grad_()


def _wrong(T):
    class Wrong(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * x * 2.5

    return Wrong.apply


def _fickle(T):
    class Fickle(T.autograd.Function):
        calls = 0

        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            Fickle.calls += 1
            return g * (2 + 1e-9 * (Fickle.calls % 2))

    return Fickle.apply


def _constant(T):
    Constant = function_of(T, backward=lambda ctx, g: g * 0 + 1)
    return Constant.apply


def _not_a_number(T):
    NotANumber = function_of(T, backward=lambda ctx, g: g * float("nan"))
    return NotANumber.apply


def _narrow(T):
    class Narrow(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 1

        @staticmethod
        def backward(ctx, g):
            if g is None:
                raise RuntimeError("no gradient")
            return g * 1

    return Narrow.apply


PROGRAMS = {
    "sin": lambda T: (lambda x: x.sin() * x, (_input(T, 2, 3),), {}),
    "two inputs, two outputs": lambda T: (
        lambda x, y: (x @ y, (x * x).sum()),
        (_input(T, 2, 3), _input(T, 3, 2, seed=2)),
        {},
    ),
    "one input is a constant": lambda T: (
        lambda x, y: x * y,
        (_input(T, 3), _input(T, 3).detach()),
        {},
    ),
    "no tensor": lambda T: (lambda x, n: x * n, (_input(T, 3), 3.0), {}),
    "wrong": lambda T: (_wrong(T), (_input(T, 3),), {}),
    "wrong twice": lambda T: (lambda x: _wrong(T)(x).exp(), (_input(T, 3),), {}),
    "fickle": lambda T: (_fickle(T), (_input(T, 3),), {}),
    "fickle but tolerated": lambda T: (_fickle(T), (_input(T, 3),), {"nondet_tol": 1e-6}),
    "not a number each time": lambda T: (_not_a_number(T), (_input(T, 3),), {}),
    "not multiplied": lambda T: (_constant(T), (_input(T, 1),), {}),
    "undefined": lambda T: (_narrow(T), (_input(T, 2),), {}),
    "undefined, not asked": lambda T: (
        _narrow(T),
        (_input(T, 2),),
        {"check_undefined_grad": False},
    ),
    "nothing requires grad": lambda T: (lambda x: x, (_input(T, 2).detach(),), {}),
    "nothing comes out": lambda T: (lambda x: x.detach().sign(), (_input(T, 2),), {}),
    "hidden dependence": lambda T: (lambda x: x.detach() * 2, (_input(T, 2),), {}),
    "complex": lambda T: (lambda z: z.abs() * z + z.exp(), (_input(T, 2, dtype="complex128"),), {}),
    "complex to real": lambda T: (lambda z: z.abs(), (_input(T, 2, dtype="complex128"),), {}),
    "complex, wrong": lambda T: (_wrong(T), (_input(T, 2, dtype="complex128"),), {}),
    "nothing to check": lambda T: (lambda x: x, (_input(T, 2),), {"check_backward_ad": False}),
    "batched without backward": lambda T: (
        lambda x: x,
        (_input(T, 2),),
        {"check_backward_ad": False, "check_forward_ad": True, "check_batched_grad": True},
    ),
    "forward": lambda T: (lambda x: x.exp() * 2, (_input(T, 2),), {"check_forward_ad": True}),
    "forward alone": lambda T: (
        lambda x: (x.exp() * 2).sum(),
        (_input(T, 2),),
        {"check_forward_ad": True, "check_backward_ad": False},
    ),
    "batched": lambda T: (
        lambda x, y: (x @ y, (x * x).sum(), x.detach()),
        (_input(T, 2, 3), _input(T, 3, 2, seed=2)),
        {"check_batched_grad": True},
    ),
    "batched forward": lambda T: (
        lambda x: (x.exp() * 2, x.sum()),
        (_input(T, 2),),
        {"check_forward_ad": True, "check_batched_forward_grad": True},
    ),
    "batched forward without forward": lambda T: (
        lambda x: x,
        (_input(T, 2),),
        {"check_batched_forward_grad": True},
    ),
    "overlapping": lambda T: (
        lambda x: x * 2,
        (_input(T, 1).detach().expand(3).requires_grad_(),),
        {},
    ),
    "expanded by one": lambda T: (
        lambda x: x * x,
        (_input(T, 3).detach().expand(1, 3).requires_grad_(),),
        {},
    ),
    "single precision": lambda T: (lambda x: x * 2, (_input(T, 2, dtype="float32"),), {}),
    "empty": lambda T: (lambda x: x * 2, (_input(T, 0, 3),), {}),
    "without axes": lambda T: (
        lambda x: x * x,
        (_input(T).reshape(()).detach().requires_grad_(),),
        {},
    ),
    "masked": lambda T: (lambda x: x * 2, (_input(T, 2),), {"masked": True}),
    "dtypes": lambda T: (lambda x: x * 2, (_input(T, 2),), {"check_grad_dtypes": True}),
}  # fmt: skip


def _outcome(function, *args, **kwargs):
    """What is returned or raised, and what is warned of, in words common to both."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            result = function(*args, **kwargs)
        except Exception as error:
            kinds = [kind.__name__ for kind in type(error).__mro__]
            result = (
                next(
                    kind
                    for kind in kinds
                    if kind in {"GradcheckError", "ValueError", "RuntimeError", "AssertionError"}
                ),
                " ".join(str(error).split())[:30],
            )
    return result, any("double precision" in str(warning.message) for warning in seen)


@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_gradcheck(name, fast_mode):
    """The same verdict, by the same class of error and the same words."""
    ours, theirs = PROGRAMS[name](ag), PROGRAMS[name](torch)
    for raise_exception in (True, False):
        flags = {"fast_mode": fast_mode, "raise_exception": raise_exception}
        expected = _outcome(torch.autograd.gradcheck, *theirs[:2], **theirs[2], **flags)
        assert _outcome(ag.autograd.gradcheck, *ours[:2], **ours[2], **flags) == expected


@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        "sin", "two inputs, two outputs", "wrong twice", "complex", "one input is a constant",
        "nothing requires grad", "complex to real",
    ],
)  # fmt: skip
def test_gradgradcheck(name, fast_mode):
    """Second derivatives, too."""
    ours, theirs = PROGRAMS[name](ag), PROGRAMS[name](torch)
    for flags in ({}, {"gen_non_contig_grad_outputs": True}, {"raise_exception": False}):
        flags["fast_mode"] = fast_mode
        expected = _outcome(torch.autograd.gradgradcheck, *theirs[:2], **theirs[2], **flags)
        assert _outcome(ag.autograd.gradgradcheck, *ours[:2], **ours[2], **flags) == expected


def test_gradgradcheck_takes_gradients():
    """Those that require grad are checked, too."""
    for T in (torch, ag):
        x, g = _input(T, 2), _input(T, 2, seed=3)
        assert T.autograd.gradgradcheck(lambda x: x.exp(), (x,), (g,)) is True
        assert T.autograd.gradgradcheck(lambda x: x.exp(), (x,), g.detach()) is True
        with pytest.raises(AssertionError):
            T.autograd.gradgradcheck(lambda x: x.exp(), (x,), check_rev_over_rev=False)


def test_inputs_stay_as_they_are():
    """Their values, and their gradients."""
    x = _input(ag, 2, 3)
    before = x.tolist()
    assert ag.autograd.gradcheck(lambda x: x.sin(), x)
    assert not ag.autograd.gradcheck(_wrong(ag), x, raise_exception=False)
    assert x.tolist() == before
    assert x.grad is None


def test_inputs_in_memory_that_is_read_only_are_refused():
    frozen = np.ones(3)
    frozen.flags.writeable = False
    x = ag.from_numpy(frozen).requires_grad_()
    with pytest.raises(RuntimeError, match="the memory of the 0th is read-only"):
        ag.autograd.gradcheck(lambda x: x * x, (x,))
    assert ag.autograd.gradcheck(lambda x: x * x, (x.detach().clone().requires_grad_(),))


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("shape", [(0,), (2, 0)])
def test_an_input_without_elements_may_be_expanded(shape, fast):
    """Its memory is read-only, and nothing in it is changed."""
    x = ag.ones(1, dtype=ag.float64).expand(shape).requires_grad_()
    assert ag.autograd.gradcheck(lambda x: x * 2, x, fast_mode=fast)


def test_the_error_is_found_where_pytorch_has_it():
    """In the module, and with the function."""
    from asyncgrad.autograd.gradcheck import GradcheckError

    assert ag.autograd.gradcheck.GradcheckError is GradcheckError
    assert issubclass(GradcheckError, RuntimeError)
    with pytest.raises(GradcheckError, match="output 0 with respect to input 0"):
        ag.autograd.gradcheck(_wrong(ag), _input(ag, 2))


async def _slow(x):
    await asyncio.sleep(0)
    return x.sin() * x


@pytest.mark.asyncio
async def test_both_can_be_awaited():
    """And so may be what they check."""
    x = _input(ag, 2)
    for function in (_slow, lambda x: x.exp()):
        assert await ag.autograd.gradcheck_async(function, x) is True
        assert await ag.autograd.gradgradcheck_async(function, x) is True
    assert await ag.autograd.gradcheck_async(_wrong(ag), x, raise_exception=False) is False


@pytest.mark.asyncio
async def test_both_block_on_a_loop():
    """They return a bool, whatever runs."""
    x = _input(ag, 2)
    assert ag.autograd.gradcheck(lambda x: x.exp(), x) is True
    assert ag.autograd.gradgradcheck(lambda x: x.exp(), x) is True
    with pytest.raises(RuntimeError, match="use await"):
        ag.autograd.gradcheck(_slow, x)


def test_a_coroutine_function_is_checked_without_a_loop():
    """On the portal's."""
    assert ag.autograd.gradcheck(_slow, _input(ag, 2)) is True
