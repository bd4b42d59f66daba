"""What reads and changes entries and attempts in SQL, named and commented.

Beside it are `list_statements` and `cleanup_statements`. All are one set for all databases; `dialects.py` holds the few
differences.

They are written as SQLite and PostgreSQL spell them; MySQL's dialect spells them anew. It assigns from top to bottom, and
then sees the new values: what looks at a column's old value comes before the column is set. Parameters are ``:named``.
``{for_update}`` locks rows where the database has row locks (SQLite's write transactions lock the whole file). An entry
whose ``value`` is NULL is a tombstone: the key was removed, and its log lasts until the tombstone's ``expires_at``.
``sweep_at`` is when a cleanup next has something to do with the row, so that one index serves the cleanup and most writes
leave it alone.
"""

from __future__ import annotations

# ------------------------------------------------------------------------------------------------- scopes

SCOPE_COLUMNS = "id, version, incarnation, try_number, attempt_id, item, deleted, state"
DELETED = 6
"""Which of these says whether the run of the scope was deleted."""

# the row that every change of a scope locks first: whoever holds it is alone in the scope
LOCK_SCOPE = f"SELECT {SCOPE_COLUMNS} FROM keepstate_scope WHERE digest = :digest{{for_update}}"

FIND_STANDING = f"SELECT {SCOPE_COLUMNS} FROM keepstate_scope WHERE digest = :digest"

FIND_SCOPE = "SELECT id FROM keepstate_scope WHERE digest = :digest"

LOCK_SCOPE_BY_ID = f"SELECT {SCOPE_COLUMNS} FROM keepstate_scope WHERE id = :id{{for_update}}"

# two processes may meet a new scope at once: one row results
CREATE_SCOPE = """
INSERT INTO keepstate_scope
  (digest, kind, dag_id, run_id, task_id, map_index, incarnation, version, deleted, created_at, updated_at, sweep_at)
VALUES (:digest, :kind, :dag_id, :run_id, :task_id, :map_index, 1, 0, 0, :now, :now, :sweep_at)
ON CONFLICT (digest) DO NOTHING
"""

BUMP_SCOPE = "UPDATE keepstate_scope SET version = :version, updated_at = :now WHERE id = :id"

# an attempt becomes the current one, perhaps in a new incarnation
SEAT_ATTEMPT = """
UPDATE keepstate_scope
SET try_number = :try_number, attempt_id = :attempt_id, incarnation = :incarnation, item = :item, state = :state,
    created_at = CASE WHEN deleted = 1 THEN :now ELSE created_at END, deleted = 0, updated_at = :now
WHERE id = :id
"""

NOTE_ITEM = "UPDATE keepstate_scope SET item = :item WHERE id = :id"

SET_STATE = "UPDATE keepstate_scope SET state = :state, updated_at = :now WHERE id = :id"

_REVIVE = """
UPDATE keepstate_scope
SET deleted = 0, incarnation = incarnation + 1, try_number = NULL, item = NULL, state = NULL,
    created_at = :now, updated_at = :now
"""
REVIVE_SCOPE = _REVIVE + "WHERE id = :id"
REVIVE_RUN = _REVIVE + "WHERE digest = :digest AND deleted = 1"

SCOPES_OF_RUN = """
SELECT id, kind FROM keepstate_scope WHERE dag_id = :dag_id AND run_id = :run_id AND deleted = 0{for_update}
"""

SCOPES_OF_TASK = """
SELECT id FROM keepstate_scope
WHERE dag_id = :dag_id AND run_id = :run_id AND kind = 'task' AND task_id = :task_id AND deleted = 0{for_update}
"""

# the row stays for a while, so that attempts of the deleted run are known for what they are
BURY_SCOPE = """
UPDATE keepstate_scope SET deleted = 1, item = NULL, state = NULL, updated_at = :now, sweep_at = :sweep_at WHERE id = :id
"""

DELETE_SCOPE = "DELETE FROM keepstate_scope WHERE id = :id"

# ------------------------------------------------------------------------------------------------- assets

