"""Values and writers that somebody else has written into the tables: none is taken for one of keepstate's."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest

from keepstate.connect import connect
from keepstate.errors import StoreCorruptedError
from keepstate.settings import Settings
from keepstate.values import decode, encode
from tests.support.served import serving_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from keepstate.store import StateStore

DAMAGED = [
    "1e999",
    "[-1e999]",
    "1" * 400 + ".5",
    r'"\ud800"',
    r'{"\uDFFF":1}',
    "null",
    " null",
    "NaN",
    "{",
    '"\0"',
    b"\xff",
    b"1",
]
# SQLite keeps as a text what it is told is one
NO_UTF_8 = [b"\xff", b'"\xff"', b'"\xed\xa0\x80"', b'"\x00\xff"']


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    """A store with two entries of one task instance."""
    with connect(f"sqlite:///{tmp_path}/state.db", settings=Settings()) as opened:
        opened.task("d", "r", "t", try_number=1).set_many({"bad": 1, "good": 2})
        yield opened


def spoil(
    store: StateStore,
    column: str,
    value: str | bytes | int,
    kind: str = "",
    tables: tuple[str, ...] = ("entry", "log"),
) -> None:
    """Write into the table, past keepstate, what the entry `bad` has; with `kind`, as of that type."""
    what = f"CAST(? AS {kind})" if kind else "?"
    connection = sqlite3.connect(store.backend.address.removeprefix("sqlite:///"))
    with connection:
        for table in tables:
            connection.execute(
                f"UPDATE keepstate_{table} SET {column} = {what} WHERE entry_key = 'bad'", [value]
            )
    connection.close()


@pytest.mark.parametrize(
    ("text", "kind"),
    [*((text, "") for text in DAMAGED), *((text, "TEXT") for text in NO_UTF_8)],
    ids=repr,
)
def test_a_value_that_keepstate_did_not_write_is_named(
    store: StateStore, text: str | bytes, kind: str
) -> None:
    """With its task instance and key, by every way of reading; its neighbours are read, and it can be written anew."""
    spoil(store, "value", text, kind)
    task = store.task("d", "r", "t", try_number=1)
    for read in (
        lambda: task.get("bad"),
        lambda: task.get_many(["bad"]),
        lambda: task.entry("bad"),
        task.items,
        lambda: task.history("bad"),
        lambda: task.update("bad", str),
    ):
        with pytest.raises(
            StoreCorruptedError, match=r"under the key 'bad' of d / r / t that keepstate did not"
        ) as caught:
            read()
        str(caught.value).encode()
    assert task.get("good") == 2
    # one that registers is read within a transaction
    with pytest.raises(StoreCorruptedError, match="under the key 'bad'"):
        store.task("d", "r", "t", try_number=2).items()
    task = store.task("d", "r", "t", try_number=2)
    task.set("bad", 3)
    assert task.get("bad") == 3


@pytest.mark.parametrize(
    ("text", "kind"), [("null", ""), (b"\xff", ""), (b'"\xff"', "TEXT"), ('"\0"', "")], ids=repr
)
def test_a_server_leaves_it_to_its_clients_to_name_it(
    store: StateStore, text: str | bytes, kind: str
) -> None:
    """The answer comes whole, so that what stands beside it is read."""
    spoil(store, "value", text, kind)
    with (
        serving_store(store) as served,
        connect(served.url, settings=Settings(token=served.token("worker"), retry_timeout=0)) as client,
    ):
        with pytest.raises(StoreCorruptedError, match="under the key 'bad' of d / r / t"):
            client.task("d", "r", "t").items()
        with pytest.raises(StoreCorruptedError, match="under the key 'bad' of d / r / t"):
            client.task("d", "r", "t").history("bad")
        assert client.task("d", "r", "t").get_many(["good"]) == {"good": 2}


def test_after_such_a_value_texts_are_texts_again(store: StateStore) -> None:
    """The connection that read it goes on with others."""
    store.task("d", "r", "t").set("é", "é")
    spoil(store, "value", b"\xff", "TEXT")
    with pytest.raises(StoreCorruptedError):
        store.task("d", "r", "t").get("bad")
    assert store.task("d", "r", "t").get_many(["é", "good"]) == {"é": "é", "good": 2}


def test_a_nul_within_a_value_is_none_that_damages_it(store: StateStore) -> None:
    """JSON has it as an escape, as it has a backslash before one."""
    with (
        serving_store(store) as served,
        connect(served.url, settings=Settings(token=served.token("worker"), retry_timeout=0)) as client,
    ):
        task = client.task("d", "r", "t")
        task.set_many({"nul": "a\0", "escape": r"\u0000"})
        assert task.get_many(["nul", "escape"]) == {"nul": "a\0", "escape": r"\u0000"}


def test_a_writer_that_keepstate_did_not_write_is_named(store: StateStore) -> None:
    """A name that nobody could print, too."""
    spoil(store, "writer", r'{"kind":"web","name":"\ud800"}')
    task = store.task("d", "r", "t")
    assert task.get("bad") == 1
    with pytest.raises(StoreCorruptedError, match="a writer under the key 'bad'"):
        task.entry("bad")


@pytest.mark.parametrize("column", ["updated_at", "expires_at"])
@pytest.mark.parametrize("stored", ["soon", b"\xff", 2**62])
def test_a_time_that_keepstate_did_not_write_is_named(
    store: StateStore, column: str, stored: str | bytes | int
) -> None:
    """The value is read all the same, and written anew, and with it the time."""
    spoil(store, column, stored, tables=("entry",))
    task = store.task("d", "r", "t", try_number=1)
    assert task.get("bad") == 1
    for read in (lambda: task.entry("bad"), task.entries, lambda: task.entries(damaged=True)):
        with pytest.raises(StoreCorruptedError, match="a time under the key 'bad' of d / r / t"):
            read()
    task.set("bad", 2)
    assert [entry.value for entry in task.entries()] == [2, 2]


@pytest.mark.parametrize("value", ["\x01", "\\ud800", "😀", 1.7e308, -5e-324, [None, 1e16], "\u2028"])
def test_what_looks_damaged_and_is_not_is_read(value: object) -> None:
    """Escapes of control characters, of backslashes, and pairs; large and small numbers."""
    assert decode(encode(value)) == value
    assert decode(r'"\ud83d\ude00"') == "😀"
