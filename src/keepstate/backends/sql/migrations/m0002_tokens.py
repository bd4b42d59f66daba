"""The server's tokens. Column notes are in `docs/reference/tables.md`."""

from __future__ import annotations

UP = (
    """
    CREATE TABLE keepstate_token (
      id {id} NOT NULL PRIMARY KEY,
      kind {word} NOT NULL, name {name} NOT NULL, digest {id} NOT NULL,
      role {word} NOT NULL, dags {name}, assets {name},
      parent_id {id},
      created_at BIGINT NOT NULL, expires_at BIGINT, revoked_at BIGINT, used_at BIGINT
    ){clustered}
    """,
)

DOWN = ("DROP TABLE keepstate_token",)
