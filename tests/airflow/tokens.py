"""Runs inside an environment with Airflow 3: prints tokens for a task instance, good and bad ones, as JSON."""

from __future__ import annotations

import json
import sys
import time

import jwt
from airflow.configuration import conf

SECRET = conf.get("api_auth", "jwt_secret")


def token(sub: str, secret: str = SECRET, algorithm: str = "HS512", **claims: object) -> str:
    """Return a token as Airflow makes them, but for what is given."""
    now = int(time.time())
    audience = conf.get_mandatory_list_value("execution_api", "jwt_audience")[0]
    given = {"sub": sub, "aud": audience, "iat": now, "nbf": now, "exp": now + 600, **claims}
    return jwt.encode(given, secret if algorithm != "none" else "", algorithm=algorithm)


own, other = sys.argv[1:]
print(  # noqa: T201 - what it is for
    json.dumps(
        {
            "own": token(own),
            "about to expire": token(own, exp=int(time.time()) + 25),
            "another task instance's": token(other),
            "expired": token(own, iat=0, nbf=0, exp=int(time.time()) - 100),
            "for another audience": token(own, aud="elsewhere"),
            "signed with another secret": token(own, secret="x" * 64),
            "not signed": token(own, algorithm="none"),
            "for the queue": token(own, scope="workload"),
            "no token at all": "abc",
        }
    )
)
