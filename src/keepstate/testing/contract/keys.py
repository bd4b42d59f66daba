"""Keys and ids: which are taken, which are refused, and that no two are confused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from keepstate.errors import InvalidIdError, InvalidInputError, InvalidKeyError, InvalidTypeError
from keepstate.testing.contract.ground import Ground, attempt, short

if TYPE_CHECKING:
    from collections.abc import Callable

    from keepstate.accessors import TaskStateStore
    from keepstate.store import StateStore

TAKEN_KEYS = [
    "k",
    "a/b/c",
    "/leading",
    "trailing/",
    "a//b",
    "///",
    " ",
    "key ",
    " key",
    "\t",
    "two\nlines",
    "\x01\x7f",
    "é",
    "e\u0301",
    "Ключ",
    "键",
    "🚀",
    "👩\u200d🚀",
    "\u200b",
    "\ufeff",
    "\uffff",
    "\U0010ffff",
    "\u202eabc",
    "k" * 512,
    "🚀" * 512,
    ".hidden",
    "a.b",
    "...",
    "a/.../b",
    "..a/b..",
    "%2e%2e",
    "%s %(key)s {key} :key $1 ?",
    "'; DROP TABLE keepstate_entry; --",
    '"quoted"',
    "back\\slash",
    "NULL",
    "position",
]

REFUSED_KEYS = [
    "",
    "k" * 513,
    "🚀" * 513,
    "a\0b",
    "\0",
    "\ud800",
    "a\udfffb",
    ".",
    "..",
    "./a",
    "a/.",
    "a/./b",
    "../a",
    "a/..",
    "a/../b",
]


class _Text(str):
    __slots__ = ()


NO_KEYS: list[Any] = [None, 1, 1.5, True, b"k", ("k",), ["k"], _Text("k")]

# what databases like to take for the same: by case, accents, normalization, width, trailing space, or prefix
LOOKALIKES = [
    "key",
    "Key",
    "KEY",
    "key ",
    "key  ",
    " key",
    "key\t",
    "kéy",
    "ke\u0301y",
    "kèy",
    "key\u200b",
    "\uff4b\uff45\uff59",
    "\u212aey",
    "strasse",
    "straße",
    "ﬀ",
    "ff",
    "\u0131",
    "i",
    "İ",
    "I",
    "🚀",
    "🛸",
    "0",
    "00",
    "0.0",
    "%",
    "_",
]

REFUSED_IDS: list[Any] = [
    "",
    "i" * 251,
    ".",
    "..",
    "a/b",
    "/",
    "a\0b",
    "a\nb",
    "\x1f",
    "\x7f",
    "\x85",
    "\ud800",
    None,
    1,
    b"id",
    _Text("id"),
]

FOUR_VERBS: dict[str, Callable[[TaskStateStore, Any], object]] = {
    "get": lambda tss, key: tss.get(key),
    "set": lambda tss, key: tss.set(key, 1),
    "delete": lambda tss, key: tss.delete(key),
    "checkpoint": lambda tss, key: list(tss.checkpoint([1], key)),
}

OTHER_VERBS: dict[str, Callable[[TaskStateStore, Any], object]] = {
    "entry": lambda tss, key: tss.entry(key),
    "get_many": lambda tss, key: tss.get_many(["good", key]),
    "set_many": lambda tss, key: tss.set_many({"good": 1, key: 2}),
    "update": lambda tss, key: tss.update(key, lambda _: 1),
    "increment": lambda tss, key: tss.increment(key),
    "history": lambda tss, key: tss.history(key),
    "restore": lambda tss, key: tss.restore(key, 1),
}


class Keys(Ground):
    """Keys and ids, as far as the guide's four verbs and `checkpoint` meet them."""

    @pytest.mark.parametrize("key", TAKEN_KEYS, ids=short)
    def test_a_key_may_be_any_text_within_the_rules(self, store: StateStore, key: str) -> None:
        """Slashes, spaces, emoji and SQL are keys like any other, and come and go alone."""
        tss = attempt(store, 1)
        tss.set("other", "stays")
        assert tss.get(key, "absent") == "absent"
        tss.set(key, {"the": key})
        assert tss.get(key) == {"the": key}
        tss.delete(key)
        assert tss.get(key) is None
        assert tss.get("other") == "stays"

    @pytest.mark.parametrize("verb", FOUR_VERBS)
    @pytest.mark.parametrize("key", REFUSED_KEYS, ids=short)
    def test_a_key_outside_the_rules_is_refused(self, store: StateStore, verb: str, key: str) -> None:
        """Every verb refuses it with an ``InvalidKeyError``, which is a ``ValueError`` and knows the key."""
        with pytest.raises(InvalidKeyError, match="key") as caught:
            FOUR_VERBS[verb](attempt(store, 1), key)
        assert isinstance(caught.value, ValueError)
        assert caught.value.key == key

    @pytest.mark.parametrize("verb", FOUR_VERBS)
    @pytest.mark.parametrize("key", NO_KEYS, ids=short)
    def test_a_key_that_is_no_text_is_refused(self, store: StateStore, verb: str, key: Any) -> None:
        """Every verb refuses it with an ``InvalidTypeError``, which is a ``TypeError`` and names the type."""
        with pytest.raises(InvalidTypeError, match=f"key must be a str, not {type(key).__name__}") as caught:
            FOUR_VERBS[verb](attempt(store, 1), key)
        assert isinstance(caught.value, TypeError)

    def test_keys_that_look_alike_are_apart(self, store: StateStore) -> None:
        """Case, accents, normalization and spaces distinguish keys; deleting one leaves the others."""
        tss = attempt(store, 1)
        for number, key in enumerate(LOOKALIKES):
            tss.set(key, number)
        assert [tss.get(key) for key in LOOKALIKES] == list(range(len(LOOKALIKES)))
        for key in LOOKALIKES[::2]:
            tss.delete(key)
        left = [tss.get(key) for key in LOOKALIKES]
        assert left == [None if number % 2 == 0 else number for number in range(len(LOOKALIKES))]

    @pytest.mark.parametrize("place", ["dag_id", "run_id", "task_id"])
    def test_ids_that_look_alike_are_apart(self, store: StateStore, place: str) -> None:
        """Case, accents, normalization and spaces distinguish dag, run and task ids too."""
        ids: dict[str, Any] = {"dag_id": "d", "run_id": "r", "task_id": "t"}
        names = [name for name in LOOKALIKES if "\t" not in name]
        for number, name in enumerate(names):
            store.task(**{**ids, place: name}).set("k", number)
        found = [store.task(**{**ids, place: name}).get("k") for name in names]
        assert found == list(range(len(names)))

    def test_ids_do_not_run_into_each_other(self, store: StateStore) -> None:
        """Where one id ends and the next begins is never in doubt, and each map index is a task instance."""
        scopes: list[tuple[str, str, str, int]] = [
            ("a", "b", "c", -1),
            ("ab", "c", "d", -1),
            ("a", "bc", "d", -1),
            ('a", "b', "c", "d", -1),
            ("a", "b", "c", 0),
            ("a", "b", "c", 1),
            ("a", "b", "c", 2**31 - 1),
            ("a", "b", "c0", -1),
            ("i" * 250, "🚀" * 250, " ", -1),
        ]
        for number, (dag, run, task, index) in enumerate(scopes):
            store.task(dag, run, task, map_index=index).set("k", number)
        found = [store.task(dag, run, task, map_index=index).get("k") for dag, run, task, index in scopes]
        assert found == list(range(len(scopes)))

    @pytest.mark.parametrize("place", ["dag_id", "run_id", "task_id"])
    @pytest.mark.parametrize("refused", REFUSED_IDS, ids=short)
    def test_an_id_outside_the_rules_is_refused(self, store: StateStore, place: str, refused: Any) -> None:
        """An ``InvalidIdError`` names which of the three it is."""
        ids = {"dag_id": "d", "run_id": "r", "task_id": "t", place: refused}
        with pytest.raises(InvalidIdError, match=place):
            store.task(**ids)

    @pytest.mark.parametrize("index", [-2, 2**31, True, 0.0, "0", None])
    def test_a_map_index_outside_the_rules_is_refused(self, store: StateStore, index: Any) -> None:
        """A map index is a whole number from -1 on."""
        with pytest.raises(InvalidIdError, match="map_index"):
            store.task("d", "r", "t", map_index=index)

    @pytest.mark.parametrize(
        ("facts", "named"),
        [
            ({"try_number": 0}, "try_number"),
            ({"try_number": -1}, "try_number"),
            ({"try_number": True}, "try_number"),
            ({"try_number": "1"}, "try_number"),
            ({"try_number": 1.0}, "try_number"),
            ({"try_number": 2**31}, "try_number"),
            ({"attempt_id": "x"}, "try_number"),
            ({"item": "x"}, "try_number"),
            ({"try_number": 1, "attempt_id": 7}, "attempt_id"),
            ({"try_number": 1, "attempt_id": ""}, "attempt_id"),
            ({"try_number": 1, "attempt_id": "a\0b"}, "attempt_id"),
            ({"try_number": 1, "attempt_id": "x" * 251}, "attempt_id"),
            ({"try_number": 1, "item": 7}, "item"),
            ({"try_number": 1, "item": "\ud800"}, "item"),
            ({"try_number": 1, "item": ""}, "item"),
        ],
    )
    def test_an_attempt_outside_the_rules_is_refused(
        self, store: StateStore, facts: dict[str, Any], named: str
    ) -> None:
        """Try numbers begin at 1; an attempt id and an item are text, and need a try number."""
        with pytest.raises(InvalidIdError, match=named):
            store.task("d", "r", "t", **facts)


