"""Files that can't be a store, or not for everybody: a clear error, and nothing lost."""

from __future__ import annotations

import gc
import logging
import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import keepstate
from keepstate.errors import (
    BackendError,
    BackendUnavailableError,
    ConfigurationError,
    KeepstateError,
    StoreCorruptedError,
    StoreReadOnlyError,
    StoreVersionError,
)
from keepstate.settings import Settings
from tests.backends.children import ROOT, as_nobody, python
from tests.backends.stores import open_file, task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NEWER = "INSERT INTO keepstate_migration (number, name, applied_at) VALUES (9999, 'from the future', 0)"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A store that holds page 40."""
    path = tmp_path / "keepstate.db"
    with open_file(path) as store:
        task(store).set("page", 40)
    return path


def siblings(path: Path) -> list[str]:
    """Return the names of what is in the file's folder."""
    return sorted(one.name for one in path.parent.iterdir())


# ------------------------------------------------------------------------------------------- no store there


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    """A store is made, its folder is not: a mistyped path would go unnoticed."""
    with pytest.raises(
        ConfigurationError, match=r"folder .*/absent for the store .* does not exist; create it"
    ):
        open_file(tmp_path / "absent" / "keepstate.db")
    assert not (tmp_path / "absent").exists()


def test_a_folder_is_no_store(tmp_path: Path) -> None:
    """The error says to name a file in it."""
    with pytest.raises(ConfigurationError, match=r"names a folder; name a file in it, like .*/keepstate\.db"):
        open_file(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "content", [b"page,40\n", b"\0" * 4096, os.urandom(100_000), b"SQLite format 2\0" * 400]
)
def test_a_file_that_is_no_database_is_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    """Byte for byte, and nothing is put beside it."""
    path = tmp_path / "notes.csv"
    path.write_bytes(content)
    with pytest.raises(StoreCorruptedError, match="is not a SQLite file; it was left as it is") as caught:
        open_file(path)
    assert caught.value.address == f"sqlite:///{path}"
    assert path.read_bytes() == content
    assert siblings(path) == ["notes.csv"]


def test_a_database_of_others_keeps_its_tables(tmp_path: Path) -> None:
    """Keepstate's tables live beside them."""
    path = tmp_path / "app.db"
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("CREATE TABLE orders (id INTEGER)")
        other.execute("INSERT INTO orders VALUES (7)")
    with open_file(path) as store:
        task(store).set("page", 1)
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT id FROM orders").fetchall() == [(7,)]
    with open_file(path) as store:
        assert task(store).get("page") == 1


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    """As one that `touch` or `mktemp` made."""
    path = tmp_path / "empty"
    path.touch()
    with open_file(path) as store:
        task(store).set("page", 1)
    with open_file(path) as store:
        assert task(store).get("page") == 1


