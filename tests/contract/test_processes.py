"""Four processes at one store: nothing is lost, nothing is half seen."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from keepstate.connect import connect
from keepstate.settings import Settings
from keepstate.testing.contract.concurrency import together
from tests.support.served import serving_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from keepstate.accessors import TaskStateStore

ROOT = Path(__file__).parents[2]
PROCESSES = 4


def rounds_at(url: str) -> int:
    """How often each process does its work: a server's store takes longer for it, as several ask it at once."""
    return {"http": 15, "mysql": 8}.get(url.partition(":")[0], 40)


@pytest.fixture(params=["sqlite", "postgres", "mysql", "server"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A new store: a file, a database, or a server over a file."""
    monkeypatch.delenv("KEEPSTATE_TOKEN", raising=False)
    file = f"sqlite:///{tmp_path / 'keepstate.db'}"
    if request.param == "server":
        with connect(file, settings=Settings()) as store, serving_store(store) as served:
            monkeypatch.setenv("KEEPSTATE_TOKEN", served.token("worker"))
            yield served.url
    else:
        yield file if request.param == "sqlite" else str(request.getfixturevalue(f"{request.param}_url"))


def hammer(url: str, verb: str) -> list[Any]:
    """Run the processes, let them loose together, and return what each saw."""
    with ExitStack() as stack:
        workers = [stack.enter_context(_worker(url, verb, number)) for number in range(PROCESSES)]
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n", worker.communicate()[1]
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
        said = [worker.communicate(timeout=100) for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * PROCESSES, said
    return [json.loads(out) for out, _ in said]


@contextmanager
def _worker(url: str, verb: str, number: int) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.hammer", url, verb, str(rounds_at(url)), str(number)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as worker:
        try:
            yield worker
        finally:
            worker.kill()


def look(url: str) -> tuple[dict[str, Any], list[int]]:
    """Return the entries of the one task instance, and the versions in the history of its first key."""
    with connect(url, settings=Settings.load()) as store:
        tss: TaskStateStore = store.task("etl", "2026-11-29", "load")
        items = dict(tss.items())
        return items, [version.version for version in tss.history(next(iter(items)))]


def test_many_may_make_a_new_store_at_once(url: str) -> None:
    """Its tables are made once, and everybody finds them."""

    def write(number: int) -> None:
        with connect(url, settings=Settings.load()) as store:
            store.task("etl", "2026-11-29", "load").set(f"k{number}", number)

    together(write)
    assert look(url)[0] == {f"k{number}": number for number in range(8)}


def test_no_increment_is_lost(url: str) -> None:
    """Every process gets sums of its own, and together they are all numbers from 1 on."""
    sums = sorted(total for totals in hammer(url, "increment") for total in totals)
    assert sums == list(range(1, PROCESSES * rounds_at(url) + 1))
    items, versions = look(url)
    assert items == {"n": PROCESSES * rounds_at(url)}
    # the newest twenty, without a gap
    assert versions == list(range(PROCESSES * rounds_at(url), PROCESSES * rounds_at(url) - 20, -1))


def test_no_update_is_lost(url: str) -> None:
    """A list that all of them extend has every page of every process, in its order."""
    assert hammer(url, "update") == [rounds_at(url)] * PROCESSES
    pages = look(url)[0]["pages"]
    for number in range(PROCESSES):
        assert [page for who, page in pages if who == number] == list(range(rounds_at(url)))
    assert len(pages) == PROCESSES * rounds_at(url)


def test_many_values_are_seen_together(url: str) -> None:
    """No process ever sees half of a pair that another one writes."""
    assert hammer(url, "set_many") == [[True] * rounds_at(url)] * PROCESSES
    items, _ = look(url)
    assert items["left"] == items["right"]


def test_of_many_writers_over_one_version_one_wins(url: str) -> None:
    """Each version is written over once."""
    won = sorted(version for versions in hammer(url, "compare_and_set") for version in versions)
    assert won == list(range(rounds_at(url) + 1))
