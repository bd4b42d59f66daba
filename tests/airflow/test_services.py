"""Real Airflow with a LocalExecutor and nothing configured: tasks reach its metadata database through its API server."""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from airflow_client.client import ApiClient, Configuration, TaskStateStoreApi
from airflow_client.client.models.task_state_store_body import TaskStateStoreBody
from airflow_client.client.models.task_state_store_patch_body import TaskStateStorePatchBody

import keepstate
from keepstate.backends.requests import Batch, Behalf, Clear, Fence, Put
from keepstate.scope import AssetScope, TaskScope, Writer
from keepstate.wire import encode_request
from tests.airflow.test_checkup import Shell
from tests.support.airflow import environment
from tests.support.airflow_services import ROLES, Services, services

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.postgres import PostgresServer
    from tests.support.ssh_server import SSHServer

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent


ON_3 = pytest.mark.parametrize("airflow", ["3.0.6", "3.1.8", "3.2.2"], indirect=True)
ON_3_AND_3_3 = pytest.mark.parametrize("airflow", ["3.0.6", "3.1.8", "3.2.2", "3.3.2"], indirect=True)
ON_ALL = pytest.mark.parametrize("airflow", ["2.11.2", "3.0.6", "3.1.8", "3.2.2", "3.3.2"], indirect=True)


@pytest.fixture(scope="module")
def airflow(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    postgres: PostgresServer,
    ssh_server: SSHServer,
) -> Iterator[Services]:
    """One running Airflow of each version for all tests here, with its metadata in PostgreSQL.

    On 3.3 keepstate is the backend of its state store, and tasks go to it directly.
    """
    version = request.param
    home = tmp_path_factory.mktemp(f"airflow-{version}")
    with ExitStack() as stack:
        database = stack.enter_context(postgres.database())
        airflow = environment(version)
        (home / "items.json").write_text(json.dumps(["a", "b", "c"]))
        files = {"GO": "go", "ITEMS": "items.json", "SSH_GO": "ssh-go"}
        more = {**ssh_server.environment(), **{name: str(home / file) for name, file in files.items()}}
        if version.startswith("3.3"):
            more["AIRFLOW__STATE_STORE__BACKEND"] = "keepstate.integrations.airflow.StoreBackend"
            more["KEEPSTATE_URL"] = database.replace("postgresql:", "postgresql+psycopg2:")
        yield stack.enter_context(
            services(airflow, home, HERE / "dags" / "killed", database=database, **more)
        )


@ON_ALL
def test_killed_and_stopped_tasks(airflow: Services) -> None:
    """What a killed task stored is there for its retry, and a stopped one has no say any more.

    The killed one's next try finds the job and submits none. The other is stopped together with its supervisor until
    Airflow has given it up and begun another try; resumed, it may change neither its own state nor that of its asset.
    """
    kill_and_stop(airflow)


def kill_and_stop(airflow: Services) -> None:
    """Kill one task, and stop another until its successor has begun."""
    _, _, _, pid, supervisor = airflow.note("stopped", 1, "waiting")
    for one in (supervisor, pid):
        os.kill(one, signal.SIGSTOP)
    try:
        victim, its_supervisor = airflow.note("submitting", 1, "waiting")[3:]
        if airflow.airflow.version.startswith("3.0"):
            # there Airflow itself retries no task whose process alone was killed; so the machine is lost
            os.kill(its_supervisor, signal.SIGKILL)
        os.kill(victim, signal.SIGKILL)
        airflow.note("stopped", 2, "began")
    finally:
        for one in (pid, supervisor):
            os.kill(one, signal.SIGCONT)
    states = airflow.wait_until_done("killed")
    notes = airflow.notes()

    submitting = [note[1:] for note in notes if note[0] == "submitting"]
    assert submitting[0] == [1, "submitted", "job of try 1"]
    assert submitting[2:] == [[2, "reconnected", "job of try 1"]]
    stopped = [note[1:] for note in notes if note[0] == "stopped"]
    resumed = [note for note in stopped if note[0] == 1][1:]
    assert resumed[0][1] == "resumed"
    refusals = [note for note in resumed if note[1] == "refused"]
    assert len(refusals) == 2, resumed
    assert all("may not go on" in refusal[2] for refusal in refusals)
    assert [2, "found", 2, 2] in stopped
    assert states == {"submitting": "success", "stopped": "success"}


