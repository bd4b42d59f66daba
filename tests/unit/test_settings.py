"""The environment, read into one typed object."""

from __future__ import annotations

import ast
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

import keepstate
from keepstate.errors import ConfigurationError
from keepstate.settings import Settings, describe, shown_url, survey

WHOLE_NUMBERS = {
    "AIRFLOW__STATE_STORE__DEFAULT_RETENTION_DAYS": ("default_retention_days", 0, 1_000_000),
    "AIRFLOW__STATE_STORE__STATE_CLEANUP_BATCH_SIZE": ("state_cleanup_batch_size", 0, 1_000_000),
    "AIRFLOW__STATE_STORE__MAX_VALUE_STORAGE_BYTES": ("max_value_storage_bytes", 0, 2**31 - 1),
    "KEEPSTATE_HISTORY_LIMIT": ("history_limit", 0, 10_000),
    "KEEPSTATE_HISTORY_DAYS": ("history_days", 0, 36_500),
    "KEEPSTATE_MAP_INDEX": ("map_index", -1, 2**31 - 1),
    "KEEPSTATE_TRY_NUMBER": ("try_number", 1, 2**31 - 1),
}


def test_without_an_environment_the_guides_defaults_hold() -> None:
    """30 days, no clearing on success, 65,535 bytes, keepstate's own store."""
    settings = Settings.load({})
    assert settings == Settings()
    assert settings.default_retention_days == 30
    assert settings.clear_on_success is False
    assert settings.state_cleanup_batch_size == 0
    assert settings.max_value_storage_bytes == 65_535
    assert (settings.backend, settings.url, settings.home) == (None, None, None)
    assert (settings.history_limit, settings.history_days) == (20, 7)


@pytest.mark.parametrize("variable", WHOLE_NUMBERS)
def test_a_whole_number_is_taken_within_its_range(variable: str) -> None:
    """Both ends included."""
    name, low, high = WHOLE_NUMBERS[variable]
    for number in (low, high):
        assert getattr(Settings.load({variable: str(number)}), name) == number


@pytest.mark.parametrize("variable", WHOLE_NUMBERS)
def test_a_whole_number_is_refused_outside_its_range(variable: str) -> None:
    """With the variable, the value, and what is allowed."""
    _, low, high = WHOLE_NUMBERS[variable]
    for text in (str(low - 1), str(high + 1), "1.5", "many", "1e3", "0x10", "-"):
        with pytest.raises(ConfigurationError) as caught:
            Settings.load({variable: text})
        assert str(caught.value) == f"{variable} is {text!r}, but must be a whole number from {low} to {high}"
        assert vars(caught.value) == {"variable": variable, "value": text}


@pytest.mark.parametrize("text", ["True", "true", "t", "1", "yes", "ON"])
def test_a_flag_is_set(text: str) -> None:
    """By the words that Airflow takes."""
    assert Settings.load({"AIRFLOW__STATE_STORE__CLEAR_ON_SUCCESS": text}).clear_on_success is True


@pytest.mark.parametrize("text", ["False", "false", "f", "0", "no", "off"])
def test_a_flag_is_not_set(text: str) -> None:
    """Likewise."""
    assert Settings.load({"AIRFLOW__STATE_STORE__CLEAR_ON_SUCCESS": text}).clear_on_success is False


@pytest.mark.parametrize("text", ["2", "maybe", "None", "truee"])
def test_another_word_for_a_flag_is_refused(text: str) -> None:
    """It would be guessed either way."""
    with pytest.raises(ConfigurationError, match=r"CLEAR_ON_SUCCESS is .* but must be True or False"):
        Settings.load({"AIRFLOW__STATE_STORE__CLEAR_ON_SUCCESS": text})


@pytest.mark.parametrize(
    ("variable", "name", "good", "bad"),
    [
        (
            "KEEPSTATE_RETRY_TIMEOUT",
            "retry_timeout",
            ["0", "0.5", "86400"],
            ["-1", "86401", "nan", "inf", "x"],
        ),
        ("KEEPSTATE_HEARTBEAT", "heartbeat", ["0.05", "10", "3600"], ["0", "0.01", "3601", "nan", "x"]),
    ],
)
def test_seconds_are_taken_within_their_range(
    variable: str, name: str, good: list[str], bad: list[str]
) -> None:
    """Fractions too; what is no number, or none that one can wait, is refused."""
    for text in good:
        assert getattr(Settings.load({variable: text}), name) == float(text)
    for text in bad:
        with pytest.raises(ConfigurationError, match=f"{variable} is .* a number of seconds from"):
            Settings.load({variable: text})


def test_an_empty_variable_counts_as_unset() -> None:
    """As shells and container files leave them behind."""
    assert Settings.load({item[0]: "" for item in describe()}) == Settings()


def test_texts_are_taken_as_they_are() -> None:
    """Paths, urls and ids are judged where they are used."""
    settings = Settings.load({"KEEPSTATE_URL": " x ", "KEEPSTATE_DAG_ID": "né", "KEEPSTATE_HOME": "~/s"})
    assert (settings.url, settings.dag_id, settings.home) == (" x ", "né", "~/s")


def test_by_default_the_process_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """And only when asked."""
    monkeypatch.setenv("KEEPSTATE_HISTORY_DAYS", "3")
    assert Settings.load().history_days == 3
    assert Settings().history_days == 7


def test_every_setting_is_described() -> None:
    """With a variable of its own, whose name says whose it is, its default, and its meaning."""
    rows = describe()
    assert len({row[0] for row in rows}) == len(rows) == len(fields(Settings))
    for variable, default, meaning in rows:
        assert variable.startswith(("KEEPSTATE_", "AIRFLOW__STATE_STORE__"))
        assert meaning
        assert meaning == meaning.strip().rstrip(".")
        assert default == getattr(Settings(), _field_of(variable))


