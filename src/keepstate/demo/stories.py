"""The three stories: start a worker, kill it with SIGKILL in the middle, start it again, and count what happened."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keepstate.connect import connect
from keepstate.demo import pages, screen, workers
from keepstate.errors import ConfigurationError
from keepstate.testing.spool import SpoolJobSystem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from keepstate.store import StateStore
    from keepstate.testing.ssh_server import SSHServer

_PATIENCE = 30.0
_GLANCE = 0.03


@dataclass(frozen=True)
class Outcome:
    """What happened in a story, as it was counted; ``kept`` says whether that is what keepstate promises."""

    story: str
    attempts: int
    kept: bool
    submissions: int | None = None
    pages: int | None = None
    read_twice: int | None = None


class _Stage:
    """What the stories share: the store, the folder beside it, and the environment of the workers."""

    def __init__(self, folder: Path, store: StateStore, url: str) -> None:
        self.folder = folder
        self.store = store
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("KEEPSTATE_")},
            "KEEPSTATE_URL": url,
            "KEEPSTATE_DEMO_FOLDER": str(folder),
        }

    @contextmanager
    def worker(self, story: str) -> Iterator[subprocess.Popen[bytes]]:
        """Start a worker; it is gone when the block is left."""
        with (self.folder / "workers.log").open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-m", "keepstate.demo.workers", story],
                env=self.environment,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()

    def remembered(self, story: str, task_id: str, key: str) -> Any:
        """Return what a task holds under a key at the moment."""
        return self.store.task(story, workers.RUN_ID, task_id).get(key)

    def finish(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for a worker to end well."""
        if process.wait(_PATIENCE) != 0:
            raise RuntimeError(f"a worker failed; see {self.folder / 'workers.log'}")

    def attempts(self, story: str, task_id: str) -> int:
        """Count the attempts of a task, as the store recorded them."""
        return len(self.store.attempts(story, workers.RUN_ID, task_id))


def _until(condition: Callable[[], Any], process: subprocess.Popen[bytes], stage: _Stage) -> None:
    """Watch until a condition holds, while the worker lives."""
    end = time.monotonic() + _PATIENCE
    while not condition():
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"the worker did not get there; see {stage.folder / 'workers.log'}")
        time.sleep(_GLANCE)


def tell(*, svg: Path | None = None, serve: bool = False) -> int:
    """Tell all stories; return 0 if every promise held, 1 if not. With ``serve``, show the pages before that."""
    if serve:
        pages.check()
    try:
        # the workers and the server need these, and are not the place to say so
        import asyncssh  # noqa: F401
        import paramiko  # noqa: F401

        from keepstate.testing.ssh_server import running_ssh_server
    except ImportError as exc:
        raise ConfigurationError(
            f'the demo starts an SSH server of its own and needs {exc.name}: pip install "keepstate[ssh]" asyncssh'
        ) from exc
    folder = Path(tempfile.mkdtemp(prefix="keepstate-demo-"))
    url = f"sqlite:///{folder / 'keepstate.db'}"
    with connect(url) as store, running_ssh_server(folder / "ssh") as server:
        stage = _Stage(folder, store, url)
        show = screen.Screen()
        show.opening()
        outcomes = [_ssh_job(stage, server, show), _pages(stage, show), _submit_window(stage, show)]
        show.closing(outcomes, url, folder)
        if svg is not None:
            screen.picture(outcomes, show.pages, svg)
        if serve:
            pages.serve(store, show.served)
    return 0 if all(outcome.kept for outcome in outcomes) else 1


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _ssh_job(stage: _Stage, server: SSHServer, show: screen.Screen) -> Outcome:
    known_hosts = stage.folder / "known_hosts"
    known_hosts.write_text(f"[{server.host}]:{server.port} {server.host_key}\n", encoding="utf-8")
    stage.environment |= {
        "KEEPSTATE_DEMO_KNOWN_HOSTS": str(known_hosts),
        "KEEPSTATE_DEMO_SSH_HOST": server.host,
        "KEEPSTATE_DEMO_SSH_PORT": str(server.port),
        "KEEPSTATE_DEMO_SSH_USER": server.user,
        "KEEPSTATE_DEMO_SSH_KEY": server.client_key,
    }
    show.story(1, "A report on another machine", "started over SSH, then waited for")
    with stage.worker("ssh_job") as first:
        _until(lambda: stage.remembered("ssh_job", "build_report", "remote_pid"), first, stage)
        pid = stage.remembered("ssh_job", "build_report", "remote_pid")
        show.line(f"attempt 1 started remote process {pid} and stored its number")
        time.sleep(0.8)
        first.kill()
        first.wait()
    show.killed("while attempt 1 waits; the report goes on over there")
    with stage.worker("ssh_job") as second:
        show.waiting("attempt 2 finds the number and waits for the same process", second, _PATIENCE)
        stage.finish(second)
    launches = sum("nohup" in command for command in server.commands())
    result = (stage.folder / "report.txt").read_text(encoding="utf-8").strip()
    show.good(f"the report is there: {result}; launched {_times(launches)}")
    attempts = stage.attempts("ssh_job", "build_report")
    return Outcome("report over SSH", attempts, kept=launches == 1, submissions=launches)


def _pages(stage: _Stage, show: screen.Screen) -> Outcome:
    strike = random.randint(workers.PAGES // 3, workers.PAGES * 2 // 3)  # noqa: S311 - the moment is no secret
    show.story(2, f"{workers.PAGES} pages", "with a checkpoint after each")

    def position() -> int:
        stored = stage.remembered("pages", "read_pages", "pages")
        return int(stored["position"]) if stored else 0

    with stage.worker("pages") as first, show.progress(1, workers.PAGES) as advance:

        def reached() -> bool:
            advance(position())
            return position() >= strike

        _until(reached, first, stage)
        first.kill()
        first.wait()
        at = position()
        advance(at)
    show.killed(f"after page {at}")
    with stage.worker("pages") as second, show.progress(2, workers.PAGES, resumed_at=at) as advance:
        while second.poll() is None:
            advance(position())
            time.sleep(_GLANCE)
        stage.finish(second)
        advance(position())
    read = Counter((stage.folder / "pages.log").read_text(encoding="utf-8").split())
    twice = sum(count - 1 for count in read.values())
    show.good(f"all {len(read)} pages are there; read twice: {twice} (only the one in flight may be)")
    attempts = stage.attempts("pages", "read_pages")
    kept = len(read) == workers.PAGES and twice <= 1
    return Outcome(f"{workers.PAGES} pages", attempts, kept=kept, pages=len(read), read_twice=twice)


def _submit_window(stage: _Stage, show: screen.Screen) -> Outcome:
    show.story(3, "The submit window", "killed after submitting, before the id is stored")
    with stage.worker("submit_window") as first:
        first.wait(_PATIENCE)
    cluster = SpoolJobSystem(stage.folder / "cluster")
    token = (cluster.submissions()[0].token or "")[:8]
    show.killed(f"in the window; only the intent with token {token}… is stored")
    with stage.worker("submit_window") as second:
        show.waiting("attempt 2 asks the cluster for the job with that token", second, _PATIENCE)
        stage.finish(second)
    submissions = len(cluster.submissions())
    show.good(f"found it and waited for it; submitted {_times(submissions)}")
    attempts = stage.attempts("submit_window", "train_model")
    return Outcome("killed while submitting", attempts, kept=submissions == 1, submissions=submissions)
