"""The awaitable twins: the same verbs, awaited, which never block the event loop."""

from __future__ import annotations

import asyncio
import functools
import threading
from typing import TYPE_CHECKING, Any

import pytest

from keepstate.errors import InvalidKeyError, StaleAttemptError, VersionConflictError
from keepstate.testing.contract.ground import Ground, attempt, contents

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from keepstate.store import StateStore


def _add(item: object, items: list[object]) -> list[object]:
    return [*items, item]


class FourTwins(Ground):
    """The twins of the guide's four verbs and of `checkpoint`."""

    def test_the_twins_do_what_the_verbs_do(self, store: StateStore) -> None:
        """``aget``, ``aset``, ``adelete`` and ``aclear``, with the same arguments."""

        async def work() -> list[Any]:
            tss = attempt(store, 1)
            seen = [await tss.aget("k"), await tss.aget("k", default=7)]
            await tss.aset("k", {"page": 1}, retention=None)
            await tss.aset("l", 2)
            seen.append(await tss.aget("k"))
            await tss.adelete("k")
            seen += [await tss.aget("k"), await tss.aget("l")]
            await tss.aclear()
            seen.append(await tss.aget("l"))
            return seen

        assert asyncio.run(work()) == [None, 7, {"page": 1}, None, 2, None]

    def test_a_twin_raises_what_its_verb_raises(self, store: StateStore) -> None:
        """When it is awaited."""

        async def work() -> None:
            with pytest.raises(InvalidKeyError):
                await attempt(store, 1).aset("", 1)

        asyncio.run(work())

    def test_twins_run_side_by_side_off_the_loop(self, store: StateStore) -> None:
        """Many may be awaited at once; none of them runs on the loop's thread."""

        async def work() -> None:
            tss = attempt(store, 1)
            await asyncio.gather(*(tss.aset(f"k{number}", number) for number in range(30)))
            found = await asyncio.gather(*(tss.aget(f"k{number}") for number in range(30)))
            assert found == list(range(30))

        asyncio.run(work())

    def test_a_checkpoint_is_iterated_asynchronously(self, store: StateStore) -> None:
        """Over a plain source, an asynchronous one, or one that can seek; with the same position as the plain loop."""

        async def stream(start: int = 0) -> AsyncIterator[int]:
            for number in range(start, 6):
                await asyncio.sleep(0)
                yield number

        async def work(number: int, source: Any, die_at: int | None) -> list[int]:
            done = []
            async for item in attempt(store, number).acheckpoint(source):
                if item == die_at:
                    break
                done.append(item)
            return done

        assert asyncio.run(work(1, range(6), 2)) == [0, 1]
        assert list(attempt(store, 2).checkpoint(range(3))) == [2]
        assert asyncio.run(work(3, stream(), 4)) == [3]
        assert asyncio.run(work(4, stream, 5)) == [4]
        assert asyncio.run(work(5, iter(range(6)), None)) == [5]
        assert attempt(store).get("position")["done"] is True

    def test_an_asset_has_the_twins_too(self, store: StateStore) -> None:
        """The same four."""

        async def work() -> list[Any]:
            asset = store.asset("orders")
            await asset.aset("k", 1)
            seen = [await asset.aget("k")]
            await asset.adelete("k")
            await asset.aclear()
            return [*seen, await asset.aget("k")]

        assert asyncio.run(work()) == [1, None]


class Twins(Ground):
    """The twins of the verbs beyond the guide's."""

    def test_every_other_twin_does_what_its_verb_does(self, store: StateStore) -> None:
        """With the same arguments and results."""

        async def work() -> None:
            tss = attempt(store, 1)
            await tss.aset_many({"a": 1, "b": 2})
            await tss.aset("a", 3, if_version=1)
            with pytest.raises(VersionConflictError):
                await tss.aset("a", 4, if_version=1)
            assert await tss.aupdate("a", lambda value: value + 1, default=0) == 4
            assert await tss.aincrement("a", by=2) == 6
            assert dict(await tss.aitems()) == {"a": 6, "b": 2}
            assert [entry.key for entry in await tss.aentries()] == ["a", "b"]
            assert await tss.aget_many(["b", "x"]) == {"b": 2}
            entry = await tss.aentry("a")
            assert entry is not None
            assert entry.version == 4
            assert [version.value for version in await tss.ahistory("a", limit=2)] == [6, 4]
            await tss.arestore("a", 1)
            assert await tss.aget("a") == 1
            await tss.aflush()
            await tss.aclear(forget=True)
            assert await tss.ahistory("a") == []
            asset = store.asset("orders")
            await asset.aset_many({"a": 1})
            assert await asset.aincrement("a") == 2
            assert await asset.aupdate("a", lambda value: value * 2) == 4

        asyncio.run(work())

    def test_no_awaited_increment_is_lost(self, store: StateStore) -> None:
        """Forty coroutines at once; the pages that parallel coroutines finish are all there."""

        async def work() -> None:
            tss = attempt(store, 1)
            sums = await asyncio.gather(*(tss.aincrement("n") for _ in range(40)))
            assert sorted(sums) == list(range(1, 41))
            await asyncio.gather(
                *(tss.aupdate("pages", functools.partial(_add, page), []) for page in range(20))
            )

        asyncio.run(work())
        assert contents(store)["n"] == 40
        assert sorted(contents(store)["pages"]) == list(range(20))

    def test_the_update_function_runs_off_the_loop(self, store: StateStore) -> None:
        """As all of the twin does, so that a slow one holds nobody up."""
        threads: list[int] = []

        def note(_: Any) -> int:
            threads.append(threading.get_ident())
            return 1

        async def work() -> int:
            await attempt(store, 1).aupdate("k", note)
            return threading.get_ident()

        assert asyncio.run(work()) not in threads
        assert len(threads) == 1

    def test_a_stale_attempt_is_refused_when_awaited(self, store: StateStore) -> None:
        """Fencing knows no difference."""

        async def work() -> None:
            earlier = attempt(store, 1)
            await earlier.aset("k", 1)
            await attempt(store, 2).aget("k")
            with pytest.raises(StaleAttemptError):
                await earlier.aset("k", 2)
            with pytest.raises(StaleAttemptError):
                async for _ in earlier.acheckpoint([1, 2]):
                    pass

        asyncio.run(work())
        assert contents(store) == {"k": 1}
