"""A record: what becomes an entry of the audit trail, before it has its place there.

Everything that does not depend on the place is encoded once, here; `core` and `entry` only join
bytes. The same record is spooled by a sidecar (`core`, `audit-trail.md`, Entry) and appended by the
control API (`entry`). Knows the fields of each kind, all of them here, since together they are the
format. Knows no clock: ids and times are arguments.
"""

import hashlib
from collections.abc import Iterable
from typing import Any, NamedTuple

import orjson

from policies.checks.finding import Facts
from policies.evaluate import Decision
from policies.ground.canonical import b64, encode
from policies.ground.errors import Invalid
from policies.ground.json_body import MAX_IDENTIFIER
from policies.ground.masking import masked_json, masked_text
from policies.retrieval import MAX_QUERY, Retrieval
from policies.trail.commitment import commit

MAX_ENTRY = 64 * 1024
"""Bytes of an entry, its place included."""

_PLACE = 4096  # the most that ids, log, prev, seq, src and ts add to `pub` and `cm`
_sha256 = hashlib.sha256


class Record(NamedTuple):
    """`head` is the entry up to `kind`, `pub` the fields in clear, `openings` canonical
    `{path: [salt, value]}` of what `cm` commits to."""

    eid: str
    kind: str
    head: bytes
    pub: bytes
    openings: bytes = b"{}"
    masked: bytes = b"[]"

    def core(self, src: bytes) -> bytes:
        """What an enforcement point hashes and keeps: the record and `src`, without log and seq."""
        return b'%b,"masked":%b,"pub":%b,"src":%b,"v":1}' % (self.head, self.masked, self.pub, src)

    def entry(self, log: str, seq: int, prev: str, ts: str) -> bytes:
        """The entry of a record that came from no enforcement point. `prev` is the base64 of the
        previous leaf hash, or empty for the first."""
        return b'%b,"log":"%b","masked":%b,"prev":"%b","pub":%b,"seq":%d,"ts":"%b","v":1}' % (
            self.head,
            log.encode(),
            self.masked,
            prev.encode(),
            self.pub,
            seq,
            ts.encode(),
        )


def make_record(
    kind: str,
    eid: str,
    pub: bytes,
    cm: bytes = b"{}",
    openings: bytes = b"{}",
    masked: bytes = b"[]",
) -> Record:
    """`Invalid` where the entry would be larger than `MAX_ENTRY`."""
    if len(cm) + len(pub) + len(masked) - 2 > MAX_ENTRY - _PLACE:
        raise Invalid(f"the record is larger than the {MAX_ENTRY - _PLACE} bytes an entry holds")
    head = b'{"cm":%b,"eid":"%b","kind":"%b"' % (cm, eid.encode(), kind.encode())
    return Record(eid, kind, head, pub, openings, masked)


def decision_record(
    retrieval: Retrieval,
    decision: Decision,
    facts: Facts | None,
    *,
    event_id: str,
    salt: bytes,
    masking: bool | None = None,
) -> Record:
    """One evaluation: the response, every input, and the facts used, so that it can be derived
    again. `facts` is None where the call was refused before any were gathered. `salt`: 32 random
    bytes, of this record only. `masking`: whether what is personal is masked; the tenant's setting
    among the facts where it is not given."""
    if masking is None:
        # INVARIANT: where nobody can say, it is masked. What was written can't be taken back.
        masking = facts is None or facts.settings.pii_masking
    personal = {"user_id": retrieval.user_id}
    if retrieval.query is not None:
        personal["query"] = retrieval.query
    masked = _mask(personal) if masking else b"[]"
    cm, openings = commit(salt, personal)
    request = _request(retrieval)
    # Over commitments, not values: whoever guesses a query can't test the guess against this hash.
    context = retrieval.context_hash or _sha256(b"audit/context/v1\0" + request + cm).hexdigest()
    pub = b'{"context_hash":"%b","facts":%b%b,"request":%b,"response":%b}' % (
        context.encode(),
        b"{}" if facts is None else _facts(facts),
        b',"masking":true' if masking else b"",
        request,
        _response(decision),
    )
    return make_record("decision", event_id, pub, cm, openings, masked)


def masked_user(user_id: str) -> str:
    """A user id as it may be written where masking is on; still an identifier."""
    return masked_text(user_id).text[:MAX_IDENTIFIER]


def _mask(personal: dict[str, str]) -> bytes:
    """Masks the texts where they stand; canonical `[[path, rule]]` of what was found."""
    told: list[tuple[str, str]] = []
    for path, text in personal.items():
        masked = masked_text(text)
        told += _told(path, masked.labels)
        personal[path] = masked.text
    # Labels may be longer than what they stand for: the limits hold for what is recorded, too.
    personal["user_id"] = personal["user_id"][:MAX_IDENTIFIER]
    if "query" in personal:
        personal["query"] = personal["query"].encode()[:MAX_QUERY].decode(errors="ignore")
    return encode(sorted(told))


