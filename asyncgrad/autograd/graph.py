"""The graph from outside: its nodes and edges, and hooks on what it saves and computes."""

from __future__ import annotations

import asyncio
import inspect
import os
import tempfile
import weakref
from asyncio.events import _get_running_loop
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncgrad.autograd.edges import GradientEdge, get_gradient_edge
from asyncgrad.core.evaluate import call_node
from asyncgrad.core.exec_info import predicted_order, reachable
from asyncgrad.core.hooks import RemovableHandle
from asyncgrad.core.modes import Mode, current
from asyncgrad.core.node import Node, as_edge, bind_caller
from asyncgrad.core.saved import SavedHooks
from asyncgrad.core.variable import Variable, bump_version, gradient_edge, wrap
from asyncgrad.errors import AutogradError
from asyncgrad.ops.namespace import RECORDED
from asyncgrad.scheduler import portal

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence

    from asyncgrad.core.graph_task import GraphTask
    from asyncgrad.tensor import Tensor

__all__ = [
    "GradientEdge", "Node", "allow_mutation_on_saved_tensors", "disable_saved_tensors_hooks",
    "get_gradient_edge", "increment_version", "queue_callback", "register_multi_grad_hook",
    "save_on_cpu", "save_to_disk", "saved_tensors_hooks",
]  # fmt: skip


def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Note that tensors have been changed in place by other means than functions of tensors."""
    for one in (tensor,) if isinstance(tensor, Variable) else tensor:
        if one._autograd is None or not one._autograd.inference:
            bump_version(one)


def queue_callback(callback: Callable[[], Any]) -> None:
    """Have a function called when the present pass has run all its nodes.

    Callbacks run in the order they were queued, and may queue others. The gradients of the pass
    are committed after them; if one fails, so does the pass, and nothing is committed.

    Raises:
        RuntimeError: outside of a pass.
    """
    task = current().graph_task
    if task is None:
        raise AutogradError("Final callbacks can only be installed during backward pass.")
    task.callbacks.append(callback)


#: The numbers that passes have been given when somebody asked.
_numbers: weakref.WeakKeyDictionary[GraphTask, int] = weakref.WeakKeyDictionary()
_next_number = count().__next__


def _current_graph_task_id() -> int:
    """A number for the pass that runs here, -1 outside of one."""
    task = current().graph_task
    if task is None:
        return -1
    number = _numbers.get(task)
    if number is None:
        number = _numbers[task] = _next_number()
    return number


def _current_graph_task_execution_order() -> list[Node]:
    """The nodes of the pass that runs here, in the order in which it runs them.

    Raises:
        RuntimeError: outside of a pass.
    """
    task = current().graph_task
    if task is None:
        raise AutogradError(
            "_current_graph_task_execution_order should only be called during the backward pass."
        )
    return predicted_order(task.root, task.exec_info)


# -- saved tensors -------------------------------------------------------------------------------


class saved_tensors_hooks(Mode):
    """Pack what operations save for backward, and unpack it when it is used.

    As a context manager or decorator. Either hook may be a coroutine function: what packs runs
    beside the forward pass, and a node waits for what unpacks while everything else that is ready
    goes on. Only the innermost pair is used.

    Args:
        pack_hook: takes a tensor that is saved and returns what to keep in its place. It must not
            change the tensor.
        unpack_hook: takes what was kept and returns the tensor, each time it is used.

    Example:
        >>> import asyncgrad as ag
        >>> x = ag.ones(2, requires_grad=True)
        >>> with ag.autograd.graph.saved_tensors_hooks(lambda t: t.numpy(), ag.from_numpy):
        ...     y = x * x
        >>> y.grad_fn._saved_self
        tensor([1., 1.], grad_fn=<AccumulateGrad>)
    """

    def __init__(self, pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]) -> None:
        """Keep the pair; it is used from `__enter__` on."""
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook
        super().__init__(saved_hooks=_hooks(pack_hook, unpack_hook))

    def __enter__(self) -> Any:
        """Use the pair.

        Raises:
            RuntimeError: where `disable_saved_tensors_hooks` is in force.
        """
        _check_enabled()
        return super().__enter__()

    def _again(self) -> Mode:
        return saved_tensors_hooks(self.pack_hook, self.unpack_hook)


def _check_enabled() -> None:
    message = current().saved_hooks_disabled
    if message is not None:
        raise AutogradError(message)


def _hooks(pack: Callable[[Any], Any], unpack: Callable[[Any], Any]) -> SavedHooks:
    """The pair as the graph knows it."""
    for name, hook in (("pack_hook", pack), ("unpack_hook", unpack)):
        if not callable(hook):
            raise TypeError(
                f"saved_tensors_hooks: {name} has to be callable, not {type(hook).__name__}"
            )
    if not inspect.iscoroutinefunction(pack) and not inspect.iscoroutinefunction(unpack):
        return SavedHooks(pack, unpack)

    def start(tensor: Any) -> Any:
        packed = pack(tensor)
        return _begun(packed) if inspect.iscoroutine(packed) else packed

    async def finish(packed: Any) -> Any:
        if isinstance(packed, asyncio.Task):
            packed = await packed
        tensor = unpack(packed)
        return await tensor if inspect.iscoroutine(tensor) else tensor

    return SavedHooks(start, finish, waits=True)


def _begun(packing: Coroutine[Any, Any, Any]) -> Any:
    """A coroutine, running beside the forward pass; its result where no loop runs."""
    if _get_running_loop() is not None:
        return asyncio.ensure_future(packing)

    async def wait() -> Any:
        return await packing

    return portal().call(wait)


class save_on_cpu(saved_tensors_hooks):
    """Keep what operations save for backward in the memory of the host.

    Args:
        pin_memory: keep it where devices can copy it from while they compute.
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        """Choose the kind of memory."""

        def pack(tensor: Any) -> tuple[Any, Any]:
            return tensor.device, tensor if str(tensor.device) == "cpu" else tensor.cpu()

        def unpack(packed: tuple[Any, Any]) -> Any:
            device, tensor = packed
            return tensor if device == tensor.device else tensor.to(device)

        super().__init__(pack, unpack)


