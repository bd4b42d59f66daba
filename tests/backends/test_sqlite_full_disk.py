"""A disk without room: an error that says so, what was there before is there, and the store goes on when there is room."""

from __future__ import annotations

import os
import resource
import sqlite3
import subprocess
import tempfile
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from keepstate.errors import BackendError, BackendUnavailableError, StoreFullError
from tests.backends.children import in_child
from tests.backends.stores import open_file, task

if TYPE_CHECKING:
    from collections.abc import Iterator

    from keepstate.store import StateStore

VALUE = "x" * 20_000


@contextmanager
def small_disk() -> Iterator[Path]:
    """Mount a file system of one megabyte."""
    with tempfile.TemporaryDirectory(prefix="keepstate-disk-") as folder:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], check=True)
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture(params=["a full file system", "a limit on pages"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A file that can't grow for ever: on a real small disk, which only root can mount, and by SQLite's own limit."""
    if request.param == "a limit on pages":
        yield tmp_path / "keepstate.db"
    elif os.geteuid() != 0:
        pytest.skip("mounting a small file system takes root")
    else:
        with small_disk() as folder:
            yield folder / "keepstate.db"


def limit_pages(store: StateStore, pages: int) -> None:
    """Have the store's connection refuse to grow its file beyond ``pages``, where no disk does that."""
    (connection,) = store.backend._db._idle  # type: ignore[attr-defined]
    connection.hand.execute(f"PRAGMA max_page_count = {pages}")


def fill(store: StateStore) -> tuple[int, BackendError]:
    """Write until there is no room; return how many keys were written, and what was raised then."""
    for number in range(1000):
        try:
            task(store).set(f"k{number}", VALUE)
        except BackendError as exc:
            return number, exc
    raise AssertionError("the disk took everything")


def test_a_full_disk_loses_nothing_and_the_store_goes_on(place: Path) -> None:
    """What was written before is there, what was refused is not; with room again, writing works."""
    with open_file(place) as store:
        task(store).set("first", 1)
        if not place.parent.name.startswith("keepstate-disk"):
            limit_pages(store, 120)
        written, refused = fill(store)
        assert isinstance(refused, StoreFullError)
        assert "no room left on its disk; nothing was half-written" in str(refused)
        assert refused.address == f"sqlite:///{place}"
        assert isinstance(refused.__cause__, sqlite3.OperationalError)
        assert written > 2
        stored = dict(task(store).items())
        assert stored == {"first": 1, **{f"k{number}": VALUE for number in range(written)}}
    with open_file(place) as store:
        assert task(store).get("first") == 1
        assert len(task(store).items()) == written + 1
    with closing(sqlite3.connect(place)) as other:
        assert other.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_room_that_is_freed_is_used() -> None:
    """On a real disk: somebody removes another file, and the same store goes on without being opened again."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system takes root")
    with small_disk() as folder:
        ballast = folder / "ballast"
        ballast.write_bytes(b"x" * 500_000)
        with open_file(folder / "keepstate.db") as store:
            written, _ = fill(store)
            ballast.unlink()
            task(store).set(f"k{written}", VALUE)
            task(store).set("last", 1)
            assert len(task(store).items()) == written + 2
        with open_file(folder / "keepstate.db") as store:
            assert len(task(store).items()) == written + 2


def test_a_disk_that_is_full_from_the_start_is_full() -> None:
    """Also where SQLite says no more than that it met an I/O error, or can't open its file."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system takes root")
    with small_disk() as folder:
        with pytest.raises(OSError, match="No space left"):
            (folder / "ballast").write_bytes(b"x" * 2_000_000)
        with pytest.raises(StoreFullError, match="no room left"):
            open_file(folder / "keepstate.db")


def test_a_limit_on_file_sizes_is_no_full_disk(tmp_path: Path) -> None:
    """``ulimit -f``: the error names what to check, what was written stays, and nothing is half-written."""

    def write() -> tuple[int, BackendError]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
        with open_file(tmp_path / "keepstate.db") as store:
            return fill(store)

    written, refused = in_child(write)
    assert isinstance(refused, BackendUnavailableError)
    assert "or a limit on file sizes" in str(refused)
    assert written > 2
    with open_file(tmp_path / "keepstate.db") as store:
        assert len(task(store).items()) == written
        task(store).set("last", VALUE)
