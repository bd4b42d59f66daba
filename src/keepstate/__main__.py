"""``python -m keepstate`` is the command line."""

from __future__ import annotations

from keepstate.cli import main

main()
