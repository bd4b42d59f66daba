"""`keepstate doctor`."""

from __future__ import annotations

import platform
import sqlite3
import time
import uuid
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Any, Protocol, cast

from keepstate.cli import options, output
from keepstate.cli.declared import Option
from keepstate.cli.exit_codes import ExitCode, exit_code_of
from keepstate.cli.stores import AIRFLOW, demand_airflow, looked_after, opened
from keepstate.connect import route
from keepstate.errors import ConfigurationError, KeepstateError, UnsupportedError
from keepstate.integrations.airflow import checkup, configuration
from keepstate.scope import Writer
from keepstate.settings import Settings, describe, survey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.text import Text

    from keepstate.backends.answers import Admission
    from keepstate.store import StateStore

# a person waits for the answer
_PATIENCE = 5.0
_ROUTES = {
    "argument": "--url",
    "KEEPSTATE_URL": "KEEPSTATE_URL",
    "backend": "AIRFLOW__STATE_STORE__BACKEND",
    "embedded": "embedded, as neither --url nor KEEPSTATE_URL is given",
}


class _Server(Protocol):
    """A backend behind a server, which looks at a token."""

    def admission(self) -> Admission | None:
        """Return what the server takes the token for, or ``None`` where it does not tell."""


@dataclass
class Finding:
    """What was looked at, whether it is as it should be, and what to know or do."""

    name: str
    ok: bool
    detail: str
    code: int = ExitCode.OK
    warns: bool = False


