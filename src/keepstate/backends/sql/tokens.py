"""The rows of the server's tokens. What a token is, and who may do what with it, the server knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepstate.backends.answers import StoredToken

if TYPE_CHECKING:
    from collections.abc import Callable

    from keepstate.backends.sql.database import Params, Row, Transaction

_COLUMNS = (
    "id, kind, name, digest, role, dags, assets, parent_id, created_at, expires_at, revoked_at, used_at"
)

_ADD = f"""
INSERT INTO keepstate_token ({_COLUMNS})
VALUES (:id, :kind, :name, :digest, :role, :dags, :assets, :parent_id, :created_at, :expires_at, NULL, NULL)
"""
# Whoever adds a named token waits here for whoever else does. The row is there in every store.
_ONE_AT_A_TIME = "UPDATE keepstate_migration SET number = number WHERE number = 1"
_TAKEN = """
SELECT 1 FROM keepstate_token
WHERE kind = 'token' AND name = :name AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :created_at)
"""
_FIND = f"SELECT {_COLUMNS} FROM keepstate_token WHERE id = :id"
_LIST = f"SELECT {_COLUMNS} FROM keepstate_token WHERE kind = 'token' ORDER BY created_at, id"
# Whoever makes something from a token, and whoever ends that token, wait here for each other.
_LIVES = """
UPDATE keepstate_token SET used_at = COALESCE(:used_at, used_at)
WHERE id = :parent_id AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :created_at)
"""
_REVOKE = "UPDATE keepstate_token SET revoked_at = :now WHERE id = :id AND revoked_at IS NULL"
# What was made from a token (a browser's session) ends with it: a statement of its own, which sees what was waited for.
_REVOKE_WHAT_IT_MADE = (
    "UPDATE keepstate_token SET revoked_at = :now WHERE parent_id = :id AND revoked_at IS NULL"
)
_SPEND = """
UPDATE keepstate_token SET revoked_at = :now
WHERE id = :id AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now)
"""
_TOUCH = "UPDATE keepstate_token SET used_at = :now WHERE id IN (:id, :parent_id)"
_SWEEP = "DELETE FROM keepstate_token WHERE expires_at <= :before OR revoked_at <= :before"


class TokenRows:
    """The token table of one store. Each call is one transaction."""

    def __init__(
        self,
        query: Callable[[str, Params], list[Row]],
        write: Callable[[Callable[[Transaction], int]], int],
    ) -> None:
        self._query = query
        self._write = write

    def add_made(self, token: StoredToken, *, used_at: int | None) -> bool:
        """Keep what was made from another token, if that one is valid now; return whether it did.

        ``used_at`` is noted as the other one's last use.
        """

        def work(tx: Transaction) -> int:
            if tx.one(_FIND, {"id": token.id}) is not None:
                # it was kept before, and the answer was lost
                return 1
            params = _params(token)
            return tx.run(_ADD, params) if tx.run(_LIVES, {**params, "used_at": used_at}) else 0

        return self._write(work) == 1

    def add_named(self, token: StoredToken, hand_over: Callable[[], None]) -> bool:
        """Keep a new token, unless one that is valid now has its name; return whether it did.

        ``hand_over`` is called before it is kept, and again where the database has to be asked again; where it raises,
        nothing is kept.
        """

        def work(tx: Transaction) -> int:
            tx.run(_ONE_AT_A_TIME, {})
            if tx.one(_FIND, {"id": token.id}) is not None:
                # it was kept before, and the answer was lost
                return 1
            if tx.one(_TAKEN, {"name": token.name, "created_at": token.created_at}) is not None:
                return 0
            hand_over()
            return tx.run(_ADD, _params(token))

        return self._write(work) == 1

    def find(self, token_id: str) -> StoredToken | None:
        """Return a token by its id, whatever became of it."""
        rows = self._query(_FIND, {"id": token_id})
        return StoredToken(*rows[0]) if rows else None

    def all(self) -> list[StoredToken]:
        """Return all tokens that people made, oldest first."""
        return [StoredToken(*row) for row in self._query(_LIST, {})]

    def revoke(self, token_id: str, *, now: int) -> None:
        """End a token, and what was made from it."""
        params = {"id": token_id, "now": now}
        self._write(lambda tx: tx.run(_REVOKE, params) + tx.run(_REVOKE_WHAT_IT_MADE, params))

    def spend(self, token_id: str, *, now: int) -> bool:
        """End a token that serves once; return whether it still could."""
        return self._changed(_SPEND, {"id": token_id, "now": now}) == 1

    def touch(self, token: StoredToken, *, now: int) -> None:
        """Note that a token was used, and the one that it was made from."""
        self._changed(_TOUCH, {"id": token.id, "parent_id": token.parent_id, "now": now})

    def sweep(self, *, before: int) -> int:
        """Erase what ended at or before ``before``; return how many."""
        return self._changed(_SWEEP, {"before": before})

    def _changed(self, statement: str, params: dict[str, object]) -> int:
        return self._write(lambda tx: tx.run(statement, params))


def _params(token: StoredToken) -> dict[str, object]:
    return {name: getattr(token, name) for name in StoredToken.__dataclass_fields__}
