"""Anomaly mode: NaN is an error, and errors say where their node was made."""

import asyncio
import contextlib
import gc
import io
import os
import re
import warnings
import weakref

import numpy as np
import pytest
from functions import function_of
from parity import both, leaf

import asyncgrad as ag

pytestmark = pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")


def nan_maker(T, fails):
    class MyFunc(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, fail_at):
            ctx.fail_at = fail_at
            return x.sum(0, keepdim=True)

        @staticmethod
        def backward(ctx, gradient):
            if fails == "raise":
                raise ValueError("in backward")
            grad = gradient.expand(10).clone()
            grad[ctx.fail_at] = float("nan")
            return grad, None

    return MyFunc


def told(caught):
    """What the warnings say, in short."""
    text = "\n".join(str(w.message) for w in caught)
    return [
        phrase in text
        for phrase in (
            "Error detected in",
            "No forward pass information available",
            "Traceback of forward call that caused the error",
            "Previous calculation was induced by",
            "Traceback of forward call that induced the previous calculation",
        )
    ]


@both
def test_nan_is_an_error(T, log):
    for check_nan in (True, False):
        x = T.ones(10, dtype=T.float64, requires_grad=True)
        y = nan_maker(T, "nan").apply(x * 1, 0).sum()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                with T.autograd.set_detect_anomaly(True, check_nan=check_nan):
                    yield y.backward()
                log(bool(np.isnan(x.grad.numpy()).any()))
            except RuntimeError as error:
                text = str(error)
                log("Function 'MyFuncBackward' returned nan values in its 0th output." in text)
        log(told(caught))


@both
def test_the_forward_call_is_told(T, log):
    for around in ("both", "forward", "backward"):
        x = T.ones(10, dtype=T.float64, requires_grad=True)
        with T.autograd.set_detect_anomaly(around != "backward"):
            y = nan_maker(T, "nan").apply(x * 1, 0).sum()
            log("traceback_" in y.grad_fn.metadata)
            function = y.grad_fn.next_functions[0][0]
            log("traceback_" in function.metadata, sorted(function.metadata))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                with T.autograd.set_detect_anomaly(around != "forward"):
                    yield y.backward()
            except RuntimeError as error:
                log(error)
        log(told(caught))