ASSETS_CALLED = (
    "SELECT id, name, uri FROM keepstate_asset WHERE name_digest = :name_digest OR uri_digest = :uri_digest"
)
CREATE_ASSET = """
INSERT INTO keepstate_asset (id, name_digest, uri_digest, name, uri)
VALUES (:id, :name_digest, :uri_digest, :name, :uri)
"""
RENAME_ASSET = """
UPDATE keepstate_asset SET name_digest = :name_digest, uri_digest = :uri_digest, name = :name, uri = :uri WHERE id = :id
"""
REDIGEST_SCOPE = "UPDATE keepstate_scope SET digest = :digest WHERE id = :id"
DELETE_ASSET = "DELETE FROM keepstate_asset WHERE id = :id"

# ------------------------------------------------------------------------------------------------ entries

ENTRY_COLUMNS = "e.entry_key, e.value, e.version, e.updated_at, e.expires_at, e.writer"
LIVE = "e.value IS NOT NULL AND (e.expires_at IS NULL OR e.expires_at > :now)"
_STANDING = "s.id, s.version, s.incarnation, s.try_number, s.attempt_id, s.item, s.deleted, s.state"

OF_ENTRY = slice(8, 14)
"""What follows these in a row of reading: the entry, as `StoredEntry` has it."""
VALUE = 9
"""Its value, which is null where there is no entry."""
TOTAL = 8
"""What follows them in the row of ``COUNT_LIVE``."""

# Reading comes in two forms, by the digest of a task instance and by the id of an asset: {scope}. It answers at least one
# row where the scope is there, and so is one consistent view even where there is no such entry.
READ_ONE = f"""
SELECT {_STANDING}, {ENTRY_COLUMNS}
FROM keepstate_scope s LEFT JOIN keepstate_entry e ON e.scope_id = s.id AND e.entry_key = :key AND {LIVE}
WHERE {{scope}}
"""

READ_ALL = f"""
SELECT {_STANDING}, {ENTRY_COLUMNS}
FROM keepstate_scope s LEFT JOIN keepstate_entry e ON e.scope_id = s.id AND {LIVE}
WHERE {{scope}}
ORDER BY e.entry_key
"""

READ_PAGE = READ_ALL + " LIMIT :limit OFFSET :offset"

# whether there is a value can be told without reading it
_KEY_COLUMNS = ENTRY_COLUMNS.replace("e.value", "CASE WHEN e.value IS NOT NULL THEN '' END")
READ_ONE_KEY = READ_ONE.replace(ENTRY_COLUMNS, _KEY_COLUMNS)
READ_ALL_KEYS = READ_ALL.replace(ENTRY_COLUMNS, _KEY_COLUMNS)
READ_PAGE_OF_KEYS = READ_PAGE.replace(ENTRY_COLUMNS, _KEY_COLUMNS)

# where a page lies beyond the last entry, this still tells how many there are, and how the scope stands
COUNT_LIVE = f"""
SELECT {_STANDING}, (SELECT COUNT(*) FROM keepstate_entry e WHERE e.scope_id = s.id AND {LIVE})
FROM keepstate_scope s WHERE {{scope}}
"""

STANDING = f"SELECT {_STANDING} FROM keepstate_scope s WHERE {{scope}}"

# what compare-and-set compares with
ENTRY_VERSION = f"""
SELECT e.version FROM keepstate_entry e WHERE e.scope_id = :scope_id AND e.entry_key = :key AND {LIVE}
"""

ANY_LIVE = f"SELECT 1 FROM keepstate_entry e WHERE e.scope_id = :scope_id AND {LIVE} LIMIT 1"

# the earliest of both times: a row must be swept when its own time or that of an older version in the log has come
_EARLIER = """CASE
  WHEN keepstate_entry.sweep_at IS NULL THEN excluded.sweep_at
  WHEN excluded.sweep_at IS NULL OR keepstate_entry.sweep_at < excluded.sweep_at THEN keepstate_entry.sweep_at
  ELSE excluded.sweep_at END"""

# Of a key's log, `log_rows` counts the rows, `log_limit` is how many are shown, and `log_from` the version from which on
# they are: what a key held before its time had come is not the past of what is written to it afterwards.

# writes an entry that is there, as long as its log need not be trimmed and it need not be swept earlier than it would be:
# so the index of the sweep is left alone
RENEW_ENTRY = """
UPDATE keepstate_entry
SET log_from = CASE WHEN expires_at <= :now THEN :version ELSE log_from END,
    value = :value, version = :version, updated_at = :now, expires_at = :expires_at, writer = :writer,
    log_rows = log_rows + 1, log_limit = :limit
WHERE scope_id = :scope_id AND entry_key = :key AND log_rows < :most
  AND (CAST(:expires_at AS BIGINT) IS NULL OR sweep_at <= :expires_at)
"""

