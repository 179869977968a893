"""Modes within and around the function whose derivative is taken, in PyTorch and here."""

import contextlib

import pytest

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

MODES = {
    "none": lambda T: contextlib.nullcontext(),
    "no_grad": lambda T: T.no_grad(),
    "enable_grad": lambda T: T.enable_grad(),
    "set_grad_enabled": lambda T: T.set_grad_enabled(False),
    "no_inference": lambda T: T.inference_mode(False),
}


def vector(T, *values):
    return T.tensor(values, dtype=T.float64)


def whole(T, mode):
    def function(x):
        with MODES[mode](T):
            return x.sin() * x

    return function


def part(T, mode):
    def function(x):
        with MODES[mode](T):
            y = x.sin()
        return y * x

    return function


def called(result, *args):
    out, push = result
    return out, push(*args)


#: By name: from the library, a function, an argument and a direction.
TRANSFORMS = {
    "grad": lambda T, f, x, v: T.func.grad(lambda x: f(x).sum())(x),
    "vjp": lambda T, f, x, v: called(T.func.vjp(f, x), v),
    "jvp": lambda T, f, x, v: T.func.jvp(f, (x,), (v,)),
    "linearize": lambda T, f, x, v: called(T.func.linearize(f, x), v),
    "jacrev": lambda T, f, x, v: T.func.jacrev(f)(x),
    "jacfwd": lambda T, f, x, v: T.func.jacfwd(f)(x),
    "hessian": lambda T, f, x, v: T.func.hessian(lambda x: f(x).sum())(x),
    "vmap of grad": lambda T, f, x, v: (
        T.func.vmap(T.func.grad(lambda x: f(x).sum()))(T.stack([x, v]))
    ),
    "grad of jvp": lambda T, f, x, v: (
        T.func.grad(lambda x: T.func.jvp(f, (x,), (v,))[1].sum())(x)
    ),
    "jvp of grad": lambda T, f, x, v: (
        T.func.jvp(T.func.grad(lambda x: f(x).sum()), (x,), (v,))
    ),
    "linearized grad": lambda T, f, x, v: (
        called(T.func.linearize(T.func.grad(lambda x: f(x).sum()), x), v)
    ),
}  # fmt: skip


def numbers(result):
    if isinstance(result, tuple):
        return [number for one in result for number in numbers(one)]
    return [*result.detach().reshape(-1).tolist(), result.requires_grad]


@pytest.mark.parametrize("function", [whole, part])
@pytest.mark.parametrize("inside", MODES)
@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_a_mode_within_the_function_does_what_pytorchs_does(transform, inside, function):
    """A part that reverse mode takes for a constant has its tangent in forward mode."""
    for around in ("none", "no_grad") if inside == "none" else ("none",):
        found = []
        for T in (torch, ag):
            with MODES[around](T):
                x, v = vector(T, 0.3, 0.7), vector(T, 1.0, 2.0)
                found.append(numbers(transform(T, function(T, inside), x, v)))
        assert found[1] == pytest.approx(found[0])


@pytest.mark.parametrize("around", ["none", "no_grad", "inference"])
@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_a_leaf_is_an_argument_in_every_mode(transform, around):
    """Also where `vmap` moves its axes in a mode that records nothing."""
    found = []
    for T in (torch, ag):
        x = vector(T, 0.3, 0.7).requires_grad_()
        # In inference mode some of PyTorch's transforms fail.
        inference = T is ag and around == "inference"
        with ag.inference_mode() if inference else MODES[around.replace("inference", "no_grad")](T):
            found.append(numbers(transform(T, whole(T, "none"), x, vector(T, 1.0, 2.0))))
    assert found[1] == pytest.approx(found[0])


def test_linearize_is_jvp_whatever_the_mode_within():
    """In one call of the function, changes in place and views included."""

    def function(x):
        y = x[1:]
        with ag.no_grad():
            y.mul_(x[0] * 2).exp_()
            z = ag.exp(x)
        return z * y.sum(), x.cos()

    x, v = vector(ag, 0.3, 0.7, 0.2), vector(ag, 1.0, 2.0, -1.0)
    expected = ag.func.jvp(function, (x.clone(),), (v.clone(),))
    found = called(ag.func.linearize(function, x.clone()), v)
    assert numbers(found) == pytest.approx(numbers(expected))


def test_what_is_linearized_leads_on_to_what_the_function_holds():
    """And to nothing where it is a constant for `jvp`, too."""
    x, v = vector(ag, 0.3, 0.7), vector(ag, 1.0, 2.0)
    weight = vector(ag, 2.0, 5.0).requires_grad_()
    for mode, leads in ((ag.enable_grad, True), (ag.no_grad, False)):

        def function(x, mode=mode):
            with mode():
                return ag.sin(x) * weight

        _, tangent = called(ag.func.linearize(function, x), v)
        assert tangent.requires_grad == ag.func.jvp(function, (x,), (v,))[1].requires_grad == leads
    _, tangent = called(ag.func.linearize(lambda x: ag.sin(x) * weight, x), v)
    assert ag.allclose(ag.grad(tangent.sum(), weight)[0], ag.cos(x) * v)


@pytest.mark.parametrize(
    "transform", ["jvp", "linearize", "hessian", "grad of jvp", "jvp of grad", "linearized grad"]
)
def test_tangents_of_what_changes_in_place_are_differentiated(transform):
    """The old values that the change's own tangents have saved are kept for them."""

    def function(x):
        y = x * 1
        y.mul_(x[0]).pow_(2)
        y[1:].exp_()
        return y * x

    found = []
    for T in (torch, ag):
        x, v = vector(T, 0.3, 0.7), vector(T, 1.0, 2.0)
        found.append(numbers(TRANSFORMS[transform](T, function, x, v)))
    assert found[1] == pytest.approx(found[0])
