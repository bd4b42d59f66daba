"""What people come for, from start to end: by mouse, and by keyboard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from keepstate.scope import TaskScope
from tests.web.stories import LOAD, LOAD_PATH, ODD_KEY, RUN

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Locator, Page

    from tests.support.served import Served
    from tests.web.stories import Story

REPORT = TaskScope("etl_orders", "scheduled__2025-12-12T03:00:00+00:00", "report")


def test_log_in_and_out(visit: Callable[..., Page], served: Served) -> None:
    """With a token in the form, which leads on to where one wanted to go; a wrong one is told."""
    page = visit("/assets")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    page.goto("/assets")
    page.wait_for_url("**/login?next=%2Fassets")
    expect(page.get_by_label("Token")).to_be_focused()
    page.keyboard.type("kst_wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_have_text("This token is unknown, expired or revoked.")
    page.get_by_label("Token").fill(served.token("viewer"))
    page.keyboard.press("Enter")
    page.wait_for_url("**/assets")
    expect(page.get_by_text("viewer-1")).to_be_visible()


def test_correct_an_offset_by_mouse(visit: Callable[..., Page], story: Story) -> None:
    """Find the failed task, see what it held, correct it, and the retry goes on from there."""
    page = visit()
    page.get_by_label("Find a dag").fill("ORDERS")
    page.get_by_role("link", name="etl_orders").click()
    page.get_by_role("link", name="report, run scheduled__2025-12-12T03:00:00+00:00: Failed").click()
    expect(page.get_by_role("heading", name="report")).to_be_visible()
    expect(page.get_by_role("link", name="Storage")).to_have_attribute("aria-current", "true")
    expect(page.get_by_role("link", name="Task State Store")).to_have_attribute("aria-current", "page")
    expect(page.get_by_role("cell", name="12000")).to_be_visible()
    page.get_by_role("button", name="Edit rows").click()
    dialog = page.get_by_role("dialog", name="Edit Task State Store")
    dialog.get_by_label("Value").fill('{"offset": 17}')
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_be_hidden()
    expect(page.get_by_role("status").filter(has_text="Saved rows")).to_be_visible()
    expect(page.get_by_role("row", name="rows")).to_contain_text('{"offset": 17}')
    expect(page.get_by_role("row", name="rows")).to_contain_text("editor-0, on the web pages")
    with story.attempt(REPORT, "success") as retry:
        assert retry.get("rows") == {"offset": 17}


def test_correct_an_offset_by_keyboard(visit: Callable[..., Page], story: Story) -> None:
    """The same without a mouse: each step is reached by Tab, and the focus is never lost."""
    page = visit()
    tab_to(page, page.get_by_label("Find a dag"))
    page.keyboard.type("orders")
    expect(page.get_by_role("link", name="fine_tune")).to_be_hidden()
    tab_to(page, page.get_by_role("link", name="etl_orders"))
    page.keyboard.press("Enter")
    tab_to(page, page.get_by_role("link", name="report, run scheduled__2025-12-12T03:00:00+00:00: Failed"))
    page.keyboard.press("Enter")
    page.wait_for_url("**/tasks/report")
    edit = page.get_by_role("button", name="Edit rows")
    tab_to(page, edit)
    page.keyboard.press("Enter")
    value = page.get_by_role("dialog").get_by_label("Value")
    expect(value).to_be_focused()
    page.keyboard.press("Control+a")
    page.keyboard.type("17")
    tab_to(page, page.get_by_role("button", name="Save"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(page.get_by_role("row", name="rows")).to_contain_text("17")
    expect(edit).to_be_focused()
    assert story.store.task(REPORT.dag_id, REPORT.run_id, REPORT.task_id).get("rows") == 17


def test_add_an_entry_as_the_guide_says(visit: Callable[..., Page], story: Story) -> None:
    """Square, Storage, Task State Store, Add Task State Store, key and value, Default, Save."""
    page = visit("/dags/etl_orders")
    page.get_by_role("link", name=f"load, run {RUN}: Running").click()
    page.get_by_role("link", name="Storage").click()
    page.get_by_role("link", name="Task State Store").click()
    page.get_by_role("button", name="Add Task State Store").click()
    dialog = page.get_by_role("dialog", name="Add Task State Store")
    expect(dialog.get_by_label("Key")).to_be_focused()
    expect(dialog.get_by_label("Default (30 days)")).to_be_checked()
    expect(dialog.get_by_label("Never")).not_to_be_checked()
    expect(dialog.get_by_label("Custom")).not_to_be_checked()
    dialog.get_by_label("Key").fill("remote_pid")
    dialog.get_by_label("Value").fill("239")
    dialog.get_by_role("button", name="Save").click()
    expect(page.get_by_role("row", name="remote_pid")).to_contain_text("239")
    entry = story.store.task(LOAD.dag_id, LOAD.run_id, LOAD.task_id).entry("remote_pid")
    assert entry is not None
    assert entry.writer is not None
    assert (entry.writer.kind, entry.writer.name) == ("web", "editor-0")
    assert entry.expires_at is not None
    assert (entry.expires_at - entry.updated_at).days == 30


def test_delete_an_entry(visit: Callable[..., Page], story: Story) -> None:
    """It is asked for first, and the key stays restorable; what is cancelled stays."""
    page = visit(LOAD_PATH)
    delete = page.get_by_role("button", name="Delete job_id")
    delete.click()
    dialog = page.get_by_role("dialog", name="Delete job_id?")
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(delete).to_be_focused()
    delete.click()
    dialog.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("row", name="job_id")).to_be_hidden()
    expect(page.get_by_role("button", name="Add Task State Store")).to_be_focused()
    assert story.store.task(LOAD.dag_id, LOAD.run_id, LOAD.task_id).get("job_id") is None
    page.get_by_role("link", name="Removed keys").click()
    page.get_by_role("link", name="job_id").click()
    page.get_by_role("button", name="Restore version 1").click()
    expect(page.get_by_text("current")).to_be_visible()
    assert story.store.task(LOAD.dag_id, LOAD.run_id, LOAD.task_id).get("job_id") == "driver-0001"


def test_clear_all(visit: Callable[..., Page], story: Story) -> None:
    """The question says what it costs; only with the box ticked the history goes too."""
    state = story.store.task(LOAD.dag_id, LOAD.run_id, LOAD.task_id)
    page = visit(LOAD_PATH)
    page.get_by_role("button", name="Clear All Task State Store").click()
    dialog = page.get_by_role("dialog", name="Clear all entries of load?")
    expect(dialog).to_contain_text("This deletes 5 entries. The next attempt starts from the beginning")
    expect(dialog).to_contain_text("An attempt is running.")
    dialog.get_by_role("button", name="Clear All").click()
    expect(page.get_by_text("There are no entries.")).to_be_visible()
    assert state.entries() == []
    assert [one.action for one in state.history("job_id")] == ["clear", "set"]
    state.set("job_id", "driver-0002")
    page.reload()
    page.get_by_role("button", name="Clear All Task State Store").click()
    page.get_by_label("Also delete the history").check()
    dialog.get_by_role("button", name="Clear All").click()
    expect(page.get_by_text("There are no entries.")).to_be_visible()
    assert state.history("job_id") == []


def test_odd_keys_are_handled_like_all_others(visit: Callable[..., Page], story: Story) -> None:
    """Slashes, quotes, markup, right-to-left text and emoji: shown as they are, edited, deleted; nothing is run."""
    page = visit(LOAD_PATH)
    page.on("dialog", lambda _: (_ for _ in ()).throw(AssertionError("a script ran")))
    row = page.get_by_role("row").filter(has_text="<script>alert(1)</script>")
    expect(row.get_by_role("rowheader")).to_have_text(ODD_KEY)
    page.get_by_role("button", name=f"Edit {ODD_KEY}").click()
    expect(page.get_by_role("dialog").get_by_role("definition")).to_have_text(ODD_KEY)
    page.get_by_label("Value").fill('"</textarea><script>alert(2)</script>"')
    page.get_by_role("button", name="Save").click()
    expect(row).to_contain_text("</textarea><script>alert(2)</script>")
    page.get_by_role("link", name=f"History of {ODD_KEY}").click()
    expect(page.get_by_role("heading", name=f"History of {ODD_KEY}")).to_be_visible()
    page.go_back()
    page.get_by_role("button", name=f"Delete {ODD_KEY}").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(row).to_be_hidden()
    assert story.store.task(LOAD.dag_id, LOAD.run_id, LOAD.task_id).entry(ODD_KEY) is None


def test_every_dialog_is_used_by_keyboard_alone(visit: Callable[..., Page], story: Story) -> None:
    """The focus stays within it, and goes back to where it was; what was typed is not lost to one press of Esc."""
    state = story.store.task(LOAD.dag_id, LOAD.run_id, LOAD.task_id)
    page = visit(LOAD_PATH)
    dialog = page.get_by_role("dialog")
    add = page.get_by_role("button", name="Add Task State Store")
    tab_to(page, add)
    page.keyboard.press("Enter")
    expect(dialog.get_by_label("Key")).to_be_focused()
    page.keyboard.type("by_keyboard")
    for _ in range(12):
        page.keyboard.press("Tab")
        inside = (
            "element => document.activeElement === document.body || element.contains(document.activeElement)"
        )
        assert dialog.evaluate(inside)
    page.keyboard.press("Escape")
    expect(page.get_by_text("Press Esc again to discard your changes.")).to_be_visible()
    expect(dialog).to_be_visible()
    tab_to(page, dialog.get_by_label("Value"))
    page.keyboard.type("[1, 2]")
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    expect(dialog.get_by_label("Never")).to_be_checked()
    tab_to(page, dialog.get_by_role("button", name="Save"))
    page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()
    expect(add).to_be_focused()
    entry = state.entry("by_keyboard")
    assert entry is not None
    assert (entry.value, entry.expires_at) == ([1, 2], None)
    tab_to(page, page.get_by_role("button", name="Delete by_keyboard"))
    page.keyboard.press("Enter")
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()
    assert state.entry("by_keyboard") is None
    tab_to(page, page.get_by_role("button", name="Clear All Task State Store"))
    page.keyboard.press("Enter")
    expect(dialog).to_be_visible()
    tab_to(page, dialog.get_by_label("Also delete the history"))
    page.keyboard.press("Space")
    tab_to(page, dialog.get_by_role("button", name="Clear All"))
    page.keyboard.press("Enter")
    expect(page.get_by_text("There are no entries.")).to_be_visible()
    assert state.history("job_id") == []


def tab_to(page: Page, target: Locator) -> None:
    """Press Tab until ``target`` has the focus: no more often than there are things to focus."""
    for _ in range(120):
        page.keyboard.press("Tab")
        if target.evaluate("element => element === document.activeElement"):
            return
    raise AssertionError(f"Tab does not lead to {target}")
