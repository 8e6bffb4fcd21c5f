"""Records of what followed from a decision: what was returned, and what was done with it.

A sidecar records each retrieval it forwarded; a caller reports its downstream actions. Both cite
the event that they follow from.
"""

from dataclasses import dataclass
from typing import Any

import orjson

from policies.ground.canonical import b64, encode
from policies.ground.errors import Invalid
from policies.ground.masking import masked_json, masked_text
from policies.trail.commitment import commit
from policies.trail.record import Record, make_record


@dataclass(frozen=True, slots=True)
class ReportedAction:
    """A downstream action (`service.md` 2.5) on the event with this id and leaf hash."""

    event_id: str
    event_leaf: bytes
    action_type: str
    detail: dict[str, Any]
    outcome: str | None


def retrieval_lineage(
    event_id: str, event_core: bytes, detail: dict[str, int | str], outcome: str, *, record_id: str
) -> Record:
    """What an allowed retrieval returned, as a sidecar saw it. `detail` holds nothing personal, so
    it is recorded in clear."""
    # Cite the event by the hash of its core: it has no leaf hash before it reaches the log.
    event = {"id": event_id, "core": b64(event_core)}
    pub = {"action_type": "retrieval", "detail": detail, "event": event, "outcome": outcome}
    return make_record("lineage", record_id, encode(pub))


def lineage_record(action: ReportedAction, *, record_id: str, salt: bytes, masking: bool) -> Record:
    """A downstream action that a caller reports. `masking` says whether personal data is masked, in
    `detail` and in the texts beside it. Raises `Invalid` if `detail` is nested too deeply."""
    try:
        # Encoded as text, since the log's encoding has no floats.
        text = orjson.dumps(action.detail).decode()
    except orjson.JSONEncodeError as error:
        raise Invalid(f"`detail` can't be recorded: {error}") from error
    action_type, outcome = action.action_type, action.outcome
    masked: list[tuple[str, str]] = []
    if masking:
        type_, result = masked_text(action_type), masked_text(outcome or "")
        action_type, outcome = type_.text, outcome and result.text
        # orjson wrote `detail` above, so its depth is bounded and recursion into it is safe.
        hidden, labels = masked_json(action.detail)
        text = orjson.dumps(hidden).decode()
        found = (("action_type", type_.labels), ("detail", labels), ("outcome", result.labels))
        masked = [(path, label) for path, labels in found for label in labels]
    pub: dict[str, object] = {
        "action_type": action_type,
        "event": {"id": action.event_id, "leaf": b64(action.event_leaf)},
    }
    if outcome is not None:
        pub["outcome"] = outcome
    if masking:
        pub["masking"] = True
    # `detail` is free-form and may be personal, so the record only commits to it.
    cm, openings = commit(salt, {"detail": text})
    return make_record("lineage", record_id, encode(pub), cm, openings, encode(masked))
