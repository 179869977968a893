"""What a node made by the table of derivatives knows about its gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from asyncgrad.aliases import Namespace, NodeGradient, Saved

    #: A rule, or the part of one that gives one gradient.
    Run: TypeAlias = Callable[[Namespace, NodeGradient, Saved], Any]


@dataclass(slots=True, eq=False, repr=False)
class Rule:
    """One entry of the table, for one choice of the inputs that require grad.

    The engine calls `run(F, gradient, saved)`, where `F` is the namespace to compute with: raw
    array functions in an ordinary pass, recorded ones where the pass records itself. It returns the
    gradient for the node's single next edge, or a tuple with one for each next edge.
    """

    #: The node's name, as PyTorch spells it.
    name: str
    run: Run
    #: `run` split by next edge: a pass that needs few inputs calls only their pulls.
    pulls: tuple[Run, ...] | None = None
    #: For each pull, the positions of the saved values that it uses.
    needs: tuple[frozenset[int], ...] = ()
    #: What does the same as `run`, and may overwrite the gradient; None if there is none.
    over: Run | None = None
    #: `run` does no more than the pulls do, so these may run in parallel instead.
    apart: bool = False
    #: Nothing else refers to what `run` returns: it may be kept or added into.
    fresh: bool = False
    #: With one next edge: `run` returns the gradient itself, or a view of it.
    passes: bool = False
    #: `saved` holds arrays, or values that stand for some, and is released after the run.
    saves: bool = False
    #: Extracts the saved values that are not arrays from `saved`; None if there are none.
    outliving: Callable[[Saved], tuple[Any, ...]] | None = None
    #: The names of those values.
    outliving_names: tuple[str, ...] = ()
    #: Computes the node's name where it depends on the call, from those values.
    variant: Callable[[dict[str, Any]], str] | None = None
    #: The positions of the inputs that the next edges belong to, and the number of inputs.
    places: tuple[int, ...] = (0,)
    arity: int = 1
    #: The names of saved values, and which of these are arrays: pairs of a position and the
    #: input's number (-1 for the output).
    names: tuple[str, ...] = ()
    arrays: tuple[tuple[int, int], ...] = ()
    #: Computes the saved output again, `renew(F, saved)`; None where it must not change.
    renew: Callable[[Namespace, Saved], Any] | None = None
    #: The names of values that are saved if other inputs require grad.
    keepable: frozenset[str] = frozenset()
