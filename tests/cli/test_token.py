"""`keepstate token`: made once, shown once, listed and revoked."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Result

    Run = Callable[..., Result]


def test_a_token_is_printed_alone(run: Run) -> None:
    """So that a shell can take it as it is."""
    made = run("token", "create", "nightly", "--role", "worker", "--dags", "etl_*", "--expires", "90d")
    assert made.code == 0
    assert made.err == ""
    prefix, token_id, secret = made.out.rstrip("\n").split("_", 2)
    assert (prefix, len(token_id), len(secret)) == ("kst", 16, 43)
    (listed,) = json.loads(run("token", "list", "--json").out)
    assert listed["id"] == token_id
    assert {name: listed[name] for name in ("name", "role", "dags", "assets", "revoked_at", "used_at")} == {
        "name": "nightly",
        "role": "worker",
        "dags": "etl_*",
        "assets": "",
        "revoked_at": None,
        "used_at": None,
    }
    assert secret not in run("token", "list", "--json").out
    shown = run("token", "list").out
    assert "nightly  worker  etl_*  none    in 90 d  never" in " ".join(shown.split("\n"))


def test_a_token_is_revoked_by_name_or_id(run: Run) -> None:
    """It is no longer among the valid ones, and its name is free."""
    assert run("token", "create", "one", "--role", "viewer").code == 0
    assert run("token", "create", "two", "--role", "admin").code == 0
    assert run("token", "revoke", "one").code == 0
    (left,) = json.loads(run("token", "list", "--json").out)
    assert left["name"] == "two"
    assert run("token", "revoke", left["id"]).code == 0
    assert json.loads(run("token", "list", "--json").out) == []
    assert one_line(run("token", "list").err).startswith("there are no tokens yet")
    every = json.loads(run("token", "list", "--all", "--json").out)
    assert [token["name"] for token in every] == ["one", "two"]
    assert all(token["revoked_at"] for token in every)
    assert "revoked" in run("token", "list", "--all").out
    gone = run("token", "revoke", "one")
    assert gone.code == 1
    assert "there is no valid token 'one'" in one_line(gone.err)
    assert run("token", "create", "one", "--role", "viewer").code == 0


def test_a_name_goes_before_an_id(run: Run) -> None:
    """A token may be named like another one's id, which stays."""
    run("token", "create", "one", "--role", "viewer")
    (one,) = json.loads(run("token", "list", "--json").out)
    run("token", "create", one["id"], "--role", "viewer")
    for left in (["one"], []):
        assert run("token", "revoke", one["id"]).code == 0
        assert [token["name"] for token in json.loads(run("token", "list", "--json").out)] == left


@pytest.mark.parametrize(
    ("where", "message"),
    [(">&-", "stdout is closed, so nothing can be printed"), (">/dev/full", "No space left on device")],
)
def test_a_token_that_nobody_got_is_not_made(run: Run, where: str, message: str) -> None:
    """Nobody could use or know it, but whoever finds it somewhere."""
    line = f"{sys.executable} -m keepstate token create nightly --role viewer {where}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
    assert (done.returncode, one_line(done.stderr)) == (74, message)
    assert json.loads(run("token", "list", "--all", "--json").out) == []
    assert run("token", "create", "nightly", "--role", "viewer").code == 0


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("x", "--role", "owner"), "--role must be one of viewer, worker, editor, admin, not 'owner'"),
        (("x", "--role", "viewer", "--expires", "soon"), "--expires takes a duration like"),
        (("x", "--role", "viewer", "--expires", "0s"), "--expires must be longer than zero"),
        (("", "--role", "viewer"), "a token's name has 1 to 100 visible characters"),
        (("x", "--role", "viewer", "--dags", ""), "the pattern of dags has 1 to 250 characters"),
        (("x",), "--role"),
    ],
)
def test_what_can_not_be_made_is_refused(run: Run, argv: tuple[str, ...], message: str) -> None:
    """With one line that says why, and nothing made."""
    refused = run("token", "create", *argv)
    assert refused.code == 2
    assert message in one_line(refused.err)
    assert refused.out == ""
    assert json.loads(run("token", "list", "--all", "--json").out) == []


def test_a_taken_name_is_refused(run: Run) -> None:
    """Two tokens of one name could not be told apart in a log."""
    assert run("token", "create", "nightly", "--role", "viewer").code == 0
    refused = run("token", "create", "nightly", "--role", "viewer")
    assert refused.code == 2
    assert "there is a token named 'nightly' already" in one_line(refused.err)


@pytest.mark.parametrize("argv", [("token", "list"), ("serve",)])
def test_a_store_without_tables_has_no_tokens(run: Run, argv: tuple[str, ...]) -> None:
    """Nor can it be served."""
    refused = run(*argv, "--url", "memory:")
    assert refused.code == 78
    assert "has no table for tokens" in one_line(refused.err)
