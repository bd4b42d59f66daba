"""The SSH server on loopback, and the paramiko hook and operator of the examples, against each other."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import paramiko
import pytest

from examples.ssh_hook import SSHConnection, SSHConnectionError, SSHHook
from keepstate.testing import ssh_server as server_module
from tests.support.ssh_server import SSHServer, SSHServerError, running_ssh_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]

# The task state store guide's pair of commands: one launches and prints the process id, one waits and reports.
LAUNCH = (
    "nohup sh -c 'while ! [ -e {out_file}.go ]; do sleep 0.05; done; rc={rc}; echo finished > {out_file}; "
    "echo $rc > {out_file}.rc' >/dev/null 2>&1 & echo $!"
)
CHECK = (
    "while kill -0 {pid} 2>/dev/null; do sleep 0.05; done; "
    "rc=$(cat {out_file}.rc 2>/dev/null); cat {out_file}; "
    '[ "$rc" = "0" ]'
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SSHServer]:
    """One server for the module."""
    with running_ssh_server(tmp_path_factory.mktemp("ssh")) as running:
        yield running


@pytest.fixture
def hook(server: SSHServer, monkeypatch: pytest.MonkeyPatch) -> SSHHook:
    """A hook whose connection is the server."""
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    return SSHHook(ssh_conn_id="ssh_default")


def ssh_exec(hook: SSHHook, command: str) -> tuple[int, str]:
    """Run a command the way the guide does."""
    with hook.get_conn() as client:
        _, stdout, _ = client.exec_command(command)
        output = stdout.read().decode().strip()
        return stdout.channel.recv_exit_status(), output


def until(condition: Callable[[], object], timeout: float = 20) -> None:
    """Wait until a condition holds; fail when it does not come to."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Say whether a process exists, as `kill -0` sees it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def client_process(server: SSHServer, code: str, *arguments: object) -> subprocess.Popen[str]:
    """Run code with a hook of its own, in a process and process group of its own."""
    preamble = "import sys; sys.path.insert(0, sys.argv[1])\nfrom examples.ssh_hook import SSHHook\nhook = SSHHook()\n"
    return subprocess.Popen(
        [sys.executable, "-c", preamble + code, str(ROOT), *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **server.environment()},
        start_new_session=True,
    )


def test_output_and_exit_status_come_back(hook: SSHHook, server: SSHServer) -> None:
    """A command is one of /bin/sh, with its output, its errors and its exit status; and it is on record."""
    command = "echo out; echo err >&2; cd /; pwd; exit 3"
    with hook.get_conn() as client:
        stdin, stdout, stderr = client.exec_command(command)
        stdin.close()
        assert stdout.read() == b"out\n/\n"
        assert stderr.read() == b"err\n"
        assert stdout.channel.recv_exit_status() == 3
        assert hook.exec_ssh_client_command(client, command) == (3, b"out\n/\n", b"err\n")
    assert server.commands()[-2:] == [command, command]


def test_standard_input_reaches_the_command(hook: SSHHook) -> None:
    """What the client sends is what the command reads."""
    with hook.get_conn() as client:
        stdin, stdout, _ = client.exec_command("cat")
        stdin.write("ping")
        stdin.channel.shutdown_write()
        assert stdout.read() == b"ping"


def test_much_output_on_both_streams_arrives_whole(hook: SSHHook) -> None:
    """More than any window or buffer holds, on both streams at once, is read without a deadlock."""
    command = "head -c 8000000 /dev/zero & head -c 8000000 /dev/zero >&2; wait"
    with hook.get_conn() as client:
        status, output, errors = hook.exec_ssh_client_command(client, command, timeout=60)
    assert (status, len(output), len(errors)) == (0, 8_000_000, 8_000_000)


def test_a_command_ended_by_a_signal_has_no_exit_status(hook: SSHHook) -> None:
    """As SSH has it, the client then sees -1, which is no success."""
    assert ssh_exec(hook, "kill -9 $$") == (-1, "")


def test_a_command_that_takes_too_long_is_a_timeout(hook: SSHHook) -> None:
    """The client stops waiting and says which command."""
    with hook.get_conn() as client, pytest.raises(TimeoutError, match=r"0\.2 s: sleep 300"):
        hook.exec_ssh_client_command(client, "sleep 300", timeout=0.2)


