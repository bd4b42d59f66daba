"""A real SSH server, and a folder for programs under `keepstate run`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from keepstate import StateStore, connect
from tests.support.programs import Programs
from tests.support.ssh_server import SSHServer, running_ssh_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def ssh_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SSHServer]:
    """One server for all tests here."""
    with running_ssh_server(tmp_path_factory.mktemp("ssh")) as server:
        yield server


@pytest.fixture
def programs(tmp_path: Path, ssh_server: SSHServer) -> Programs:
    """A folder for programs, whose `ssh_default` is the server."""
    programs = Programs(tmp_path)
    programs.environment.update(ssh_server.environment())
    return programs


@pytest.fixture
def store(programs: Programs) -> Iterator[StateStore]:
    """The store of these programs."""
    programs.home.mkdir()
    with connect(f"sqlite:///{programs.home / 'keepstate.db'}") as store:
        yield store
