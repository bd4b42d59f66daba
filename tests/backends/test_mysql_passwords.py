"""How MySQL asks for passwords, and encrypts: unlike MariaDB, it does so as it comes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pymysql
import pymysql._auth
import pytest

from keepstate.errors import ConfigurationError
from tests.backends.stores import open_url, task
from tests.support.mysql import RELEASE, ask

if TYPE_CHECKING:
    from tests.support.mysql import MysqlServer

pytestmark = pytest.mark.skipif(
    RELEASE.is_mariadb, reason="MariaDB has neither as it comes; `make test-mysql` tries this"
)
PLAIN = "?ssl_disabled=true"


def forget_passwords(mysql: MysqlServer) -> None:
    """Have the server ask everybody for the whole password again, which it does not after the first time."""
    mysql.execute("FLUSH PRIVILEGES")


@pytest.mark.parametrize("query", ["", PLAIN])
def test_a_password_is_taken_with_and_without_encryption(
    mysql: MysqlServer, mysql_url: str, query: str
) -> None:
    """Of a user that was made with no more than a name and a password."""
    kinds = mysql.execute("SELECT DISTINCT plugin FROM mysql.user WHERE user = 'keepstate'")
    assert kinds == [("caching_sha2_password",)]
    forget_passwords(mysql)
    with open_url(mysql_url + query) as store:
        task(store).set("n", 1)
        assert task(store).get("n") == 1


def test_without_encryption_it_takes_a_package(
    mysql: MysqlServer, mysql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The extra brings it; a driver that was installed by itself says what is missing, and nobody waits."""
    forget_passwords(mysql)
    with monkeypatch.context() as patch:
        patch.setattr(pymysql._auth, "_have_cryptography", False)
        with pytest.raises(ConfigurationError, match="'cryptography' package is required"):
            open_url(mysql_url + PLAIN)
        with open_url(mysql_url) as store:
            task(store).set("n", 1)


def test_a_server_that_wants_encryption_refuses_what_has_none(mysql: MysqlServer, mysql_url: str) -> None:
    """At once, as no waiting helps; a connection that says nothing about it is encrypted."""
    with mysql.set_globally(require_secure_transport=1):
        began = time.monotonic()
        with pytest.raises(ConfigurationError, match=r"insecure transport .*\(error 3159\)"):
            open_url(mysql_url + PLAIN)
        assert time.monotonic() - began < 5
        with open_url(mysql_url) as store:
            task(store).set("n", 1)


def test_a_server_s_certificate_is_checked_where_its_authority_is_named(
    mysql: MysqlServer, mysql_url: str
) -> None:
    """And its host's name, unless the URL says not to: certificates that servers make for themselves name none."""
    authority = f"?ssl_ca={mysql.authority}"
    with open_url(f"{mysql_url}{authority}&ssl_check_hostname=false") as store:
        task(store).set("n", 1)
    for query in (authority, "?ssl_verify_cert=true"):
        with pytest.raises(ConfigurationError, match="certificate verify failed"):
            open_url(mysql_url + query)
    assert ask(mysql_url, "SELECT COUNT(*) FROM keepstate_entry") == [(1,)]
