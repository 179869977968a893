"""Where the gradients of a node are summed until the last has arrived.

Gradients are summed in descending sequence number of the nodes that produced them, in whatever
order these finish, so the same pass gives the same bits. If producers run one at a time, gradients
arrive in that order and are added at once. If producers run in parallel, a gradient that arrives
before that of a producer with a greater number is held back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncgrad.aliases import Gradient, Namespace


class InputBuffer:
    """The gradients of one node so far, one slot for each of its inputs."""

    __slots__ = ("held", "owned", "values")

    def __init__(self, size: int) -> None:
        self.values: list[Any] = [None] * size
        #: The value may be added into: it was summed here, or the producer gave up its array.
        self.owned = [False] * size
        #: Gradients that arrived early: (minus sequence number, input, gradient, owned).
        self.held: list[tuple[int, int, Any, bool]] = []

    def add(self, position: int, gradient: Gradient, owned: bool, F: Namespace) -> None:
        """Add a gradient to one of the inputs; None changes nothing."""
        if gradient is None:
            return
        value = self.values[position]
        if value is None:
            self.values[position] = gradient
            self.owned[position] = owned
            return
        # The sum may be made in place only in an array that nothing else refers to.
        self.values[position], self.owned[position] = F.accumulate(
            value, self.owned[position], gradient, owned
        )

    def hold(self, sequence_nr: int, position: int, gradient: Gradient, owned: bool) -> None:
        """Hold a gradient that arrived early; `admit` adds it."""
        if gradient is not None:
            self.held.append((-sequence_nr, position, gradient, owned))

    def admit(self, number: int, F: Namespace) -> None:
        """Add the held gradients of all producers with this number or a greater one.

        The producer with this very number may report its gradients in two parts. If one part is
        held, it came before the other, so it is added first.
        """
        if self.held:
            self.held.sort(key=lambda entry: entry[0])
            while self.held and -self.held[0][0] >= number:
                _, position, gradient, owned = self.held.pop(0)
                self.add(position, gradient, owned, F)
