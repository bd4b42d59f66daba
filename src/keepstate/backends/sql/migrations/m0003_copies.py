"""What was last copied into a scope. Column notes are in `docs/reference/tables.md`."""

from __future__ import annotations

UP = ("ALTER TABLE keepstate_scope ADD COLUMN copied {word}",)

DOWN = ("ALTER TABLE keepstate_scope DROP COLUMN copied",)
