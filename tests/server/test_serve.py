"""`keepstate serve` as a process of its own: its beginning and its end."""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from keepstate.connect import connect
from keepstate.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Start = Callable[..., "Process"]


class Process:
    """A server, where it is, and what it has said so far."""

    def __init__(self, home: Path, *argv: str, **environment: str) -> None:
        self.home = home
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "keepstate", "serve", "--port", "0", *argv],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "KEEPSTATE_HOME": str(home), **environment},
        )
        self.said: list[str] = []
        assert self.popen.stderr is not None
        self.url = ""
        for line in self.popen.stderr:
            self.said.append(line)
            if found := re.search(r"serving .* at (http://\S+)", line):
                self.url = found[1]
            if "within 10 minutes" in line or (self.url and "admin" not in "".join(self.said) and self._old):
                break
        assert self.url, "".join(self.said)

    _old = False

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        """Have it end; return its code and what it said since, on stdout and stderr."""
        if self.popen.poll() is None:
            self.popen.send_signal(number)
        out, err = self.popen.communicate(timeout=60)
        return self.popen.returncode, out, err


class Again(Process):
    """A server that is not the first of its store, and so says nothing of tokens."""

    _old = True


def refuse_soon(url: str) -> None:
    """Wait until the server takes no more connections."""
    for _ in range(5_000):
        try:
            httpx.get(f"{url}/health/live", timeout=5)
        except httpx.TransportError:
            return
    pytest.fail("it still takes connections")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts servers over the same home; those that are left are ended."""
    started: list[Process] = []

    def begin(*argv: str, again: bool = False, **environment: str) -> Process:
        process = (Again if again else Process)(tmp_path / "home", *argv, **environment)
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.popen.poll() is None:
            process.popen.kill()
        process.popen.communicate(timeout=60)


def test_the_first_start_makes_an_admin_token(start: Start) -> None:
    """For its owner's eyes only, with a link that logs in once; the next start makes none."""
    first = start()
    file = first.home / "admin-token"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    token = file.read_text().strip()
    headers = {"Authorization": f"Bearer {token}"}
    assert httpx.get(f"{first.url}/api/v2/dags", headers=headers).status_code == 200
    said = "".join(first.said)
    assert token not in said
    link = re.search(r"http://\S+/login\?code=\S+", said)
    assert link is not None
    with httpx.Client() as browser:
        assert browser.get(link[0]).status_code == 303
        assert browser.get(f"{first.url}/api/v2/dags").status_code == 200
    assert httpx.get(link[0]).status_code == 401
    assert first.end()[0] == 0

    second = start(again=True)
    assert "admin" not in "".join(second.said)
    assert file.read_text().strip() == token
    assert httpx.get(f"{second.url}/api/v2/dags", headers=headers).status_code == 200


def test_no_secret_is_seen_from_outside(start: Start) -> None:
    """Neither in the list of processes nor in the log of requests."""
    server = start()
    token = (server.home / "admin-token").read_text().strip()
    link = re.search(r"code=(\S+)", "".join(server.said))
    assert link is not None
    httpx.get(f"{server.url}/login?code={link[1]}")
    httpx.get(f"{server.url}/api/v2/dags", headers={"Authorization": f"Bearer {token}"})
    commands = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert token not in commands
    code, out, err = server.end()
    assert code == 0
    assert out.count('"path"') == 2
    for secret in (token, link[1]):
        assert secret not in out
        assert secret not in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_in_good_order(start: Start, number: int) -> None:
    """A write that has begun is answered, and is there; the next is not taken."""
    server = start("--no-access-log")
    file = server.home / "keepstate.db"
    headers = {"Authorization": f"Bearer {(server.home / 'admin-token').read_text().strip()}"}
    with connect(f"sqlite:///{file}", settings=Settings()) as store:
        store.task("etl", "r", "t").set("k", 0)
        answers: list[int] = []
        key = f"{server.url}/api/v2/dags/etl/dagRuns/r/taskInstances/t/state-store/k"

        def write() -> None:
            answers.append(httpx.put(key, json={"value": 1}, headers=headers, timeout=30).status_code)

        # while this transaction lasts, the server's write waits
        with store.backend._db.transaction():
            writer = threading.Thread(target=write)
            writer.start()
            metrics = f"{server.url}/metrics"
            while "keepstate_requests_in_flight 2.0" not in httpx.get(metrics, headers=headers).text:
                assert writer.is_alive()
            server.popen.send_signal(number)
            refuse_soon(server.url)
            assert server.popen.poll() is None
        writer.join(30)
        assert answers == [204]
        assert server.end(number)[:2] == (0, "")
        assert store.task("etl", "r", "t").get("k") == 1


