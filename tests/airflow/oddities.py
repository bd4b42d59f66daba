"""Puts, gets and deletes what is odd through Airflow 3.3's execution API, and prints what that answers."""

from __future__ import annotations

import asyncio
import json
import sys

import httpx
from airflow.api_fastapi.execution_api.app import InProcessExecutionAPI
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from sqlalchemy import select

DEEP = "[" * 300 + "]" * 300
CASES = {
    "sound": ("k", "1"),
    "long": ("k" * 600, "1"),
    "dotted": ("a/%2E%2E/b", "1"),
    "NUL": ("a%00b", "1"),
    "deep": ("", DEEP),
    "large": ("", json.dumps("x" * 17_000_000)),
    "surrogate": ("", json.dumps("\ud800")),
}


async def main() -> None:
    """Ask in the name of a task."""
    with create_session() as session:
        number = session.scalar(select(TaskInstance.id).where(TaskInstance.task_id == "all_verbs"))
    app = InProcessExecutionAPI().app
    found: dict[str, list[int]] = {}
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport) as client:
        for name, (key, text) in CASES.items():
            url = f"http://in-process/store/ti/{number}/{key or 'k'}"
            put = await client.put(
                url, content=f'{{"value": {text}}}', headers={"content-type": "application/json"}
            )
            found[name] = [put.status_code]
            # what is odd about the others is their values
            others = [await client.get(url), await client.delete(url)] if key else [put, put]
            found[name] += [other.status_code for other in others]
    sys.stdout.write(f"{json.dumps(found)}\n")


asyncio.run(main())
