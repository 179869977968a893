"""Rules that report what they compute, while their pass is recorded."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncgrad.core.rule import Rule


class WatchedRule:
    """A rule of one node, which reports to the pass that runs it."""

    __slots__ = (
        "_call", "_rule", "fresh", "name", "node", "outliving", "passes", "run", "saves", "variant",
    )  # fmt: skip

    def __init__(self, rule: Rule, node: Any, call: Callable[..., Any]) -> None:
        """Copy what a pass and its recorder read of every rule."""
        self._rule = rule
        self.node = node
        self._call = call
        self.run = partial(call, node, rule.run, None)
        self.fresh = rule.fresh
        self.passes = rule.passes
        self.saves = rule.saves
        self.outliving = rule.outliving
        self.name = rule.name
        self.variant = rule.variant

    @property
    def pulls(self) -> tuple[Any, ...] | None:
        """The parts of the rule, which report, too."""
        pulls = self._rule.pulls
        if pulls is None:
            return None
        return tuple([partial(self._call, self.node, pull, at) for at, pull in enumerate(pulls)])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rule, name)


def set_rule(node: Any, rule: Any) -> None:
    """Give a node another rule, in the place of the one that it has."""
    if node.rule is None:
        node._form = rule
    else:
        node.rule = rule
