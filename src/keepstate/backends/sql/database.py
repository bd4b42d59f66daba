"""What the SQL backend asks of a database connection, and how trouble is told apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from keepstate.backends.sql.dialects import Dialect

Row = tuple[Any, ...]
Params = Mapping[str, Any]


class TransientError(Exception):
    """The database is busy, gone, or gave up on a transaction: trying again may work. Never leaves the backend.

    ``at_once``: a pooled connection turned out to be dead; the next one may work, without a pause.
    """

    def __init__(self, message: str, *, at_once: bool = False) -> None:
        super().__init__(message)
        self.at_once = at_once


class RepeatedRequestError(Exception):
    """``PUT_IN_ONE`` met a request that its session had numbered before. Never leaves the backend."""


class AlreadyDoneError(Exception):
    """What a statement makes is there, or what it drops is not. Never leaves the backend."""


class Transaction(Protocol):
    """Statements that apply together."""

    def all(self, sql: str, params: Params) -> list[Row]:
        """Return all rows."""
        ...

    def one(self, sql: str, params: Params) -> Row | None:
        """Return the first row, if any."""
        ...

    def run(self, sql: str, params: Params) -> int:
        """Return how many rows changed."""
        ...

    def run_many(self, sql: str, rows: Sequence[Params]) -> int:
        """Run a statement once for each of ``rows``, in few round trips where the driver can; return how many changed."""
        ...


class Database(Protocol):
    """A database. Errors come out translated: ``TransientError`` or one of `keepstate.errors`."""

    dialect: Dialect
    address: str

    def query(self, sql: str, params: Params) -> list[Row]:
        """Run one statement by itself and return its rows."""
        ...

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Open a write transaction; it commits on leaving, and rolls back on an exception."""
        ...

    def close(self) -> None:
        """Close what was opened here."""
        ...
