"""Where the pages are, who may see and change what, and what every answer carries."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import httpx
import pytest

from keepstate.errors import BackendUnavailableError
from keepstate.scope import TaskScope
from keepstate.server.headers import CONTENT_SECURITY_POLICY
from keepstate.web import routes
from keepstate.web.addresses import ASSET, MAPPED, TASK, Addresses
from tests.web.stories import LOAD, LOAD_PATH, RUN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.served import Served
    from tests.web.stories import Story

SEEN = [
    "/dags",
    "/dags?q=ORDERS",
    "/dags/etl_orders",
    Addresses().run("etl_orders", RUN),
    LOAD_PATH,
    f"{LOAD_PATH}?tab=attempts",
    f"{LOAD_PATH}?tab=removed",
    f"{LOAD_PATH}?page=2",
    f"{LOAD_PATH}/history?key=cursor",
    f"{LOAD_PATH}/entries/value?key=shards",
    "/dags/fine_tune/runs/run-1/tasks/train",
    "/dags/fine_tune/runs/run-1/tasks/train/mapped/3",
]
OF_ASSETS = ["/assets", "/assets/{id}", "/assets/{id}?tab=removed", "/assets/{id}/history?key=watermark"]
ABSENT = [
    "/dags/nope",
    "/dags/etl_orders/runs/nope",
    "/dags/etl_orders/runs/nope/tasks/load",
    f"{LOAD_PATH}/mapped/0",
    f"{LOAD_PATH}/mapped/x",
    f"{LOAD_PATH}/mapped/99999999999999999999",
    "/dags/a%00b",
    "/dags/%FF",
    "/assets/999",
    "/assets/x",
    "/assets/99999999999999999999999999",
    f"{LOAD_PATH}/entries/value?key=nope",
]
CHANGES = [
    ("/entries", {"key": "k", "value": "1", "version": "0"}),
    ("/entries/delete", {"key": "job_id", "version": "1"}),
    ("/entries/clear", {}),
    ("/history/restore", {"key": "cursor", "version": "2"}),
]


@pytest.fixture
def client(served: Served) -> Iterator[Callable[..., httpx.Client]]:
    """Return a function that logs in, and gives the browser's session as a client."""
    opened = []

    def log_in(role: str = "editor", dags: str | None = None) -> httpx.Client:
        made = httpx.Client(base_url=served.url, timeout=20, headers={"Sec-Fetch-Site": "same-origin"})
        opened.append(made)
        assert made.post("/login", data={"token": served.token(role, dags)}).status_code == 303
        return made

    yield log_in
    for one in opened:
        one.close()


def asset_paths(story: Story) -> list[str]:
    """Return where the asset of the story is."""
    number = next(one.id for one in story.store.assets() if one.name == "orders")
    return [path.format(id=number) for path in OF_ASSETS]


def test_every_page_is_there(client: Callable[..., httpx.Client], story: Story) -> None:
    """As HTML, never kept by a cache, under a policy that runs no inline script and no inline style."""
    viewer = client("viewer")
    for path in [*SEEN, *asset_paths(story)]:
        answer = viewer.get(path)
        assert answer.status_code == 200, path
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
        for inline in ("<style", " style=", " onclick=", "javascript:", "hx-on"):
            assert inline not in answer.text, (path, inline)
        assert answer.text.count("<script") == answer.text.count("<script src=")
        part = viewer.get(path, headers={"HX-Request": "true"})
        assert part.status_code == 200
        assert "<html" not in part.text


def test_what_is_not_there_is_told_on_a_page(client: Callable[..., httpx.Client], story: Story) -> None:
    """With 404, and a way on."""
    viewer = client("viewer")
    for path in ABSENT:
        answer = viewer.get(path)
        assert answer.status_code == 404, path
        assert "Go to the dags" in answer.text
    assert story


