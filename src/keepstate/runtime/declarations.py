"""What a task is declared with: the same for ``@task`` and for operators, under Airflow's names."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypedDict

from keepstate.errors import InvalidTypeError
from keepstate.runtime.assets import as_assets, listed
from keepstate.runtime.retries import RetryPolicy
from keepstate.scope import TaskScope

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from keepstate.scope import AssetScope


class Declared(TypedDict, total=False):
    """What a task may be declared with besides its id.

    ``retries`` more attempts follow a failed one, in the same process, ``retry_delay`` apart (a ``timedelta`` or seconds; 5
    minutes by default, as in Airflow). With ``retry_exponential_backoff`` the pause doubles each time, or grows by the factor
    given, up to ``max_retry_delay``. ``inlets`` and ``outlets`` are the assets whose state the task uses: `Asset` objects or
    names. With ``store_result=False`` the result is not stored, and the task runs each time.
    """

    retries: int
    retry_delay: timedelta | float
    retry_exponential_backoff: bool | float
    max_retry_delay: timedelta | float | None
    inlets: Any
    outlets: Any
    store_result: bool


_DEFAULTS = Declared(
    retries=0,
    retry_delay=timedelta(minutes=5),
    retry_exponential_backoff=False,
    max_retry_delay=None,
    inlets=None,
    outlets=None,
    store_result=True,
)


@dataclass(frozen=True)
class Options:
    """A declaration, checked."""

    task_id: str
    policy: RetryPolicy
    inlets: list[Any]
    outlets: list[Any]
    assets: tuple[AssetScope, ...]
    store_result: bool


def declare(what: str, task_id: str, **declared: Unpack[Declared]) -> Options:
    """Check a declaration of ``what`` and return it.

    Raises ``TypeError`` for a name that is none of `Declared`'s, ``InvalidIdError``, ``InvalidTypeError`` and
    ``InvalidInputError`` for values that can't be used.
    """
    unknown = declared.keys() - _DEFAULTS.keys()
    if unknown:
        raise TypeError(
            f"{what} takes no {', '.join(sorted(unknown))}: it takes task_id, {', '.join(_DEFAULTS)}; "
            "schedules, pools, triggers and the like are an engine's"
        )
    TaskScope("any", "any", task_id)
    told: Declared = {**_DEFAULTS, **declared}
    if type(told["store_result"]) is not bool:
        raise InvalidTypeError(
            f"store_result must be True or False, not {told['store_result']!r:.80}", path="store_result"
        )
    inlets, outlets = listed(told["inlets"]), listed(told["outlets"])
    return Options(
        task_id=task_id,
        policy=RetryPolicy.of(
            told["retries"],
            told["retry_delay"],
            told["retry_exponential_backoff"],
            told["max_retry_delay"],
        ),
        inlets=inlets,
        outlets=outlets,
        assets=(*as_assets("inlets", inlets), *as_assets("outlets", outlets)),
        store_result=told["store_result"],
    )