def test_a_process_that_changes_its_folder_keeps_its_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path is that of the moment of opening, for connections made later too."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with open_file("keepstate.db") as store:
        monkeypatch.chdir(tmp_path / "elsewhere")
        threads = [threading.Thread(target=task(store).set, args=(f"k{n}", n)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(task(store).items()) == 4
    assert list((tmp_path / "elsewhere").iterdir()) == []


# -------------------------------------------------------------------------------------------------- damage


@pytest.mark.parametrize("keep", [100, 4096, 9000, 30_000])
def test_a_truncated_store_is_said_to_be_damaged(file: Path, keep: int) -> None:
    """Whatever was cut off: never an empty store instead, and never an error of the driver."""
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(StoreCorruptedError, match=r"is damaged|lacks a table"), open_file(file) as store:
        task(store).increment("page")


def test_an_overwritten_page_is_said_to_be_damaged(file: Path) -> None:
    """However it is met, by reading or by writing."""
    content = bytearray(file.read_bytes())
    for page in range(4096, len(content), 4096):
        content[page : page + 2048] = b"\xff" * 2048
    file.write_bytes(content)
    for use in (lambda tss: tss.get("page"), lambda tss: tss.set("page", 41), lambda tss: tss.clear()):
        with pytest.raises(StoreCorruptedError, match="is damaged"), open_file(file) as store:
            use(task(store))


def test_a_store_without_its_tables_is_said_to_lack_them(file: Path) -> None:
    """Someone dropped them; a store with others in their place is refused too."""
    with closing(sqlite3.connect(file)) as other:
        other.execute("DROP TABLE keepstate_entry")
        with pytest.raises(StoreCorruptedError, match="lacks a table"), open_file(file) as store:
            task(store).set("page", 41)
        other.execute("CREATE TABLE keepstate_entry (scope_id, entry_key)")
        with pytest.raises(StoreCorruptedError, match="tables that differ"), open_file(file) as store:
            task(store).set("page", 41)


# ------------------------------------------------------------------------------------------------- versions


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
def test_a_store_of_a_newer_keepstate_is_left_untouched(file: Path, mode: str) -> None:
    """Even its journal mode, which this keepstate would set for a store of its own."""
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute(NEWER)
        other.execute(f"PRAGMA journal_mode = {mode}")
    before = file.read_bytes()
    with pytest.raises(StoreVersionError, match=r"at revision 9999, .* upgrade with pip") as caught:
        open_file(file)
    assert caught.value.address == f"sqlite:///{file}"
    assert file.read_bytes() == before
    assert siblings(file) == ["keepstate.db"]


# ----------------------------------------------------------------------------------------------- locked files

HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN " + sys.argv[2])
print("locked", flush=True)
sys.stdin.readline()
"""


@contextmanager
def locked(file: Path, how: str = "IMMEDIATE") -> Iterator[subprocess.Popen[str]]:
    """Have another process hold the file's lock until it reads a line."""
    with python(HOLD, str(file), how) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        try:
            yield holder
        finally:
            holder.communicate("\n")


def test_a_file_that_stays_locked_is_unavailable(file: Path) -> None:
    """After ``KEEPSTATE_RETRY_TIMEOUT``, once and not twice; reading goes on, and so does writing afterwards."""
    with open_file(file, timeout=0.5) as store:
        with locked(file):
            began = time.monotonic()
            with pytest.raises(
                BackendUnavailableError, match=r"another process .* KEEPSTATE_RETRY_TIMEOUT"
            ) as caught:
                task(store).set("page", 41)
            assert 0.5 <= time.monotonic() - began < 1.0
            assert caught.value.address == f"sqlite:///{file}"
            assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
            assert task(store).get("page") == 40
        task(store).set("page", 42)
        assert task(store).get("page") == 42


def test_a_lock_that_is_let_go_of_in_time_is_waited_for(file: Path) -> None:
    """Nobody notices."""
    with open_file(file) as store:
        writer = threading.Thread(target=task(store).set, args=("page", 41))
        with locked(file):
            writer.start()
            writer.join(0.2)
            assert writer.is_alive()
        writer.join()
        assert task(store).get("page") == 41


def test_waiting_for_a_lock_can_be_interrupted(file: Path) -> None:
    """Ctrl-C ends it at once, and nothing is written."""
    code = """
import sys, signal
from tests.backends.stores import open_file, task
store = open_file(sys.argv[1], timeout=60)
try:
    print("ready", flush=True)
    task(store).set("page", 41)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    with locked(file), python(code, str(file)) as waiter:
        assert waiter.stdout is not None
        assert waiter.stdout.readline() == "ready\n"
        while waiter.poll() is None:
            waiter.send_signal(2)
            time.sleep(0.01)
        assert waiter.stdout.readline() == "interrupted\n"
    with open_file(file) as store:
        assert task(store).get("page") == 40


def test_no_patience_means_one_attempt(file: Path) -> None:
    """With a timeout of 0 a locked file is an error at once."""
    with open_file(file, timeout=0) as store, locked(file):
        began = time.monotonic()
        with pytest.raises(BackendUnavailableError):
            task(store).set("page", 41)
        assert time.monotonic() - began < 0.3


# ------------------------------------------------------------------------------------------ read-only places


@pytest.fixture
def shared_file() -> Iterator[Path]:
    """A store that holds page 40, in a folder that other users reach: pytest's own are closed to them."""
    with tempfile.TemporaryDirectory(prefix="keepstate-") as folder:
        path = Path(folder) / "keepstate.db"
        with open_file(path) as store:
            task(store).set("page", 40)
        path.chmod(0o666)
        path.parent.chmod(0o777)
        yield path
        path.parent.chmod(0o777)


def use(file: Path, verb: Callable[..., object]) -> object:
    """Open the store quietly and do something with it."""
    logging.disable(logging.CRITICAL)
    with open_file(file, timeout=1.0) as store:
        return verb(task(store))


def test_a_read_only_file_can_be_read(shared_file: Path) -> None:
    """Writing is a ``StoreReadOnlyError`` that tells whose rights to check, and changes nothing."""
    shared_file.chmod(0o444)
    assert as_nobody(lambda: use(shared_file, lambda tss: tss.get("page"))) == 40
    for verb in (
        lambda tss: tss.set("page", 41),
        lambda tss: tss.delete("page"),
        lambda tss: tss.increment("page"),
        lambda tss: tss.clear(),
    ):
        with pytest.raises(StoreReadOnlyError, match="may only be read by this user; check its owner"):
            as_nobody(lambda verb=verb: use(shared_file, verb))
    with open_file(shared_file) as store:
        assert task(store).get("page") == 40


def test_a_read_only_folder_is_told_from_a_read_only_file(shared_file: Path) -> None:
    """SQLite places its log there, even to read, whatever the file's own rights: the error names the folder."""
    shared_file.parent.chmod(0o555)
    where = f"{shared_file.parent} may not be written, where SQLite places its log, even to read"
    for mode in (0o666, 0o444):
        shared_file.chmod(mode)
        for verb in (lambda tss: tss.get("page"), lambda tss: tss.set("page", 41)):
            with pytest.raises(StoreReadOnlyError, match=where):
                as_nobody(lambda verb=verb: use(shared_file, verb))
    with pytest.raises(StoreReadOnlyError, match=r"is not there, and can't be made as .* may not be written"):
        as_nobody(lambda: use(shared_file.with_name("new.db"), lambda tss: tss.get("page")))
    with open_file(shared_file) as store:
        assert task(store).get("page") == 40


def test_a_file_that_may_not_be_read_is_named(shared_file: Path) -> None:
    """With what to check."""
    shared_file.chmod(0o000)
    with pytest.raises(BackendUnavailableError, match="can't be opened; check that it may be read"):
        as_nobody(lambda: use(shared_file, lambda tss: tss.get("page")))


def test_opening_needs_no_right_to_write(shared_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is due, so nothing is cleaned up, and nobody is warned that it failed."""

    def read() -> object:
        with open_file(shared_file, timeout=1.0) as store:
            return task(store).get("page"), [record.getMessage() for record in caplog.records]

    shared_file.chmod(0o444)
    assert as_nobody(read) == (40, [])
    with locked(shared_file):
        began = time.monotonic()
        assert read() == (40, [])
        assert time.monotonic() - began < 0.5


# ------------------------------------------------------------------------------------------------ journal mode

# SQLite without shared memory, as on a network drive: its own VFS that locks by dot files becomes the default one
DOTFILE = """
import _sqlite3, ctypes, sys
library = ctypes.CDLL(_sqlite3.__file__)
library.sqlite3_vfs_find.restype = ctypes.c_void_p
vfs = library.sqlite3_vfs_find(b"unix-dotfile")
assert vfs and library.sqlite3_vfs_register(ctypes.c_void_p(vfs), 1) == 0
import keepstate
try:
    keepstate.connect("sqlite:///" + sys.argv[1])
except keepstate.ConfigurationError as exc:
    print(exc)
"""


def test_a_place_without_shared_memory_is_refused(tmp_path: Path) -> None:
    """SQLite does not grant a write-ahead log there, and without one a store is neither durable nor shared."""
    done = subprocess.run(
        [sys.executable, "-c", DOTFILE, str(tmp_path / "keepstate.db")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "does not let SQLite share a write-ahead log (a network drive?)" in done.stdout
    assert "use PostgreSQL through KEEPSTATE_URL" in done.stdout


def test_a_store_in_another_mode_is_brought_back_by_the_next_write(file: Path) -> None:
    """Somebody's tool turned the log off; reading does not mind."""
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        assert other.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",)
    with open_file(file) as store:
        assert task(store).get("page") == 40
        task(store).set("page", 41)
        assert store.backend._db.query("PRAGMA journal_mode", {}) == [("wal",)]  # type: ignore[attr-defined]


def test_every_error_about_a_file_is_of_the_tree(tmp_path: Path) -> None:
    """A socket, a device and a pipe are no files to keep state in."""
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/null", "/proc/self/status", tmp_path / "pipe"):
        with pytest.raises(KeepstateError) as caught, open_file(path, timeout=0.2) as store:
            task(store).set("page", 1)
        assert isinstance(caught.value, (BackendError, ConfigurationError))


# ------------------------------------------------------------------------------- files that go while in use

LOST = "deleted, moved or replaced"


def move_away(file: Path) -> Path:
    """Move a store and its log into a folder beside it."""
    away = file.parent / "away"
    away.mkdir()
    for one in file.parent.glob("keepstate.db*"):
        one.rename(away / one.name)
    return away


def test_nothing_is_acknowledged_into_a_file_that_was_deleted(file: Path) -> None:
    """Nor is it made anew, empty, by a process whose state was in it."""
    with open_file(file) as store:
        task(store).set("page", 41)
        for one in file.parent.glob("keepstate.db*"):
            one.unlink()
        for _ in range(2):
            with pytest.raises(BackendUnavailableError, match=LOST):
                task(store).set("page", 42)
            with pytest.raises(BackendUnavailableError, match=LOST):
                task(store).get("page")
            with pytest.raises(BackendUnavailableError, match=LOST):
                store.backend.check_writable()
        assert siblings(file) == []


def test_reading_notices_after_a_second(file: Path) -> None:
    """It need not look each time."""
    with open_file(file) as store:
        assert task(store).get("page") == 40
        move_away(file)
        time.sleep(1.1)
        with pytest.raises(BackendUnavailableError, match=LOST):
            task(store).get("page")


def test_a_file_that_is_put_back_is_gone_on_with(file: Path) -> None:
    """With all that was written before it went."""
    with open_file(file) as store:
        task(store).set("page", 41)
        away = move_away(file)
        with pytest.raises(BackendUnavailableError, match=LOST):
            task(store).set("page", 42)
        for one in away.iterdir():
            one.rename(file.parent / one.name)
        assert task(store).get("page") == 41
        task(store).set("page", 42)
    with open_file(file) as store:
        assert task(store).get("page") == 42


def test_a_file_that_was_replaced_is_another_processs(file: Path, tmp_path: Path) -> None:
    """A backup that was put in its place is whole, and used by who opens it from now on."""
    backup = tmp_path / "backup" / "keepstate.db"
    backup.parent.mkdir()
    with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(backup)) as target:
        source.backup(target)
    with open_file(file) as store:
        task(store).set("page", 41)
        for suffix in ("-wal", "-shm"):
            file.with_name(file.name + suffix).unlink()
        backup.replace(file)
        with pytest.raises(BackendUnavailableError, match=LOST):
            task(store).set("page", 42)
        with open_file(file) as other:
            task(other).set("page", 43)
    with open_file(file) as store:
        assert task(store).get("page") == 43


def test_a_connection_that_is_forgotten_lets_go_of_the_file(file: Path) -> None:
    """At once, not when the garbage is collected: a signal's exception may come between any two lines."""
    with open_file(file) as store, closing(sqlite3.connect(file, timeout=0)) as other:
        connection = store.backend._db._connect()  # type: ignore[attr-defined]
        connection.hand.execute("BEGIN IMMEDIATE")
        gc.collect()
        gc.disable()
        try:
            with pytest.raises(sqlite3.OperationalError):
                other.execute("BEGIN IMMEDIATE")
            del connection
            other.execute("BEGIN IMMEDIATE")
        finally:
            gc.enable()
        other.execute("ROLLBACK")


def test_the_embedded_file_is_its_owners_alone(tmp_path: Path) -> None:
    """Whatever the umask and the folder allow; a file that is there keeps its rights, and one of a URL has the umask's."""
    before = os.umask(0o022)
    try:
        tmp_path.chmod(0o755)
        with keepstate.connect(settings=Settings(home=str(tmp_path))) as store:
            task(store).set("page", 1)
            modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in tmp_path.glob("keepstate.db*")}
            assert modes == dict.fromkeys(("keepstate.db", "keepstate.db-wal", "keepstate.db-shm"), 0o600)
        (tmp_path / "keepstate.db").chmod(0o640)
        with keepstate.connect(settings=Settings(home=str(tmp_path))) as store:
            assert task(store).get("page") == 1
        assert stat.S_IMODE((tmp_path / "keepstate.db").stat().st_mode) == 0o640
        with open_file(tmp_path / "other.db") as store:
            task(store).set("page", 1)
        assert stat.S_IMODE((tmp_path / "other.db").stat().st_mode) == 0o644
    finally:
        os.umask(before)
