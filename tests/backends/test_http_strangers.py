"""What the HTTP backend makes of answers that no keepstate server gives: one error that says where they came from."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

from keepstate.backends.answers import Reading, StoredEntry, StoredVersion
from keepstate.backends.http import connections, incoming
from keepstate.errors import BackendError, BackendUnavailableError
from tests.backends.test_http_requests import OURS, Scripted, answer, store_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.backends.test_http_requests import Said

NINES = "9" * 5000
ENTRY = {"key": "k", "text": "5", "version": 1, "updated_at": 1, "expires_at": None, "writer": None}


def raw(head: bytes, body: bytes = b"{}") -> Callable[[Any], None]:
    """Answer with these bytes and hang up."""

    def say(handler: Any) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nKeepstate-Protocol: 1\r\n" + head + b"\r\n\r\n" + body)

    return say


def read_with(**other: Any) -> Said:
    """Answer with an entry of which something is another."""
    reading = {"version": 1, "incarnation": 1, "entries": [{**ENTRY, **other}]}
    return 200, OURS, json.dumps({"answer": reading}).encode()


ANSWERS: dict[str, Said | Callable[[Any], None]] = {
    "an endless length": raw(f"Content-Length: {NINES}".encode()),
    "a length beyond all": raw(b"Content-Length: 1000000000000"),
    "a piece beyond all": raw(b"Transfer-Encoding: chunked", b"ffffffffffffffff\r\n{}"),
    "no JSON": (200, OURS, b'{"answer": '),
    "deep JSON": (200, OURS, b"[" * 100_000),
    "an endless number": (200, OURS, b'{"answer": {"version": ' + NINES.encode() + b', "incarnation": 1}}'),
    "a large number": (200, OURS, b'{"answer": {"version": ' + b"9" * 4000 + b', "incarnation": 1}}'),
    "NaN": read_with(text="NaN"),
    "NaN inside": read_with(text='{"a": [-Infinity]}'),
    "half a value": read_with(text="{"),
    "no value": read_with(text=""),
    "a deep value": read_with(text="[" * 100_000),
    "an endless value": read_with(text=NINES),
    "another key": read_with(key="other"),
    "a time beyond calendars": read_with(updated_at=10**18),
    "an expiry beyond calendars": read_with(expires_at=10**18),
    "a writer that is none": read_with(writer="{"),
    "a writer of another shape": read_with(writer="[]"),
}


@pytest.mark.parametrize("said", ANSWERS.values(), ids=ANSWERS.keys())
def test_what_no_server_says_is_an_error_of_the_store(said: Said | Callable[[Any], None]) -> None:
    """It names the address; no bare error of Python's comes through, and nothing of it is taken for a value."""
    with Scripted(said) as server, store_at(server.url, timeout=0) as store:
        with pytest.raises(BackendError, match=server.url) as caught:
            store.task("etl", "r", "t").entry("k")
        assert caught.value.address == server.url


def test_another_keys_history_is_not_taken() -> None:
    """No more than its value."""
    row = StoredVersion("other", 1, "set", "5", 1, None, 1, None)
    with Scripted(answer("history", [row])) as server, store_at(server.url, timeout=0) as store:
        with pytest.raises(BackendError, match="another key") as caught:
            store.task("etl", "r", "t").history("k")
        assert caught.value.address == server.url


def test_an_endless_time_is_no_time() -> None:
    """The answer counts, as it would without one."""
    good = Reading(1, 1, (StoredEntry("k", "5", 1, 0, None),))
    for told in (NINES, "9" * 300):
        with Scripted(answer("read", good, Keepstate_Time=told)) as server, store_at(server.url) as store:
            assert store.task("etl", "r", "t").get("k") == 5


def test_a_bomb_is_not_unpacked() -> None:
    """No more than is taken; and it is not asked for again."""
    bomb = gzip.compress(b'{"answer":"' + b"a" * 300_000_000 + b'"}', 1)
    said = (200, {**OURS, "Content-Encoding": "gzip"}, bomb)
    with Scripted(said) as server, store_at(server.url, timeout=20) as store:
        with pytest.raises(BackendError, match="gives an answer of more than") as caught:
            store.task("etl", "r", "t").get("k")
        assert caught.value.address == server.url
        assert not isinstance(caught.value, BackendUnavailableError)
        assert len(server.heard) == 1


@pytest.mark.parametrize("way", ["length", "pieces", "end", "packed"])
def test_an_answer_has_a_bound(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """However it comes."""
    for module in (incoming, connections):
        monkeypatch.setattr(module, "LARGEST_ANSWER", 1_000_000)

    def said(size: int) -> Said | Callable[[Any], None]:
        start = b'{"answer": {"version": 1, "incarnation": 1}'
        body = start + b" " * (size - len(start) - 1) + b"}"
        if way == "pieces":
            halves = (body[: size // 2], body[size // 2 :])
            pieces = b"".join(b"%x\r\n%s\r\n" % (len(half), half) for half in halves)
            return raw(b"Transfer-Encoding: chunked", pieces + b"0\r\n\r\n")
        if way == "end":
            return raw(b"Connection: close", body)
        if way == "packed":
            return 200, {**OURS, "Content-Encoding": "gzip"}, gzip.compress(body)
        return 200, OURS, body

    with Scripted(said(1_000_000)) as server, store_at(server.url, timeout=0) as store:
        assert store.task("etl", "r", "t").get("k") is None
    with Scripted(said(1_000_001)) as server, store_at(server.url) as store:
        with pytest.raises(BackendError, match="more than 1,000,000 bytes"):
            store.task("etl", "r", "t").get("k")
        assert len(server.heard) == 1
