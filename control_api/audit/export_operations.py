"""Exports a tenant's log: a file that can be verified elsewhere, or its decisions in another
format."""

from collections.abc import AsyncGenerator
from typing import Annotated, Literal

from pydantic import Field

from control_api.audit.bundle import MAX_EXPORTS, Audit
from control_api.audit.event_operations import event_filters
from control_api.audit.event_requests import EndOfEntries, EventValues, FirstEntry
from control_api.auth import Caller
from control_api.current_request import ends_with_client
from control_api.edge.answers import Stream
from control_api.edge.field_descriptions import says
from control_api.edge.requests import MostEntries, RequestModel, Time
from control_api.log.export.decisions import DecisionExport, open_decisions
from control_api.log.export.file import Export, Wanted, open_export
from control_api.log.export.place import Moment
from control_api.log.formats import FORMATS
from control_api.log.search import EVERY_EVENT
from policies.ground.canonical import micros
from policies.ground.errors import Unavailable, invalid
from policies.trail.log_file.lines import MEDIA_TYPE


def bound(place: str | None) -> int | Moment | None:
    """Convert a text of the type `control_api.audit.event_models.Place`, a `seq` or a time, to a
    bound of the part of the log. None stands for the log's own beginning or end."""
    if place is None:
        return None
    return int(place) if place.isdecimal() else Moment(micros(place))


class ExportRequest(EventValues, RequestModel):
    """The part to export, its format, and whether with openings. The other fields are the filters
    of a list of events, and need `format`."""

    form: Literal["ocsf", "ecs", "cloudevents", "otel", "csv"] | None = Field(
        None,
        alias="format",
        description="A format for the decisions alone, one on each line: OCSF 1.8.0, Elastic "
        "Common Schema 8.17, CloudEvents 1.0, OpenTelemetry's `LogRecord`, or CSV. The file of the "
        "audit trail's own format by default.",
    )
    first: FirstEntry = None
    until: EndOfEntries = None
    openings: Annotated[
        Literal["all", "none"],
        says("`none` leaves out the openings, which hold all personal data of the log."),
    ] = "all"
    limit: Annotated[
        MostEntries | None,
        says(
            "The most entries to export; with `format`, the most decisions. To continue, "
            "set `from` to the `seq` after that of the last one."
        ),
    ] = None
    since: Annotated[
        Time | None, says("With `format`: the earliest time of a decision, by its own clock.")
    ] = None
    before: Annotated[
        Time | None, says("With `format`: the time before which a decision was made.")
    ] = None


@ends_with_client
async def export_log(audit: Audit, caller: Caller, request: ExportRequest) -> Stream:
    """Export the audit trail as a file that proves itself.

    The file holds the entries as stored, with the keys, checkpoints and policies that its
    verification needs (NDJSON; `policies/trail/README.md` describes it). With `format`, the
    response has the decisions alone, one on each line, without the text of any query and without
    what was erased (`control_api/log/FORMATS.md` has the fields); the filters of a list of
    events select among them. Either covers the log as of now and is compressed with gzip or zstd
    if `Accept-Encoding` allows. If the connection breaks, continue with `from` set to the `seq`
    after the last one that arrived.
    """
    if audit.exporting.locked():
        raise Unavailable(
            f"{MAX_EXPORTS} exports are running already, the most allowed: try again later"
        )
    filters = event_filters(request, request.since, request.before)
    if request.form is None and filters != EVERY_EVENT:
        # The audit trail's own file proves that nothing is missing, so nothing can be left out.
        raise invalid(["format: is required with filters"], "query")
    first, until = bound(request.first), bound(request.until)
    wanted = Wanted(first, until, openings=request.openings == "all", limit=request.limit)
    if request.form is not None:
        form = FORMATS[request.form]
        decisions = await open_decisions(audit.store, caller.tenant_id, wanted, form, filters)
        name = f"decisions-{decisions.first}-{decisions.until}.{form.suffix}"
        return Stream(form.media_type, _pieces(audit, caller, decisions), name)
    export = await open_export(audit.store, caller.tenant_id, wanted, audit.ring)
    header = export.header
    name = f"log-{header.first}-{header.until}.ndjson"
    return Stream(MEDIA_TYPE, _pieces(audit, caller, export), name)


async def _pieces(
    audit: Audit, caller: Caller, export: Export | DecisionExport
) -> AsyncGenerator[bytes, None]:
    async def why_stop() -> str | None:
        if audit.stopping.is_set():
            return "the service is stopping"
        # A revoked key must not read on for as long as its stream lasts.
        if not await caller.live(audit.clock.now()):
            return "the key of this export is not valid any longer"
        return None

    async with audit.exporting:
        async for piece in export.pieces(why_stop):
            yield piece
