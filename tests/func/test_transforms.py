"""`func`, beside PyTorch's."""

import asyncio
import copy
from collections import namedtuple

import numpy as np
import pytest
from parity import both, raised, torch

import asyncgrad as ag
from asyncgrad.ops.api.random import standard_gamma

# PyTorch's forward mode compiles with what PyTorch deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")


def _x(T, *shape):
    size = 1
    for n in shape:
        size *= n
    return (T.arange(1.0, size + 1.0).reshape(shape) / 3).to(T.float64)


Point = namedtuple("Point", ["x", "y"])


@both
def test_grad(T, log):
    """By one argument, several, trees of them; with values and what comes beside."""
    f = T.func
    x, y = _x(T, 3), _x(T, 3) * 2
    log((yield f.grad(lambda x: (x * x).sum())(x)))
    log((yield f.grad(lambda x, y: (x * y * y).sum(), argnums=1)(x, y)))
    log((yield f.grad(lambda x, y: (x * y * y).sum(), argnums=-1)(x, y)))
    log((yield f.grad(lambda x, y: (x * y * y).sum(), argnums=(0, 1))(x, y)))
    log((yield f.grad(lambda x, y: (x * y * y).sum(), argnums=(1,))(x, y)))
    log((yield f.grad(lambda x: ((x * x).sum(), x * 2), has_aux=True)(x)))
    log((yield f.grad(lambda d: (d["a"] * d["b"][0]).sum())({"a": x, "b": [y]})))
    log((yield f.grad(lambda p: (p.x * p.y).sum())(Point(x, y)))[:])
    log((yield f.grad(lambda x, scale=1: (x * x).sum() * scale)(x, scale=3)))
    log((yield f.grad(lambda x, n: (x**n).sum())(x, 3)))
    log((yield f.grad_and_value(lambda x: (x * x).sum())(x)))
    log((yield f.grad_and_value(lambda x: ((x * x).sum(), {"y": x + 1}), has_aux=True)(x)))
    log((yield f.grad(lambda x: T.tensor(3.0))(x)))


@both
def test_nested_gradients(T, log):
    """Of any order, with closures and without confusing what is differentiated."""
    f = T.func
    x = T.tensor(2.0)
    log((yield f.grad(f.grad(lambda x: x**4))(x)))
    log((yield f.grad(f.grad(f.grad(lambda x: x.sin())))(x)))
    log((yield f.grad(lambda x: x * f.grad(lambda y: x + y)(T.tensor(1.0)))(x)))
    log((yield f.grad(lambda x: f.grad(lambda y: x * y * y)(T.tensor(3.0)))(x)))
    log((yield f.grad(lambda x: f.vjp(lambda y: x * y * y, x)[1](T.tensor(1.0))[0])(x)))
    log((yield f.grad(lambda x: f.jvp(lambda y: x * y * y, (x,), (T.tensor(1.0),))[1])(x)))


@both
def test_transforms_and_the_graph_outside(T, log):
    """Results are differentiable by what requires grad outside, and by nothing else."""
    f = T.func
    w = T.tensor(3.0, requires_grad=True)
    x = T.tensor(2.0)
    g = yield f.grad(lambda x: w * x * x)(x)
    log(g.requires_grad, (yield T.autograd.grad(g, w)))
    g = yield f.grad(lambda x: w * x * x)(w)
    log(g.requires_grad, (yield T.autograd.grad(g, w)))
    g = yield f.grad(lambda x: x * x)(x)
    log(g.requires_grad, g.is_leaf)
    y, pull = yield f.vjp(lambda x: x * x, x)
    log(y.requires_grad, (yield pull(T.tensor(1.0)))[0].requires_grad)
    with T.no_grad():
        g = yield f.grad(lambda x: w * x * x)(x)
        log(g, g.requires_grad)
    g, aux = yield f.grad(lambda x: (x * x, x * 3), has_aux=True)(x)
    log(aux, aux.requires_grad)
    y = f.vmap(lambda x: x * w)(_x(T, 3))
    log((yield T.autograd.grad(y.sum(), w)))
    log((yield f.grad(lambda x: (x - T.no_grad()(lambda: x * x)()).sum())(x)))


@both
def test_errors_of_gradients(T, log):
    """PyTorch's classes."""
    f = T.func
    x = _x(T, 3)
    yield from raised(log, lambda: f.grad(lambda x: x * 2)(x))
    yield from raised(log, lambda: f.grad(lambda x: "no")(x))
    yield from raised(log, lambda: f.grad(lambda x: x.sum())())
    yield from raised(log, lambda: f.grad(lambda x: x.sum(), argnums=1)(x))
    yield from raised(log, lambda: f.grad(lambda x: x.sum(), argnums=(0, 0))(x))
    yield from raised(log, lambda: f.grad(lambda x: x.sum(), argnums=())(x))
    yield from raised(log, lambda: f.grad(lambda x: x.sum(), argnums="x")(x))
    yield from raised(log, lambda: f.grad(lambda x: x.sum(), has_aux=True)(x))
    for transform in (f.grad, f.jacrev):
        yield from raised(log, lambda: transform(lambda d: d["a"].sum())({"a": x, "b": 3}))  # noqa: B023  run at once
    yield from raised(log, lambda: f.vjp(lambda x, n: x * n, x, 3))
    yield from raised(log, lambda: f.vjp(lambda x: None, x))
    yield from raised(log, lambda: f.vjp(lambda x: (x, 1), x))
    yield from raised(log, lambda: f.jvp(lambda x: x, x, x))
    yield from raised(log, lambda: f.jvp(lambda x: x, (x,), (x, x)))
    yield from raised(log, lambda: f.jvp(lambda x: x, (), ()))
    yield from raised(log, lambda: f.jvp(lambda x: x, (1.0,), (x,)))
    yield from raised(log, lambda: f.jvp(lambda x: "no", (x,), (x,)))
    yield from raised(log, lambda: f.jvp(lambda x: T.ones(1), (x,), (x,), strict=True))
    yield from raised(log, lambda: f.jvp(lambda x: x, (x,), (_x(T, 2),)))
    yield from raised(log, lambda: f.jacrev(lambda x: x, chunk_size=0)(x))
    _, pull = yield f.vjp(lambda x: (x, x), x)
    yield from raised(log, lambda: pull(x))


