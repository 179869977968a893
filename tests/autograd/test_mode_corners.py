"""Programs at the corners of inference mode and forward mode, the same in PyTorch and here."""

import pytest
from plain_parity import attempted, numbers, plainly

import asyncgrad as ag


@plainly
def test_axes_of_inference_tensors_change_in_place(T, log):
    with T.inference_mode():
        x = T.ones(1, 2, 3, requires_grad=True)
        for turn in (
            lambda: x.transpose_(0, 1),
            lambda: x.unsqueeze_(0),
            lambda: x.squeeze_(0),
        ):
            turn()
            log(tuple(x.shape), x.is_inference(), x.requires_grad)
        attempted(log, "version", lambda: x._version)
    with T.inference_mode():
        y = T.ones(2, 3)
    attempted(log, "Inplace update to inference tensor", y.transpose_, 0, 1)


@plainly
def test_a_parameter_of_an_inference_tensor(T, log):
    with T.inference_mode():
        x = T.ones(2)
        log(T.nn.Parameter(x).is_inference())
    attempted(log, "Setting requires_grad=True on inference tensor", T.nn.Parameter, x)
    log(T.nn.Parameter(x, requires_grad=False).is_inference())


@plainly
def test_detach_in_place_takes_the_tangent_away(T, log):
    fw = T.autograd.forward_ad
    with fw.dual_level():
        dual = fw.make_dual(numbers(T, 2), numbers(T, 2, seed=1)).clone()
        log(fw.unpack_dual(dual).tangent)
        dual.detach_()
        log(fw.unpack_dual(dual).tangent, fw.unpack_dual(dual * 2).tangent)


@plainly
def test_out_takes_no_tangents(T, log):
    fw = T.autograd.forward_ad
    with fw.dual_level():
        plain, other = numbers(T, 2), numbers(T, 2, seed=2)
        dual = fw.make_dual(numbers(T, 2), numbers(T, 2, seed=1))
        attempted(log, "out= function", lambda: T.add(plain, plain, out=dual))
        attempted(log, "out= function", lambda: T.mul(dual, plain, out=other))
        log(T.add(plain, plain, out=other))
    log(T.add(other, other, out=other))


@plainly
def test_no_pass_that_accumulates_is_started_in_a_transform(T, log):
    F = T.func
    x, leaf = T.ones(2), T.ones(2, requires_grad=True)
    transforms = (
        F.grad,
        F.jacrev,
        F.jacfwd,
        lambda f: lambda x: F.vmap(f)(T.stack([x, x])),
        lambda f: lambda x: F.jvp(f, (x,), (x,)),
    )
    for own in (lambda x: x.sum(), lambda x: leaf.sum(), lambda x: (x * leaf).sum()):

        def function(x, own=own):
            own(x).backward()
            return x.sum()

        for transform in transforms:
            attempted(log, "inside", transform(function), x)
    log(leaf.grad)


@plainly
def test_gradcheck_of_no_elements(T, log):
    for shape in ((0,), (2, 0), (0, 3)):
        x = T.zeros(shape, dtype=T.float64, requires_grad=True)
        for fast in (False, True):
            log(T.autograd.gradcheck(lambda x: x * x, x, fast_mode=fast))
        log(T.autograd.gradgradcheck(lambda x: (x * x).sum(), x))


def test_refused_out_is_as_it_was():
    """PyTorch has written to it when it raises."""
    fw = ag.autograd.forward_ad
    with fw.dual_level():
        dual, out = fw.make_dual(ag.ones(2), ag.ones(2)), ag.zeros(2)
        with pytest.raises(NotImplementedError, match="out="):
            ag.exp(dual, out=out)
        assert out.tolist() == [0.0, 0.0]
        assert out._version == 0


@plainly
def test_what_is_set_within_another_mode_outlasts_it(T, log):
    def blocks():
        yield T.autograd.graph.save_on_cpu()
        yield T.autograd.forward_ad.dual_level()
        yield T.autograd.detect_anomaly()
        yield T.autograd.graph.disable_saved_tensors_hooks("no")
        yield T.no_grad()
        yield T.inference_mode()

    for block in blocks():
        with block:
            T.set_grad_enabled(False)
            T.autograd.set_detect_anomaly(True)
        log(T.is_grad_enabled(), T.is_anomaly_enabled())
        T.set_grad_enabled(True)
        T.autograd.set_detect_anomaly(False)

    @T.no_grad()
    def change():
        T.autograd.set_detect_anomaly(True)

    change()
    log(T.is_anomaly_enabled())
    T.autograd.set_detect_anomaly(False)


@plainly
def test_a_mode_that_was_set_is_set_again_on_entry(T, log):
    mode = T.set_grad_enabled(False)
    T.set_grad_enabled(True)
    with mode:
        log(T.is_grad_enabled())
    log(T.is_grad_enabled())
    with T.autograd.detect_anomaly():
        mode = T.set_grad_enabled(False)
    with mode:
        log(T.is_grad_enabled(), T.is_anomaly_enabled())
    log(T.is_grad_enabled(), T.is_anomaly_enabled())


@plainly
def test_a_mode_that_was_set_and_entered_leaves_others_as_they_are(T, log):
    outer, mode = T.no_grad(), T.autograd.set_detect_anomaly(False)
    T.set_grad_enabled(False)
    outer.__enter__()
    mode.__enter__()
    outer.__exit__(None, None, None)
    T.set_grad_enabled(True)
    mode.__exit__(None, None, None)
    log(T.is_grad_enabled(), T.is_anomaly_enabled())


@plainly
def test_integers_have_no_tangents(T, log):
    F = T.autograd.forward_ad
    with F.dual_level():
        x = F.make_dual(T.ones(2), T.ones(2) * 3)
        held = T.zeros(2, dtype=T.int64)
        held.copy_(x)
        for y in (x > 0, x.to(T.int64), held, x.to(T.float64), x.floor(), x.argmax()):
            log(F.unpack_dual(y).tangent)


@plainly
def test_an_expanded_tangent_can_change_in_place(T, log):
    F = T.autograd.forward_ad
    with F.dual_level():
        x = F.make_dual(T.ones(2, 2), T.ones(1).expand(2, 2))
        x.mul_(T.tensor([[1.0, 2.0], [3.0, 4.0]]))
        log(x, F.unpack_dual(x).tangent)
