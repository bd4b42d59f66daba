"""Who may do what: the one table of roles and rights, and the caller that a token makes of a request."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from keepstate.patterns import fits


class Right(Enum):
    """What a request needs. ``docs/reference/server.md`` shows the same table as ``ROLES``; a test compares them."""

    READ = "read entries, history, runs and lists"
    WRITE = "set, delete, clear and restore entries"
    RUN = "begin, hold and end attempts"
    ERASE = "delete runs and assets"
    ADMINISTER = "clean up, and make, list and revoke tokens"


class Role(Enum):
    """What a token is for."""

    VIEWER = "viewer"
    WORKER = "worker"
    EDITOR = "editor"
    ADMIN = "admin"


ROLES: dict[Role, frozenset[Right]] = {
    Role.VIEWER: frozenset({Right.READ}),
    Role.WORKER: frozenset({Right.READ, Right.WRITE, Right.RUN}),
    Role.EDITOR: frozenset({Right.READ, Right.WRITE, Right.ERASE}),
    Role.ADMIN: frozenset(Right),
}


class ForbiddenError(Exception):
    """The caller's role lacks a right. It says nothing of what is stored. Never leaves the server."""

    def __init__(self, right: Right, role: Role, *, limited: bool = False) -> None:
        whose = (
            f"a token of the role {role.value} that is for some dags or assets only"
            if limited
            else f"the role {role.value}"
        )
        super().__init__(f"this needs the right to {right.value}, which {whose} does not have")


@dataclass(frozen=True)
class Caller:
    """Who sent a request: a token's id and name, its role, and the patterns of what it may reach (``None``: all)."""

    token_id: str
    name: str
    role: Role
    dags: str | None = None
    assets: str | None = None

    def require(self, right: Right) -> None:
        """Raise ``ForbiddenError`` unless the role has ``right``. To administer, a token must be for all dags and assets."""
        if right not in ROLES[self.role]:
            raise ForbiddenError(right, self.role)
        if right is Right.ADMINISTER and self.limited:
            raise ForbiddenError(right, self.role, limited=True)

    @property
    def limited(self) -> bool:
        """Whether there is anything that it does not reach."""
        return self.dags is not None or self.assets is not None

    def reaches_dag(self, dag_id: str) -> bool:
        """Whether anything of this dag exists, as far as the caller can know."""
        return _matches(self.dags, dag_id)

    def reaches_asset(self, name: str, uri: str) -> bool:
        """Whether this asset exists, as far as the caller can know: by its name or by its uri."""
        return _matches(self.assets, name) or _matches(self.assets, uri)


def _matches(pattern: str | None, text: str) -> bool:
    return pattern is None or fits(pattern, text)
