from __future__ import annotations

import dataclasses
import inspect
import re
import sqlite3
from enum import Enum
from typing import TYPE_CHECKING, Any

import pytest

import keepstate
from keepstate import errors, scope, settings
from keepstate.accessors import AssetStateStore, TaskStateStore
from keepstate.backends.sql.migrations import LATEST
from keepstate.testing import ManualClock
from keepstate.testing.spool import SpoolJobSystem
from tests.docs.pages import DOCS
from tests.docs.signatures import shown, squeezed

if TYPE_CHECKING:
    from pathlib import Path

REFERENCE = DOCS / "reference"
TEXT = {page.name: page.read_text(encoding="utf-8") for page in sorted(REFERENCE.glob("*.md"))}

_SIGNATURES = re.compile(r"^```py\n(.*?)^```", re.MULTILINE | re.DOTALL)
_TWIN = re.compile(r"a(?=[a-z])")
PUBLIC = {name: getattr(keepstate, name) for name in keepstate.__all__}
# once its module was imported, the name means that, which can be called like the function
PUBLIC["connect"] = getattr(PUBLIC["connect"], "connect", PUBLIC["connect"])
TESTING = {"ManualClock": ManualClock, "SpoolJobSystem": SpoolJobSystem}
CLASSES = {name: value for name, value in PUBLIC.items() if inspect.isclass(value)}
# a run is addressed through its store, never by this class
RECORDS = [
    value for value in vars(scope).values() if dataclasses.is_dataclass(value) and value is not scope.RunScope
]


def test_pages_show_the_latest_revision_of_the_tables() -> None:
    """What `keepstate doctor` says in the pages is what it says."""
    told = {
        (page.name, int(number))
        for page in DOCS.rglob("*.md")
        for number in re.findall(r"at revision (\d+), the latest", page.read_text(encoding="utf-8"))
    }
    assert told
    assert {number for _, number in told} == {LATEST}, sorted(told)


def _documented() -> dict[str, str]:
    """Return every signature in the reference by its dotted name."""
    found: dict[str, str] = {}
    for text in TEXT.values():
        for block in _SIGNATURES.findall(text):
            for signature in re.split(r"\n(?=\S)", block.strip()):
                name, _, rest = squeezed(signature).partition("(")
                assert name not in found, f"{name} is documented twice"
                found[name] = f"{name}({rest}"
    return found


def _methods(cls: type) -> dict[str, Any]:
    """Return the public methods of a class of ours, with those that it inherits from ours."""
    ours = [base for base in cls.__mro__ if base.__module__.startswith("keepstate")]
    names = {name for base in ours for name in vars(base) if not name.startswith("_")}
    found = {name: inspect.getattr_static(cls, name) for name in names}
    return {
        name: getattr(cls, name)
        for name, value in found.items()
        if inspect.isroutine(value) or isinstance(value, (classmethod, staticmethod))
    }


def _is_twin(cls: type, name: str) -> bool:
    """Whether a method is the awaitable twin of another one, documented by the rule and not one by one."""
    return (
        issubclass(cls, (TaskStateStore, AssetStateStore))
        and name != "acheckpoint"
        and inspect.iscoroutinefunction(getattr(cls, name))
        and hasattr(cls, _TWIN.sub("", name, count=1))
    )


def _callables() -> dict[str, Any]:
    """Return all that must have a signature in the reference, by dotted name."""
    found = {f"keepstate.{name}": value for name, value in PUBLIC.items() if inspect.isfunction(value)}
    for name, cls in {**CLASSES, **TESTING}.items():
        if issubclass(cls, (BaseException, Enum)):
            continue
        found |= {
            f"{name}.{method}": function
            for method, function in _methods(cls).items()
            if not _is_twin(cls, method)
        }
    return found


@pytest.mark.parametrize("name", sorted(_callables()))
def test_callable_is_documented_as_it_is(name: str) -> None:
    """Every public function and method stands in the reference with the signature that it has."""
    assert _documented().get(name) == shown(name, _callables()[name])


def test_no_signature_is_of_something_else() -> None:
    """The reference shows no signature of what does not exist."""
    made = {f"keepstate.{name}" for name in CLASSES}
    assert set(_documented()) - set(_callables()) - made == set()