@ON_ALL
def test_a_job_over_ssh_is_started_once(airflow: Services, ssh_server: SSHServer) -> None:
    """In each shape of a task, the retry of a killed one waits for the job that the first attempt started."""
    shapes = ("taskflow", "python_operator", "custom", "extended", "mixin")
    first = {shape: airflow.note(shape, 1) for shape in shapes}
    for _, _, _, victim, its_supervisor in first.values():
        if airflow.airflow.version.startswith("3.0"):
            os.kill(its_supervisor, signal.SIGKILL)
        os.kill(victim, signal.SIGKILL)

    def found_again(shape: str) -> Any:
        # 2.11 sometimes counts a killed try twice
        return next((note for note in airflow.notes() if note[0] == shape and note[1] > 1), None)

    second = {
        shape: airflow.wait_for(f"another try of {shape}", functools.partial(found_again, shape))
        for shape in shapes
    }
    assert {shape: note[2] for shape, note in second.items()} == {s: note[2] for s, note in first.items()}
    (airflow.home / "ssh-go").touch()
    assert airflow.wait_until_done("over_ssh") == dict.fromkeys(shapes, "success")
    started = [command for command in ssh_server.commands() if str(airflow.home / "ssh-go") in command]
    assert len(started) == len(shapes)


@ON_ALL
def test_another_item_at_a_map_index_starts_without_state(airflow: Services) -> None:
    """When a mapped task's list has changed between attempts, what was stored for another item is not taken over."""
    for index, item in enumerate("abc"):
        airflow.note(f"work[{index}]", 1, "found", item, None)
    (airflow.home / "items.json").write_text(json.dumps(["a", "c", "b"]))
    assert set(airflow.wait_until_done("listed").values()) == {"success"}
    second = sorted(note for note in airflow.notes() if note[0].startswith("work") and note[1] == 2)
    assert second == [
        ["work[0]", 2, "found", "a", "a"],
        ["work[1]", 2, "found", "c", None],
        ["work[2]", 2, "found", "b", None],
    ]


@ON_ALL
def test_a_sensor_that_is_rescheduled_keeps_its_state(airflow: Services) -> None:
    """Each look of one try goes on from what the one before left, and so does the next try."""
    assert airflow.wait_until_done("rescheduled") == {"looks": "success"}
    looks = [(note[3], note[1]) for note in airflow.notes() if note[0] == "looks"]
    numbers, tries = [number for number, _ in looks], [number for _, number in looks]
    # a process that Airflow ends may have counted without a note
    assert numbers == sorted(set(numbers))
    assert (numbers[0], numbers[-1]) == (1, 6)
    assert tries == sorted(tries)
    assert tries[-1] > tries[0] == 1


