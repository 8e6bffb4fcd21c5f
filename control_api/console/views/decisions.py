"""Shows the console's pages of decisions: the search, the live tail, and the export of matching
decisions; and each decision's own page, with its reasons, its lineage, and the proof that the
reader's browser verifies."""

from http import HTTPStatus
from typing import Any

import orjson

from control_api.audit.event_models import AuditEvent
from control_api.audit.event_operations import (
    follow_events,
    list_events,
    show_event,
    show_lineage,
    show_session_trail,
)
from control_api.audit.export_operations import export_log
from control_api.audit.proof_models import LogKeys, Verification
from control_api.audit.proof_operations import prove_consistency, prove_event, show_log_keys
from control_api.audit.verification_operations import show_verification
from control_api.console.page import HtmlPage, JsonAnswer, PageRedirect, Visit, address, get
from control_api.console.words import checks_in_words, detail, verification_fault
from control_api.decisions.models import Simulated
from control_api.decisions.operations import simulate_context
from control_api.edge.answers import Document, Stream, write_cursor
from control_api.policy.operations import list_policies
from policies.ground.canonical import b64, rfc3339, unb64
from policies.ground.errors import Conflict, Invalid, SluiceError, invalid
from policies.trail import checkpoint
from policies.trail.proofs.signed_note import ED25519, VerifierKey
from policies.trail.proofs.tree_proofs import TlogProof

VALUES = (
    "decision", "agent_role", "agent_id", "user_id", "source_id", "session_id", "policy_name",
)  # fmt: skip
"""The fields of an event that it may be searched by, beside its time."""
TIMES = ("from", "to")
EXPORT_NAMES = {"from": "since", "to": "before"}
"""The names of the query fields for these times in the export of decisions."""
FORMS = {
    "csv": "CSV",
    "ocsf": "OCSF",
    "ecs": "Elastic Common Schema",
    "otel": "OpenTelemetry",
    "cloudevents": "CloudEvents",
}
_HOUR, _DAY = 3_600_000_000, 86_400_000_000  # microseconds


async def show_decisions(visit: Visit) -> HtmlPage | PageRedirect:
    """Show the events that match the query, newest first. If the query has an event's id, lead to
    that event's page."""
    if event_id := visit.query.get("event_id", "").strip():
        return PageRedirect(address("/decision", id=event_id))
    given = visit.filled(*VALUES, *TIMES)
    fields = visit.filled(*VALUES, "cursor")
    try:
        found = await visit.call(list_events, limit="50", **fields, **visit.times(*TIMES))
    except SluiceError as error:
        return HtmlPage("decisions/list.html", _list_values(visit, given), error)
    # What is recorded from here on is for the tail: it neither misses an entry nor repeats one.
    after = found.rows[0].seq + 1 if found.rows else 0
    live = address("/decisions/live", **given, after=after)
    return HtmlPage(
        "decisions/list.html", {**_list_values(visit, given), "events": found, "live": live}
    )


async def follow_decisions(visit: Visit) -> Stream:
    fields = visit.filled(*VALUES, "after") | visit.times(*TIMES)
    # What a browser sends when it connects again: the entry to go on from.
    if last := visit.headers.get("Last-Event-ID"):
        fields["after"] = last
    stream: Stream = await visit.call(follow_events, **fields)
    return stream


async def download_decisions(visit: Visit) -> Stream:
    form = visit.query.get("format")
    if form not in FORMS:
        raise invalid([f"format: must be one of {', '.join(FORMS)}"], "query")
    given = visit.filled(*VALUES)
    times = visit.times(*TIMES)
    # Every field but these two has one name in both operations: there, `from` is an entry.
    given |= {EXPORT_NAMES[name]: time for name, time in times.items()}
    stream: Stream = await visit.call(export_log, format=form, **given)
    return stream


def _list_values(visit: Visit, given: dict[str, str]) -> dict[str, object]:
    now = visit.console.clock.now()
    return {
        "given": given,
        "names": VALUES[1:],
        "events": None,
        "presets": [
            ("Denied in the last hour", _preset(decision="DENY", since=now - _HOUR)),
            ("Denied today", _preset(decision="DENY", since=now - _DAY)),
            ("All in the last hour", _preset(since=now - _HOUR)),
        ],
        "downloads": [
            (name, address("/decisions/download", format=form, **given))
            for form, name in FORMS.items()
        ],
        # A page further back, or of a time that is over, gains nothing.
        "is_live": not visit.query.get("cursor") and not visit.query.get("to"),
    }


