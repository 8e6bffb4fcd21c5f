"""Makes lineage records, which tell what followed from a decision: the data that was returned, and
the actions that were taken with it.

A sidecar records each retrieval that it forwarded; a caller reports its downstream actions. Both
cite the event of the decision.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from policies.ground.canonical import b64, encode
from policies.ground.errors import Invalid
from policies.ground.masking import Masked, MaskingTurns
from policies.trail.commitment import commit
from policies.trail.record import Record, make_record


@dataclass(frozen=True, slots=True)
class ReportedAction:
    """A downstream action that a caller reports (`CONTRACT.md`, Lineage). `event_id` and
    `event_leaf` are the id and the leaf hash of the decision's event that it follows from."""

    event_id: str
    event_leaf: bytes
    action_type: str
    detail: dict[str, Any]
    outcome: str | None


def retrieval_lineage(
    event_id: str, event_core: bytes, detail: dict[str, int | str], outcome: str, *, record_id: str
) -> Record:
    """Return the record of the data that an allowed retrieval returned, as a sidecar saw it.
    `event_core` is the core hash of the decision's record. `detail` holds nothing personal, so it
    is recorded in clear."""
    # Cite the event by the hash of its core: it has no leaf hash before it reaches the log.
    event = {"id": event_id, "core": b64(event_core)}
    pub = {"action_type": "retrieval", "detail": detail, "event": event, "outcome": outcome}
    return make_record("lineage", record_id, encode(pub))


class MaskedTexts(NamedTuple):
    """The texts of a reported action that may be personal, after masking. `detail` is a decoded
    JSON object with the labels of what was masked in it."""

    action_type: Masked
    detail: tuple[Any, tuple[str, ...]]
    outcome: Masked


async def masked_texts(turns: MaskingTurns, action: ReportedAction) -> MaskedTexts:
    """Mask the texts of an action that may be personal, taking turns with other requests. Raises
    `Invalid` if `detail` is nested too deeply."""
    _encoded(action.detail)
    return MaskedTexts(
        await turns.text(action.action_type),
        await turns.json(action.detail),
        await turns.text(action.outcome or ""),
    )


def lineage_record(
    action: ReportedAction, *, record_id: str, salt: bytes, masked: MaskedTexts | None
) -> Record:
    """Return the record of a downstream action that a caller reports. `masked` are its masked texts
    (`masked_texts`), None if personal data is not masked. Raises `Invalid` if `detail` is nested
    too deeply."""
    text = _encoded(action.detail if masked is None else masked.detail[0])
    action_type, outcome = action.action_type, action.outcome
    found: list[tuple[str, str]] = []
    if masked is not None:
        action_type, outcome = masked.action_type.text, outcome and masked.outcome.text
        labels = (
            ("action_type", masked.action_type.labels),
            ("detail", masked.detail[1]),
            ("outcome", masked.outcome.labels),
        )
        found = [(path, label) for path, each in labels for label in each]
    pub: dict[str, object] = {
        "action_type": action_type,
        "event": {"id": action.event_id, "leaf": b64(action.event_leaf)},
    }
    if outcome is not None:
        pub["outcome"] = outcome
    if masked is not None:
        pub["masking"] = True
    # `detail` is free-form and may be personal, so the record only commits to it.
    cm, openings = commit(salt, {"detail": text})
    return make_record("lineage", record_id, encode(pub), cm, openings, encode(found))


def _encoded(detail: dict[str, Any]) -> str:
    try:
        # Encoded as text, since the log's encoding has no floats. orjson bounds the depth.
        return orjson.dumps(detail).decode()
    except orjson.JSONEncodeError as error:
        raise Invalid(f"`detail` can't be recorded: {error}") from error
