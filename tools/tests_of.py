"""Say which tests concern a module of the package, the nearest ones first.

    python tools/tests_of.py asyncgrad/core/node.py

The tests of `asyncgrad/a/b.py` are `tests/a/test_b.py`, or the file of that name in a folder above,
where there is one, those of the rows below whose pattern the module's path has, and all of
`tests/a`.
"""

from __future__ import annotations

import sys
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parent.parent

#: The tests of what is generated from the package's public names.
_PUBLISHED = ("test_public_names.py", "test_reference.py", "typing/test_stubs.py")
#: Patterns of paths in the package, with the tests of the modules that match, within `tests`.
ROWS: dict[str, tuple[str, ...]] = {
    "core/*": ("autograd/test_backward.py", "autograd/test_memory.py"),
    "core/anomaly.py": ("autograd/test_anomaly.py",),
    "core/array_holders.py": ("optim/test_array_holders.py",),
    "core/frames.py": (
        "autograd/test_anomaly.py", "scheduler/test_forgotten_await.py",
        "scheduler/test_kept_errors.py",
    ),
    "core/commit.py": (
        "scheduler/test_commits_in_turn.py", "scheduler/test_participants.py",
        "scheduler/test_preemption.py", "scheduler/test_reentered.py",
        "autograd/test_interrupts.py", "devices/test_shared_gradients.py",
    ),
    "core/last_steps.py": (
        "scheduler/test_commits_in_turn.py", "scheduler/test_participants.py",
        "scheduler/test_every_node.py",
    ),
    "core/delivery.py": (
        "autograd/test_accumulation.py", "autograd/test_hooks.py", "scheduler/test_every_node.py",
    ),
    "core/dependencies.py": ("scheduler/test_slices.py", "scheduler/test_limits_and_insight.py"),
    "core/exec_info.py": (
        "autograd/test_grad.py", "autograd/test_order_and_selection.py", "autograd/test_hooks.py",
        "autograd/test_node_api.py",
    ),
    "core/forward.py": ("autograd/test_forward_ad.py", "autograd/test_dual_programs.py"),
    "core/graph_task.py": (
        "autograd/test_order_and_selection.py", "autograd/test_random_passes.py",
        "scheduler/test_every_node.py", "scheduler/test_coroutine_nodes.py",
        "replay/test_compiled_transforms.py",
    ),
    "core/hook*.py": (
        "autograd/test_hooks.py", "autograd/test_node_api.py", "scheduler/test_hook_order.py",
        "scheduler/test_coroutine_nodes.py",
    ),
    "core/locks.py": ("scheduler/test_reentered.py", "scheduler/test_thread_order.py"),
    "core/metadata.py": ("autograd/test_node_api.py",),
    "core/modes.py": (
        "autograd/test_grad_mode.py", "autograd/test_inference.py", "autograd/test_shared_modes.py",
        "autograd/test_saved_tensors.py",
    ),
    "core/node.py": ("autograd/test_node_api.py", "autograd/test_function.py"),
    "core/parallel_nodes.py": ("scheduler/test_parallel_nodes.py",),
    "core/pass_state.py": (
        "autograd/test_accumulation.py", "scheduler/test_every_node.py",
        "scheduler/test_coroutine_nodes.py", "scheduler/test_kept_errors.py",
    ),
    "core/rule.py": ("autograd/test_saved_tensors.py", "ops/test_every_op.py"),
    "core/prepared.py": ("devices/test_shared_gradients.py", "scheduler/test_commits_in_turn.py"),
    "core/run_node.py": (
        "autograd/test_hooks.py", "autograd/test_function.py", "autograd/test_anomaly.py",
        "scheduler/test_every_node.py", "scheduler/test_coroutine_nodes.py",
        "ops/test_half_precision.py", "replay/test_called_anew.py",
    ),
    "core/saved*.py": (
        "autograd/test_saved_tensors.py", "autograd/test_awaited_saved_tensors.py",
        "autograd/test_ported_saved_tensors.py", "autograd/test_node_api.py",
        "utils/test_checkpoint.py",
    ),
    "core/node_streams.py": ("devices/test_stream_order.py", "devices/test_mixed_devices.py"),
    "core/size.py": ("scheduler/test_slices.py", "ops/test_large_arrays.py"),
    "core/states.py": ("scheduler/test_every_node.py", "autograd/test_accumulation.py"),
    "core/streams.py": (
        "devices/test_stream_order.py", "devices/test_overlap.py",
        "devices/test_random_device_graphs.py",
    ),
    "core/commit_turns.py": (
        "core/test_commit_turns.py", "scheduler/test_commits_in_turn.py",
        "scheduler/test_preemption.py", "scheduler/test_interrupted_loops.py",
        "autograd/test_interrupts.py",
    ),
    "core/variable.py": (
        "autograd/test_views.py", "autograd/test_in_place.py", "autograd/test_accumulation.py",
    ),
    "core/history.py": ("autograd/test_views.py", "autograd/test_in_place.py"),
    "core/versions.py": (
        "autograd/test_in_place.py", "autograd/test_views.py",
        "autograd/test_views_changed_in_place.py", "autograd/test_view_chain_programs.py",
        "autograd/test_ported_saved_tensors.py",
    ),
    "scheduler/engine.py": ("devices/test_pool.py", "scheduler/test_limits_and_insight.py"),
    "scheduler/multi_pass.py": ("autograd/test_functional.py",),
    "scheduler/portal.py": (
        "autograd/test_awaited_saved_tensors.py", "autograd/test_functional.py",
    ),
    "scheduler/*": ("autograd/test_reentrant.py",),
    "_*.py": ("core", "scheduler/test_blocking.py", "devices/test_accelerator.py"),
    "autograd/saved_on_cpu.py": ("devices/test_moving.py", "devices/test_pinned.py"),
    "ops/*": ("autograd/test_in_place.py", "autograd/test_views.py"),
    "ops/batch*.py": ("func",),
    "ops/columns.py": ("ops/test_convolution.py", "ops/test_large_arrays.py"),
    "ops/forward.py": ("autograd/test_forward_ad.py",),
    "ops/mode_hooks.py": ("autograd/test_saved_tensors.py", "autograd/test_anomaly.py"),
    "ops/api/*": _PUBLISHED,
    "ops/table/*": ("ops/test_every_op.py", "ops/test_what_nodes_keep.py", *_PUBLISHED),
    "ops/table/attention.py": ("devices/test_numba_rows.py", "nn/test_transformer.py"),
    "ops/table/convolution.py": (
        "ops/test_large_arrays.py", "devices/test_numba_convolution.py",
    ),
    "ops/table/loss.py": ("devices/test_numba_rows.py",),
    "ops/table/normalisation.py": (
        "devices/test_numba_batch_norm.py", "devices/test_numba_rows.py",
    ),
    "ops/table/recurrent.py": ("devices/test_numba_kernels.py",),
    "ops/table/reduction.py": ("ops/test_median_mode.py",),
    "ops/table/transcendental.py": ("ops/test_special.py", "ops/test_edges_of_derivatives.py"),
    "ops/tensors/*": ("test_copies.py", "autograd/test_memory.py"),
    "nn/*": ("devices/test_layers_on_devices.py", *_PUBLISHED),
    "optim/*": ("test_amp.py", *_PUBLISHED),
    "optim/hooks.py": ("nn/test_state_hooks.py",),
    "optim/lr_scheduler/*": ("optim/test_lr_scheduler.py",),
    "func/*": ("autograd/test_transform_programs.py", "autograd/test_vmap_programs.py"),
    "utils/*": ("autograd/test_checkpoint_programs.py",),
    "serving/*": ("examples",),
    "testing/*": ("devices/test_poisoned_memory.py",),
    "sync/*": ("func/test_sync.py", "autograd/test_memory.py"),
    "cuda/*": ("devices/test_accelerator.py", "test_amp.py"),
    "backends/*": ("test_settings.py",),
    "backends/numba.py": ("devices/test_numba_kernels.py",),
    "devices/kernels.py": (
        "devices/test_cuda_kernels.py",
        "devices/test_numba_kernels.py",
        "devices/test_numba_rows.py",
        "devices/test_numba_batch_norm.py",
        "devices/test_nvrtc.py",
    ),
    "devices/updates.py": (
        "optim/test_array_updates.py", "devices/test_cuda_kernels.py", "devices/test_nvrtc.py",
    ),
    "devices/pointwise.py": (
        "devices/test_cuda_kernels.py", "devices/test_numba_kernels.py", "devices/test_nvrtc.py",
    ),
    "devices/host_kernels/*": (
        "devices/test_numba_kernels.py",
        "devices/test_numba_convolution.py",
        "devices/test_numba_batch_norm.py",
        "devices/test_numba_rows.py",
    ),
    "_top_level.py": ("devices/test_accelerator.py", "test_names.py", "test_tracing.py"),
    "__init__.py": ("test_packaging.py", "test_names.py", "test_public_names.py"),
    "aliases.py": ("typing",),
    "accelerator.py": ("devices/test_accelerator.py",),
    "collector.py": ("test_packaging.py",),
    "cpu.py": ("devices/test_accelerator.py", "test_settings.py"),
    "creation.py": ("ops/test_creation.py",),
    "errors.py": ("docs/test_how_to.py", "test_bad_input.py", "ops/test_bad_arguments.py"),
    "fft.py": ("ops/test_fourier.py",),
    "linalg.py": ("ops/test_linalg.py", "ops/test_matrices.py"),
    "random.py": ("ops/test_random.py",),
    "special.py": ("ops/test_special.py",),
    "submodules.py": ("nn/test_pytorchs_names.py", "distributions"),
    "tensor.py": (
        "ops/test_tensor_attributes.py", "ops/test_odd_tensors.py", "ops/test_signatures.py",
        "test_copies.py",
    ),
    "choices.py": ("typing",),
    "types.py": ("typing",),
}  # fmt: skip
#: Tests that belong to no module but to documents, the tree, examples or benchmarks.
OF_THE_PROJECT = (
    "benchmarks", "docs", "examples", "test_loops.py", "test_nothing_read_on_the_loop.py",
    "test_public_names.py", "test_pytorch_page.py", "test_random_graphs.py",
    "test_readme.py", "test_reference.py", "test_tests_of.py", "typing",
)  # fmt: skip


def mirrors(module: str) -> list[str]:
    """The files that are named after a module, in its folder of `tests` or in one above."""
    path = Path(module)
    name = path.parent.name if path.stem == "__init__" else path.stem
    candidates = [parent / f"test_{name}.py" for parent in path.parents]
    return [str(found) for found in candidates if (ROOT / "tests" / found).is_file()]


def tests_of(module: str) -> list[str]:
    """The tests of the module with a path in the package.

    Raises:
        LookupError: there are none.
    """
    rows = [tests for pattern, tests in ROWS.items() if fnmatch(module, pattern)]
    # The rows for a folder come before those for its modules, which are nearer.
    found = [*mirrors(module), *[name for tests in reversed(rows) for name in tests]]
    folder = Path(module).parts[0]
    if (ROOT / "tests" / folder).is_dir():
        found.append(folder)
    if not found:
        raise LookupError(f"no tests for asyncgrad/{module}: add a row to {Path(__file__).name}")
    return [f"tests/{name}" for name in dict.fromkeys(found)]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("Name one module: asyncgrad/core/node.py")
    inside = Path(sys.argv[1]).resolve().relative_to(ROOT / "asyncgrad")
    print(*tests_of(inside.as_posix()))
