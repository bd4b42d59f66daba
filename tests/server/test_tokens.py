"""Tokens: shown once, hashed at rest, ended by time and by people."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import TYPE_CHECKING

import pytest

from keepstate.clock import DAY, SECOND
from keepstate.connect import connect, tokens_of
from keepstate.errors import InvalidInputError, UnsupportedError
from keepstate.server.roles import ROLES, Caller, ForbiddenError, Right, Role
from keepstate.server.tokens import SESSION_LASTS, Tokens
from keepstate.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from keepstate.testing import ManualClock


@pytest.fixture(params=["sqlite", "postgres", "mysql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database."""
    if request.param != "sqlite":
        return str(request.getfixturevalue(f"{request.param}_url"))
    return f"sqlite:///{tmp_path / 'keepstate.db'}"


@pytest.fixture
def another(url: str, clock: ManualClock) -> Iterator[Callable[[], Tokens]]:
    """Makes another server's view of the same tokens: one that remembers nothing yet."""
    with connect(url, settings=Settings(), clock=clock) as store:
        yield lambda: Tokens(tokens_of(store), clock)


@pytest.fixture
def tokens(another: Callable[[], Tokens]) -> Tokens:
    """The tokens of one server."""
    return another()


def test_a_token_names_its_caller(tokens: Tokens) -> None:
    """Its name, role and patterns come back with it."""
    text = tokens.create("nightly", Role.WORKER, dags="etl_*", assets="s3://*")
    caller = tokens.check(text)
    assert caller is not None
    assert (caller.name, caller.role, caller.dags, caller.assets) == (
        "nightly",
        Role.WORKER,
        "etl_*",
        "s3://*",
    )


def test_what_is_not_exactly_the_token_is_nobody(tokens: Tokens) -> None:
    """Another secret, another id, another kind, a piece, more, or nothing: all the same."""
    text = tokens.create("nightly", Role.WORKER)
    prefix, token_id, secret = text.split("_", 2)
    flipped = secret[:-2] + ("AA" if secret[-2:] != "AA" else "BB")
    for wrong in (
        "",
        " ",
        text[:-1],
        f"{text}A",
        f"{prefix}_{token_id}_{flipped}",
        f"{prefix}_{'0' * 16}_{secret}",
        f"kss_{token_id}_{secret}",
        f"ksl_{token_id}_{secret}",
        text.upper(),
        f"{text}\n",
        "é" * 60,
        "\udc80",
    ):
        assert tokens.check(wrong) is None, wrong
        assert tokens.check(wrong, "session") is None, wrong
        assert tokens.spend_login(wrong) is None, wrong
    assert tokens.check(text, "session") is None
    assert tokens.check(text) is not None


def test_the_store_keeps_a_hash(tokens: Tokens) -> None:
    """Whoever reads the table can't log in."""
    text = tokens.create("nightly", Role.ADMIN)
    (row,) = tokens.all()
    secret = text.split("_", 2)[2]
    assert row.digest == hashlib.sha256(secret.encode()).hexdigest()
    assert secret not in repr(row)


def test_tokens_differ(tokens: Tokens) -> None:
    """Each has an id and 256 random bits of its own."""
    made = {tokens.create(f"t{n}", Role.VIEWER) for n in range(20)}
    assert len({text.split("_", 2)[1] for text in made}) == 20
    assert len({text.split("_", 2)[2] for text in made}) == 20
    assert all(len(text.split("_", 2)[2]) == 43 for text in made)


def test_a_token_expires(tokens: Tokens, another: Callable[[], Tokens], clock: ManualClock) -> None:
    """To the microsecond, also where it was checked just before."""
    text = tokens.create("brief", Role.VIEWER, lasts=10 * SECOND)
    clock.advance(timedelta(seconds=10, microseconds=-1))
    assert tokens.check(text) is not None
    assert tokens.known(text) is not None
    clock.advance(timedelta(microseconds=1))
    assert tokens.known(text) is None
    assert tokens.check(text) is None
    assert another().check(text) is None
    assert tokens.living() == []


def test_a_revoked_token_ends_at_once(tokens: Tokens, another: Callable[[], Tokens]) -> None:
    """Here at once, and with other servers when they next look."""
    text = tokens.create("nightly", Role.VIEWER)
    caller = tokens.check(text)
    assert caller is not None
    tokens.revoke(caller.token_id)
    assert tokens.known(text) is None
    assert tokens.check(text) is None
    assert another().check(text) is None


def test_a_name_belongs_to_one_living_token(tokens: Tokens, clock: ManualClock) -> None:
    """And is free again when that has ended."""
    tokens.create("nightly", Role.VIEWER, lasts=SECOND)
    with pytest.raises(InvalidInputError, match=r"there is a token named 'nightly' already; revoke it"):
        tokens.create("nightly", Role.ADMIN)
    clock.advance(timedelta(seconds=1))
    tokens.create("nightly", Role.ADMIN)
    assert [token.role for token in tokens.living()] == ["admin"]


