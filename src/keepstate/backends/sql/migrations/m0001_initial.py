"""The first tables. Column notes are in `docs/reference/tables.md`."""

from __future__ import annotations

UP = (
    """
    CREATE TABLE keepstate_scope (
      id {serial},
      digest {bytes} NOT NULL,
      kind {word} NOT NULL,
      dag_id {id}, run_id {id}, task_id {id}, map_index INTEGER,
      incarnation INTEGER NOT NULL,
      version BIGINT NOT NULL,
      try_number INTEGER, attempt_id {id}, item {id}, state {word},
      deleted INTEGER NOT NULL,
      created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, sweep_at BIGINT
    ){table}
    """,
    "CREATE UNIQUE INDEX keepstate_scope_digest ON keepstate_scope (digest)",
    # no further: an index row of PostgreSQL has at most 2,704 bytes, and each id has up to 1,000. MySQL's has 3,072
    "CREATE INDEX keepstate_scope_run ON keepstate_scope (dag_id, run_id, kind)",
    "CREATE INDEX keepstate_scope_recent ON keepstate_scope (kind, created_at)",
    "CREATE INDEX keepstate_scope_recent_of_dag ON keepstate_scope (dag_id, kind, created_at)",
    "CREATE INDEX keepstate_scope_sweep ON keepstate_scope (sweep_at)",
    """
    CREATE TABLE keepstate_attempt (
      scope_id BIGINT NOT NULL,
      incarnation INTEGER NOT NULL, try_number INTEGER NOT NULL, attempt_id {id} NOT NULL,
      item {id}, state {word} NOT NULL,
      host {name}, pid BIGINT, process_started {name},
      started_at BIGINT NOT NULL, beat_at BIGINT, ended_at BIGINT,
      reason {value}, result {value}, arguments {key},
      PRIMARY KEY (scope_id, incarnation, try_number, attempt_id)
    ){clustered}
    """,
    """
    CREATE TABLE keepstate_entry (
      scope_id BIGINT NOT NULL, entry_key {key} NOT NULL,
      value {value}, version BIGINT NOT NULL,
      updated_at BIGINT NOT NULL, expires_at BIGINT, sweep_at BIGINT,
      writer {value},
      log_from BIGINT NOT NULL, log_rows INTEGER NOT NULL, log_limit INTEGER NOT NULL,
      PRIMARY KEY (scope_id, entry_key)
    ){clustered}
    """,
    "CREATE INDEX keepstate_entry_sweep ON keepstate_entry (sweep_at)",
    """
    CREATE TABLE keepstate_log (
      scope_id BIGINT NOT NULL, entry_key {key} NOT NULL, version BIGINT NOT NULL,
      action {word} NOT NULL,
      value {value}, size BIGINT NOT NULL, sha256 {word},
      written_at BIGINT NOT NULL, expires_at BIGINT,
      writer {value},
      PRIMARY KEY (scope_id, entry_key, version)
    ){clustered}
    """,
    """
    CREATE TABLE keepstate_session (
      id {id} NOT NULL PRIMARY KEY,
      number BIGINT NOT NULL, version BIGINT NOT NULL, incarnation INTEGER NOT NULL,
      used_at BIGINT NOT NULL
    ){clustered}
    """,
    """
    CREATE TABLE keepstate_asset (
      id BIGINT NOT NULL PRIMARY KEY,
      name_digest {bytes} NOT NULL, uri_digest {bytes} NOT NULL,
      name {name} NOT NULL, uri {name} NOT NULL
    ){table}
    """,
    "CREATE UNIQUE INDEX keepstate_asset_name ON keepstate_asset (name_digest)",
    "CREATE UNIQUE INDEX keepstate_asset_uri ON keepstate_asset (uri_digest)",
)

DOWN = tuple(
    f"DROP TABLE keepstate_{table}" for table in ("asset", "session", "log", "entry", "attempt", "scope")
)
