"""A function is added by a row of the table, and nothing else."""

import subprocess
import sys

ROWS = """

OPS += (
    unary(
        "cubed",
        lambda F, x: 3 * x * x,
        lambda xp, x: x * x * x,
        doc="Each element to the power of 3.",
        public="cubed third_power special.cubed nn.functional.cubed",
    ),
    binary(
        "rotated",
        lambda F, x, y: F.cos(y),
        lambda F, x, y: -x * F.sin(y),
        lambda xp, x, y: x * xp.cos(y),
        doc="`input * cos(other)`, broadcast.",
    ),
)
"""
PROGRAM = '''
import importlib.abc
import importlib.machinery
import sys

ROWS = {rows!r}


class Loader(importlib.machinery.SourceFileLoader):
    """Reads the chapter as if the rows stood at its end."""

    def get_data(self, path):
        data = super().get_data(path)
        return data + ROWS.encode() if path.endswith(".py") else data

    def path_stats(self, path):
        raise OSError  # No cached bytecode.


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "asyncgrad.ops.table.elementwise":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        spec.loader = Loader(name, spec.origin)
        return spec


sys.meta_path.insert(0, Finder())
import numpy as np
import asyncgrad as ag

x = ag.tensor([0.5, -1.5, 2.0], dtype=ag.float64, requires_grad=True)
y = ag.tensor([[0.1], [0.7]], dtype=ag.float64, requires_grad=True)
expected = x.detach().numpy() ** 3

# The function, in all its namespaces and dtypes.
for f in (ag.cubed, ag.third_power, ag.special.cubed, ag.nn.functional.cubed, ag.Tensor.cubed):
    np.testing.assert_allclose(f(x).detach().numpy(), expected)
assert ag.cubed(ag.tensor([2, 3])).tolist() == [8.0, 27.0]
assert ag.cubed(ag.tensor(2.0)).item() == 8.0
assert "power of 3" in ag.cubed.__doc__
assert {{"cubed", "third_power", "rotated"}} <= set(ag.__all__)
assert "cubed" in ag.special.__all__ and "cubed" in ag.nn.functional.__all__
assert ag.cubed(x).grad_fn.name() == "CubedBackward0"
np.testing.assert_allclose(x.rotated(y).detach(), x.detach().numpy() * np.cos(y.detach().numpy()))
assert ag.rotated(ag.tensor([1, 2]), 0.0).tolist() == [1.0, 2.0]

# In place, and into a given tensor.
z = x.detach().clone()
assert z.cubed_() is z
np.testing.assert_allclose(z.numpy(), expected)
out = ag.empty(3, dtype=ag.float64)
with ag.no_grad():
    assert ag.cubed(x, out=out) is out
    ag.rotated(x, y[0], out=out)
w = x.clone()
w.cubed_().sum().backward()
np.testing.assert_allclose(x.grad.numpy(), 3 * x.detach().numpy() ** 2)

# Derivatives, also second ones and forward ones, and batches.
for f, inputs in ((ag.cubed, (x,)), (ag.rotated, (x, y))):
    assert ag.autograd.gradcheck(f, inputs, check_forward_ad=True)
    assert ag.autograd.gradgradcheck(f, inputs)
value, tangent = ag.func.jvp(ag.cubed, (x,), (ag.ones_like(x),))
np.testing.assert_allclose(tangent.detach().numpy(), 3 * x.detach().numpy() ** 2)
np.testing.assert_allclose(ag.vmap(ag.cubed)(x).detach().numpy(), expected)
np.testing.assert_allclose(
    ag.vmap(ag.func.grad(ag.cubed))(x).detach().numpy(), 3 * x.detach().numpy() ** 2
)
assert ag.vmap(ag.rotated, (None, 0))(x, y).shape == (2, 3)
'''


def test_an_elementwise_function_is_one_row():
    """Function, method, in place, `out`, namespaces, derivatives of all kinds, and batches."""
    subprocess.run([sys.executable, "-c", PROGRAM.format(rows=ROWS)], check=True)
