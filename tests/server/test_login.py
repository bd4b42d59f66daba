"""Logging a browser in and out, and who may have it change something."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import httpx
import pytest

from keepstate.errors import BackendUnavailableError
from keepstate.server.auth import COOKIE
from keepstate.server.failures import ALLOWED, WITHIN, Failures
from tests.support.served import serving_store

if TYPE_CHECKING:
    from keepstate.server.roles import Caller
    from keepstate.store import StateStore
    from keepstate.testing import ManualClock
    from tests.support.served import Served

OURS = {"Sec-Fetch-Site": "same-origin"}


def log_in(http: httpx.Client, token: str, **fields: str) -> httpx.Response:
    """Send the form, as a browser does."""
    return http.post("/login", data={"token": token, **fields}, headers=OURS)


def test_a_token_logs_in(served: Served, http: httpx.Client) -> None:
    """The session's cookie is out of reach of scripts and of other sites, and is not the token."""
    token = served.token("editor")
    answer = log_in(http, token)
    assert answer.status_code == 303
    assert answer.headers["location"] == "/"
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    assert token not in cookie
    assert http.get("/metrics").status_code == 200


def test_a_login_through_tls_is_for_tls_only(served: Served, http: httpx.Client) -> None:
    """A proxy on this machine says that the browser came by https."""
    answer = http.post(
        "/login", data={"token": served.token()}, headers={**OURS, "X-Forwarded-Proto": "https"}
    )
    assert "Secure" in answer.headers["set-cookie"].split("; ")


@pytest.mark.parametrize(
    ("wanted", "target"),
    [
        ("/dags/etl?page=2", "/dags/etl?page=2"),
        ("//evil.example/", "/"),
        ("/\\evil.example", "/"),
        ("https://evil.example/", "/"),
        ("/a\r\nSet-Cookie: x=y", "/"),
        ("javascript:alert(1)", "/"),
        ("", "/"),
    ],
)
def test_a_login_leads_back_to_a_page_of_ours(
    served: Served, http: httpx.Client, wanted: str, target: str
) -> None:
    """And never to another host."""
    assert log_in(http, served.token(), next=wanted).headers["location"] == target


@pytest.mark.parametrize(
    ("wanted", "target"),
    [
        ("/tools/keep/dags?q=/../x", "/tools/keep/dags?q=/../x"),
        ("/tools/keep/", "/tools/keep/"),
        ("/tools/other", "/tools/keep/"),
        ("/tools/keepers", "/tools/keep/"),
        ("/tools/keep/../other", "/tools/keep/"),
        ("/tools/keep/%2E./other", "/tools/keep/"),
        ("/tools/keep/dags/..", "/tools/keep/"),
        ("/tools/keep//evil.example/../..", "/tools/keep/"),
        ("//evil.example/tools/keep/", "/tools/keep/"),
    ],
)
def test_a_login_leads_back_below_the_servers_own_path(store: StateStore, wanted: str, target: str) -> None:
    """What else a proxy serves under the same name is not led to."""
    with serving_store(store, root_path="/tools/keep") as served, httpx.Client(base_url=served.url) as http:
        assert log_in(http, served.token(), next=wanted).headers["location"] == target


def test_the_form_shows_no_markup_of_others(http: httpx.Client) -> None:
    """What comes in an address is text."""
    shown = http.get("/login", params={"next": '/"><script>alert(1)</script>'})
    assert shown.status_code == 200
    assert "<script>alert" not in shown.text


def test_a_wrong_token_does_not_log_in(http: httpx.Client) -> None:
    """And is not shown again."""
    answer = log_in(http, "kst_wrong")
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert "kst_wrong" not in answer.text
    assert "This token is unknown, expired or revoked." in answer.text