class KeysOfEveryVerb(Ground):
    """The same rules, where the verbs beyond the guide's meet keys."""

    @pytest.mark.parametrize("verb", OTHER_VERBS)
    @pytest.mark.parametrize("key", REFUSED_KEYS, ids=short)
    def test_every_other_verb_refuses_a_key_outside_the_rules(
        self, store: StateStore, verb: str, key: str
    ) -> None:
        """With an ``InvalidKeyError`` and nothing written, the good keys beside it neither."""
        with pytest.raises(InvalidKeyError):
            OTHER_VERBS[verb](attempt(store, 1), key)
        assert attempt(store).entries() == []

    @pytest.mark.parametrize("verb", OTHER_VERBS)
    @pytest.mark.parametrize("key", [key for key in NO_KEYS if not isinstance(key, list)], ids=short)
    def test_every_other_verb_refuses_a_key_that_is_no_text(
        self, store: StateStore, verb: str, key: Any
    ) -> None:
        """With an ``InvalidTypeError`` and nothing written."""
        with pytest.raises(InvalidTypeError):
            OTHER_VERBS[verb](attempt(store, 1), key)
        assert attempt(store).entries() == []

    def test_one_text_is_no_list_of_keys(self, store: StateStore) -> None:
        """``get_many("key")`` would read the keys k, e and y, and is refused."""
        with pytest.raises(InvalidTypeError, match="list of keys"):
            attempt(store).get_many("key")

    def test_reading_many_keys(self, store: StateStore) -> None:
        """``get_many`` gives what is there, in the order asked for; asking for nothing gives nothing."""
        tss = attempt(store, 1)
        tss.set_many({key: number for number, key in enumerate(LOOKALIKES)})
        asked = [*reversed(LOOKALIKES), "absent", "key"]
        found = tss.get_many(asked)
        assert list(found) == list(reversed(LOOKALIKES))
        assert [found[key] for key in LOOKALIKES] == list(range(len(LOOKALIKES)))
        assert tss.get_many([]) == {}

    def test_listing_is_in_the_order_of_code_points(self, store: StateStore) -> None:
        """``items`` and ``entries`` are ordered alike on every backend."""
        tss = attempt(store, 1)
        for number, key in enumerate(TAKEN_KEYS):
            tss.set(key, number)
        assert [key for key, _ in tss.items()] == sorted(TAKEN_KEYS)
        assert [entry.key for entry in tss.entries()] == sorted(TAKEN_KEYS)
        assert dict(tss.items()) == {key: number for number, key in enumerate(TAKEN_KEYS)}

    @pytest.mark.parametrize("version", [-1, True, 1.0, "1"])
    def test_an_expected_version_outside_the_rules_is_refused(self, store: StateStore, version: Any) -> None:
        """``if_version`` is a version, or 0."""
        with pytest.raises(InvalidInputError, match="if_version"):
            attempt(store).set("k", 1, if_version=version)
