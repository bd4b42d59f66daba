"""How a backend reaches its database: with patience, no write within a write, and each request once."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, TypeVar

from keepstate.allowance import asked_at
from keepstate.backends.patience import Patience
from keepstate.backends.sessions import Sessions
from keepstate.backends.sql import forking, upgrade
from keepstate.backends.sql.database import Database, Params, Row, Transaction, TransientError
from keepstate.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Callable

    from keepstate.backends.requests import Session

T = TypeVar("T")


class Access:
    """A database whose tables are at this version; what passes by itself is tried again for ``retry_timeout`` seconds."""

    def __init__(self, database: Database, *, now: Callable[[], int], retry_timeout: float) -> None:
        """Open a store, making or upgrading its tables when they are not at this version."""
        self._db = database
        self._retry_timeout = retry_timeout
        self.address = database.address
        self._sessions = Sessions() if database.dialect.commit_may_be_lost else None
        self._writing: set[int] = set()
        forking.carry(self)
        self._make_tables(now)

    def _make_tables(self, now: Callable[[], int]) -> None:
        patience = Patience(self.address, self._retry_timeout, time.monotonic())
        while True:
            try:
                upgrade.upgrade(self._db, now=now())
            except TransientError as exc:
                patience.wait(exc, at_once=exc.at_once)
            else:
                return

    def _query(self, statement: str, params: Params) -> list[Row]:
        since, patience = asked_at(), None
        while True:
            try:
                return self._db.query(statement, params)
            except TransientError as exc:
                patience = patience or Patience(self.address, self._retry_timeout, since)
                patience.wait(exc, at_once=exc.at_once)

    def _write(self, work: Callable[[Transaction], T]) -> T:
        since, patience = asked_at(), None
        me = threading.get_ident()
        if me in self._writing:
            raise self._within_a_write()
        while True:
            self._writing.add(me)
            try:
                with self._db.transaction() as tx:
                    return work(tx)
            except TransientError as exc:
                patience = patience or Patience(self.address, self._retry_timeout, since)
                self._writing.discard(me)
                patience.wait(exc, at_once=exc.at_once)
            finally:
                self._writing.discard(me)

    def _within_a_write(self) -> BackendError:
        """Make the error of a finaliser that writes in the middle of a write: it would wait for its own thread's lock."""
        return BackendError(
            f"the store {self.address} is being written to by this thread already; "
            "write from the task's code, not from a finaliser",
            address=self.address,
        )

    def _numbered(self, given: Session | None, request: Callable[[Session | None], T]) -> T:
        """Give a request a number of our own, unless it has one, or no answer can be lost on the way."""
        sessions = self._sessions
        if given is not None or sessions is None:
            return request(given)
        own = sessions.lend()
        try:
            return request(own)
        finally:
            sessions.take_back(own)

    # ----------------------------------------------------------------------------------------- forking

    def before_fork(self, *, quiet: bool) -> None:
        """Do nothing: the database sees to its connections."""

    def after_fork_in_child(self) -> None:
        """Take new session numbers: going on with the parent's, a child's writes would be taken for repetitions."""
        self._writing.clear()
        if self._sessions is not None:
            self._sessions = Sessions()
