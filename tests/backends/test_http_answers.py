"""Answers of a server, byte by byte: a whole one is read wherever it is cut into pieces, and a part of one is never believed."""

from __future__ import annotations

import socket
import threading
import time
from http.client import HTTPException
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepstate.backends.http.incoming import Answer, read_answer

WHOLE = [
    (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX-One:  two words \r\n\r\nabc", 200, b"abc", True),
    (b"HTTP/1.1 200\r\ncontent-length:0\r\n\r\n", 200, b"", True),
    (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", True),
    (b"HTTP/1.1 503 \xe4\xf6 \r\nContent-Length: 1\r\nConnection: Close\r\n\r\nx", 503, b"x", False),
    (b"HTTP/1.1 200 OK\nContent-Length: 1\n\nx", 200, b"x", True),
    (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", 200, b"x", True),
    (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=1\r\n0123456789\r\n0\r\nX-End: 1\r\n\r\n",
        200,
        b"abc0123456789",
        True,
    ),
]


def said(raw: bytes, *cuts: int) -> Answer:
    """Read what a server says, in pieces that end at these places, before it hangs up."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(20)

        def say() -> None:
            places = [0, *sorted(min(cut, len(raw)) for cut in cuts), len(raw)]
            for start, end in pairwise(places):
                theirs.sendall(raw[start:end])
            theirs.shutdown(socket.SHUT_WR)

        sayer = threading.Thread(target=say)
        sayer.start()
        try:
            return read_answer(ours)
        finally:
            sayer.join()


@pytest.mark.parametrize(("raw", "status", "content", "goes_on"), WHOLE)
def test_a_whole_answer_is_read(raw: bytes, status: int, content: bytes, *, goes_on: bool) -> None:
    """With what it says of the connection."""
    found = said(raw)
    assert (found.status, found.content, found.goes_on) == (status, content, goes_on)


def test_headers_are_known_by_small_letters() -> None:
    """And what stands around their values is no part of them."""
    assert said(WHOLE[0][0]).headers == {"content-length": "3", "x-one": "two words"}


@given(st.sampled_from(WHOLE), st.lists(st.integers(0, 120), max_size=6))
def test_it_may_come_in_any_pieces(whole: tuple[bytes, int, bytes, bool], cuts: list[int]) -> None:
    """A network cuts where it likes."""
    raw, status, content, _ = whole
    found = said(raw, *cuts)
    assert (found.status, found.content) == (status, content)


@pytest.mark.parametrize("raw", [raw for raw, *_ in WHOLE])
def test_a_part_of_an_answer_is_none(raw: bytes) -> None:
    """Wherever it breaks off."""
    for length in range(len(raw)):
        with pytest.raises(HTTPException):
            said(raw[:length])


def test_without_a_length_an_answer_ends_with_the_connection() -> None:
    """Which then serves for no other."""
    assert said(b"HTTP/1.0 200 OK\r\n\r\nabc") == Answer(200, {}, b"abc", goes_on=False)


@pytest.mark.parametrize("head", [b"Content-Length: 1000", b"X: 1", b"Transfer-Encoding: chunked", b""])
def test_an_answer_that_drips_is_given_up(head: bytes) -> None:
    """A byte now and then, of the head or of the body, does not keep a task waiting beyond its time."""
    ours, theirs = socket.socketpair()
    done = threading.Event()

    def drip() -> None:
        theirs.sendall(b"HTTP/1.1 200 OK\r\n" + (head + b"\r\n\r\n" if head else b""))
        for _ in range(100):
            if done.wait(0.05):
                return
            theirs.sendall(b"1")

    with ours, theirs:
        ours.settimeout(0.5)
        dripper = threading.Thread(target=drip)
        dripper.start()
        began = time.monotonic()
        try:
            with pytest.raises(TimeoutError, match=r"did not come in time|timed out"):
                read_answer(ours)
        finally:
            done.set()
            dripper.join()
        assert time.monotonic() - began < 3


def test_a_large_answer_may_take_its_time() -> None:
    """As long as it keeps coming."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(0.3)

        def say() -> None:
            theirs.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n")
            for _ in range(20):
                time.sleep(0.05)
                theirs.sendall(b"x" * 10_000)

        sayer = threading.Thread(target=say)
        sayer.start()
        assert len(read_answer(ours).content) == 200_000
        sayer.join()


@pytest.mark.parametrize("raw", [raw for raw, _, _, goes_on in WHOLE if goes_on])
def test_what_follows_unasked_is_no_answer(raw: bytes) -> None:
    """The connection is given up, and with it whatever else comes there."""
    assert not said(raw + b"HTTP/1.1 200 OK\r\n").goes_on


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno header\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"A: 1\r\n" * 3 + b"".join(b"X-%d: 1\r\n" % n for n in range(300)) + b"\r\n",
        b"HTTP/1.1 200 OK\r\nA: " + b"x" * 100_000,
    ],
)
def test_what_is_no_answer_is_refused(raw: bytes) -> None:
    """Rather than being made sense of."""
    with pytest.raises(HTTPException):
        said(raw)
