"""A cluster for the page that shows Spark on YARN: the calls of a ResourceManager that it makes, and a `spark-submit`."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECONDS = 3.0
"""How long an application runs."""

# Knows only what real spark-submit is told on the page: it sends the tag, and leaves.
SPARK_SUBMIT = """#!{python}
import sys, urllib.request
tags = [option.partition("=")[2] for option in sys.argv if option.startswith("spark.yarn.tags=")]
urllib.request.urlopen("{url}/submit", data=tags[0].encode()).close()
"""


class Cluster:
    """Applications by id: their tag, and when they began."""

    def __init__(self) -> None:
        self.applications: dict[str, tuple[str, float]] = {}

    def submit(self, tag: str) -> None:
        """Start an application."""
        self.applications[f"application_1764_{len(self.applications) + 1:04}"] = (tag, time.monotonic())

    def show(self, name: str) -> dict[str, str]:
        """Return what the ResourceManager says of an application."""
        _, began = self.applications[name]
        done = time.monotonic() - began > SECONDS
        return {
            "id": name,
            "state": "FINISHED" if done else "RUNNING",
            "finalStatus": "SUCCEEDED" if done else "UNDEFINED",
        }

    def answer(self, path: str) -> dict[str, Any]:
        """Answer a GET as ``/ws/v1/cluster/…`` does."""
        url = urlsplit(path)
        _, _, name = url.path.partition("/ws/v1/cluster/apps/")
        if name:
            return {"app": self.show(name)}
        (tag,) = parse_qs(url.query)["applicationTags"]
        found = [self.show(name) for name, (of, _) in self.applications.items() if of == tag]
        return {"apps": {"app": found} if found else None}


@contextlib.contextmanager
def running_cluster(folder: Path) -> Iterator[tuple[Cluster, str]]:
    """Serve a cluster on loopback, with a ``spark-submit`` in ``folder``; give it and its address."""
    cluster = Cluster()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(cluster.answer(self.path))

        def do_POST(self) -> None:
            cluster.submit(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self._send({})

        def _send(self, body: dict[str, Any]) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    url = f"http://127.0.0.1:{server.server_port}"
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "spark-submit"
    program.write_text(SPARK_SUBMIT.format(python=sys.executable, url=url), encoding="utf-8")
    program.chmod(0o755)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield cluster, url
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
