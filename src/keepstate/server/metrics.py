"""What is counted and timed, in Prometheus' text format at `/metrics`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from keepstate.backends.requests import Put
from keepstate.errors import StaleAttemptError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from keepstate.backends.answers import Applied
    from keepstate.backends.base import Backend
    from keepstate.backends.requests import Batch, Clear
    from keepstate.scope import CleanupReport

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """The figures of one server. ``docs/reference/server.md`` lists them; a test compares."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter = partial(Counter, namespace="keepstate", registry=self.registry)
        gauge = partial(Gauge, namespace="keepstate", registry=self.registry)
        histogram = partial(Histogram, namespace="keepstate", registry=self.registry)
        self.requests = counter(
            "requests", "Requests answered, by route and status.", ("method", "route", "status")
        )
        self.seconds = histogram(
            "request_seconds", "How long answers took, by route.", ("method", "route"), buckets=_SECONDS
        )
        self.in_flight = gauge("requests_in_flight", "Requests that are being answered.")
        self.written = counter("entries_written", "Entries written.")
        self.stale = counter("stale_attempts_refused", "Requests refused because a later attempt has begun.")
        self.purged = counter("purged_rows", "Rows that cleanup removed, by kind.", ("kind",))
        self.purge_failures = counter("purge_failures", "Cleanups that failed.")
        self.purge_seconds = histogram(
            "purge_seconds", "How long cleanups took.", buckets=(*_SECONDS, 60.0, 300.0, 1800.0)
        )
        self.purged_at = gauge("purge_last_success_timestamp_seconds", "When a cleanup last finished.")

    def purge_done(self, report: CleanupReport) -> None:
        """Count what one batch of a cleanup removed."""
        for kind, count in report.counts.items():
            self.purged.labels(kind).inc(count)

    def text(self) -> bytes:
        """Return all figures in Prometheus' text format."""
        return generate_latest(self.registry)


class CountingBackend:
    """A backend whose writes and refusals are counted, whoever asked for them; in all else the backend itself."""

    def __init__(self, backend: Backend, metrics: Metrics) -> None:
        self._backend = backend
        self._metrics = metrics

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def apply(self, batch: Batch) -> Applied:
        """See `Backend.apply`."""
        applied: Applied = self._counting(self._backend.apply, batch)
        if not applied.repeated:
            self._metrics.written.inc(sum(isinstance(change, Put) for change in batch.changes))
        return applied

    def clear(self, request: Clear) -> Applied:
        """See `Backend.clear`."""
        cleared: Applied = self._counting(self._backend.clear, request)
        return cleared

    def read(self, *args: Any, **kwargs: Any) -> Any:
        """See `Backend.read`."""
        return self._counting(self._backend.read, *args, **kwargs)

    def begin(self, *args: Any, **kwargs: Any) -> Any:
        """See `Backend.begin`."""
        return self._counting(self._backend.begin, *args, **kwargs)

    def beat(self, *args: Any, **kwargs: Any) -> Any:
        """See `Backend.beat`."""
        return self._counting(self._backend.beat, *args, **kwargs)

    def end(self, *args: Any, **kwargs: Any) -> Any:
        """See `Backend.end`."""
        return self._counting(self._backend.end, *args, **kwargs)

    def purge(self, **kwargs: Any) -> Iterator[CleanupReport]:
        """See `Backend.purge`."""
        for report in self._backend.purge(**kwargs):
            if not kwargs.get("dry_run"):
                self._metrics.purge_done(report)
            yield report

    def _counting(self, verb: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return verb(*args, **kwargs)
        except StaleAttemptError:
            self._metrics.stale.inc()
            raise
