"""The supervisor's part: handing a task's requests on to the API server, with the task's own token."""

from __future__ import annotations

import functools
import json
import logging
from typing import TYPE_CHECKING, Any

from keepstate.integrations.airflow import messages

if TYPE_CHECKING:
    from types import ModuleType

log = logging.getLogger("keepstate")

_DETAIL = 500


class _Decoder:
    """Airflow's decoder, but for requests of ours."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def validate_python(self, body: Any, *args: Any, **given: Any) -> Any:
        request = messages.parse(body)
        return self._inner.validate_python(body, *args, **given) if request is None else request

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def extend(module: ModuleType) -> None:
    """Let the supervisors of tasks understand our requests; of all others, only Airflow hears."""
    kind = module.__dict__["ActivitySubprocess"]
    handle_request = kind._handle_request  # noqa: SLF001

    @functools.wraps(handle_request)
    def handle(self: Any, msg: Any, log: Any, *args: Any, **given: Any) -> Any:
        if not isinstance(msg, messages.StateRequest):
            # as it came: whatever a version hands over besides, what is Airflow's goes on
            return handle_request(self, msg, log, *args, **given)
        answer = messages.StateAnswer(msg.number, json.dumps(_answer(self, msg)))
        self.send_msg(answer, request_id=args[0] if args else given["req_id"], error=None)
        return None

    kind.decoder = _Decoder(kind.decoder)
    kind._handle_request = handle  # noqa: SLF001


def _answer(supervisor: Any, request: messages.StateRequest) -> dict[str, Any]:
    """Ask the API server once, and return its status with what it said.

    Nothing is let out, as up to 3.1 that would end the supervisor, and nothing is retried, as heartbeats wait meanwhile:
    the task decides whether to ask again.
    """
    try:
        ask = supervisor.client.request
        # without Airflow's retries, which may take minutes
        once = getattr(type(supervisor.client).request, "__wrapped__", None)
        if once is not None:
            ask = functools.partial(once, supervisor.client)
        try:
            response = ask("POST", f"keepstate/{supervisor.id}", content=request.text)
        except Exception as exc:
            # Airflow's client raises for a status of 400 and above
            response = getattr(exc, "response", None)
            if response is None:
                raise
        return {"status": response.status_code, "text": response.text}
    except Exception as exc:  # noqa: BLE001 - see above
        return {"status": None, "text": f"{type(exc).__name__}: {exc}"[:_DETAIL]}
