"""CUDA kernels in which a block of threads goes along one line of an array, such as a softmax.

They are declared in `kernels`. What a kernel adds up along a line it needs at every place of the
line, so it reads the line several times: after the first time it comes from the cache.
"""

from __future__ import annotations

from math import prod
from typing import Any

from asyncgrad.aliases import Array, Value
from asyncgrad.devices.kernels import Lines

#: How two parts of a total become one, and what it begins with.
_JOINED = {"sum": ("a + b", "T(0)"), "max": ("a > b ? a : b", "T(__int_as_float(0xff800000))")}
#: Lines that lie side by side and share a block, the most threads of a block, and how many places
#: of a line a thread should have at least.
_BESIDE, _THREADS, _PLACES = 32, 256, 4
#: The threads of a block for a channel: there are few channels, and each one is long.
_CHANNEL_THREADS = 1024
#: The most blocks along a grid's first axis, of 2**31 - 1 that CUDA allows; the others follow.
_BLOCKS = 1 << 30
_DTYPES = {"f": "float", "d": "double"}

_TEMPLATE = """
typedef %(dtype)s T;
%(functions)s
extern "C" __global__ void __launch_bounds__(%(threads)d) %(name)s(
    %(parameters)s, long long lines, long long length_, long long beside
) {
    __shared__ T buffer[%(threads)d];
    const long long block = blockIdx.y * (long long)gridDim.x + blockIdx.x;
    %(found)s
    const T length = T(length_);
    const long long end = inside ? length_ : 0;
    %(body)s
}
"""
#: Which line a block has, whether there is one, and where it starts.
_LINES_OF_AN_AXIS = """const long long blocks = (beside + blockDim.x - 1) / blockDim.x;
    const long long place = block % blocks * blockDim.x + threadIdx.x;
    const long long line = block / blocks * beside + place;
    const bool inside = place < beside && line < lines;
    const long long start = block / blocks * length_ * beside + place;"""
_LINES_OF_A_BATCH = """const long long line = block;
    const bool inside = line < lines;
    const long long start = line * beside;"""
_JOIN = """
__device__ T joined_%(how)s(T a, T b) { return %(joined)s; }

__device__ T join_%(how)s(T value, T* buffer) {
    if (blockDim.x == 1) {
        // A line has the threads of whole warps, which exchange values without a barrier.
        for (int half = 16; half; half /= 2)
            value = joined_%(how)s(value, __shfl_xor_sync(0xffffffff, value, half));
        if (blockDim.y > 32) {
            if (threadIdx.y %% 32 == 0) buffer[threadIdx.y / 32] = value;
            __syncthreads();
            value = buffer[0];
            for (int warp = 1; warp < blockDim.y / 32; warp++)
                value = joined_%(how)s(value, buffer[warp]);
            __syncthreads();
        }
        return value;
    }
    const int at = threadIdx.y * blockDim.x + threadIdx.x;
    buffer[at] = value;
    for (int half = blockDim.y / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.y < half)
            buffer[at] = joined_%(how)s(buffer[at], buffer[at + half * blockDim.x]);
    }
    __syncthreads();
    value = buffer[threadIdx.x];
    __syncthreads();
    return value;
}
"""
_ALONG = (
    "for (long long i = threadIdx.y; i < end; i += blockDim.y) {"
    " const long long at = start + %(place)s; %(work)s }"
)
_PLACE_ON_AN_AXIS = "i * beside"
#: The images of a channel lie apart. Their places are divided as numbers of 32 bits: four times as
#: fast as with 64. `kernels` refuses larger batches.
_PLACE_IN_A_BATCH = (
    "(long long)((unsigned)i / (unsigned)beside) * lines * beside + (unsigned)i % (unsigned)beside"
)