_ENTRY_ROW = """
  (scope_id, entry_key, value, version, updated_at, expires_at, sweep_at, writer, log_from, log_rows, log_limit)
"""

_ON_CONFLICT_PUT = f"""
ON CONFLICT (scope_id, entry_key) DO UPDATE SET
  log_from = CASE
    WHEN keepstate_entry.expires_at <= excluded.updated_at THEN excluded.log_from ELSE keepstate_entry.log_from END,
  value = excluded.value, version = excluded.version, updated_at = excluded.updated_at,
  expires_at = excluded.expires_at, writer = excluded.writer, sweep_at = {_EARLIER}, log_limit = excluded.log_limit,
"""

PUT_ENTRY = f"""
INSERT INTO keepstate_entry {_ENTRY_ROW}
VALUES (:scope_id, :key, :value, :version, :now, :expires_at, :expires_at, :writer, :version, :logged_rows, :limit)
{_ON_CONFLICT_PUT} log_rows = keepstate_entry.log_rows + :logged_rows - :trimmed
"""

# a removed key leaves a tombstone for as long as its history lasts
BURY_ENTRY = """
UPDATE keepstate_entry
SET value = NULL, version = :version, updated_at = :now, expires_at = :lapses_at, writer = :writer,
    log_rows = log_rows + 1 - :trimmed, log_limit = :limit,
    sweep_at = CASE WHEN sweep_at IS NULL OR sweep_at > :lapses_at THEN :lapses_at ELSE sweep_at END
WHERE scope_id = :scope_id AND entry_key = :key AND value IS NOT NULL AND (expires_at IS NULL OR expires_at > :now)
"""

BURY_ALL_ENTRIES = """
UPDATE keepstate_entry
SET value = NULL, version = :version, updated_at = :now, expires_at = :lapses_at, writer = :writer,
    log_rows = log_rows + 1, log_limit = :limit,
    sweep_at = CASE WHEN sweep_at IS NULL OR sweep_at > :lapses_at THEN :lapses_at ELSE sweep_at END
WHERE scope_id = :scope_id AND value IS NOT NULL AND (expires_at IS NULL OR expires_at > :now)
"""

ERASE_ENTRY = "DELETE FROM keepstate_entry WHERE scope_id = :scope_id AND entry_key = :key"
ERASE_ALL_ENTRIES = "DELETE FROM keepstate_entry WHERE scope_id = :scope_id"

CHANGED_SINCE = """
SELECT e.entry_key, e.version, e.value, e.updated_at, e.writer
FROM keepstate_entry e
WHERE e.scope_id = :scope_id AND e.version > :after AND (e.expires_at IS NULL OR e.expires_at > :now)
ORDER BY e.version, e.entry_key
"""

# ---------------------------------------------------------------------------------------------------- log

ADD_TO_LOG = """
INSERT INTO keepstate_log
  (scope_id, entry_key, version, action, value, size, sha256, written_at, expires_at, writer)
VALUES (:scope_id, :key, :version, :action, :logged, :size, :sha256, :now, :expires_at, :writer)
"""

# keeps the newest :keep versions, and none from before `log_from`; runs before the entry is written
_TRIMMED = """
DELETE FROM keepstate_log WHERE scope_id = {id} AND entry_key = :key AND (
  version < (SELECT e.log_from FROM keepstate_entry e WHERE e.scope_id = {id} AND e.entry_key = :key)
  OR version <= (SELECT o.version FROM keepstate_log o WHERE o.scope_id = {id} AND o.entry_key = :key
                 ORDER BY o.version DESC LIMIT 1 OFFSET :keep))
"""
TRIM_LOG = _TRIMMED.format(id=":scope_id")

