"""Runs: which one goes on, who holds it, and what becomes of what a dead process left behind."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from keepstate import (
    AccessDeniedError,
    AlreadyRunningError,
    BackendUnavailableError,
    ConfigurationError,
    InvalidIdError,
    InvalidInputError,
    StaleAttemptError,
    StateStore,
    UnsupportedError,
    connect,
    dag_run,
    task,
    task_state_store,
)
from keepstate.runtime import holding
from keepstate.runtime.attempts import _heart, begin
from keepstate.runtime.runs import Run
from keepstate.scope import RunScope, TaskScope
from keepstate.settings import Settings
from tests.support.programs import is_alive, until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.programs import Programs


@task
def touch(name: str, task_state_store: Any = None) -> list[Any]:
    """Count this task's attempts."""
    return [name, task_state_store.increment("count")]


# ------------------------------------------------------------------------------------------- which goes on


def test_a_named_run(store: StateStore) -> None:
    """The block holds the run while it lasts, and records how it ended; the yielded run tells its ids."""
    with dag_run("nightly", "1", store=store) as run:
        assert (run.dag_id, run.run_id) == ("nightly", "1")
        assert store.runs("nightly")[0].state == "running"
        assert [held.scope for held in _heart._due] == [RunScope("nightly", "1")]
    assert store.runs("nightly")[0].state == "success"
    assert not _heart._due
    with pytest.raises(ZeroDivisionError), dag_run("nightly", "1", store=store):
        _ = 1 / 0
    assert [(one.try_number, one.state, one.reason) for one in store.attempts("nightly", "1")] == [
        (2, "failed", "ZeroDivisionError: division by zero"),
        (1, "success", None),
    ]


def test_without_an_id_the_newest_unfinished_run_goes_on(store: StateStore) -> None:
    """A failed run is taken up again; after success a new one begins, whose id tells when, without a slash."""
    ids = []
    for fail in (True, True, False, False):
        with suppress(ZeroDivisionError), dag_run("nightly", store=store) as run:
            ids.append(run.run_id)
            touch("a")
            _ = 1 / (not fail)
    assert ids[0] == ids[1] == ids[2] != ids[3]
    assert ids[0].startswith("manual__20")
    assert ids[0].endswith("+00:00")
    with pytest.raises(RuntimeError), dag_run("nightly", "older", store=store):
        raise RuntimeError
    with pytest.raises(RuntimeError), dag_run("nightly", "newer", store=store):
        raise RuntimeError
    with dag_run("weekly", store=store) as run:
        assert run.run_id not in ids
    for expected in ("newer", "older"):
        with dag_run("nightly", store=store) as run:
            assert run.run_id == expected


def test_an_older_run_that_goes_on_is_named(store: StateStore, caplog: pytest.LogCaptureFixture) -> None:
    """Where a newer one has succeeded, it is not the one that most people would think of."""
    with pytest.raises(RuntimeError), dag_run("nightly", "monday", store=store):
        raise RuntimeError
    with pytest.raises(RuntimeError), dag_run("nightly", store=store) as run:
        raise RuntimeError
    assert (run.run_id, caplog.messages) == ("monday", [])
    with dag_run("nightly", "tuesday", store=store):
        pass
    with dag_run("nightly", store=store) as run:
        assert run.run_id == "monday"
    assert caplog.messages == [
        "nightly / monday has not succeeded, and goes on, though tuesday began after it; name a run id to begin another run"
    ]


def test_a_run_that_nobody_has_begun_is_not_unfinished(store: StateStore) -> None:
    """Entries that were written under a run's ids do not make it one to go on with."""
    store.task("nightly", "by hand", "t").set("k", 1)
    with dag_run("nightly", store=store) as run:
        assert run.run_id != "by hand"


def test_a_finished_run_goes_on_when_it_is_named(store: StateStore) -> None:
    """Named again, a run that succeeded runs what has not run yet, and nothing else."""
    for names in ("a", "ab"):
        with dag_run("nightly", "1", store=store):
            assert [touch(name) for name in names] == [[name, 1] for name in names]


