"""Ports of loopback."""

from __future__ import annotations

import socket


def free_port() -> int:
    """Return a port that nobody listens on: for servers that come back at the same place after a kill."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port
