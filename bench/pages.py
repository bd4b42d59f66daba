"""Pages, as a browser that is logged in asks for them."""

from __future__ import annotations

from http.client import HTTPConnection
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bench.contenders import ContenderError

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.served import Served


def reader(served: Served) -> Callable[[str], None]:
    """Return what reads one page after the other, over one connection."""
    address = urlsplit(served.url)
    connection = HTTPConnection(str(address.hostname), address.port, timeout=60)

    def read(path: str) -> None:
        connection.request("GET", path, headers={"Authorization": f"Bearer {served.token}"})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise ContenderError(f"GET {path} is answered {answer.status}: {text[:300]!r}")

    return read
