"""Which store this is, and what was last copied into a scope. Column notes are in `docs/reference/tables.md`."""

from __future__ import annotations

UP = (
    "CREATE TABLE keepstate_store (id {id} NOT NULL PRIMARY KEY){clustered}",
    # where databases commit these one by one, both may run again
    "DELETE FROM keepstate_store",
    "INSERT INTO keepstate_store (id) VALUES ('{identity}')",
    "ALTER TABLE keepstate_scope ADD COLUMN copied {word}",
)

DOWN = (
    "ALTER TABLE keepstate_scope DROP COLUMN copied",
    "DROP TABLE keepstate_store",
)