@both
def test_vjp(T, log):
    """A function that can be called again."""
    f = T.func
    x, y = _x(T, 3), _x(T, 3) * 2
    out, pull = yield f.vjp(lambda x, y: (x * y, {"s": x.sum()}), x, y)
    log(out)
    log((yield pull((x, {"s": T.tensor(1.0, dtype=T.float64)}))))
    log((yield pull((y, {"s": T.tensor(0.0, dtype=T.float64)}))))
    out, pull, aux = yield f.vjp(lambda x: (x.sin(), x + 1), x, has_aux=True)
    log(out, aux, (yield pull(x)))
    out, pull = yield f.vjp(lambda d: d["a"] * 2, {"a": x})
    log((yield pull(x)))
    yield from raised(log, lambda: pull(5))
    yield from raised(log, lambda: f.vjp(lambda x: (x, x > 0), x))
    yield from raised(log, lambda: f.jacrev(lambda x: x.long())(x))


@both
def test_jvp(T, log):
    """In forward mode, nested, with what comes beside."""
    f = T.func
    x, t = _x(T, 3), _x(T, 3) * 2
    log((yield f.jvp(lambda x: x.sin() * x, (x,), (t,))))
    log((yield f.jvp(lambda x, y: {"s": (x * y).sum(), "x": x}, (x, t), (t, x))))
    log((yield f.jvp(lambda x: (x * x, x + 1), (x,), (t,), has_aux=True)))
    log((yield f.jvp(lambda x: T.ones(2), (x,), (t,))))
    log((yield f.jvp(lambda x: f.jvp(lambda y: y**3, (x,), (t,))[1], (x,), (t,))))
    log((yield f.jvp(f.grad(lambda x: (x**3).sum()), (x,), (t,))))


@both
def test_jacobians(T, log):
    """Backwards and forwards, of trees, in chunks, one of the other."""
    f = T.func
    x, y = _x(T, 2, 2), _x(T, 2)

    def function(x, y):
        return x @ y, (x * x).sum()

    for jac in (f.jacrev, f.jacfwd):
        log((yield jac(lambda x: x.sin() * 2)(x)))
        log((yield jac(function)(x, y)))
        log((yield jac(function, argnums=(0, 1))(x, y)))
        log((yield jac(function, argnums=1)(x, y)))
        log((yield jac(lambda x: (x.sum(1), x + 1), has_aux=True)(x)))
        log((yield jac(lambda x: {"a": x.sum(), "b": x[0]})(x)))
        log((yield jac(lambda x: T.ones(2, dtype=T.float64))(x)))
        log((yield jac(jac(lambda y: (y**3).sum()))(y)))
    log((yield f.jacrev(lambda x: x.exp(), chunk_size=3)(x)))
    log((yield f.jacfwd(f.jacrev(lambda y: (y**3).sum()))(y)))
    log((yield f.jacrev(f.jacfwd(lambda y: y**3))(y)))
    log((yield f.hessian(lambda y: y[0] * y[1] ** 2)(y)))
    log((yield f.hessian(lambda x, y: (x @ y).sin().sum(), argnums=(0, 1))(x, y)))
    log((yield f.jacrev(lambda d: d["w"] * 2)({"w": y})))


def test_columns_in_chunks():
    """As many at a time as one likes."""
    x = _x(ag, 2, 2)
    for size in (1, 3, 9):
        found = ag.func.jacfwd(lambda x: x.exp(), chunk_size=size)(x)
        assert found.tolist() == ag.func.jacfwd(lambda x: x.exp())(x).tolist()


def test_linearize():
    """What `jvp` gives, without another call of the function."""
    calls = []

    def function(x, d):
        calls.append(x)
        return {"y": x.sin() * d["z"], "x": x.sum()}

    x, d = _x(ag, 3), {"z": _x(ag, 3) * 2}
    out, push = ag.func.linearize(function, x, d)
    found = [push(x * n, {"z": x}) for n in (1, 2)]
    assert len(calls) == 1
    for n, tangent in zip((1, 2), found, strict=True):
        value, expected = ag.func.jvp(function, (x, d), (x * n, {"z": x}))
        assert out["y"].tolist() == value["y"].tolist()
        assert (tangent["y"] - expected["y"]).abs().max() < 1e-12
        assert (tangent["x"] - expected["x"]).abs() < 1e-12
    with pytest.raises(RuntimeError, match="same argspec"):
        push(x)