# Who holds the row while somebody waits for it changes what the next statement is to see of it, and of its log.
LOCK_ENTRY = "SELECT 1 FROM keepstate_entry WHERE scope_id = :scope_id AND entry_key = :key{for_update}"
RESCHEDULE_SWEEP = """
UPDATE keepstate_entry
SET log_rows = (SELECT COUNT(*) FROM keepstate_log n WHERE n.scope_id = :scope_id AND n.entry_key = :key), sweep_at = (
  SELECT MIN(due) FROM (
    SELECT e.expires_at AS due FROM keepstate_entry e WHERE e.scope_id = :scope_id AND e.entry_key = :key
    UNION ALL
    SELECT l.expires_at FROM keepstate_log l WHERE l.scope_id = :scope_id AND l.entry_key = :key) AS times)
WHERE scope_id = :scope_id AND entry_key = :key
"""

LOG_REMOVAL_OF_ALL = """
INSERT INTO keepstate_log
  (scope_id, entry_key, version, action, value, size, sha256, written_at, expires_at, writer)
SELECT e.scope_id, e.entry_key, :version, :action, NULL, 0, NULL, :now, :lapses_at, :writer
FROM keepstate_entry e
WHERE e.scope_id = :scope_id AND e.value IS NOT NULL AND (e.expires_at IS NULL OR e.expires_at > :now)
"""

# a key's log, as long as the key's own time has not come: that of the entry, or of its tombstone
HISTORY = """
SELECT l.entry_key, l.version, l.action, l.value, l.size, l.sha256, l.written_at, l.expires_at, l.writer, e.log_limit
FROM keepstate_scope s
JOIN keepstate_entry e ON e.scope_id = s.id AND e.entry_key = :key AND (e.expires_at IS NULL OR e.expires_at > :now)
JOIN keepstate_log l ON l.scope_id = s.id AND l.entry_key = :key AND l.version >= e.log_from
WHERE {scope}
ORDER BY l.version DESC
"""

ERASE_LOG_OF_KEY = "DELETE FROM keepstate_log WHERE scope_id = :scope_id AND entry_key = :key"
ERASE_LOG = "DELETE FROM keepstate_log WHERE scope_id = :scope_id"

# ----------------------------------------------------------------------------------------------- sessions

FIND_SESSION = "SELECT number, version, incarnation FROM keepstate_session WHERE id = :session"

NOTE_SESSION = """
INSERT INTO keepstate_session (id, number, version, incarnation, used_at)
VALUES (:session, :number, :version, :incarnation, :now)
ON CONFLICT (id) DO UPDATE SET
  number = excluded.number, version = excluded.version, incarnation = excluded.incarnation, used_at = excluded.used_at
"""

# what a database that takes no writes refuses
CHANGE_NOTHING = "DELETE FROM keepstate_session WHERE used_at < 0"

# ----------------------------------------------------------------------------------------------- attempts

# an attempt is known by its id; one without an id by its number, which says nothing across incarnations
KNOWN_IN = """
SELECT incarnation FROM keepstate_attempt
WHERE scope_id = :id AND try_number = :try_number AND attempt_id = :attempt_id
ORDER BY incarnation DESC LIMIT 1
"""

KNOWN_AS = """
SELECT try_number FROM keepstate_attempt WHERE scope_id = :id AND attempt_id = :attempt_id
ORDER BY incarnation DESC, try_number DESC LIMIT 1
"""

REGISTER_ATTEMPT = """
INSERT INTO keepstate_attempt
  (scope_id, incarnation, try_number, attempt_id, item, state, host, pid, process_started, started_at, beat_at)
VALUES (:id, :incarnation, :try_number, :attempt_id, :item, 'running', :host, :pid, :process_started, :now, :beat_at)
ON CONFLICT (scope_id, incarnation, try_number, attempt_id) DO NOTHING
"""

_ATTEMPT_KEY = (
    "scope_id = :id AND incarnation = :incarnation AND try_number = :try_number AND attempt_id = :attempt_id"
)

FIND_ATTEMPT = f"""
SELECT state, host, pid, process_started, beat_at FROM keepstate_attempt WHERE {_ATTEMPT_KEY}
"""

CLOSE_SUPERSEDED = """
UPDATE keepstate_attempt SET state = :state, ended_at = :now, reason = :reason
WHERE scope_id = :id AND state = 'running'
"""

RUNNING_ATTEMPTS = """
SELECT try_number FROM keepstate_attempt WHERE scope_id = :id AND state = 'running' ORDER BY try_number
"""

BEAT = f"UPDATE keepstate_attempt SET beat_at = :now WHERE {_ATTEMPT_KEY} AND state = 'running'"

