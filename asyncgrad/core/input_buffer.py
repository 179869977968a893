"""Where the gradients of a node are summed until the last has arrived.

The sum goes in descending sequence number of the producers, whatever order they end in: the same
pass gives the same bits. Producers run one at a time arrive in that order and are added at once.
Where several run side by side, one that overtakes a greater number is held until its turn.
"""

from __future__ import annotations

from typing import Any


class InputBuffer:
    """The gradients of one node so far, one place for each of its inputs."""

    __slots__ = ("held", "owned", "values")

    def __init__(self, size: int) -> None:
        """Start with every input undefined."""
        self.values: list[Any] = [None] * size
        #: The value is a sum made here, or was handed over for good: it may be added into.
        self.owned = [False] * size
        #: Overtakers: (minus sequence number, input, gradient, owned).
        self.held: list[tuple[int, int, Any, bool]] = []

    def add(self, position: int, gradient: Any, owned: bool, F: Any) -> None:
        """Add a gradient to one of the inputs; None changes nothing."""
        if gradient is None:
            return
        value = self.values[position]
        if value is None:
            self.values[position] = gradient
            self.owned[position] = owned
            return
        # An array may serve as the place of the sum only if nobody else can see it.
        self.values[position], self.owned[position] = F.accumulate(
            value, self.owned[position], gradient, owned
        )

    def hold(self, sequence_nr: int, position: int, gradient: Any, owned: bool) -> None:
        """Keep a gradient that came before its turn."""
        if gradient is not None:
            self.held.append((-sequence_nr, position, gradient, owned))

    def admit(self, before: int, F: Any) -> None:
        """Add what was held of producers with a number greater than `before`."""
        if self.held:
            self.held.sort(key=lambda entry: entry[0])
            while self.held and -self.held[0][0] > before:
                _, position, gradient, owned = self.held.pop(0)
                self.add(position, gradient, owned, F)
