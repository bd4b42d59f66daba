"""A way to a backend that leads through a real server: one server, before which tests put one backend after another."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from keepstate.connect import connect
from keepstate.server.app import create_app, create_service
from keepstate.server.metrics import CountingBackend
from keepstate.server.roles import Role
from keepstate.server.work import Work
from keepstate.settings import Settings
from keepstate.store import StateStore
from tests.support.served import running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from keepstate.backends.base import Backend

# tests bring settings of their own, and the server's must not be tighter
WIDE = Settings(history_limit=10_000, history_days=36_500, max_value_storage_bytes=0)


class _Changeable:
    """The backend, and the time, of whatever test is run."""

    address = "somewhere behind"
    guide_only = False

    def __init__(self) -> None:
        self.backend: Any = None
        self.clock: Callable[[], int] = lambda: 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)

    def now(self) -> int:
        return self.clock()


class Detour:
    """A server that is running, a token for it, and what it serves."""

    def __init__(self, url: str, token: str, behind: _Changeable) -> None:
        self.url, self.token, self._behind = url, token, behind

    @contextmanager
    def store(self, backend: Backend, clock: Callable[[], int], **settings: Any) -> Iterator[StateStore]:
        """Have the server serve a backend at the time of a clock; the block gets a store that leads there."""
        self._behind.backend, self._behind.clock = backend, clock
        with connect(self.url, settings=Settings(token=self.token, **settings), clock=clock) as store:
            yield store


@contextmanager
def detour(folder: Path, *, one_writer: bool) -> Iterator[Detour]:
    """Run a server. Its tokens are kept apart from what it serves: in a file of ``folder``."""
    with connect(f"sqlite:///{folder / 'tokens.db'}", settings=Settings()) as tokens:
        service = create_service(tokens)
        behind = _Changeable()
        counted: Any = CountingBackend(behind, service.metrics)  # type: ignore[arg-type]
        service = replace(
            service,
            store=StateStore(counted, settings=WIDE, clock=behind.now),
            work=Work(one_writer=one_writer),
        )
        with running(create_app(service)) as url:
            yield Detour(url, service.tokens.create("tests", Role.ADMIN), behind)