@pytest.mark.parametrize("outer", ["grad", "jacrev", "jacfwd", "hessian"])
def test_a_linearised_function_is_differentiated(outer):
    """PyTorch's takes the place where it is linear for a constant, or refuses."""

    def function(x):
        return ag.tanh(x * x).sum() + (x[:1] * x[1:2]).sum()

    def pushed(x):
        return ag.func.linearize(function, x)[1](ag.sin(x)).sum()

    def expected(x):
        return ag.func.jvp(function, (x,), (ag.sin(x),))[1].sum()

    x = _x(ag, 3)
    transform = getattr(ag.func, outer)
    assert ag.allclose(transform(pushed)(x), transform(expected)(x))
    _, push = ag.func.linearize(function, x)
    assert ag.allclose(ag.func.grad(lambda t: push(t).sum())(x), ag.func.grad(function)(x))


@both
def test_vmap_axes(T, log):
    """Where the batch comes from and where it goes to."""
    f = T.func
    x, y = _x(T, 2, 3), _x(T, 2, 3) * 2
    log((yield f.vmap(lambda x, y: x * y)(x, y)))
    log((yield f.vmap(lambda x, y: x * y, in_dims=(1, 1), out_dims=1)(x, y)))
    log((yield f.vmap(lambda x, y: x @ y, in_dims=(0, None))(x, y[0])))
    log((yield f.vmap(lambda x, y: x @ y, in_dims=(-1, None), out_dims=-1)(x, y[:, 0])))
    log((yield f.vmap(lambda d, n: d["a"] * n, in_dims=({"a": 0}, None))({"a": x}, 3)))
    log((yield f.vmap(lambda d: d["a"] * d["b"], in_dims=0)({"a": x, "b": y})))
    log((yield f.vmap(lambda x: (x, {"s": x.sum()}), out_dims=(1, 0))(x)))
    log((yield f.vmap(lambda x: (x, x.sum()), out_dims=(1, 0))(x)))
    log((yield f.vmap(lambda x, scale=1: x * scale)(x, scale=2)))
    log((yield f.vmap(lambda x: T.ones(2))(x)))
    log((yield f.vmap(lambda x: (x, 5), out_dims=(0, None))(x)))
    log((yield f.vmap(f.vmap(lambda a, b: a * b), in_dims=(None, 0))(x[0], y)))
    log(
        (yield f.vmap(f.vmap(lambda a, b: a * b, in_dims=(None, 0)), in_dims=(0, None))(x[0], y[1]))
    )
    for size in (1, 2, 5):
        log((yield f.vmap(lambda x: x * 2, chunk_size=size)(_x(T, 5, 2))))
        log((yield f.vmap(lambda x: x * 2, chunk_size=size, in_dims=1, out_dims=1)(_x(T, 2, 5))))


@both
def test_errors_of_vmap(T, log):
    """What can't be mapped, by PyTorch's classes."""
    f = T.func
    x = _x(T, 2, 3)
    for in_dims in (2, -3, (0, 0), "0", [0], (0.5,), None, (None,)):
        yield from raised(log, lambda: f.vmap(lambda x: x, in_dims=in_dims)(x))  # noqa: B023  run at once
    yield from raised(log, lambda: f.vmap(lambda x: x)())
    yield from raised(log, lambda: f.vmap(lambda x: x)(3))
    yield from raised(log, lambda: f.vmap(lambda x, y: x)(x, x[0]))
    yield from raised(log, lambda: f.vmap(lambda x: 3)(x))
    yield from raised(log, lambda: f.vmap(lambda x: None)(x))
    yield from raised(log, lambda: f.vmap(lambda x: x, out_dims=None)(x))
    yield from raised(log, lambda: f.vmap(lambda x: x, out_dims=(0, 0))(x))
    yield from raised(log, lambda: f.vmap(lambda x: x, out_dims="0")(x))
    yield from raised(log, lambda: f.vmap(lambda x: x, out_dims=5)(x))
    yield from raised(log, lambda: f.vmap(lambda x: x.sum().item())(x))
    yield from raised(log, lambda: f.vmap(lambda x: x if x.sum() > 0 else -x)(x))
    yield from raised(log, lambda: f.vmap(lambda x: x[x > 0])(x))
    yield from raised(log, lambda: f.vmap(lambda x: x.nonzero())(x))
    yield from raised(log, lambda: f.vmap(lambda x: T.zeros(3, dtype=T.float64).add_(x))(x))
    yield from raised(log, lambda: f.vmap(lambda x: T.rand(2) * x.sum())(x))
    yield from raised(log, lambda: f.vmap(lambda x: x, randomness="some")(x))
    yield from raised(log, lambda: f.vmap(lambda x: x, chunk_size=0)(x))
    yield from raised(log, lambda: f.vmap(lambda x: T.nn.functional.dropout(x))(x))


