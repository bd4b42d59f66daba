"""What a cleanup asks and removes in SQL, written as all `statements` are."""

from __future__ import annotations

# A cleanup goes through what is due in the order of `sweep_at`, each batch from where the last one ended: a database that
# leaves the rows it deleted for later would step over them all again, batch by batch.
DUE_ENTRIES = """
SELECT scope_id, entry_key, log_limit, expires_at <= :now, sweep_at FROM keepstate_entry
WHERE sweep_at >= :since AND sweep_at <= :now ORDER BY sweep_at LIMIT :limit
"""
COUNT_EXPIRED_ENTRIES = "SELECT COUNT(*) FROM keepstate_entry WHERE sweep_at <= :now AND expires_at <= :now"
COUNT_DUE_LOG = """
SELECT COUNT(*) FROM keepstate_entry e JOIN keepstate_log l ON l.scope_id = e.scope_id AND l.entry_key = e.entry_key
WHERE e.sweep_at <= :now AND (
  e.expires_at <= :now OR l.expires_at <= :now OR l.version < e.log_from
  OR (SELECT COUNT(*) FROM keepstate_log n
      WHERE n.scope_id = l.scope_id AND n.entry_key = l.entry_key AND n.version > l.version) >= e.log_limit)
"""

# the row may have been written again since it was listed: only what is still due goes
ERASE_EXPIRED_ENTRY = """
DELETE FROM keepstate_entry WHERE scope_id = :scope_id AND entry_key = :key AND expires_at <= :now
"""
ERASE_LOG_OF_ERASED = """
DELETE FROM keepstate_log WHERE scope_id = :scope_id AND entry_key = :key AND NOT EXISTS (
  SELECT 1 FROM keepstate_entry e WHERE e.scope_id = :scope_id AND e.entry_key = :key)
"""
# the same for a whole batch, where a parameter may be an array; each row is found by the index of its table
ERASE_EXPIRED_OF_ALL = """
WITH due AS (
  SELECT scope_id, entry_key FROM UNNEST(CAST(:scope_ids AS BIGINT[]), CAST(:keys AS TEXT[])) AS d (scope_id, entry_key)
), gone AS (
  DELETE FROM keepstate_entry e USING due d
  WHERE e.scope_id = d.scope_id AND e.entry_key = d.entry_key AND e.expires_at <= :now
  RETURNING e.scope_id, e.entry_key
), log AS (
  DELETE FROM keepstate_log l USING gone g WHERE l.scope_id = g.scope_id AND l.entry_key = g.entry_key RETURNING 1
)
SELECT (SELECT COUNT(*) FROM gone), (SELECT COUNT(*) FROM log)
"""
SWEEP_ALL_EMPTIED_SCOPES = """
UPDATE keepstate_scope SET sweep_at = :now
WHERE id = ANY (CAST(:scope_ids AS BIGINT[])) AND deleted = 0 AND sweep_at > :now
  AND (SELECT 1 FROM keepstate_entry e WHERE e.scope_id = keepstate_scope.id LIMIT 1) IS NULL
"""
ERASE_EXPIRED_LOG = (
    "DELETE FROM keepstate_log WHERE scope_id = :scope_id AND entry_key = :key AND expires_at <= :now"
)

# ``sweep_at`` of a scope is no later than the time from which it may go: that is why it is set anew when its last entry, or
# a run's task instance, has gone. What was deleted since it was listed keeps the time that its deletion has set.
DUE_SCOPES = """
SELECT s.id, s.kind, s.deleted, s.updated_at, s.state, s.dag_id, s.run_id,
  (SELECT 1 FROM keepstate_entry e WHERE e.scope_id = s.id LIMIT 1),
  (SELECT 1 FROM keepstate_scope t WHERE t.dag_id = s.dag_id AND t.run_id = s.run_id AND t.kind = 'task' LIMIT 1),
  s.sweep_at
FROM keepstate_scope s WHERE s.sweep_at >= :since AND s.sweep_at <= :now ORDER BY s.sweep_at LIMIT :limit
"""
ANY_TASK_OF_RUN = (
    "SELECT 1 FROM keepstate_scope WHERE dag_id = :dag_id AND run_id = :run_id AND kind = 'task' LIMIT 1"
)
LAST_BEAT = "SELECT MAX(beat_at) FROM keepstate_attempt WHERE scope_id = :id AND state = 'running'"
POSTPONE_SCOPE = "UPDATE keepstate_scope SET sweep_at = :sweep_at WHERE id = :id AND deleted = 0"
SWEEP_EMPTIED_SCOPE = """
UPDATE keepstate_scope SET sweep_at = :now
WHERE id = :scope_id AND deleted = 0 AND sweep_at > :now
  AND NOT EXISTS (SELECT 1 FROM keepstate_entry e WHERE e.scope_id = :scope_id)
"""
SWEEP_RUN = "UPDATE keepstate_scope SET sweep_at = :sweep_at WHERE digest = :digest AND deleted = 0"
ERASE_IDLE_SCOPE = "DELETE FROM keepstate_scope WHERE id = :id AND updated_at = :updated_at"
_OF_ERASED = "WHERE scope_id = :id AND NOT EXISTS (SELECT 1 FROM keepstate_scope s WHERE s.id = :id)"
ERASE_ATTEMPTS_OF_ERASED = f"DELETE FROM keepstate_attempt {_OF_ERASED}"
ERASE_ENTRIES_OF_ERASED = f"DELETE FROM keepstate_entry {_OF_ERASED}"
ERASE_LOG_OF_ERASED_SCOPE = f"DELETE FROM keepstate_log {_OF_ERASED}"

# what a cleanup would remove: a scope that holds nothing but what expires goes in the same cleanup
COUNT_IDLE_SCOPES = """
SELECT COUNT(*), CAST(COALESCE(SUM(attempts), 0) AS BIGINT) FROM (
  SELECT (SELECT COUNT(*) FROM keepstate_attempt a WHERE a.scope_id = s.id) AS attempts
  FROM (
    SELECT id FROM keepstate_scope WHERE sweep_at <= :now
    UNION
    SELECT scope_id FROM keepstate_entry WHERE sweep_at <= :now) c
  JOIN keepstate_scope s ON s.id = c.id
  WHERE (s.deleted = 1 AND s.sweep_at <= :now) OR (
    s.deleted = 0 AND s.kind <> 'asset' AND s.updated_at <= :before
    AND NOT EXISTS (SELECT 1 FROM keepstate_entry e
                    WHERE e.scope_id = s.id AND (e.expires_at IS NULL OR e.expires_at > :now))
    AND NOT EXISTS (SELECT 1 FROM keepstate_attempt b
                    WHERE b.scope_id = s.id AND b.state = 'running' AND b.beat_at > :before)
    AND NOT (s.kind = 'run' AND EXISTS (
      SELECT 1 FROM keepstate_scope t
      WHERE t.dag_id = s.dag_id AND t.run_id = s.run_id AND t.kind = 'task')))) AS due
"""
OLD_SESSIONS = "SELECT id FROM keepstate_session WHERE used_at <= :before ORDER BY used_at LIMIT :limit"
ERASE_OLD_SESSION = "DELETE FROM keepstate_session WHERE id = :id AND used_at <= :before"
