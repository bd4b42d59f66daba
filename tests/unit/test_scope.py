"""Scopes, writers, and the small records that readers get."""

from __future__ import annotations

import json
import pickle
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepstate.errors import InvalidIdError
from keepstate.scope import (
    Asset,
    AssetScope,
    CleanupReport,
    RunScope,
    TaskScope,
    Writer,
    asset_digest,
    check_attempt,
    writer_of,
)

ids = st.text(
    st.characters(exclude_characters="/\x7f", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=250
).filter(lambda text: text not in {".", ".."})
indices = st.integers(min_value=-1, max_value=2**31 - 1)


@given(st.tuples(ids, ids, ids, indices), st.tuples(ids, ids, ids, indices))
def test_different_ids_have_different_digests(
    one: tuple[str, str, str, int], other: tuple[str, str, str, int]
) -> None:
    """And equal ones equal digests, of 32 bytes: a scope is found by it."""
    assert len(TaskScope(*one).digest) == 32
    assert (TaskScope(*one).digest == TaskScope(*other).digest) is (one == other)
    assert TaskScope(*one).digest == TaskScope(*one).digest


def test_digests_stay_as_they_are() -> None:
    """They are stored: another way to make them would lose every entry that was written before."""
    assert TaskScope("etl", "2026-11-29", "load").digest.hex() == (
        "204bf9cf53ec95dd8824bfbd89a0eddd288d7222356a2b98074c1d2115a2672a"
    )
    assert RunScope("etl", "2026-11-29").digest.hex() == (
        "74ab821daf731d28a9945be846eade70c31d6a19021781664e632039368755ea"
    )
    assert asset_digest("uri", "s3://é").hex() == (
        "df080df087e8914448a0a92a66f1f911c44814785385ddb4ae9ad448dd597480"
    )


def test_kinds_of_scopes_do_not_meet() -> None:
    """A run, a task instance, and the halves of an asset have digests apart."""
    digests = {
        RunScope("a", "b").digest,
        TaskScope("a", "b", "c").digest,
        TaskScope("a", "b", "c", 0).digest,
        asset_digest("name", "a"),
        asset_digest("uri", "a"),
    }
    assert len(digests) == 5


@pytest.mark.parametrize(
    ("scope", "text"),
    [
        (TaskScope("etl", "r 1", "load"), "etl / r 1 / load"),
        (TaskScope("etl", "r 1", "load", 3), "etl / r 1 / load [3]"),
        (RunScope("etl", "r 1"), "etl / r 1"),
        (AssetScope("orders"), "asset orders"),
        (AssetScope(uri="s3://orders"), "asset s3://orders"),
        (AssetScope("orders", "s3://orders"), "asset orders"),
    ],
)
def test_a_scope_reads_well(scope: TaskScope | RunScope | AssetScope, text: str) -> None:
    """In messages and logs; and it survives pickling, compares and hashes by its ids."""
    assert str(scope) == text
    again = pickle.loads(pickle.dumps(scope))
    assert again == scope
    assert hash(again) == hash(scope)


def test_an_assets_uri_is_its_name_unless_given() -> None:
    """As in Airflow."""
    assert Asset("orders") == Asset("orders", "orders")
    assert Asset("orders", "s3://orders").uri == "s3://orders"
    for wrong in ("", "a\nb", "n" * 1501, None):
        with pytest.raises(InvalidIdError):
            Asset(wrong)  # type: ignore[arg-type]


@given(
    st.builds(
        Writer,
        st.sampled_from(["task", "watcher", "api", "cli", "web"]),
        dag_id=st.none() | ids,
        run_id=st.none() | ids,
        task_id=st.none() | ids,
        map_index=st.none() | indices,
        try_number=st.none() | st.integers(min_value=1),
        name=st.none() | st.text(),
    )
)
def test_a_writer_comes_back_from_its_text(writer: Writer) -> None:
    """Whatever is known of it; what is not known takes no room."""
    text = writer.to_text()
    assert Writer.from_text(text) == writer
    assert None not in json.loads(text).values()


def test_what_a_newer_keepstate_says_of_a_writer_is_ignored() -> None:
    """So that an older one still shows the rest."""
    assert Writer.from_text('{"kind":"task","try_number":2,"host":"h"}') == Writer("task", try_number=2)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "5",
        '"kind"',
        "[]",
        "{}",
        '{"kind":5}',
        '{"kind":"api","name":"\\ud800"}',
        "[" * 100_000,
    ],
    ids=range(10),
)
def test_a_text_that_names_nobody(text: str) -> None:
    """Whoever has written it: it is told by one kind of error, or taken for nobody known."""
    with pytest.raises(ValueError):
        Writer.from_text(text)
    assert writer_of(text) is None


@pytest.mark.parametrize("wrong", [0, -1, True, 1.0, "1", None, 2**31])
def test_a_try_number_is_a_whole_number_from_1_on(wrong: Any) -> None:
    """That every database can hold."""
    with pytest.raises(InvalidIdError, match="try_number"):
        check_attempt(wrong)
    check_attempt(1)
    check_attempt(2**31 - 1, "0190-…/x", "🚀" * 250)


def test_an_id_object_is_told_to_be_text() -> None:
    """An engine's id may be an object, as Airflow's UUID: the message says what to do."""
    import uuid

    with pytest.raises(InvalidIdError, match=r"attempt_id must be a str, not UUID.*str\(\)"):
        check_attempt(1, uuid.UUID(int=1))


def test_the_total_of_a_report_is_of_all_kinds() -> None:
    """Every count of rows is in it."""
    counts = [item.name for item in fields(CleanupReport) if item.type == "int"]
    report = CleanupReport(**{name: 10**place for place, name in enumerate(counts)})
    assert report.total == int("1" * len(counts))
