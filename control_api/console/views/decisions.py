"""The console's pages of the area "Decisions": search, the live tail, export of what matches."""

from control_api.audit.event_operations import follow_events, list_events
from control_api.audit.export_operations import export_log
from control_api.console.page import Html, Page, See
from control_api.console.routes import ROOT
from control_api.console.visit import Visit, address
from control_api.edge.answers import Stream
from policies.ground.canonical import rfc3339
from policies.ground.errors import SluiceError, invalid

VALUES = (
    "decision", "agent_role", "agent_id", "user_id", "source_id", "session_id", "policy_name",
)  # fmt: skip
"""What an event may be searched by, beside its time."""
TIMES = ("from", "to")
EXPORT_NAMES = {"from": "since", "to": "before"}
"""How the export of decisions calls these times."""
FORMS = {
    "csv": "CSV",
    "ocsf": "OCSF",
    "ecs": "Elastic Common Schema",
    "otel": "OpenTelemetry",
    "cloudevents": "CloudEvents",
}
_HOUR, _DAY = 3_600_000_000, 86_400_000_000  # microseconds


async def show_decisions(visit: Visit) -> Html | See:
    """The events that match the query, newest first, 50 on a page; of an event's id, its page."""
    if event_id := visit.query.get("event_id", "").strip():
        return See(address("/decision", id=event_id))
    given = visit.given(*VALUES, *TIMES)
    fields = visit.given(*VALUES, "cursor")
    try:
        found = await visit.call(list_events, limit="50", **fields, **visit.times(*TIMES))
    except SluiceError as error:
        return Html("decisions/list.html", {**_shown(visit, given), "problem": error}, error.status)
    # What is recorded from here on is for the tail: it neither misses an entry nor repeats one.
    after = found.rows[0].seq + 1 if found.rows else 0
    live = address("/decisions/live", **given, after=after)
    return Html("decisions/list.html", {**_shown(visit, given), "events": found, "live": live})


async def follow_decisions(visit: Visit) -> Stream:
    """New events that match the query, as Server-Sent Events."""
    fields = visit.given(*VALUES, "after") | visit.times(*TIMES)
    # What a browser sends when it connects again: the entry to go on from.
    if last := visit.headers.get("Last-Event-ID"):
        fields["after"] = last
    stream: Stream = await visit.call(follow_events, **fields)
    return stream


async def download_decisions(visit: Visit) -> Stream:
    """The events that match the query, in a format for other tools."""
    form = visit.query.get("format")
    if form not in FORMS:
        raise invalid([f"format: must be one of {', '.join(FORMS)}"], "query")
    given = visit.given(*VALUES)
    times = visit.times(*TIMES)
    # Every field but these two has one name in both operations: there, `from` is an entry.
    given |= {EXPORT_NAMES[name]: time for name, time in times.items()}
    stream: Stream = await visit.call(export_log, format=form, **given)
    return stream


def _shown(visit: Visit, given: dict[str, str]) -> dict[str, object]:
    now = visit.console.clock.now()
    return {
        "given": given,
        "names": VALUES[1:],
        "events": None,
        "problem": None,
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


PAGES = (
    Page("GET", f"{ROOT}/decisions", list_events, show_decisions),
    Page("GET", f"{ROOT}/decisions/live", follow_events, follow_decisions),
    Page("GET", f"{ROOT}/decisions/download", export_log, download_decisions),
)