END_ATTEMPT = f"""
UPDATE keepstate_attempt
SET state = :state, ended_at = :now, reason = :reason, result = :result, arguments = :arguments
WHERE {_ATTEMPT_KEY}
"""

ATTEMPTS = """
SELECT a.try_number, a.attempt_id, a.incarnation, a.state, a.host, a.pid, a.started_at, a.beat_at, a.ended_at, a.reason,
  a.process_started
FROM keepstate_scope s JOIN keepstate_attempt a ON a.scope_id = s.id
WHERE s.digest = :digest AND s.deleted = 0 AND a.state <> 'deleted'
ORDER BY a.incarnation DESC, a.try_number DESC, a.started_at DESC
"""

OUTCOME = """
SELECT a.try_number, a.result, a.arguments
FROM keepstate_scope s JOIN keepstate_attempt a
  ON a.scope_id = s.id AND a.incarnation = s.incarnation AND a.try_number = s.try_number
  AND a.attempt_id = COALESCE(s.attempt_id, '')
WHERE s.digest = :digest AND s.deleted = 0 AND a.state = 'success'
"""

# numbers and ids stay as long as the bare scope does: what comes from an attempt of a deleted run is known to be late
STRIP_ATTEMPTS = """
UPDATE keepstate_attempt
SET state = 'deleted', item = NULL, host = NULL, pid = NULL, process_started = NULL, beat_at = NULL, reason = NULL,
    result = NULL, arguments = NULL
WHERE scope_id = :id
"""
ERASE_ATTEMPTS = "DELETE FROM keepstate_attempt WHERE scope_id = :id"

# -------------------------------------------------------------------------- one round trip on PostgreSQL

# A `set` by a registered attempt (or a person) as one statement, and so one round trip. It answers no row where the
# scope is new, deleted, or stands at another attempt: the long way then finds out why. A request that its session has
# numbered before makes `number` NULL, which the column refuses: the statement fails as a whole, and nothing applies
# twice, however the two meet (ON CONFLICT sees the other's committed row, unlike a sub-select).
_IN_ONE = f"""
WITH s AS (
  UPDATE keepstate_scope SET version = version + 1, updated_at = :now
  WHERE digest = :digest AND deleted = 0 AND (
    CAST(:try_number AS INTEGER) IS NULL
    OR (try_number = :try_number AND incarnation = :incarnation
        AND attempt_id IS NOT DISTINCT FROM CAST(:attempt_id AS TEXT)))
  RETURNING id, version, incarnation
), noted AS (
  INSERT INTO keepstate_session (id, number, version, incarnation, used_at)
  SELECT :session, :number, s.version, s.incarnation, :now FROM s
  ON CONFLICT (id) DO UPDATE SET
    number = CASE WHEN keepstate_session.number < excluded.number THEN excluded.number END,
    version = excluded.version, incarnation = excluded.incarnation, used_at = excluded.used_at
){{trimming}}, put AS (
  INSERT INTO keepstate_entry {_ENTRY_ROW}
  SELECT s.id, :key, :value, s.version, :now, CAST(:expires_at AS BIGINT), CAST(:expires_at AS BIGINT), :writer,
    s.version, 1, :limit
  FROM s
  {_ON_CONFLICT_PUT} log_rows = keepstate_entry.log_rows + 1 - {{trimmed}}
  RETURNING log_rows
), logged AS (
  INSERT INTO keepstate_log
    (scope_id, entry_key, version, action, value, size, sha256, written_at, expires_at, writer)
  SELECT s.id, :key, s.version, 'set', CASE WHEN CAST(:sha256 AS TEXT) IS NULL THEN :value END, :size, :sha256, :now,
    CAST(:expires_at AS BIGINT), :writer
  FROM s
)
SELECT s.version, s.incarnation, put.log_rows FROM s, put
"""
PUT_IN_ONE = _IN_ONE.format(trimming="", trimmed="0")

# the same where the key's log has grown so far that it must be trimmed, which takes as long as all the rest
PUT_AND_TRIM_IN_ONE = _IN_ONE.format(
    trimming=", trimmed AS (" + _TRIMMED.format(id="(SELECT id FROM s)") + "RETURNING 1)",
    trimmed="(SELECT COUNT(*) FROM trimmed)",
)
