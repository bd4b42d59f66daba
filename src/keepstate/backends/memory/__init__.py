"""Entries in plain dicts, gone with the process: for tests, and the shortest full answer to what a backend must do."""

from __future__ import annotations

from keepstate.backends.memory.backend import MemoryBackend

__all__ = ["MemoryBackend"]