@both
def test_vmap_and_gradients(T, log):
    """Of one another."""
    f = T.func
    x, w = _x(T, 4, 3), _x(T, 3)

    def loss(w, x):
        return (x @ w).tanh() ** 2

    log((yield f.vmap(f.grad(loss), in_dims=(None, 0))(w, x)))
    log((yield f.grad(lambda w: f.vmap(loss, in_dims=(None, 0))(w, x).mean())(w)))
    log((yield f.vmap(f.grad(f.grad(lambda x: x.sin())))(w)))
    log((yield f.vmap(f.grad_and_value(loss), in_dims=(None, 0))(w, x)))
    log((yield f.vmap(f.jacrev(lambda x: x.exp() * w))(x)))
    log((yield f.vmap(f.jacfwd(lambda x: x.exp() * w))(x)))
    log((yield f.vmap(f.hessian(lambda x: (x**3).sum()))(x)))
    log((yield f.jacrev(f.vmap(lambda x: (x * w).sum()))(x)))
    log((yield f.jacfwd(f.vmap(lambda x: (x * w).sum()))(x)))
    log((yield f.vmap(lambda t: f.jvp(lambda w: w.sin(), (w,), (t,))[1])(x)))
    log((yield f.vmap(lambda x: f.vjp(lambda w: w * x, w)[1](w)[0])(x)))
    _, pull = yield f.vjp(lambda w: w.sin() * w, w)
    log((yield f.vmap(pull)(x)))
    log((yield f.vmap(f.vmap(f.grad(lambda x: x**3)))(x)))


@both
def test_is_grads_batched(T, log):
    """One pass for a batch of gradients."""
    x = _x(T, 3).requires_grad_()
    unused = _x(T, 2).requires_grad_()
    y = x.exp() * x
    eye = T.eye(3, dtype=T.float64)
    log((yield T.autograd.grad(y, x, eye, is_grads_batched=True, retain_graph=True)))
    log((yield T.autograd.grad((y, y.sum()), x, (eye, x.detach()), is_grads_batched=True,
                               retain_graph=True)))  # fmt: skip
    rows = yield T.autograd.grad(y, x, eye, is_grads_batched=True, create_graph=True)
    log((yield T.autograd.grad(rows[0].sum(), x, retain_graph=True)))
    log((yield T.autograd.grad(y, (x, unused), eye, is_grads_batched=True, allow_unused=True,
                               retain_graph=True)))  # fmt: skip
    yield from raised(log, lambda: T.autograd.grad(y, x, eye[0], is_grads_batched=True))
    yield from raised(log, lambda: T.autograd.grad(y, x, eye[:, :2], is_grads_batched=True))


@both
def test_vectorized_jacobians(T, log):
    """The same blocks as row by row, and forwards."""
    f = T.autograd.functional
    x, y = _x(T, 2, 3), _x(T, 3)

    def function(x, y):
        return (x * y).sum(0), x.sum() + y

    log((yield f.jacobian(function, (x, y), vectorize=True)))
    log((yield f.jacobian(function, (x, y), vectorize=True, strategy="forward-mode")))
    log((yield f.jacobian(lambda x, y: x * 2, (x, y), vectorize=True)))
    log((yield f.hessian(lambda x: (x**3).sum(), x, vectorize=True)))
    log((yield f.hessian(lambda x: (x**3).sum(), x, vectorize=True,
                         outer_jacobian_strategy="forward-mode")))  # fmt: skip
    x.requires_grad_()
    row = yield f.jacobian(lambda x: (x**3).sum(1), x, vectorize=True, create_graph=True)
    log((yield T.autograd.grad(row.sum(), x)))


def _module(T):
    model = T.nn.Sequential(T.nn.Linear(3, 4), T.nn.Tanh(), T.nn.Linear(4, 2)).to(T.float64)
    for number, parameter in enumerate(model.parameters()):
        parameter.data = _x(T, *parameter.shape) / (number + 3) - 0.5
    return model


@both
def test_per_sample_gradients(T, log):
    """The gradients of a module's parameters, for each example."""
    f = T.func
    model = _module(T)
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    x, labels = _x(T, 5, 3), T.tensor([0, 1, 1, 0, 1])

    def loss(parameters, x, label):
        out = f.functional_call(model, parameters, (x.unsqueeze(0),))
        return T.nn.functional.cross_entropy(out, label.unsqueeze(0))

    log((yield f.vmap(f.grad(loss), in_dims=(None, 0, 0))(parameters, x, labels)))
    log(
        (
            yield f.vmap(f.grad_and_value(loss), in_dims=(None, 0, 0), chunk_size=2)(
                parameters, x, labels
            )
        )
    )


@both
def test_functional_call(T, log):
    """Other parameters for one call."""
    f = T.func
    model = _module(T)
    x = _x(T, 2, 3)
    zeros = {name: p.detach() * 0 for name, p in model.named_parameters()}
    log(f.functional_call(model, zeros, x), f.functional_call(model, zeros, (x,)))
    log(f.functional_call(model, {"0.bias": zeros["0.bias"]}, x))
    log(f.functional_call(model, ({"0.bias": zeros["0.bias"]}, {"2.bias": zeros["2.bias"]}), x))
    log(model(x))
    yield from raised(log, lambda: f.functional_call(model, 3, x))
    yield from raised(log, lambda: f.functional_call(model, (3,), x))
    yield from raised(log, lambda: f.functional_call(model, (zeros, zeros), x))
    yield from raised(log, lambda: f.functional_call(model, {"0.bias": x[0]}, x, strict=True))
    yield from raised(log, lambda: f.functional_call(model, {**zeros, "no": x}, x, strict=True))
    yield from raised(log, lambda: f.functional_call(model, {"no.bias": x}, x))


