"""Cleanup on a timer: nobody has to remember it."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import TYPE_CHECKING

from keepstate.clock import SECOND
from keepstate.errors import KeepstateError
from keepstate.store import purge_batches

if TYPE_CHECKING:
    from keepstate.server.service import Service

log = logging.getLogger("keepstate.server")


async def clean_again_and_again(service: Service, interval: float) -> None:
    """Clean up every ``interval`` seconds, beginning soon, until cancelled. Trouble is logged, and tried again."""
    # several servers over one database should not all begin at once
    await asyncio.sleep(min(interval, 60) * random.random())  # noqa: S311 - it keeps no secret
    while True:
        await clean(service)
        await asyncio.sleep(interval * random.uniform(0.9, 1.1))  # noqa: S311 - as above


async def clean(service: Service) -> int:
    """Clean up once, in batches between which other writes come, and return how many rows went."""
    began, total = time.perf_counter(), 0
    try:
        batches = purge_batches(service.store)
        while (report := await service.work.write(next, batches, None)) is not None:
            total += report.total
        total += await service.work.write(service.tokens.sweep)
    except KeepstateError as exc:
        service.metrics.purge_failures.inc()
        log.warning("cleanup failed, and will be tried again: %s", exc)
    except Exception:
        # whatever it is, it must not be the last cleanup
        service.metrics.purge_failures.inc()
        log.exception("cleanup failed, and will be tried again")
    else:
        service.metrics.purged_at.set(service.store.clock() / SECOND)
        if total:
            log.info("cleanup removed %d rows in %.1f s", total, time.perf_counter() - began)
    finally:
        service.metrics.purge_seconds.observe(time.perf_counter() - began)
    return total
