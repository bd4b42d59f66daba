"""Waiting for a store that does not answer."""

from __future__ import annotations

import time

import pytest

from keepstate.backends.patience import Patience
from keepstate.errors import BackendUnavailableError


def test_after_two_seconds_it_tells_for_what_it_waits(caplog: pytest.LogCaptureFixture) -> None:
    """Once, and not where nearly no time is left: then the error tells it."""
    trouble = OSError("connection refused")
    young = Patience("db.example", 30, time.monotonic())
    young.wait(trouble)
    assert caplog.messages == []
    old = Patience("db.example", 30, time.monotonic() - 2)
    for _ in range(2):
        old.wait(trouble)
    assert caplog.messages == [
        "the store db.example does not answer (connection refused); trying for another 28 s"
    ]
    caplog.clear()
    over = Patience("db.example", 2.05, time.monotonic() - 2)
    over.wait(trouble)
    late = Patience("db.example", 2, time.monotonic() - 2)
    with pytest.raises(BackendUnavailableError, match=r"db\.example could not be reached within 2 s"):
        late.wait(trouble)
    assert caplog.messages == []
