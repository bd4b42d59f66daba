"""What there is to say of keepstate in the Airflow of this environment, for `keepstate doctor`: the way of its tasks, tried."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from keepstate.connect import route
from keepstate.integrations.airflow import configuration, hooks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from keepstate.settings import Settings

_SECONDS = 5.0
_NO_TOKEN, _NO_ROUTE = 401, 404

NATIVE = "native"
"""The way of tasks whose state Airflow 3.3 keeps itself."""
SUPERVISOR = "supervisor"
"""The way through a task's supervisor and the API server, to Airflow's metadata database."""
_WHY = {
    "KEEPSTATE_URL": "KEEPSTATE_URL, where tasks go directly",
    "backend": "[state_store] backend, a class that is not keepstate's",
    "database": "Airflow's metadata database, which tasks open themselves",
    SUPERVISOR: "Airflow's metadata database, which tasks reach through their supervisor and the API server",
    "store backend": "[state_store] backend is keepstate's; without KEEPSTATE_URL, Airflow's metadata database",
    NATIVE: "Airflow's own state store; keepstate is not named as its backend",
}


@dataclass(frozen=True)
class Found:
    """What was looked at, whether it is as it should be, and what to know or do."""

    name: str
    ok: bool
    detail: str
    warns: bool = False


def installed() -> str | None:
    """Return the version of the Airflow of this environment, without loading it, or ``None``."""
    for name in ("apache-airflow-core", "apache-airflow"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


def way(settings: Settings) -> tuple[str, str]:
    """Return by which way the tasks of this Airflow reach their store, and in words."""
    place = route(None, settings)
    if hooks.series(installed() or "") == "3.3":
        found = "store backend" if settings.backend == configuration.BACKEND else NATIVE
    elif place != "embedded":
        found = place
    else:
        found = "database" if hooks.series(installed() or "") == "2.11" else SUPERVISOR
    return found, _WHY[found]


def findings(chosen: str) -> Iterator[Found]:
    """Yield what is found on this way."""
    yield _entered()
    if chosen == SUPERVISOR and hooks.is_known():
        yield _served()


def _entered() -> Found:
    """Look whether Airflow has loaded keepstate, as it does in every process."""
    importlib.import_module("airflow")
    importlib.import_module("airflow.settings")
    here = installed()
    if not hooks.is_known():
        return Found(
            "airflow",
            ok=True,
            warns=True,
            detail=f"keepstate does not know Airflow {here}, and leaves it alone",
        )
    if not any(isinstance(finder, hooks.Finder) for finder in sys.meta_path):
        detail = f"Airflow {here} does not load keepstate: install it here by pip, so that its entry points are known"
        return Found("airflow", ok=False, detail=detail)
    return Found("airflow", ok=True, detail=f"Airflow {here} loads keepstate in its processes")


def _served() -> Found:
    """Ask the API server that tasks would ask, whether it has keepstate."""
    from airflow.configuration import conf

    base = conf.get("api", "base_url", fallback="") or "/"
    if base.startswith("/"):
        base = f"http://localhost:8080{base}"
    url = conf.get("core", "execution_api_server_url", fallback="") or f"{base.rstrip('/')}/execution/"
    # without a token: that keepstate asks for one is all there is to know
    request = Request(f"{url.rstrip('/')}/keepstate/doctor", data=b"{}", method="POST")  # noqa: S310 - Airflow's own
    try:
        with urlopen(request, timeout=_SECONDS) as response:  # noqa: S310 - as above
            status = response.status
    except HTTPError as exc:
        status = exc.code
    except (URLError, OSError, ValueError) as exc:
        reason = getattr(exc, "reason", exc)
        detail = f"no API server answers at {url}, and tasks need one: {reason}"
        return Found("API server", ok=True, warns=True, detail=detail)
    if status == _NO_TOKEN:
        return Found("API server", ok=True, detail=f"the one at {url} has keepstate")
    if status == _NO_ROUTE:
        detail = (
            f"the one at {url} has no keepstate: install it there too and restart it, or set KEEPSTATE_URL"
        )
        return Found("API server", ok=False, detail=detail)
    return Found("API server", ok=False, detail=f"the one at {url} answers {status}")