@both
def test_functional_call_gives_back_what_a_module_has_assigned(T, log):
    """A counter that the module replaces is found in the dictionary afterwards."""

    class Counting(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", T.zeros(1))

        def forward(self, x):
            self.calls = self.calls + 1
            return x + self.calls

    model, given, apart = Counting(), {"calls": T.ones(1)}, {"calls": T.ones(1)}
    log(T.func.functional_call(model, given, T.zeros(1)), given, model.calls)
    log(T.func.functional_call(model, (apart,), T.zeros(1)), apart, model.calls)
    yield


@both
def test_batch_norms_without_running_statistics(T, log):
    """They can be differentiated for each example."""
    model = T.nn.Sequential(T.nn.Linear(3, 2), T.nn.BatchNorm1d(2)).double()
    log(T.func.replace_all_batch_norm_modules_(model) is model)
    log([*model.state_dict()], model[1].track_running_stats, model[1].running_var)
    x, p = _x(T, 2, 4, 2), {name: v.detach() for name, v in model[1].named_parameters()}

    def loss(p, x):
        return (T.func.functional_call(model[1], p, (x,)) ** 3).sum()

    log((yield T.func.vmap(T.func.grad(loss), (None, 0))(p, x)))
    norm = T.nn.BatchNorm2d(2, affine=False)
    log(T.func.replace_all_batch_norm_modules_(norm), [*norm.state_dict()])


@both
def test_ensembles(T, log):
    """Several modules in one call."""
    f = T.func
    models = [_module(T) for _ in range(3)]
    for number, model in enumerate(models):
        model[0].bias.data = model[0].bias.data + number
    parameters, buffers = f.stack_module_state(models)
    log(parameters, buffers, parameters["0.weight"].requires_grad)
    x = _x(T, 2, 3)
    base = _module(T)

    def call(parameters, buffers, x):
        return f.functional_call(base, (parameters, buffers), (x,))

    log((yield f.vmap(call, in_dims=(0, 0, None))(parameters, buffers, x)))
    yield from raised(log, lambda: f.stack_module_state([]))


@both
def test_ensembles_of_parametrized_modules(T, log):
    """Copies counted as modules of other classes."""
    layer = T.nn.Linear(3, 2).double()
    layer.weight.data, layer.bias.data = _x(T, 2, 3), _x(T, 2)
    T.nn.utils.parametrize.register_parametrization(layer, "weight", T.nn.Tanh())
    parameters, _ = T.func.stack_module_state([layer, copy.deepcopy(layer)])
    log(parameters)

    def call(parameters, x):
        return T.func.functional_call(layer, parameters, (x,))

    log((yield T.func.vmap(call, in_dims=(0, None))(parameters, _x(T, 4, 3))))
    yield from raised(log, lambda: T.func.stack_module_state([layer, T.nn.Linear(3, 2).double()]))
    # The weight of the second's parametrization would be left out.
    other = T.nn.Linear(3, 2).double()
    T.nn.utils.parametrize.register_parametrization(other, "weight", T.nn.PReLU().double())
    yield from raised(log, lambda: T.func.stack_module_state([layer, other]))


@pytest.mark.parametrize("randomness", ["same", "different"])
def test_random_numbers(randomness):
    """One draw for all examples, or one for each."""
    x = ag.zeros(4, 3)
    for draw in (
        lambda x: x + ag.rand(3),
        lambda x: x + ag.randn(3),
        lambda x: x + ag.randint(0, 1000, (3,)),
        lambda x: x + ag.randn_like(x),
        lambda x: ag.nn.functional.dropout(x + 1, 0.5).repeat(20) if randomness == "different"
        else x + ag.rand(3),
    ):  # fmt: skip
        rows = ag.func.vmap(draw, randomness=randomness)(x)
        alike = all((rows[0] == row).all() for row in rows)
        assert alike is (randomness == "same")
    orders = ag.func.vmap(lambda x: ag.randperm(50), randomness="different")(x)
    assert {tuple(sorted(order.tolist())) for order in orders} == {tuple(range(50))}


#: Functions of the parameters of numbers, a rate and a probability, and of a generator.
OF_PARAMETERS = {
    "bernoulli": lambda rate, p, g: ag.bernoulli(p, generator=g),
    "bernoulli_": lambda rate, p, g: (rate * 1).bernoulli_(p, generator=g),
    "binomial": lambda rate, p, g: ag.binomial(rate, p, generator=g),
    "multinomial": lambda rate, p, g: ag.multinomial(p.reshape(-1, 2), 2, generator=g),
    "normal": lambda rate, p, g: ag.normal(rate, p, generator=g),
    "normal of means": lambda rate, p, g: ag.normal(rate, 2.0, generator=g),
    "normal of deviations": lambda rate, p, g: ag.normal(2.0, rate, generator=g),
    "poisson": lambda rate, p, g: ag.poisson(rate, generator=g),
    "standard_gamma": lambda rate, p, g: standard_gamma(rate, g),
}


@pytest.mark.parametrize("axes", [(0, 0), (-1, 1), (1, -1)])
@pytest.mark.parametrize("name", OF_PARAMETERS)
def test_each_example_has_numbers_of_its_own_parameters(name, axes):
    """They are those that the batch draws at once."""
    draw = OF_PARAMETERS[name]
    rates = 5.0 * (ag.arange(12.0).reshape(2, 3, 2) + 1)
    chances = ag.linspace(0.1, 0.9, 4).reshape(2, 2)
    given = rates.movedim(0, axes[0]), chances.movedim(0, axes[1])
    sources = [ag.Generator().manual_seed(3) for _ in range(2)]
    mapped = ag.func.vmap(lambda rate, p: draw(rate, p, sources[0]), axes, randomness="different")
    expected = draw(rates, chances[:, None], sources[1])
    assert mapped(*given).flatten().tolist() == expected.flatten().tolist()
    for randomness, message in (
        ("same", "same randomness with a batched tensor"),
        ("error", "randomness error mode"),
    ):
        refused = ag.func.vmap(lambda rate, p: draw(rate, p, None), axes, randomness=randomness)
        with pytest.raises(RuntimeError, match=message):
            refused(*given)


@pytest.mark.parametrize("name", ["normal", "binomial"])
def test_parameters_of_examples_have_to_broadcast(name):
    drawn = ag.func.vmap(lambda x, y: getattr(ag, name)(x, y), (0, None), randomness="different")
    with pytest.raises(RuntimeError, match=rf"{name}.*shapes .* can't be broadcast"):
        drawn(ag.ones(5, 3), ag.ones(5))


@pytest.mark.parametrize("name", OF_PARAMETERS)
def test_numbers_of_outer_parameters_are_the_same_for_all_inner_examples(name):
    """Parameters of an outer batch are no parameters of the inner one."""
    draw = OF_PARAMETERS[name]
    rates = (ag.arange(12.0).reshape(2, 6) + 1) * 5
    chances = ag.linspace(0.1, 0.9, 12).reshape(2, 6)

    def outer(rate, p):
        return ag.func.vmap(lambda x: x + draw(rate, p, None), randomness="same")(ag.zeros(3, 1))

    rows = ag.func.vmap(outer, randomness="different")(rates, chances)
    assert rows.shape[:2] == (2, 3)
    assert bool((rows[:, :1] == rows).all())


async def _loss(x):
    await asyncio.sleep(0)
    return (x**3).sum()


@pytest.mark.asyncio
async def test_coroutine_functions():
    """Every transform takes them, and they nest."""
    f = ag.func
    x = _x(ag, 3)
    assert (await f.grad(_loss)(x)).tolist() == (3 * x * x).tolist()
    twice = await f.jacrev(f.grad(_loss))(x)
    assert twice.tolist() == ag.diag(6 * x).tolist()
    assert (await f.hessian(_loss)(x) - twice).abs().max() < 1e-12
    assert (await f.vmap(_loss)(_x(ag, 2, 3))).shape == (2,)
    assert (await f.vmap(f.grad(_loss))(_x(ag, 2, 3))).shape == (2, 3)
    _, pull = await f.vjp(_loss, x)
    assert (await pull(ag.ones((), dtype=ag.float64)))[0].tolist() == (3 * x * x).tolist()
    assert (await f.jvp(_loss, (x,), (x,)))[1].item() == pytest.approx((3 * x**3).sum().item())


def test_coroutine_functions_without_a_loop():
    """On the portal's."""
    x = _x(ag, 3)
    assert ag.func.grad(_loss)(x).tolist() == (3 * x * x).tolist()
    assert ag.func.vmap(ag.func.grad(_loss))(_x(ag, 2, 3)).shape == (2, 3)


@pytest.mark.asyncio
async def test_tasks_do_not_see_one_another():
    """A `vmap` that waits is nobody else's."""
    entered, left = asyncio.Event(), asyncio.Event()

    async def waiting(x):
        entered.set()
        await left.wait()
        return x * 2

    mapped = ag.func.vmap(waiting)(_x(ag, 2, 3))
    await entered.wait()
    y = _x(ag, 2, 3)
    assert (y * 2).sum().item() > 0
    assert y.sum().shape == ()
    left.set()
    assert (await mapped).tolist() == (y * 2).tolist()


@pytest.mark.asyncio
async def test_calls_on_a_loop_are_futures():
    """They can be gathered; a mapped plain function is an operation like others."""
    x = _x(ag, 3)
    futures = [ag.func.grad(lambda x, n=n: (x**n).sum())(x) for n in (2, 3)]
    assert all(isinstance(future, asyncio.Future) for future in futures)
    second, third = await asyncio.gather(*futures)
    assert second.tolist() == (2 * x).tolist()
    assert third.tolist() == (3 * x * x).tolist()
    assert ag.func.vmap(lambda x: x * 2)(x).tolist() == (x * 2).tolist()
    assert (await ag.func.vmap(lambda x: x * 2)(x)).tolist() == (x * 2).tolist()


class Slow(ag.nn.Module):
    """Multiplies by a weight, later."""

    def __init__(self):
        super().__init__()
        self.inner = ag.nn.Linear(2, 1)

    async def forward(self, x):
        await asyncio.sleep(0)
        return self.inner(x)


@pytest.mark.asyncio
async def test_a_coroutine_module_works_on_a_copy():
    """Others may call it meanwhile."""
    module = Slow()
    own = module.inner.weight
    x = ag.ones(2)
    given = {"inner.weight": ag.ones(1, 2), "inner.bias": ag.zeros(1)}
    call = ag.func.functional_call(module, given, x)
    other = asyncio.ensure_future(module(x))
    assert (await call).item() == 2.0
    assert (await other).item() == pytest.approx((own.sum() + module.inner.bias).item())
    assert module.inner.weight is own


@pytest.mark.asyncio
async def test_functional_call_within_a_snapshot():
    """What isn't given is the snapshot's, and the module keeps its parameters."""
    module = Slow()
    own = module.inner.weight
    with ag.no_grad():
        own.fill_(1.0)
    given, x = {"inner.bias": ag.zeros(1)}, ag.ones(2)
    with module.snapshot():
        call = ag.func.functional_call(module, given, x)
        own.grad = ag.ones(1, 2)
        ag.optim.SGD([own], lr=1.0).step()
        assert (await call).item() == 2.0
        assert ag.func.functional_call(module.inner, {"bias": ag.zeros(1)}, x).item() == 2.0
        ag.func.functional_call(module.inner, {"weight": ag.zeros(1, 2)}, x)
    assert module.inner.weight is own


def test_an_escaped_example_says_what_it_is():
    """Outside of its `vmap`, an example has no values."""
    kept = []
    ag.func.vmap(lambda x: kept.append(x) or x)(ag.ones(2, 3))
    with pytest.raises(RuntimeError, match="vmap"):
        kept[0] * 2
    assert "BatchedTensor" in repr(kept[0])


def test_torch_is_the_oracle():
    """The programs above ran in both."""
    assert torch.func.vmap


def _function(T, rule):
    class Cube(T.autograd.Function):
        generate_vmap_rule = rule in {"generated", "both"}

        @staticmethod
        def forward(x, k):
            return x**3 * k, x * 2

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, ctx.k = inputs
            ctx.save_for_backward(x)

        @staticmethod
        def backward(ctx, g, h):
            (x,) = ctx.saved_tensors
            return 3 * x**2 * ctx.k * g + 2 * h, None

        if rule in {"own", "both"}:

            @staticmethod
            def vmap(info, in_dims, x, k):
                assert info.batch_size == 4
                assert info.randomness == "error"
                assert in_dims == (0, None)
                return Cube.apply(x.movedim(0, 1), k), (1, 1)

    return Cube.apply


@both
def test_custom_functions(T, log):
    """By their own rule or by that which is made for them."""
    f = T.func
    x = _x(T, 4, 3)
    for rule in ("own", "generated"):
        cube = _function(T, rule)
        log((yield f.vmap(lambda x: cube(x, 2))(x)))  # noqa: B023  run at once
        log((yield f.vmap(f.grad(lambda x: cube(x, 2)[0].sum()))(x)))  # noqa: B023  run at once
        log((yield f.jacrev(lambda x: cube(x, 2)[0])(x[0])))  # noqa: B023  run at once
    for rule in ("none", "both"):
        cube = _function(T, rule)
        yield from raised(log, lambda: f.vmap(lambda x: cube(x, 2))(x))  # noqa: B023  run at once


def test_vmap_refuses_functions_that_have_to_be_awaited():
    """Otherwise an error would speak of coroutines as of tensors."""

    class Later(ag.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        async def forward(x):
            return x * 2

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

    with pytest.raises(RuntimeError, match="Later: vmap can't await a coroutine function"):
        ag.func.vmap(Later.apply)(ag.ones(3, 2))


def test_passes_inside_of_vmap():
    """A pass in the function gives each example its gradient; PyTorch has none there."""
    x = _x(ag, 4, 3).requires_grad_()

    def gradient(x):
        x = x * 1
        return ag.grad((x**3).sum(), x, create_graph=True)[0]

    rows = ag.func.vmap(gradient)(x)
    assert (rows - 3 * x * x).abs().max() < 1e-12
    (second,) = ag.grad(rows.sum(), x)
    assert (second - 6 * x).abs().max() < 1e-12


@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 3)], ids=["matrix", "matrices"])
@pytest.mark.parametrize("call", [
    lambda la, x: la.inv(x), lambda la, x: la.solve(x, x.sin()), lambda la, x: la.det(x),
    lambda la, x: la.cholesky(x @ x.mT + 1), lambda la, x: la.pinv(x), lambda la, x: la.qr(x)[1],
    lambda la, x: la.matrix_exp(x), lambda la, x: la.matrix_power(x, -2),
    lambda la, x: la.lu(x)[2], lambda la, x: la.eigh(x + x.mT)[0], lambda la, x: la.svdvals(x),
    lambda la, x: la.solve_triangular(x.triu(), x.sin(), upper=True),
])  # fmt: skip
def test_jacobians_of_matrix_functions(call, shape):
    """Their rules multiply matrices, stacked or not, which a transform stacks once more."""
    arrays = _x(torch, *shape).sin() + 4 * torch.eye(3, dtype=torch.float64)
    found = [
        transform(lambda x: call(T.linalg, x))(x).numpy()  # noqa: B023  run at once
        for T, x in ((torch, arrays), (ag, ag.from_numpy(arrays.numpy())))
        for transform in (T.func.jacrev, T.func.jacfwd)
    ]
    for jacobian in found[1:]:
        assert abs(jacobian - found[0]).max() < 1e-9


