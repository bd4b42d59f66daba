"""A cleanup that meets a writer at the same key: nothing that is left is forgotten."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from keepstate.clock import system_clock
from keepstate.connect import connect
from keepstate.retention import NEVER_EXPIRE
from keepstate.settings import Settings
from tests.backends.children import wait_until
from tests.backends.servers import KINDS, waiters
from tests.backends.stores import task

if TYPE_CHECKING:
    from tests.backends.servers import Kind

# what a `set` of somebody else's does to an entry, in a transaction that lasts
RENEWED = "UPDATE keepstate_entry SET value = '2', expires_at = {expires_at}"


@pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])
def test_an_entry_renewed_meanwhile_is_swept_in_its_time(kind: Kind, request: pytest.FixtureRequest) -> None:
    """The cleanup removes an expired version, waits for who writes the key, and goes by what that one left."""
    url: str = request.getfixturevalue(f"{kind.name}_url")
    moment = [system_clock()]
    with connect(url, settings=Settings(), clock=lambda: moment[0]) as store:
        tss = task(store)
        tss.set("k", 0, retention=timedelta(seconds=1))
        tss.set("k", 1, retention=NEVER_EXPIRE)
        moment[0] += 2_000_000
        expires_at = moment[0] + 1_000_000
        reports: list[Any] = []
        with kind.holding(url, RENEWED.format(expires_at=expires_at)) as let_go:
            cleaning = threading.Thread(target=lambda: reports.append(store.cleanup()))
            cleaning.start()
            wait_until(lambda: waiters(kind, request) > 0)
            let_go()
            cleaning.join()
        assert reports[0].history == 1
        moment[0] = expires_at + 1
        assert store.cleanup().entries == 1
        assert tuple(kind.ask(url, "SELECT COUNT(*) FROM keepstate_log")[0]) == (0,)