def _preset(*, since: int, **values: str) -> str:
    # To the minute, so that a page that is loaded again has the same address.
    return address("/decisions", **values, **{"from": rfc3339(since // 60_000_000 * 60_000_000)})


async def show_decision(visit: Visit) -> HtmlPage:
    """Show the decision, its checks in their order, and the data that the reader's browser
    verifies."""
    event_id = visit.required("id")
    try:
        found = await visit.call(show_event, event_id=event_id)
        event: AuditEvent = found.event
        lineage = await visit.call(show_lineage, event_id=event_id, limit="50")
        before, after = await _neighbours(visit, event)
        today = await _today(visit, event)
        policy_id = await _policy_id(visit, event)
        verification: Verification = await visit.call(show_verification)
    except SluiceError as error:
        if error.status != HTTPStatus.INTERNAL_SERVER_ERROR:
            raise
        # Stored rows were damaged: this is what the page is for, not a fault of the service.
        problem = Conflict(f"FAILED: event `{event_id}`: {error.message}")
        return HtmlPage("problem.html", {"phrase": "Damaged log"}, problem)
    values = {
        "event": event,
        "fault": verification_fault(verification, event),
        "checks": checks_in_words(found.explain.checks) if found.explain else [],
        "unexplained": found.unexplained,
        "suggestion": found.suggestion,
        "miss": found.explain.nearest_miss if found.explain else None,
        "actions": [(each, detail(each)) for each in lineage.response.actions],
        "more_actions": lineage.next is not None,
        "today": today,
        "policy_id": policy_id,
        "before": before,
        "after": after,
        "proof": address("/decision/proof", id=event_id),
        "download": address("/decision/proof.txt", id=event_id),
        "evidence": address("/decision/evidence.json", id=event_id),
        "growth": address("/decision/growth"),
    }
    return HtmlPage("decision.html", values)


async def send_proof(visit: Visit) -> JsonAnswer:
    """Send the proof, the openings that are still stored and the log's keys to the browser."""
    event_id = visit.required("id")
    text: Document = await visit.call(prove_event, event_id=event_id)
    proven = await visit.call(prove_event, event_id=event_id, accept="application/json")
    keys: LogKeys = await visit.call(show_log_keys)
    return JsonAnswer(
        {
            "proof": text.body.decode(),
            "openings": proven.openings,
            "log_key": keys.log_key,
            "log_key_history": keys.log_key_history,
            "witnesses": keys.witnesses,
            "incarnation": await _incarnation(visit, keys),
        }
    )


async def send_growth(visit: Visit) -> JsonAnswer:
    """Send the proof that the log only grew between two checkpoints."""
    given = visit.filled("from", "to")
    proven = await visit.call(prove_consistency, **given)
    return JsonAnswer(proven.to_wire())


async def download_proof(visit: Visit) -> Document:
    text: Document = await visit.call(prove_event, event_id=visit.required("id"))
    return text


async def download_evidence(visit: Visit) -> Document:
    """Return a report on this decision alone, as `sluice report` writes it: the entry, its
    openings, its proof, and the keys that the service claims. `sluice verify` checks it offline."""
    event_id = visit.required("id")
    text: Document = await visit.call(prove_event, event_id=event_id)
    proven = await visit.call(prove_event, event_id=event_id, accept="application/json")
    keys = await visit.call(show_log_keys)
    proof = TlogProof.parse(text.body.decode())
    entry = proof.extra or b""
    origin = checkpoint.unverified(proof.note).origin
    report = {
        "format": "sluice-report/1",
        "log": orjson.loads(entry)["log"],
        "origin": origin,
        "selection": {"event": event_id},
        # It was made from the log itself, and from no export.
        "export": {},
        "keys": _claimed(origin, keys),
        "checkpoint": proof.note,
        "entries": [
            {
                "entry": entry.decode(),
                "openings": orjson.dumps(proven.openings).decode(),
                "proof": [b64(each) for each in proof.hashes],
            }
        ],
    }
    return Document("application/json", orjson.dumps(report, option=orjson.OPT_INDENT_2))


async def _incarnation(visit: Visit, keys: LogKeys) -> str | None:
    """Return the proof of the `incarnation` entry by which an operator let the log go on after it
    diverged from its checkpoints; None if there is none."""
    if keys.incarnation is None:
        return None
    text: Document = await visit.call(prove_event, event_id=keys.incarnation.event_id)
    return text.body.decode()


def _claimed(origin: str, keys: LogKeys) -> list[dict[str, Any]]:
    """Return the keys in the form of an export's header, the oldest first."""
    chain = keys.log_key_history
    publics = [chain[0]["from"], *(each["to"] for each in chain)] if chain else [keys.log_key]
    return [
        {"key": VerifierKey(origin, ED25519, unb64(public)).text(), "endorsement": endorsement}
        for public, endorsement in zip(publics, [None, *chain], strict=True)
    ]


async def _neighbours(
    visit: Visit, event: AuditEvent
) -> tuple[AuditEvent | None, AuditEvent | None]:
    """Return the session's decisions before and after this one; None where there is none, or
    without a session."""
    if event.session_id is None:
        return None, None
    # From this decision on: a session may have many thousands.
    here = {"session_id": event.session_id, "cursor": write_cursor((event.seq,)), "limit": "1"}
    earlier = await visit.call(list_events, **here)
    later = await visit.call(show_session_trail, **here)
    return (earlier.rows[0] if earlier.rows else None), (later.rows[0] if later.rows else None)


async def _today(visit: Visit, event: AuditEvent) -> Simulated | None:
    """Return how the policies in force now would decide the same request; None if its user was
    erased, or a field is no longer valid. The session is left out, since it has gone on since."""
    names = ("agent_role", "user_id", "source_id", "sensitivity_level", "task_type", "agent_id")
    if event.user_id is None:
        return None
    try:
        fields = {name: getattr(event, name) for name in names}
        answer: Simulated = await visit.call(simulate_context, **fields)
    except Invalid:
        return None
    return answer


async def _policy_id(visit: Visit, event: AuditEvent) -> str | None:
    """Return the id of the policy that decided, if one did and still exists. It is found by its
    name, since names are unique."""
    if event.policy_version is None:
        return None
    try:
        found = await visit.call(list_policies, name=event.policy_name, limit="50")
    except Invalid:
        return None
    named = (each.policy_id for each in found.rows if each.name == event.policy_name)
    return next(named, None)


PAGES = (
    get("/decisions", list_events, show_decisions),
    get("/decisions/live", follow_events, follow_decisions),
    get("/decisions/download", export_log, download_decisions),
    get("/decision", show_event, show_decision),
    get("/decision/proof", prove_event, send_proof),
    get("/decision/proof.txt", prove_event, download_proof),
    get("/decision/evidence.json", prove_event, download_evidence),
    get("/decision/growth", prove_consistency, send_growth),
)
