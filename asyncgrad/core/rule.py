"""What a node made by the table of derivatives knows about its gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from asyncgrad.aliases import Namespace, NodeGradient, Saved

    #: A rule, or the part of one that gives one gradient.
    Run: TypeAlias = Callable[[Namespace, NodeGradient, Saved], Any]


class Rule:
    """One entry of the table, for one choice of the inputs that require grad.

    The engine calls `run(F, gradient, saved)`, where `F` is the namespace to compute with: raw
    array functions in an ordinary pass, recorded ones where the pass records itself. It returns the
    gradient for the node's single next edge, or a tuple with one for each next edge.
    """

    __slots__ = (
        "apart", "arity", "arrays", "fresh", "keepable", "name", "names", "needs", "outliving",
        "over", "passes", "places", "plain", "pulls", "renew", "run", "saves", "variant",
    )  # fmt: skip

    def __init__(
        self, name: str, run: Run, *, pulls: tuple[Run, ...] | None = None,
        needs: tuple[frozenset[int], ...] = (), over: Run | None = None, fresh: bool = False,
        passes: bool = False, saves: bool = False,
        outliving: Callable[[Saved], tuple[Any, ...]] | None = None, plain: tuple[str, ...] = (),
        places: tuple[int, ...] = (0,), arity: int = 1, names: tuple[str, ...] = (),
        arrays: tuple[tuple[int, int], ...] = (), apart: bool = False,
        variant: Callable[[dict[str, Any]], str] | None = None,
        renew: Callable[[Namespace, Saved], Any] | None = None,
        keepable: frozenset[str] = frozenset(),
    ) -> None:  # fmt: skip
        #: The node's name, as PyTorch spells it.
        self.name = name
        #: Computes the name where it depends on the call, from the saved values in `plain`.
        self.variant = variant
        self.run = run
        #: `run` split by next edge: a pass that needs few inputs calls only their pulls.
        self.pulls = pulls
        #: For each pull, the positions of the saved values that it uses.
        self.needs = needs
        #: What does the same as `run`, and may overwrite the gradient; None if there is none.
        self.over = over
        #: The pulls, which may run in parallel as `run` does no more than they do; else None.
        self.apart = pulls if apart else None
        #: Nothing else refers to what `run` returns: it may be kept or added into.
        self.fresh = fresh
        #: With one next edge: `run` returns the gradient itself, or a view of it.
        self.passes = passes
        #: `saved` holds arrays, or values that stand for some, and is released after the run.
        self.saves = saves
        #: Extracts the saved values that are not arrays from `saved`; None if there are none.
        self.outliving = outliving
        #: The names of those values.
        self.plain = plain
        #: The positions of the inputs that the next edges belong to, and the number of inputs.
        self.places = places
        self.arity = arity
        #: The names of saved values, and which of these are arrays: pairs of a position and the
        #: input's number (-1 for the output).
        self.names = names
        self.arrays = arrays
        #: Computes the saved output again, `renew(F, saved)`; None where it must not change.
        self.renew = renew
        #: The names of values that are saved if other inputs require grad.
        self.keepable = keepable
