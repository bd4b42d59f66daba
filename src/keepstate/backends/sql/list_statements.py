"""What lists ask in SQL, written as all `statements` are. ``{fits}`` is whether the column before it fits a pattern."""

from __future__ import annotations

from keepstate import states
from keepstate.backends.sql.statements import LIVE

_IS_RUN = "s.kind = 'run' AND s.deleted = 0"
_RUN = "s.dag_id, s.run_id, s.state, s.try_number, s.created_at, s.updated_at"
_NEWEST_FIRST = "ORDER BY s.created_at DESC, s.id DESC LIMIT :limit OFFSET :offset"

# The ids of dags, each found from the one before it: an index is asked once for each dag, however many runs that has. A
# dag's runs come before its task instances there. The empty text keeps SQLite from the index of all runs.
_DAG_AFTER = """(
    SELECT s.dag_id FROM keepstate_scope s
    WHERE s.dag_id > {last} AND s.kind || '' = 'run' AND s.deleted = 0 ORDER BY s.dag_id LIMIT 1
  )"""
_EACH_DAG = f"""
WITH RECURSIVE dag (dag_id) AS (
  SELECT {_DAG_AFTER.format(last="''")}
  UNION ALL
  SELECT {_DAG_AFTER.format(last="dag.dag_id")} FROM dag WHERE dag.dag_id IS NOT NULL
)
"""
_SOME_DAGS = "SELECT dag_id FROM dag WHERE dag_id {fits} ORDER BY dag_id LIMIT :limit OFFSET :offset"
# the place of a task's state among these, of which the least is the most serious
_PLACE = " ".join(f"WHEN '{state}' THEN {place}" for place, state in enumerate(states.BY_SERIOUSNESS))
_TASKS_OF = """
FROM keepstate_scope t WHERE t.dag_id = {run}.dag_id AND t.run_id = {run}.run_id AND t.kind = 'task' AND t.deleted = 0"""
_TASKS_OF_LAST = _TASKS_OF.format(run="l")
_STATE_OF_TASKS = (
    f"CASE WHEN {{run}}.state IS NULL THEN (SELECT MIN(CASE t.state {_PLACE} END) {_TASKS_OF}) END"
)
_OF_THE_DAG = f"FROM keepstate_scope s WHERE s.dag_id = d.dag_id AND {_IS_RUN}"

# Of no dag more than its newest runs is looked at: h is the oldest of these, where there are as many. An index by
# `updated_at` would make it all of them, and each `set` one row of an index slower.
DAGS = f"""
{_EACH_DAG}
SELECT d.dag_id, CASE WHEN h.id IS NULL THEN (SELECT COUNT(*) {_OF_THE_DAG}) ELSE :counted END,
  l.run_id, l.state, l.created_at,
  (SELECT MAX(s.updated_at) {_OF_THE_DAG} AND s.created_at >= COALESCE(h.created_at, 0)
     AND (s.created_at > COALESCE(h.created_at, 0) OR s.id >= COALESCE(h.id, 0))),
  (SELECT MAX(t.updated_at) {_TASKS_OF_LAST}),
  {_STATE_OF_TASKS.format(run="l")}
FROM ({_SOME_DAGS}) d
JOIN keepstate_scope l
  ON l.id = (SELECT s.id {_OF_THE_DAG} ORDER BY s.created_at DESC, s.id DESC LIMIT 1)
LEFT JOIN keepstate_scope h
  ON h.id = (SELECT s.id {_OF_THE_DAG} ORDER BY s.created_at DESC, s.id DESC LIMIT 1 OFFSET :newer)
ORDER BY d.dag_id
"""

DAG_IDS = f"{_EACH_DAG} {_SOME_DAGS}"
COUNT_DAGS = f"{_EACH_DAG} SELECT COUNT(*) FROM dag WHERE dag_id {{fits}}"

RUNS = f"SELECT {_RUN} FROM keepstate_scope s WHERE {_IS_RUN} {_NEWEST_FIRST}"
RUNS_FITTING = f"SELECT {_RUN} FROM keepstate_scope s WHERE {_IS_RUN} AND s.dag_id {{fits}} {_NEWEST_FIRST}"
RUNS_OF_DAG = f"SELECT {_RUN} FROM keepstate_scope s WHERE {_IS_RUN} AND s.dag_id = :dag_id {_NEWEST_FIRST}"

# Of one id, in whichever dags. SQLite takes the tables of a CROSS JOIN in the order in which they stand, here and below:
# it would begin with all the runs, tasks or entries that there are.
RUNS_CALLED = f"""
{_EACH_DAG}
SELECT {_RUN} FROM dag d CROSS JOIN keepstate_scope s
WHERE s.dag_id = d.dag_id AND s.run_id = :run_id AND {_IS_RUN} AND d.dag_id {{fits}} {_NEWEST_FIRST}
"""

COUNT_RUNS = f"""
{_EACH_DAG} SELECT COALESCE(SUM((SELECT COUNT(*) {_OF_THE_DAG})), 0) FROM dag d WHERE d.dag_id {{fits}}
"""
COUNT_RUNS_OF_DAG = f"SELECT COUNT(*) FROM keepstate_scope s WHERE {_IS_RUN} AND s.dag_id = :dag_id"

