"""What the pages of these tests show: a pipeline that ran for two weeks and stands in the middle of a load."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING
from urllib.parse import quote

from keepstate.backends.requests import Begin, End, Fence, Holder
from keepstate.retention import NEVER_EXPIRE
from keepstate.scope import RunScope, TaskScope, Writer
from keepstate.store import new_attempt_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from keepstate.accessors import TaskStateStore
    from keepstate.store import StateStore
    from keepstate.testing import ManualClock

BEGIN = datetime(2025, 12, 14, 3, 0, tzinfo=timezone.utc)
RUN = "scheduled__2025-12-14T03:00:00+00:00"
LOAD = TaskScope("etl_orders", RUN, "load")
LOAD_PATH = f"/dags/etl_orders/runs/{quote(RUN, safe='')}/tasks/load"
ODD_KEY = 'tmp/שלום "quoted" <script>alert(1)</script> 🎉'

_HOLDER = Holder("worker-3", 4711, "1")
_LEASE = 60_000_000


class Story:
    """Runs and attempts, told one after another."""

    def __init__(self, store: StateStore, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock

    def begin(self, scope: TaskScope | RunScope) -> Fence:
        """Begin the next attempt."""
        attempt_id = new_attempt_id(self.clock)
        begun = self.store.backend.begin(
            Begin(scope, attempt_id, _HOLDER, self.clock(), _LEASE, take_over=True)
        )
        return Fence(begun.try_number, attempt_id, incarnation=begun.incarnation)

    def end(self, scope: TaskScope | RunScope, fence: Fence, state: str, reason: str | None = None) -> None:
        """End an attempt."""
        self.store.backend.end(End(scope, fence, state, self.clock(), reason=reason))

    def writing(self, scope: TaskScope, fence: Fence) -> TaskStateStore:
        """Return the accessor of an attempt."""
        return self.store.bound(scope, fence, Writer("task", try_number=fence.try_number))

    @contextmanager
    def attempt(
        self, scope: TaskScope, state: str, minutes: float = 3, reason: str | None = None
    ) -> Iterator[TaskStateStore]:
        """Tell of an attempt that ends in ``state`` after some minutes."""
        fence = self.begin(scope)
        yield self.writing(scope, fence)
        self.clock.advance(timedelta(minutes=minutes))
        self.end(scope, fence, state, reason)


def tell(store: StateStore, clock: ManualClock) -> Story:
    """Fill a store; return the story, so that it can go on. The load is at its second attempt then."""
    story = Story(store, clock)
    for day in range(1, 14):
        run = f"scheduled__2025-12-{day:02d}T03:00:00+00:00"
        whole = story.begin(RunScope("etl_orders", run))
        for task in ("extract", "load", "report"):
            scope = TaskScope("etl_orders", run, task)
            if task == "load" and day in {4, 9}:
                with story.attempt(scope, "up_for_retry", 5, "ConnectionError: the warehouse hung up"):
                    pass
            failed = day == 12 and task == "report"
            with story.attempt(scope, "failed" if failed else "success", 3 + day % 4) as state:
                state.set("rows", day * 1000)
        story.end(RunScope("etl_orders", run), whole, "failed" if day == 12 else "success")
        clock.advance(timedelta(hours=1))
    story.begin(RunScope("etl_orders", RUN))
    with story.attempt(TaskScope("etl_orders", RUN, "extract"), "success") as state:
        state.set("rows", 14_000)
    _load(story)
    for index in range(5):
        with story.attempt(
            TaskScope("fine_tune", "run-1", "train", index), "failed" if index == 3 else "success"
        ) as state:
            state.set("epoch", index)
    _assets(store)
    return story


def _load(story: Story) -> None:
    with story.attempt(LOAD, "up_for_retry", 9, "TimeoutError: no answer within 600 s") as state:
        state.set("job_id", "driver-0001")
        state.set("cursor", {"page": 7, "rows": [1, 2, 3], "since": "2025-12-13"}, retention=NEVER_EXPIRE)
        state.set("position", {"position": 1240, "total": 5000, "done": False, "fingerprint": "ab"})
        state.set("left_over", [1, 2])
        state.delete("left_over")
    story.clock.advance(timedelta(minutes=4))
    state = story.writing(LOAD, story.begin(LOAD))
    story.clock.advance(timedelta(minutes=3))
    state.set("position", {"position": 2817, "total": 5000, "done": False, "fingerprint": "cd"})
    state.set("cursor", {"page": 9, "rows": [1, 2, 3, 4], "since": "2025-12-13"}, retention=NEVER_EXPIRE)
    state.set(ODD_KEY, "line one\nline two", retention=timedelta(hours=6))
    state.set("shards", {"files": [f"s3://bucket/part-{number:05d}.parquet" for number in range(400)]})


def _assets(store: StateStore) -> None:
    by = Writer("task", "etl_orders", "scheduled__2025-12-13T03:00:00+00:00", "load", -1, 1)
    orders = store.asset("orders", uri="s3://warehouse/orders", writer=by)
    orders.set("watermark", "2025-12-13T00:00:00Z")
    orders.set("schema", {"version": 3, "columns": ["id", "amount", "region"]})
    store.asset("customers").set("rows", 1200)
