"""The servers that a store on MySQL may be on: MariaDB as the system has it, and releases of MySQL itself.

MySQL is in no release of Debian's, and one of Ubuntu's has one. So each is unpacked from a release that has it, with the C library
that it was made for, and run by that library's own loader.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from tests.support.daemons import UnavailableError, give_away, open_to_all, run_as_owner
from tests.support.packages import (
    DEBIAN_UNSTABLE,
    UBUNTU_24_04,
    UBUNTU_26_04,
    Release,
    found,
    install,
    unpacked,
    where_unpacked,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


class ServerRelease(Protocol):
    """A release of a server, and how it differs from others."""

    @property
    def is_mariadb(self) -> bool:
        """Whether it is MariaDB, and not MySQL."""
        ...

    def get(self) -> None:
        """Get it where it is missing."""
        ...

    def command(self, directory: Path) -> list[str]:
        """Return what starts a server whose files are in a folder, to be followed by options.

        Raises ``UnavailableError`` saying how to get it.
        """
        ...

    def make(self, command: Sequence[str], directory: Path, data: Path, users: str) -> None:
        """Make the system tables, and users by statements of one line each."""
        ...


@dataclass(frozen=True)
class Mariadb:
    """The system's package, of whichever version."""

    package: ClassVar = "mariadb-server-core"
    is_mariadb: ClassVar = True
    system_tables: ClassVar = (
        "mysql_system_tables.sql",
        "mysql_performance_tables.sql",
        "mysql_system_tables_data.sql",
    )

    def get(self) -> None:
        """See `ServerRelease`."""
        try:
            self._binary()
        except UnavailableError:
            install(self.package)

    def command(self, directory: Path) -> list[str]:
        """See `ServerRelease`."""
        return [self._binary(), "--no-defaults", "--innodb-log-file-size=16M"]

    def make(self, command: Sequence[str], directory: Path, data: Path, users: str) -> None:
        """See `ServerRelease`. The tables are made by what the package has for that."""
        data.mkdir()
        give_away(data)
        parts = [
            "CREATE DATABASE mysql;\nUSE mysql;\n",
            "SET @auth_root_socket = NULL, @skip_auth_anonymous = 1, @current_hostname = 'localhost';\n",
            *(Path("/usr/share/mysql", name).read_text(encoding="utf-8") for name in self.system_tables),
            "FLUSH PRIVILEGES;\n",
            users,
        ]
        _prepare([*command, "--bootstrap"], directory, says="".join(parts))

    def _binary(self) -> str:
        return found("mariadbd", of="MariaDB", package=self.package, target="test")


@dataclass(frozen=True)
class Mysql:
    """One version of MySQL, from the release of Debian's or Ubuntu's that has it."""

    version: str
    """As in "8.0"."""
    package: str
    release: Release
    is_mariadb: ClassVar = False

    def get(self) -> None:
        """See `ServerRelease`. Raises ``UnavailableError`` where the release has another version by now."""
        unpacked(self.package, self.release)
        said = subprocess.run(
            [*self._run_from(self._folder), "--version"], check=True, capture_output=True, text=True
        ).stdout
        if f"Ver {self.version}." not in said:
            shutil.rmtree(self._folder)
            raise UnavailableError(
                f"{self.release.suite} has another MySQL than {self.version} by now: {said}"
            )

    def command(self, directory: Path) -> list[str]:
        """See `ServerRelease`."""
        folder = self._folder
        if not folder.exists():
            raise UnavailableError(f"there is no MySQL {self.version}; `make test-mysql` gets it")
        try:
            run_as_owner([*self._run_from(folder), "--version"], directory)
        except (PermissionError, subprocess.CalledProcessError):
            folder = directory / "install"
            if not folder.exists():
                shutil.copytree(self._folder, folder, symlinks=True)
                open_to_all(folder)
        share = folder / "usr/share/mysql"
        # where it was made for is not where it is
        options = {"character-sets-dir": share / "charsets", "lc-messages-dir": share, "secure-file-priv": ""}
        options |= {"innodb-redo-log-capacity": "32M", "mysqlx": "OFF"}
        return [
            *self._run_from(folder),
            "--no-defaults",
            *(f"--{name}={value}" for name, value in options.items()),
        ]

    def make(self, command: Sequence[str], directory: Path, data: Path, users: str) -> None:
        """See `ServerRelease`."""
        statements = directory / "users.sql"
        statements.write_text(users, encoding="utf-8")
        give_away(statements)
        _prepare([*command, "--initialize-insecure", f"--init-file={statements}"], directory)

    @property
    def _folder(self) -> Path:
        return where_unpacked(self.package, self.release)

    @staticmethod
    def _run_from(folder: Path) -> list[str]:
        (loader,) = folder.glob("usr/lib/*-linux-gnu/ld-linux-*.so.*")
        libraries = f"{loader.parent}:{folder / 'usr/lib/mysql/private'}"
        return [str(loader), "--library-path", libraries, str(folder / "usr/sbin/mysqld")]


def _prepare(command: Sequence[str], directory: Path, *, says: str = "") -> None:
    try:
        run_as_owner(command, directory, says=says.encode())
    except subprocess.CalledProcessError as error:
        said = error.stdout.decode(errors="replace")[-3000:]
        raise UnavailableError(f"{command[0]} could not make its system tables:\n{said}") from error


MYSQL = {
    one.version: one
    for one in (
        Mysql("8.0", "mysql-server-core-8.0", UBUNTU_24_04),
        Mysql("8.4", "mysql-server-core", UBUNTU_26_04),
        Mysql("9.7", "mysql-server-core", DEBIAN_UNSTABLE),
    )
}
RELEASES: dict[str, ServerRelease] = {"mariadb": Mariadb(), **MYSQL}


def main() -> None:
    """Get every version of MySQL, and say which there are."""
    for release in MYSQL.values():
        release.get()
    sys.stdout.write("\n".join([*MYSQL, ""]))


if __name__ == "__main__":
    main()
