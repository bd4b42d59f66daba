"""keepstate inside Apache Airflow: the task state store of 3.3 on 2.11 and 3.0 to 3.2, and a backend for 3.3.

`policy` is loaded by Airflow itself (entry point ``airflow.policy``) and installs `hooks`; from there on, each module here
is loaded when Airflow loads the one that it extends. Nothing here imports Airflow before that.
"""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from keepstate.integrations.airflow.storebackend import StoreBackend

__all__ = ["StoreBackend"]


def __getattr__(name: str) -> object:
    if name != "StoreBackend":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # it is a subclass of Airflow 3.3's own, so it loads when Airflow asks for it
    from keepstate.integrations.airflow.storebackend import StoreBackend

    return StoreBackend