@dataclass
class Report:
    """All that `doctor` found."""

    facts: dict[str, Any] = field(default_factory=dict)
    settings: list[dict[str, Any]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def code(self) -> int:
        """The exit code: that of the first thing that is wrong."""
        return next((finding.code for finding in self.findings if not finding.ok), ExitCode.OK)


def doctor_(
    everything: Annotated[
        bool, Option("--all", "-a", help="Also show the settings that are at their default.")
    ] = False,
    as_json: options.AsJson = False,
    url: options.Url = None,
) -> int:
    """Show which store and settings are used, test the store, and report problems.

    It shows the settings that are set; --all and --json show every setting. A test entry is written, read and removed
    without a trace. A missing store is created, as by any other use. The exit code is 0 if everything works, else
    that of the first problem. In an environment with Airflow, and without a URL, it checks how Airflow's tasks reach
    their store.

    Examples:
      keepstate doctor
      keepstate doctor --url sqlite:////srv/state.db --json
    """
    report = Report()
    report.facts = {
        "keepstate": version("keepstate"),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
    }
    if url == AIRFLOW or (url is None and checkup.installed() is not None):
        _look_into_airflow(report)
    else:
        _look_at_settings(report, {})
        if report.code == ExitCode.OK:
            _look_at_store(report, url, Settings.load(), *_ways(url))
    if as_json:
        output.put_json(
            {
                "ok": report.code == ExitCode.OK,
                **report.facts,
                "settings": report.settings,
                "checks": [
                    {"name": found.name, "ok": found.ok, "warning": found.warns, "detail": found.detail}
                    for found in report.findings
                ],
            }
        )
    else:
        _draw(report, everything=everything)
    return report.code


def _ways(url: str | None) -> tuple[str, str]:
    way = route(url, Settings.load())
    return way, _ROUTES[way]


def _look_into_airflow(report: Report) -> None:
    """Look at the way of the tasks of the Airflow that is here, and at the store that it leads to."""
    demand_airflow()
    report.facts["airflow"] = checkup.installed()
    _look_at_settings(report, configuration.written())
    if report.code != ExitCode.OK:
        return
    settings = configuration.load()
    way, why = checkup.way(settings)
    report.facts |= {"route": way, "why": why}
    for found in checkup.findings(way):
        code = ExitCode.OK if found.ok else ExitCode.CONFIGURATION
        report.findings.append(Finding(found.name, found.ok, found.detail, code, found.warns))
    if way == checkup.NATIVE:
        # looking at a store would make its tables
        return
    known = len(report.findings)
    _look_at_store(report, AIRFLOW, settings, way, why)
    served = any(one.name == "API server" and one.ok and not one.warns for one in report.findings)
    for trouble in [one for one in report.findings[known:] if served and not one.ok]:
        # the API server opens the database, and tasks ask that
        trouble.ok, trouble.warns = True, True
        trouble.detail = f"this machine can't open it, and tasks here need not: {trouble.detail}"


def _look_at_settings(report: Report, airflow: Mapping[str, str]) -> None:
    wrong = 0
    for variable, value, source, problem in survey(airflow=airflow):
        report.settings.append({"variable": variable, "value": value, "source": source})
        if source == "unknown":
            close = get_close_matches(variable, [name for name, *_ in describe()], n=1)
            guess = f"; did you mean {close[0]}?" if close else ""
            report.findings.append(
                Finding(variable, ok=True, warns=True, detail=f"is ignored: {problem}{guess}")
            )
        elif problem is not None:
            wrong += 1
            report.findings.append(Finding("settings", ok=False, detail=problem, code=ExitCode.CONFIGURATION))
    if not wrong:
        report.findings.append(Finding("settings", ok=True, detail="every value can be used"))


def _look_at_store(report: Report, url: str | None, settings: Settings, way: str, why: str) -> None:
    report.facts |= {"route": way, "why": why}
    impatient = replace(settings, retry_timeout=min(settings.retry_timeout, _PATIENCE))
    name = "store"
    try:
        _look_at_tables(report, url, impatient)
        with opened(url, impatient) as store:
            report.facts["address"] = store.backend.address
            if store.backend.address.startswith(("http://", "https://")):
                name = "server"
                detail, admission = _ask(store)
                report.findings.append(Finding("server", ok=True, detail=detail))
                if admission is not None:
                    report.findings.append(_look_at_token(admission))
                return
            report.findings.append(Finding("store", ok=True, detail=f"{store.backend.address} is open"))
            name = "test entry"
            report.findings.append(Finding("test entry", ok=True, detail=_try_out(store)))
    except KeepstateError as exc:
        report.findings.append(Finding(name, ok=False, detail=str(exc), code=exit_code_of(exc)))


def _look_at_tables(report: Report, url: str | None, settings: Settings) -> None:
    try:
        tables = looked_after(url, settings)
    except UnsupportedError:
        return
    try:
        report.facts["address"] = tables.address
        current = tables.current()
        report.facts["revision"] = {"current": current, "latest": tables.latest}
        problems = tables.problems() if current == tables.latest else []
    finally:
        tables.close()
    if problems:
        report.findings.append(Finding("tables", ok=False, detail="; ".join(problems), code=ExitCode.IO))
        return
    detail = f"at revision {current}, the latest, and complete"
    if current != tables.latest:
        # a newer revision is refused when the store is opened
        detail = (
            "to be made" if current is None else f"to be brought from revision {current} to {tables.latest}"
        )
    report.findings.append(Finding("tables", ok=True, detail=detail))


def _ask(store: StateStore) -> tuple[str, Admission | None]:
    """Ask a server for what every token may: whether and as what it admits this one, and whether its database takes writes.

    A test entry would need the right to delete what it leaves, which a worker does not have.
    """
    begun = time.perf_counter()
    store.backend.count_dags()
    answered = time.perf_counter() - begun
    admission = cast("_Server", store.backend).admission()
    return (
        f"{store.backend.address} admits the token, in {answered * 1000:.1f} ms, and its database takes writes",
        admission,
    )


def _look_at_token(admission: Admission) -> Finding:
    """Say what a token may do: the server admits one with which no task can run, and people use such ones on purpose."""
    from keepstate.server.roles import ROLES, Right, Role

    detail = f"has the role {admission.role}"
    if admission.dags is not None:
        detail += f", for dags that match {admission.dags!r}"
    if admission.role not in {role.value for role in Role}:
        # a newer server's
        return Finding("token", ok=True, detail=detail)
    rights = ROLES[Role(admission.role)]
    if Right.RUN in rights:
        return Finding("token", ok=True, detail=f"{detail}; tasks can run with it")
    may = ", ".join(right.value for right in Right if right in rights)
    return Finding(
        "token",
        ok=True,
        warns=True,
        detail=f"{detail}; it may {may}, but tasks can't run with it: give them one of the role worker",
    )


def _try_out(store: StateStore) -> str:
    """Write, read and remove an entry of an asset that nobody has; return how long that took."""
    name = f"keepstate-doctor-{uuid.uuid4()}"
    asset = store.asset(name, writer=Writer("cli"))
    value = {"text": "é🎉", "numbers": [1, -2.5]}
    times = []
    try:
        begun = time.perf_counter()
        asset.set("test", value)
        times.append(("written", time.perf_counter() - begun))
        begun = time.perf_counter()
        found = asset.get("test")
        times.append(("read", time.perf_counter() - begun))
        if found != value:
            raise ConfigurationError(f"a test entry came back as {found!r:.200} instead of {value!r}")
    finally:
        begun = time.perf_counter()
        try:
            store.delete_asset(name)
        except UnsupportedError:
            asset.clear()
        times.append(("removed", time.perf_counter() - begun))
    return ", ".join(f"{what} in {seconds * 1000:.1f} ms" for what, seconds in times)


def _verdict(found: Finding) -> Text:
    from keepstate.cli.tables import styled

    if not found.ok:
        return styled("WRONG", "bold red")
    return styled("warning", "yellow") if found.warns else styled("ok", "green")


def _draw(report: Report, *, everything: bool) -> None:
    from keepstate.cli import tables

    facts = report.facts
    rows: list[tuple[str, Any]] = [
        (name, facts[name]) for name in ("keepstate", "python", "sqlite", "airflow") if name in facts
    ]
    if "route" in facts:
        address = "" if facts["route"] == checkup.NATIVE else facts.get("address", "unknown")
        rows.append(("store", f"{address} ({facts['why']})" if address else facts["why"]))
    tables.draw((tables.Column(""), tables.Column("", fold=True)), rows)
    output.put("")
    settings = [one for one in report.settings if everything or one["source"] != "default"]
    if settings:
        tables.draw(
            (tables.Column("SETTING"), tables.Column("VALUE", fold=True), tables.Column("FROM")),
            [(s["variable"], "-" if s["value"] is None else str(s["value"]), s["source"]) for s in settings],
        )
        output.put("")
    tables.draw(
        (tables.Column(""), tables.Column("CHECK"), tables.Column("FOUND", fold=True)),
        [
            (
                _verdict(found),
                found.name,
                found.detail,
            )
            for found in report.findings
        ],
    )
