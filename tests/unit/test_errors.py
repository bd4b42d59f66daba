"""The tree of errors: as it is drawn, and across process boundaries."""

from __future__ import annotations

import copy
import inspect
import pickle
import re

import pytest

from keepstate import errors

CLASSES = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, errors.KeepstateError)
]


def _drawn() -> dict[str, tuple[str | None, str | None]]:
    """Read the tree in the module's docstring: name -> (its parent, the builtin that it also is)."""
    found: dict[str, tuple[str | None, str | None]] = {}
    line_of_ancestors: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"(?P<indent>[│├└─ ]*)(?P<name>\w+Error)\b(?: +\(also (?P<also>\w+)\))?", line)
        if match is None:
            continue
        depth = len(match["indent"]) // 4
        del line_of_ancestors[depth:]
        found[match["name"]] = (line_of_ancestors[-1] if line_of_ancestors else None, match["also"])
        line_of_ancestors.append(match["name"])
    return found


def test_the_tree_is_drawn_as_it_is() -> None:
    """Every class is in the drawing, under its parent, with the builtin that it also is."""
    built: dict[str, tuple[str | None, str | None]] = {}
    for cls in CLASSES:
        parents = [base.__name__ for base in cls.__bases__ if base in CLASSES]
        others = [base.__name__ for base in cls.__bases__ if base not in CLASSES and base is not Exception]
        built[cls.__name__] = (parents[0] if parents else None, others[0] if others else None)
    assert _drawn() == built


def test_the_tree_has_one_root() -> None:
    """Whoever catches ``KeepstateError`` catches all of it; no name shadows a builtin."""
    import builtins

    for cls in CLASSES:
        assert issubclass(cls, errors.KeepstateError)
        assert not hasattr(builtins, cls.__name__)
        assert cls.__doc__


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_an_error_survives_pickling_with_its_facts(cls: type[errors.KeepstateError], protocol: int) -> None:
    """Class, message, and every attribute, declared or not."""
    declared = {name for base in cls.__mro__ for name in inspect.get_annotations(base)}
    facts = {name: f"the {name}" for name in declared} | {"extra": {"path": ["x", 1]}}
    error = cls("what happened; what to do", **facts)
    again = pickle.loads(pickle.dumps(error, protocol))
    assert type(again) is cls
    assert str(again) == "what happened; what to do"
    assert again.args == error.args
    assert vars(again) == facts


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_an_error_may_be_copied(cls: type[errors.KeepstateError]) -> None:
    """As some test runners and executors do."""
    error = cls("words", fact=[1])
    for again in (copy.copy(error), copy.deepcopy(error)):
        assert (type(again), str(again), vars(again)) == (cls, "words", {"fact": [1]})


def test_notes_and_causes_stay_with_an_error_that_is_raised() -> None:
    """It is an exception like any other."""
    with pytest.raises(errors.BackendUnavailableError) as caught:
        raise errors.BackendUnavailableError("gone", address="x") from OSError("cut")
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.address == "x"
