"""Programs of the operating system's packages: where they are, and getting those that are missing."""

from __future__ import annotations

import os
import shutil
import subprocess

from tests.support.daemons import UnavailableError


def install(package: str) -> None:
    """Install a package of Debian's or Ubuntu's, as root or with sudo."""
    root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run([*root, "apt-get", "update", "-qq"], check=True, env=environment)
    command = [*root, "apt-get", "install", "-y", "-qq", "--no-install-recommends", package]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)


def found(program: str, *, of: str, package: str, target: str) -> str:
    """Return where a program is. Raises ``UnavailableError`` saying how to get what it is of."""
    path = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if path is None:
        raise UnavailableError(
            f"there is no {of}; `make {target}` installs one, or: apt-get install {package}"
        )
    return path
