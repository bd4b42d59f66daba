"""The environment, read once into one typed object. Nothing else in keepstate reads the environment.

The five settings of Airflow's ``[state_store]`` section keep Airflow's names; keepstate's own begin with
``KEEPSTATE_``. A bad value is refused with its variable, the value, and what is allowed.
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from keepstate.clock import DAY, SECOND
from keepstate.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_TRUE = {"1", "t", "true", "yes", "on"}
_FALSE = {"0", "f", "false", "no", "off"}


# strictly what an address with or without credentials looks like: no character that might begin another part
_ADDRESS = re.compile(
    r"(?P<scheme>(?:postgresql|postgres|mysql|mariadb)(?:\+\w+)?://)"
    r"(?:(?P<user>[^\s:@/?#]*)(?P<secret>:[^\s@/?#]*)?@)?"
    r"(?P<place>(?:[\w.-]*|\[[\da-fA-F:.]+\])(?::\d+)?(?:/[^\s:@/?#]*)?)(?:\?[^@]*)?",
    re.ASCII,
)
_FILE = re.compile(r"(sqlite:///[^?]*)(\?.*)?", re.ASCII | re.DOTALL)
# before an @ there might be a token instead of a user
_SERVER = re.compile(r"(https?://(?:[\w.-]+|\[[\da-fA-F:.]+\])(?::\d+)?)/?", re.ASCII | re.IGNORECASE)
# as above, and with a path
_PAGES_URL = re.compile(_SERVER.pattern.removesuffix("/?") + r"(?:/[\w.~-]+)*/?", re.ASCII | re.IGNORECASE)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:", re.ASCII)
_TOKEN = re.compile(r"[!-~]+", re.ASCII)
_PATH = re.compile(r"(?!//)[^\s:=@?#]+")


def shown_url(text: str) -> str:
    """Return a store's URL for people to see: without its password and options.

    Of a text that can't surely be taken apart only its scheme is shown, as any other part may be the password.
    """
    if text in {"", "memory:"}:
        return text
    if file := _FILE.fullmatch(text):
        return file[1]
    if found := _ADDRESS.fullmatch(text):
        user, secret = found["user"], ":***" if found["secret"] else ""
        at = "" if user is None else f"{user}{secret}@"
        return f"{found['scheme']}{at}{found['place']}"
    if server := _SERVER.fullmatch(text):
        return server[1]
    if _PATH.fullmatch(text):
        return text
    scheme = _SCHEME.match(text)
    return f"{scheme[0]}…" if scheme else "…"


HIDDEN = "***"
"""What people see of a secret."""


class _RefusedError(Exception):
    """Says what is allowed; becomes a ``ConfigurationError`` that also names the variable and the value."""


def _whole(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = low - 1
        if not low <= number <= high:
            raise _RefusedError(f"a whole number from {low} to {high}")
        return number

    return parse


def _seconds(low: float, high: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not low <= number <= high:
            raise _RefusedError(f"a number of seconds from {low:g} to {high:g}")
        return number

    return parse


def _flag(text: str) -> bool:
    word = text.strip().lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise _RefusedError("True or False")


def _text(text: str) -> str:
    return text


def _token(text: str) -> str:
    # it goes into a header, which has no room for anything else
    if not _TOKEN.fullmatch(text):
        raise _RefusedError(
            "a token as `keepstate token create` printed it: no space, and nothing beyond ASCII"
        )
    return text


def _address(text: str) -> str:
    if not _PAGES_URL.fullmatch(text):
        raise _RefusedError("a URL like https://state.example.com/keepstate")
    return text.rstrip("/")


def _id(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _RefusedError("valid UTF-8") from None
    return text


def _setting(
    variable: str, parse: Callable[[str], Any], default: Any, meaning: str, *, secret: bool = False
) -> Any:
    return field(
        default=default, repr=not secret, metadata={"variable": variable, "parse": parse, "meaning": meaning}
    )


@dataclass(frozen=True)
class Settings:
    """What is in force. ``Settings.load()`` reads the environment; the constructor takes values as they are."""

    backend: str | None = _setting(
        "AIRFLOW__STATE_STORE__BACKEND", _text, None, "dotted path of a custom class that stores state"
    )
    default_retention_days: int = _setting(
        "AIRFLOW__STATE_STORE__DEFAULT_RETENTION_DAYS",
        _whole(0, 1_000_000),
        30,
        "days after which an entry written without a retention expires; 0 means never",
    )
    clear_on_success: bool = _setting(
        "AIRFLOW__STATE_STORE__CLEAR_ON_SUCCESS",
        _flag,
        False,  # noqa: FBT003 - the default, as in every row
        "whether a task instance's entries are deleted when it succeeds",
    )
    state_cleanup_batch_size: int = _setting(
        "AIRFLOW__STATE_STORE__STATE_CLEANUP_BATCH_SIZE",
        _whole(0, 1_000_000),
        0,
        "rows removed per transaction by a cleanup; 0 means a bound chosen by keepstate",
    )
    max_value_storage_bytes: int = _setting(
        "AIRFLOW__STATE_STORE__MAX_VALUE_STORAGE_BYTES",
        _whole(0, 2**31 - 1),
        65_535,
        "bytes of JSON above which REST and pages refuse a value and a task's write warns; 0 turns the limit off",
    )
    url: str | None = _setting(
        "KEEPSTATE_URL", _text, None, "where state is stored: a URL as for keepstate.connect()", secret=True
    )
    token: str | None = _setting(
        "KEEPSTATE_TOKEN",
        _token,
        None,
        "the token for the keepstate server that KEEPSTATE_URL names",
        secret=True,
    )
    home: str | None = _setting(
        "KEEPSTATE_HOME",
        _text,
        None,
        "folder of the embedded store; default is the platform's user data folder",
    )
    history_limit: int = _setting(
        "KEEPSTATE_HISTORY_LIMIT", _whole(0, 10_000), 20, "versions kept per key; 0 keeps no history"
    )
    history_days: int = _setting(
        "KEEPSTATE_HISTORY_DAYS",
        _whole(0, 36_500),
        7,
        "days for which the history of a deleted or cleared key is kept",
    )
    retry_timeout: float = _setting(
        "KEEPSTATE_RETRY_TIMEOUT",
        _seconds(0, 86_400),
        30.0,
        "seconds for which a call is repeated if the store is busy or can't be reached",
    )
    cleanup_interval: float = _setting(
        "KEEPSTATE_CLEANUP_INTERVAL",
        _seconds(0, 86_400),
        900.0,
        "seconds between two cleanups by a server, or by Airflow; 0 turns them off",
    )
    pages_url: str | None = _setting(
        "KEEPSTATE_PAGES_URL",
        _address,
        None,
        "address of the pages of `keepstate serve`, to which Airflow 2.11 and 3.0 link",
    )
    heartbeat: float = _setting(
        "KEEPSTATE_HEARTBEAT",
        _seconds(0.05, 3_600),
        10.0,
        "seconds between heartbeats of a running attempt; on another host, it counts as lost after three missed ones",
    )
    dag_id: str | None = _setting("KEEPSTATE_DAG_ID", _id, None, "the supervised dag, set by `keepstate run`")
    run_id: str | None = _setting("KEEPSTATE_RUN_ID", _id, None, "the supervised run, set by `keepstate run`")
    task_id: str | None = _setting(
        "KEEPSTATE_TASK_ID", _id, None, "the supervised task, set by `keepstate run`"
    )
    map_index: int = _setting(
        "KEEPSTATE_MAP_INDEX",
        _whole(-1, 2**31 - 1),
        -1,
        "the supervised map index; -1 when the task is not mapped",
    )
    try_number: int | None = _setting(
        "KEEPSTATE_TRY_NUMBER", _whole(1, 2**31 - 1), None, "the supervised attempt, set by `keepstate run`"
    )
    attempt_id: str | None = _setting(
        "KEEPSTATE_ATTEMPT_ID", _id, None, "the supervised attempt's unique id, set by `keepstate run`"
    )

    @classmethod
    def load(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """Read ``environ`` (default: the process environment). An empty variable counts as unset.

        Raises ``ConfigurationError`` naming the variable, its value and what is allowed.
        """
        source = os.environ if environ is None else environ
        given: dict[str, Any] = {}
        for item in fields(cls):
            variable = item.metadata["variable"]
            text = source.get(variable, "")
            if text == "":
                continue
            try:
                given[item.name] = item.metadata["parse"](text)
            except _RefusedError as refused:
                shown = text if item.repr else HIDDEN
                raise ConfigurationError(
                    f"{variable} is {shown!r}, but must be {refused}", variable=variable, value=shown
                ) from None
        return cls(**given)

    @property
    def lease(self) -> int:
        """Microseconds without a sign of life after which an attempt on another host counts as lost."""
        return int(self.heartbeat * 3 * SECOND)

    @property
    def idle_scope_micros(self) -> int | None:
        """Microseconds after its last change at which a scope without entries is purged; ``None`` for never."""
        return self.default_retention_days * DAY or None


def describe() -> list[tuple[str, Any, str]]:
    """Return every setting as (variable, default, meaning), in the order of the documentation."""
    return [(item.metadata["variable"], item.default, item.metadata["meaning"]) for item in fields(Settings)]


def survey(
    environ: Mapping[str, str] | None = None, airflow: Mapping[str, str] | None = None
) -> list[tuple[str, Any, str, str | None]]:
    """Return every setting as it stands in ``environ`` (default: the process environment), refusing none.

    Each is (variable, value, source, problem): ``source`` is ``environment`` or ``default``, and a value that
    `Settings.load` would refuse is given as it is written, with the refusal as its problem. The URL is given without its
    password, and of a token only that there is one. What ``airflow`` has besides, as Airflow's configuration reads, has the
    source ``airflow``. Variables that begin with ``KEEPSTATE_`` and name no setting come last, with source ``unknown`` and without
    their values, which nobody knows to be harmless.
    """
    source = os.environ if environ is None else environ
    found: list[tuple[str, Any, str, str | None]] = []
    for item in fields(Settings):
        variable = item.metadata["variable"]
        text, origin = source.get(variable, ""), "environment"
        if text == "" and airflow is not None:
            text, origin = airflow.get(variable, ""), "airflow"
        if text == "":
            found.append((variable, item.default, "default", None))
            continue
        try:
            value = getattr(Settings.load({variable: text}), item.name)
        except ConfigurationError as exc:
            found.append((variable, text if item.repr else HIDDEN, origin, str(exc)))
        else:
            # it is for people to see
            shown = shown_url(value) if item.name == "url" else value if item.repr else HIDDEN
            found.append((variable, shown, origin, None))
    known = {setting[0] for setting in found}
    strangers = sorted(name for name in source if name.startswith("KEEPSTATE_") and name not in known)
    return found + [(name, None, "unknown", "this version has no such setting") for name in strangers]
