"""The protocol's verbs as JSON: what a worker sends, what a server answers, and the errors between them.

Standard library only, and it knows no channel: HTTP is one, an engine's own connection to its tasks may be another.

What is at its default is left out, so the defaults of `keepstate.backends.requests` are part of the format. The time of a
request never travels: whoever keeps the state stamps it with a clock of its own, so that leases and expiry compare one
clock only. Requests are read strictly, and refused with the path to what is wrong; of answers, what a newer keepstate adds
is ignored.
"""

from __future__ import annotations

from keepstate.wire.failures import decode_error, encode_error
from keepstate.wire.verbs import (
    VERBS,
    answer_schema,
    decode_answer,
    decode_request,
    encode_answer,
    encode_request,
    request_schema,
    takeable,
)

PROTOCOL = 1
"""Rises when an older reader would misunderstand what is sent."""

__all__ = [
    "PROTOCOL",
    "VERBS",
    "answer_schema",
    "decode_answer",
    "decode_error",
    "decode_request",
    "encode_answer",
    "encode_error",
    "encode_request",
    "request_schema",
    "takeable",
]