def test_a_token_that_is_revoked_during_the_login_does_not_log_in(
    served: Served, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The form says so, as for one that was revoked before."""
    tokens, token = served.service.tokens, served.token()
    look = tokens.check

    def look_and_revoke(text: str, kind: str = "token") -> Caller | None:
        caller = look(text, kind)
        assert caller is not None
        tokens.revoke(caller.token_id)
        return caller

    monkeypatch.setattr(tokens, "check", look_and_revoke)
    answer = log_in(http, token)
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert "This token is unknown, expired or revoked." in answer.text


def test_a_link_logs_in_once(served: Served, http: httpx.Client) -> None:
    """Whoever finds it afterwards, in a log or a history, finds nothing."""
    served.token("admin")
    (admin,) = served.service.tokens.living()
    link = f"/login?code={served.service.tokens.make_login(admin)}"
    answer = http.get(link)
    assert answer.status_code == 303
    assert http.get("/metrics").status_code == 200
    http.cookies.clear()
    again = http.get(link)
    assert again.status_code == 401
    assert "This link was used already, or is older than ten minutes." in again.text
    assert "set-cookie" not in again.headers


def test_logging_out_ends_the_session(served: Served, http: httpx.Client) -> None:
    """For whoever has kept the cookie as well."""
    log_in(http, served.token())
    kept = http.cookies[COOKIE]
    answer = http.post("/logout", headers=OURS)
    assert answer.status_code == 303
    assert COOKIE not in http.cookies
    assert http.get("/metrics", headers={"Cookie": f"{COOKIE}={kept}"}).status_code == 401
    assert http.post("/logout", headers=OURS).status_code == 303


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "http://["},
        {"Origin": "http://127.0.0.1@evil.example"},
    ],
)
def test_other_sites_can_not_have_a_browser_change_anything(
    served: Served, http: httpx.Client, headers: dict[str, str]
) -> None:
    """Neither log it in (as somebody else) nor out."""
    assert http.post("/login", data={"token": served.token()}, headers=headers).status_code == 403
    log_in(http, served.token())
    assert http.post("/logout", headers=headers).status_code == 403
    assert http.get("/metrics").status_code == 200


def test_an_older_browser_names_its_origin(served: Served, http: httpx.Client) -> None:
    """Without `Sec-Fetch-Site`, the same host in `Origin` is us."""
    answer = http.post("/login", data={"token": served.token()}, headers={"Origin": served.url})
    assert answer.status_code == 303


def test_a_session_is_no_bearer_token(served: Served, http: httpx.Client) -> None:
    """Nor is a token a cookie: each is known by what carried it."""
    token = served.token()
    log_in(http, token)
    session = http.cookies[COOKIE]
    http.cookies.clear()
    assert http.get("/metrics", headers={"Authorization": f"Bearer {session}"}).status_code == 401
    assert http.get("/metrics", headers={"Cookie": f"{COOKIE}={token}"}).status_code == 401


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Basic YWRtaW46YWRtaW4=", "Token abc", "Bearer kst_x", "Bearer \xff"]
)
def test_who_is_not_known_is_told_how_to_be(http: httpx.Client, header: str) -> None:
    """401, with the scheme to use."""
    answer = http.get("/metrics", headers=[(b"Authorization", header.encode("latin-1"))])
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == 'Bearer realm="keepstate"'
    assert http.get("/metrics").status_code == 401


def test_expired_revoked_and_mistyped_look_alike(
    served: Served, http: httpx.Client, clock: ManualClock
) -> None:
    """Nobody learns that a token was once good."""
    expired = served.headers("admin", lasts=1)
    revoked = served.headers("admin")
    served.service.tokens.revoke(
        next(one.id for one in served.service.tokens.living() if one.name == "admin-1")
    )
    clock.advance(timedelta(seconds=1))
    answers = [
        http.get("/metrics", headers=headers)
        for headers in (expired, revoked, {"Authorization": "Bearer kst_0"})
    ]
    assert [answer.status_code for answer in answers] == [401, 401, 401]
    assert len({answer.text for answer in answers}) == 1
    different = {"date"}
    assert len({str({k: v for k, v in a.headers.items() if k not in different}) for a in answers}) == 1


def test_guessing_is_slowed_down(served: Served, http: httpx.Client) -> None:
    """After ten wrong logins an address waits; right ones go on working from there, and so do programs with a token."""
    good = served.headers("admin")
    for _ in range(ALLOWED):
        assert log_in(http, "kst_0").status_code == 401
    answer = log_in(http, "kst_0")
    assert answer.status_code == 429
    assert 0 < int(answer.headers["retry-after"]) <= WITHIN
    assert http.get("/login?code=ksl_0").status_code == 429
    assert http.get("/metrics", headers=good).status_code == 200
    assert log_in(http, served.token()).status_code == 303


def test_whatever_is_wrong_with_a_login_is_told_on_a_page(
    served: Served, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person waits for it: a refusal, a form that is none or too large, a store that is away."""

    def away(*_: object) -> None:
        raise BackendUnavailableError("the store is away", address="x")

    token = served.token()
    for _ in range(ALLOWED):
        log_in(http, "kst_0")
    answers = [
        log_in(http, "kst_0"),
        http.get("/login?code=ksl_0"),
        http.post("/login", data={"token": token}),
        http.post("/logout"),
        http.post("/login", content=b"&".join(b"a%d=1" % number for number in range(60)), headers=OURS),
        http.post("/login", content=b"token=%FF", headers=OURS),
        log_in(http, "x" * 5000),
    ]
    monkeypatch.setattr(served.service.tokens, "check", away)
    answers += [log_in(http, token), http.post("/logout", headers=OURS)]
    assert [answer.status_code for answer in answers] == [429, 429, 403, 403, 400, 400, 413, 503, 503]
    for answer in answers:
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert "<h1>" in answer.text
    assert "Too many wrong logins" in answers[0].text
    assert int(answers[1].headers["retry-after"]) > 0


def test_a_program_with_a_wrong_token_is_told_so_each_time(served: Served, http: httpx.Client) -> None:
    """However often it asks: "too many" would have it try again; and nobody's login suffers from it."""
    for _ in range(3 * ALLOWED):
        assert http.get("/metrics", headers={"Authorization": "Bearer kst_0"}).status_code == 401
    assert log_in(http, "kst_0").status_code == 401


def test_failures_are_counted_by_address_and_time() -> None:
    """In a window that slides."""
    now = 0.0
    failures = Failures(lambda: now)
    for second in range(ALLOWED):
        now = float(second)
        assert failures.note("a") == 0
    now = 10.0
    assert failures.note("a") == 50
    assert failures.wait("b") == 0
    assert failures.note("b") == 0
    now = 59.5
    assert failures.wait("a") == 1
    now = 60.0
    assert failures.wait("a") == 0
    # the second oldest is now the one that counts
    assert failures.note("a") == 1


def test_failures_forget_the_longest_unheard_of() -> None:
    """However many addresses there are, they take a bounded room."""
    failures = Failures(lambda: 0.0)
    for number in range(10_050):
        failures.note(str(number))
    assert len(failures._seen) == 10_000
    assert failures.note("10049") == 0