def _gradient(f, place):
    return ag.func.grad(lambda a, b: f(a, b).sum(), argnums=place)


def _pulled(f, place):
    def pulled(a, b):
        out, pull = ag.func.vjp(f, a, b)
        return pull(ag.ones_like(out))[place]

    return pulled


TRANSFORMS = {
    "grad": _gradient,
    "vjp": _pulled,
    "jacrev": lambda f, place: lambda a, b: ag.func.jacrev(f, argnums=place)(a, b).sum(0),
    "jacfwd": lambda f, place: lambda a, b: ag.func.jacfwd(f, argnums=place)(a, b).sum(-1),
    "jvp": lambda f, place: lambda a, b: ag.func.jvp(f, (a, b), (b.detach(), a.detach()))[1],
    "linearize": lambda f, place: lambda a, b: ag.func.linearize(f, a, b)[1](b * 2, a),
}


@pytest.mark.parametrize("outer", TRANSFORMS)
@pytest.mark.parametrize("inner", TRANSFORMS)
def test_leaves_of_transforms_within_do_not_get_out(inner, outer):
    """What transforms make of constants is a constant, whichever argument each goes by."""
    a, b = ag.tensor([0.3, -0.7]), ag.tensor([1.1, 0.4])
    for places in ((0, 0), (0, 1), (1, 0), (1, 1)):
        nested = TRANSFORMS[inner](lambda a, b: (a - b).exp() * a, places[0])
        nested = TRANSFORMS[outer](nested, places[1])
        assert not nested(a, b).requires_grad
        for given in ((a.clone().requires_grad_(), b), (a, b.clone().requires_grad_())):
            assert nested(*given).requires_grad


