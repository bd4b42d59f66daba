"""The API server's part: one more route in Airflow's execution API, where tasks ask for their state."""

from __future__ import annotations

import functools
import json
import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from keepstate.errors import BackendError, InvalidInputError, KeepstateError
from keepstate.integrations.airflow import authority, metadata
from keepstate.integrations.airflow.upkeep import Upkeep
from keepstate.values import HARD_VALUE_LIMIT
from keepstate.wire import decode_request, encode_answer, encode_error, takeable

if TYPE_CHECKING:
    from types import ModuleType

log = logging.getLogger("keepstate")

_PREFIX = "/keepstate/"
# a value of the hard limit is escaped twice on its way, once as a value and once within the request
_MOST_BYTES = 4 * HARD_VALUE_LIMIT


def extend(module: ModuleType) -> None:
    """Add the route to every execution API that is made: of the API server's workers, and of `airflow dags test`."""
    create = module.__dict__["create_task_execution_api_app"]

    @functools.wraps(create)
    def with_route(*args: Any, **given: Any) -> Any:
        app = create(*args, **given)
        try:
            from starlette.middleware import Middleware

            # appended is innermost: from 3.1 on, Airflow renews a token that is about to expire around it
            app.user_middleware.append(Middleware(StateRoute, airflow=module, execution_app=app))
        except Exception:
            log.exception(
                "keepstate could not add its route to Airflow's execution API; tasks get no state from it"
            )
        return app

    module.__dict__["create_task_execution_api_app"] = with_route


class StateRoute:
    """Answers ``POST /keepstate/{task instance id}``, and hands everything else on."""

    def __init__(self, app: Any, airflow: Any, execution_app: Any) -> None:
        """Wrap an ASGI ``app``, which is part of ``execution_app``, made by the module ``airflow``."""
        self._app = app
        self._tokens = Tokens(airflow, execution_app)
        self._upkeep = Upkeep()
        # so that the first task doesn't wait for the tables, and the server doesn't wait for the database
        threading.Thread(target=_make_tables, name="keepstate-tables", daemon=True).start()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        # every request of a task's comes here, of those that have their store elsewhere too
        self._upkeep.remind()
        ti_id = _task_instance_id(scope)
        if ti_id is None:
            await self._app(scope, receive, send)
            return
        from starlette.requests import Request

        response = await self._respond(Request(scope, receive), ti_id)
        await response(scope, receive, send)

    async def _respond(self, request: Any, ti_id: str) -> Any:
        from starlette.concurrency import run_in_threadpool
        from starlette.responses import JSONResponse

        refusal, headers = await self._tokens.check(request, ti_id)
        if refusal is not None:
            return JSONResponse({"detail": refusal[1]}, status_code=refusal[0])
        text = await _body(request)
        if text is None:
            return JSONResponse({"detail": f"a request has at most {_MOST_BYTES} bytes"}, status_code=413)
        said = await run_in_threadpool(carry_out, ti_id, text)
        return JSONResponse(said, headers=headers)


def _task_instance_id(scope: Any) -> str | None:
    if scope["type"] != "http" or scope["method"] != "POST":
        return None
    path, root = scope["path"], scope.get("root_path", "")
    # mounted under a prefix, the path has the prefix too
    if root and path.startswith(f"{root}/"):
        path = path[len(root) :]
    return path[len(_PREFIX) :] if path.startswith(_PREFIX) else None


async def _body(request: Any) -> bytes | None:
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > _MOST_BYTES:
            return None
        parts.append(part)
    return b"".join(parts)


def carry_out(ti_id: str, text: bytes) -> dict[str, Any]:
    """Carry out a task's request, and return its answer or the error to raise there."""
    try:
        try:
            asked = json.loads(text)
            verb, request = str(asked["verb"]), asked["request"]
        except (ValueError, TypeError, KeyError, RecursionError):
            raise InvalidInputError("a request is a JSON object with a verb and its arguments") from None
        store = metadata.store()
        attempt = authority.known(ti_id)
        arguments = decode_request(verb, request, now=store.clock())
        arguments = authority.admit(verb, arguments, attempt, store.history_policy)
        return {"answer": takeable(encode_answer(verb, getattr(store.backend, verb)(**arguments)))}
    except KeepstateError as exc:
        return {"error": encode_error(exc)}
    except Exception as exc:
        log.exception("a task's request for its state failed")
        return {
            "error": encode_error(
                BackendError(f"the API server failed: {type(exc).__name__}; its log tells why")
            )
        }


class Tokens:
    """Tells whose requests are whose, as Airflow's own execution API does."""

    def __init__(self, airflow: Any, execution_app: Any) -> None:
        self._airflow = airflow
        self._app = execution_app
        self._validator: Any = None

    async def check(self, request: Any, ti_id: str) -> tuple[tuple[int, str] | None, dict[str, str]]:
        """Return a refusal (status and reason) or ``None``, and headers to answer with."""
        if self._trusts_its_process():
            return None, {}
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return (401, "Missing auth token"), {}
        if self._validator is None:
            self._validator = self._airflow._jwt_validator()  # noqa: SLF001 - the same for all three versions
        try:
            claims = await self._validator.avalidated_claims(token.strip(), {})
        except Exception as exc:  # noqa: BLE001 - whatever is wrong with a token, it is refused
            return (403, f"Invalid auth token: {exc}"), {}
        if claims.get("scope", "execution") != "execution":
            return (403, "Token type not allowed here"), {}
        if str(claims.get("sub", "")).lower() != ti_id.lower():
            return (403, "The token is another task instance's"), {}
        return None, self._renewed(claims)

    def _trusts_its_process(self) -> bool:
        """Whether this app serves its own process alone (`airflow dags test`), where Airflow asks for no token."""
        overrides = getattr(self._app, "dependency_overrides", None) or {}
        return any(getattr(one, "__name__", "") == "always_allow" for one in overrides.values())

    def _renewed(self, claims: dict[str, Any]) -> dict[str, str]:
        """Return the header with a fresh token, where Airflow's own does not come around us: on 3.0."""
        if hasattr(self._airflow, "JWTReissueMiddleware"):
            return {}
        from airflow.configuration import conf

        validity = conf.getint("execution_api", "jwt_expiration_time")
        if int(claims.get("exp", 0)) - time.time() > max(validity * 0.2, 30):
            return {}
        return {"Refreshed-API-Token": self._airflow._jwt_generator().generate(claims)}  # noqa: SLF001


def _make_tables() -> None:
    try:
        metadata.store()
    except Exception as exc:  # noqa: BLE001 - the next request tries again, and tells the task
        log.warning("keepstate could not prepare its tables in Airflow's metadata database yet: %s", exc)
