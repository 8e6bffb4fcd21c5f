"""An evaluation request: which agent wants to read which source, for which user. Knows its fields
and their limits (`CONTRACT.md`, Requests, Evaluation), and nothing of how it is decided."""

import re
from typing import Any, NamedTuple

from policies.definitions.model import RANK, SENSITIVITIES, Sensitivity
from policies.ground.canonical import identifier_fault
from policies.ground.errors import invalid
from policies.ground.masking import Masked
from policies.levels import Levels
from policies.statement import StatementMark

MAX_QUERY = 64 * 1024
"""The most bytes of UTF-8 that a query may have."""

SOURCE_TYPE = re.compile(r"[a-z0-9_-]{1,32}\Z")
"""The pattern that a source type must match (`CONTRACT.md`, Evaluation)."""
_CONTEXT_HASH = re.compile(r"[0-9a-f]{64}\Z")
# The fast path: one match accepts a clean string. Only a string that fails is examined further.
_CLEAN = re.compile(r"[^\x00-\x1f\x7f-\x9f]{1,256}\Z").match
_LEVELS = ", ".join(f"`{name}`" for name in SENSITIVITIES)


class Retrieval(NamedTuple):
    """One evaluation request: an agent in a role wants to read a source for a user. A tuple,
    because every decision builds one.

    `levels` says who states which sensitivity level of the source; None as long as only the request
    does. No request has it as a field: it is added later. `masked` holds pairs of a text of the
    retrieval and its masked form, made before the record is (`policies.trail.masked_ahead`).
    `statement` is there if a statement reads the source; its text is the query. It is no field of a
    request either.
    """

    agent_role: str
    user_id: str
    source_id: str
    sensitivity_level: Sensitivity
    session_id: str | None = None
    task_type: str | None = None
    agent_id: str | None = None
    query: str | None = None
    source_type: str = "api"
    context_hash: str | None = None
    levels: Levels | None = None
    masked: tuple[tuple[str, Masked], ...] = ()
    statement: StatementMark | None = None


def parse_retrieval(body: dict[str, Any]) -> Retrieval:
    """Parse the body of an evaluation. Ignores unknown fields (`CONTRACT.md`, Requests).

    Raises `Invalid` with every complaint, one per line. Null is the same as absent.
    """
    # Build a tuple directly, in the order of `Retrieval`: every evaluation runs this.
    get = body.get
    source_type = get("source_type")
    fields: tuple[Any, ...] = (
        get("agent_role"),
        get("user_id"),
        get("source_id"),
        get("sensitivity_level"),
        get("session_id"),
        get("task_type"),
        get("agent_id"),
        get("query"),
        "api" if source_type is None else source_type,
        get("context_hash"),
    )
    found = complaints(fields)
    if found:
        raise invalid(found)
    return Retrieval(*fields)


def complaints(fields: tuple[Any, ...]) -> list[str]:
    """Return the faults of an evaluation request, each as `<field>: <fault>`. `fields` are the
    values of a `Retrieval` in its order, from `agent_role` to `context_hash`."""
    role, user, source, level, session, task, agent, query, source_type, context, *_ = fields
    found: list[str] = []
    # Compare exact types: JSON yields no subclasses, and this is faster than `isinstance`.
    for field, given in (("agent_role", role), ("user_id", user), ("source_id", source)):
        if type(given) is not str or not _CLEAN(given):
            fault = "is required" if given is None else identifier_fault(given)
            found.append(f"{field}: {fault}")
    if type(level) is not str or level not in RANK:
        fault = "is required: " if level is None else "must be "
        found.append(f"sensitivity_level: {fault}one of {_LEVELS}")
    for field, value in (("session_id", session), ("task_type", task), ("agent_id", agent)):
        if value is not None and (type(value) is not str or not _CLEAN(value)):
            found.append(f"{field}: {identifier_fault(value)}")
    if query is not None and (type(query) is not str or not _fits(query)):
        found.append(f"query: must be a string of at most {MAX_QUERY} bytes")
    if type(source_type) is not str or not SOURCE_TYPE.match(source_type):
        found.append("source_type: must have the form [a-z0-9_-]{1,32}")
    if context is not None and (type(context) is not str or not _CONTEXT_HASH.match(context)):
        found.append("context_hash: must be 64 lower-case hex digits")
    return found


def _fits(text: str) -> bool:
    # A character takes at most 4 bytes of UTF-8, so a short text needs no encoding to be measured.
    return len(text) * 4 <= MAX_QUERY or len(text.encode()) <= MAX_QUERY