def _vectors_of_all(T, pull, count):
    return T.vmap(lambda v: pull(v)[0])(T.eye(count, dtype=T.float64))


def _vjps(T, x, w):
    return _vectors_of_all(T, T.func.vjp(lambda x: (w @ x).tanh(), x)[1], 3)


def _vjps_by_what_is_not_mapped(T, x, w):
    return _vectors_of_all(T, T.func.vjp(lambda w: (w @ x).tanh(), w)[1], 3)


def _vjps_in_two_levels(T, x, w):
    _, pull = T.func.vjp(lambda x: (w @ x).tanh(), x)
    vectors = T.arange(12, dtype=T.float64).reshape(2, 2, 3)
    return T.vmap(T.vmap(lambda v: pull(v * x.sum())[0]), out_dims=1)(vectors)


def _hessian_rows(T, x, w):
    slopes = T.func.grad(lambda x: ((w @ x).tanh() ** 2).sum())
    return _vectors_of_all(T, T.func.vjp(slopes, x)[1], 2)


def _jacobian_of_a_pull(T, x, w):
    _, pull = T.func.vjp(lambda x: (w @ x).tanh(), x)
    return T.func.jacfwd(lambda v: pull(v)[0])(w[:, 0])


def _tangent_kernel(T, x, w):
    _, pull = T.func.vjp(lambda w: (w @ x).tanh(), w)

    def column(v):
        return T.func.jvp(lambda w: (w @ (x + 1)).tanh(), (w,), pull(v))[1]

    return T.vmap(column)(T.eye(3, dtype=T.float64))