def test_of_many_who_take_a_name_at_once_one_gets_it(url: str, clock: ManualClock) -> None:
    """Each is told the truth, and nobody is handed a token that is not valid."""
    handed: list[str] = []
    ready = Barrier(6)

    def take(name: str) -> str | None:
        with connect(url, settings=Settings(), clock=clock) as store:
            tokens = Tokens(tokens_of(store), clock)
            ready.wait(60)
            try:
                return tokens.create(name, Role.VIEWER, hand_over=handed.append)
            except InvalidInputError:
                return None

    with connect(url, settings=Settings(), clock=clock) as store, ThreadPoolExecutor(6) as pool:
        tokens = Tokens(tokens_of(store), clock)
        tokens.living()  # the tables are there
        for name in ("nightly", "weekly", "yearly"):
            handed.clear()
            made = [text for text in pool.map(take, [name] * 6) if text is not None]
            assert len(made) == 1
            assert set(handed) == set(made)
            assert tokens.check(made[0]) is not None
        assert sorted(token.name for token in tokens.living()) == ["nightly", "weekly", "yearly"]


@pytest.mark.parametrize("name", ["", " ", " nightly", "a\nb", "x" * 101, "\u202eabc", "\ud800"])
def test_a_name_is_visible(tokens: Tokens, name: str) -> None:
    """It appears in lists and logs."""
    with pytest.raises(InvalidInputError, match="a token's name has 1 to 100 visible characters"):
        tokens.create(name, Role.VIEWER)
    assert tokens.all() == []


@pytest.mark.parametrize("pattern", ["", "a\x00", "x" * 251])
def test_a_pattern_is_one(tokens: Tokens, pattern: str) -> None:
    """What can fit no id is refused, not taken for a token that reaches nothing."""
    with pytest.raises(InvalidInputError, match="the pattern of dags has 1 to 250 characters"):
        tokens.create("nightly", Role.VIEWER, dags=pattern)


def session_of(tokens: Tokens, caller: Caller) -> str:
    """Open a session, of a token that lives."""
    session = tokens.open_session(caller)
    assert session is not None
    return session


def test_a_session_ends_with_its_token(tokens: Tokens, another: Callable[[], Tokens]) -> None:
    """And when it is logged out, alone."""
    text = tokens.create("me", Role.EDITOR, dags="etl_*")
    caller = tokens.check(text)
    assert caller is not None
    one, other = session_of(tokens, caller), session_of(tokens, caller)
    found = tokens.check(one, "session")
    assert found is not None
    assert (found.name, found.role, found.dags, found.assets) == ("me", Role.EDITOR, "etl_*", "")
    tokens.revoke(found.token_id)
    assert tokens.check(one, "session") is None
    assert tokens.check(other, "session") is not None
    assert tokens.check(text) is not None
    tokens.revoke(caller.token_id)
    assert tokens.check(other, "session") is None
    assert another().check(other, "session") is None


def test_what_has_ended_logs_nobody_in(tokens: Tokens, clock: ManualClock) -> None:
    """Though it was still good when it was looked at: neither a token nor a link, whether revoked or expired meanwhile."""
    revoked = tokens.check(tokens.create("revoked", Role.ADMIN))
    expired = tokens.check(tokens.create("expired", Role.ADMIN, lasts=SECOND))
    tokens.create("linked", Role.ADMIN)
    linked = next(token for token in tokens.living() if token.name == "linked")
    from_link = tokens.spend_login(tokens.make_login(linked))
    assert revoked is not None
    assert expired is not None
    assert from_link is not None
    tokens.revoke(revoked.token_id)
    tokens.revoke(linked.id)
    clock.advance(timedelta(seconds=1))
    assert [tokens.open_session(caller) for caller in (revoked, expired, from_link)] == [None, None, None]
    with pytest.raises(InvalidInputError, match="the token 'linked' has ended"):
        tokens.make_login(linked)


def test_a_login_and_a_revocation_at_once_leave_no_session(url: str, clock: ManualClock) -> None:
    """Whichever comes first: the session is not opened, or ends with its token."""
    with (
        connect(url, settings=Settings(), clock=clock) as store,
        ThreadPoolExecutor(2) as threads,
    ):
        tokens = Tokens(tokens_of(store), clock)
        for number in range(20):
            caller = tokens.check(tokens.create(f"t{number}", Role.ADMIN))
            assert caller is not None
            opening = threads.submit(tokens.open_session, caller)
            threads.submit(tokens.revoke, caller.token_id).result()
            session = opening.result()
            assert session is None or tokens.check(session, "session") is None


