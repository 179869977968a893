"""The tenants: their tokens, quotas and training."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from dataclasses import dataclass

from asyncgrad.serving import Admission
from examples.training_api.cluster import Cluster, ClusterTraining
from examples.training_api.model import Base
from examples.training_api.training import Training

#: The rows of so many seconds may be used at once.
BURST = 2.0


@dataclass(frozen=True)
class Plan:
    """What a tenant has been granted."""

    token: str
    #: A larger number is more urgent.
    priority: int = 0
    rows_per_second: float = 20_000.0
    #: Requests at once, and those that may wait.
    concurrent: int = 2
    max_waiting: int = 32

    def __post_init__(self) -> None:
        """Refuse a token that could be guessed, and numbers with which nothing would be served."""
        if not isinstance(self.token, str) or len(self.token) < 16:
            raise ValueError("a tenant's token has to be a text of at least 16 characters")
        whole = (self.priority, self.concurrent, self.max_waiting)
        if not (all(isinstance(number, int) for number in whole) and self.rows_per_second > 0):
            raise ValueError("priority, concurrent and max_waiting are whole numbers, and "
                             "rows_per_second is more than 0")  # fmt: skip


class QuotaExceeded(Exception):
    """The tenant has used up its rows; `seconds` until it has some again. HTTP's 429."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the quota is used up for {seconds:.2f} seconds")
        self.seconds = seconds


class Tenant:
    """One tenant's training and quota."""

    def __init__(self, name: str, plan: Plan, base: Base) -> None:
        self.name = name
        self.plan = plan
        self.admission = Admission(plan.concurrent, max_waiting=plan.max_waiting)
        #: Held during a pass or step, so that a tenant's requests are applied in order.
        self.turn = asyncio.Lock()
        # Derived from the name, so that it is the same after a restart.
        self.seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
        self.training: Training | ClusterTraining = Training(base, self.seed)
        self.passes = self.steps = 0
        self._rows = plan.rows_per_second * BURST
        self._filled = time.monotonic()

    def reset(self) -> None:
        """Begin anew with an adapter that changes nothing."""
        self.training.reset()
        self.passes = self.steps = 0

    def charge(self, rows: int) -> None:
        """Use up some of the quota.

        Raises:
            QuotaExceeded: if it is used up; nothing is charged then.
        """
        now = time.monotonic()
        rate = self.plan.rows_per_second
        self._rows = min(rate * BURST, self._rows + (now - self._filled) * rate)
        self._filled = now
        # Who sends more than a burst at once needs all of it, and the rest is a debt: else it would
        # be told to come back later for ever.
        needed = min(rows, rate * BURST)
        if needed > self._rows:
            raise QuotaExceeded((needed - self._rows) / rate)
        self._rows -= rows


class Tenants:
    """All tenants, found by their tokens."""

    def __init__(self, plans: dict[str, Plan]) -> None:
        if len({plan.token for plan in plans.values()}) < len(plans):
            raise ValueError("two tenants have the same token")
        base = Base()
        self._by_token = [(plan.token.encode(), Tenant(n, plan, base)) for n, plan in plans.items()]

    def compute_on(self, cluster: Cluster) -> None:
        """Train on a cluster's workers from now on, all anew."""
        for _, tenant in self._by_token:
            tenant.training = ClusterTraining(cluster, tenant.seed)

    def find(self, token: str) -> Tenant | None:
        """The tenant of a token. All tokens are compared, each in constant time."""
        given, found = token.encode(), None
        for known, tenant in self._by_token:
            if hmac.compare_digest(known, given):
                found = tenant
        return found