@pytest.mark.parametrize("rc", [0, 1])
def test_launch_and_check_work_over_two_connections(hook: SSHHook, tmp_path: Path, rc: int) -> None:
    """The launched command outlives its channel and connection; the check waits for it and tells how it ended."""
    out_file = str(tmp_path / "job.out")
    status, pid = ssh_exec(hook, LAUNCH.replace("{out_file}", out_file).replace("{rc}", str(rc)))
    assert status == 0
    assert is_alive(int(pid))
    Path(f"{out_file}.go").touch()
    status, output = ssh_exec(hook, CHECK.replace("{pid}", pid).replace("{out_file}", out_file))
    assert (status, output) == (rc, "finished")


def test_the_remote_command_survives_the_kill_of_its_client(
    server: SSHServer, hook: SSHHook, tmp_path: Path
) -> None:
    """A client killed with SIGKILL while it waits leaves the remote command running; the next one finds its result."""
    out_file = str(tmp_path / "job.out")
    launch = LAUNCH.replace("{out_file}", out_file).replace("{rc}", "0")
    code = (
        "with hook.get_conn() as client:\n"
        "    _, stdout, _ = client.exec_command(sys.argv[2])\n"
        "    pid = stdout.read().decode().strip()\n"
        "    _, stdout, _ = client.exec_command(sys.argv[3].replace('{pid}', pid))\n"
        "    print(pid, flush=True)\n"
        "    stdout.channel.recv_exit_status()"
    )
    check = CHECK.replace("{out_file}", out_file)
    with client_process(server, code, launch, check) as client:
        assert client.stdout is not None
        pid = client.stdout.readline().strip()
        assert pid
        until(lambda: check.replace("{pid}", pid) in server.commands())
        os.killpg(client.pid, signal.SIGKILL)
    assert is_alive(int(pid))
    Path(f"{out_file}.go").touch()
    assert ssh_exec(hook, check.replace("{pid}", pid)) == (0, "finished")
    assert server.commands().count(launch) == 1


def test_a_command_in_the_foreground_survives_the_kill_of_its_client(
    server: SSHServer, hook: SSHHook, tmp_path: Path
) -> None:
    """The server does not kill what a vanished client was waiting for."""
    code = "with hook.get_conn() as client:\n    client.exec_command(sys.argv[2])[1].read()"
    begun, go, done = (tmp_path / name for name in ("begun", "go", "done"))
    command = f"touch {begun}; while ! [ -e {go} ]; do sleep 0.02; done; touch {done}"
    with client_process(server, code, command) as client:
        until(begun.exists)
        os.killpg(client.pid, signal.SIGKILL)
    assert ssh_exec(hook, "true") == (0, "")
    go.touch()
    until(done.exists)


