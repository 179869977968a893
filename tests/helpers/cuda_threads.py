"""A CUDA kernel's C++, run on the CPU: the threads of a block are C++ threads with a barrier."""

import ctypes
import re
import shutil
import subprocess
from hashlib import sha256

import numpy as np

COMPILER = shutil.which("g++")
_BEFORE = r"""
#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>
using std::exp; using std::log; using std::sqrt;
// Of a number and NaN, CUDA's functions return the number, and C++'s may return either.
static float max(float a, float b) { return std::fmax(a, b); }
static double max(double a, double b) { return std::fmax(a, b); }
struct Three { int x, y, z; };
static thread_local Three threadIdx, blockIdx;
static Three blockDim, gridDim;
static std::barrier<>* threads;
static double exchanged[1024];
#define __global__
#define __launch_bounds__(threads)
#define __device__ static
#define __shared__ static
static void __syncthreads() { threads->arrive_and_wait(); }
static float __int_as_float(unsigned bits) {
    float value; std::memcpy(&value, &bits, 4); return value;
}
template <class V> static V __shfl_xor_sync(unsigned, V value, int lane) {
    const int here = threadIdx.y * blockDim.x + threadIdx.x;
    exchanged[here] = value; __syncthreads();
    const V other = exchanged[here ^ lane]; __syncthreads();
    return other;
}
"""
_AFTER = r"""
extern "C" void launch(int across, int down, int width, int height, void** a) {
    blockDim = {width, height, 1}; gridDim = {across, down, 1};
    std::barrier<> meeting(width * height); threads = &meeting;
    std::vector<std::thread> all;
    for (int i = 0; i < width * height; i++) all.emplace_back([=] {
        threadIdx = {i %% width, i / width, 0};
        for (int block = 0; block < across * down; block++) {
            blockIdx = {block %% across, block / across, 0}; %s(%s); __syncthreads();
        }
    });
    for (auto& thread : all) thread.join();
}
"""


class RawKernel:
    """CuPy's `RawKernel`, for NumPy arrays."""

    def __init__(self, folder, code, name):
        self._types = [
            part.strip().rsplit(" ", 1)[0]
            for part in re.search(rf"{name}\((.*?)\)", code, re.DOTALL)[1].split(",")
        ]
        self._number = np.float32 if "typedef float T" in code else np.float64
        given = ", ".join(
            f"({kind})a[{i}]" if "*" in kind else f"*({kind}*)a[{i}]"
            for i, kind in enumerate(self._types)
        )
        source = _BEFORE + code + _AFTER % (name, given)
        made = folder / f"{sha256(source.encode()).hexdigest()}.so"
        subprocess.run(
            [COMPILER, "-std=c++20", "-shared", "-fPIC", "-pthread", "-w", "-x", "c++", "-",
             "-o", made],
            input=source.encode(), check=True,
        )  # fmt: skip
        self._launch = ctypes.CDLL(made).launch

    def __call__(self, grid, block, arguments):
        held = [
            value
            if isinstance(value, np.ndarray)
            else np.array(value, self._number if kind == "T" else np.int64)
            for kind, value in zip(self._types, arguments, strict=True)
        ]
        pointers = [
            0 if "*" in kind and not isinstance(given, np.ndarray) else value.ctypes.data
            for kind, given, value in zip(self._types, arguments, held, strict=True)
        ]
        self._launch(*grid, *block, (ctypes.c_void_p * len(held))(*pointers))
