"""Saved-tensor hooks: users' functions that pack and unpack what operations save for backward."""

from __future__ import annotations

import asyncio
import concurrent.futures.thread  # noqa: F401  so that asyncio's first thread imports nothing
import inspect
import os
import weakref
from asyncio.events import _get_running_loop
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from asyncgrad.aliases import Array, Device, Value
from asyncgrad.autograd.awaited_hooks import AwaitedHooks
from asyncgrad.autograd.saved_on_cpu import Offload
from asyncgrad.core.metadata import Metadata
from asyncgrad.core.modes import Mode, current
from asyncgrad.core.saved import SavedHooks
from asyncgrad.core.variable import wrap
from asyncgrad.core.versions import owner_of
from asyncgrad.errors import AutogradError


class saved_tensors_hooks(Mode):
    """Pack what operations save for backward, and unpack it when backward uses it.

    Works as a context manager and as a decorator. Either hook may be a coroutine function. A
    packing coroutine runs beside the forward pass; a node waits for unpacking while everything else
    that is ready runs. Only the innermost pair of hooks is used.

    Args:
        pack_hook: takes a tensor and returns what to keep in its place. It must not change the
            tensor.
        unpack_hook: takes what was kept and returns the tensor, each time it is used.
        prefetch: for coroutine functions: while a node waits for one tensor, this many of the
            tensors packed before it are unpacked, too, because backward needs them next.

    Example:
        >>> x = ag.ones(2, requires_grad=True)
        >>> with ag.autograd.graph.saved_tensors_hooks(lambda t: t.numpy(), ag.from_numpy):
        ...     y = x * x
        >>> y.grad_fn._saved_self
        tensor([1., 1.], requires_grad=True)
    """

    def __init__(
        self, pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any], *,
        prefetch: int = 1,
    ) -> None:  # fmt: skip
        super().__init__()
        for name, hook in (("pack_hook", pack_hook), ("unpack_hook", unpack_hook)):
            if not callable(hook):
                raise TypeError(
                    f"saved_tensors_hooks: {name} has to be callable, not {type(hook).__name__}"
                )
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook
        self.prefetch = prefetch

    def __enter__(self) -> Any:
        """Use the pair, unless `disable_saved_tensors_hooks` is in force."""
        check_enabled()
        hooks: SavedHooks | AwaitedHooks = SavedHooks(self.pack_hook, self.unpack_hook)
        if any(map(inspect.iscoroutinefunction, (self.pack_hook, self.unpack_hook))):
            hooks = AwaitedHooks(self.pack_hook, self.unpack_hook, self.prefetch)
        self._put({"saved_hooks": hooks})
        return self


def check_enabled() -> None:
    """Raise where `disable_saved_tensors_hooks` is in force."""
    message = current().saved_hooks_disabled
    if message is not None:
        raise AutogradError(message)


class save_on_cpu(saved_tensors_hooks):
    """Keep what operations save for backward in host memory.

    Args:
        pin_memory: use pinned memory: devices copy to it and from it while they compute, in a
            separate stream, and the tensors needed next are copied back ahead of time.
        device_type: ignored, for PyTorch's programs.
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        if pin_memory:
            offload = Offload()
            super().__init__(offload.pack, offload.unpack)
        else:
            super().__init__(
                lambda tensor: (tensor.cpu(), tensor.device), lambda packed: packed[0].to(packed[1])
            )


class save_to_disk(saved_tensors_hooks):
    """Keep what operations save for backward in files, which threads write and read.

    Args:
        directory: where the files are made; a file is removed when its tensor is released.
        prefetch: how many files are read ahead of time.
    """

    def __init__(
        self, directory: str | os.PathLike[str] | None = None, *, prefetch: int = 1
    ) -> None:
        """Choose the directory; None is the system's directory for temporary files."""

        async def unpack(file: _File) -> Any:
            # Pass the path: the thread might keep a `_File`, and so the file on disk, alive.
            tensor = wrap(await asyncio.to_thread(_read, file.path, file.metadata), file.metadata)
            return tensor.to(file.device)

        def pack(tensor: Value) -> Any:
            # Copy now: the tensor may change before the coroutine runs.
            host = tensor.clone() if str(tensor.device) == "cpu" else tensor.cpu()
            return write(host, tensor.device)

        async def write(host: Any, device: Device) -> _File:
            # Return through a list: a thread might keep its return value, and so the file, alive.
            written: list[_File] = []
            await asyncio.to_thread(lambda: written.append(_File(host, device, directory)))
            return written.pop()

        super().__init__(pack, unpack, prefetch=prefetch)


