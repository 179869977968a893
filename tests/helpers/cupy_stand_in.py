"""The part of CuPy that the CUDA device uses, on the simulated machine, with CuPy's traps.

- The current device and the current stream belong to the thread; the stream is kept per device.
- `Event.done` takes an error for work that is not done; `runtime.eventQuery` gives the raw status.
- Memory goes back to the stream it was allocated on when its array dies: there is no record_stream.
- Without a GPU everything but `is_available` raises.
- CuPy's `launch_host_func` is not called after an error, so the device must not use it: it is
  missing here.
- A captured graph works on the addresses of its capture, whose memory belongs to the pool that was
  in use. While a stream captures, products raise, and so do copies to and from the host. cuBLAS
  itself is captured.
"""

import ctypes
import math
import re
import threading
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace

import numpy as np
import philox
import pytest

from asyncgrad.devices import cuda as home
from asyncgrad.devices import cuda_products
from asyncgrad.devices.base import READY
from asyncgrad.devices.cuda_lines import code_of
from asyncgrad.devices.kernels import SOURCES
from asyncgrad.devices.simulated import array
from asyncgrad.devices.simulated.array import (
    _WRITES_FIRST,
    SimArray,
    _computed,
    _plain,
    adopt,
    launch,
)
from asyncgrad.devices.simulated.library import Library
from asyncgrad.devices.simulated.machine import Machine
from asyncgrad.devices.simulated.memory import Access
from asyncgrad.devices.simulated.streams import SimEvent
from asyncgrad.errors import OutOfMemoryError
from asyncgrad.ops import device_check, namespace
from asyncgrad.ops.bfloat16 import BFLOAT16


def installed(monkeypatch, **options):
    """Put a stand-in in CuPy's place for a test."""
    stand_in = StandIn(**options)
    monkeypatch.setattr(home, "cupy", stand_in)
    monkeypatch.setattr(home, "cupyx", stand_in)
    monkeypatch.setattr(home, "_devices", {})
    monkeypatch.setattr(cuda_products, "load", partial(_Blas, stand_in))
    # Later tests must not ask the devices of this one where an array is, nor find functions that
    # this one has bound to its library: both lists are copies.
    monkeypatch.setattr(device_check, "_known", [*device_check._known])
    monkeypatch.setattr(namespace, "_raw", dict(namespace._raw))
    monkeypatch.setattr(array, "_computed", stand_in.computed)
    monkeypatch.setattr(array, "_plain", stand_in.plain)
    monkeypatch.setattr(stand_in.machine, "launch", stand_in.launched)
    return stand_in