@ON_3
def test_a_token_reaches_its_own_task_instance_only(airflow: Services) -> None:
    """A task's token reaches its own entries and those of its inlets and outlets, and nothing else."""
    airflow.wait_until_done("killed")
    rows = airflow.query("SELECT task_id, id, run_id, try_number FROM task_instance WHERE dag_id = 'killed'")
    found = {task: (str(uuid.UUID(str(number))), run, tried) for task, number, run, tried in rows}
    own, run_id, try_number = found["stopped"]
    command = [str(airflow.airflow.python), str(HERE / "tokens.py"), own, found["submitting"][0]]
    tokens = json.loads(airflow.airflow.run(command, airflow.environ).splitlines()[-1])

    def ask(verb: str, token: str | None = tokens["own"], **arguments: Any) -> tuple[int, Any]:
        body = {"verb": verb, "request": encode_request(verb, arguments)}
        return airflow.request("POST", f"/execution/keepstate/{own}", token=token, body=body)

    scope, other = TaskScope("killed", run_id, "stopped"), TaskScope("killed", run_id, "submitting")
    fence = Fence(try_number, own)
    stock, sales = AssetScope("s3://stock"), AssetScope("sales")
    api = Writer("api")

    def read(**more: Any) -> tuple[int, Any]:
        return ask("read", **{"scope": scope, "keys": None, "fence": fence, **more})

    def put(where: Any, **more: Any) -> tuple[int, Any]:
        batch = Batch(where, (Put("by", '"me"', None),), now=0, writer=api, **more)
        return ask("apply", batch=batch)

    asked = {
        "verb": "read",
        "request": encode_request("read", {"scope": scope, "keys": None, "fence": fence}),
    }
    for name, is_renewed in {"own": False, "about to expire": True}.items():
        where, token = f"/execution/keepstate/{own}", tokens.pop(name) if is_renewed else tokens[name]
        status, _, headers = airflow.exchange("POST", where, token=token, body=asked)
        assert (status, "Refreshed-API-Token" in headers) == (200, is_renewed), name
    refused = {name: read(token=token)[0] for name, token in tokens.items() if name != "own"}
    assert refused == dict.fromkeys(refused, 403)
    assert read(token=None)[0] == 401

    status, answer = read()
    assert (status, [entry["key"] for entry in answer["answer"]["entries"]]) == (200, ["by"])
    assert put(scope, fence=fence)[1]["answer"]["version"] > 1
    assert put(stock, behalf=Behalf(scope, fence))[1]["answer"]["version"] > 1
    # it writes in its own name, whatever it says
    writer = ask("read", scope=stock, keys=["by"])[1]["answer"]["entries"][0]["writer"]
    assert json.loads(writer)["task_id"] == "stopped"

    denied = {
        "another task instance": read(scope=other),
        "another attempt": read(fence=Fence(try_number + 1, own)),
        "no attempt": read(fence=None),
        "another one's history": ask("history", scope=other, key="job"),
        "another asset": ask("read", scope=sales, keys=None),
        "another one's name and its own uri": ask("read", scope=AssetScope("sales", "s3://stock"), keys=None),
        "a write elsewhere": put(other, fence=fence),
        "a write without an attempt": put(scope),
        "an asset in another's name": put(stock, behalf=Behalf(other, Fence(try_number + 1, own))),
        "an asset in nobody's name": put(stock),
        "all map indices": ask("clear", request=Clear(scope, 0, api, fence=fence, all_map_indices=True)),
        "deleting runs": ask("delete_run", dag_id="killed", run_id=run_id),
        "listing": ask("runs"),
    }
    kinds = {name: (status, answer["error"]["kind"]) for name, (status, answer) in denied.items()}
    assert kinds == dict.fromkeys(denied, (200, "AccessDeniedError"))

    url = f"/execution/keepstate/{own}"
    for nonsense in ({}, [], {"verb": "read"}, {"verb": "read", "request": {"scope": 1}}):
        status, answer = airflow.request("POST", url, token=tokens["own"], body=nonsense)
        assert (status, answer["error"]["kind"]) == (200, "InvalidInputError"), nonsense


def use_published_client(url: str, token: str, run_id: str) -> None:
    """Call the task state store by the client that Airflow 3.3 publishes."""
    with ApiClient(Configuration(host=url, access_token=token)) as client:
        api, ids = TaskStateStoreApi(client), ("killed", run_id, "submitting")
        api.set_task_state_store("a/b", *ids, TaskStateStoreBody(value=[1, None]))
        api.patch_task_state_store("a/b", *ids, TaskStateStorePatchBody(value=[2]))
        assert api.get_task_state_store("a/b", *ids).value == [2]
        assert [entry.key for entry in api.list_task_state_store(*ids).task_state_store] == ["a/b", "job"]
        api.delete_task_state_store("a/b", *ids)
        assert api.list_task_state_store(*ids, map_index=-1).total_entries == 1


