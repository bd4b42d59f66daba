"""The benchmark: that its report is complete. How fast anything is, is never tested."""

import json
import shutil
import subprocess
import sys
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

import pytest

from bench import wrk
from bench.__main__ import SUITES
from bench.budgets import BUDGETS, Budget, Verdict, judge
from bench.contenders import Contender, ContenderError, Group, Load, Manner, Opened, Operation
from bench.machine import Neighbours
from bench.report import UNMEASURED, Run, marks, to_json, to_markdown, write_into
from bench.rounds import Figure, Measurement, measure

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """Run the embedded group once, in few rounds."""
    file = tmp_path_factory.mktemp("bench") / "run.json"
    command = [sys.executable, "-m", "bench", "--quick", "--only", "embedded", "--json", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(file.read_text(encoding="utf-8"))


def test_a_quick_run_measures_every_operation(quick):
    """Each operation is measured on the baseline and on keepstate, as often as was asked for, with a ratio."""
    assert [one["operation"] for one in quick["measurements"]] == ["set", "set, new file", "get", "increment"]
    for one in quick["measurements"]:
        baseline, ours = one["figures"][:2]
        assert (baseline["contender"], ours["contender"]) == ("sqlite3", "keepstate")
        assert baseline["ratio"] == 1
        for figure in (baseline, ours):
            assert figure["samples"] == 15
            assert 0 < figure["lowest"] <= figure["median"] <= figure["highest"]
            assert 0 < figure["lowest_ratio"] <= figure["ratio"] <= figure["highest_ratio"]


def test_everybody_writes_as_durably(quick):
    """Each contender that took part reports, from its own connection, that it syncs at every commit."""
    taking_part = [
        figure for one in quick["measurements"] for figure in one["figures"] if not figure["missing"]
    ]
    assert {figure["manner"]["durability"] for figure in taking_part} == {"WAL, synchronous=FULL"}


def test_who_was_not_measured_is_named_with_the_reason(quick):
    """A rival that is not installed stays in the report."""
    figures = {figure["contender"]: figure for figure in quick["measurements"][0]["figures"]}
    assert list(figures) == ["sqlite3", "keepstate", "diskcache", "sqlitedict", "DBOS step"]
    for figure in figures.values():
        assert bool(figure["missing"]) == (figure["manner"] is None)
        assert not figure["missing"] or "is not installed" in figure["missing"]


def test_a_run_judges_the_budgets_of_its_groups(quick):
    """Every budget of what was measured gets a verdict, and no other."""
    assert [verdict["budget"] for verdict in quick["verdicts"]] == [
        budget.__dict__ for budget in BUDGETS.values() if budget.group == "embedded"
    ]
    assert {verdict["verdict"] for verdict in quick["verdicts"]} <= {"met", "not met", "machine busy"}


def test_a_run_says_what_it_was_made_on(quick):
    """Machine, versions, load and date belong to the figures."""
    assert quick["date"].endswith(" UTC")
    assert {"Processor", "Memory", "File system", "Python", "SQLite"} < set(quick["machine"])
    assert all(quick["machine"].values())


# ------------------------------------------------------------------------------------------ servers, gains


@contextmanager
def server(where: str, *, answers: int, milliseconds: int):
    """Be a contender that answers so many requests a second, or does one thing in so long."""
    load = Load(answers, 2.0, p50=4e6, p99=9e6)
    operations = {"GET": lambda seconds: load, "set": lambda count: [milliseconds * 10**6] * count}
    yield Opened(operations, Manner("1", where))


def contest(*operations: Operation) -> Group:
    """Return a group in which the second contender is ten times as fast."""
    slow = Contender("slow", partial(server, answers=200, milliseconds=30))
    fast = Contender("fast", partial(server, answers=2000, milliseconds=3))
    return Group("any", "Any", (slow, fast), operations, partial(nullcontext, "here"), is_gain=True)


def test_under_load_answers_are_counted():
    """Where a server is loaded, a figure has its answers a second and how long the slowest took, and a ratio of the former."""
    group = contest(Operation("GET", rounds=3, samples=2, warm_up=1, is_load=True))
    (found,) = measure(group, quick=False, on_round=lambda *_: None)
    slow, fast = found.figures
    assert (slow.answers.rate, fast.answers.rate) == (100, 1000)
    assert (fast.median, fast.answers.p99, fast.samples) == (4e6, 9e6, 6000)
    assert (slow.ratio, fast.ratio) == (1, 10)
    run = Run("2030-01-01 00:00 UTC", {"Processor": "any"}, {"any": "Any"}, (found,), ())
    assert "| fast | 1,000 | 1,000 to 1,000 | 4.00 ms | 9.00 ms | 10.00 | 10.00 to 10.00 |" in to_markdown(
        run
    )


def test_a_gain_says_how_many_times_as_fast():
    """In a group of gains, who takes a tenth of the baseline's time has a ratio of ten."""
    group = contest(Operation("set", rounds=3, samples=2, warm_up=1))
    (found,) = measure(group, quick=False, on_round=lambda *_: None)
    assert [figure.ratio for figure in found.figures] == [1, 10]


@pytest.mark.parametrize(("ratio", "says"), [(10, "met"), (9.99, "not met")], ids=["at", "below"])
def test_a_gain_is_met_from_its_limit_on(ratio, says):
    """The budget of a gain is the least that may be measured, and is shown so."""
    budget = Budget("a thing", "server", "GET", "keepstate", 10, at_least=True)
    assert Verdict(budget, ratio).says == says
    assert "| a thing | ≥ 10 |" in to_markdown(run_of(Verdict(budget, ratio)))


def test_where_a_group_can_not_be_measured_all_say_why(monkeypatch):
    """Without the program that makes the load, each contender is reported with how to get it."""
    monkeypatch.setattr(shutil, "which", lambda name: None)

    @contextmanager
    def place():
        yield wrk.version()

    group = Group("any", "Any", contest().contenders, (Operation("GET", 3, 2, 1, is_load=True),), place)
    (found,) = measure(group, quick=False, on_round=lambda *_: None)
    assert {figure.missing for figure in found.figures} == {"wrk is not installed: apt-get install wrk"}


def test_answers_that_are_no_success_are_not_counted(tmp_path, monkeypatch):
    """A server that refuses what it is sent quickly is not fast."""
    said = '{"answers":9,"microseconds":1000000,"p50":1,"p99":2,"refused":1,"broken":0}'
    fake = tmp_path / "wrk"
    fake.write_text(f"#!/bin/sh\necho '{said}'\n")
    fake.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda name: str(fake))
    with pytest.raises(ContenderError, match="1 were no success"):
        wrk.load("http://127.0.0.1:1", "token", "GET", 1)