def test_a_session_lasts_half_a_day(tokens: Tokens, clock: ManualClock) -> None:
    """Then one logs in again; and none outlives a token that ends sooner."""
    text = tokens.create("me", Role.EDITOR, lasts=SESSION_LASTS // 2)
    caller = tokens.check(text)
    assert caller is not None
    session = session_of(tokens, caller)
    clock.advance(timedelta(seconds=SESSION_LASTS // 2 // SECOND))
    assert tokens.check(session, "session") is None
    long = tokens.create("you", Role.EDITOR)
    caller = tokens.check(long)
    assert caller is not None
    session = session_of(tokens, caller)
    clock.advance(timedelta(seconds=SESSION_LASTS // SECOND - 1))
    assert tokens.check(session, "session") is not None
    clock.advance(timedelta(seconds=1))
    assert tokens.check(session, "session") is None


def test_a_login_link_serves_once(tokens: Tokens, another: Callable[[], Tokens], clock: ManualClock) -> None:
    """Within ten minutes, whoever is asked."""
    tokens.create("admin", Role.ADMIN)
    (admin,) = tokens.living()
    link = tokens.make_login(admin)
    assert tokens.check(link) is None
    assert tokens.check(link, "session") is None
    caller = tokens.spend_login(link)
    assert caller is not None
    assert (caller.token_id, caller.role) == (admin.id, Role.ADMIN)
    assert tokens.spend_login(link) is None
    assert another().spend_login(link) is None
    late = tokens.make_login(admin)
    clock.advance(timedelta(minutes=10))
    assert tokens.spend_login(late) is None
    lost = tokens.make_login(admin)
    tokens.revoke(admin.id)
    assert tokens.spend_login(lost) is None


def test_use_is_noted_now_and_then(tokens: Tokens, clock: ManualClock) -> None:
    """So that people see which tokens nobody uses, without a write for each request."""
    caller = tokens.check(tokens.create("nightly", Role.VIEWER))
    assert caller is not None
    first = clock()
    tokens.note_use(caller)
    clock.advance(timedelta(minutes=9))
    tokens.note_use(caller)
    assert tokens.all()[0].used_at == first
    clock.advance(timedelta(minutes=1))
    tokens.note_use(caller)
    assert tokens.all()[0].used_at == clock()


def test_use_through_a_browser_is_one_of_the_token(tokens: Tokens, clock: ManualClock) -> None:
    """From the login on; making a link is none yet."""
    tokens.create("me", Role.ADMIN)
    link = tokens.make_login(tokens.all()[0])
    assert tokens.all()[0].used_at is None
    caller = tokens.spend_login(link)
    assert caller is not None
    session = tokens.check(session_of(tokens, caller), "session")
    assert session is not None
    assert tokens.all()[0].used_at == clock()
    clock.advance(timedelta(minutes=10))
    tokens.note_use(session)
    assert tokens.all()[0].used_at == clock()


def test_what_has_ended_is_erased_after_a_month(tokens: Tokens, clock: ManualClock) -> None:
    """Until then it is listed; what is valid stays for ever."""
    tokens.create("stays", Role.ADMIN)
    tokens.create("expires", Role.VIEWER, lasts=SECOND)
    tokens.create("revoked", Role.VIEWER)
    revoked = next(token for token in tokens.all() if token.name == "revoked")
    tokens.revoke(revoked.id)
    clock.advance(timedelta(seconds=30 * DAY // SECOND))
    assert tokens.sweep() == 1
    assert {token.name for token in tokens.all()} == {"stays", "expires"}
    clock.advance(timedelta(seconds=1))
    assert tokens.sweep() == 1
    assert [token.name for token in tokens.all()] == ["stays"]


def test_a_role_of_a_newer_keepstate_is_nobody(url: str, clock: ManualClock) -> None:
    """This one can't judge what it may do."""
    with connect(url, settings=Settings(), clock=clock) as store:
        tokens = Tokens(tokens_of(store), clock)
        text = tokens.create("new", Role.VIEWER)
        store.backend._write(lambda tx: tx.run("UPDATE keepstate_token SET role = 'auditor'", {}))
        assert Tokens(tokens_of(store), clock).check(text) is None


def test_only_sql_stores_have_tokens(clock: ManualClock) -> None:
    """A store in memory can't be served: it ends with its process."""
    with (
        connect("memory:", settings=Settings(), clock=clock) as store,
        pytest.raises(UnsupportedError, match="has no table for tokens"),
    ):
        tokens_of(store)


def test_rights_of_roles() -> None:
    """Each role may do what the table says, and the refusal names what it lacks."""
    for role in Role:
        caller = Caller("id", "name", role)
        for right in Right:
            if right in ROLES[role]:
                caller.require(right)
            else:
                with pytest.raises(ForbiddenError, match=f"this needs the right to {right.value}"):
                    caller.require(right)


def test_an_admin_of_some_dags_does_not_administer() -> None:
    """Cleaning up and making tokens concern all dags."""
    caller = Caller("id", "name", Role.ADMIN, dags="etl_*", assets="")
    caller.require(Right.ERASE)
    with pytest.raises(ForbiddenError):
        caller.require(Right.ADMINISTER)