@pytest.mark.parametrize("name", sorted({*CLASSES} & {name.partition(".")[2] for name in _documented()}))
def test_constructor_is_documented_as_it_is(name: str) -> None:
    """Where the reference shows how an object is made, it is made so."""
    assert _documented()[f"keepstate.{name}"] == shown(f"keepstate.{name}", CLASSES[name])


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_public_name_is_documented(name: str) -> None:
    """Every name that keepstate exports has a place in the reference."""
    places = [page for page, text in TEXT.items() if re.search(rf"^#+ .*\b{name}\b", text, re.MULTILINE)]
    documented = f"keepstate.{name}" in _documented() or f"`keepstate.{name}`" in "".join(TEXT.values())
    assert places or documented, f"give {name} a heading or a signature in docs/reference/"


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_record_is_documented_with_its_fields(record: type) -> None:
    """Every record has a heading, and every field of it a place below."""
    section = _section("records.md", record.__name__)
    fields = [field.name for field in dataclasses.fields(record) if field.init]
    assert [name for name in fields if not re.search(rf"\b{name}\b", section)] == []


def _section(page: str, heading: str) -> str:
    found = re.search(rf"^(#+) {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", TEXT[page], re.MULTILINE | re.DOTALL)
    assert found is not None, f"{page} has no heading {heading!r}"
    return found[2]


# ------------------------------------------------------------------------------------------------- twins


@pytest.mark.parametrize("cls", [TaskStateStore, AssetStateStore])
def test_every_verb_has_its_twin_in_the_list(cls: type) -> None:
    """The list of awaitable twins is complete, and each of its names exists."""
    listed = set(re.findall(r"`(a\w+)`", _section("accessors.md", "Awaitable twins")))
    assert listed == {name for name in _methods(cls) if _is_twin(cls, name)}


# ---------------------------------------------------------------------------------------------- settings


_ROW = re.compile(
    r'^\| <span id="(?P<id>\w+)"></span>`(?P<name>\w+)` \|\s*(?P<default>[^|]*?)\s*\| (?P<meaning>.+) \|$',
    re.MULTILINE,
)


def test_settings_are_documented() -> None:
    """The page of settings has every variable with its default, in the order of the code, and no other."""
    rows = list(_ROW.finditer(TEXT["settings.md"]))
    assert all(row["id"] == row["name"] for row in rows)
    documented = [(row["name"], row["default"].strip().strip("`")) for row in rows]
    assert documented == [
        (variable, "" if default is None else str(default)) for variable, default, _ in settings.describe()
    ]


@pytest.mark.parametrize(("variable", "meaning"), [(v, m) for v, _, m in settings.describe()])
def test_setting_has_a_meaning_in_the_code_too(variable: str, meaning: str) -> None:
    """`keepstate doctor` and the page speak of the same thing: each setting says what it is in one line."""
    assert meaning
    assert "\n" not in meaning, variable


# ------------------------------------------------------------------------------------------------ errors


def test_error_tree_is_the_one_in_the_code() -> None:
    """The page draws the same tree as the top of errors.py, which draws what there is."""
    drawn = re.search(r"^```text\n(.*?)^```", TEXT["errors.md"], re.MULTILINE | re.DOTALL)
    assert drawn is not None
    assert errors.__doc__ is not None
    tree = errors.__doc__.partition("\n\n")[2].partition("\n\n")[0]
    assert drawn[1].strip() == tree.strip()
    depth = {0: "Exception"}
    for line in tree.strip().splitlines():
        found = re.match(r"([│├└─ ]*)(\w+)", line)
        assert found is not None
        level = len(found[1]) // 4
        depth[level + 1] = found[2]
        assert getattr(errors, found[2]).__mro__[1].__name__ == depth[level]


@pytest.mark.parametrize(
    "error",
    [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, BaseException)],
)
def test_error_is_documented(error: type) -> None:
    """Every error has a section with its cause, what to do, and its facts."""
    section = _section("errors.md", error.__name__)
    if error is errors.KeepstateError:
        return
    assert "**Cause.**" in section
    assert "**What to do.**" in section
    facts = list(vars(error).get("__annotations__", {}))
    assert [fact for fact in facts if f"`{fact}`" not in section] == []


# ------------------------------------------------------------------------------------------------ tables


def test_tables_are_documented(tmp_path: Path) -> None:
    """The page of tables has every table and column that a new store has, in that order, and no other."""
    path = tmp_path / "keepstate.db"
    keepstate.connect(f"sqlite:///{path}").close()
    connection = sqlite3.connect(path)
    try:
        query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'keepstate%'"
        tables = {
            name: [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]
            for (name,) in connection.execute(query).fetchall()
        }
    finally:
        connection.close()
    headings = re.findall(r"^## (\w+)$", TEXT["tables.md"], re.MULTILINE)
    assert sorted(headings) == sorted(tables)
    for name, columns in tables.items():
        cells = re.findall(r"^\| (`[^|]+) \|", _section("tables.md", name), re.MULTILINE)
        assert [column for cell in cells for column in re.findall(r"`(\w+)`", cell)] == columns