class save_to_disk(saved_tensors_hooks):
    """Keep what operations save for backward in files, written and read by threads.

    Args:
        directory: where the files are made; each is removed when what it holds is given up.
    """

    def __init__(self, directory: str | os.PathLike[str] | None = None) -> None:
        """Choose the directory, the system's for temporary files if None."""

        async def unpack(file: _File) -> Any:
            # The thread may hold what it was given for longer than the file is to be there.
            return wrap(await asyncio.to_thread(np.load, file.path), file.metadata)

        def pack(tensor: Any) -> Any:
            # Copied at once: the tensor may change before the coroutine gets its turn.
            array, metadata = tensor._array.copy(), tensor._metadata
            return asyncio.to_thread(_File, array, metadata, directory)

        super().__init__(pack, unpack)


class _File:
    """An array in a file, which goes with it."""

    __slots__ = ("__weakref__", "metadata", "path")

    def __init__(self, array: Any, metadata: Any, directory: Any) -> None:
        """Write the array."""
        handle, name = tempfile.mkstemp(suffix=".npy", dir=directory)
        with os.fdopen(handle, "wb") as file:
            np.save(file, array)
        self.path = Path(name)
        self.metadata = metadata
        weakref.finalize(self, self.path.unlink, missing_ok=True)


class disable_saved_tensors_hooks(Mode):
    """Make it an error to use saved-tensor hooks in this context.

    Args:
        error_message: what the error says.
    """

    def __init__(self, error_message: str) -> None:
        """Keep the message."""
        self._message = error_message
        super().__init__(saved_hooks_disabled=error_message)

    def __enter__(self) -> Any:
        """Refuse hooks from here on.

        Raises:
            RuntimeError: if hooks are in force already.
        """
        if current().saved_hooks is not None:
            raise AutogradError(self._message)
        return super().__enter__()

    def _again(self) -> Mode:
        return disable_saved_tensors_hooks(self._message)


# -- changes of saved tensors --------------------------------------------------------------------


class _Handle:
    """Stands for a tensor that was saved, at one version."""

    __slots__ = ("__weakref__",)


