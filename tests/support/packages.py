"""Programs of the operating system's packages: where they are, and getting those that are missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support.daemons import UnavailableError

KEYRINGS = Path("/usr/share/keyrings")
UNPACKED = Path(__file__).parents[2] / ".cache" / "packages"


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


@dataclass(frozen=True)
class Release:
    """A release of Debian's or Ubuntu's that need not be the one that runs here."""

    archive: str
    suite: str
    keyring: str
    """The file of the keys that sign it, and the package that brings the file."""

    def keys(self) -> Path:
        """Return the file of its keys, got where it is missing."""
        here = KEYRINGS / f"{self.keyring}.gpg"
        if here.exists():
            return here
        if self == DEBIAN_UNSTABLE:
            install(self.keyring)
            return here
        return unpacked("ubuntu-keyring", DEBIAN_UNSTABLE) / "usr/share/keyrings" / here.name


DEBIAN_UNSTABLE = Release("http://deb.debian.org/debian", "sid", "debian-archive-keyring")
UBUNTU_24_04 = Release("http://archive.ubuntu.com/ubuntu", "noble", "ubuntu-archive-keyring")
UBUNTU_26_04 = Release("http://archive.ubuntu.com/ubuntu", "resolute", "ubuntu-archive-keyring")


def where_unpacked(package: str, release: Release) -> Path:
    """Return the folder of an unpacked package, which may not be there."""
    return UNPACKED / f"{package}-{release.suite}"


def unpacked(package: str, release: Release) -> Path:
    """Return a folder with a package and all that it needs, as files: nothing of it is installed.

    The folder is kept, and made where it is missing. It takes apt and dpkg, and no rights. What is in it was signed by who
    releases it.
    """
    target = where_unpacked(package, release)
    if target.exists():
        return target
    apt, files = (target.with_name(f"{target.name}.{part}") for part in ("apt", "files"))
    for folder in (apt, files):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    for folder in ("lists/partial", "archives/partial"):
        (apt / folder).mkdir(parents=True)
    # nothing is there, so all that it needs is fetched
    (apt / "status").touch()
    source = f"deb [signed-by={release.keys()}] {release.archive} {release.suite} main\n"
    (apt / "sources.list").write_text(source, encoding="utf-8")
    settings = {
        "Dir::State": apt,
        "Dir::State::status": apt / "status",
        "Dir::State::lists": apt / "lists",
        "Dir::Cache": apt,
        "Dir::Etc::sourcelist": apt / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "Acquire::Languages": "none",
        "APT::Sandbox::User": "",
    }
    command = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in settings.items())]
    try:
        subprocess.run([*command, "update"], check=True)
        get = ["install", "-y", "--no-install-recommends", "--download-only", package]
        subprocess.run([*command, *get], check=True, stdout=subprocess.DEVNULL)
        for archive in sorted((apt / "archives").glob("*.deb")):
            subprocess.run(["dpkg-deb", "--extract", archive, files], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise UnavailableError(f"{package} of {release.suite} could not be fetched: {error}") from error
    shutil.rmtree(apt)
    files.rename(target)
    return target
