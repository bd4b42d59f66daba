"""The SSH server of `keepstate.testing` for tests; `python -m tests.support.ssh_server --dir DIR` runs one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from keepstate.testing.ssh_server import SSHServer, SSHServerError, main, running_ssh_server

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SSHServer", "SSHServerError", "main", "running_ssh_server", "ssh_server"]


@pytest.fixture(scope="session")
def ssh_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SSHServer]:
    """One SSH server for the whole session. What tests launch on it ends with it."""
    with running_ssh_server(tmp_path_factory.mktemp("ssh")) as server:
        yield server


if __name__ == "__main__":
    main()
