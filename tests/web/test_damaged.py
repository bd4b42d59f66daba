"""Pages with an entry that somebody else has written into the table, as no value of keepstate's."""

from __future__ import annotations

import re
import sqlite3
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.support.served import serving_store
from tests.web.stories import LOAD_PATH

if TYPE_CHECKING:
    from keepstate.store import StateStore
    from tests.web.stories import Story

BAD = [b"\xff\x00", b"\xff", '"\0"', "{", r'"\ud800"', '{"position":1e999,"total":1,"done":true}']


@pytest.mark.parametrize("text", BAD, ids=repr)
def test_a_damaged_value_is_shown_as_such_and_can_be_replaced(
    store: StateStore, story: Story, text: str | bytes
) -> None:
    """The other entries are shown beside it; it can be looked at, edited and deleted."""
    # a text, to SQLite, which is no UTF-8
    what = "CAST(? AS TEXT)" if text == b"\xff" else "?"
    connection = sqlite3.connect(store.backend.address.removeprefix("sqlite:///"))
    with connection:
        for table in ("keepstate_entry", "keepstate_log"):
            connection.execute(
                f"""UPDATE {table} SET value = {what}, writer = '{{"kind":"web","name":"\\ud800"}}'"""
                " WHERE entry_key = 'cursor'",
                [text],
            )
    connection.close()
    with serving_store(store) as served, httpx.Client(base_url=served.url) as http:
        http.headers.update({"Authorization": f"Bearer {served.token('editor')}", "Accept": "text/html"})
        page = http.get(LOAD_PATH)
        assert page.status_code == 200, page.text
        assert page.text.count(">damaged<") == 1
        for part in ("history", "entries/value", "entries/form", "entries/delete"):
            answer = http.get(f"{LOAD_PATH}/{part}", params={"key": "cursor"})
            assert answer.status_code == 200, answer.text
        assert ">damaged<" in http.get(f"{LOAD_PATH}/history", params={"key": "cursor"}).text
        form = {"key": "cursor", "version": re.findall('name="version" value="([0-9]+)"', answer.text)[0]}
        http.headers["Sec-Fetch-Site"] = "same-origin"
        typed = {**form, "value": '{"page": 1}', "expiry": "keep"}
        assert http.post(f"{LOAD_PATH}/entries", data=typed).status_code == 204
        assert ">damaged<" not in http.get(LOAD_PATH).text