def _field_of(variable: str) -> str:
    return next(item.name for item in fields(Settings) if item.metadata["variable"] == variable)


def test_a_survey_refuses_nothing() -> None:
    """It shows what is in force, what is wrong, and what means nothing to this version."""
    rows = {
        row[0]: row[1:]
        for row in survey(
            {"KEEPSTATE_HISTORY_DAYS": "3", "KEEPSTATE_HISTORY_LIMIT": "x", "KEEPSTATE_TYPO": "1"}
        )
    }
    assert rows["KEEPSTATE_HISTORY_DAYS"] == (3, "environment", None)
    value, source, problem = rows["KEEPSTATE_HISTORY_LIMIT"]
    assert (value, source) == ("x", "environment")
    assert "whole number" in str(problem)
    assert rows["KEEPSTATE_HEARTBEAT"] == (10.0, "default", None)
    assert rows["KEEPSTATE_TYPO"][:2] == (None, "unknown")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("memory:", "memory:"),
        ("state.db", "state.db"),
        ("sqlite:////srv/a@b.db", "sqlite:////srv/a@b.db"),
        ("sqlite://u:hunter2@h/db", "sqlite:…"),
        ("postgresql://u:hunter2@h:5432/db", "postgresql://u:***@h:5432/db"),
        ("postgresql+psycopg://u@[::1]/db?password=hunter2", "postgresql+psycopg://u@[::1]/db"),
        ("postgresql://h/db?user=u&password=hun@ter2", "postgresql:…"),
        ("postgresql://u:12?hunter2@h/db", "postgresql:…"),
        ("postgresql://u:12/hunter2@h/db", "postgresql:…"),
        ("postgresql://u:12#hunter2@h/db", "postgresql:…"),
        ("postgresql://u:p@hunter2@h/db", "postgresql:…"),
        ("postgresql:/u:hunter2@h/db", "postgresql:…"),
        ("postgresql:u:hunter2@h", "postgresql:…"),
        ("redis://hunter2@h", "redis:…"),
        ("https://state.example.com:8484/", "https://state.example.com:8484"),
        ("http://[::1]:8484", "http://[::1]:8484"),
        ("https://hunter2@state.example.com", "https:…"),
        ("https://u:hunter2@state.example.com", "https:…"),
        ("https://state.example.com/hunter2", "https:…"),
        ("https://state.example.com?token=hunter2", "https:…"),
        ("https://state.example.com#hunter2", "https:…"),
        ("u:hunter2@h/db", "u:…"),
        ("//u:hunter2@h/db", "…"),
        ("//hunter2", "…"),
        ("host=h user=u password=hunter2", "…"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    """Of what can't surely be taken apart only the scheme is shown; and no ``repr`` repeats it."""
    assert shown_url(url) == shown
    settings = Settings.load({"KEEPSTATE_URL": url})
    assert settings.url == url
    assert "hunter2" not in repr(settings)
    assert "hunter2" not in str(survey({"KEEPSTATE_URL": url, "KEEPSTATE_TOKEN": "hunter2"}))


@pytest.mark.parametrize("text", ["kst_1_hunter2", "hunter2 hunter2", "hunter2\n", "hünter2", "hunter2\x7f"])
def test_a_token_is_never_shown(text: str) -> None:
    """Neither where it is used nor where it is refused for what no header can hold."""
    shown = [str(survey({"KEEPSTATE_TOKEN": text}))]
    if text == "kst_1_hunter2":
        settings = Settings.load({"KEEPSTATE_TOKEN": text})
        assert settings.token == text
        shown.append(repr(settings))
    else:
        with pytest.raises(ConfigurationError, match="KEEPSTATE_TOKEN") as caught:
            Settings.load({"KEEPSTATE_TOKEN": text})
        shown += [str(caught.value), str(vars(caught.value))]
    assert "***" in shown[0]
    assert not [line for line in shown if "hunter2" in line or "hünter2" in line]


def test_settings_do_not_change() -> None:
    """What was loaded stays."""
    with pytest.raises(FrozenInstanceError):
        Settings().history_days = 1  # type: ignore[misc]


def test_leases_and_idle_times_come_from_them() -> None:
    """Three heartbeats; the default retention, or never."""
    assert Settings(heartbeat=2.0).lease == 6_000_000
    assert Settings(default_retention_days=2).idle_scope_micros == 2 * 86_400_000_000
    assert Settings(default_retention_days=0).idle_scope_micros is None


def _reads_environment(tree: ast.AST) -> bool:
    """Whether code reads variables; handing the whole of them on to a child, ``{**os.environ, …}``, is no reading."""
    handed_on = {
        id(value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True)
        if key is None
    }
    names = {"environ", "environb", "getenv"}
    return any(
        (isinstance(node, ast.Attribute) and node.attr in names and id(node) not in handed_on)
        or (isinstance(node, ast.ImportFrom) and names & {alias.name for alias in node.names})
        for node in ast.walk(tree)
    )


def test_nothing_else_reads_the_environment() -> None:
    """Not in the library; its testing kit and the workers of the demo are programs of their own."""
    package = Path(keepstate.__file__).parent
    readers = {
        str(file.relative_to(package))
        for file in package.rglob("*.py")
        if _reads_environment(ast.parse(file.read_text(encoding="utf-8")))
    }
    assert {reader for reader in readers if not reader.startswith(("testing/", "demo/"))} == {"settings.py"}
