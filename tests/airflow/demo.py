"""`make demo-airflow`: Airflow 3.1 from nothing, a task that waits for a job over SSH, and a worker that is killed.

It ends with keepstate's tab on Airflow's page of the task: in a browser where there is one with windows, and as a picture where
there is only Chromium. At a terminal, Airflow goes on until Ctrl-C.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
import webbrowser
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from playwright.sync_api import sync_playwright

from keepstate.testing.ssh_server import running_ssh_server
from tests.support.airflow import ROOT, environment
from tests.support.airflow_services import Services, services
from tests.support.browser import chromium

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION = "3.1.8"
DAGS = Path(__file__).parent / "dags" / "demo"
PICTURE = ROOT / ".cache" / "demo-airflow.png"


def say(text: str) -> None:
    """Print a line with the seconds since the beginning."""
    sys.stdout.write(f"{time.monotonic() - BEGAN:5.0f} s  {text}\n")
    sys.stdout.flush()


BEGAN = time.monotonic()


def main() -> None:
    """Show it, and fail if it does not go as it should."""
    say(f"making an environment with Airflow {VERSION}, its SSH provider, and keepstate")
    airflow = environment(VERSION, "apache-airflow-providers-ssh")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "ssh").mkdir()
        say("starting an SSH server, and Airflow: API server, scheduler, DAG processor")
        with (
            running_ssh_server(home / "ssh") as server,
            services(airflow, home, DAGS, **server.environment()) as running,
        ):
            show(running)


def show(running: Services) -> None:
    """Kill the task's process while it waits, and watch its retry."""
    token = running.token("admin")
    (run_id,) = running.wait_for(
        "the run of the DAG", lambda: running.query("SELECT run_id FROM dag_run WHERE dag_id = 'report'")
    )[0]
    path = f"/api/v2/dags/report/dagRuns/{quote(run_id, safe='')}/taskInstances/build_report/state-store"

    def entries() -> dict[str, Any]:
        status, answer = running.request("GET", path, token=token)
        assert status == 200, answer
        return {entry["key"]: entry["value"] for entry in answer["task_state_store"]}

    pid = running.wait_for("the remote process", lambda: entries().get("remote_pid"))
    say(f"try 1 has started process {pid} on the other machine, and stored its id")
    ((worker,),) = running.query("SELECT pid FROM task_instance WHERE dag_id = 'report'")
    os.kill(worker, signal.SIGKILL)
    say(f"killed the task's process {worker} with kill -9; the remote one goes on")
    states = running.wait_until_done("report")
    ((tries,),) = running.query("SELECT try_number FROM task_instance WHERE dag_id = 'report'")
    say(f"try {tries} has found process {pid}, waited for it, and ended: {states['build_report']}")
    say(f"GET {path}")
    for key, value in entries().items():
        say(f"    {key} = {value!r}")
    assert (states, tries, entries()) == (
        {"build_report": "success"},
        2,
        {"remote_pid": pid, "result": "done"},
    )
    show_tab(
        running, f"/dags/report/runs/{quote(run_id, safe='')}/tasks/build_report/plugin/keepstate", token
    )


def show_tab(running: Services, path: str, token: str) -> None:
    """Show keepstate's tab: to whoever is at this terminal, and else as a picture."""
    say(f"keepstate's tab on Airflow's page of this task: {path}")
    if not sys.stdout.isatty():
        picture = take_picture(running.url, path, token)
        say(
            "    nobody is at a terminal, so Airflow ends here"
            if picture is None
            else f"    as a picture: {picture}"
        )
        return
    with logging_in(running.url + path, token) as link:
        say(f"    {link} logs a browser of this machine in, and opens it")
        if not open_window(link) and (picture := take_picture(running.url, path, token)):
            say(f"    as a picture: {picture}")
        say("Airflow goes on until you press Ctrl-C")
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            say("ended")


@contextmanager
def logging_in(target: str, token: str) -> Iterator[str]:
    """Have a link that logs a browser of this machine in to Airflow and goes on to ``target``: a cookie is for every port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(303)
            self.send_header("Set-Cookie", f"_token={token}; Path=/; SameSite=Lax")
            self.send_header("Location", target)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name for it
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def open_window(link: str) -> bool:
    """Open a browser that has windows, if there is one; one without would draw over this terminal."""
    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        return False
    return type(browser) is not webbrowser.GenericBrowser and browser.open(link)


def take_picture(url: str, path: str, token: str) -> Path | None:
    """Have Chromium draw the tab, if there is one; fails where the tab does not show what is stored."""
    try:
        executable = chromium()
    except FileNotFoundError:
        return None
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        context = browser.new_context(viewport={"width": 1280, "height": 720})
        context.add_cookies([{"name": "_token", "value": token, "url": url}])
        page = context.new_page()
        page.goto(url + path)
        page.frame_locator("iframe").get_by_role("row", name="remote_pid").wait_for(timeout=60_000)
        page.screenshot(path=PICTURE)
        browser.close()
    return PICTURE


if __name__ == "__main__":
    main()