def code_of(declared: Lines, name: str, dtype: str) -> str:
    """A declared kernel in C++."""
    inputs = [*declared.arrays.split(), *declared.lines.split(), *declared.defaults()]
    outs = [*declared.names("out"), *declared.results.split()]
    parameters = [
        *(f"const T* {name}_" for name in inputs),
        *(f"T* {name}_out" for name in outs),
        *(f"T {name}" for name in declared.numbers.split()),
    ]
    found = " ".join([
        *(f"const T {name} = {name}_[at];" for name in declared.arrays.split()),
        *(
            f"const T {name} = {name}_ ? {name}_[i] : T({value});"
            for name, value in declared.defaults().items()
        ),
    ])  # fmt: skip
    body = [f"const T {name} = inside ? {name}_[line] : T(0);" for name in declared.lines.split()]
    for how, target, expression in declared.steps("sum", "max", "let", "each"):
        if how == "let":
            body.append(f"const T {target} = {expression};")
            continue
        if how == "each":
            found += f" const T {target} = {expression};"
            continue
        along = _along(declared, f"{found} part = joined_{how}(part, {expression});")
        body.append(f"T {target};")
        body.append(f"{{ T part = {_JOINED[how][1]}; {along} {target} = part; }}")
        body.append(f"{target} = join_{how}({target}, buffer);")
    written = " ".join(
        f"{name}_out[at] = {expression};" for _, name, expression in declared.steps("out")
    )
    if written:
        body.append(_along(declared, f"{found} {written}"))
    body += [
        f"if (inside && threadIdx.y == 0) {target}_out[line] = {target};"
        for target in declared.results.split()
    ]
    used = sorted({how for how, *_ in declared.steps("sum", "max")})
    return _TEMPLATE % {
        "dtype": _DTYPES[dtype],
        "functions": "".join(_JOIN % {"how": how, "joined": _JOINED[how][0]} for how in used),
        "name": name,
        "parameters": ", ".join(parameters),
        "threads": _CHANNEL_THREADS if declared.over_batch else _THREADS,
        "found": _LINES_OF_A_BATCH if declared.over_batch else _LINES_OF_AN_AXIS,
        "body": "\n    ".join(body),
    }


def _along(declared: Lines, work: str) -> str:
    """A loop over the places of a line that this thread has."""
    place = _PLACE_IN_A_BATCH if declared.over_batch else _PLACE_ON_AN_AXIS
    return _ALONG % {"place": place, "work": work}


class LinesKernel:
    """A declared kernel, compiled for each dtype on its first call."""

    def __init__(self, cupy: Any, name: str, declared: Lines) -> None:
        self._cupy = cupy
        self._name = name
        self._declared = declared
        self._elements = len(declared.names("out"))
        self._compiled: dict[str, Any] = {}

    def __call__(self, axis: int, *arguments: Value, sums: None = None) -> Any:
        """Launch it on contiguous arrays of one dtype, of which the first one has all elements.

        After the axis of the lines come the inputs and then the numbers, in the declared order.
        Returns the result, or a list of several. Only the host computes `sums`.
        """
        first: Array = arguments[0]
        shape, dtype = first.shape, first.dtype
        kernel = self._compiled.get(dtype.char)
        if kernel is None:
            code = code_of(self._declared, self._name, dtype.char)
            kernel = self._compiled[dtype.char] = self._cupy.RawKernel(code, self._name)
        beside = prod(shape[axis + 1 :])
        if self._declared.over_batch:
            length, of_lines = first.size // shape[axis], (shape[axis],)
            width, most, blocks = 1, _CHANNEL_THREADS, shape[axis]
        else:
            length, of_lines = shape[axis], (*shape[:axis], 1, *shape[axis + 1 :])
            width, most = 1 if beside == 1 else _BESIDE, _THREADS
            blocks = prod(shape[:axis]) * -(-beside // width)
        outs = [
            *(self._cupy.empty(shape, dtype) for _ in range(self._elements)),
            *(self._cupy.empty(of_lines, dtype) for _ in self._declared.results.split()),
        ]
        numbers = len(self._declared.numbers.split())
        inputs = arguments[: len(arguments) - numbers]
        wanted = 1 << ((length - 1) // _PLACES).bit_length()
        threads = min(most // width, max(_BESIDE // width, wanted))
        kernel(
            (min(blocks, _BLOCKS), -(-blocks // _BLOCKS)),
            (width, threads),
            (
                *(0 if value is None else value for value in inputs),
                *outs,
                *map(dtype.type, arguments[len(inputs) :]),
                prod(of_lines),
                length,
                beside,
            ),
        )
        return outs if len(outs) > 1 else outs[0]
