"""The interface of engines: they start processes on machines, connect them, and notice deaths.

The rest of this package uses nothing of an engine but these five methods.
"""

from __future__ import annotations

import copyreg
import pickle
import platform
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import numpy as np

import asyncgrad
from asyncgrad.core.modes import current
from asyncgrad.distributed.errors import dumps, sendable
from asyncgrad.distributed.messages import MESSAGES, Message
from asyncgrad.errors import AutogradError, add_note
from asyncgrad.ops.tensors.copies import Differentiable, noted
from asyncgrad.ops.tensors.pytree import flatten

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


class Host(Protocol):
    """What an engine runs on a worker."""

    async def take(self, message: Message) -> tuple[bool, Any]:
        """Run the method that a message names: whether it succeeded, and its result or error."""

    async def close(self) -> None:
        """Drop everything, and end what runs: nobody calls it any more."""


class Peers(Protocol):
    """Calls hosts; can be pickled, so that hosts can call one another."""

    async def call(self, rank: int, message: Message) -> tuple[bool, Any]:
        """Await `take(message)` of a host, and return what it returns; `sent` pickles the message.

        A host takes each message once. If the message is sent again, the answer of the first one to
        arrive has to be returned: the others are refused.

        Raises:
            OSError: if the host can't be reached any more.
        """


@runtime_checkable
class Engine(Peers, Protocol):
    """Runs one host on each of some workers."""

    async def start(self, factory: Callable[[int], Host]) -> int:
        """Make the hosts, `factory(rank)` on the worker of each rank, and return their number."""

    def lost(self, rank: int) -> asyncio.Future[str]:
        """Resolved with the reason when a worker is known to have died."""

    def peers(self) -> Peers:
        """An object, to be pickled, by which hosts call one another."""

    async def close(self) -> None:
        """Drop the hosts, and all that refers to them."""


def sent(message: Message, seal: Callable[[Message], T]) -> T:
    """Pickle a message.

    Args:
        message: for another machine.
        seal: pickles it.

    Raises:
        RuntimeError: if a tensor in it requires grad, also one in an attribute or a closure, but
            for parameters of modules: a module is copied. What a part takes as it is comes without.
        TypeError: if something in it can't be pickled.
    """
    try:
        return _checked(message, message, seal)
    except _UNPICKLABLE as error:
        raise _unsendable(message, "its arguments", message.args, seal, error) from error


def _checked(message: Message, value: Any, seal: Callable[[Any], T]) -> T:
    """Pickle a message or its answer; raise if a tensor in it would lose its gradient."""
    found = Differentiable()
    token = noted.set(found)
    try:
        sealed = seal(value)
    finally:
        noted.reset(token)
    for tensor in found.alone():
        raise AutogradError(
            f"{message.called}: a tensor of shape {tensor._metadata.shape} requires grad, and is "
            f"in an attribute or a closure of plain data that is sent to or from a worker. No "
            f"gradient would come back to it: give x.detach(), or call a part with it. Only "
            f"tensors that a part takes or gives as they are, or in lists, tuples and "
            f"dictionaries, have gradients. Modules are copied, and their parameters may require "
            f"grad"
        )
    return sealed


def copied(value: Any) -> Any:
    """What arrives of a value that is sent: it shares no memory with this."""
    buffers: list[pickle.PickleBuffer] = []
    header = dumps(value, buffers.append)
    # Not a bytearray, which holds the interpreter's lock while it is filled.
    return pickle.loads(header, buffers=[np.array(buffer.raw()) for buffer in buffers])


async def answered(host: Host, opened: Callable[[], Message], sealed: Callable[[Any], T]) -> T:
    """Give a host a message, and pickle its answer, or an error if either can't be pickled.

    Args:
        host: the receiver of the message.
        opened: unpickles the message.
        sealed: pickles the answer.
    """
    try:
        message = opened()
    except BaseException as error:
        if not isinstance(error, Exception):
            # Raised here, it would stop the worker's loop.
            error = AutogradError(
                f"a message raised {error!r} on a worker, perhaps in a module that it imports: a "
                f"script does its work below `if __name__ == '__main__':`"
            )
        if isinstance(error, ImportError):
            add_note(error, "install it on all workers, or send it by client.upload_file(path)")
        answer: Any = False, sendable(error)
    else:
        answer = await host.take(message)
    try:
        if answer[0] and MESSAGES[message.method].has_results:
            return _checked(message, answer, sealed)
        return sealed(answer)
    except _UNPICKLABLE as error:
        return sealed((False, _unsendable(message, "its result", answer[1], sealed, error)))
    except Exception as error:
        return sealed((False, sendable(error)))


#: What pickle, and cloudpickle, raise.
_UNPICKLABLE = (pickle.PicklingError, TypeError, AttributeError, RecursionError)


def _unsendable(
    message: Message, where: str, value: Any, seal: Callable[[Any], Any], error: Exception
) -> TypeError:
    """The error for a value that can't be pickled, which names what in it can't be."""
    found = value
    for leaf in flatten(value)[0]:
        try:
            seal(leaf)
        except _UNPICKLABLE:
            found = leaf
            break
    what = f"{type(found).__name__} {getattr(found, '__qualname__', '')}".rstrip()
    return TypeError(
        f"{message.called}: a {what} in {where} can't be pickled, and so not be sent to another "
        f"process: {error}. Send plain data, tensors, or functions and classes of a module; make "
        f"the rest where it is used"
    )


def _modes_variable() -> ContextVar[Any]:
    return current.__self__  # type: ignore[attr-defined,no-any-return]


def _reduced(variable: ContextVar[Any]) -> Any:
    """Pickle the variable of the modes.

    The functions that this package makes of users' own use it, such as the step of an optimizer. If
    the class is from a script or a notebook, it is sent with all that it uses.
    """
    return (_modes_variable, ()) if variable is _modes_variable() else _otherwise(variable)


#: As another package has registered it; without one, this raises Python's error.
_otherwise: Callable[[ContextVar[Any]], Any] = copyreg.dispatch_table.get(
    ContextVar, lambda variable: variable.__reduce_ex__(2)
)
copyreg.pickle(ContextVar, _reduced)


def versions() -> dict[str, str]:
    """The versions that have to be the same on all machines."""
    return {
        "asyncgrad": asyncgrad.__version__,
        "numpy": np.__version__,
        "Python": ".".join(platform.python_version_tuple()[:2]),
    }


def check_versions(worker: str, found: dict[str, str]) -> None:
    """Raise unless a worker has this process' versions."""
    if found != (own := versions()):
        raise AutogradError(
            f"connect: the worker {worker} has other versions than the caller: {found}, here "
            f"{own}. Install the same on all machines."
        )