class _File:
    """A tensor's values in a file, which is removed with this object."""

    __slots__ = ("__weakref__", "device", "metadata", "path")

    def __init__(self, host: Any, device: Device, directory: Any) -> None:
        """Write the values of a tensor on the host; `device` is where it came from."""
        import tempfile  # Few programs keep files, and a thread may wait for the import.

        handle, self.path = tempfile.mkstemp(dir=directory)
        remove = weakref.finalize(self, _remove, self.path)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_bytes_of(np.ascontiguousarray(host._array)))
        except BaseException:
            # The error may keep this object, and the disk may be full.
            remove()
            raise
        self.metadata = host._metadata
        self.device = device


def _read(path: str, metadata: Metadata) -> Any:
    array = np.empty(metadata.shape, metadata.dtype)
    with open(path, "rb") as file:
        file.readinto(_bytes_of(array))
    return array


def _bytes_of(array: Array) -> Any:
    """The memory of an array as bytes; NumPy's own file format lacks some dtypes."""
    return array.reshape(-1).view(np.uint8)


def _remove(path: str) -> None:
    """Remove a file; in a thread if this thread runs a loop."""

    def remove() -> None:
        with suppress(FileNotFoundError):
            os.unlink(path)

    loop = _get_running_loop()
    if loop is not None:
        # A loop that shuts down accepts no more work; then remove the file here.
        with suppress(RuntimeError):
            loop.run_in_executor(None, remove)
            return
    remove()


class disable_saved_tensors_hooks(Mode):
    """Make the use of saved-tensor hooks an error in this context, with the given message."""

    def __init__(self, error_message: str) -> None:
        self._message = error_message
        super().__init__(saved_hooks_disabled=error_message)

    def __enter__(self) -> Any:
        """Disable hooks; raises RuntimeError if hooks are already in force."""
        if current().saved_hooks is not None:
            raise AutogradError(self._message)
        return super().__enter__()


# -- changes in place of saved tensors ------------------------------------------------------------


class _Handle:
    """Stands in the graph for a saved tensor at one version."""

    __slots__ = ("__weakref__",)


class MutationContext:
    """The tensors saved within `allow_mutation_on_saved_tensors`, and clones of changed ones."""

    def __init__(self) -> None:
        #: Keyed by handle. The graph holds the handles, so entries go with the graph.
        self.original: weakref.WeakKeyDictionary[_Handle, Any] = weakref.WeakKeyDictionary()
        self.cloned: weakref.WeakKeyDictionary[_Handle, Any] = weakref.WeakKeyDictionary()
        #: By id of the array that owns the memory: the handles of tensors not changed since.
        self._handles: dict[int, weakref.WeakSet[_Handle]] = {}

    def pack(self, tensor: Value) -> _Handle:
        """Save a tensor without a copy; `before_change` clones it if it is changed."""
        handles = self._handles.setdefault(id(owner_of(tensor._array)), weakref.WeakSet())
        for handle in handles:
            if self.original[handle]._array is tensor._array:
                return handle
        handle = _Handle()
        self.original[handle] = tensor
        handles.add(handle)
        return handle

    def unpack(self, handle: _Handle) -> Any:
        """The tensor as it was when it was saved."""
        if current().before_change != self.before_change:
            raise AssertionError(_OUTSIDE)
        tensor = self.cloned.get(handle)
        if tensor is None:
            tensor = self.original.get(handle)
        if tensor is None:
            raise AssertionError(_OUTSIDE)
        return tensor

    def before_change(self, tensor: Value) -> None:
        """Clone the saved tensors that share memory with a tensor about to be changed."""
        for handle in self._handles.pop(id(owner_of(tensor._array)), ()):
            saved = self.original.pop(handle, None)
            if saved is not None:
                metadata = saved._metadata
                self.cloned[handle] = wrap(metadata.F.clone(saved._array), metadata)

    def clear(self) -> None:
        """Drop everything; the graph can't be used any more."""
        self.original.clear()
        self.cloned.clear()
        self._handles.clear()


_OUTSIDE = (
    "Trying to backward outside of the 'allow_mutation_on_saved_tensors' context in which the "
    "graph was originally recorded."
)


@contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[MutationContext]:
    """Let saved tensors be changed in place, by cloning them before the change.

    Passes over a graph recorded here have to run here, too. Such contexts can't be nested.

    Yields:
        The context, with the tensors saved and cloned so far.

    Raises:
        RuntimeError: if such contexts are nested.
    """
    if current().before_change is not None:
        raise AutogradError("allow_mutation_on_saved_tensors contexts cannot be nested")
    check_enabled()
    context = MutationContext()
    hooks = SavedHooks(context.pack, context.unpack)
    try:
        with Mode(saved_hooks=hooks, before_change=context.before_change):
            yield context
    finally:
        context.clear()
