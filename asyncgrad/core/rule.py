"""What a node made by the table of derivatives knows about its gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Rule:
    """One entry of the table, for one choice of the inputs that require grad.

    The engine calls `run(F, gradient, saved)`, where `F` is the namespace to compute with: raw
    array functions in an ordinary pass, recorded ones where the pass records itself. It answers
    with the gradient for the node's single next edge, or a tuple with one for each next edge.
    """

    __slots__ = (
        "apart",
        "arity",
        "arrays",
        "fresh",
        "keepable",
        "name",
        "names",
        "outliving",
        "passes",
        "places",
        "plain",
        "pulls",
        "renew",
        "run",
        "saves",
        "unpack",
        "variant",
    )

    def __init__(
        self,
        name: str,
        run: Callable[[Any, Any, Any], Any],
        *,
        pulls: tuple[Callable[[Any, Any, Any], Any], ...] | None = None,
        fresh: bool = False,
        passes: bool = False,
        saves: bool = False,
        unpack: Callable[[Any], Any] | None = None,
        outliving: Callable[[Any], tuple[Any, ...]] | None = None,
        plain: tuple[str, ...] = (),
        places: tuple[int, ...] = (0,),
        arity: int = 1,
        names: tuple[str, ...] = (),
        arrays: tuple[tuple[int, int], ...] = (),
        apart: bool = False,
        variant: Callable[[dict[str, Any]], str] | None = None,
        renew: Callable[[Any, Any], Any] | None = None,
        keepable: frozenset[str] = frozenset(),
    ) -> None:
        """Describe the entry; see the attributes."""
        #: The node's name, PyTorch's spelling.
        self.name = name
        #: The name where it depends on the call, from what is saved in `plain`.
        self.variant = variant
        self.run = run
        #: The same, one call for each next edge: a pass that needs few inputs calls only those.
        self.pulls = pulls
        #: `run` does what the pulls do and nothing else: they may run side by side instead.
        self.apart = apart and pulls is not None
        #: What `run` returns is new and nobody else's: it may be stolen or added into.
        self.fresh = fresh
        #: With one next edge: what comes back is the gradient itself, or a view of it.
        self.passes = passes
        #: `saved` is given up when the node has run: it holds arrays, or stands for some.
        self.saves = saves
        #: `saved` as tensors that lead into the graph, from the node.
        self.unpack = unpack
        #: The saved values that are no arrays, from `saved`; None where there are none.
        self.outliving = outliving
        #: Their names.
        self.plain = plain
        #: Which of the function's inputs the next edges stand for, and how many inputs it has.
        self.places = places
        self.arity = arity
        #: What is saved, by name, and which of it are arrays: (position, input or -1 for the
        #: output).
        self.names = names
        self.arrays = arrays
        #: Computes the saved output again, `renew(F, saved)`; None where it must not change.
        self.renew = renew
        #: What is saved where other inputs require grad, by name.
        self.keepable = keepable
