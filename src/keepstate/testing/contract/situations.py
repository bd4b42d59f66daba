"""Who may come to a task instance after whom, by what that lets the last one do.

Each situation is a function that has others come first, and returns the accessor whose turn it is. Where somebody has written
what stands there, that is n = 1, which was 0 before, and kept = "x".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepstate.testing.contract.ground import DAG, RUN, attempt

if TYPE_CHECKING:
    from keepstate.accessors import TaskStateStore
    from keepstate.store import StateStore


def _write_old(tss: TaskStateStore) -> TaskStateStore:
    tss.set("n", 0)
    tss.set("n", 1)
    tss.set("kept", "x")
    return tss


# ------------------------------------------------------------------- who may write over what stands there


def _same_accessor(store: StateStore) -> TaskStateStore:
    return _write_old(attempt(store, 1, 1))


def _same_attempt(store: StateStore) -> TaskStateStore:
    _write_old(attempt(store, 2, 1))
    return attempt(store, 2, 1)


def _same_attempt_without_ids(store: StateStore) -> TaskStateStore:
    _write_old(attempt(store, 2))
    return attempt(store, 2)


def _same_try_with_an_id_at_one_place_only(store: StateStore) -> TaskStateStore:
    _write_old(attempt(store, 2, 1))
    return attempt(store, 2)


def _later_attempt(store: StateStore) -> TaskStateStore:
    _write_old(attempt(store, 1, 1))
    return attempt(store, 2, 2)


def _later_attempt_without_ids(store: StateStore) -> TaskStateStore:
    _write_old(attempt(store, 1))
    return attempt(store, 2)


def _much_later_attempt(store: StateStore) -> TaskStateStore:
    _write_old(attempt(store, 1, 1))
    return attempt(store, 11, 2)


def _later_attempt_with_an_older_id(store: StateStore) -> TaskStateStore:
    # ids made on hosts whose clocks differ: a higher try wins whatever they say
    _write_old(attempt(store, 1, 5))
    return attempt(store, 2, 4)


def _same_try_made_again(store: StateStore) -> TaskStateStore:
    # an engine that hands out a new id without raising the try number
    _write_old(attempt(store, 2, 1))
    return attempt(store, 2, 2)


def _person(store: StateStore) -> TaskStateStore:
    _write_old(attempt(store, 3, 3))
    return attempt(store)


def _attempt_after_a_person(store: StateStore) -> TaskStateStore:
    _write_old(attempt(store))
    return attempt(store, 1, 1)


MAY_WRITE = [
    _same_accessor,
    _same_attempt,
    _same_attempt_without_ids,
    _same_try_with_an_id_at_one_place_only,
    _later_attempt,
    _later_attempt_without_ids,
    _much_later_attempt,
    _later_attempt_with_an_older_id,
    _same_try_made_again,
    _person,
    _attempt_after_a_person,
]


# --------------------------------------------------------------------------- who has been superseded


def _earlier_attempt(store: StateStore) -> TaskStateStore:
    earlier = _write_old(attempt(store, 1, 1))
    attempt(store, 2, 2).set("n", 1)
    return earlier


def _earlier_attempt_in_a_new_process(store: StateStore) -> TaskStateStore:
    _earlier_attempt(store)
    return attempt(store, 1, 1)


def _earlier_attempt_without_ids(store: StateStore) -> TaskStateStore:
    earlier = _write_old(attempt(store, 1))
    attempt(store, 2).get("n")
    return earlier


def _earlier_attempt_that_never_wrote(store: StateStore) -> TaskStateStore:
    _write_old(attempt(store, 3, 3))
    return attempt(store, 2)


def _latecomer_on_try_1(store: StateStore) -> TaskStateStore:
    # its id is unknown, and older than the current one: it is no new run
    _write_old(attempt(store, 2, 5))
    return attempt(store, 1, 4)


def _latecomer_on_the_same_try_1(store: StateStore) -> TaskStateStore:
    _write_old(attempt(store, 1, 5))
    return attempt(store, 1, 4)


def _latecomer_on_a_later_same_try(store: StateStore) -> TaskStateStore:
    _write_old(attempt(store, 2, 5))
    return attempt(store, 2, 4)


def _same_try_superseded_by_a_newer_id(store: StateStore) -> TaskStateStore:
    earlier = _write_old(attempt(store, 2, 1))
    attempt(store, 2, 2).get("n")
    return earlier


def _same_try_superseded_in_a_new_process(store: StateStore) -> TaskStateStore:
    _same_try_superseded_by_a_newer_id(store)
    return attempt(store, 2, 1)


def _try_1_let_in_beside_one_without_an_id(store: StateStore) -> TaskStateStore:
    # it left no trace of its own, and its id is newer than the current one; but it knows where it is, so it is no new run
    attempt(store, 1).set("n", 0)
    earlier = _write_old(attempt(store, 1, 9))
    attempt(store, 2, 5).set("n", 1)
    return earlier


SUPERSEDED = [
    _earlier_attempt,
    _earlier_attempt_in_a_new_process,
    _earlier_attempt_without_ids,
    _earlier_attempt_that_never_wrote,
    _latecomer_on_try_1,
    _same_try_superseded_by_a_newer_id,
    _same_try_superseded_in_a_new_process,
    _try_1_let_in_beside_one_without_an_id,
]


# ------------------------------------------------------------------- who belongs to an incarnation that is over


def _attempt_of_the_earlier_run(store: StateStore) -> TaskStateStore:
    earlier = attempt(store, 3, 3)
    earlier.set("old", 1)
    _write_old(attempt(store, 1, 9))
    return earlier


def _higher_try_of_the_earlier_run_in_a_new_process(store: StateStore) -> TaskStateStore:
    _attempt_of_the_earlier_run(store)
    return attempt(store, 3, 3)


def _try_1_of_the_earlier_run_in_a_new_process(store: StateStore) -> TaskStateStore:
    attempt(store, 1, 1).set("old", 1)
    attempt(store, 2, 2).set("old", 2)
    _write_old(attempt(store, 1, 9))
    return attempt(store, 1, 1)


def _higher_try_of_the_earlier_run_without_ids(store: StateStore) -> TaskStateStore:
    # without an id it is known by the incarnation in which it registered
    earlier = attempt(store, 3)
    earlier.set("old", 1)
    store.delete_run(DAG, RUN)
    _write_old(attempt(store, 1))
    return earlier


def _attempt_whose_item_changed(store: StateStore) -> TaskStateStore:
    earlier = attempt(store, 1, 1, item="x")
    earlier.set("old", 1)
    _write_old(attempt(store, 2, 2, item="y"))
    return earlier


def _attempt_of_a_deleted_run(store: StateStore) -> TaskStateStore:
    earlier = _write_old(attempt(store, 2, 2))
    store.delete_run(DAG, RUN)
    return earlier


def _attempt_of_a_deleted_run_without_ids(store: StateStore) -> TaskStateStore:
    earlier = _write_old(attempt(store, 2))
    store.delete_run(DAG, RUN)
    return earlier


def _attempt_of_a_deleted_run_in_a_new_process(store: StateStore) -> TaskStateStore:
    _attempt_of_a_deleted_run(store)
    return attempt(store, 2, 2)


def _earlier_attempt_of_a_deleted_run(store: StateStore) -> TaskStateStore:
    _attempt_of_a_deleted_run(store)
    return attempt(store, 1, 1)


def _attempt_of_a_deleted_run_that_a_person_wrote_to(store: StateStore) -> TaskStateStore:
    earlier = _attempt_of_a_deleted_run(store)
    _write_old(attempt(store))
    return earlier


def _same_attempt_in_a_new_process_after_that(store: StateStore) -> TaskStateStore:
    _attempt_of_a_deleted_run_that_a_person_wrote_to(store)
    return attempt(store, 2, 2)


def _attempt_of_a_run_deleted_and_made_again(store: StateStore) -> TaskStateStore:
    earlier = _attempt_of_a_deleted_run(store)
    _write_old(attempt(store, 1, 9))
    return earlier


def _same_attempt_in_a_new_process_after_remaking(store: StateStore) -> TaskStateStore:
    # its attempt rows went with the run; its older id still tells on it, on the same try
    attempt(store, 1, 1).set("old", 1)
    store.delete_run(DAG, RUN)
    _write_old(attempt(store, 1, 9))
    return attempt(store, 1, 1)


OUTLIVED = [
    _latecomer_on_the_same_try_1,
    _latecomer_on_a_later_same_try,
    _attempt_of_the_earlier_run,
    _higher_try_of_the_earlier_run_in_a_new_process,
    _try_1_of_the_earlier_run_in_a_new_process,
    _higher_try_of_the_earlier_run_without_ids,
    _attempt_whose_item_changed,
    _attempt_of_a_deleted_run,
    _attempt_of_a_deleted_run_without_ids,
    _attempt_of_a_deleted_run_in_a_new_process,
    _earlier_attempt_of_a_deleted_run,
    _attempt_of_a_deleted_run_that_a_person_wrote_to,
    _same_attempt_in_a_new_process_after_that,
    _attempt_of_a_run_deleted_and_made_again,
    _same_attempt_in_a_new_process_after_remaking,
]


# --------------------------------------------------------------------------------------- who starts empty


def _run_made_again(store: StateStore) -> TaskStateStore:
    _write_old(attempt(store, 2, 2))
    return attempt(store, 1, 9)


def _run_made_again_on_the_same_try(store: StateStore) -> TaskStateStore:
    _write_old(attempt(store, 1, 1))
    return attempt(store, 1, 9)


def _mapped_item_changed(store: StateStore) -> TaskStateStore:
    _write_old(attempt(store, 1, 1, item="x"))
    return attempt(store, 2, 2, item="y")


STARTS_EMPTY = [_run_made_again, _run_made_again_on_the_same_try, _mapped_item_changed]


def _deleted_and_made_again(store: StateStore) -> TaskStateStore:
    _write_old(attempt(store, 2, 2))
    store.delete_run(DAG, RUN)
    return attempt(store, 1, 9)


def _deleted_and_made_again_without_ids(store: StateStore) -> TaskStateStore:
    _write_old(attempt(store, 2))
    store.delete_run(DAG, RUN)
    return attempt(store, 1)


def _deleted_and_written_by_a_person(store: StateStore) -> TaskStateStore:
    _write_old(attempt(store, 2, 2))
    store.delete_run(DAG, RUN)
    return attempt(store)


def _deleted_written_by_a_person_and_made_again(store: StateStore) -> TaskStateStore:
    _deleted_and_written_by_a_person(store).delete("n")
    return attempt(store, 1, 9)


STARTS_FROM_NOTHING = [
    _deleted_and_made_again,
    _deleted_and_made_again_without_ids,
    _deleted_and_written_by_a_person,
    _deleted_written_by_a_person_and_made_again,
]