def test_strangers_are_kept_out(server: SSHServer, hook: SSHHook, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another key does not get in, a server with another host key is not believed, nor is one nobody vouches for."""
    other = Path(server.directory) / "other_key"
    with other.open("w") as file:
        paramiko.ECDSAKey.generate().write_private_key(file)
    name = "AIRFLOW_CONN_SSH_DEFAULT"
    monkeypatch.setenv(name, server.uri.replace("client_key", "other_key"))
    with pytest.raises(paramiko.AuthenticationException):
        hook.get_conn()
    key = b"\0\0\0\x0bssh-ed25519\0\0\0\x20" + bytes(32)
    wrong = f"ssh-ed25519 {base64.b64encode(key).decode()}"
    fields = {"host": server.host, "port": server.port, "login": server.user}
    monkeypatch.setenv(
        name, json.dumps({**fields, "extra": {"key_file": server.client_key, "host_key": wrong}})
    )
    with pytest.raises(paramiko.BadHostKeyException):
        hook.get_conn()
    monkeypatch.setenv("HOME", server.directory)
    monkeypatch.setenv(name, json.dumps({**fields, "extra": json.dumps({"key_file": server.client_key})}))
    with pytest.raises(paramiko.SSHException, match="not found in known_hosts"):
        hook.get_conn()
    extra = {"key_file": server.client_key, "no_host_key_check": "true"}
    monkeypatch.setenv(name, json.dumps({**fields, "extra": extra}))
    assert ssh_exec(hook, "echo in") == (0, "in")


def test_both_forms_of_a_connection_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """URI, URI with nested extras and JSON give the same connection; a bad one is refused without its secret."""
    expected = SSHConnection("example.org", 2222, "me", "s@cret", {"key_file": "/k"})
    forms = (
        "ssh://me:s%40cret@example.org:2222/?key_file=%2Fk",
        "ssh://me:s%40cret@example.org:2222/?__extra__=%7B%22key_file%22%3A+%22%2Fk%22%7D",
        '{"host": "example.org", "port": 2222, "login": "me", "password": "s@cret", "extra": {"key_file": "/k"}}',
    )
    for form in forms:
        monkeypatch.setenv("AIRFLOW_CONN_BOX", form)
        assert SSHConnection.from_environment("box") == expected
    assert "s@cret" not in repr(expected)
    monkeypatch.setenv("AIRFLOW_CONN_BOX", "ssh://box")
    assert SSHConnection.from_environment("box") == SSHConnection("box")
    for form in ("", "http://me:s@cret@box", "ssh://me:s@cret@box:port", '{"password": "s@cret"', "ssh://"):
        monkeypatch.setenv("AIRFLOW_CONN_BOX", form)
        with pytest.raises(SSHConnectionError, match="AIRFLOW_CONN_BOX") as caught:
            SSHConnection.from_environment("box")
        assert "s@cret" not in str(caught.value)


def test_the_operator_returns_its_output_as_airflow_does(hook: SSHHook) -> None:
    """Base64 of standard output; a failing command, a slow one and a missing one are errors."""
    from examples.ssh_operator import SSHCommandError, SSHOperator

    operator = SSHOperator(task_id="t", command="echo 42; echo noise >&2")
    assert base64.b64decode(operator.execute({})) == b"42\n"
    assert "command" in SSHOperator.template_fields
    with pytest.raises(SSHCommandError, match="exit status 4: no such luck"):
        SSHOperator(task_id="t", command="echo no such luck >&2; exit 4").execute({})
    with pytest.raises(TimeoutError):
        SSHOperator(task_id="t", command="sleep 300", cmd_timeout=0.2).execute({})
    with pytest.raises(ValueError, match="no SSH command"):
        SSHOperator(task_id="t").execute({})


def test_nothing_outlives_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopping the server ends what its commands left behind, in sessions of their own too."""
    with running_ssh_server(tmp_path) as own:
        monkeypatch.setenv("AIRFLOW_CONN_OWN", own.environment("own")["AIRFLOW_CONN_OWN"])
        _, first = ssh_exec(SSHHook("own"), "nohup sleep 300 >/dev/null 2>&1 & echo $!")
        _, second = ssh_exec(SSHHook("own"), "setsid sleep 300 >/dev/null 2>&1 & echo $!")
        assert is_alive(int(first))
        assert is_alive(int(second))
    assert not any(map(is_alive, (own.pid, int(first), int(second))))


def test_the_server_ends_with_a_killed_owner(tmp_path: Path) -> None:
    """A test session that is killed leaves no server behind."""
    code = (
        "import sys; from keepstate.testing.ssh_server import running_ssh_server\n"
        "with running_ssh_server(sys.argv[1]) as server:\n    print(server.pid, flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, tmp_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        start_new_session=True,
    ) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        os.killpg(owner.pid, signal.SIGKILL)
    until(lambda: not is_alive(pid))


def test_a_server_of_its_own_runs_until_it_is_told_to_end(tmp_path: Path) -> None:
    """`python -m tests.support.ssh_server --dir DIR` writes how to reach it and ends on SIGTERM."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.ssh_server", "--dir", tmp_path],
        stdin=subprocess.DEVNULL,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    ) as process:
        ready = tmp_path / "ready.json"
        until(ready.exists)
        assert json.loads(ready.read_text())["pid"] == process.pid
        process.terminate()
        assert process.wait(20) == 0


def test_a_server_that_cannot_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing asyncssh is named, and a server that fails is quoted."""
    (tmp_path / "home").write_text("in the way")
    with pytest.raises(SSHServerError, match="File exists"), running_ssh_server(tmp_path):
        pass
    monkeypatch.setitem(sys.modules, "asyncssh", None)
    with pytest.raises(SSHServerError, match="pip install asyncssh"), running_ssh_server(tmp_path / "other"):
        pass
    assert server_module.SSHServerError is SSHServerError
