"""Decisions, the errors that are raised without an ALLOW, and the rules for which responses count
as a decision.

Performs no I/O. The response must have the form of `POST /v1/context/evaluate`; a response that
differs from it in any way is not a decision.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

_EVENT_HEADER = b"x-sluice-event-id"
_DECISION_HEADER = b"x-sluice-decision"
# An error's message is written by the service; this much of it helps, and more could flood a log.
_MESSAGE_CHARACTERS = 300


Sensitivity = Literal["low", "medium", "high", "critical"]


@dataclass(frozen=True)
class Decision:
    """A decision that Sluice made and recorded. It is true in a condition only if it is an
    ALLOW."""

    decision: str
    """`ALLOW` or `DENY`."""
    event_id: str
    """The decision's id in the audit trail."""
    policy_name: str
    """The name of the policy that allowed the read, or of the check that denied it."""
    reason: str

    def __bool__(self) -> bool:
        return self.decision == "ALLOW"


class NotAllowed(Exception):
    """Raised if there is no ALLOW, so that nothing was read. Its message is written for a model: it
    says what happened, and what to do next."""

    def __init__(self, source_id: str, text: str) -> None:
        super().__init__(text)
        self.source_id = source_id


class Denied(NotAllowed):
    """Raised if Sluice denied the read. `decision` is the decision."""

    def __init__(self, source_id: str, decision: Decision) -> None:
        super().__init__(
            source_id,
            f"Access to `{source_id}` was denied: {decision.reason}. Nothing was read. This is a "
            "policy decision, so calling again gives the same answer. Continue without this data, "
            "and tell the user that access was denied, with the event id of the record: "
            f"{decision.event_id}",
        )
        self.decision = decision

    def __reduce__(self) -> tuple[type[Denied], tuple[str, Decision]]:
        return Denied, (self.source_id, self.decision)  # it may cross a process pool

    @property
    def event_id(self) -> str:
        return self.decision.event_id

    @property
    def policy_name(self) -> str:
        return self.decision.policy_name

    @property
    def reason(self) -> str:
        return self.decision.reason


class Unavailable(NotAllowed):
    """Raised if no decision could be obtained: no response arrived in time, or the response is not
    a decision."""

    _advice = "Continue without this data, or try again later."

    def __init__(self, source_id: str, problem: str) -> None:
        super().__init__(
            source_id,
            f"Access to `{source_id}` could not be checked: {problem}. Nothing was read. "
            f"{self._advice}",
        )
        self.problem = problem

    def __reduce__(self) -> tuple[type[Unavailable], tuple[str, str]]:
        return type(self), (self.source_id, self.problem)


class Misconfigured(Unavailable):
    """Raised if the sidecar refused the agent's key (401 or 403). It will refuse it again: the key
    is unknown, revoked, expired or of another scope, or bound to an agent for which this sidecar
    may not decide."""

    _advice = (
        "This is an error in the agent's key or in what the key is bound to, so calling again "
        "changes nothing. Continue without this data, and tell the user that the operator of the "
        "agent has to correct it."
    )


class Answer:
    """A whole HTTP response: status, header fields with names in lower case, and body."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body


def no_decision(source_id: str, problem: str, status: int | None) -> Unavailable:
    """Return the error for a response that is not a decision. `status` is its HTTP status, None if
    there was no response; `problem` says what is wrong."""
    # The two by which a sidecar refuses a key. A reason that passes has another.
    kind = Misconfigured if status in (401, 403) else Unavailable
    return kind(source_id, problem)


def read_decision(answer: Answer) -> Decision | str:
    """Return the decision in a response, or a description of the problem if it contains none."""
    body = _json_object(answer)
    if answer.status != 200:
        return f"the sidecar answered {answer.status}{_message(body)}"
    if body is None:
        return "the answer is no JSON object"
    fields = [body.get(each) for each in ("decision", "event_id", "policy_name", "reason")]
    texts = [each for each in fields if isinstance(each, str)]
    if len(texts) != len(fields):
        return "the answer is no decision"
    decision = Decision(*texts)
    if decision.decision not in ("ALLOW", "DENY") or not decision.event_id:
        return "the answer is no decision"
    for name, value in answer.headers:
        # The service says both twice. If they differ, something has changed the answer.
        stated = {_DECISION_HEADER: decision.decision, _EVENT_HEADER: decision.event_id}.get(name)
        if stated is not None and stated.encode() != value:
            return "the answer's header and body differ"
    return decision


def _json_object(answer: Answer) -> dict[str, Any] | None:
    types = [value for name, value in answer.headers if name == b"content-type"]
    if len(types) != 1 or types[0].partition(b";")[0].strip().lower() != b"application/json":
        return None
    try:
        body = json.loads(answer.body, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def _without_repeats(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) != len(members):
        # One reader would take the first, another the last.
        raise ValueError("a member stands twice")
    return found


def _message(body: dict[str, Any] | None) -> str:
    """Return the message of an error response on one line, with a colon before it; empty if there
    is none."""
    said = [] if body is None else [body.get("message"), body.get("details")]
    text = ": ".join(each for each in said if isinstance(each, str))[:_MESSAGE_CHARACTERS]
    return f": {''.join(each if each.isprintable() else ' ' for each in text)}" if text else ""
