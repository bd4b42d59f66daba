"""The server's tokens. Column notes are in `docs/reference/tables.md`."""

from __future__ import annotations

UP = (
    """
    CREATE TABLE keepstate_token (
      id {key} NOT NULL PRIMARY KEY,
      kind {key} NOT NULL, name {key} NOT NULL, digest {key} NOT NULL,
      role {key} NOT NULL, dags {key}, assets {key},
      parent_id {key},
      created_at BIGINT NOT NULL, expires_at BIGINT, revoked_at BIGINT, used_at BIGINT
    ){clustered}
    """,
)

DOWN = ("DROP TABLE keepstate_token",)
