"""The examples, each under `keepstate run` with a real SSH server or job system, killed in the middle: one submission."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepstate.testing.spool import SpoolJobSystem
from tests.examples.supervised import killed_once, supervised

if TYPE_CHECKING:
    from keepstate import StateStore
    from tests.support.programs import Programs
    from tests.support.ssh_server import SSHServer

SECONDS = 2


def test_taskflow(programs: Programs, store: StateStore, ssh_server: SSHServer) -> None:
    """The report is started once and collected by the attempt after the killed one."""
    before = len(ssh_server.commands())
    with supervised(programs, store, "build_report", "-m", "examples.taskflow", SECONDS) as example:
        output = killed_once(example, "folder")
        assert store.task("example", example.run_id, "build_report").get("folder").startswith("/tmp/")
    commands = ssh_server.commands()[before:]
    assert sum("mktemp" in command for command in commands) == 1
    assert "is under way" in output
    assert output.splitlines()[-1].startswith("report for ")


def test_python_operator(programs: Programs, store: StateStore, ssh_server: SSHServer) -> None:
    """The dump is started once; the second attempt waits for the process of the first."""
    before = len(ssh_server.commands())
    with supervised(programs, store, "dump_orders", "-m", "examples.python_operator", SECONDS) as example:
        output = killed_once(example, "dump")
    assert sum("nohup" in command for command in ssh_server.commands()[before:]) == 1
    assert output.splitlines() == [
        "attempt 1 waits for the dump of attempt 1",
        "attempt 2 waits for the dump of attempt 1",
        "31337 rows",
    ]


def test_custom_operator(programs: Programs, store: StateStore, ssh_server: SSHServer) -> None:
    """Every file is compressed once, whichever attempt started it."""
    before = len(ssh_server.commands())
    with supervised(programs, store, "compress_logs", "-m", "examples.custom_operator", SECONDS) as example:
        output = killed_once(example, "pid")
    assert sum("nohup" in command for command in ssh_server.commands()[before:]) == 3
    assert output.splitlines()[-1] == "2026-09.gz 2026-10.gz 2026-11.gz"


def test_extended_operator(programs: Programs, store: StateStore, ssh_server: SSHServer) -> None:
    """The extended SSHOperator starts its command once; its dag_run block means the supervised run."""
    before = len(ssh_server.commands())
    with supervised(programs, store, "retrain", "-m", "examples.extended_operator", SECONDS) as example:
        output = killed_once(example, "unit")
    assert sum("setsid" in command for command in ssh_server.commands()[before:]) == 1
    assert output.splitlines()[-1].startswith("model of 20")


def test_mixin_operator(programs: Programs, store: StateStore) -> None:
    """The job is submitted once."""
    with SpoolJobSystem(programs.folder / "cluster") as cluster:
        command = ("-m", "examples.mixin_operator", cluster.directory, SECONDS)
        with supervised(programs, store, "train", *command) as example:
            output = killed_once(example, "training_job")
        (submission,) = cluster.submissions()
    assert output.count(f"waiting for {submission.id}") == 2
    assert output.splitlines()[-1].startswith("{'model': 'churn_20")
