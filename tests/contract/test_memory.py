"""The contract over memory."""

from __future__ import annotations

import pytest

from keepstate.backends.memory import MemoryBackend
from keepstate.testing.contract import Copies, FullContract


class TestMemory(FullContract, Copies):
    many_writes = 100_000
    rounds = 100

    @pytest.fixture
    def backend(self) -> MemoryBackend:
        """An empty one."""
        return MemoryBackend()