@ON_3_AND_3_3
def test_rest_under_the_paths_of_3_3(airflow: Services) -> None:
    """The URLs of 3.3's state stores work, with Airflow's users and permissions, on what tasks have written."""
    airflow.wait_until_done("killed")
    ((run_id,),) = airflow.query("SELECT run_id FROM dag_run WHERE dag_id = 'killed'")
    admin, viewer = airflow.token("admin"), airflow.token("viewer")
    base = f"/api/v2/dags/killed/dagRuns/{quote(run_id, safe='')}/taskInstances/submitting/state-store"

    def ask(method: str, path: str = "", body: Any = None, token: str | None = admin) -> tuple[int, Any]:
        return airflow.request(method, f"{base}{path}", token=token, body=body)

    status, listed = ask("GET", token=viewer)
    assert status == 200
    assert [(entry["key"], entry["value"]) for entry in listed["task_state_store"]] == [
        ("job", "job of try 1")
    ]
    assert ask("GET", token=None)[0] == 401
    assert ask("GET", token="nonsense")[0] in {401, 403}
    assert ask("PUT", "/page", {"value": 1}, token=viewer)[0] == 403
    assert ask("DELETE", token=viewer)[0] == 403
    assert ask("PUT", "/page/of%20it", {"value": {"n": 1}, "expires_at": None}) == (204, None)
    assert ask("PATCH", "/page/of%20it", {"value": {"n": 2}})[0] == 200
    status, entry = ask("GET", "/page/of%20it")
    assert (status, entry["value"], entry["expires_at"]) == (200, {"n": 2}, None)
    assert ask("PUT", "/large", {"value": "x" * 70_000})[0] == 422
    assert ask("DELETE", "/page/of%20it") == (204, None)
    assert ask("GET", "/page/of%20it")[0] == 404
    unknown = base.replace("submitting", "unheard-of")
    assert airflow.request("PUT", f"{unknown}/a", token=admin, body={"value": 1})[0] == 404
    assert airflow.request("GET", unknown, token=admin)[1]["total_entries"] == 0
    use_published_client(airflow.url, admin, run_id)
    # one that no task has stored anything for
    other = base.replace("submitting", "stopped")
    assert airflow.request("DELETE", other, token=admin)[0] == 204
    assert airflow.request("PUT", f"{other}/a", token=admin, body={"value": 1})[0] == 204

    ((asset_id,),) = airflow.query("SELECT id FROM asset WHERE name = 's3://stock'")
    path = f"/api/v2/assets/{asset_id}/state-store"
    status, listed = airflow.request("GET", path, token=viewer)
    (entry,) = listed["asset_state_store"]
    assert (status, entry["key"], entry["last_updated_by"]["task_id"]) == (200, "by", "stopped")
    assert airflow.request("PUT", f"{path}/mark", token=viewer, body={"value": 1})[0] == 403
    assert airflow.request("PUT", f"{path}/mark", token=admin, body={"value": 1})[0] == 204
    assert airflow.request("GET", f"{path}/mark", token=admin)[1]["last_updated_by"]["kind"] == "api"
    assert airflow.request("GET", "/api/v2/assets/99/state-store", token=admin)[0] == 404

    # what was stored goes with its run
    run = base[: base.index("/taskInstances")]
    assert airflow.request("DELETE", run, token=admin)[0] == 204
    with keepstate.connect(airflow.database) as store:
        airflow.wait_for("the run's end", lambda: "killed" not in {run.dag_id for run in store.runs()})
        assert [asset.entries for asset in store.assets()] == [2]


@pytest.mark.parametrize("version", ["3.0.6", "3.1.8"])
def test_below_a_path_and_by_several_workers(version: str, tmp_path: Path) -> None:
    """Tasks and REST reach the store also where Airflow is served below a path, and by two processes."""
    dags = tmp_path / "dags"
    dags.mkdir()
    quick = (HERE / "dags" / "quick.py").read_text()
    (dags / "quick.py").write_text(quick.replace("schedule=None", 'schedule="@once"'))
    with services(
        environment(version), tmp_path, dags, prefix="/air/flow", AIRFLOW__API__WORKERS="2"
    ) as airflow:
        assert airflow.wait_until_done("quick") == {"dies_once": "success"}
        ((run_id,),) = airflow.query("SELECT run_id FROM dag_run WHERE dag_id = 'quick'")
        path = f"/api/v2/dags/quick/dagRuns/{quote(run_id, safe='')}/taskInstances/dies_once/state-store"
        token = airflow.token("admin")
        # both workers get their turn
        for _ in range(6):
            status, answer = airflow.request("GET", f"{path}/tries", token=token)
            assert (status, answer["value"]) == (200, 2)


