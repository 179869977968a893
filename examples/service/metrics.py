"""The metrics for Prometheus, and for the page's picture of the engine."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from prometheus_client import CONTENT_TYPE_LATEST as CONTENT_TYPE
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

import asyncgrad as ag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asyncgrad.serving import Admission, Batcher
    from examples.service.lag import Lag
    from examples.service.learner import Learner

__all__ = ["CONTENT_TYPE", "Metrics", "engine_picture"]


class Metrics:
    """The service's own counts, and the engine's."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._seconds = Histogram(
            "digits_request_seconds",
            "How long requests took",
            ["name"],
            registry=self._registry,
            buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0),
        )
        self._failed = Counter(
            "digits_requests_failed", "Requests that failed", ["name", "kind"],
            registry=self._registry,
        )  # fmt: skip
        self._adapted = Counter(
            "digits_adaptations", "Adaptations, by whether they ended in time", ["in_time"],
            registry=self._registry,
        )  # fmt: skip
        self._gauges: dict[str, Gauge] = {}

    @contextmanager
    def request(self, name: str) -> Iterator[None]:
        """Time a request."""
        start = time.perf_counter()
        try:
            yield
        except Exception as error:
            self._failed.labels(name, type(error).__name__).inc()
            raise
        finally:
            self._seconds.labels(name).observe(time.perf_counter() - start)

    def adapted(self, in_time: bool) -> None:
        """Count an adaptation."""
        self._adapted.labels(str(in_time).lower()).inc()

    def text(
        self, learner: Learner, admission: Admission, batcher: Batcher[Any, Any], lag: Lag
    ) -> bytes:
        """Everything, in Prometheus' format."""
        self._set(
            "digits_learner",
            {
                "step": learner.step,
                "waiting": learner.waiting,
                "leads": learner.leads,
                "alive": learner.alive,
            },
        )
        self._set("digits_admission", asdict(admission.statistics()))
        self._set("digits_batcher", asdict(batcher.statistics()))
        self._set("asyncgrad_engine", engine_picture(lag))
        return generate_latest(self._registry)

    def _set(self, prefix: str, values: dict[str, float]) -> None:
        for name, value in values.items():
            full = f"{prefix}_{name}"
            gauge = self._gauges.get(full)
            if gauge is None:
                gauge = self._gauges[full] = Gauge(full, full, registry=self._registry)
            gauge.set(value)


def engine_picture(lag: Lag) -> dict[str, Any]:
    """The statistics of the loop's engine, and how late the loop is."""
    return {**asdict(ag.engine().statistics()), "lag": lag.worst}