@both
def test_any_error_is_told_of(T, log):
    x = T.ones(10, dtype=T.float64, requires_grad=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with T.autograd.detect_anomaly():
                y = nan_maker(T, "raise").apply(x, 0).sum()
                yield y.backward()
        except ValueError as error:
            log(str(error))
    log(told(caught))


@both
def test_the_second_derivative_tells_what_induced_it(T, log):
    x = leaf(T, 0.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with T.autograd.set_detect_anomaly(True):
                y = x.sqrt() * 0
                (g,) = yield T.autograd.grad(y.sum() + (x * x).sum(), x, create_graph=True)
        except RuntimeError as error:
            log(error)
    log(told(caught))

    class Fails(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, gradient):
            return Second.apply(gradient)

    def backward(ctx, gradient):
        raise ValueError("second")

    Second = function_of(T, backward=backward)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with T.autograd.set_detect_anomaly(True):
                y = Fails.apply(x * x * x)
                (g,) = yield T.autograd.grad(y.sum(), x, create_graph=True)
                yield g.sum().backward()
        except ValueError as error:
            log(error)
    log(told(caught))


@both
def test_nodes_know_their_parents(T, log):
    x = leaf(T, 0.5)
    with T.autograd.set_detect_anomaly(True):
        y = T.exp(x)
        (g,) = yield T.autograd.grad(y.sum(), x, create_graph=True)
    log(g.grad_fn, g.grad_fn.metadata["parent_"], "parent_" in y.grad_fn.metadata)
    y.grad_fn.metadata["mine"] = 3
    log(y.grad_fn.metadata["mine"], sorted(y.grad_fn.metadata))
    log(isinstance("".join(y.grad_fn.metadata["traceback_"]), str))
    log("T.exp(x)" in "".join(y.grad_fn.metadata["traceback_"]))


@both
def test_operations_in_place_and_views_are_traced_too(T, log):
    x = leaf(T, 0.5, 1.0)
    with T.autograd.set_detect_anomaly(True):
        y = x * 1
        y.mul_(2)
        z = x * 1
        z[0] = 3.0
        view = z[1:]
        view.mul_(2)
        joined = T.cat([x, x])
    for tensor in (y, z, joined):
        log("traceback_" in tensor.grad_fn.metadata)
    yield (y.sum() + z.sum() + view.sum()).backward()
    log(x.grad)


@both
def test_gradients_that_are_nan_from_the_start(T, log):
    x = leaf(T, 1.0, 2.0)
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        with T.autograd.set_detect_anomaly(True):
            y = x * 2
            nan = T.tensor([float("nan"), 1.0], dtype=T.float64)
            try:
                yield y.backward(nan)
            except RuntimeError as error:
                log(str(error)[:60].split("' ")[-1])
            z = x + 0
            z.register_hook(lambda g: g * float("nan"))
            try:
                yield z.sum().backward()
                log("passed")
            except RuntimeError as error:
                log(error)
    log(x.grad)


@both
def test_the_mode_is_entered_again_and_infinities_are_no_error(T, log):
    mode = T.autograd.detect_anomaly()
    for _ in range(2):
        with mode:
            log(T.is_anomaly_enabled())
        log(T.is_anomaly_enabled())
    x = leaf(T, 1.0)
    with T.autograd.set_detect_anomaly(True):
        yield (x * T.tensor([float("inf")], dtype=T.float64)).sum().backward()
    log(x.grad)


@pytest.mark.asyncio
async def test_the_error_says_it_itself():
    """In its notes: where warnings are errors, or nobody reads them."""
    x = leaf(ag, 0.0)
    with ag.autograd.set_detect_anomaly(True):
        loss = (ag.sqrt(x) * 0).sum()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(RuntimeError, match="nan values") as caught:
                await loss.backward()
    notes = "\n".join(caught.value.__notes__)
    assert "ag.sqrt(x) * 0" in notes
    assert "SqrtBackward" in notes
    assert "float64" in notes
    assert x.grad is None


def second_derivative(T):
    """What fails in a pass over a node that another pass's node has made."""

    class Outer(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 1

        @staticmethod
        def backward(ctx, gradient):
            return Inner.apply(gradient * ctx.saved_tensors[0])

    class Inner(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, gradient):
            return gradient * float("nan")

    x = leaf(T, 1.0)
    with T.autograd.set_detect_anomaly(True):
        (g,) = yield T.autograd.grad(Outer.apply(x).sum(), x, create_graph=True)
        yield g.sum().backward()


@both
def test_each_call_that_induced_another_has_its_warning(T, log):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield from second_derivative(T)
        except RuntimeError as error:
            log("InnerBackward" in str(error))
    log([re.findall(r"(Error detected in|induced by) (\w+)", str(w.message)) for w in caught])


@both
def test_where_warnings_are_errors_they_are_printed(T, log):
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()) as printed:
        warnings.simplefilter("error")
        try:
            yield from second_derivative(T)
        except RuntimeError as error:
            log("InnerBackward" in str(error))
    text = printed.getvalue()
    log(re.findall(r"UserWarning: \s*(Error detected in|Previous calculation) (\w+)", text))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("anomaly", [True, False])
def test_a_trace_is_told_once(anomaly):
    """By the pass in anomaly mode, or by the error alone where the mode was on for the forward."""
    with ag.autograd.set_detect_anomaly(True):
        y = nan_maker(ag, "raise").apply(ag.ones(10, requires_grad=True), 0)
    with (
        ag.autograd.set_detect_anomaly(anomaly),
        pytest.raises(ValueError, match="in backward") as caught,
    ):
        y.backward()
    notes = "\n".join(caught.value.__notes__)
    assert notes.count('y = nan_maker(ag, "raise")') == 1


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_traces_hold_the_users_frames_alone():
    """Also of a node that is made in a pass: between the pass's start and it lies the package."""
    program = second_derivative(ag)
    gradients = next(program)
    with pytest.raises(RuntimeError) as caught:
        program.send(gradients)
    notes = "\n".join(caught.value.__notes__)
    assert "return Inner.apply(" in notes
    assert "Outer.apply(x)" in notes
    assert os.path.dirname(ag.__file__) not in notes


@pytest.mark.asyncio
async def test_nodes_of_coroutines_are_told_of_too():
    """Their errors come later, in another task."""

    class Fails(ag.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        async def backward(ctx, gradient):
            return gradient * float("nan")

    with (
        ag.autograd.set_detect_anomaly(True),
        pytest.warns(UserWarning, match="Error detected in FailsBackward"),
        pytest.raises(RuntimeError, match="'FailsBackward' returned nan values in its 0th output"),
    ):
        await Fails.apply(leaf(ag, 1.0)).sum().backward()


@pytest.mark.asyncio
@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
async def test_what_runs_while_a_node_waits_is_no_child_of_it():
    """And nothing is after it has ended, whichever of two that wait ends first."""

    class Waits(ag.autograd.Function):
        @staticmethod
        def forward(ctx, x, turns):
            ctx.turns = turns
            return x.clone()

        @staticmethod
        async def backward(ctx, gradient):
            for _ in range(ctx.turns):
                await asyncio.sleep(0)
            return gradient.clone(), None

    made = []

    def make(gradient):
        with ag.enable_grad():
            made.append((gradient.detach().requires_grad_() * 2.0).grad_fn)

    for turns in ((1, 4), (4, 1)):
        with ag.autograd.detect_anomaly():
            x = ag.tensor([1.0, 2.0], requires_grad=True)
            y, z = x * 3.0, x * 1.0
            y.register_hook(make)
            z.register_hook(make)
            loss = sum(Waits.apply(y, turn).sum() for turn in turns) + z.sum()
            await loss.backward()
    assert len(made) == 4
    assert all("parent_" not in node.metadata for node in made)


@pytest.mark.usefixtures("no_collector")
def test_parents_and_traces_keep_nothing_alive():
    """With the cycle collector off, also when the metadata holds something of the user's."""

    class Owner:
        pass

    gc.collect()
    owner = Owner()
    gone = weakref.ref(owner)
    with ag.autograd.set_detect_anomaly(True):
        x = leaf(ag, 0.5)
        y = ag.exp(x * x)
        (g,) = ag.grad(y.sum(), x, create_graph=True)
        y.grad_fn.metadata["owner"] = owner
        node = weakref.ref(g.grad_fn)
    del owner, y
    assert gone() is not None
    del g
    assert gone() is None
    assert node() is None
