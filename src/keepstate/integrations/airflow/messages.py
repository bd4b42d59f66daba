"""What a task and its supervisor say to each other about state: a request and an answer, both as JSON text.

They are no pydantic models: Airflow asks a message for its type and for `model_dump`, and its own models stay as they are.
JSON text, because the frames between the two know no integer beyond 64 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, repr=False)
class _Message:
    type: ClassVar[str]
    number: int
    """Tells which request an answer belongs to: Airflow before 3.2 takes the next frame for the answer to its last."""
    text: str

    def __repr__(self) -> str:
        # Airflow writes messages to its debug log, where no value belongs
        return f"<{self.type} {self.number}, {len(self.text)} characters>"

    def model_dump(self, **_: Any) -> dict[str, Any]:
        """Return the body of a frame."""
        return {"type": self.type, "number": self.number, "text": self.text}


class StateRequest(_Message):
    """A verb and its arguments, from the task."""

    type = "KeepstateRequest"


class StateAnswer(_Message):
    """What the API server answered, or why it could not be asked."""

    type = "KeepstateAnswer"


def parse(body: object) -> StateRequest | StateAnswer | None:
    """Return the message that a frame's body is, or ``None`` where it is one of Airflow's."""
    if not isinstance(body, dict):
        return None
    kinds = {kind.type: kind for kind in (StateRequest, StateAnswer)}
    kind = kinds.get(str(body.get("type")))
    return None if kind is None else kind(int(body["number"]), str(body["text"]))
