"""The dialog of an entry: what it says while somebody types, and who comes between."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from keepstate.web.addresses import with_query
from keepstate.web.rendering import anchor
from tests.web.stories import LOAD, LOAD_PATH

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

    from keepstate.accessors import TaskStateStore
    from tests.web.stories import Story


@pytest.fixture
def state(story: Story) -> TaskStateStore:
    """The entries that the pages show, as another person reads and writes them."""
    return story.store.task(LOAD.dag_id, LOAD.run_id, LOAD.task_id)


def test_what_is_typed_is_checked_as_one_types(visit: Callable[..., Page], state: TaskStateStore) -> None:
    """Bad JSON with line and column, the size, the rules of keys, and times that have passed."""
    page = visit(LOAD_PATH)
    page.get_by_role("button", name="Add Task State Store").click()
    dialog = page.get_by_role("dialog")
    key, value = dialog.get_by_label("Key"), dialog.get_by_label("Value")
    value.fill('{"page": 7,\n"rows": [1 2]}')
    expect(dialog).to_contain_text("This is not valid JSON. Line 2, column 12: expecting ',' delimiter.")
    expect(value).to_have_attribute("aria-invalid", "true")
    value.fill('{"page": 7}')
    expect(dialog).to_contain_text("10 bytes of at most 65,535")
    expect(dialog).not_to_contain_text("no JSON")
    key.fill("a/../b")
    expect(dialog).to_contain_text("must not have '.' or '..' between slashes")
    key.fill("page")
    expect(dialog).not_to_contain_text("between slashes")
    dialog.get_by_label("Custom").check()
    dialog.get_by_label("Date and time").fill("2025-12-01T12:00:00")
    expect(dialog).to_contain_text("This time is in the past")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_contain_text("This time is in the past")
    assert state.get("page") is None
    # half past five in Berlin
    dialog.get_by_label("Date and time").fill("2026-02-01T17:30:00")
    expect(dialog).not_to_contain_text("This time is in the past")
    dialog.get_by_role("button", name="Save").click()
    expect(page.get_by_role("row", name="page", exact=False).first).to_be_visible()
    expect(dialog).to_be_hidden()
    entry = state.entry("page")
    assert entry is not None
    assert entry.expires_at == datetime(2026, 2, 1, 16, 30, tzinfo=timezone.utc)


def test_an_untouched_edit_saves_and_keeps_the_expiry(
    visit: Callable[..., Page], state: TaskStateStore
) -> None:
    """Even of a value that a task wrote above the limit for people."""
    state.set("large", "x" * 100_000, retention=timedelta(days=3))
    before = state.entry("large")
    assert before is not None
    page = visit(LOAD_PATH)
    page.get_by_role("button", name="Edit large").click()
    expect(page.get_by_label("Unchanged")).to_be_checked()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    after = state.entry("large")
    assert after is not None
    assert (after.value, after.expires_at) == (before.value, before.expires_at)
    assert after.version == before.version + 1


@pytest.mark.parametrize("key", ["a\n", "\n\ra\r\nb", " a "], ids=ascii)
def test_a_key_is_sent_as_it_stands(visit: Callable[..., Page], state: TaskStateStore, key: str) -> None:
    """Also with what a text field would drop: by editing, over what somebody removed meanwhile, deleting and restoring."""
    state.set_many({key: 1, "a": "another"})
    page = visit(LOAD_PATH)
    dialog = page.get_by_role("dialog")
    page.locator(f"#edit-{anchor(key)}").click()
    dialog.get_by_label("Value").fill("2")
    state.delete(key)
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_contain_text("This entry was deleted or has expired")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_be_hidden()
    assert (state.get(key), state.get("a")) == (2, "another")
    page.locator(f"#edit-{anchor(key)}").click()
    dialog.get_by_label("Value").fill("3")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_be_hidden()
    assert (state.get(key), state.get("a")) == (3, "another")
    page.locator(f"#delete-{anchor(key)}").click()
    dialog.get_by_role("button", name="Delete").click()
    expect(dialog).to_be_hidden()
    assert (state.get(key), state.get("a")) == (None, "another")
    page.goto(with_query(f"{LOAD_PATH}/history", key=key))
    page.get_by_role("button", name="Restore version").first.click()
    expect(page.get_by_text("current")).to_be_visible()
    assert (state.get(key), state.get("a")) == (3, "another")


def test_a_value_that_only_a_task_may_write_is_kept_by_an_edit(
    visit: Callable[..., Page], state: TaskStateStore
) -> None:
    """It is too large to be checked as one types, and nobody is told of that."""
    large = "x" * 1_000_000
    state.set("large", large)
    page = visit(LOAD_PATH)
    page.get_by_role("button", name="Edit large").click()
    dialog = page.get_by_role("dialog")
    with page.expect_response(lambda answer: answer.url.endswith("/entries/check")) as checked:
        dialog.get_by_label("Never").check()
    assert checked.value.status == 413
    expect(page.locator("#toasts > *")).to_have_count(0)
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_be_hidden()
    entry = state.entry("large")
    assert entry is not None
    assert (entry.value, entry.expires_at) == (large, None)


def test_the_expiry_changes_where_it_is_changed(visit: Callable[..., Page], state: TaskStateStore) -> None:
    """To never, and from never to the default."""
    page = visit(LOAD_PATH)
    for key, choice, expires in (("job_id", "Never", False), ("cursor", "Default (30 days)", True)):
        page.get_by_role("button", name=f"Edit {key}").click()
        page.get_by_label(choice).check()
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_role("dialog")).to_be_hidden()
        entry = state.entry(key)
        assert entry is not None
        assert (entry.expires_at is not None) == expires


def test_an_edit_over_a_newer_version_warns_and_shows_both(
    visit: Callable[..., Page], state: TaskStateStore
) -> None:
    """Nothing is written until the person, who sees both now, saves again."""
    page = visit(LOAD_PATH)
    page.get_by_role("button", name="Edit cursor").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Value").fill('{"page": 1, "rows": [], "since": "2025-12-13"}')
    state.set("cursor", {"page": 10, "rows": [], "since": "2025-12-13"})
    dialog.get_by_role("button", name="Save").click()
    warning = dialog.get_by_role("alert")
    expect(warning).to_contain_text("This entry has changed since you opened it.")
    expect(warning).to_contain_text('{"page": 10, "rows": [], "since": "2025-12-13"}')
    expect(warning.get_by_role("listitem")).to_have_text(["page was 10 is 1"], use_inner_text=False)
    assert state.get("cursor")["page"] == 10
    expect(dialog.get_by_label("Value")).to_have_value('{"page": 1, "rows": [], "since": "2025-12-13"}')
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_be_hidden()
    assert state.get("cursor")["page"] == 1


def test_what_stands_there_can_be_taken_instead(visit: Callable[..., Page], state: TaskStateStore) -> None:
    """The dialog then begins anew with it."""
    page = visit(LOAD_PATH)
    page.get_by_role("button", name="Edit job_id").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Value").fill('"mine"')
    state.set("job_id", "theirs")
    dialog.get_by_role("button", name="Save").click()
    dialog.get_by_role("button", name="Use the current value").click()
    expect(dialog.get_by_label("Value")).to_have_value('"theirs"')
    expect(dialog.get_by_role("alert")).to_be_hidden()


def test_an_entry_that_is_gone_or_there_already_is_told(
    visit: Callable[..., Page], state: TaskStateStore
) -> None:
    """Before anything is written."""
    page = visit(LOAD_PATH)
    dialog = page.get_by_role("dialog")
    page.get_by_role("button", name="Edit job_id").click()
    expect(dialog).to_be_visible()
    state.delete("job_id")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_contain_text(
        "This entry was deleted or has expired since you opened it."
    )
    assert state.get("job_id") is None
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_be_hidden()
    assert state.get("job_id") == "driver-0001"
    page.get_by_role("button", name="Add Task State Store").click()
    dialog.get_by_label("Key").fill("job_id")
    dialog.get_by_label("Value").fill('"driver-0002"')
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_contain_text("This key already exists.")
    assert state.get("job_id") == "driver-0001"


def test_a_deletion_over_a_newer_version_asks_again(
    visit: Callable[..., Page], state: TaskStateStore
) -> None:
    """With the value that is there now."""
    page = visit(LOAD_PATH)
    page.get_by_role("button", name="Delete job_id").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    state.set("job_id", "driver-0007")
    dialog.get_by_role("button", name="Delete").click()
    expect(dialog).to_contain_text("This entry has changed since you opened it.")
    expect(dialog).to_contain_text("driver-0007")
    assert state.get("job_id") == "driver-0007"
    dialog.get_by_role("button", name="Delete").click()
    expect(dialog).to_be_hidden()
    assert state.get("job_id") is None


def test_a_long_value_is_shown_whole_on_demand(visit: Callable[..., Page], story: Story) -> None:
    """In a dialog that gives the focus back."""
    page = visit(LOAD_PATH)
    expect(page.get_by_text("part-00399")).to_be_hidden()
    show = page.get_by_role("button", name="of shards")
    show.click()
    expect(page.get_by_role("dialog", name="shards")).to_contain_text("part-00399")
    page.keyboard.press("Escape")
    expect(show).to_be_focused()
    assert story
