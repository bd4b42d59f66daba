"""The mixin beside a real Airflow's BaseOperator: made in every way, and resumed by a retry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from keepstate.testing.spool import SpoolJobSystem
from tests.support.airflow import environment

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

CONSTRUCT = Path(__file__).parent / "airflow" / "construct.py"
DAG_FILE = Path(__file__).parent / "airflow" / "resuming_dag.py"


def construct(version: str, whose: str, when: str, home: Path) -> dict[str, Any]:
    """Make operators in every way, in a process with that Airflow."""
    airflow = environment(version)
    environ = airflow.environ(home, AIRFLOW__CORE__UNIT_TEST_MODE="True")
    printed = airflow.run([str(airflow.python), str(CONSTRUCT), whose, when], environ)
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def airflows_own(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What Airflow 3.3's own mixin does with the same calls."""
    return construct("3.3.2", "airflow", "last", tmp_path_factory.mktemp("own"))


@pytest.mark.parametrize("when", ["first", "last"])
@pytest.mark.parametrize("version", ["2.11.2", "3.1.8", "3.3.2"])
def test_operators_are_made_as_with_airflow_s_own_mixin(
    version: str, when: str, tmp_path: Path, airflows_own: dict[str, Any]
) -> None:
    """Defaults of DAGs and groups, mapping and refusals are as with Airflow's own mixin, imported before or after it."""
    ours = construct(version, "keepstate", when, tmp_path)
    assert ours["made"] == airflows_own["made"]
    assert sum(len(ways) for ways in ours["made"].values()) > 100
    assert ours["serialized"] is True
    for executed in ours["executed"].values():
        # submitted, collected, reconnected, submitted anew
        assert executed == {"results": ["job-1", "job-1", "job-1", "job-2"], "submissions": 2}


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[SpoolJobSystem]:
    """A job system in which nothing runs on."""
    with SpoolJobSystem(tmp_path / "spool") as system:
        yield system


@pytest.mark.parametrize(("version", "store"), [("3.1.8", "keepstate's"), ("3.3.2", "Airflow's")])
def test_a_retry_in_airflow_resumes(version: str, store: str, tmp_path: Path, spool: SpoolJobSystem) -> None:
    """A task that lost its first attempt is retried by Airflow, and the mixin finds the job, over either store."""
    airflow = environment(version)
    environ = airflow.environ(
        tmp_path,
        AIRFLOW__CORE__DAGS_FOLDER=str(DAG_FILE.parent),
        KEEPSTATE_URL=f"sqlite:///{tmp_path / 'keepstate.db'}",
        SPOOL=str(spool.directory),
        NOTES=str(tmp_path / "notes.jsonl"),
    )
    airflow.migrate(environ)
    airflow.run(["airflow", "dags", "test", "resuming", "--dagfile-path", str(DAG_FILE)], environ)

    calls: dict[str, list[tuple[int, str, Any]]] = {}
    for line in (tmp_path / "notes.jsonl").read_text().splitlines():
        task, number, call, value = json.loads(line)
        calls.setdefault(task, []).append((number, call, value))
    flows = {task: [f"{call} {number}" for number, call, _ in made] for task, made in calls.items()}
    lost_waiting = ["store 1", "submit 1", "wait 1", "store 2", "status 2", "wait 2", "result 2"]
    lost_window = ["store 1", "submit 1", "store 2", "find 2", "status 2", "wait 2", "result 2"]
    assert flows == {
        "submit_window": lost_window,
        "lost_while_waiting": lost_waiting,
        "lost_when_done": ["store 1", "submit 1", "wait 1", "store 2", "status 2", "result 2"],
        "failed_job": [
            "store 1",
            "submit 1",
            "wait 1",
            "store 2",
            "status 2",
            "submit 2",
            "wait 2",
            "result 2",
        ],
        "not_durable": ["store 1", "submit 1", "wait 1", "store 2", "submit 2", "wait 2", "result 2"],
        "mapped[0]": lost_waiting,
        "mapped[1]": lost_window,
    }
    assert {value for made in calls.values() for _, call, value in made if call == "store"} == {store}
    tokens = [submission.token for submission in spool.submissions()]
    assert len(tokens) == len(set(tokens)) == len(flows) + 2, "two tasks submit twice, the others once"
    for task, made in calls.items():
        last = next(value for _, call, value in reversed(made) if call == "result")
        assert spool.status(last) == "SUCCEEDED", task