RUN = f"""
SELECT {_RUN}, {_STATE_OF_TASKS.format(run="s")} FROM keepstate_scope s WHERE s.digest = :digest AND {_IS_RUN}
"""

_TASK_INSTANCE = f"""
SELECT s.dag_id, s.run_id, s.task_id, s.map_index, s.state, s.try_number, s.version, s.created_at, s.updated_at,
  (SELECT COUNT(*) FROM keepstate_entry e WHERE e.scope_id = s.id AND {LIVE})
FROM keepstate_scope s
WHERE s.kind = 'task' AND s.deleted = 0
"""
_OF_RUN = "AND s.dag_id = :dag_id AND s.run_id = :run_id"

_OF_TASK = f"{_OF_RUN} AND s.task_id = :task_id"
_IN_ORDER = "ORDER BY s.task_id, s.map_index LIMIT :limit OFFSET :offset"
_COUNTED = "SELECT COUNT(*) FROM keepstate_scope s WHERE s.kind = 'task' AND s.deleted = 0"

TASK_INSTANCES = f"{_TASK_INSTANCE} {_OF_RUN} {_IN_ORDER}"
TASK_INSTANCES_OF_TASK = f"{_TASK_INSTANCE} {_OF_TASK} {_IN_ORDER}"
TASK_INSTANCE = f"{_TASK_INSTANCE} AND s.digest = :digest"
COUNT_TASK_INSTANCES = f"{_COUNTED} {_OF_RUN}"
COUNT_TASK_INSTANCES_OF_TASK = f"{_COUNTED} {_OF_TASK}"

# Whose runs: {whose}. What is looked at is cut before it is put together, so that no run is too large.
_PAGE_OF_RUNS = f"""
WITH page AS (SELECT s.id, {_RUN} FROM keepstate_scope s WHERE {_IS_RUN} {{whose}} {_NEWEST_FIRST})"""
_IS_TASK_OF_PAGE = "t.dag_id = p.dag_id AND t.run_id = p.run_id AND t.kind = 'task' AND t.deleted = 0"
_OF_DAG = "AND s.dag_id = :dag_id"
_OF_FITTING_DAG = "AND s.dag_id {fits}"

# a row for each task of a run and each state that its map indices are in; one at least for each run
_GRID = f"""
{_PAGE_OF_RUNS}, task AS (
  SELECT p.id AS run, t.id, t.task_id, t.state, t.try_number, t.created_at FROM page p CROSS JOIN keepstate_scope t
  WHERE {_IS_TASK_OF_PAGE} LIMIT :most
)
SELECT p.dag_id, p.run_id, p.state, p.try_number, p.created_at, p.updated_at, p.id,
  g.task_id, g.state, g.instances, g.entries, g.latest, g.began
FROM page p LEFT JOIN (
  SELECT k.run, k.task_id, k.state, COUNT(*) AS instances, MAX(k.try_number) AS latest, MIN(k.created_at) AS began,
    CAST(SUM((SELECT COUNT(*) FROM keepstate_entry e WHERE e.scope_id = k.id AND {LIVE})) AS BIGINT) AS entries
  FROM task k GROUP BY k.run, k.task_id, k.state) g ON g.run = p.id
ORDER BY p.created_at DESC, p.id DESC, g.task_id
"""
GRID = _GRID.replace("{whose}", "")
GRID_FITTING = _GRID.replace("{whose}", _OF_FITTING_DAG)
GRID_OF_DAG = _GRID.replace("{whose}", _OF_DAG)

_KEYS = f"""
{_PAGE_OF_RUNS}
SELECT p.created_at, p.id, t.dag_id, t.run_id, t.task_id, t.map_index, e.entry_key
FROM page p CROSS JOIN keepstate_scope t CROSS JOIN keepstate_entry e
WHERE {_IS_TASK_OF_PAGE} AND e.scope_id = t.id AND {LIVE} LIMIT :most
"""
KEYS = _KEYS.replace("{whose}", "")
KEYS_FITTING = _KEYS.replace("{whose}", _OF_FITTING_DAG)

KEYS_OF_ASSETS = f"""
SELECT a.id, a.name, a.uri, e.entry_key FROM keepstate_asset a CROSS JOIN keepstate_entry e
WHERE e.scope_id = a.id AND {LIVE} AND (a.name {{fits}} OR a.uri {{fits}}) ORDER BY a.name, e.entry_key LIMIT :limit
"""

_ASSET = f"""
SELECT a.id, a.name, a.uri, (SELECT COUNT(*) FROM keepstate_entry e WHERE e.scope_id = a.id AND {LIVE}),
  s.created_at, s.updated_at
FROM keepstate_asset a JOIN keepstate_scope s ON s.id = a.id
"""
_FITTING = "WHERE (a.name {fits} OR a.uri {fits})"

ASSETS = f"{_ASSET} {_FITTING} ORDER BY a.name LIMIT :limit OFFSET :offset"
ASSET = f"{_ASSET} WHERE a.id = :id"
COUNT_ASSETS = f"SELECT COUNT(*) FROM keepstate_asset a {_FITTING}"
