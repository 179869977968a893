"""CUDA's compiler takes every declared kernel. It needs no GPU."""

from types import SimpleNamespace

import numpy as np
import pytest

from asyncgrad.devices.cuda_random import Draws
from asyncgrad.devices.kernels import SOURCES
from asyncgrad.devices.pointwise import Elementwise

pytestmark = pytest.mark.slow
nvrtc = pytest.importorskip(
    "cupy_backends.cuda.libs.nvrtc", reason="CuPy is not installed", exc_type=ImportError
)


def drawing():
    """The kernels that draw."""
    found = {}

    def note(inputs, outputs, body, name, preamble):
        found[name] = Elementwise(inputs, outputs, body, preamble)
        return lambda *arguments: None

    draw = Draws(SimpleNamespace(ElementwiseKernel=note, empty=np.empty))
    for kind in ("uniform", "normal"):
        draw(kind, (0, 0), (1,), np.float32, 1.0, 0.0)
    return found


def elementwise(source, name, dtype):
    """A kernel around the statements, in which they find what they find in CuPy's."""
    parameters, named = [], []
    for qualifier, declared in (("const ", source.inputs), ("", source.outputs)):
        for one in declared.split(","):
            *raw, kind, word = one.split()
            parameters.append(f"{qualifier}{kind}* {word if raw else f'all_{word}'}")
            if not raw:
                named.append(f"{qualifier}{kind}& {word} = all_{word}[i];")
    return f"""
        typedef {dtype} T; typedef signed char L;
        typedef long long int64; typedef unsigned long long uint64;
        {source.functions}
        __global__ void {name}({", ".join(parameters)}, long long size) {{
            for (long long i = threadIdx.x; i < size; i += blockDim.x) {{
                {" ".join(named)}
                {source.body};
            }}
        }}"""


def refusals(sources):
    """What the compiler says of its errors; one text, because each call takes a while."""
    texts = []
    for name, source in sources.items():
        for dtype in ("float", "double"):
            full = f"{name}_{dtype}"
            if isinstance(source, Elementwise):
                text = elementwise(source, full, dtype)
            else:
                text = source.code(full, dtype[0])
            texts.append(f"namespace in_{full} {{ {text} }}")
    program = nvrtc.createProgram("\n".join(texts), "kernels.cu", (), ())
    try:
        nvrtc.compileProgram(program, ("--gpu-architecture=compute_80", "-std=c++17", "-w"))
    except nvrtc.NVRTCError:
        return nvrtc.getProgramLog(program)
    finally:
        nvrtc.destroyProgram(program)
    return ""


@pytest.fixture(autouse=True, scope="module")
def compiler():
    try:
        nvrtc.getVersion()
    except Exception as error:
        pytest.skip(f"NVRTC is not installed: {error}")


def test_every_kernel_is_compiled():
    assert not refusals({**SOURCES, **drawing()})


def test_an_unknown_name_is_refused():
    source = Elementwise("T x", "T y", "change = x; y = change")
    assert 'identifier "change" is undefined' in refusals({"broken": source})
