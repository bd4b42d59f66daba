"""Getting packages of the operating system."""

from __future__ import annotations

import os
import subprocess


def install(package: str) -> None:
    """Install a package of Debian's or Ubuntu's, as root or with sudo."""
    root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run([*root, "apt-get", "update", "-qq"], check=True, env=environment)
    command = [*root, "apt-get", "install", "-y", "-qq", "--no-install-recommends", package]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
