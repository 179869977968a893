"""CuPy is installed, but there is no GPU: what needs none works, and asking for one says so."""

import re
from pathlib import Path

import pytest

import asyncgrad as ag
from asyncgrad.devices.cuda_kernels import Kernels
from asyncgrad.devices.kernels import SOURCES

cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
pytestmark = pytest.mark.skipif(cupy.is_available(), reason="there is a GPU")

ASKING = (
    lambda: ag.tensor(1.0, device="cuda"),
    lambda: ag.ones(2, device="cuda:0"),
    lambda: ag.ones(2).cuda(),
    lambda: ag.ones(2).to("cuda"),
    lambda: ag.device("cuda"),
    lambda: ag.device("cuda", 1),
    lambda: ag.Stream(device="cuda"),
    lambda: ag.Event("cuda:0"),
    lambda: ag.nn.Linear(2, 2, device="cuda"),
    lambda: ag.nn.Linear(2, 2).cuda(),
    lambda: ag.accelerator.synchronize("cuda"),
)


@pytest.mark.parametrize("ask", ASKING)
def test_asking_for_a_gpu_says_that_there_is_none(ask):
    with pytest.raises(RuntimeError, match="CuPy is installed, but it sees no CUDA device"):
        ask()


def test_what_needs_no_gpu_works():
    assert {device.type for device in ag.devices.available()} <= {"cpu", "sim"}
    x = ag.ones(2, requires_grad=True)
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_cupy_has_all_that_is_asked_of_it():
    """Nothing is launched: names alone, as the derivatives and functions write them."""
    home = Path(ag.__file__).parent
    texts = [path.read_text() for path in home.rglob("*.py") if path.parent != home / "devices"]
    asked = {name for text in texts for name in re.findall(r"\bxp\.([a-z_][\w.]*)", text)}
    # Ours.
    asked -= {"compiled", "compiled.get"}
    assert len(asked) > 50
    missing = []
    for name in asked:
        found = cupy
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is None:
            missing.append(name)
    assert not missing


def test_cupy_reads_the_kernels():
    """They are parsed, not compiled."""
    kernels = Kernels(cupy, None)
    for name in SOURCES:
        assert callable(getattr(kernels, name))