PULLS_IN_VMAP = [
    _vjps, _vjps_by_what_is_not_mapped, _vjps_in_two_levels, _hessian_rows, _jacobian_of_a_pull,
    _tangent_kernel,
]  # fmt: skip


@pytest.mark.torch
@pytest.mark.parametrize("function", PULLS_IN_VMAP)
def test_a_vmap_within_calls_what_a_vmap_around_has_made(function):
    """The function of `vjp` holds the examples of the outer call, its vectors those of both."""
    x, w = [[0.1, 0.2], [-0.3, 0.4], [0.5, -0.6], [0.7, 0.8]], [[0.0, 1.0], [2.0, 3.0], [-1.0, 0.5]]

    def run(T):
        def of(x, w):
            return function(T, x, w)

        a, b = T.tensor(x, dtype=T.float64), T.tensor(w, dtype=T.float64)
        one = T.vmap(of, in_dims=(0, None))(a, b)
        two = T.vmap(T.vmap(of, in_dims=(0, None)), in_dims=(0, None), out_dims=1)(
            a.reshape(2, 2, 2), b
        )
        slope = T.func.grad(lambda a: T.vmap(of, in_dims=(0, None))(a, b).sin().sum())(a)
        return [one, two, slope]

    for found, expected in zip(run(ag), run(torch), strict=True):
        assert np.allclose(found.numpy(), expected.numpy(), rtol=1e-10, atol=1e-12)


def test_a_vmap_within_calls_the_linear_function_of_one_around():
    def columns(x):
        _, push = ag.func.linearize(lambda x: x.sin() * x.sum(), x)
        return ag.vmap(push, out_dims=1)(ag.eye(2, dtype=ag.float64))

    x = ag.tensor([[0.1, 0.2], [-0.3, 0.4], [0.5, -0.6]], dtype=ag.float64)
    expected = ag.vmap(ag.func.jacrev(lambda x: x.sin() * x.sum()))(x)
    assert ag.allclose(ag.vmap(columns)(x), expected)


@pytest.mark.asyncio
async def test_results_that_were_not_awaited_name_the_call():
    call = ag.func.grad(lambda x: (x * x).sum())(ag.ones(2))
    with pytest.raises(TypeError, match="grad: await the call"):
        call[0]
    with pytest.raises(TypeError, match="grad: await the call"):
        list(call)
    assert (await call).tolist() == [2.0, 2.0]
