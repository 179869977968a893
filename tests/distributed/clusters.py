"""Dask clusters for tests."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from distributed import Client, LocalCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def cluster(
    workers: int, *, processes: bool, protocol: str | None = None
) -> AsyncIterator[Client]:
    async with (
        LocalCluster(
            n_workers=workers,
            processes=processes,
            protocol=protocol,
            threads_per_worker=1,
            # Another cluster may run beside it.
            dashboard_address=":0",
            asynchronous=True,
            silence_logs=60,
        ) as local,
        Client(local, asynchronous=True) as client,
    ):
        yield client
