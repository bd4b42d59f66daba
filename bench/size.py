"""Size: the same calls and pages on a store of ten thousand entries and on one of ten million."""

from __future__ import annotations

import random
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, TypeVar

from bench import places
from bench.contenders import Contender, Group, Manner, Opened, Operation
from bench.embedded import file_durability
from bench.filled import Size, fill
from bench.pages import reader
from bench.postgres import server_durability
from bench.served import serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.contenders import Sampler
    from keepstate import StateStore, TaskStateStore

T = TypeVar("T")

SMALL, LARGE = Size(1_000), Size(1_000_000)
_KEYS = [f"key-{number}" for number in range(10)]


@contextmanager
def opened(where: str, *, size: Size) -> Iterator[Opened]:
    """Open the store of that size, and serve it."""
    from keepstate import connect

    url = where.split()[size == LARGE]
    numbers = random.Random(url)
    with connect(url) as store, places.folder() as home, serving(url, Path(home)) as served:
        pages = reader(served)
        manner = Manner(
            version("keepstate"),
            file_durability(url) if url.startswith("sqlite") else server_durability(url),
            f"{size.entries:,} entries in {size.task_instances:,} task instances",
        )
        some = partial(_some, store, size, numbers)
        yield Opened(
            {
                "get": _spread(some, lambda task, key: task.get(key)),
                "set": _spread(some, lambda task, key: task.set(key, numbers.random())),
                "first get": _each(some, lambda task: task.get(_KEYS[5])),
                "items": _each(some, lambda task: task.items()),
                "grid page": _each(lambda: f"/dags/{size.scope(0).dag_id}", pages),
                "Storage page": _each(lambda: _page_of(size, numbers), pages),
                "search": _each(lambda: "/search?q=key-7", pages),
            },
            manner,
        )


def _some(store: StateStore, size: Size, numbers: random.Random) -> TaskStateStore:
    """Return the accessor of a task instance picked at random, which nothing is known of yet."""
    scope = size.scope(numbers.randrange(size.task_instances))
    return store.task(scope.dag_id, scope.run_id, scope.task_id)


def _page_of(size: Size, numbers: random.Random) -> str:
    scope = size.scope(numbers.randrange(size.task_instances))
    return f"/dags/{scope.dag_id}/runs/{scope.run_id}/tasks/{scope.task_id}"


def _spread(some: Callable[[], TaskStateStore], call: Callable[[TaskStateStore, str], object]) -> Sampler:
    """Return a sampler of what a task does: a sample is the mean of ten calls, one for each key of a task instance."""

    def all_keys(task: TaskStateStore) -> None:
        for key in _KEYS:
            call(task, key)

    each = _each(some, all_keys)
    return lambda count: [time // len(_KEYS) for time in each(count)]


def _each(some: Callable[[], T], call: Callable[[T], object]) -> Sampler:
    """Return a sampler of a call that is given something else each time."""

    def sample(count: int) -> list[int]:
        times = []
        for _ in range(count):
            subject = some()
            start = perf_counter_ns()
            call(subject)
            times.append(perf_counter_ns() - start)
        return times

    return sample


@contextmanager
def _files() -> Iterator[str]:
    """Give the URLs of two SQLite files, the small one and the large one."""
    with places.folder() as folder:
        urls = [f"sqlite:///{folder}/{size.entries}.db" for size in (SMALL, LARGE)]
        yield from _filled(urls)


_FACTS: dict[str, str] = {}


@contextmanager
def _databases() -> Iterator[str]:
    """Give the URLs of two databases on one PostgreSQL server, the small one and the large one."""
    with places.postgres_server(_FACTS) as url:
        yield from _filled([url, places.another_database(url, "large")])


def _filled(urls: list[str]) -> Iterator[str]:
    for url, size in zip(urls, (SMALL, LARGE), strict=True):
        fill(url, size)
    yield " ".join(urls)


def _group(name: str, title: str, place: Callable[[], object]) -> Group:
    return Group(
        name=name,
        title=title,
        contenders=(
            Contender("10 thousand entries", partial(opened, size=SMALL)),
            Contender("10 million entries", partial(opened, size=LARGE)),
        ),
        operations=(
            Operation("get", rounds=21, samples=100, warm_up=200),
            Operation("set", rounds=21, samples=30, warm_up=50),
            Operation("first get", rounds=21, samples=100, warm_up=50),
            Operation("items", rounds=21, samples=100, warm_up=50),
            Operation("grid page", rounds=11, samples=5, warm_up=3),
            Operation("Storage page", rounds=11, samples=10, warm_up=5),
            Operation("search", rounds=11, samples=5, warm_up=3),
        ),
        place=place,
        facts=_FACTS,
    )


SQLITE = _group("size-sqlite", "Size, in a SQLite file", _files)
POSTGRES = _group("size-postgres", "Size, on PostgreSQL", _databases)
