"""Transforms of functions with unusual and wrong arguments, beside PyTorch's."""

import pytest

short_programs = pytest.importorskip("short_programs", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

TRANSFORMS = """
    func.grad(cubes, argnums=(0, "a"))(x)
    func.grad(cubes, argnums=())(x)
    func.grad(product, argnums=(-1,))(x, x)
    func.grad(lambda a: (cubes(a), 3), has_aux=True)(x)
    func.grad(lambda a: None)(x)
    func.grad(lambda a: cubes(a).to(T.complex64))(x)
    func.grad(lambda a: a.requires_grad_().sum())(x)
    func.grad(partial(product, x * 2))(x)
    t(func.grad(lambda a: T.ones(()))(x)._is_view())
    func.vjp(square, x)[1](1.0)
    func.vjp(cubes, x)[1](None)
    func.vjp(lambda a: (a, cubes(a)), x)[1]((x, None))
    func.vjp(lambda a: (a, T.ones(3)), x)[1]((x, None))
    func.vjp(square, x)[1](None)
    func.vjp(lambda a: cubes(a) * 1j, x)[1](None)
    func.vjp(lambda a: {"q": a}, x)[1](x)
    func.vjp(lambda a: (a, 3), x)
    func.jvp(square, x, x)
    func.jvp(square, (x,), (1.0,))
    func.jvp(square, (), ())
    func.jvp(lambda a: T.ones(2), (x,), (x,), strict=True)
    func.jacrev(square, chunk_size=1)(x)
    func.jacrev(square, chunk_size=2)(x)
    func.jacrev(square, chunk_size=0)
    func.jacrev(square)(t([1j]))
    func.jacrev(lambda a: a[:0])(x)
    func.jacfwd(square, argnums=None)(x)
    func.jacfwd(square, randomness="different")(x)
    func.jacfwd(lambda a: (a * 2, a.detach()), has_aux=True, randomness="different")(x)
    func.jacfwd(lambda a: 3)(x)
    func.linearize(square, x)[1](T.ones(2))
    func.linearize(square, x)[1](x, x)
    func.vmap(square, in_dims=2)(y)
    func.vmap(square, in_dims="a")(y)
    func.vmap(square, in_dims=(0, 0))(y)
    func.vmap(square)(3.0)
    func.vmap(square, out_dims=(1,))(y)
    func.vmap(square, out_dims=None)(y)
    func.vmap(partial(product, x))(y)
    func.vmap(lambda a: t([a.is_contiguous(), a.is_leaf]), out_dims=0)(y)
    func.vmap(lambda a: t(a.T.is_contiguous()))(y.reshape(1, 2, 3))
    func.vmap(lambda a: 3)(y)
    func.vmap(square, chunk_size=-1)
    func.functional_call(layer, 1, x)
    func.functional_call(layer, [1], x)
    func.functional_call(layer, {"a.zz": x}, x)
    func.functional_call(layer, {"weight": x}, x, strict=True)
    func.stack_module_state([])
    func.stack_module_state([layer, nn.ReLU()])
    func.stack_module_state([layer, copy.deepcopy(layer).eval()])
    func.stack_module_state([layer, copy.deepcopy(layer).requires_grad_(False)])
"""

_TRANSFORMS = """
from functools import partial
x, y = t([1.0, 2.0, 3.0]), t([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
def square(a):
    return a**2
def cubes(a):
    return (a**3).sum()
def product(a, b):
    return (a * b).sum()
layer = nn.Linear(3, 2)
with T.no_grad():
    for p in layer.parameters():
        p.fill_(0.5)
"""


def test_what_unusual_arguments_do():
    assert not short_programs.differences(TRANSFORMS, _TRANSFORMS)