class MutationContext:
    """The tensors saved within `allow_mutation_on_saved_tensors`, and clones of those changed."""

    def __init__(self) -> None:
        """Start with none."""
        #: By handle, which the graph holds: they go with it.
        self.original: weakref.WeakKeyDictionary[_Handle, Any] = weakref.WeakKeyDictionary()
        self.cloned: weakref.WeakKeyDictionary[_Handle, Any] = weakref.WeakKeyDictionary()
        #: The handles of a version counter at a version: of a tensor and all that shares with it.
        self._handles: dict[tuple[int, int], weakref.WeakSet[_Handle]] = {}

    def pack(self, tensor: Any) -> _Handle:
        """Keep a tensor as it is, until it is changed."""
        key = (id(tensor._counter), tensor._counter.value)
        handles = self._handles.setdefault(key, weakref.WeakSet())
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

    def before_change(self, tensor: Any) -> None:
        """Clone what has been saved of a tensor that is about to be changed."""
        counter = tensor._counter
        if counter is None:
            return
        for handle in self._handles.pop((id(counter), counter.value), ()):
            saved = self.original.pop(handle, None)
            if saved is not None:
                self.cloned[handle] = wrap(saved._array.copy(), saved._metadata)

    def clear(self) -> None:
        """Let go of everything: the graph can't be used any more."""
        self.original.clear()
        self.cloned.clear()
        self._handles.clear()


_OUTSIDE = (
    "Trying to backward outside of the 'allow_mutation_on_saved_tensors' context in which the "
    "graph was originally recorded."
)


@contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[MutationContext]:
    """Let saved tensors be changed in place: they are cloned before.

    Passes over what is recorded here have to run here, too.

    Yields:
        What was saved and cloned so far.

    Raises:
        RuntimeError: inside of another such context.
    """
    if current().before_change is not None:
        raise AutogradError("allow_mutation_on_saved_tensors contexts cannot be nested")
    _check_enabled()
    context = MutationContext()
    hooks = SavedHooks(context.pack, context.unpack)
    try:
        with Mode(saved_hooks=hooks, before_change=context.before_change):
            yield context
    finally:
        context.clear()


# -- hooks on several tensors ------------------------------------------------------------------


class _Handles(RemovableHandle):
    """Removes several hooks."""

    __slots__ = ("_handles",)

    def __init__(self, handles: Iterable[RemovableHandle]) -> None:
        """Stand for handles."""
        self._handles = tuple(handles)

    def remove(self) -> None:
        """Take all of them out."""
        for handle in self._handles:
            handle.remove()


def register_multi_grad_hook(
    tensors: Sequence[Tensor], fn: Callable[..., Any], *, mode: str = "all"
) -> RemovableHandle:
    """Call a function once in a pass, with the gradients of several tensors.

    Args:
        tensors: the tensors.
        fn: a function or coroutine function. With `mode="all"` it is called when the last of the
            gradients that this pass computes has come, with a list that has None for the others;
            with `mode="any"` with the first gradient that comes.
        mode: "all" or "any".

    Returns:
        A handle with `remove()`.

    Raises:
        ValueError: for another mode.
    """
    if mode not in {"all", "any"}:
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    if mode == "any":
        ran: weakref.WeakSet[GraphTask] = weakref.WeakSet()

        def first(gradient: Any) -> Any:
            task = current().graph_task
            if task in ran:
                return None
            ran.add(task)
            return fn(gradient)

        return _Handles([t.register_hook(first) for t in tensors if t.requires_grad])

    edges = [as_edge(gradient_edge(tensor)) for tensor in tensors]
    if any(edge.node is None for edge in edges):
        raise AssertionError("Expected gradient function to be set")
    waiting: weakref.WeakKeyDictionary[GraphTask, _Gathered] = weakref.WeakKeyDictionary()

    def one_of_them(place: int) -> Callable[[Any], Any]:
        def hook(gradient: Any) -> Any:
            task = current().graph_task
            gathered = waiting.get(task)
            if gathered is None:
                gathered = waiting[task] = _Gathered(task, edges)
            gathered.gradients[place] = gradient
            gathered.left -= 1
            if gathered.left:
                return None
            del waiting[task]
            return fn(gathered.gradients)

        return hook

    return _Handles([t.register_hook(one_of_them(i)) for i, t in enumerate(tensors)])


class _Gathered:
    """The gradients of several tensors in one pass."""

    __slots__ = ("gradients", "left")

    def __init__(self, task: GraphTask, edges: Sequence[Any]) -> None:
        """Find out how many will come."""
        self.gradients: list[Any] = [None] * len(edges)
        nodes = [edge.node for edge in edges]
        if task.exec_info is not None:
            self.left = sum(map(task.exec_info.should_execute, nodes))
        else:
            self.left = sum(node in reached for reached in [reachable(task.root, nodes)]
                            for node in nodes)  # fmt: skip


def _call(node: Node, gradients: tuple[Any, ...]) -> Any:
    """A node on gradients, outside of a pass: recorded like any other function."""
    received = call_node(node, gradients, RECORDED)
    return received[0] if len(received) == 1 else received


bind_caller(_call)
