"""The protocol as JSON: what goes in comes out, what is wrong is refused with its place, and the format stays as it is."""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import subprocess
import sys
from contextlib import suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepstate import errors
from keepstate.backends import base
from keepstate.backends.answers import (
    Applied,
    Begun,
    ChangeNotice,
    GridRun,
    GridTask,
    KeyOfAsset,
    KeyOfTask,
    Outcome,
    Reading,
    StoredEntry,
    StoredVersion,
)
from keepstate.backends.base import Backend
from keepstate.backends.requests import (
    Batch,
    Begin,
    Behalf,
    Clear,
    Delete,
    End,
    Fence,
    HistoryPolicy,
    Holder,
    Put,
    Session,
)
from keepstate.errors import (
    BackendError,
    InvalidIdError,
    InvalidInputError,
    InvalidKeyError,
    InvalidValueError,
    KeepstateError,
    StaleAttemptError,
    UnsupportedError,
    VersionConflictError,
)
from keepstate.scope import (
    AssetInfo,
    AssetScope,
    Attempt,
    CleanupReport,
    DagInfo,
    RunInfo,
    RunScope,
    TaskInstanceInfo,
    TaskScope,
    Writer,
)
from keepstate.values import is_damaged
from keepstate.wire import (
    VERBS,
    answer_schema,
    decode_answer,
    decode_error,
    decode_request,
    encode_answer,
    encode_error,
    encode_request,
    request_schema,
    takeable,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW = 1_795_000_000_000_000
SCOPE = TaskScope("etl", "2026-11-29", "load", 3)
RUN = RunScope("etl", "2026-11-29")
ASSET = AssetScope("orders", "s3://orders")
FENCE = Fence(2, "01900000-0000-7000-8000-000000000001", "item", 4)
WRITER = Writer("task", "etl", "2026-11-29", "load", 3, 2, "ada")
POLICY = HistoryPolicy(5, 2, 100)
WHEN = datetime(2026, 11, 29, 1, 2, 3, 4, tzinfo=timezone.utc)
BATCH = Batch(
    SCOPE,
    (Put("k", '{"é":[1,2.5,null]}', NOW + 1, 0), Put("l", "1", None), Delete("m", 7), Delete("n")),
    NOW,
    WRITER,
    FENCE,
    Session("s", 9),
    POLICY,
    Behalf(SCOPE, FENCE),
    known=True,
)

REQUESTS: list[tuple[str, dict[str, Any]]] = [
    (
        "read",
        {
            "scope": SCOPE,
            "keys": ["a", "b/c"],
            "now": NOW,
            "fence": FENCE,
            "writer": WRITER,
            "history": POLICY,
        },
    ),
    ("read", {"scope": ASSET, "keys": None, "now": NOW, "limit": 5, "offset": 2}),
    ("apply", {"batch": BATCH}),
    ("apply", {"batch": Batch(AssetScope(uri="x"), (Delete("k"),), NOW, Writer("api"))}),
    ("clear", {"request": Clear(SCOPE, NOW, WRITER, FENCE, Session("s", 1), POLICY, True, True, None, True)}),
    ("history", {"scope": SCOPE, "key": "k", "now": NOW, "limit": 3}),
    (
        "begin",
        {
            "request": Begin(
                RUN, "id", Holder("h", 1, "then"), NOW, 30, 2, "item", True, Fence(1, "x"), POLICY
            )
        },
    ),
    ("beat", {"scope": RUN, "fence": FENCE, "now": NOW}),
    ("end", {"request": End(SCOPE, FENCE, "success", NOW, "why", "null", "hash", True, POLICY)}),
    ("attempts", {"scope": SCOPE}),
    ("outcome", {"scope": RUN}),
    ("changes", {"scope": ASSET, "after": 5, "now": NOW}),
    ("dags", {"pattern": "e*", "limit": 5, "offset": 1}),
    ("dag_ids", {"pattern": "e*", "limit": 5, "offset": 1}),
    ("count_dags", {"pattern": None}),
    ("runs", {"dag_id": "etl", "limit": 5, "offset": 1}),
    ("count_runs", {"pattern": "e?l"}),
    ("run", {"scope": RUN}),
    ("task_instance", {"scope": SCOPE, "now": NOW}),
    ("count_task_instances", {"dag_id": "etl", "run_id": "r"}),
    ("count_task_instances", {"dag_id": "etl", "run_id": "r", "task_id": "load"}),
    ("task_instances", {"dag_id": "etl", "run_id": "r", "task_id": "load", "now": NOW}),
    ("task_instances", {"dag_id": "etl", "run_id": "r", "now": NOW, "limit": 4, "offset": 3}),
    ("grid", {"dag_id": None, "now": NOW, "pattern": "e*", "limit": 4, "offset": 3}),
    ("keys", {"now": NOW, "pattern": "e*", "runs": 5, "limit": 4}),
    ("keys_of_assets", {"now": NOW, "pattern": "e*", "limit": 4}),
    ("assets", {"now": NOW, "pattern": "*", "limit": None, "offset": 0}),
    ("count_assets", {}),
    ("asset", {"which": 7, "now": NOW}),
    ("asset", {"which": ASSET, "now": NOW}),
    ("delete_run", {"dag_id": "etl", "run_id": "r", "now": NOW}),
    ("delete_asset", {"scope": ASSET, "now": NOW}),
    ("purge", {"now": NOW, "batch_size": 10, "idle": None, "history": POLICY, "dry_run": True}),
    ("check_writable", {}),
]

ANSWERS: list[tuple[str, Any]] = [
    (
        "read",
        Reading(
            3, None, (StoredEntry("k", '"é"', 1, NOW, None, "{}"), StoredEntry("l", "1", 2, 3, 4)), 2, True
        ),
    ),
    ("apply", Applied(3, 1, reset=True, repeated=True)),
    ("clear", Applied(0, 0)),
    ("history", [StoredVersion("k", 1, "set", None, 3, "abc", NOW, NOW + 1, None)]),
    ("begin", Begun(3, 1, (1, 2), reset=True)),
    ("beat", None),
    ("end", None),
    ("attempts", [Attempt(1, None, 1, "running", "h", 7, WHEN, WHEN, None, "why", "then")]),
    ("outcome", Outcome(1, "5", None)),
    ("outcome", None),
    (
        "changes",
        (
            4,
            [
                ChangeNotice(SCOPE, "k", 4, "set", "1", NOW, None),
                ChangeNotice(ASSET, "k", 4, "delete", None, NOW, "w"),
            ],
        ),
    ),
    ("dags", [DagInfo("etl", 3, "r", None, WHEN, WHEN)]),
    ("dag_ids", ["etl", "sales"]),
    ("count_dags", 3),
    ("runs", [RunInfo("etl", "r", "success", 2, WHEN, WHEN)]),
    ("count_runs", 0),
    ("run", RunInfo("etl", "r", None, None, WHEN, WHEN)),
    ("task_instance", TaskInstanceInfo(SCOPE, "failed", 3, 8, 2, WHEN, WHEN)),
    ("task_instance", None),
    ("count_task_instances", 1),
    ("task_instances", [TaskInstanceInfo(SCOPE, None, None, 8, 2, WHEN, WHEN)]),
    (
        "grid",
        [
            GridRun(
                RunInfo("etl", "r", None, None, WHEN, WHEN),
                (GridTask("load", (None, "failed"), 3, 2, None, 7),),
            )
        ],
    ),
    ("keys", [KeyOfTask(SCOPE, "k")]),
    ("keys_of_assets", [KeyOfAsset(4, "orders", "s3://orders", "k")]),
    ("assets", [AssetInfo(1, "orders", "s3://orders", 4, WHEN, WHEN)]),
    ("count_assets", 9),
    ("asset", None),
    ("delete_run", 4),
    ("delete_asset", True),
    ("purge", CleanupReport(1, 2, 3, 4, 5, dry_run=True)),
    ("purge", None),
    ("check_writable", None),
]


def through_json(data: Any) -> Any:
    """Return what is left of data on the way through a channel."""
    return json.loads(json.dumps(data))


# ---------------------------------------------------------------------------------------------- there and back


def test_every_verb_travels() -> None:
    """All that the protocol has, but `close`, which ends one side only."""
    public = {name for name in vars(Backend) if not name.startswith("_")} - {"close"}
    assert set(VERBS) == {name for name in public if callable(vars(Backend)[name])}
    assert {verb for verb, _ in REQUESTS} == {verb for verb, _ in ANSWERS} == set(VERBS)


@pytest.mark.parametrize(("verb", "arguments"), REQUESTS)
def test_a_request_arrives_as_it_was_sent(verb: str, arguments: dict[str, Any]) -> None:
    """But for its time, which is that of whoever receives it."""
    sent = through_json(encode_request(verb, arguments))
    got = decode_request(verb, sent, now=NOW)
    signature = inspect.signature(vars(Backend)[verb])
    assert signature.bind(None, **got).arguments.keys() == {"self", *got}
    assert got == {name: value for name, value in arguments.items() if name in got}
    left_out = set(arguments) - set(got)
    assert all(arguments[name] == signature.parameters[name].default for name in left_out)


@pytest.mark.parametrize(("verb", "answer"), ANSWERS)
def test_an_answer_arrives_as_it_was_given(verb: str, answer: Any) -> None:
    """In value and in type, times included."""
    got = decode_answer(verb, through_json(encode_answer(verb, answer)))
    assert got == answer
    assert type(got) is type(answer)


def test_the_time_of_a_request_does_not_travel() -> None:
    """It is stamped where the state is kept, within the request too; a sender that names one is refused."""
    sent = encode_request("apply", {"batch": BATCH})
    assert "now" not in sent
    assert "now" not in sent["batch"]
    assert decode_request("apply", sent, now=5)["batch"].now == 5
    assert (
        decode_request("changes", encode_request("changes", {"scope": SCOPE, "after": 0}), now=7)["now"] == 7
    )
    with pytest.raises(InvalidInputError, match=r"^request\.batch: has 'now', which is not known here"):
        decode_request("apply", {"batch": {**sent["batch"], "now": 1}}, now=5)


def test_a_cleanup_may_go_on_as_of_an_earlier_time() -> None:
    """Of one cleanup's batches all are of one time, and never of one to come."""
    asked = {"batch_size": 1, "idle": None, "history": POLICY}
    for as_of, now in ((None, 10), (4, 4), (99, 10)):
        got = decode_request("purge", encode_request("purge", {**asked, "as_of": as_of}), now=10)
        assert got == {**asked, "now": now}


def test_what_is_at_its_default_is_left_out() -> None:
    """So requests are short, and the defaults are part of the format: these may not change within a version of it."""
    assert encode_request("read", {"scope": SCOPE, "keys": ["k"]}) == {
        "scope": {"task": {"dag_id": "etl", "run_id": "2026-11-29", "task_id": "load", "map_index": 3}},
        "keys": ["k"],
    }
    defaults = {
        f"{name}.{one.name}": one.default_factory() if one.default is dataclasses.MISSING else one.default
        for name, kind in {**vars(base)}.items()
        if dataclasses.is_dataclass(kind) and name in DEFAULTS_OF
        for one in dataclasses.fields(kind)
        if one.init and (one.default, one.default_factory) != (dataclasses.MISSING, dataclasses.MISSING)
    }
    assert {
        name: default for name, default in defaults.items() if default is not None and default is not False
    } == {
        "Batch.history": HistoryPolicy(20, 7, 65_535),
        "Begin.history": HistoryPolicy(20, 7, 65_535),
        "Begun.lost": (),
        "Clear.history": HistoryPolicy(20, 7, 65_535),
        "CleanupReport.attempts": 0,
        "CleanupReport.entries": 0,
        "CleanupReport.history": 0,
        "CleanupReport.scopes": 0,
        "CleanupReport.sessions": 0,
        "End.history": HistoryPolicy(20, 7, 65_535),
        "HistoryPolicy.days": 7,
        "HistoryPolicy.limit": 20,
        "HistoryPolicy.value_bytes": 65_535,
        "Reading.entries": (),
        "TaskScope.map_index": -1,
    }


DEFAULTS_OF = {
    "Applied", "AssetScope", "Attempt", "Batch", "Begin", "Begun", "Behalf", "CleanupReport", "Clear", "Delete", "End",
    "Fence", "HistoryPolicy", "Outcome", "Put", "Reading", "StoredEntry", "StoredVersion", "TaskScope", "Writer",
}  # fmt: skip


# ------------------------------------------------------------------------------------------------- refusals


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return the request of ``BATCH`` with one thing in it changed, or taken away."""
    sent = through_json(encode_request("apply", {"batch": BATCH}))
    *way, last = path.split(".")
    place: Any = sent
    for step in way:
        place = place[int(step) if step.isdigit() else step]
    if value is ...:
        del place[last]
    else:
        place[int(last) if last.isdigit() else last] = value
    return sent


@pytest.mark.parametrize(
    ("path", "value", "refusal"),
    [
        ("batch", None, "request.batch: must be an object, not None"),
        ("batch", ..., "request: lacks 'batch'"),
        ("more", 1, "request: has 'more', which is not known here"),
        (
            "batch.scope",
            {"task": {}, "run": {}},
            "request.batch.scope: must be an object with one of 'task', 'asset'",
        ),
        ("batch.scope", {"run": {}}, "request.batch.scope: must be one of 'task', 'asset', not 'run'"),
        ("batch.scope.task.dag_id", 5, "request.batch.scope.task.dag_id: must be a text, not 5"),
        ("batch.scope.task.dag_id", "a\0b", "request.batch.scope.task.dag_id: has a NUL character"),
        (
            "batch.scope.task.map_index",
            True,
            "request.batch.scope.task.map_index: must be a whole number, not True",
        ),
        (
            "batch.scope.task.map_index",
            1.0,
            "request.batch.scope.task.map_index: must be a whole number, not 1.0",
        ),
        ("batch.changes", {}, "request.batch.changes: must be a list, not an object"),
        ("batch.changes", [], "at least one change"),
        ("batch.changes.1", {"put": []}, "request.batch.changes[1].put: must be an object, not a list"),
        ("batch.changes.1.put.more", 1, "request.batch.changes[1].put: has 'more'"),
        ("batch.changes.1.put.key", "k", "each key once"),
        ("batch.changes.0.put.expires_at", 10**17 * 3, "expires_at must be a whole number from 0 to"),
        (
            "batch.changes.0.put.expires_at",
            2**70,
            "request.batch.changes[0].put.expires_at: is a number of more than 64 bits",
        ),
        ("batch.changes.0.put.expected", -1, "expected must be a whole number from 0"),
        ("batch.changes.0.put.text", "not JSON", "the text 'not JSON' is no JSON"),
        ("batch.changes.0.put.text", "[" * 100_000, "is no JSON"),
        ("batch.changes.0.put.text", "[" * 300 + "]" * 300, "nested deeper than 200 levels"),
        ("batch.changes.0.put.text", "null", "value is None"),
        ("batch.changes.0.put.text", "NaN", "value is nan"),
        (
            "batch.changes.0.put.text",
            "\ud800",
            "request.batch.changes[0].put.text: has a NUL character or a lone surrogate",
        ),
        ("batch.changes.0.put.text", '"\\ud800"', "value has a lone surrogate"),
        ("batch.writer.kind", "root", "kind must be one of api, cli, task, watcher, web, not 'root'"),
        ("batch.writer.name", "n" * 251, "name must have 1 to 250 characters, not 251"),
        ("batch.session.number", -1, "number must be a whole number from 0"),
        ("batch.session.id", "", "session must have 1 to 200 characters"),
        ("batch.history.limit", 10_001, "limit must be a whole number from 0 to 10000"),
        ("batch.known", 1, "request.batch.known: must be true or false, not 1"),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(path: str, value: Any, refusal: str) -> None:
    """Whatever the sender is: nothing that another reader would stumble over gets in."""
    with pytest.raises((InvalidInputError, errors.InvalidTypeError)) as caught:
        decode_request("apply", changed(path, value), now=NOW)
    assert refusal in str(caught.value)


@pytest.mark.parametrize(
    ("path", "value", "kind"),
    [
        ("batch.scope.task.dag_id", "a/b", InvalidIdError),
        ("batch.fence.try_number", 0, InvalidIdError),
        ("batch.changes.0.put.key", "..", InvalidKeyError),
        ("batch.changes.2.delete.key", "", InvalidKeyError),
        ("batch.changes.0.put.text", '{"a":Infinity}', InvalidValueError),
    ],
)
def test_the_accessors_rules_hold_here_too(path: str, value: Any, kind: type[KeepstateError]) -> None:
    """With the accessors' errors, so that they come out on the other side as if raised there."""
    with pytest.raises(kind):
        decode_request("apply", changed(path, value), now=NOW)


def test_a_text_is_stored_in_its_compact_form() -> None:
    """Sizes and hashes are of that, whoever wrote it."""
    sent = changed("batch.changes.0.put.text", ' { "a" : [ 1.0e1 , "\\u00e9" ] } ')
    assert decode_request("apply", sent, now=NOW)["batch"].changes[0].text == '{"a":[10.0,"é"]}'


@pytest.mark.parametrize(
    ("verb", "data"),
    [
        ("read", {"scope": {"task": {"dag_id": "d", "run_id": "r", "task_id": "t"}}, "keys": ["a/./b"]}),
        ("read", {"scope": {"asset": {}}, "keys": None}),
        ("runs", {"limit": -1}),
        ("runs", {"limit": None}),
        ("runs", {"dag_id": "a/b"}),
        ("runs", {"run_id": "a/b"}),
        ("task_instances", {"dag_id": "d", "run_id": "r", "task_id": "a/b"}),
        ("count_task_instances", {"dag_id": "d", "run_id": "r", "task_id": "\x9b"}),
        ("assets", {"offset": 2**40}),
        ("dags", {"pattern": "*a" * 1501}),
        ("asset", {"which": "1"}),
        (
            "end",
            {
                "request": {
                    "scope": {"run": {"dag_id": "d", "run_id": "r"}},
                    "fence": {"try_number": 1},
                    "state": "?",
                }
            },
        ),
        ("purge", {"batch_size": 0, "idle": None, "history": {}}),
        ("history", []),
        ("outcome", None),
    ],
)
def test_arguments_are_bounded_too(verb: str, data: Any) -> None:
    """Each refusal is one of those that a caller knows."""
    with pytest.raises(InvalidInputError):
        decode_request(verb, data, now=NOW)


@pytest.mark.parametrize("verb", ["close", "set", "__init__", "_read", ""])
def test_a_verb_that_the_protocol_lacks_is_refused(verb: str) -> None:
    """In both directions."""
    with pytest.raises(UnsupportedError, match="does not know the verb"):
        decode_request(verb, {}, now=NOW)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["scope", "task", "batch", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(verb=st.sampled_from(VERBS), data=json_values)
def test_no_json_does_anything_but_arrive_or_be_refused(verb: str, data: Any) -> None:
    """By an error of keepstate's."""
    with suppress(InvalidInputError, errors.InvalidTypeError):
        decode_request(verb, data, now=NOW)


def test_of_an_answer_what_is_new_is_ignored() -> None:
    """A newer server may say more; what it says must be readable all the same."""
    assert decode_answer("apply", {"version": 1, "incarnation": 1, "colour": "red"}) == Applied(1, 1)
    for data in ({"version": 1}, {"version": "1", "incarnation": 1}, [], None):
        with pytest.raises(InvalidInputError, match=r"^answer"):
            decode_answer("apply", data)
    with pytest.raises(InvalidInputError, match="no time that a calendar has"):
        decode_answer(
            "dags",
            [{**encode_answer("dags", [DagInfo("d", 1, "r", None, WHEN, WHEN)])[0], "updated_at": 2**62}],
        )


# --------------------------------------------------------------------------------------------------- errors


ALL_ERRORS = sorted(
    (kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, KeepstateError)),
    key=lambda kind: kind.__name__,
)


@pytest.mark.parametrize("kind", ALL_ERRORS)
def test_an_error_is_raised_alike_on_the_other_side(kind: type[KeepstateError]) -> None:
    """Of the same class, with the same words and facts."""
    error = kind("what happened", key="k\ud800", number=5, nothing=None)
    got = decode_error(through_json(encode_error(error)))
    assert type(got) is kind
    assert str(got) == str(error)
    assert vars(got) == vars(error)


def test_facts_that_json_cannot_hold_stay_behind() -> None:
    """And so does the cause."""
    error = BackendError("it failed", address="here", engine=object(), nan=math.nan)
    error.__cause__ = OSError("secret")
    sent = encode_error(error)
    assert sent["facts"]["address"] == "here"
    assert "engine" not in sent["facts"]
    assert "secret" not in json.dumps(sent)


def test_an_error_of_our_users_comes_out_as_ours() -> None:
    """A class that only one side knows is its nearest base; a kind that nobody here knows is a ``BackendError``."""

    class LocalError(StaleAttemptError):
        pass

    assert type(decode_error(encode_error(LocalError("late")))) is StaleAttemptError
    assert type(decode_error({"detail": "new", "kind": "NewError", "facts": {}})) is BackendError
    for data in (
        None,
        [],
        {},
        {"detail": 1, "kind": "x"},
        {"detail": "x"},
        {"detail": "x", "kind": "y", "facts": 1},
    ):
        assert decode_error(data) is None
    assert type(decode_error({"detail": "x", "kind": "Any", "facts": {}})) is BackendError
    conflict = base.conflict("k", 1, 2)
    assert vars(decode_error(encode_error(conflict)) or conflict) == {"key": "k", "expected": 1, "actual": 2}
    assert isinstance(conflict, VersionConflictError)


# -------------------------------------------------------------------------------------------------- schemas


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_schemas(verb: str) -> None:
    """They are JSON, they are closed, and every reference in them leads somewhere."""
    for schema in (request_schema(verb), answer_schema(verb)):
        text = json.dumps(schema)
        names = {part.partition('"')[0] for part in text.split("#/$defs/")[1:]}
        assert names <= schema.get("$defs", {}).keys()
        assert all(schema["$defs"][name] for name in names)


def leaves(schema: Any, value: Any, parts: dict[str, Any]) -> Iterator[tuple[Any, Any, dict[str, Any]]]:
    """Yield (holder, name, schema) of each text and number in a request, with what the schema says of it."""
    for branch in schema.get("anyOf", schema.get("oneOf", [schema])):
        if "$ref" in branch:
            yield from leaves(parts[branch["$ref"].rpartition("/")[2]], value, parts)
            continue
        for name in value.keys() & branch.get("properties", {}).keys() if isinstance(value, dict) else ():
            inner = branch["properties"][name]
            if isinstance(value[name], (str, int)):
                yield value, name, inner["anyOf"][0] if "anyOf" in inner else inner
            yield from leaves(inner, value[name], parts)
        for one in value if isinstance(value, list) and "items" in branch else ():
            yield from leaves(branch["items"], one, parts)


def outside(schema: dict[str, Any]) -> list[Any]:
    """Return what lies just outside of a schema's bounds."""
    return [
        *([schema["minimum"] - 1] if "minimum" in schema else []),
        *([schema["maximum"] + 1] if "maximum" in schema else []),
        *([""] if schema.get("minLength") else []),
        *(["x" * (schema["maxLength"] + 1)] if "maxLength" in schema else []),
        *(["x\0"] if "pattern" in schema else []),
        *(["?"] if "enum" in schema else []),
    ]


def inside(schema: dict[str, Any]) -> list[Any]:
    """Return what lies at a schema's bounds."""
    return [
        *([schema["minimum"]] if "minimum" in schema else []),
        *([schema["maximum"]] if "maximum" in schema else []),
        *(["x" * schema["minLength"]] if "minLength" in schema else []),
        *(["x" * schema["maxLength"]] if "maxLength" in schema else []),
        *schema.get("enum", []),
    ]


@pytest.mark.parametrize(("verb", "arguments"), REQUESTS)
def test_the_schemas_say_what_is_refused(verb: str, arguments: dict[str, Any]) -> None:
    """Each bound is one of what is asked for: what lies at it is taken, and what lies beyond is not."""
    schema = request_schema(verb)
    sent = through_json(encode_request(verb, arguments))
    for holder, name, bounds in leaves(schema, sent, schema.get("$defs", {})):
        as_it_was = holder[name]
        for wrong in outside(bounds):
            holder[name] = wrong
            with pytest.raises((InvalidInputError, errors.InvalidTypeError)):
                decode_request(verb, sent, now=NOW)
        for right in inside(bounds):
            holder[name] = right
            decode_request(verb, sent, now=NOW)
        holder[name] = as_it_was


def test_the_schemas_say_what_is_required() -> None:
    """And name the parts of the protocol as the code does."""
    schema = request_schema("apply")
    assert schema["required"] == ["batch"]
    assert schema["$defs"]["Batch"]["required"] == ["scope", "changes", "writer"]
    assert "now" not in schema["$defs"]["Batch"]["properties"]
    assert schema["$defs"]["TaskScope"]["additionalProperties"] is False


def test_a_worker_needs_the_standard_library_alone() -> None:
    """For the codec; what carries it is another matter."""
    code = (
        "import sys; import keepstate.wire; "
        "print(sorted({name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names)))"
    )
    found = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    ours = {name for name in eval(found.stdout) if not name.startswith("_")}
    assert ours == {"keepstate"}


def test_an_answer_is_taken_whatever_somebody_has_written_into_the_table() -> None:
    """A text of bytes, or with a NUL, comes as what shows it: no value either. All else comes as it was."""
    entries = tuple(
        StoredEntry(key, text, 1, 2, None)  # type: ignore[arg-type] - as SQLite may return it
        for key, text in (("bytes", b"1"), ("nul", '"\0"'), ("good", '"\\u0000"'))
    )
    answer = takeable(encode_answer("read", Reading(1, 1, entries)))
    found = decode_answer("read", json.loads(json.dumps(answer)))
    assert [entry.text for entry in found.entries] == ["b'1'", repr('"\0"'), '"\\u0000"']
    assert [is_damaged(entry.text) for entry in found.entries] == [True, True, False]