# ------------------------------------------------------------------------------------------------ the report


def run_of(*verdicts: Verdict, figures: tuple[Figure, ...] = ()) -> Run:
    """Return a run with these verdicts and one measurement."""
    measurement = Measurement("embedded", "set", 3, figures)
    return Run(
        "2030-01-01 00:00 UTC", {"Processor": "any"}, {"embedded": "Embedded"}, (measurement,), verdicts
    )


def verdict_on(ratio: float | None, why: str = "") -> Verdict:
    """Return the verdict on a budget of 1.5."""
    return Verdict(Budget("a thing", "embedded", "set", "keepstate", 1.5, why), ratio)


@pytest.mark.parametrize(
    ("ratio", "says"),
    [(1.5, "met"), (1.51, "not met"), (None, "not measured")],
    ids=["at", "above", "without"],
)
def test_a_budget_is_met_up_to_its_limit(ratio, says):
    """A budget is the most that may be measured; what was not measured is neither met nor missed."""
    assert verdict_on(ratio).says == says


@pytest.mark.parametrize("ratio", [1, 2])
def test_a_busy_machine_decides_nothing(ratio):
    """Where others took the processors, a ratio is shown but neither meets nor misses a budget."""
    assert Verdict(verdict_on(ratio).budget, ratio, calm=False).says == "machine busy"


def test_what_others_take_of_the_processors_is_a_part_of_them():
    """It is known where the system tells, and never below nothing or above everything."""
    neighbours = Neighbours()
    subprocess.run([sys.executable, "-c", "sum(range(10**7))"], check=True)
    share = neighbours.share()
    assert share is None or 0 <= share <= 1.1


def test_a_contender_that_failed_leaves_its_budget_unmeasured():
    """Without a figure there is no verdict, and the run counts as incomplete."""
    broken = Measurement("embedded", "set", 3, (Figure("keepstate", missing="its process died"),))
    verdicts = judge([broken], ["embedded"], calm=True)
    assert {verdict.says for verdict in verdicts} == {"not measured"}
    assert not run_of(*verdicts).complete


def test_a_missed_budget_comes_with_its_reason():
    """The page says why, next to the figures, and only where a budget is missed."""
    assert "- a thing: because." in to_markdown(run_of(verdict_on(2, "because.")))
    assert "because" not in to_markdown(run_of(verdict_on(1, "because.")))


def test_the_tables_replace_the_ones_of_the_run_before(tmp_path):
    """What stands around the markers stays, and writing twice changes nothing."""
    page = tmp_path / "page.md"
    begin, end = marks("usual")
    page.write_text(f"above\n\n{begin}\nold\n{end}\n\nbelow\n", encoding="utf-8")
    run = run_of(verdict_on(1), figures=(Figure("rival", missing="rival is not installed"),))
    write_into(page, run, "usual")
    once = page.read_text(encoding="utf-8")
    write_into(page, run, "usual")
    assert page.read_text(encoding="utf-8") == once
    assert once.startswith(f"above\n\n{begin}\n")
    assert once.endswith(f"{end}\n\nbelow\n")
    assert "old" not in once
    assert "**rival** was not measured: rival is not installed" in once
    assert json.loads(to_json(run))["verdicts"][0]["verdict"] == "met"


def test_a_page_without_markers_is_left_alone(tmp_path):
    """Nothing is written where there is no place for it."""
    page = tmp_path / "page.md"
    page.write_text("text\n", encoding="utf-8")
    with pytest.raises(ValueError, match="has no"):
        write_into(page, run_of(), "usual")
    assert page.read_text(encoding="utf-8") == "text\n"


def test_the_page_shows_every_budget():
    """docs/reference/performance.md is of whole runs, with a verdict on each budget of a suite, or says that there was none."""
    page = (ROOT / "docs" / "reference" / "performance.md").read_text(encoding="utf-8")
    for suite, groups in SUITES.items():
        begin, end = marks(suite)
        table = page.partition(begin)[2].partition(end)[0]
        if table.strip() == UNMEASURED:
            continue
        for budget in BUDGETS.values():
            is_here = f"| {budget.what} | {budget.shown} |" in table
            assert is_here == (budget.group in {group.name for group in groups})
