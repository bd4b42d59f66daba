"""The address of a keepstate server: what of a URL is used, and what is refused rather than ignored."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from keepstate.errors import ConfigurationError

_UNPRINTED = re.compile(r"[\s\x00-\x1f\x7f-\x9f\ud800-\udfff]")


@dataclass(frozen=True)
class Server:
    """Where a server is: ``address`` without a slash at its end, whether that is encrypted, and by which proxy it is asked.

    ``near``: it is on this machine.
    """

    address: str
    encrypted: bool
    near: bool
    proxy: str | None = field(default=None, repr=False)


def server_at(url: str) -> Server:
    """Return the server that a URL names. Raises ``ConfigurationError``, which never shows the URL: it may hold a secret."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
        parts = urlsplit("http:")
    if not host or _UNPRINTED.search(url):
        raise _refused("names no host that can be asked")
    if parts.username is not None or parts.password is not None:
        raise _refused(
            "has a user or password in it, which a server does not ask for: it asks for KEEPSTATE_TOKEN"
        )
    if parts.path not in {"", "/"} or parts.query or parts.fragment or url.rstrip("/").endswith(("?", "#")):
        raise _refused("goes on after the host, and the server is asked at paths of its own")
    shown = f"[{host}]" if ":" in host else host
    address = f"{parts.scheme.lower()}://{shown}" + ("" if port is None else f":{port}")
    near = _near(host)
    return Server(
        address, parts.scheme.lower() == "https", near, None if near else _proxy(parts.scheme, shown, port)
    )


def _refused(problem: str) -> ConfigurationError:
    return ConfigurationError(
        f"the URL of the keepstate server {problem}; write https://HOST or https://HOST:PORT, and no more"
    )


def _near(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _proxy(scheme: str, host: str, port: int | None) -> str | None:
    """Return the proxy that the environment names for a host, as for every other program on this machine."""
    if proxy_bypass(host if port is None else f"{host}:{port}"):
        return None
    found = getproxies()
    proxy = found.get(scheme.lower()) or found.get("all")
    return proxy if proxy is None or "://" in proxy else f"http://{proxy}"
