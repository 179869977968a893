"""What to use instead of what PyTorch's modules have, and asyncgrad's of the same names do not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn


def remedies(module: str, known: Mapping[str, str]) -> Callable[[str], NoReturn]:
    """The `__getattr__` of a module, which says what does the work of what PyTorch has there.

    Args:
        module: its name.
        known: by remedy, the names of what it replaces, with spaces in between.
    """
    instead = {name: remedy for remedy, names in known.items() for name in names.split()}

    def __getattr__(name: str) -> NoReturn:
        remedy = f", as PyTorch has: {instead[name]}" if name in instead else ""
        raise AttributeError(f"{module} has no {name!r}{remedy}")

    return __getattr__


#: By remedy, names of PyTorch's top namespace that asyncgrad's does not have.
OF_TOP = {
    "`asyncgrad.compile` makes calls faster, and `state_dict()` holds what a program has to keep": (
        "jit ScriptModule ScriptFunction fx export package"
    ),
    "`asyncgrad.compile` calls what it can't replay as it is": "compiler",
    "`asyncgrad.load` reads files of parameters that PyTorch has saved": "hub",
    "give a model of PyTorch the parameters by `state_dict()`, and export that": "onnx",
    "`asyncgrad.trace_passes` notes when each node runs": "profiler monitor",
    "keep tensors dense, or use `nn.functional.embedding(sparse=True)`, whose gradients are rows": (
        "sparse sparse_coo sparse_csr sparse_csc sparse_bsr sparse_bsc sparse_coo_tensor "
        "sparse_csr_tensor sparse_csc_tensor sparse_bsr_tensor sparse_bsc_tensor "
        "sparse_compressed_tensor spmm smm dsmm hsmm hspmm saddmm sspaddmm resize_as_sparse_"
    ),
    "pad tensors, with `nn.utils.rnn.pad_sequence` for example, and mask them with `where`": (
        "masked nested jagged"
    ),
    "use float16 or bfloat16, since no tensor is quantised": (
        "ao quantization quantize_per_tensor quantize_per_channel quantize_per_tensor_dynamic "
        "dequantize qint8 quint8 qint32 float8_e4m3fn float8_e5m2"
    ),
    "use complex64": "complex32 chalf",
    "use Python's `multiprocessing`, or `asyncgrad.distributed`": "multiprocessing",
    "futures are asyncio's, and `asyncgrad.offload` computes in a thread": (
        "futures Future fork wait"
    ),
    "`asyncgrad.extend` and `autograd.Function` add functions": "library overrides",
    "SciPy's `signal.windows` has those that asyncgrad has not": "signal",
    "what all devices have in common is in `asyncgrad.accelerator`": "mps mtia xpu",
    "`Tensor.untyped_storage()` has what a tensor's memory has": "UntypedStorage TypedStorage",
    "write Python's `if` and `while`": "cond while_loop",
    "`set_num_threads` is for all threads": "set_num_interop_threads",
    'name the device, as in `autocast("cpu", dtype=...)` and `get_autocast_dtype("cpu")`': (
        "is_autocast_cpu_enabled get_autocast_cpu_dtype get_autocast_gpu_dtype "
        "set_autocast_enabled set_autocast_dtype set_autocast_cpu_enabled set_autocast_cpu_dtype "
        "set_autocast_gpu_dtype"
    ),
    "use `arange`, which excludes its end": "range",
    "use the function of that name in `asyncgrad.linalg`": "eig lstsq matrix_rank solve",
    "use `linalg.eigh`": "symeig",
    "use `linalg.solve_triangular`": "triangular_solve",
    "use `linalg.matrix_norm`": "frobenius_norm nuclear_norm",
    "use `nn.functional.embedding_bag`": "embedding_bag",
    "use the layer in `asyncgrad.nn`": "lstm gru rnn_tanh rnn_relu lstm_cell gru_cell",
    "pass the tensor itself, which has `__dlpack__`": "to_dlpack",
}
of_top = remedies("asyncgrad", OF_TOP)
