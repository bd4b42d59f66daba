"""What all tests share: real databases and a real SSH server, and an environment that names no store of the developer's."""

from __future__ import annotations

import os
import signal

import pytest

# A job in a shell's background, or under nohup, is started with signals ignored, and so would all be that tests start.
for _number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number is signal.SIGINT else signal.SIG_DFL)

# its assertions show what they compared
pytest.register_assert_rewrite("tests.backends.promises")

pytest_plugins = ["tests.support.mysql", "tests.support.postgres", "tests.support.ssh_server"]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what is tried on a MySQL server, which is one of several: a test that asks for one, or is named after it."""
    if "mysql" in getattr(item, "fixturenames", ()) or "mysql" in item.nodeid:
        item.add_marker("mysql")


@pytest.fixture(autouse=True, scope="session")
def _no_settings_from_outside() -> None:
    """A developer's own settings don't reach the tests, nor the processes that they start."""
    for name in list(os.environ):
        if name.startswith(("KEEPSTATE_", "AIRFLOW__STATE_STORE__")):
            del os.environ[name]
