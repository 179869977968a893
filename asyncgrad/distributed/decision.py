"""The commit in two phases: hosts promise that they can commit a pass, and are told whether to.

A host that has promised (`Host.on_prepare`) keeps what it has staged until `commit` or `abort`
comes, or its world ends. If a host dies before all have promised, `prepare` raises, and `abort`
follows. If one dies later, the pass has succeeded: the others commit, and the dead host is fenced,
so that nobody learns whether it has committed. So is one that hangs and does not confirm in time.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from asyncgrad.distributed.site import Site


class Decision:
    """The commit in two phases of what hosts have staged under one key; takes part in a pass."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.key = (site.rank, next(site.numbers))
        self.touched: set[int] = set()

    async def prepare(self, gradients: object = None) -> None:
        """Ask every host that has staged something; raises unless all agree."""
        # Nothing has changed anywhere so far. If this wait is cancelled, an abort follows.
        await self.site.call_each("prepare", dict.fromkeys(sorted(self.touched), (self.key,)))

    async def commit(self) -> None:
        """Tell the hosts that all have agreed; those that don't confirm a commit are fenced."""
        _, errors = await self.site.tell_all(sorted(self.touched), "commit", self.key)
        for rank, error in errors.items():
            self.site.fence(rank, f"it has not confirmed a commit ({error})")

    async def abort(self) -> None:
        """Tell all hosts, because in nested calls some may have staged what is not known here."""
        ranks = range(self.site.size)
        if self.site.ended is None:
            await self.site.tell_all(ranks, "abort", self.key)


async def to_the_end(telling: asyncio.Task[None]) -> None:
    """Wait until hosts know the decision, for the grace at most; then raise if cancelled."""
    try:
        await asyncio.shield(telling)
    finally:
        while not telling.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([telling])
