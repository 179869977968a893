"""Every name of PyTorch's top namespace is here, or there is a reason why not."""

import functools
import re
import types

import pytest

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = pytest.mark.torch

#: By patterns for whole names, why asyncgrad does without.
REASONS = {
    "TorchScript, its types and graphs": (
        r"\w+Type", r"(Lite)?Script\w*", r"ConcreteModule\w*", r"\w*Graph\w*", r"\w+Logger",
        r"AliasDb", r"(Complete)?Argument(Spec)?", r"Block", r"CallStack", r"Capsule", r"Code",
        r"CompilationUnit", r"ErrorReport", r"ExecutionPlan", r"FileCheck", r"FunctionSchema",
        r"Gradient", r"IODescriptor", r"JITException", r"Node", r"LoggerBase", r"OperatorInfo",
        r"StaticModule", r"TracingState", r"Type", r"Use", r"Value", r"BufferDict", r"ModuleDict",
        r"ParameterDict", r"import_ir_\w+", r"parse_(ir|schema|type_comment)", r"jit", r"classes",
        r"merge_type_from_type_comment", r"unify_type_list", r"AVG", r"SUM", r"PRIVATE_OPS",
        r"AggregationType", r"fork", r"wait", r"futures?", r"Future", r"FatalError", r"types",
    ),
    "dispatcher, compiler and build of PyTorch": (
        r"Dispatch\w+", r"ExcludeDispatchKeyGuard", r"Disable\w+", r"Sym\w+", r"sym_\w+", r"Tag",
        r"Benchmark\w+", r"ThroughputBenchmark", r"\w*DeserializationStorageContext", r"\w+ObjType",
        r"SerializationStorageContext", r"DeepCopyMemoTable", r"PyTorchFile\w+", r"USE_\w+",
        r"cond", r"while_loop", r"compile[dr]\w*", r"cpp", r"export", r"fx", r"library", r"package",
        r"has_\w+", r"get_file_path", r"init_num_threads", r"overrides", r"functional", r"windows",
        r"prepare_multiprocessing_environment", r"profiler\w*", r"monitor", r"hub", r"version",
        r"torch(_version)?", r"classproperty", r"set_num_interop_threads",
        r"(is|set)_warn_always\w*", r"thread_safe_generator", r"hash_tensor",
    ),
    "libraries and devices that asyncgrad does not use": (
        r"cudnn_\w+", r"miopen_\w+", r"mkldnn_\w+", r"fbgemm_\w+", r"mps", r"mtia", r"xpu",
        r"is_vulkan_available", r"onnx",
    ),
    "quantisation, and dtypes that NumPy has not": (
        r"q_\w+", r"Q\w+Storage", r"qu?int\d+\w*", r"qscheme", r"quant\w+", r"fake_quantize_\w+",
        r"\w*quantize\w*", r"choose_qparams_optimized", r"per_(channel|tensor)_\w+", r"int_repr",
        r"fused_moving_avg_obs_fake_quant", r"ao", r"empty_quantized", r"bits\w+", r"bit",
        r"u?int[1-7]", r"float[48]_\w+", r"complex32", r"chalf",
    ),
    "COO and CSR tensors": (
        r"sparse\w*", r"\w*indices_copy", r"values_copy", r"[dhs]s?p?mm", r"hspmm", r"ss?p?addmm",
        r"saddmm", r"resize_as_sparse_",
    ),
    "nested and masked tensors": (r"nested", r"jagged", r"masked"),
    "distributed work, and other processes": (
        r"distributed", r"is_distributed", r"multiprocessing", r"from_file",
    ),
    "numbers that are drawn evenly": (r"quasirandom",),
    "kinds of memory by dtype: `Tensor.storage()` has one": (
        r"\w*Storage(Base)?", r"storage", r"legacy_contiguous_format",
    ),
    "automatic mixed precision, which casts nothing here": (r"\w*autocast_\w+",),
    "kernels behind public functions": (
        r"native_\w+", r"\w+_copy", r"batch_norm_\w+", r"affine_grid_generator", r"grid_sampler\w*",
        r"conv_tbc", r"convolution", r"constant_pad_nd", r"embedding_(bag|renorm_)", r"gru(_cell)?",
        r"lstm(_cell)?", r"rnn_(relu|tanh)(_cell)?", r"max_pool1d_with_indices", r"slice_inverse",
        r"norm_except_dim", r"empty_permuted", r"get_device", r"to_dlpack",
    ),
    "removed or deprecated in PyTorch": (
        r"eig", r"symeig", r"solve", r"lstsq", r"matrix_rank", r"range", r"chain_matmul",
        r"(frobenius|nuclear)_norm", r"triangular_solve",
    ),
    "not written yet": (
        r"(bartlett|blackman|hamming|hann|kaiser)_window", r"cartesian_prod", r"combinations",
        r"corrcoef", r"cov", r"(cumulative_)?trapezoid", r"trapz", r"fix_?", r"frexp",
        r"frombuffer", r"[gl]cd_?", r"lcm_?", r"ldexp_?", r"geqrf", r"orgqr", r"ormqr", r"gradient",
        r"hist\w+", r"igammac?", r"i?stft", r"lobpcg", r"pca_lowrank", r"svd_lowrank", r"renorm",
        r"segment_reduce", r"nonzero_static", r"unravel_index", r"vander", r"signal",
    ),
}  # fmt: skip


def _public():
    """What is PyTorch's own."""
    for name in dir(torch):
        value = getattr(torch, name)
        foreign = isinstance(value, types.ModuleType) and not value.__name__.startswith("torch")
        if name[0] != "_" and name != "TYPE_CHECKING" and not foreign:
            yield name


def test_what_there_is_not_has_a_reason():
    """So that nothing is left out unnoticed when PyTorch gets a new function."""
    patterns = re.compile("|".join(f"(?:{p})" for group in REASONS.values() for p in group))
    missing = [name for name in _public() if not hasattr(ag, name)]
    assert [name for name in missing if not patterns.fullmatch(name)] == []
    assert len(missing) < len(dir(torch)) / 2


#: What the top namespace has besides PyTorch's names and functions in place.
OWN = {
    "BackwardFuture", "blocking", "cooperate", "devices", "engine", "errors", "grad",
    "is_autocast_available", "offload", "request", "sync", "trace_passes",
}  # fmt: skip


def test_no_helper_is_public():
    """Chapters publish their functions by lists and rules, which a helper may meet by chance."""
    assert {name for name in ag.__all__ if not hasattr(torch, name) and name[-1] != "_"} == OWN
    for space in ("nn.functional", "linalg", "fft", "special"):
        ours, theirs = (dir(functools.reduce(getattr, space.split("."), m)) for m in (ag, torch))
        assert {name for name in ours if name[0] != "_"} <= set(theirs)


def test_all_names_are_declared():
    """A star import gives what attributes give, each name once."""
    assert len(ag.__all__) == len(set(ag.__all__))
    assert all(hasattr(ag, name) for name in ag.__all__)
