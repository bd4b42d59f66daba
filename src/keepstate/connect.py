"""From a URL to a store: the one room that knows all backends."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keepstate.clock import Clock, system_clock
from keepstate.errors import ConfigurationError, UnsupportedError
from keepstate.settings import Settings, shown_url
from keepstate.store import StateStore

if TYPE_CHECKING:
    from keepstate.backends.base import Backend
    from keepstate.backends.sql.database import Database
    from keepstate.backends.sql.tables import Tables
    from keepstate.backends.sql.tokens import TokenRows

# naming one of these as the backend means: no custom class
_NOT_CUSTOM = frozenset(
    {
        "airflow.state.metastore.MetastoreBackend",
        "keepstate.integrations.airflow.StoreBackend",
    }
)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_SERVERS = frozenset({"http", "https"})
_KNOWN = "sqlite:///FILE, postgresql://USER@HOST/DATABASE, mysql://USER@HOST/DATABASE, https://HOST (a keepstate server), or memory:"
_POSTGRESQL = frozenset({"postgresql", "postgres"})
_MYSQL = frozenset({"mysql", "mariadb"})


def connect(
    url: str | Any | None = None,
    *,
    settings: Settings | None = None,
    clock: Clock = system_clock,
    purge_on_open: bool = True,
) -> StateStore:
    """Open the store at ``url``, making or upgrading its tables when needed.

    ``url``: ``sqlite:///FILE``, ``postgresql://…``, ``mysql://…``, ``http(s)://…`` (a keepstate server, asked with
    ``KEEPSTATE_TOKEN``), ``memory:``, or a SQLAlchemy ``Engine``, which stays the caller's.
    Without one: ``KEEPSTATE_URL``, then the custom class of ``[state_store] backend``, then the embedded SQLite file
    ``$KEEPSTATE_HOME/keepstate.db``. ``purge_on_open`` removes a batch of what has expired from an embedded store.

    Raises ``ConfigurationError`` for a URL that can't be used or a missing extra, and a ``BackendError`` when the store
    can't be opened.
    """
    settings = settings or Settings.load()
    if url is not None and not isinstance(url, str):
        return _over(_engine_database(url, settings), settings, clock)
    way = route(url, settings)
    if way == "backend":
        from keepstate.backends import custom

        def keeper() -> Backend:
            return _over(_embedded(settings), settings, clock).backend

        return StateStore(custom.load(settings.backend or "", keeper=keeper), settings=settings, clock=clock)
    if way == "embedded":
        database = _embedded(settings)
        return _over(database, settings, clock, embedded=True, purge=purge_on_open)
    return _from_url(url or settings.url or "", settings, clock, purge=purge_on_open)


def route(url: str | None, settings: Settings) -> str:
    """Return what decides where state lives: ``argument``, ``KEEPSTATE_URL``, ``backend`` or ``embedded``."""
    if url:
        return "argument"
    if settings.url:
        return "KEEPSTATE_URL"
    if settings.backend and settings.backend not in _NOT_CUSTOM:
        return "backend"
    return "embedded"


def tables_at(url: str | Any | None, settings: Settings) -> Tables:
    """Return the tables of a SQL store without opening the store, which would make or upgrade them (`keepstate db`).

    ``url`` may be a SQLAlchemy ``Engine``, as for `connect`. Raises ``UnsupportedError`` where the store has no tables of
    keepstate's.
    """
    if url is not None and not isinstance(url, str):
        from keepstate.backends.sql.tables import Tables

        return Tables(_engine_database(url, settings))
    if route(url, settings) == "backend" or _scheme(url or settings.url or "") in {"memory", *_SERVERS}:
        raise UnsupportedError(
            "this store has no tables to look after; they are in SQLite, PostgreSQL and MySQL stores, and those of a "
            "keepstate server where the server runs"
        )
    from keepstate.backends.sql.tables import Tables

    return Tables(database_at(url, settings))


def database_at(url: str | None, settings: Settings) -> Database:
    """Return the bare database of a URL, for those who look after its tables (`keepstate db`)."""
    url = url or settings.url
    if not url:
        return _embedded(settings)
    scheme = _scheme(url)
    if scheme == "sqlite":
        return _sqlite(sqlite_path(url), settings)
    family = scheme.partition("+")[0]
    if family in _POSTGRESQL:
        from keepstate.backends.sql import postgresql

        return postgresql.open_url(url, timeout=settings.retry_timeout)
    if family in _MYSQL:
        from keepstate.backends.sql import mysql

        return mysql.open_url(url, timeout=settings.retry_timeout)
    raise _unusable(url, scheme)


def tokens_of(store: StateStore) -> TokenRows:
    """Return the table of the server's tokens in a SQL store.

    Raises ``UnsupportedError`` where the store has no tables of keepstate's.
    """
    from keepstate.backends.sql.backend import SqlBackend

    if not isinstance(store.backend, SqlBackend):
        raise UnsupportedError(
            f"the store {store.backend.address} has no table for tokens; they live where a server's state does: name "
            "that SQLite file, or PostgreSQL or MySQL database, with KEEPSTATE_URL"
        )
    return store.backend.tokens()


def absolute(url: str) -> str:
    """Return the URL of the same store for a process in another folder."""
    return f"sqlite:///{sqlite_path(url).absolute()}" if _scheme(url) == "sqlite" else url


def absolute_home(home: str) -> str:
    """Return the same ``KEEPSTATE_HOME`` for a process in another folder."""
    return str(_expanded(home, "KEEPSTATE_HOME").absolute())


def _expanded(path: str, variable: str | None = None) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError as exc:
        raise ConfigurationError(
            f"{path!r} can't be found: there is no such home; write the whole path",
            variable=variable,
            value=path,
        ) from exc


def embedded_path(settings: Settings) -> Path:
    """Return the file of the embedded store, making its folder, readable by its owner alone, when it is missing."""
    if settings.home:
        home = _expanded(settings.home, "KEEPSTATE_HOME")
    else:
        import platformdirs

        try:
            home = platformdirs.user_data_path("keepstate", appauthor=False)
        except RuntimeError:
            home = Path("~")
        # some versions of it raise, and some leave the ~
        if not home.is_absolute():
            raise ConfigurationError(
                "this user has no home folder for the embedded store; set KEEPSTATE_HOME or KEEPSTATE_URL",
                variable="KEEPSTATE_HOME",
            )
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        raise ConfigurationError(
            f"the folder {home} for the embedded store can't be made: {exc.strerror}; set KEEPSTATE_HOME to another",
            variable="KEEPSTATE_HOME",
            value=str(home),
        ) from exc
    return home / "keepstate.db"


def _from_url(url: str, settings: Settings, clock: Clock, *, purge: bool) -> StateStore:
    if url == "memory:":
        from keepstate.backends.memory import MemoryBackend

        return StateStore(MemoryBackend(), settings=settings, clock=clock)
    if _scheme(url) in _SERVERS:
        return StateStore(_server(url, settings, clock), settings=settings, clock=clock)
    database = database_at(url, settings)
    return _over(database, settings, clock, embedded=database.dialect.name == "sqlite", purge=purge)


def _server(url: str, settings: Settings, clock: Clock) -> Backend:
    from keepstate.backends.http.backend import HttpBackend

    return HttpBackend(url, token=settings.token, retry_timeout=settings.retry_timeout, now=clock)


def _over(
    database: Database, settings: Settings, clock: Clock, *, embedded: bool = False, purge: bool = True
) -> StateStore:
    from keepstate.backends.sql.backend import SqlBackend

    try:
        backend: Backend = SqlBackend(database, now=clock, retry_timeout=settings.retry_timeout)
    except BaseException:
        database.close()
        raise
    store = StateStore(backend, settings=settings, clock=clock, purges_itself=embedded)
    if embedded and purge:
        store.purge_quietly()
    return store


def _embedded(settings: Settings) -> Database:
    return _sqlite(embedded_path(settings), settings, private=True)


def _sqlite(path: Path, settings: Settings, *, private: bool = False) -> Database:
    from keepstate.backends.sql.sqlite import SqliteDatabase

    return SqliteDatabase(path, timeout=settings.retry_timeout, private=private)


def _engine_database(engine: Any, settings: Settings) -> Database:
    if not hasattr(engine, "dialect"):
        hint = f"; write 'sqlite:///{engine}'" if isinstance(engine, Path) else ""
        raise ConfigurationError(
            f"connect() takes a URL or a SQLAlchemy Engine, not {engine!r:.80} of type {type(engine).__name__}{hint}"
        )
    if engine.dialect.name == "sqlite":
        # the same file, without a layer that has transactions of its own
        file = engine.url.database
        if not file or file == ":memory:":
            raise ConfigurationError("an engine over SQLite in memory can't be shared; use memory: or a file")
        return _sqlite(Path(file), settings)
    timeout = settings.retry_timeout
    if engine.dialect.name in _POSTGRESQL:
        from keepstate.backends.sql.postgresql import PostgresDatabase

        return PostgresDatabase(engine, owned=False, timeout=timeout)
    if engine.dialect.name in _MYSQL:
        from keepstate.backends.sql.mysql import MysqlDatabase

        return MysqlDatabase(engine, owned=False, timeout=timeout)
    raise ConfigurationError(
        f"keepstate has no dialect for {engine.dialect.name!r} databases; use SQLite, PostgreSQL or MySQL"
    )


def sqlite_path(url: str) -> Path:
    """Return the file that a SQLite URL names."""
    rest = url[len("sqlite:") :]
    path = rest.removeprefix("///")
    if path == rest or not path or path == ":memory:" or path.startswith("?"):
        raise ConfigurationError(
            f"{shown_url(url)!r} names no file: write sqlite:///relative/file.db or sqlite:////absolute/file.db, "
            "or memory: for a store that ends with the process"
        )
    return _expanded(path)


def _scheme(url: str) -> str:
    found = _SCHEME.match(url)
    return found.group(1).lower() if found else ""


def _unusable(url: str, scheme: str) -> ConfigurationError:
    # the URL itself may hold a password
    if not scheme:
        shown = shown_url(url)
        return ConfigurationError(
            f"the store {shown!r} has no scheme like sqlite:///; a file would be sqlite:///{shown}"
            if shown == url
            else f"the store's URL has no scheme; use {_KNOWN}"
        )
    return ConfigurationError(f"there is no store of the kind {scheme}://; use {_KNOWN}")


class _Connect(types.ModuleType):
    """This module, as the function of its name.

    Python binds an imported submodule to its name in the package. So once anybody has imported this module, that is what
    ``keepstate.connect`` means, and calling it has to go on working.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> StateStore:
        return connect(*args, **kwargs)


sys.modules[__name__].__class__ = _Connect
