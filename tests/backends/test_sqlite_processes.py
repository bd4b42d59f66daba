"""Several processes on one file: forked ones, clean ones, and ones that are killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from typing_extensions import Self

from keepstate.backends.sql.migrations import LATEST
from keepstate.errors import BackendError
from tests.backends.children import Child, in_child, python, wait_until
from tests.backends.stores import open_file, task

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from keepstate.store import StateStore

# from Python 3.12 on; that it works here is what these tests show
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file of a store."""
    return tmp_path / "keepstate.db"


@pytest.fixture
def store(file: Path) -> Iterator[StateStore]:
    """The store in it."""
    with open_file(file) as store:
        yield store


class Writer:
    """A thread that writes rising numbers without a pause; it is at work from the first one on."""

    def __init__(self, store: StateStore, name: str) -> None:
        self._tss = task(store, name, try_number=1)
        self._stop = threading.Event()
        self.written = 0
        self._thread = threading.Thread(target=self._write)

    def _write(self) -> None:
        while not self._stop.is_set():
            self._tss.set("n", self.written + 1)
            self.written += 1

    def __enter__(self) -> Self:
        self._thread.start()
        wait_until(lambda: self.written)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


# -------------------------------------------------------------------------------------------------- forking


def test_parent_and_child_both_go_on(store: StateStore) -> None:
    """Each sees what the other wrote, before the fork, and after it in turns."""
    task(store).set("before", 1)
    assert in_child(lambda: (task(store).get("before"), task(store).set("child", 2))) == (1, None)
    task(store).set("parent", 3)
    assert in_child(lambda: dict(task(store).items())) == {"before": 1, "child": 2, "parent": 3}
    assert in_child(lambda: task(store).increment("before")) == 2
    assert task(store).increment("before") == 3


def test_forking_while_threads_write(store: StateStore) -> None:
    """No child hangs or fails, whatever the other threads were doing in that moment; no write of anybody is lost."""
    with Writer(store, "one") as one, Writer(store, "two") as two:
        for number in range(40):
            child = f"child {number}"

            def work(child: str = child, number: int = number) -> int:
                tss = task(store, child)
                tss.set("n", number)
                return int(tss.get("n"))

            assert in_child(work) == number
    assert task(store, "one").get("n") == one.written
    assert task(store, "two").get("n") == two.written
    assert [task(store, f"child {number}").get("n") for number in range(40)] == list(range(40))


def test_the_child_goes_on_when_the_parent_closes_the_store(file: Path) -> None:
    """The parent's last connection folds the log into the file and removes it: not while the child uses it."""
    store = open_file(file)
    task(store).set("n", 0)
    ready, proceed = os.pipe(), os.pipe()

    def work() -> None:
        task(store).set("n", 1)
        os.write(ready[1], b".")
        os.read(proceed[0], 1)
        for number in range(2, 50):
            task(store).set("n", number)

    child = Child(work)
    os.read(ready[0], 1)
    store.close()
    os.write(proceed[1], b".")
    child.result()
    for end in (*ready, *proceed):
        os.close(end)
    with open_file(file) as again:
        assert task(again).get("n") == 49


def test_a_child_may_exit_like_any_program(file: Path) -> None:
    """With the interpreter's own end, which lets go of everything: the parent's connections are none of it."""
    code = """
import os, sys
from tests.backends.stores import open_file, task
store = open_file(sys.argv[1])
task(store).set("n", 1)
pid = os.fork()
if pid == 0:
    task(store).set("n", 2)
    sys.exit(0)
_, status = os.waitpid(pid, 0)
assert status == 0
for number in range(3, 20):
    task(store).set("n", number)
print(task(store).get("n"))
"""
    with python(code, str(file), PYTHONDEVMODE="1") as program:
        said, _ = program.communicate()
    assert (program.returncode, said) == (0, "19\n")
    with open_file(file) as store:
        assert task(store).get("n") == 19


def test_multiprocessing_by_fork(store: StateStore) -> None:
    """A pool whose workers inherit the store."""
    task(store).set("n", 0)
    with multiprocessing.get_context("fork").Pool(3, _inherit, (store,)) as pool:
        sums = pool.map(_increment, range(30))
    assert sorted(sums) == list(range(1, 31))
    assert task(store).get("n") == 30


_inherited: list[StateStore] = []


def _inherit(store: StateStore) -> None:
    _inherited.append(store)


def _increment(_: int) -> int:
    return int(task(_inherited[-1]).increment("n"))


def test_a_fork_from_within_a_write_is_refused_in_the_child(store: StateStore) -> None:
    """A signal handler could do that: the child gets an error that says why, and the parent goes on."""
    database = store.backend._db  # type: ignore[attr-defined]
    with database.transaction():
        child = Child(lambda: task(store).get("n"))
        with pytest.raises(BackendError, match="it was forked from within a write"):
            child.result()
    task(store).set("n", 1)
    assert in_child(lambda: task(store).get("n")) == 1


def test_a_closed_store_does_not_hinder_forking(file: Path) -> None:
    """Nor does one that was let go of."""
    open_file(file).close()
    assert in_child(lambda: 1) == 1


# ------------------------------------------------------------------------------------------- clean processes

INCREMENT = """
import sys
from tests.backends.stores import open_file, task
with open_file(sys.argv[1]) as store:
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(50):
        task(store).increment("n")
"""


def test_several_processes_lose_no_increment(file: Path) -> None:
    """Four at once on one key."""
    programs = [python(INCREMENT, str(file)) for _ in range(4)]
    for program in programs:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
    for program in programs:
        assert program.stdin is not None
        program.stdin.write("go\n")
        program.stdin.flush()
    for program in programs:
        program.communicate(timeout=60)
    assert [program.returncode for program in programs] == [0] * 4
    with open_file(file) as store:
        assert task(store).get("n") == 200


def test_a_process_killed_within_a_write_leaves_the_lock_free(file: Path) -> None:
    """The kernel lets go of it, and the next write rolls back what was half done."""
    code = """
import sys
from tests.backends.stores import open_file, task
store = open_file(sys.argv[1])
task(store).set("n", 1)
with store.backend._db.transaction() as tx:
    tx.run("DELETE FROM keepstate_entry", {})
    print("deep in it", flush=True)
    sys.stdin.readline()
"""
    with python(code, str(file)) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "deep in it\n"
        program.send_signal(signal.SIGKILL)
    with open_file(file, timeout=5) as store:
        assert task(store).get("n") == 1
        task(store).set("n", 2)
    with closing(sqlite3.connect(file)) as other:
        assert other.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_many_processes_may_make_one_store_at_once(file: Path) -> None:
    """There is one set of tables, and every write is in it."""
    code = """
import sys
from tests.backends.stores import open_file, task
sys.stdin.readline()
with open_file(sys.argv[1]) as store:
    task(store).set(sys.argv[2], 1)
"""
    programs = [python(code, str(file), f"k{number}") for number in range(6)]
    for program in programs:
        assert program.stdin is not None
        program.stdin.write("go\n")
        program.stdin.flush()
    for program in programs:
        program.communicate(timeout=60)
    assert [program.returncode for program in programs] == [0] * 6
    with open_file(file) as store:
        assert len(task(store).items()) == 6
        assert store.backend._db.query("SELECT COUNT(*) FROM keepstate_migration", {}) == [(LATEST,)]  # type: ignore[attr-defined]
