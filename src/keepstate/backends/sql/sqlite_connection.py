"""One connection to a SQLite file: it closes when it is forgotten, and reads what is no text, too."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keepstate.backends.sql.database import Params, Row

_NO_TEXT = "Could not decode to UTF-8"


class Connection:
    """A connection with the cursor that runs its statements, and whether its file is known to be in WAL mode.

    Beside the driver's connection, which is in circles with its cursors and statements. One that is forgotten, because a
    signal's exception came between two lines, would keep the file locked until the garbage is collected; this one closes.
    """

    __slots__ = ("hand", "is_wal", "raw")

    def __init__(self, raw: sqlite3.Connection) -> None:
        self.raw = raw
        # one cursor for all: making one takes as long as a small statement
        self.hand = raw.cursor()
        self.is_wal = False

    def rows(self, sql: str, params: Params) -> list[Row]:
        """Run a statement that changes nothing, and return its rows. A text that is no UTF-8 comes as bytes.

        Somebody else wrote it. The driver would refuse the row, and with it all that were asked for.
        """
        try:
            return self.hand.execute(sql, params).fetchall()
        except sqlite3.OperationalError as exc:
            if _NO_TEXT not in str(exc):
                raise
        # only then, as a function for each text would make every reading slower
        self.raw.text_factory = _text_or_bytes
        try:
            return self.hand.execute(sql, params).fetchall()
        finally:
            self.raw.text_factory = str

    def close(self) -> None:
        """Undo what is under way, and close.

        Closing alone would not do: as long as somebody's traceback holds a statement that an exception cut short, SQLite
        keeps the connection half alive, and the file locked.
        """
        with suppress(sqlite3.Error):
            self.hand.close()
        with suppress(sqlite3.Error):
            self.raw.rollback()
        self.raw.close()

    def __del__(self) -> None:
        # at the interpreter's end, what it takes may be gone already
        try:
            self.raw.rollback()
            self.raw.close()
        except Exception:  # noqa: BLE001, S110 - nobody would hear of it
            pass


def _text_or_bytes(stored: bytes) -> str | bytes:
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return stored