def test_an_address_in_use_is_refused(tmp_path: Path) -> None:
    """With one line, and no token made."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-m", "keepstate", "serve", "--port", str(port)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "KEEPSTATE_HOME": str(tmp_path)},
        )
    assert done.returncode == 78
    assert done.stderr.startswith(f"keepstate: 127.0.0.1:{port} can't be listened on: ")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "admin-token").exists()


@pytest.mark.parametrize("arguments", [("--host", "no.such.host.invalid"), ("--port", "70000")])
def test_an_address_that_is_none_is_refused(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """With one line that says what to choose another of."""
    done = subprocess.run(
        [sys.executable, "-m", "keepstate", "serve", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "KEEPSTATE_HOME": str(tmp_path)},
    )
    assert done.returncode == 78
    assert "choose another with --host and --port" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_token_file_that_can_not_be_written_leaves_no_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token that nobody has could only be in the way."""
    from keepstate.connect import tokens_of
    from keepstate.errors import ConfigurationError
    from keepstate.server import serving
    from keepstate.server.tokens import Tokens

    with connect(f"sqlite:///{tmp_path / 'k.db'}", settings=Settings()) as store:
        tokens = Tokens(tokens_of(store), store.clock)

        def refuse(*_: Any, **__: Any) -> int:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr("os.open", refuse)
        with pytest.raises(ConfigurationError, match=r"admin-token: Permission denied; set KEEPSTATE_HOME"):
            serving.first_token(tokens, Settings(home=str(tmp_path)))
        assert tokens.living() == []
        monkeypatch.undo()
        made = serving.first_token(tokens, Settings(home=str(tmp_path)))
        assert made is not None
        assert tokens.check(made.read_text().strip()) is not None


def test_of_servers_that_start_together_one_makes_the_first_token(tmp_path: Path) -> None:
    """The others leave no file, as what it held would not be valid."""
    from keepstate.connect import tokens_of
    from keepstate.server import serving
    from keepstate.server.tokens import Tokens

    url, ready = f"sqlite:///{tmp_path / 'k.db'}", Barrier(4)
    homes = [tmp_path / f"host-{n}" for n in range(4)]

    def begin(home: Path) -> Path | None:
        home.mkdir()
        with connect(url, settings=Settings()) as store:
            tokens = Tokens(tokens_of(store), store.clock)
            ready.wait(60)
            return serving.first_token(tokens, Settings(home=str(home)))

    with ThreadPoolExecutor(4) as pool:
        made = [file for file in pool.map(begin, homes) if file is not None]
    assert [file for home in homes for file in home.iterdir()] == made
    assert len(made) == 1
    with connect(url, settings=Settings()) as store:
        tokens = Tokens(tokens_of(store), store.clock)
        assert [token.name for token in tokens.living()] == ["admin"]
        assert tokens.check(made[0].read_text().strip()) is not None


def test_a_killed_server_has_lost_nothing(start: Start) -> None:
    """What was answered is there, and a client's next request finds the next server."""
    server = start("--no-access-log")
    headers = {"Authorization": f"Bearer {(server.home / 'admin-token').read_text().strip()}"}
    with connect(f"sqlite:///{server.home / 'keepstate.db'}", settings=Settings()) as store:
        store.task("etl", "r", "t").set("k", 0)
    key = f"{server.url}/api/v2/dags/etl/dagRuns/r/taskInstances/t/state-store/k"
    answered = 0
    with httpx.Client(headers=headers) as http:
        began = time.monotonic()
        while time.monotonic() - began < 0.5:
            assert http.put(key, json={"value": answered + 1}).status_code == 204
            answered += 1
    server.popen.kill()
    again = start(again=True)
    found = httpx.get(key.replace(server.url, again.url), headers=headers).json()
    assert found["value"] == answered > 0
