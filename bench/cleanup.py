"""Cleanup at size: eight tasks write while a million of ten million entries are removed, and while nothing is."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from bench import places
from bench.contenders import Contender, ContenderError, Group, Load, Manner, Opened, Operation
from bench.embedded import file_durability
from bench.filled import Size, fill
from bench.postgres import server_durability
from bench.writing import writers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIZE = Size(1_000_000)
_WRITERS = 8
_LEAD_IN = 1
_SCOPES = [SIZE.scope(number * SIZE.task_instances // _WRITERS) for number in range(_WRITERS)]


@contextmanager
def undisturbed(where: str) -> Iterator[Opened]:
    """Have the tasks write, and nothing else go on."""
    url, _ = where.split()
    with writers(url, _SCOPES) as load:
        yield Opened({"set": load}, _manner(url, "nothing has expired"))


@contextmanager
def disturbed(where: str) -> Iterator[Opened]:
    """Have the tasks write while a cleanup goes on, in each round on a store of which nothing has been removed yet."""
    _, url = where.split()
    yield Opened(
        {"set": partial(_during_cleanup, url)},
        _manner(url, "while `keepstate cleanup` runs, each round on another copy of the store"),
    )


def _during_cleanup(url: str, seconds: int) -> Load:
    with places.copy(url) as copied, writers(copied, _SCOPES) as load, _cleanup(copied) as process:
        # both get going before it counts
        load(_LEAD_IN)
        found = load(seconds)
        if process.poll() is not None:
            _, said = process.communicate()
            raise ContenderError(
                f"the cleanup was over before the round: {said.decode(errors='replace')[-500:]}"
            )
        return found


@contextmanager
def _cleanup(url: str) -> Iterator[subprocess.Popen[bytes]]:
    """Begin a cleanup, and kill it in the end."""
    process = subprocess.Popen(
        [Path(sys.executable).with_name("keepstate"), "cleanup", "--url", url],
        env=os.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _manner(url: str, remark: str) -> Manner:
    is_file = url.startswith("sqlite")
    return Manner(
        version("keepstate"),
        file_durability(url) if is_file else server_durability(url),
        f"{_WRITERS} writers; {remark}",
    )


@contextmanager
def _files() -> Iterator[str]:
    with places.folder() as folder:
        yield _filled(f"sqlite:///{folder}/kept.db", f"sqlite:///{folder}/expired.db")


_FACTS: dict[str, str] = {}


@contextmanager
def _databases() -> Iterator[str]:
    with places.postgres_server(_FACTS) as url:
        yield _filled(url, places.another_database(url, "expired"))


def _filled(kept: str, expired: str) -> str:
    """Fill two stores alike, but for a tenth of the entries whose time has come in the second; return the URLs of both."""
    fill(kept, SIZE)
    fill(expired, SIZE, expired=True)
    return f"{kept} {expired}"


def _group(name: str, title: str, place: Callable[[], object]) -> Group:
    return Group(
        name=name,
        title=title,
        contenders=(Contender("undisturbed", undisturbed), Contender("during cleanup", disturbed)),
        operations=(
            Operation("set", rounds=5, samples=5, warm_up=2, is_load=True, by_p99=True, patience=600),
        ),
        place=place,
        facts=_FACTS,
    )


SQLITE = _group("cleanup-sqlite", "Cleanup of a million entries beside 8 writers, in a SQLite file", _files)
POSTGRES = _group(
    "cleanup-postgres", "Cleanup of a million entries beside 8 writers, on PostgreSQL", _databases
)
