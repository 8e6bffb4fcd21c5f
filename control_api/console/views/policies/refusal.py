"""Reads why a change of policies was refused. Knows no page."""

from typing import Any

import orjson

from policies.ground.errors import Conflict, SluiceError


def broken_guardrail(error: SluiceError | None) -> dict[str, Any] | None:
    """`{guardrail, counterexample}` if a guardrail refused the change (`policy-tools.md`,
    section 7)."""
    if not isinstance(error, Conflict) or not (error.details or "").startswith("{"):
        return None
    found: dict[str, Any] = orjson.loads(error.details or "")
    return found
