"""Fixtures that pages may need: the servers of the tests."""

from __future__ import annotations

from tests.support.mysql import mysql, mysql_url
from tests.support.postgres import postgres, postgres_url
from tests.support.ssh_server import ssh_server

__all__ = ["mysql", "mysql_url", "postgres", "postgres_url", "ssh_server"]
