"""What the pages show: history, progress, attempts, assets, times."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from keepstate.scope import TaskScope
from tests.web.stories import LOAD, LOAD_PATH, RUN

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

    from tests.web.stories import Story


def test_history_shows_differences_and_restores(visit: Callable[..., Page], story: Story) -> None:
    """Each version with its writer and what it changed; an earlier one is written again, its expiry unchanged."""
    state = story.store.task(LOAD.dag_id, LOAD.run_id, LOAD.task_id)
    page = visit(LOAD_PATH)
    page.get_by_role("link", name="History of cursor").click()
    newest = page.get_by_role("listitem").filter(has=page.get_by_role("heading", name="current"))
    expect(newest).to_contain_text("Attempt 2")
    changes = newest.get_by_role("listitem")
    expect(changes).to_have_text(["page was 7 is 9", "rows[3] is 4 added"])
    page.get_by_role("button", name="Restore version 2").click()
    expect(page.get_by_role("status").filter(has_text="Restored version 2 of cursor")).to_be_visible()
    expect(newest).to_contain_text("editor-0, on the web pages")
    assert state.get("cursor")["page"] == 7
    entry = state.entry("cursor")
    assert entry is not None
    assert entry.expires_at is None


def test_a_restore_over_a_newer_version_is_refused(visit: Callable[..., Page], story: Story) -> None:
    """Who looked at an older history decides anew."""
    state = story.store.task(LOAD.dag_id, LOAD.run_id, LOAD.task_id)
    page = visit(f"{LOAD_PATH}/history?key=cursor")
    # a page that hears of changes, whose question is left unanswered here, would show the new version before anybody could press the button
    page.route("**/events/**", lambda route: None)
    with page.expect_request(lambda request: "/events/" in request.url):
        page.reload()
    state.set("cursor", "new")
    page.get_by_role("button", name="Restore version 2").click()
    expect(page.get_by_text("The entry cursor has changed since you opened this page")).to_be_visible()
    assert state.get("cursor") == "new"


def test_progress_is_a_bar(visit: Callable[..., Page], story: Story) -> None:
    """For what a checkpoint wrote."""
    page = visit(LOAD_PATH)
    expect(page.get_by_role("progressbar", name="2,817 of 5,000 done")).to_have_attribute("value", "56")
    expect(page.get_by_role("row", name="position")).to_contain_text("2,817 of 5,000 · 56%")
    assert list(story.store.task("scan", "r", "t", try_number=1).checkpoint(iter("abc"))) == ["a", "b", "c"]
    page.goto("/dags/scan/runs/r/tasks/t")
    expect(page.get_by_role("row", name="position")).to_contain_text("3 done, finished")


def test_attempts_are_on_a_time_line_with_what_they_wrote(visit: Callable[..., Page], story: Story) -> None:
    """Which attempt wrote what, also where a later one wrote over it."""
    page = visit(LOAD_PATH)
    line = page.get_by_role("region", name="Attempts on a time line")
    expect(line).to_contain_text("Attempt 1")
    expect(line).to_contain_text("9 min 0 s")
    page.get_by_role("link", name="Attempts", exact=True).click()
    first, second = page.locator(".attempts > li").all()
    expect(first).to_contain_text("TimeoutError: no answer within 600 s")
    expect(first).to_contain_text("worker-3, process 4711")
    expect(first.get_by_role("link")).to_have_text(["cursor", "job_id", "position"])
    expect(second.get_by_role("link", name="shards")).to_be_visible()
    expect(second.get_by_role("link", name="job_id")).to_be_hidden()
    assert story


def test_assets_and_their_last_writer(visit: Callable[..., Page], story: Story) -> None:
    """Each entry links to the task that wrote it last; entries are edited like those of tasks, without expiry."""
    page = visit()
    page.get_by_role("link", name="Assets").click()
    page.get_by_role("link", name="orders", exact=True).click()
    expect(page.get_by_text("s3://warehouse/orders")).to_be_visible()
    page.get_by_role("button", name="Edit watermark").click()
    expect(page.get_by_role("group", name="Expires")).to_be_hidden()
    page.get_by_label("Value").fill('"2025-12-14"')
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("row", name="watermark")).to_contain_text("editor-0, on the web pages")
    assert story.store.asset("orders").get("watermark") == "2025-12-14"
    page.get_by_role("row", name="schema").get_by_role("link", name="etl_orders / ").click()
    page.wait_for_url("**/tasks/load")
    expect(page.get_by_role("heading", name="load")).to_be_visible()


def test_mapped_task_instances_have_their_own_pages(visit: Callable[..., Page], story: Story) -> None:
    """The square of a mapped task shows the worst of them, and leads to the list."""
    page = visit("/dags/fine_tune")
    page.get_by_role("link", name="train, run run-1: Failed, 5 entries").click()
    page.get_by_role("link", name="train map index 3").click()
    page.wait_for_url("**/mapped/3")
    expect(page.get_by_role("heading", name="train [3]")).to_be_visible()
    expect(page.get_by_role("row", name="epoch")).to_contain_text("3")
    assert story


def test_many_mapped_task_instances_are_in_pages(visit: Callable[..., Page], story: Story) -> None:
    """By map index, next to other tasks of the run."""
    for index in range(5, 60):
        story.store.task("fine_tune", "run-1", "train", map_index=index).set("epoch", index)
    story.store.task("fine_tune", "run-1", "zip").set("k", 1)
    page = visit("/dags/fine_tune/runs/run-1/tasks/train")
    expect(page.get_by_text("1–50 of 60 mapped task instances")).to_be_visible()
    expect(page.get_by_role("link", name="train map index")).to_have_count(50)
    page.get_by_role("link", name="Next").click()
    expect(page.get_by_role("link", name="train map index")).to_have_count(10)
    expect(page.get_by_role("link", name="train map index 59")).to_be_visible()


def test_a_run_that_nobody_began_as_a_whole_is_as_its_tasks_are(
    visit: Callable[..., Page], story: Story
) -> None:
    """In the list of dags, over its column in the grid, and on its own page."""
    page = visit()
    expect(page.get_by_role("row", name="fine_tune")).to_contain_text("Failed")
    page.get_by_role("link", name="fine_tune").click()
    expect(page.get_by_role("columnheader", name="run-1")).to_contain_text("Failed")
    page.get_by_role("columnheader", name="run-1").get_by_role("link").click()
    page.wait_for_url("**/runs/run-1")
    expect(page.locator(".page-head")).to_contain_text("Failed")


def test_a_run_is_as_all_its_tasks_are(visit: Callable[..., Page], story: Story) -> None:
    """Also as those are that another page of the list shows, and while one looks on."""
    for index in range(50):
        with story.attempt(TaskScope("fine_tune", "long", "a", index), "success"):
            pass
    page = visit("/dags/fine_tune/runs/long")
    head = page.locator(".page-head")
    expect(head).to_contain_text("Success")
    with story.attempt(TaskScope("fine_tune", "long", "z"), "failed"):
        expect(head).to_contain_text("Running")
    expect(head).to_contain_text("Failed")
    page.get_by_role("link", name="Next").click()
    expect(page.get_by_role("link", name="z")).to_be_visible()
    expect(head).to_contain_text("Failed")


def test_times_are_in_the_browsers_zone(visit: Callable[..., Page], story: Story) -> None:
    """And the exact instant is what one sees on hover."""
    page = visit(LOAD_PATH, timezone_id="Asia/Kathmandu")
    began = page.locator("dd time").first
    instant = began.get_attribute("datetime")
    assert began.get_attribute("title") == instant
    assert instant is not None
    assert instant.startswith("2025-12-14T")
    hours, minutes = map(int, instant[11:16].split(":"))
    local = (hours * 60 + minutes + 345) % (24 * 60)
    expect(began).to_contain_text(f"{local // 60:02d}:{local % 60:02d}:00")
    assert story


def test_without_scripts_there_is_all_to_see(visit: Callable[..., Page], story: Story) -> None:
    """Lists, grid and entries need none; times are in UTC then."""
    page = visit(f"/dags/etl_orders/runs/{RUN}", java_script_enabled=False)
    page.get_by_role("link", name="load").click()
    expect(page.get_by_role("row", name="job_id")).to_contain_text("UTC")
    assert story