@pytest.fixture(params=["stand-in", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def device(request, monkeypatch):
    """A CUDA device, or the second one of a stand-in."""
    if request.param == "cuda:0":
        return request.param
    installed(monkeypatch, devices=2)
    return "cuda:1"


class CUDARuntimeError(RuntimeError):
    def __init__(self, status):
        super().__init__(f"cudaError {status}")
        self.status = status


class _Place:
    """What `SimArray` asks of its device."""

    def __init__(self, cupy, index):
        self.cupy = cupy
        self.index = self.id = index
        self.machine = cupy.machine

    def current_raw(self):
        return self.cupy.stream_of(self.index).raw

    def __str__(self):
        return f"sim:{self.index}"

    # The methods that `SimArray.get` calls when it blocks.
    def new_event(self, *, timing):
        return SimEvent()

    def record(self, event, stream):
        self.machine.record(event, stream)

    def synchronize(self, event):
        self.machine.synchronize(event)

    def from_host(self, array, *, pinned):
        made = adopt(array.copy(), self, self.current_raw())
        self.cupy.from_host(made, array, self.current_raw())
        return made

    def to_host(self, array):
        return self.cupy.to_host(array, self.current_raw(), np.empty(array.shape, array.dtype))


class StandIn:
    """Stands for the modules `cupy` and `cupyx`."""

    #: The pointer of the machine's first stream; 1 is CUDA's default stream.
    FIRST = 100

    def __init__(self, *, devices=1, **options):
        self.machine = Machine(max(devices, 1), **options)
        self.devices = devices
        self.places = [_Place(self, index) for index in range(devices)]
        self._thread = threading.local()
        self.blas_is_loaded = False
        stand_in = self

        class Array(SimArray):
            """`cupy.ndarray`."""

            @property
            def __cuda_array_interface__(self):
                raise AssertionError("nobody has to go by way of pointers")

            def get(self, stream=None, out=None, blocking=True):
                if out is None:
                    return SimArray.get(self)
                if self.shape != out.shape or self.dtype != out.dtype:
                    raise ValueError(f"Shape mismatch. Expected {self.shape}, actual {out.shape}")
                raw = stand_in.stream_of(self.device.index).raw if stream is None else stream.raw
                stand_in.to_host(self, raw, out)
                if blocking:
                    stand_in.wait_for(raw)
                return out

            def __dlpack_device__(self):
                return 2, self.device.index

            def __dlpack__(self, *, stream=None, **options):
                # As in CuPy, the consumer's stream waits for what the current one has to do.
                index = self.device.index
                if stream != -1:
                    event = SimEvent()
                    stand_in.machine.record(event, stand_in.stream_of(index).raw)
                    consumer = stand_in.null_raw(index)
                    if stream not in {None, 0, 1}:
                        consumer = stand_in.machine.streams[stream - stand_in.FIRST]
                    stand_in.machine.wait(consumer, event)
                return SimpleNamespace(array=self, options=options)

            def set(self, values, stream=None):
                stand_in.from_host(self, values, stream.raw)

        for place in self.places:
            place.array_type = Array

        class Device:
            def __init__(self, index):
                self.id = index
                self.mem_info = (2**30, 2**31)

            def __enter__(self):
                self_stack = stand_in.entered()
                self_stack.append(self.id)
                return self

            def __exit__(self, *exception):
                stand_in.entered().pop()

        class Stream:
            def __init__(self, non_blocking=False, priority=None):
                self.device_id = stand_in.device()
                place = stand_in.places[self.device_id]
                self.raw = stand_in.machine.open_stream(place, priority or 0)

            def __enter__(self):
                streams = stand_in.streams()
                index = stand_in.device()
                if self.device_id not in {-1, index}:
                    raise RuntimeError("the stream is another device's than the current one")
                streams.setdefault("found", []).append((index, streams.get(index)))
                streams[index] = self
                return self

            def __exit__(self, *exception):
                index, found = stand_in.streams()["found"].pop()
                stand_in.streams()[index] = found

            def __eq__(self, other):
                return isinstance(other, Stream) and self.actual() is other.actual()

            def __hash__(self):
                return id(self)

            def actual(self):
                return self.raw

            @property
            def ptr(self):
                return stand_in.FIRST + self.actual().number

            def wait_event(self, event):
                stand_in.machine.wait(self.actual(), event.ptr)

            def begin_capture(self):
                assert self.device_id != -1, "the default stream can't be captured"
                for raw in [*stand_in.machine.streams]:
                    # Nothing else runs during a capture, so it waits for all streams.
                    event = SimEvent()
                    stand_in.machine.record(event, raw)
                    stand_in.machine.wait(self.raw, event)
                stand_in._thread.captured = _Graph(stand_in)

            def is_capturing(self):
                return stand_in.capturing() is not None

            def end_capture(self):
                graph = stand_in._thread.captured
                stand_in._thread.captured = None
                # A captured call is not carried out, so what it has written is undone.
                for written, values in reversed(graph.before):
                    written[...] = values
                return graph

        class Null(Stream):
            """One object for the default streams of all devices, as in CuPy."""

            def __init__(self):
                pass

            raw = property(lambda self: self.actual())
            device_id = -1

            def actual(self):
                return stand_in.null_raw(stand_in.device())

        class Event:
            def __init__(self, block=False, disable_timing=False):
                assert block, "a thread would spin"
                self.ptr = SimEvent()

            @property
            def done(self):
                return stand_in.query(self.ptr) == READY

            def record(self, stream=None):
                stand_in.machine.record(self.ptr, stand_in.current(stream).actual())

            def synchronize(self):
                stand_in.raising(stand_in.machine.synchronize, self.ptr)

        self._nulls = {}
        self.null = Null()
        Stream.null = self.null
        self.ndarray = Array
        self.cuda = SimpleNamespace(
            Device=Device,
            Stream=Stream,
            Event=Event,
            get_current_stream=lambda: self.current(None),
            get_elapsed_time=lambda a, b: (b.ptr.operation.end - a.ptr.operation.end) * 1e3,
            memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
            MemoryPool=lambda: SimpleNamespace(malloc=self),
            using_allocator=self.allocating,
            device=SimpleNamespace(get_cublas_handle=self.blas_handle),
            runtime=SimpleNamespace(
                runtimeGetVersion=lambda: 13000,
                CUDARuntimeError=CUDARuntimeError,
                getDevice=self.device,
                getDeviceCount=lambda: self.devices,
                getDeviceProperties=lambda index: {
                    "name": b"Stand-in %d" % index,
                    "major": 9,
                    "minor": 0,
                    "totalGlobalMem": 2**31,
                    "multiProcessorCount": 4,
                    "warpSize": 32,
                },
                eventQuery=self.query,
            ),
        )

    # -- state ------------------------------------------------------------------------------------

    def entered(self):
        if not hasattr(self._thread, "devices"):
            self._thread.devices = [0]
        return self._thread.devices

    def streams(self):
        if not hasattr(self._thread, "streams"):
            self._thread.streams = {}
        return self._thread.streams

    def device(self):
        return self.entered()[-1]

    def null_raw(self, index):
        raw = self._nulls.get(index)
        if raw is None:
            raw = self._nulls[index] = self.machine.open_stream(self.places[index], 0)
        return raw

    def stream_of(self, index):
        found = self.streams().get(index)
        return SimpleNamespace(raw=self.null_raw(index)) if found in {None, self.null} else found

    def current(self, stream):
        if stream is not None:
            return stream
        return self.streams().get(self.device()) or self.null

    def query(self, event):
        return self.machine.status(event)

    def raising(self, function, *args):
        try:
            return function(*args)
        except RuntimeError as error:
            raise CUDARuntimeError(719) from error

    def blas_handle(self):
        """Return the handle, for which CuPy loads cuBLAS."""
        self.blas_is_loaded = True
        return _Blas.HANDLE

    # -- graphs ----------------------------------------------------------------------------------

    @contextmanager
    def allocating(self, malloc):
        """Allocate from a private pool in this block."""
        assert malloc is self
        self._thread.private = True
        yield
        self._thread.private = False

    def capturing(self):
        return getattr(self._thread, "captured", None)

    def plain(self, value, *rest):
        if self.capturing() is not None and isinstance(value, np.ndarray) and value.ndim:
            raise RuntimeError("the current stream is capturing, so H2D transfers are disallowed")
        return _plain(value, *rest)

    def computed(self, function, values, named):
        graph = self.capturing()
        if function.__name__ == "matmul" and max(x.ndim for x in values) > 2:
            assert values[0].dtype != BFLOAT16, "data type 'E' not understood"
        if graph is not None:
            written = [*_listed(named.get("out", ())), *values[getattr(function, "nin", 99) :]]
            if function.__name__ in _WRITES_FIRST:
                written.append(values[0])
            many = function.__name__ in {"concatenate", "stack"} and len(values[0]) > 8
            assert not many, "addresses would be copied from the host"
            graph.before += [(x, x.copy()) for x in written if isinstance(x, np.ndarray)]
        result = _computed(function, values, named)
        if graph is not None:
            assert self._thread.private, "the memory would be used by others"
            if function.__name__ in {"matmul", "dot", "tensordot", "einsum"}:
                raise NotImplementedError("calling cuBLAS API during stream capture")
            if isinstance(result, np.generic):
                # A launch writes into the result; that is impossible with a scalar.
                result = np.asarray(result)
            if isinstance(result, np.ndarray) and not any(
                isinstance(x, np.ndarray) and np.may_share_memory(x, result) for x in values
            ):
                # `SimArray` would copy a view of a NumPy array, and launches would miss the copy.
                result = result.copy("K")
            graph.calls.append((function, values, named, result))
        return result

    def launched(self, name, stream, accesses, *rest):
        graph = self.capturing()
        if graph is None:
            return Machine.launch(self.machine, name, stream, accesses, *rest)
        if rest:
            raise RuntimeError("the current stream is capturing, so D2H transfers are disallowed")
        graph.accesses += accesses
        return None

    # -- kernels ----------------------------------------------------------------------------------

    def ElementwiseKernel(self, inputs, outputs, body, name, preamble=""):
        drawing = getattr(philox, name.removeprefix("asyncgrad_"), None)
        if drawing is not None:
            return partial(self.draw, drawing)
        return _Kernel(self, parameters(inputs), parameters(outputs), body, name)

    def draw(self, kind, key, high, scale, offset, out):
        """Write what the kernels that draw random numbers write."""

        def compute(*, out):
            out[...] = kind((key, high), out.shape, out.dtype) * scale + offset

        launch(self.places[self.device()], "draw", compute, (), {"out": out})

    def RawKernel(self, code, name):
        declared = SOURCES[name.removeprefix("asyncgrad_")]
        assert code in {code_of(declared, name, dtype) for dtype in "fd"}
        return _Lines(self, name, declared)

    # -- copies -----------------------------------------------------------------------------------

    def to_host(self, array, raw, out):
        values = array._values.copy()
        out[...] = values
        if out.dtype.kind in "fc":
            out[...] = np.nan

        def deliver(poisoned):
            if not poisoned:
                out[...] = values

        access = Access(array, write=False)
        self.machine.launch("get", raw, [access], deliver)
        return out

    def from_host(self, array, values, raw):
        array._values[...] = values
        self.machine.launch("set", raw, [Access(array, write=True)])

    def wait_for(self, raw):
        event = SimEvent()
        self.machine.record(event, raw)
        self.raising(self.machine.synchronize, event)

    # -- the library ------------------------------------------------------------------------------

    def is_available(self):
        return self.devices > 0

    def get_default_memory_pool(self):
        memory = self.machine.memory[self.device()]
        return SimpleNamespace(
            used_bytes=lambda: memory.allocated,
            total_bytes=lambda: memory.allocated + memory.kept,
            free_all_blocks=memory.empty_cache,
        )

    def from_dlpack(self, array):
        index = self.device()
        assert array.__dlpack_device__() == (2, index)
        return array.__dlpack__(stream=self.FIRST + self.stream_of(index).raw.number).array

    def empty_pinned(self, shape, dtype):
        return np.empty(shape, dtype)

    def empty(self, shape, dtype=float, order="C"):
        place = self.places[self.device()]
        return adopt(np.empty(shape, dtype, order), place, place.current_raw())

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if not self.devices:
            raise CUDARuntimeError(100)
        found = getattr(Library(self.places[0]), name)
        late = isinstance(found, Library) or callable(found)
        late = late and not isinstance(found, type)
        return _Late(self, (name,)) if late else found

    def array(self, value, dtype=None, **options):
        place = self.places[self.device()]
        if not isinstance(value, SimArray) or value.device is place:
            return Library(place).array(value, dtype, **options)
        if not (value.flags.c_contiguous or value.flags.f_contiguous):
            # CuPy gathers on the other device's null stream: it does not enter our stream there.
            source = [Access(value, write=False)]
            self.machine.launch("gather", self.null_raw(value.device.index), source)
        copied = adopt(value._values.copy(), place, place.current_raw())
        accesses = [
            Access(value, write=False),
            Access(copied, write=True),
        ]
        self.machine.launch("copy between devices", place.current_raw(), accesses)
        return copied


def parameters(text):
    """The names of a kernel's parameters, with the words before each."""
    return {name: kind for *kind, name in (part.split() for part in text.split(","))}


#: NumPy's functions by the names that kernels call them.
CALLED = {
    "abs": np.abs, "exp": np.exp, "expm1": np.expm1, "log": np.log, "log1p": np.log1p,
    "max": np.maximum, "sqrt": np.sqrt, "tanh": np.tanh,
    "erf": np.vectorize(math.erf, otypes=[float]), "T": lambda number: number,
    "where": np.where, "larger": np.maximum, "smaller": np.minimum, "sign": np.sign,
}  # fmt: skip


class _Graph:
    """Captured functions, which each launch calls again on the same arrays."""

    def __init__(self, stand_in):
        self._stand_in = stand_in
        self.calls = []
        self.accesses = []
        #: The arrays that were written to, each with a copy from before.
        self.before = []

    def launch(self, stream):
        for function, values, named, result in self.calls:
            found = _computed(function, values, named)
            for target, value in zip(*map(_listed, (result, found)), strict=True):
                if isinstance(target, np.ndarray) and not np.may_share_memory(target, value):
                    target[...] = value
        self._stand_in.machine.launch("graph", stream.actual(), self.accesses)


class _Blas:
    """The functions of cuBLAS that captured products call; its matrices are stored by columns."""

    HANDLE = 7

    def __init__(self, stand_in, name):
        assert name == "libcublas.so.13"
        assert stand_in.blas_is_loaded
        self._stand_in = stand_in
        self._stream = None
        # Attributes are set on them, the types of arguments; a method would refuse these.
        self.cublasSetStream_v2 = lambda *given: self.enter(*given)
        self.cublasGemmEx = lambda *given: self.multiply(*given)
        self.cublasGemmStridedBatchedEx = lambda *given: self.batches(*given)

    def enter(self, handle, stream):
        assert handle == self.HANDLE
        self._stream = stream
        return 0

    def batches(self, handle, by_a, by_b, m, n, k, one, *rest):
        a, kind, lda, next_a, b, _, ldb, next_b, zero, c, _, ldc, next_c, count, *how = rest
        size = KINDS[kind].itemsize
        for i in range(count):
            self.multiply(
                handle, by_a, by_b, m, n, k, one, a + i * next_a * size, kind, lda,
                b + i * next_b * size, kind, ldb, zero, c + i * next_c * size, kind, ldc, *how,
            )  # fmt: skip
        return 0

    def multiply(
        self, handle, by_a, by_b, m, n, k, one, a, kind, lda, b, _, ldb, zero, c, kind_c, ldc,
        precision, algorithm,
    ):  # fmt: skip
        """C = A B, where a matrix may be stored transposed."""
        assert handle == self.HANDLE
        assert kind == kind_c
        assert self._stream == self._stand_in.current(None).ptr
        of_sums = 0 if KINDS[kind].itemsize == 2 else kind
        assert (_number(one, of_sums), _number(zero, of_sums)) == (1, 0)
        x = _stored(a, kind, lda, *((k, m) if by_a else (m, k)))
        y = _stored(b, kind, ldb, *((n, k) if by_b else (k, n)))
        out = _stored(c, kind, ldc, m, n)
        x, y = x.T if by_a else x, y.T if by_b else y

        wide = KINDS[of_sums]

        def product():
            out.T[...] = y.T.astype(wide) @ x.T.astype(wide)

        product()
        graph = self._stand_in.capturing()
        if graph is not None:
            graph.calls.append((product, (), {}, None))
        return 0


#: cuBLAS's numbers of dtypes.
KINDS = dict(enumerate(map(np.dtype, ("f4", "f8", "f2", "i1", "c8", "c16"))))
if BFLOAT16 is not None:
    KINDS[14] = BFLOAT16


def _stored(pointer, kind, apart, rows, columns):
    """The matrix at an address, stored by columns that begin `apart` elements after each other."""
    dtype = KINDS[kind]
    assert apart >= rows
    memory = (ctypes.c_char * (apart * columns * dtype.itemsize)).from_address(pointer)
    return np.ndarray((rows, columns), dtype, memory, 0, (dtype.itemsize, apart * dtype.itemsize))


def _number(pointer, kind):
    return _stored(pointer, kind, 1, 1, 1).item()


def _listed(result):
    return result if isinstance(result, (tuple, list)) else [result]


class _Kernel:
    """A kernel whose body is read as Python's assignments, one for each statement."""

    def __init__(self, cupy, inputs, outputs, body, name):
        self.cupy = cupy
        self.inputs = inputs
        self.outputs = outputs
        self.name = name
        self.launched = 0
        known = {*inputs, *outputs}
        lines = []
        for line in body.split(";"):
            kind, target, value = re.fullmatch(
                r"\s*(T |bool )?(\w+) = ([\w\s.+*/(),&<>=!?:%[\]-]+)", line
            ).groups()
            # C++ has names that are declared, once, before they are used.
            assert (target in known) == (kind is None), f"{name}: {target} is not declared once"
            known.add(target)
            words = set(re.findall(r"(?<![\w.])[a-z_]\w*", value))
            assert words <= {*known, *CALLED, "i"}, f"{name}: {words - known} are not declared"
            lines.append(f"{target} = {value.strip()}")
        choice = re.compile(r"(\w+) = (.+) \? (.+) : (.+)")
        self.statements = [choice.sub(r"\1 = where(\2, \3, \4)", line) for line in lines]

    def __call__(self, *arguments):
        place = self.cupy.places[self.cupy.device()]
        count = len(self.inputs)
        given, outs = arguments[:count], arguments[count:]
        assert len(given) == count
        assert len(outs) in {0, len(self.outputs)}
        self.launched += 1
        types = self.types(given, outs)
        # A number is cast to the type of its parameter.
        given = [
            types[kind[-1]].type(value) if isinstance(value, (int, float)) else value
            for value, kind in zip(given, self.inputs.values(), strict=True)
        ]

        def compute(*values, out=()):
            known = dict(zip([*self.inputs, *self.outputs], [*values, *out], strict=False))
            raw = [name for name, kind in self.inputs.items() if "raw" in kind]
            shape = np.broadcast_shapes(
                *(np.shape(value) for name, value in known.items() if name not in raw)
            )
            known["i"] = np.arange(math.prod(shape)).reshape(shape)
            known |= {name: known[name].reshape(-1) for name in raw}
            for line in self.statements:
                target, expression = line.split(" = ", 1)
                known[target] = eval(expression, dict(CALLED), known)
            found = [np.asarray(known[name], types[kind]) for name, (kind,) in self.outputs.items()]
            for target, value in zip(out, found, strict=False):
                target[...] = value
            return None if out else found[0]

        return launch(place, self.name, compute, given, {"out": outs} if outs else {})

    def types(self, given, outs):
        """The dtypes that CuPy finds for the kernel's types, from the arrays alone."""
        types = {"int64": np.dtype("int64")}
        kinds = [kind[-1] for kind in (*self.inputs.values(), *self.outputs.values())]
        for kind, value in zip(kinds, (*given, *outs), strict=False):
            if isinstance(value, SimArray):
                assert types.setdefault(kind, value.dtype) == value.dtype, "the type is mismatched"
        return types


class _Lines:
    """A kernel that goes along lines; its declared expressions are valid in Python, too."""

    def __init__(self, cupy, name, declared):
        self.cupy = cupy
        self.name = name
        self.declared = declared

    def __call__(self, grid, block, arguments):
        """Check that the grid covers all lines, and compute the results."""
        declared = self.declared
        *values, lines, length, beside = arguments
        whole = declared.over_batch
        assert math.prod(block) in {32, 64, 128, 256, *((512, 1024) if whole else ())}
        assert grid == (lines if whole else lines // beside * -(-beside // block[0]), 1)
        elements = len(declared.arrays.split())
        inputs = [*declared.arrays.split(), *declared.lines.split()]
        defaults = declared.defaults()
        outs = [*declared.names("out"), *declared.results.split()]
        count = len(inputs) + len(defaults)
        given, made = values[:count], values[count : count + len(outs)]
        numbers = dict(
            zip(declared.numbers.split(), values[count + len(outs) :], strict=True), length=length
        )

        def compute(*arrays, out):
            shape = (-1, lines, beside) if whole else (lines // beside, -1, beside)
            along, of_lines = ((0, 2), (1, -1, 1)) if whole else (1, (-1, 1, beside))
            known = {**CALLED, **numbers}
            for place, (name, value) in enumerate(zip(inputs, arrays, strict=False)):
                known[name] = value.reshape(shape if place < elements else of_lines)
            for (name, default), value in zip(defaults.items(), arrays[len(inputs) :], strict=True):
                known[name] = int(default) if isinstance(value, int) else value.reshape(1, -1, 1)
            for how, name, expression in declared.steps("sum", "max", "let", "each", "out"):
                found = eval(expression, known)
                if how in {"sum", "max"}:
                    found = getattr(found, how)(axis=along, keepdims=True)
                known[name] = found
            for name, target in zip(outs, out, strict=True):
                target.reshape(of_lines if name in declared.results.split() else shape)[...] = (
                    known[name]
                )

        place = self.cupy.places[self.cupy.device()]
        launch(place, self.name, compute, tuple(given), {"out": tuple(made)})


class _Late:
    """A function of the library, for the device that will be current when it is called."""

    def __init__(self, stand_in, path):
        self._stand_in = stand_in
        self._path = path

    def __call__(self, *args, **kwargs):
        function = Library(self._stand_in.places[self._stand_in.device()])
        for name in self._path:
            function = getattr(function, name)
        return function(*args, **kwargs)

    def __getattr__(self, name):
        return _Late(self._stand_in, (*self._path, name))
