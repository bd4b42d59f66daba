"""A folder for programs under `keepstate run`, which know a real SSH server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from keepstate import StateStore, connect
from tests.support.programs import Programs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.ssh_server import SSHServer


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