def test_beyond_the_last_page_nothing_is_said_to_be_absent(
    client: Callable[..., httpx.Client], story: Story
) -> None:
    """Only that this page has none; how many there are, and the way back, are told."""
    viewer, orders = client("viewer"), asset_paths(story)[1]
    for path, what, total in (
        ("/dags?page=9", "dags", "2 dags"),
        ("/dags?q=etl&page=9", "dags", "1 dag"),
        ("/dags/fine_tune?page=9", "runs", "1 run"),
        ("/dags/fine_tune/runs/run-1?page=9", "task instances", "5 task instances"),
        ("/dags/fine_tune/runs/run-1/tasks/train?page=9", "mapped task instances", "5 mapped task instances"),
        (f"{LOAD_PATH}?page=9", "entries", "5 entries"),
        ("/assets?page=9", "assets", "2 assets"),
        (f"{orders}?page=9", "entries", "2 entries"),
    ):
        answer = viewer.get(path)
        assert answer.status_code == 200, path
        assert answer.text.count('class="empty"') == 1
        assert f">There are no {what} on this page.<" in answer.text
        assert re.findall(r'<nav class="pager"[^>]*>\s*<span>(.*?)</span>', answer.text) == [total]
        assert 'rel="prev"' in answer.text
        assert 'rel="next"' not in answer.text
    for path in ("/dags?q=nothing&page=9", "/dags/absent?page=9"):
        assert "on this page" not in viewer.get(path).text


def test_an_address_of_no_page(client: Callable[..., httpx.Client], served: Served) -> None:
    """People get a page, logged in or not; programs, and whatever asks for an interface, get JSON."""
    people = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    viewer = client("viewer")
    for path in ("/nothing", "/dags/a/b/c/d", "/static/nothing.css", "/health/nothing"):
        page = viewer.get(path, headers=people)
        assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8"), path
        assert "There is no page at this address." in page.text
        assert "Go to the dags" in page.text
        assert page.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
        assert viewer.get(path).json() == {"detail": "Not Found"}
    assert viewer.get("/api/v2/nothing", headers=people).json() == {"detail": "Not Found"}
    assert viewer.post("/nothing", headers=people).json() == {"detail": "Not Found"}
    for cookie in ({}, {"keepstate_session": "nobody's"}):
        with httpx.Client(base_url=served.url, headers=people, cookies=cookie) as stranger:
            page = stranger.get("/nothing")
            assert page.status_code == 404
            assert "There is no page at this address." in page.text
            assert "Go to the dags" not in page.text


def test_who_is_not_logged_in_is_sent_to_log_in(served: Served, story: Story) -> None:
    """And then comes to where they wanted to go."""
    with httpx.Client(base_url=served.url, headers={"Sec-Fetch-Site": "same-origin"}) as stranger:
        answer = stranger.get(f"{LOAD_PATH}?tab=attempts")
        assert answer.status_code == 303
        form = stranger.get(answer.headers["location"])
        assert "Log in" in form.text
        assert stranger.get(LOAD_PATH, headers={"HX-Request": "true"}).headers["hx-refresh"] == "true"
        wanted = httpx.URL(answer.headers["location"]).params["next"]
        done = stranger.post("/login", data={"token": served.token(), "next": wanted})
        assert done.headers["location"] == f"{LOAD_PATH}?tab=attempts"
        assert stranger.get("/").headers["location"] == "/dags"
    assert story


def test_a_viewer_sees_no_control_and_changes_nothing(
    client: Callable[..., httpx.Client], story: Story
) -> None:
    """The controls are not shown, and what they would send is refused."""
    viewer = client("viewer")
    shown = viewer.get(LOAD_PATH).text + viewer.get(f"{LOAD_PATH}/history?key=cursor").text
    for word in ("Add Task State Store", "Clear All", "Edit ", "Delete ", "Restore"):
        assert word not in shown
    for path in ("form", "delete?key=job_id", "clear"):
        assert viewer.get(f"{LOAD_PATH}/entries/{path}").status_code == 403
    before = story.store.task(LOAD.dag_id, LOAD.run_id, LOAD.task_id).entries()
    for path, fields in CHANGES:
        assert viewer.post(LOAD_PATH + path, data=fields).status_code == 403
    assert story.store.task(LOAD.dag_id, LOAD.run_id, LOAD.task_id).entries() == before


