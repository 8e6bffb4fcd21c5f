"""Evidence reports: what the log says of one event or session, to read and to verify offline."""

from control_api.console.page import ROOT, Answer, Html, Page
from control_api.console.views.audit.installing import installing
from control_api.console.views.audit.report import make_report
from control_api.console.visit import Visit
from control_api.responses.stream import Stream
from control_api.use_cases.audit.export_log import export_log
from control_api.use_cases.audit.list_events import list_events
from control_api.use_cases.audit.show_lineage import show_lineage
from control_api.use_cases.audit.show_session_trail import show_session_trail
from policies.ground.errors import Invalid, SluiceError, TooLarge, invalid

KINDS = {"event": "Event", "session": "Session"}
MAX_ENTRIES = 50_000
"""The most entries of the log that a report is made from."""


async def show_evidence(visit: Visit, problem: SluiceError | None = None) -> Html:
    """The form that asks for a report."""
    values = {
        **installing(),
        "problem": problem,
        "kinds": list(KINDS.items()),
        "kind": visit.query.get("kind", "event"),
        "id": visit.query.get("id", ""),
        "most": MAX_ENTRIES,
    }
    return Html("audit/evidence.html", values, 200 if problem is None else problem.status)


async def download_report(visit: Visit) -> Answer:
    """The report as a ZIP. If it can't be made, the form again, which says why."""
    try:
        return await _report(visit)
    except SluiceError as error:
        return await show_evidence(visit, error)


async def _report(visit: Visit) -> Stream:
    kind = visit.query.get("kind")
    if kind not in KINDS:
        raise invalid([f"kind: must be one of {', '.join(KINDS)}"], "query")
    name = visit.required("id")
    part = await (_part_of_event if kind == "event" else _part_of_session)(visit, name)
    # One at a time of a tenant, as of its analyses: each is a process, and a file on the disk.
    with visit.app.analyses.room(visit.signed_in.tenant_id or ""):
        export: Stream = await visit.call(export_log, **part)
        return await make_report(export, kind, name)


async def _part_of_event(visit: Visit, event_id: str) -> dict[str, str]:
    """The part of the log with the event and the actions that were recorded on it."""
    page = await visit.call(show_lineage, event_id=event_id, limit="1000")
    first = last = page.response.event.seq
    if page.response.actions:
        last = page.response.actions[-1].seq
    if page.next is not None or last - first >= MAX_ENTRIES:
        raise _too_large()
    return {"from": str(first), "to": str(last + 1)}


async def _part_of_session(visit: Visit, session_id: str) -> dict[str, str]:
    """The part of the log from the session's first event on, with what followed from it."""
    trail = await visit.call(show_session_trail, session_id=session_id, limit="1")
    if not trail.rows:
        raise Invalid(f"session `{session_id}` has no event")
    newest = await visit.call(list_events, session_id=session_id, limit="1")
    first = trail.rows[0].seq
    if newest.rows and newest.rows[0].seq - first >= MAX_ENTRIES:
        raise _too_large()
    return {"from": str(first), "limit": str(MAX_ENTRIES)}


def _too_large() -> TooLarge:
    return TooLarge(
        f"the report needs more than {MAX_ENTRIES:,} entries of the log: download the log, and "
        "make the report by `sluice report`"
    )


PAGES = (
    Page("GET", f"{ROOT}/audit/evidence", export_log, show_evidence),
    Page("GET", f"{ROOT}/audit/report", export_log, download_report),
)
