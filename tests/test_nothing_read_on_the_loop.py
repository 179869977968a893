"""What is needed is there after `import asyncgrad`: reading a file would stop all tasks."""

import ast
import subprocess
import sys

_PROGRAM = """
import asyncio, inspect, sys, threading
import asyncgrad as ag

main, found = threading.get_ident(), []

def listen(event, arguments):
    if watching and event in ("import", "open") and threading.get_ident() == main:
        found.append((event, str(arguments[0])))

async def program():
    model = ag.nn.Sequential(
        ag.nn.LazyLinear(8), ag.nn.BatchNorm1d(8), ag.nn.GELU("tanh"), ag.nn.Dropout(0.1),
        ag.nn.Linear(8, 3),
    )
    x = ag.randn(4, 5)
    model(x)
    optimizers = [
        kind(model.parameters(), lr=0.1)
        for kind in (ag.optim.SGD, ag.optim.Adam, ag.optim.AdamW, ag.optim.RMSprop)
    ]
    for optimizer in optimizers:
        optimizer.zero_grad()
        loss = ag.nn.functional.cross_entropy(model(x), ag.tensor([0, 1, 2, 0]))
        await loss.backward()
        optimizer.step()
    w = ag.ones(3, 3, requires_grad=True)
    (g,) = await ag.autograd.grad((w @ w).tanh().sum(), w, create_graph=True)
    await (g * g).sum().backward()
    large = ag.ones(1000, 1000, requires_grad=True)
    await ((large * 2.0).exp() @ large).sum().backward()
    z = ag.ones(3, dtype=ag.complex64, requires_grad=True)
    await (z * z.conj()).real.sum().backward()
    with ag.no_grad():
        ag.linalg.svd(w), ag.fft.fft(x), ag.sort(x), ag.quantile(x, 0.5)
    with ag.inference_mode():
        ag.sin(x), x + 1, x.sum(0), ag.cat([x, x])
    ag.func.vmap(lambda row: row.sin().sum())(x)
    await ag.func.jacrev(lambda row: row.sin())(x[0])
    with ag.autograd.forward_ad.dual_level():
        ag.exp(ag.autograd.forward_ad.make_dual(x, x))
    with ag.autograd.graph.save_to_disk():
        y = ag.exp(w).sum()
    await y.backward()
    loss = ag.utils.checkpoint.checkpoint(lambda a: a.sin(), w, use_reentrant=False).sum()
    str(ag.autograd.graph.memory(loss)), str(ag.autograd.graph.to_dot(loss))
    await loss.backward()
    repr(x), repr(ag.engine().statistics()), inspect.signature(ag.sum), inspect.signature(ag.zeros)
    ag.get_rng_state(), ag.manual_seed(1), ag.rand(3), ag.randperm(5)
    await ag.offload(len, "abc")

watching = False
sys.addaudithook(listen)
with asyncio.Runner() as runner:
    runner.get_loop()
    watching = True
    runner.run(program())
    watching = False
print(found)
"""


def test_nothing_is_imported_or_read_on_the_loop():
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], check=True, capture_output=True, text=True
    )
    assert ast.literal_eval(done.stdout) == []


_ON_USE = """
import sys
import asyncgrad as ag

def imported(*names):
    return [name for name in names if f"asyncgrad.{name}" in sys.modules]

packages = "testing", "distributions", "serving", "serialization", "distributed", "extend"
later = "replay", "utils.data", "backends", *packages
print(imported(*later), {"compile", "save", *packages} <= {*dir(ag)})
ag.compile, ag.load, ag.save, ag.utils.data, ag.backends
for name in packages:
    assert getattr(ag, name).__name__ == f"asyncgrad.{name}"
print(imported(*later) == [*later])
"""


def test_what_few_programs_name_is_imported_on_use():
    done = subprocess.run(
        [sys.executable, "-c", _ON_USE], check=True, capture_output=True, text=True
    )
    assert done.stdout.split("\n")[:2] == ["[] True", "True"]