@pytest.mark.parametrize("site", ["cross-site", "same-site", "none"])
def test_other_sites_change_nothing(client: Callable[..., httpx.Client], story: Story, site: str) -> None:
    """However they have a browser send it."""
    before = story.store.task(LOAD.dag_id, LOAD.run_id, LOAD.task_id).entries()
    admin = client("admin")
    for path, fields in CHANGES:
        answer = admin.post(LOAD_PATH + path, data=fields, headers={"Sec-Fetch-Site": site})
        assert answer.status_code == 403
    assert story.store.task(LOAD.dag_id, LOAD.run_id, LOAD.task_id).entries() == before


def test_what_a_pattern_does_not_admit_is_not_there(
    client: Callable[..., httpx.Client], story: Story
) -> None:
    """Not in the list, and word for word like what is not known."""
    editor = client("editor", dags="fine_*")
    listed = editor.get("/dags").text
    assert "fine_tune" in listed
    assert "etl_orders" not in listed
    assert "etl_orders" not in editor.get("/dags?q=orders").text.partition("<section")[2].replace(
        "No dag has", ""
    )
    missing = editor.get("/dags/nope/runs/r/tasks/t").text.partition("<h1>")[2]
    for path in [*(path for path in SEEN if "orders" in path and "?q=" not in path), *asset_paths(story)[1:]]:
        answer = editor.get(path)
        assert answer.status_code == 404, path
    assert editor.get(LOAD_PATH).text.partition("<h1>")[2] == missing
    assert editor.get(LOAD_PATH + "/mapped/7").text.partition("<h1>")[2] == missing
    for path, fields in CHANGES:
        assert editor.post(LOAD_PATH + path, data=fields).status_code == 404
    assert ">orders<" not in editor.get("/assets").text


def test_of_a_task_out_of_reach_nothing_is_told(served: Served, story: Story) -> None:
    """Not by the asset that it wrote either."""
    headers = served.headers("viewer", dags="fine_*", assets="*")
    with httpx.Client(base_url=served.url, headers=headers) as client:
        for path in asset_paths(story):
            shown = client.get(path)
            assert shown.status_code == 200
            assert "etl_orders" not in shown.text
        assert "A task" in shown.text


def test_a_body_that_is_no_form_is_refused(client: Callable[..., httpx.Client], story: Story) -> None:
    """Whatever it is instead."""
    editor = client()
    bodies = [b"\xff\xfe", b"key=%FF", b"&".join(b"a=1" for _ in range(100)), b""]
    statuses = [editor.post(f"{LOAD_PATH}/entries", content=body).status_code for body in bodies]
    assert statuses == [400, 400, 400, 422]
    assert story


def test_what_is_typed_is_checked_up_to_a_size(client: Callable[..., httpx.Client], story: Story) -> None:
    """Anybody may have it checked, so it may take no more than a value that can be stored; what is larger, saving judges."""
    editor, address = client(), f"{LOAD_PATH}/entries"
    viewer = client("viewer")
    fine = viewer.post(f"{address}/check", data={"key": "k", "value": json.dumps("é" * 30_000)})
    assert fine.status_code == 200
    assert "60,002 bytes" in fine.text
    for length in ({}, {"Transfer-Encoding": "chunked"}):
        large = b"key=k&value=%22" + b"%41" * 10_000_000 + b"%22"
        content = iter([large]) if length else large
        answer = viewer.post(f"{address}/check", content=content, headers=length)
        assert answer.status_code == 413
        assert "This is too large" in answer.text
    # as large as only a task may write it
    scope = TaskScope("large", "r", "t")
    story.store.task(scope.dag_id, scope.run_id, scope.task_id, try_number=1).set("k", "A" * 300_000)
    (entry,) = story.store.backend.read(scope, ("k",), now=story.store.clock()).entries
    fields = {"key": "k", "value": entry.text, "version": str(entry.version), "expiry": "never"}
    assert editor.post("/dags/large/runs/r/tasks/t/entries", data=fields).status_code == 204


