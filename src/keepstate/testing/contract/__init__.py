"""The contract that every backend keeps, as tests. They ship, so that yours can be held to it in ten lines.

A backend of the protocol in `keepstate.backends.base` is held to all of it::

    # tests/test_my_backend.py
    import pytest
    from keepstate.testing.contract import FullContract
    from my_package import MyBackend


    class TestMyBackend(FullContract):
        @pytest.fixture
        def backend(self, tmp_path):
            backend = MyBackend(tmp_path)
            yield backend
            backend.close()

A class written for ``[state_store] backend``, derived from `keepstate.BaseStoreBackend`, keeps the guide's part: four
verbs, values, keys, checkpoints and their awaitable twins. The fixture gives an instance of it::

    from keepstate.testing.contract import GuideContract


    class TestMyClass(GuideContract):
        @pytest.fixture
        def backend(self):
            return MyClass()

Each test gets a fresh backend, which must be empty. A backend that asks for the time by itself takes it from the fixture
``clock``. The topic `Copies` is apart, for a backend that can also be copied as a whole (`keepstate.backends.images`):
``class TestMyBackend(FullContract, Copies)``. A topic may be run alone: derive the class from `Fencing`, `Assets`, …
instead. Nothing is needed but pytest.
"""

from __future__ import annotations

import pytest

# before the topics are imported: their assertions show what they compared
pytest.register_assert_rewrite(
    *(
        f"{__name__}.{topic}"
        for topic in (
            "assets",
            "attempts",
            "awaitables",
            "checkpoint",
            "cleanup",
            "concurrency",
            "copies",
            "fencing",
            "grids",
            "guide",
            "history",
            "items",
            "keys",
            "known",
            "lists",
            "lookups",
            "retention",
            "sessions",
            "values",
            "versions",
        )
    )
)

from keepstate.testing.contract.assets import Assets  # noqa: E402
from keepstate.testing.contract.attempts import Attempts  # noqa: E402
from keepstate.testing.contract.awaitables import FourTwins, Twins  # noqa: E402
from keepstate.testing.contract.checkpoint import Checkpoints  # noqa: E402
from keepstate.testing.contract.cleanup import Cleanup  # noqa: E402
from keepstate.testing.contract.concurrency import Concurrency  # noqa: E402
from keepstate.testing.contract.copies import Copies  # noqa: E402
from keepstate.testing.contract.fencing import Fencing  # noqa: E402
from keepstate.testing.contract.grids import Grids  # noqa: E402
from keepstate.testing.contract.guide import FourVerbs, Refusals  # noqa: E402
from keepstate.testing.contract.history import History  # noqa: E402
from keepstate.testing.contract.items import Items  # noqa: E402
from keepstate.testing.contract.keys import Keys, KeysOfEveryVerb  # noqa: E402
from keepstate.testing.contract.known import Known  # noqa: E402
from keepstate.testing.contract.lists import DeletedRuns, Lists  # noqa: E402
from keepstate.testing.contract.lookups import Lookups  # noqa: E402
from keepstate.testing.contract.retention import Retention  # noqa: E402
from keepstate.testing.contract.sessions import Sessions  # noqa: E402
from keepstate.testing.contract.values import Values  # noqa: E402
from keepstate.testing.contract.versions import Versions  # noqa: E402

__all__ = [
    "Assets",
    "Attempts",
    "Checkpoints",
    "Cleanup",
    "Concurrency",
    "Copies",
    "DeletedRuns",
    "Fencing",
    "FourTwins",
    "FourVerbs",
    "FullContract",
    "Grids",
    "GuideContract",
    "History",
    "Items",
    "Keys",
    "KeysOfEveryVerb",
    "Known",
    "Lists",
    "Lookups",
    "Refusals",
    "Retention",
    "Sessions",
    "Twins",
    "Values",
    "Versions",
]


class GuideContract(FourVerbs, Keys, Values, Checkpoints, FourTwins, Refusals):
    """The profile ``guide``: what a custom class does, and that the rest is refused."""


class FullContract(
    FourVerbs,
    Keys,
    KeysOfEveryVerb,
    Values,
    Checkpoints,
    FourTwins,
    Twins,
    Retention,
    Versions,
    Concurrency,
    Sessions,
    Fencing,
    Items,
    Attempts,
    History,
    Lists,
    Lookups,
    Grids,
    DeletedRuns,
    Known,
    Assets,
    Cleanup,
):
    """The profile ``full``: every promise of the protocol."""
