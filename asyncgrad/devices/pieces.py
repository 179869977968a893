"""Long work in pieces, which idle threads of an engine take, too.

How work is cut depends on its shape alone, so its bits do not depend on who computes the pieces, on
how many cores there are, or on what else runs. A piece takes about a third of a millisecond. After
each one the thread offers its core and the GIL to other threads, above all to that of an event loop
(`offer_core` in `cores`).
"""

from __future__ import annotations

from _thread import _local
from collections.abc import Callable, Sequence
from functools import lru_cache
from queue import SimpleQueue
from typing import Any, Protocol

from asyncgrad.devices.cores import offer_core, waited
from asyncgrad.devices.fp_errors import without_fp_errors

#: About the bytes that a piece of a product reads if it has no cache: a third of a millisecond.
_PIECE = 1 << 26
#: Tiles have at least so many rows and columns: a product's operands are copied for each tile.
_ROWS, _COLUMNS = 256, 64


class Lender(Protocol):
    """The threads of an engine."""

    def lend(self, job: Callable[[], None], most: int) -> int:
        """Run a job, which does not raise, in at most so many idle threads; says in how many."""

    def most_urgent(self) -> object:
        """None unless a job waits for a thread."""


class _Here(_local):
    """What a thread knows of its engine, and of the program (`replay`) that it runs."""

    #: The engine's threads, of which idle ones take pieces; None without an engine.
    lender: Lender | None = None
    #: It is one of these threads, and not that of the event loop.
    is_engine_thread = False
    #: Where the program's large arrays are: see `devices/arena.py`.
    arena: Any = None


here = _Here()
#: How many threads may compute the pieces of one product. It is 0 without an engine: products are
#: not cut then, because BLAS computes them with threads of its own.
threads = 0


def in_pieces(call: Callable[[Any], object], pieces: Sequence[Any]) -> None:
    """Call a function for each piece, here and in idle threads of the same engine."""
    lender = here.lender
    if lender is None:
        for piece in pieces:
            call(piece)
    else:
        _Work(call, pieces, lender).run()


def pipelined(
    first: Callable[[Any], object], then: Callable[[Any], object], parts: Sequence[Any]
) -> None:
    """Call `first` for each part, in their order, and `then` for each part after its `first`.

    `first` is called in this thread, and idle threads of the same engine call `then` meanwhile.
    """
    lender = here.lender
    if lender is None or len(parts) < 2:
        for call in (first, then):
            for part in parts:
                call(part)
        return
    #: For each part a queue, which gets an entry when `first` has returned.
    ready: list[SimpleQueue[None]] = [SimpleQueue() for _ in parts]

    def compute(place: int) -> None:
        if place >= 0:
            ready[place].get()
            then(parts[place])
            return
        for part, queue in zip(parts, ready, strict=True):
            first(part)
            queue.put(None)
            work.ask()

    def wake_all() -> None:
        # After an error nobody may wait for ever.
        for queue in ready:
            queue.put(None)

    # Piece -1 calls `first` for all parts. This thread takes it, because it takes the first piece.
    work = _Work(compute, range(-1, len(parts)), lender, wake_all)
    try:
        work.run()
    except BaseException:
        # An interrupt may have come between two pieces.
        wake_all()
        raise


class _Work:
    """Work whose pieces several threads take."""

    __slots__ = ("_call", "_failed", "_left", "_lender", "_more", "_reports", "_total")

    def __init__(
        self, call: Callable[[Any], object], pieces: Sequence[Any], lender: Lender,
        failed: Callable[[], object] | None = None,
    ) -> None:  # fmt: skip
        self._call: Callable[[Any], object] | None = call
        #: Called after an error in this thread, before it waits for the others.
        self._failed = failed
        self._lender = lender
        self._total = len(pieces)
        #: How many threads may still be asked to help.
        self._more = min(threads, self._total) - 1
        #: Popping a piece claims it.
        self._left = list(reversed(pieces))
        #: The error of each piece that another thread has claimed, or None.
        self._reports: SimpleQueue[BaseException | None] = SimpleQueue()

    def run(self) -> None:
        """Compute what nobody else takes, and wait for the rest."""
        error: BaseException | None = None
        own = 0
        while (piece := self._claim()) is not None:
            own += 1
            self.ask()
            if error is None:
                error = self._compute(piece)
        if error is not None and self._failed is not None:
            self._failed()
        for _ in range(self._total - own):
            report = self._reports.get()
            error = error or report
        # A helper may still hold this object, and must not hold the arrays.
        self._call = None
        if error is not None:
            try:
                raise error
            finally:
                # The traceback holds this frame: a cycle.
                error = report = None

    def ask(self) -> None:
        """Ask threads for help, also those that have become idle since the first piece."""
        if self._more > 0 and self._left:
            self._more -= self._lender.lend(self._help, self._more)

    @without_fp_errors
    def _help(self) -> None:
        """Compute pieces in another thread, until a whole job waits for it."""
        while self._lender.most_urgent() is None and (piece := self._claim()) is not None:
            self._reports.put(self._compute(piece))

    def _claim(self) -> Any:
        """The next piece, None if there is none."""
        try:
            return self._left.pop()
        except IndexError:
            return None

    def _compute(self, piece: Any) -> BaseException | None:
        """Compute a piece; returns its error."""
        before = waited()
        assert self._call is not None
        try:
            self._call(piece)
        except BaseException as error:
            return error
        offer_core(before)
        return None


def product(multiply: Callable[[Any, Any, Any], object], x: Any, y: Any, out: Any) -> None:
    """Compute a product of matrices in pieces; `multiply` computes one, in this thread alone."""
    tiles = _tiles(x.shape[0], x.shape[1] * x.itemsize, y.shape[1]) if threads else ()
    if len(tiles) < 2:
        multiply(x, y, out)
    else:
        in_pieces(lambda at: multiply(x[at[0]], y[:, at[1]], out[at]), tiles)


@lru_cache(maxsize=1024)
def _tiles(rows: int, inner: int, columns: int) -> tuple[tuple[slice, slice], ...]:
    """Cut a product's result; a row of the left operand has `inner` bytes."""
    most = max(1, _PIECE // max(1, inner))
    if rows * columns < 2 * most:
        return ((slice(rows), slice(columns)),)
    # The closer to squares tiles are, the less of the operands is copied.
    width = min(columns, max(_COLUMNS, most // min(rows, _ROWS) // _COLUMNS * _COLUMNS))
    height = max(_ROWS, -(-rows // max(1, round(rows * width / most))))
    return tuple(
        (slice(row, row + height), slice(column, column + width))
        for row in range(0, rows, height)
        for column in range(0, columns, width)
    )