def test_static_files_are_kept_and_nothing_else_is_served(served: Served) -> None:
    """Under an address with their hash, and under no other; no name leads out of the folder."""
    with httpx.Client(base_url=served.url) as stranger:
        address = next(part for part in stranger.get("/login").text.split('"') if "keepstate.css" in part)
        for path, kept in ((address, True), (f"{address}x", False), ("/static/keepstate.css", False)):
            answer = stranger.get(path)
            assert answer.status_code == 200
            assert ("immutable" in answer.headers["cache-control"]) == kept, path
            assert kept or answer.headers["cache-control"] == "no-cache"
        for name in (
            "../asked.py",
            "..%2fasked.py",
            "vendor/../../asked.py",
            "",
            "vendor",
            "vendor/htmx.LICENSE",
        ):
            assert stranger.get(f"/static/{name}").status_code == 404, name


def test_pages_fetch_nothing_from_elsewhere() -> None:
    """Their scripts, styles and pictures come from the server: it works without the internet."""
    from importlib.resources import files

    for folder in ("templates", "static"):
        for file in files("keepstate.web").joinpath(folder).iterdir():
            if file.is_file():
                text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
                assert "http://" not in text, file.name
                assert "https://" not in text, file.name
                assert "url(" not in text, file.name


def test_addresses_survive_odd_ids() -> None:
    """Every id that may be has an address of its own."""
    addresses = Addresses("/prefix")
    assert addresses.task("a b", "2025-01-01T00:00:00+00:00", "50%?#ü") == (
        "/prefix/dags/a%20b/runs/2025-01-01T00%3A00%3A00%2B00%3A00/tasks/50%25%3F%23%C3%BC"
    )


def test_a_change_needs_its_method() -> None:
    """What changes something is a POST, and nothing else is."""
    changing = {"entries", "delete", "clear", "restore", "login", "logout"}
    for route in routes:
        if "POST" in (route.methods or ()) and not route.path.endswith("/check"):
            assert route.path.rpartition("/")[2] in changing, route.path


def test_every_path_is_in_the_reference() -> None:
    """The page lists each path that is served, with its methods, and no other."""
    from tests.docs.pages import DOCS

    text = (DOCS / "reference" / "web-pages.md").read_text(encoding="utf-8")
    listed: set[tuple[str, str]] = set()
    for line in text.splitlines():
        if not line.startswith("| `/") and not line.startswith("| `…"):
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        for path in cells[0].replace("`", "").split(", "):
            methods = cells[1].split(", ") if path.startswith("…") else ["GET"]
            listed |= {(method, path) for method in methods}
    bases = sorted((TASK, MAPPED, ASSET), key=len, reverse=True)
    served_here: set[tuple[str, str]] = set()
    for route in routes:
        base = next(
            (base for base in bases if route.path.startswith(f"{base}/") and route.path != MAPPED), None
        )
        path = route.path if base is None else f"…{route.path.removeprefix(base)}"
        served_here |= {(method, path.replace("{name:path}", "{name}")) for method in (route.methods or ())}
    served_here = {(method, path) for method, path in served_here if method != "HEAD"}
    of_login = {("POST", "/login"), ("POST", "/logout"), ("GET", "/logout")}
    assert listed - of_login == served_here - of_login


def test_trouble_of_the_store_is_told_without_its_address(
    client: Callable[..., httpx.Client],
    story: Story,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its place stands in the server's log; so does a mistake of the server's."""
    viewer = client("viewer")

    def fail(*_: object, **__: object) -> None:
        raise BackendUnavailableError("postgresql://keeper@db can't be reached", address="x")

    def break_down(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a detail")

    monkeypatch.setattr(story.store.backend, "task_instance", fail)
    answer = viewer.get(LOAD_PATH)
    assert answer.status_code == 503
    assert "The store can&#39;t be reached" in answer.text
    assert "postgresql" not in answer.text
    assert "postgresql" in caplog.text
    monkeypatch.setattr(story.store.backend, "task_instance", break_down)
    answer = viewer.get(LOAD_PATH)
    assert answer.status_code == 500
    assert "a detail" not in answer.text
    assert "a detail" in caplog.text
