"""Making, checking and ending tokens.

A token is ``kst_<id>_<secret>``. The store keeps the SHA-256 of the secret: it has 256 random bits, so a hash that is slow on
purpose, as passwords need, would protect nothing more and cost every request its time.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from keepstate.backends.answers import StoredToken
from keepstate.clock import DAY, SECOND
from keepstate.errors import InvalidInputError
from keepstate.server.roles import Caller, Role

if TYPE_CHECKING:
    from collections.abc import Callable

    from keepstate.backends.sql.tokens import TokenRows
    from keepstate.clock import Clock

SESSION_LASTS = DAY // 2
LOGIN_LASTS = 600 * SECOND
_KEPT_AFTER_END = 30 * DAY
# How long a revoked token may go on working in another server over the same database.
_TRUSTED_FOR = 1.0
_MOST_TRUSTED = 4096
_TOUCHED_EVERY = 600 * SECOND

_TEXT = re.compile(r"(?P<prefix>kst|kss|ksl)_(?P<id>[0-9a-f]{16})_(?P<secret>[A-Za-z0-9_-]{43})", re.ASCII)
_PREFIXES = {"token": "kst", "session": "kss", "login": "ksl"}
_NAME = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]{1,100}")
_PATTERN = re.compile(r"[^\x00-\x1f\x7f-\x9f\ud800-\udfff]{1,250}")
_ROLES = frozenset(role.value for role in Role)
# What an unknown id is compared with, so that it takes as long as a known one.
_NOBODY = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True)
class _Trusted:
    caller: Caller
    until: float
    expires_at: int | None


class Tokens:
    """The tokens of one store. Threads may share it; what it remembers of a check is a second old at most."""

    def __init__(self, rows: TokenRows, clock: Clock) -> None:
        self._rows = rows
        self._clock = clock
        self._trusted: OrderedDict[tuple[str, str], _Trusted] = OrderedDict()
        self._lock = threading.Lock()

    # --------------------------------------------------------------------------------------------- making

    def create(
        self,
        name: str,
        role: Role,
        *,
        dags: str | None = None,
        assets: str | None = None,
        lasts: int | None = None,
        hand_over: Callable[[str], None] = lambda _: None,
    ) -> str:
        """Make a token and return its text, which nobody can find out afterwards.

        ``hand_over`` gets it before it is valid, perhaps more than once; where that raises, there is no token.

        ``dags`` and ``assets`` are patterns (``*`` any characters, ``?`` one) of what it reaches. With ``dags`` and without
        ``assets`` it reaches no assets. ``lasts`` is in microseconds; ``None`` is for ever. Raises ``InvalidInputError`` for
        a name that a living token has.
        """
        if not _NAME.fullmatch(name) or name != name.strip():
            raise InvalidInputError(
                f"a token's name has 1 to 100 visible characters and no spaces around them: {name!r:.120}"
            )
        for option, pattern in (("dags", dags), ("assets", assets)):
            if pattern is not None and not _PATTERN.fullmatch(pattern):
                raise InvalidInputError(f"the pattern of {option} has 1 to 250 characters: {pattern!r:.300}")
        if dags is not None and assets is None:
            assets = ""
        text, token = self._made("token", name, role, dags, assets, None, lasts)
        if not self._rows.add_named(token, lambda: hand_over(text)):
            raise InvalidInputError(
                f"there is a token named {name!r} already; revoke it with `keepstate token revoke`, or take another name"
            )
        return text

    def open_session(self, caller: Caller) -> str | None:
        """Return the text of a browser's session in the name of ``caller``: it lasts half a day, and never outlives the token.

        ``None`` where the token has ended since it was checked.
        """
        parent, now = self._rows.find(caller.token_id), self._clock()
        left = SESSION_LASTS
        if parent is not None and parent.expires_at is not None:
            left = min(left, parent.expires_at - now)
        text, session = self._made(
            "session", caller.name, caller.role, caller.dags, caller.assets, caller.token_id, left
        )
        return text if self._rows.add_made(session, used_at=now) else None

    def make_login(self, token: StoredToken) -> str:
        """Return a text that logs a browser in once, within ten minutes, in the name of ``token``.

        Raises ``InvalidInputError`` where the token has ended.
        """
        role = Role(token.role)
        text, login = self._made("login", token.name, role, token.dags, token.assets, token.id, LOGIN_LASTS)
        if not self._rows.add_made(login, used_at=None):
            raise InvalidInputError(f"the token {token.name!r} has ended, so it logs nobody in")
        return text

    def _made(
        self,
        kind: str,
        name: str,
        role: Role,
        dags: str | None,
        assets: str | None,
        parent_id: str | None,
        lasts: int | None,
    ) -> tuple[str, StoredToken]:
        """Return the text of a new token, and the row that it is valid by."""
        now = self._clock()
        token_id, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
        expires_at = None if lasts is None else now + lasts
        token = StoredToken(
            token_id, kind, name, _hashed(secret), role.value, dags, assets, parent_id, now, expires_at
        )
        return f"{_PREFIXES[kind]}_{token_id}_{secret}", token

    # ------------------------------------------------------------------------------------------- checking

    def known(self, text: str, kind: str = "token") -> Caller | None:
        """Return whom a token or session makes of a request if that was checked a moment ago; it asks no database."""
        with self._lock:
            trusted = self._trusted.get((kind, _hashed(text)))
        if trusted is None or trusted.until < time.monotonic():
            return None
        if trusted.expires_at is not None and trusted.expires_at <= self._clock():
            return None
        return trusted.caller

    def check(self, text: str, kind: str = "token") -> Caller | None:
        """Return whom a token or session makes of a request; ``None`` for all that is not valid now, whatever the reason."""
        token = self._valid(text, kind)
        if token is None:
            return None
        caller = _caller(token)
        trusted = _Trusted(caller, time.monotonic() + _TRUSTED_FOR, token.expires_at)
        remembered = kind, _hashed(text)
        with self._lock:
            self._trusted[remembered] = trusted
            self._trusted.move_to_end(remembered)
            while len(self._trusted) > _MOST_TRUSTED:
                self._trusted.popitem(last=False)
        return caller

    def note_use(self, caller: Caller) -> None:
        """Note that a token was used, if that was last noted long enough ago; a session's use is one of its token, too."""
        token, now = self._rows.find(caller.token_id), self._clock()
        if token is not None and (token.used_at is None or token.used_at <= now - _TOUCHED_EVERY):
            self._rows.touch(token, now=now)

    def spend_login(self, text: str) -> Caller | None:
        """Return whom a login link names, and end it: it serves once."""
        token = self._valid(text, "login")
        if token is None or not self._rows.spend(token.id, now=self._clock()):
            return None
        return Caller(token.parent_id or "", token.name, Role(token.role), token.dags, token.assets)

    def _valid(self, text: str, kind: str) -> StoredToken | None:
        found = _TEXT.fullmatch(text)
        if found is None or found["prefix"] != _PREFIXES[kind]:
            return None
        token = self._rows.find(found["id"])
        same = hmac.compare_digest(_hashed(found["secret"]), token.digest if token else _NOBODY)
        if token is None or not same or token.kind != kind or not self._lives(token):
            return None
        return token

    def _lives(self, token: StoredToken) -> bool:
        if token.role not in _ROLES:
            # a newer keepstate made it, for what this one can't judge
            return False
        now = self._clock()
        return token.revoked_at is None and (token.expires_at is None or token.expires_at > now)

    # --------------------------------------------------------------------------------------------- ending

    def all(self) -> list[StoredToken]:
        """Return all tokens that people made, ended ones too, oldest first."""
        return self._rows.all()

    def living(self) -> list[StoredToken]:
        """Return the tokens that are valid now."""
        return [token for token in self._rows.all() if self._lives(token)]

    def revoke(self, token_id: str) -> None:
        """End a token or a session, and the sessions that were made from it."""
        self._rows.revoke(token_id, now=self._clock())
        with self._lock:
            self._trusted.clear()

    def sweep(self) -> int:
        """Erase what ended a month ago; return how many rows that were."""
        return self._rows.sweep(before=self._clock() - _KEPT_AFTER_END)


def _hashed(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _caller(token: StoredToken) -> Caller:
    return Caller(token.id, token.name, Role(token.role), token.dags, token.assets)