def test_a_run_in_which_nothing_was_left_to_do_says_so(
    store: StateStore, caplog: pytest.LogCaptureFixture
) -> None:
    """All results came from the store: a warning, which is visible by default, names the ways to run it again."""
    hint = (
        "nightly / it's 1: its tasks had all succeeded before, and none was run; to run it again, give another run_id, "
        "or erase this run first: keepstate runs delete --dag-id nightly --run-id 'it'\"'\"'s 1'"
    )
    for names, told in (("a", []), ("ab", []), ("ab", [hint]), ("", [])):
        caplog.clear()
        with dag_run("nightly", "it's 1", store=store):
            for name in names:
                touch.override(task_id=name)(name)
        assert caplog.messages == told


def test_exported_ids_are_no_supervisor(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who exports ids to look around is not inside `keepstate run`: the run is held and ended here."""
    for name, value in (("DAG_ID", "nightly"), ("RUN_ID", "1"), ("TASK_ID", "load")):
        monkeypatch.setenv(f"KEEPSTATE_{name}", value)
    for run_id in (None, "1"):
        with dag_run("nightly", run_id) as run:
            assert touch("a") == ["a", 1]
        assert store.attempts("nightly", run.run_id)[0].state == "success"
    assert {run.state for run in store.runs("nightly")} == {"success"}
    with pytest.raises(ConfigurationError, match="no task here"):
        task_state_store()


def test_the_store_of_a_run(tmp_path: Path, store: StateStore) -> None:
    """A url is opened and closed by the block, a store stays the caller's, and both at once is refused."""
    url = f"sqlite:///{tmp_path / 'other.db'}"
    with dag_run("nightly", "1", url=url):
        touch("a")
    with dag_run("nightly", "2"):
        touch("b")
    with connect(url) as other:
        assert [run.run_id for run in other.runs()] == ["1"]
    assert [run.run_id for run in store.runs()] == ["2"]
    with pytest.raises(InvalidInputError, match="not both"):
        dag_run("nightly", store=store, url=url)


def test_what_a_run_may_be_called(store: StateStore) -> None:
    """Ids are checked before anything happens; a block is entered once."""
    for dag_id, run_id in (("a/b", "1"), ("a", "1/2"), ("", "1"), ("a", ".")):
        with pytest.raises(InvalidIdError):
            dag_run(dag_id, run_id, store=store)
    block = dag_run("nightly", "1", store=store)
    with block, pytest.raises(InvalidInputError, match="entered already"):
        block.__enter__()


def test_runs_in_runs(store: StateStore) -> None:
    """An inner block's run is current inside it, the outer one's again after it; the same run twice is refused."""

    @task(store_result=False)
    def where(run_id: Any = None) -> Any:
        return run_id

    with dag_run("nightly", "outer", store=store):
        with dag_run("nightly", "inner", store=store):
            assert where() == "inner"
        assert where() == "outer"
        with (
            pytest.raises(
                AlreadyRunningError, match=r"--take-over, or in Python dag_run\(\.\.\., take_over=True\)"
            ),
            dag_run("nightly", "outer", store=store),
        ):
            pass
        assert where() == "outer"


# --------------------------------------------------------------------------------------------- who holds it

HOLD = """
    import sys, time
    from pathlib import Path
    from keepstate import dag_run, task

    @task(task_id="work")
    def work(task_state_store=None, ti=None):
        task_state_store.set("try", ti.try_number)
        Path(sys.argv[1]).write_text(str(ti.try_number))
        while not Path("go").exists():
            time.sleep(0.01)
        task_state_store.set("last", ti.try_number)
        return ti.try_number

    with dag_run("nightly", *sys.argv[2:]) as run:
        print(run.run_id, flush=True)
        print(work(), flush=True)
"""


@pytest.mark.parametrize("named", [("1",), ()], ids=["named", "unnamed"])
def test_two_starts_at_once(programs: Programs, store: StateStore, named: tuple[str, ...]) -> None:
    """While a living process holds the run, a second start is refused, and the first one is not disturbed."""
    command = programs.python(HOLD, "begun", *named)
    with programs.started(command) as first:
        until(programs.file("begun").exists)
        second = programs.run(command)
        assert second.returncode == 1
        assert "AlreadyRunningError" in second.stderr
        assert f"process {first.pid} on" in second.stderr
        programs.file("go").touch()
        assert first.wait(30) == 0
    (run,) = store.runs("nightly")
    assert run.state == "success"
    assert [one.state for one in store.attempts("nightly", run.run_id)] == ["success"]


def test_a_dead_process_is_noticed_at_once(programs: Programs, store: StateStore) -> None:
    """Killed by SIGKILL, its run goes on with the next start, without a lease to wait for; its attempts are lost."""
    with programs.started(programs.python(HOLD, "begun"), KEEPSTATE_HEARTBEAT="600") as first:
        until(programs.file("begun").exists)
        first.kill()
        run_id = first.communicate()[0].strip()
        # not even collected yet by a parent, a killed process holds nothing
    programs.file("go").touch()
    second = programs.run(programs.python(HOLD, "begun"), KEEPSTATE_HEARTBEAT="600")
    assert second.stdout.split() == [run_id, "2"]
    assert "nightly / " in second.stderr
    assert "was lost: its process is gone" in second.stderr
    assert [one.state for one in store.attempts("nightly", run_id)] == ["success", "lost"]
    assert [one.state for one in store.attempts("nightly", run_id, "work")] == ["success", "lost"]


def test_a_zombie_holds_nothing(programs: Programs, store: StateStore) -> None:
    """A killed process that its parent has not collected yet is as dead as any."""
    with programs.started(programs.python(HOLD, "begun", "1"), KEEPSTATE_HEARTBEAT="600") as first:
        until(programs.file("begun").exists)
        os.kill(first.pid, signal.SIGKILL)
        until(lambda: not is_alive(first.pid))
        assert first.returncode is None
        with dag_run("nightly", "1", store=store):
            assert store.attempts("nightly", "1")[1].state == "lost"


def test_taking_over(programs: Programs, store: StateStore) -> None:
    """Told to, a second start takes over a living run: the first one's next write is refused, and it ends."""
    with programs.started(programs.python(HOLD, "begun", "1")) as first:
        until(programs.file("begun").exists)
        with dag_run("nightly", "1", store=store, take_over=True):
            taken = task(task_id="work")(lambda ti, task_state_store: task_state_store.increment("mine"))
            assert taken() == 1
        programs.file("go").touch()
        _, errors = first.communicate(timeout=30)
    assert first.returncode == 1
    assert "StaleAttemptError" in errors
    assert store.task("nightly", "1", "work").get_many(["try", "last", "mine"]) == {"try": 1, "mine": 1}
    assert [one.state for one in store.attempts("nightly", "1")] == ["success", "lost"]
    assert [one.state for one in store.attempts("nightly", "1", "work")] == ["success", "lost"]


def test_what_was_taken_over_begins_nothing_more(store: StateStore) -> None:
    """A process that lost its run learns it at its next task, which it does not begin, and at the block's end."""
    started = []

    @task(retries=3)
    def late() -> None:
        started.append(1)

    with pytest.raises(StaleAttemptError), dag_run("nightly", "1", store=store):  # noqa: PT012 - it is the block that raises
        with dag_run("nightly", "1", store=store, take_over=True):
            pass
        with pytest.raises(StaleAttemptError):
            late()
    assert not started
    assert store.attempts("nightly", "1", "late") == []
    assert [one.state for one in store.attempts("nightly", "1")] == ["success", "lost"]


def test_an_own_error_is_not_hidden_by_the_loss_of_the_run(
    store: StateStore, caplog: pytest.LogCaptureFixture
) -> None:
    """The block's exception goes out; that its end could not be recorded is logged."""
    with pytest.raises(ZeroDivisionError), dag_run("nightly", "1", store=store):  # noqa: PT012 - as above
        with dag_run("nightly", "1", store=store, take_over=True):
            pass
        _ = 1 / 0
    assert "taken over" in caplog.text


def test_a_process_on_another_host(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of its processes: it is refused for the time of a lease after its last sign of life, then lost."""
    clock = time.time_ns
    moved = 0

    def now() -> int:
        return clock() // 1000 + moved

    with connect(settings=Settings.load(), clock=now) as here:
        hold = begin(here, RunScope("nightly", "1"))
        hold.release()
        uname = os.uname()
        monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "elsewhere", *uname[2:])))
        with (
            pytest.raises(AlreadyRunningError, match=f"on {uname.nodename}"),
            dag_run("nightly", "1", store=here),
        ):
            pass
        moved = here.settings.lease + 1
        with dag_run("nightly", "1", store=here):
            assert [one.state for one in here.attempts("nightly", "1")] == ["running", "lost"]


def test_a_living_process_of_this_host_is_never_lost(store: StateStore) -> None:
    """A laptop that slept, or a process that was stopped: without signs of life for long, and yet alive."""
    moved = 0

    def now() -> int:
        return time.time_ns() // 1000 + moved

    with connect(clock=now) as here, dag_run("nightly", "1", store=here):
        moved = 86_400_000_000
        with pytest.raises(AlreadyRunningError), dag_run("nightly", "1", store=here):
            pass


def test_new_runs_at_the_same_moment(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of starts without a run id that don't see each other's beginning, one at most goes on, whoever is late."""
    real = store.backend.runs
    barrier = threading.Barrier(4)
    late = threading.local()

    def runs(dag_id: str | None = None, **window: Any) -> Any:
        found = real(dag_id, **window)
        if not hasattr(late, "met"):
            late.met = True
            barrier.wait(20)
        return found

    monkeypatch.setattr(store.backend, "runs", runs)
    outcomes: list[str] = []
    inside = threading.Semaphore(1)

    def start() -> None:
        try:
            with dag_run("nightly", store=store):
                assert inside.acquire(blocking=False)
                time.sleep(0.3)
                inside.release()
                outcomes.append("ran")
        except AlreadyRunningError:
            outcomes.append("refused")

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(outcomes) == {"ran": 1, "refused": 3}
    monkeypatch.undo()
    assert [run.state for run in store.runs("nightly")] == ["success"]


def test_a_rival_that_did_not_see_us_wins(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new run that meets another living one withdraws without a trace, even if its own id is the smaller."""
    monkeypatch.setattr(holding, "_RIVALRY", 0.1)
    rival = begin(store, RunScope("nightly", "zzz"))
    real, calls = store.backend.runs, []

    def runs(dag_id: str | None = None, **window: Any) -> Any:
        calls.append(1)
        return [] if len(calls) == 1 else real(dag_id, **window)

    monkeypatch.setattr(store.backend, "runs", runs)
    with pytest.raises(AlreadyRunningError, match="same moment"), dag_run("nightly", store=store):
        pass
    monkeypatch.undo()
    assert [run.run_id for run in store.runs("nightly")] == ["zzz"]
    assert [held.scope for held in _heart._due] == [rival.scope]
    rival.end("success")


def test_a_new_run_that_cannot_look_around_is_let_go(
    store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has begun, and gives no more signs of life when the store is gone a moment later."""
    real, calls = store.backend.runs, []

    def runs(*args: Any, **window: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise BackendUnavailableError("gone", address="x")
        return real(*args, **window)

    monkeypatch.setattr(store.backend, "runs", runs)
    with pytest.raises(BackendUnavailableError), dag_run("nightly", store=store):
        pass
    assert not _heart._due


@pytest.mark.parametrize(
    ("trouble", "raised", "left"),
    [
        (BackendUnavailableError("gone", address="x"), BackendUnavailableError, "running"),
        # a worker's token may not erase runs
        (AccessDeniedError("you may not"), AlreadyRunningError, "failed"),
        (UnsupportedError("I can't"), AlreadyRunningError, "failed"),
    ],
)
def test_a_run_that_withdraws_and_cannot_be_erased_is_let_go(
    store: StateStore,
    monkeypatch: pytest.MonkeyPatch,
    trouble: Exception,
    raised: type[Exception],
    left: str,
) -> None:
    """It stands as failed if that can be stored, and whatever happens gives no more signs of life."""
    real, calls = store.backend.runs, []

    def runs(dag_id: str | None = None, **window: Any) -> Any:
        calls.append(1)
        return [] if len(calls) == 1 else real(dag_id, **window)

    def delete_run(*_: Any, **__: Any) -> int:
        raise trouble

    rival = begin(store, RunScope("nightly", "aaa"))
    monkeypatch.setattr(store.backend, "runs", runs)
    monkeypatch.setattr(store.backend, "delete_run", delete_run)
    with pytest.raises(raised), dag_run("nightly", store=store):
        pass
    monkeypatch.undo()
    assert [held.scope for held in _heart._due] == [rival.scope]
    rival.end("success")
    assert Counter(run.state for run in store.runs("nightly")) == {"success": 1, left: 1}


def test_an_older_run_that_comes_into_sight_is_no_rival(
    store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of very many runs the newest are looked at, and meanwhile some of these may be deleted."""
    for number in range(5):
        with dag_run("nightly", str(number), store=store):
            pass
    monkeypatch.setattr(holding, "_LOOK_BACK", 3)
    real = store.backend.runs

    def runs(dag_id: str | None = None, **window: Any) -> Any:
        found = real(dag_id, **window)
        for number in "43":
            store.delete_run("nightly", number)
        return found

    monkeypatch.setattr(store.backend, "runs", runs)
    with dag_run("nightly", store=store) as run:
        assert [one.run_id for one in real("nightly", limit=9)] == [run.run_id, "2", "1", "0"]


# --------------------------------------------------------------------------------------------- heartbeats


def test_heartbeats(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A held run and its task give signs of life while they last; the thread ends with the last of them."""
    monkeypatch.setenv("KEEPSTATE_HEARTBEAT", "0.05")
    with connect() as store, dag_run("nightly", "1", store=store):

        @task
        def work() -> None:
            for scope in (("nightly", "1"), ("nightly", "1", "work")):
                first = store.attempts(*scope)[0].beat_at
                until(lambda: store.attempts(*scope)[0].beat_at > first, 10)  # noqa: B023 - used at once

        work()
    until(lambda: not any(thread.name == "keepstate-heart" for thread in threading.enumerate()))


def test_trouble_with_heartbeats_kills_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, and the next one is tried."""
    from keepstate.errors import BackendUnavailableError

    monkeypatch.setenv("KEEPSTATE_HEARTBEAT", "0.05")
    with connect() as store, dag_run("nightly", "1", store=store) as run:
        real, beats = store.backend.beat, []

        def beat(*args: Any, **kwargs: Any) -> None:
            beats.append(1)
            if len(beats) == 1:
                raise BackendUnavailableError("gone fishing", address="x")
            if len(beats) == 2:
                raise RuntimeError("what is this")
            real(*args, **kwargs)

        monkeypatch.setattr(store.backend, "beat", beat)
        until(lambda: len(beats) > 3, 10)
        assert not run.hold.overtaken
    assert "gone fishing" in caplog.text
    assert "what is this" in caplog.text
    with connect() as store:
        assert store.runs("nightly")[0].state == "success"


def test_what_goes_wrong_for_one_attempt_stops_no_other_heart(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What is to follow when one is overtaken may fail, and the thread may end: the others' signs of life go on."""
    monkeypatch.setenv("KEEPSTATE_HEARTBEAT", "0.05")
    monkeypatch.setattr(threading, "excepthook", lambda _: None)

    def fail() -> None:
        raise RuntimeError("can't end it")

    def end_the_thread() -> None:
        raise SystemExit

    def overtake(task_id: str, on_overtaken: Any) -> None:
        held = begin(store, TaskScope("nightly", "1", task_id))
        held.on_overtaken = on_overtaken
        store.task("nightly", "1", task_id, try_number=9).set("k", 1)
        until(lambda: held.overtaken, 10)

    def beats_on() -> None:
        first = store.attempts("nightly", "1")[0].beat_at
        until(lambda: store.attempts("nightly", "1")[0].beat_at > first, 10)

    with connect() as store, dag_run("nightly", "1", store=store):
        overtake("one", fail)
        beats_on()
        assert "can't end it" in caplog.text
        overtake("two", end_the_thread)
        until(lambda: not any(thread.name == "keepstate-heart" for thread in threading.enumerate()), 10)
        begin(store, TaskScope("nightly", "1", "three")).end("success")
        beats_on()


def test_a_heart_that_could_not_begin_to_beat_does_so_for_the_next_attempt(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that is out of threads may have some again."""
    monkeypatch.setenv("KEEPSTATE_HEARTBEAT", "0.05")

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with connect() as store:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", start)
            with pytest.raises(RuntimeError), dag_run("nightly", "1", store=store):
                pass
        assert not _heart._due
        with dag_run("nightly", "2", store=store):
            first = store.attempts("nightly", "2")[0].beat_at
            until(lambda: store.attempts("nightly", "2")[0].beat_at > first, 10)


def test_a_heartbeat_learns_that_the_attempt_is_overtaken(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ti.overtaken` turns true, so that a long computation can look and stop."""
    monkeypatch.setenv("KEEPSTATE_HEARTBEAT", "0.05")
    with connect() as store, dag_run("nightly", "1", store=store):

        @task
        def work(ti: Any) -> None:
            assert not ti.overtaken
            store.task("nightly", "1", "work", try_number=2).set("k", 1)
            until(lambda: ti.overtaken, 10)

        with pytest.raises(StaleAttemptError):
            work()


FORK = """
    import os, sys, time
    from pathlib import Path
    from keepstate import dag_run, task

    @task
    def work(task_state_store=None):
        child = None
        pages = task_state_store.checkpoint(range(10), every=100)
        for page in pages:
            if page == 3:
                child = os.fork()
                if child == 0:
                    while not Path("go").exists():
                        time.sleep(0.01)
                    raise SystemExit(7)
            if page == 8:
                task_state_store.flush()
                Path("go").touch()
                code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                print(code, task_state_store.get("position")["position"], flush=True)
        return 1

    with dag_run("nightly", "1"):
        work()
    print("parent done", flush=True)
"""


def test_a_forked_child_that_unwinds_through_it_all(programs: Programs, store: StateStore) -> None:
    """When it leaves by an exception through task and block, the parent's attempt, run and progress are as they were."""
    done = programs.run(programs.python(FORK))
    assert done.stdout.split() == ["7", "8", "parent", "done"], done.stderr
    assert [one.state for one in store.attempts("nightly", "1")] == ["success"]
    assert [one.state for one in store.attempts("nightly", "1", "work")] == ["success"]
    assert store.task("nightly", "1", "work").get("position")["done"] is True


def test_a_shared_run_keeps_its_date_however_old_it_is(store: StateStore) -> None:
    """Nobody holds it, so the date is that of its first task, though two hundred other runs have begun since."""
    store.task("nightly", "first", "load").set("k", 1)
    began = store.runs("nightly")[0].created_at
    for number in range(200):
        store.task("nightly", f"later-{number}", "load").set("k", 1)
    assert Run(store, "nightly", "first").logical_date == began