def test_with_a_celery_executor(tmp_path: Path, postgres: PostgresServer) -> None:
    """Tasks that Celery's workers carry out are killed, stopped and resumed like all others."""
    dags = tmp_path / "dags"
    dags.mkdir()
    shutil.copy(HERE / "dags" / "killed" / "killed.py", dags)
    celery = environment("3.1.8", "apache-airflow-providers-celery")
    with postgres.database() as database:
        more = {
            "GO": str(tmp_path / "go"),
            "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor",
            # a broker that needs no server
            "AIRFLOW__CELERY__BROKER_URL": f"sqla+sqlite:///{tmp_path / 'broker.db'}",
            "AIRFLOW__CELERY__RESULT_BACKEND": database.replace("postgresql:", "db+postgresql+psycopg2:"),
            "AIRFLOW__CELERY__WORKER_CONCURRENCY": "4",
        }
        worker = ("celery worker --skip-serve-logs",)
        with services(celery, tmp_path, dags, database=database, components=worker, **more) as airflow:
            kill_and_stop(airflow)


@pytest.mark.parametrize("version", ["3.1.8"])
def test_with_the_users_and_permissions_of_fab(version: str, tmp_path: Path) -> None:
    """REST goes by what Airflow's other auth manager says, too."""
    dags = tmp_path / "dags"
    dags.mkdir()
    quick = (HERE / "dags" / "quick.py").read_text()
    (dags / "quick.py").write_text(quick.replace("schedule=None", 'schedule="@once"'))
    manager = "airflow.providers.fab.auth_manager.fab_auth_manager.FabAuthManager"
    about = ["-p", "a password", "-f", "A", "-l", "Person"]
    users = tuple(
        ["users", "create", "-u", role, "-r", role.title(), "-e", f"{role}@example.com", *about]
        for role in ROLES
    )
    fab = environment(version, "apache-airflow-providers-fab")
    with services(fab, tmp_path, dags, prepare=users, AIRFLOW__CORE__AUTH_MANAGER=manager) as airflow:
        assert airflow.wait_until_done("quick") == {"dies_once": "success"}
        ((run_id,),) = airflow.query("SELECT run_id FROM dag_run WHERE dag_id = 'quick'")
        path = (
            f"/api/v2/dags/quick/dagRuns/{quote(run_id, safe='')}/taskInstances/dies_once/state-store/tries"
        )
        tokens = {role: airflow.token(role) for role in ROLES}
        for role in ROLES:
            assert airflow.request("GET", path, token=tokens[role])[1]["value"] == 2
        body = {"value": 3}
        assert airflow.request("PUT", path, token=tokens["viewer"], body=body)[0] == 403
        assert airflow.request("PUT", path, token=tokens["admin"], body=body)[0] == 204
        assert airflow.request("GET", path)[0] == 401


@pytest.mark.parametrize("version", ["3.0.6", "3.2.2"])
def test_where_the_api_server_serves_tasks_alone(version: str, tmp_path: Path) -> None:
    """Tasks reach the store also where their API server has no pages, no REST and no plugins, below a path and twice.

    The doctor asks that server.
    """
    dags = tmp_path / "dags"
    dags.mkdir()
    quick = (HERE / "dags" / "quick.py").read_text()
    (dags / "quick.py").write_text(quick.replace("schedule=None", 'schedule="@once"'))
    here, twice = environment(version), {"AIRFLOW__API__WORKERS": "2"}
    with services(here, tmp_path, dags, apps="execution", prefix="/air/flow", **twice) as airflow:
        assert airflow.wait_until_done("quick") == {"dies_once": "success"}
        report, checks = Shell(here, airflow.environ).doctor()
        assert (report["route"], checks["API server"]["warning"]) == ("supervisor", False)
        assert checks["API server"]["detail"] == f"the one at {airflow.url}/execution/ has keepstate"
