"""What database servers of our own have in common: a process on loopback TCP, whose port stays over `stop` and `start`."""

from __future__ import annotations

import itertools
import secrets
from typing import TYPE_CHECKING

from tests.support.daemons import Daemon, UnavailableError, free_port

if TYPE_CHECKING:
    import signal
    from pathlib import Path


class DatabaseServer:
    """A server of our own on loopback TCP, password-protected. `start` after making one."""

    PORT_IS_TAKEN: str
    """What it says when somebody else has its port."""

    def __init__(self, directory: Path) -> None:
        """Prepare one in `directory`."""
        self._directory = directory
        self._data = directory / "data"
        self._password = secrets.token_hex(8)
        self._daemon: Daemon | None = None
        self._port = 0
        self._numbers = itertools.count(1)

    @property
    def pid(self) -> int | None:
        """The process id of the server, or None when it is stopped."""
        return self._daemon.pid if self._daemon else None

    def start(self) -> None:
        """Start the server and wait until it answers. Its first start makes what it keeps and picks a port."""
        if not self._data.exists():
            self._initialize()
        attempts = 1 if self._port else 5
        for attempt in range(1, attempts + 1):
            self._port = self._port or free_port()
            try:
                self._start()
            except UnavailableError as error:
                if attempt == attempts or self.PORT_IS_TAKEN not in str(error):
                    raise
                self._port = 0  # somebody else took it in between
            else:
                return

    def _start(self) -> None:
        self._daemon = self._launched()
        try:
            self._daemon.wait(self._is_ready)
        except UnavailableError:
            self._daemon = None
            raise

    def _stop(self, *signals: signal.Signals) -> None:
        daemon, self._daemon = self._daemon, None
        if daemon is not None:
            daemon.stop(*signals)

    def _initialize(self) -> None:
        """Make what the server keeps its data in."""
        raise NotImplementedError

    def _launched(self) -> Daemon:
        """Return the server's process, begun."""
        raise NotImplementedError

    def _is_ready(self) -> bool:
        """Whether the server answers."""
        raise NotImplementedError