def _told(path: str, labels: Iterable[str]) -> list[tuple[str, str]]:
    return [(path, label) for label in labels]


def _request(retrieval: Retrieval) -> bytes:
    request: dict[str, str] = {
        "agent_role": retrieval.agent_role,
        "sensitivity_level": retrieval.sensitivity_level,
        "source_id": retrieval.source_id,
        "source_type": retrieval.source_type,
    }
    if retrieval.agent_id is not None:
        request["agent_id"] = retrieval.agent_id
    if retrieval.session_id is not None:
        request["session_id"] = retrieval.session_id
    if retrieval.task_type is not None:
        request["task_type"] = retrieval.task_type
    return encode(request)


def _response(decision: Decision) -> bytes:
    response: dict[str, str | int] = {
        "decision": decision.decision,
        "policy_name": decision.policy_name,
        "reason": decision.reason,
    }
    if decision.check is not None:
        response["check"] = decision.check
    if decision.policy_id is not None and decision.policy_version is not None:
        response["policy_id"] = decision.policy_id
        response["policy_version"] = decision.policy_version
    return encode(response)


def _facts(facts: Facts) -> bytes:
    members = b'"key":%b,"require_agent_id":%b,"revision":%d' % (
        facts.key.wire,
        b"true" if facts.settings.require_agent_id else b"false",
        facts.revision,
    )
    if facts.settings.frozen_at is not None:
        members = b'"frozen_at":%d,%b' % (facts.settings.frozen_at, members)
    if facts.agent is not None:
        members = b'"agent":%b,%b' % (facts.agent.wire, members)
    if facts.role is not None:
        members += b',"role":"%b"' % facts.role.digest.encode()
    if facts.session is not None:
        members += b',"session":' + encode(facts.session.to_wire())
    return b"{%b}" % members


def retrieval_lineage(
    event_id: str, event_core: bytes, detail: dict[str, int | str], outcome: str, *, record_id: str
) -> Record:
    """What an allowed retrieval returned, as a sidecar saw it. Nothing personal is in `detail`, so
    it stands in clear. The event is cited by the hash of its core: its leaf is not known yet."""
    event = {"id": event_id, "core": b64(event_core)}
    pub = {"action_type": "retrieval", "detail": detail, "event": event, "outcome": outcome}
    return make_record("lineage", record_id, encode(pub))


def lineage_record(
    event_id: str,
    event_leaf: bytes,
    action_type: str,
    detail: dict[str, Any],
    outcome: str | None,
    *,
    record_id: str,
    salt: bytes,
    masking: bool,
) -> Record:
    """A downstream action that a caller reports. `detail` is free-form and may be personal: it is
    committed to, as the text of its JSON, since the log's encoding has no floats. `Invalid` where
    it is nested too deeply to be written. `masking` masks it, and the texts beside it."""
    try:
        text = orjson.dumps(detail).decode()
    except orjson.JSONEncodeError as error:
        raise Invalid(f"`detail` can't be recorded: {error}") from error
    told: list[tuple[str, str]] = []
    if masking:
        action, said = masked_text(action_type), masked_text(outcome or "")
        action_type, outcome = action.text, outcome and said.text
        # The text above could be written, so its depth is bounded.
        hidden, labels = masked_json(detail)
        text = orjson.dumps(hidden).decode()
        told = [
            *_told("action_type", action.labels),
            *_told("detail", labels),
            *_told("outcome", said.labels),
        ]
    cm, openings = commit(salt, {"detail": text})
    pub: dict[str, object] = {
        "action_type": action_type,
        "event": {"id": event_id, "leaf": b64(event_leaf)},
    }
    if outcome is not None:
        pub["outcome"] = outcome
    if masking:
        pub["masking"] = True
    return make_record("lineage", record_id, encode(pub), cm, openings, encode(told))


def change_record(
    what: str, target: str, by: str, detail: dict[str, Any], *, record_id: str
) -> Record:
    """Who changed what. `what` like `policy.updated`, `target` the id of the thing, `by` the id of
    the key, or `disk`, or `system`; `detail` within the log's encoding, and never a secret."""
    pub = {"what": what, "target": target, "by": by, "detail": detail}
    return make_record("change", record_id, encode(pub))


def gap_record(
    reason: str, *, instance: str | None, first: int | None, lost: int | None, record_id: str
) -> Record:
    """An enforcement point declares records that it could not keep: of the spool `instance`, from
    number `first`, `lost` of them; each None where it is not known."""
    pub = {"reason": reason, "instance": instance, "first": first, "lost": lost}
    return make_record("gap", record_id, encode(pub))


def incarnation_record(held: int, seen: int, doubted: int, *, record_id: str) -> Record:
    """The store was put back to an older state: it held the policy set's revision `held`, where
    `seen` had been signed; the newest state of `doubted` documents is lost. What the log has lost
    follows, as far as enforcement points still have it."""
    pub = {"reason": "the store was put back", "held": held, "seen": seen, "doubted": doubted}
    return make_record("incarnation", record_id, encode(pub))
