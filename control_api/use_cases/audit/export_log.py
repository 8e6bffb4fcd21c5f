"""Exports a tenant's log as a file that can be verified elsewhere."""

import re
from collections.abc import AsyncGenerator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from control_api.app_context import MAX_EXPORTS, AppContext
from control_api.auth.principal import Caller
from control_api.log.export.file import Export, Moment, Wanted, open_export
from control_api.requests.base import RequestModel
from control_api.requests.time import log_time
from control_api.responses.stream import Stream
from policies.ground.canonical import micros
from policies.ground.errors import Unavailable
from policies.trail.log_file.lines import MEDIA_TYPE

_SEQ = re.compile(r"[0-9]{1,15}\Z")


def _place(text: str) -> str:
    """A number as it is, a time in the log's own form."""
    if _SEQ.match(text):
        return text
    try:
        return log_time(text)
    except ValueError as error:
        raise ValueError(f"must be a `seq` of at most 15 digits; or else {error}") from None


_FORMS = [{"pattern": "^[0-9]{1,15}$"}, {"format": "date-time"}]
Place = Annotated[
    str, Field(max_length=64, json_schema_extra={"anyOf": _FORMS}), AfterValidator(_place)
]


class ExportRequest(RequestModel):
    """The part to export, and whether with openings."""

    first: Place | None = Field(
        None,
        alias="from",
        description="The first entry: its `seq`, or a time (RFC 3339), which means the first entry "
        "that the control API recorded at or after it. The oldest entry by default.",
    )
    until: Place | None = Field(
        None,
        alias="to",
        description="Where to stop: the `seq` or time of the first entry that is left out. The end "
        "of the log by default.",
    )
    openings: Literal["all", "none"] = Field(
        "all",
        description="`none` leaves out the openings, which hold all personal data of the log.",
    )


async def export_log(app: AppContext, caller: Caller, request: ExportRequest) -> Stream:
    """Export the audit trail as a file that proves itself.

    The file holds the entries as stored, with the keys, checkpoints and policies that its
    verification needs (NDJSON; `policies/README.md` describes it). It covers the log as of now and
    is compressed with gzip or zstd if `Accept-Encoding` allows. If the connection breaks, continue
    with `from` set to the `seq` after the last entry that arrived.
    """
    if app.exporting.locked():
        raise Unavailable(
            f"{MAX_EXPORTS} exports are running already, the most allowed: try again later"
        )
    wanted = Wanted(
        _bound(request.first), _bound(request.until), openings=request.openings == "all"
    )
    export = await open_export(app.store, caller.tenant_id, wanted, app.ring)
    header = export.header
    name = f"log-{header.first}-{header.until}.ndjson"
    return Stream(MEDIA_TYPE, _pieces(app, caller, export), name)


def _bound(text: str | None) -> int | Moment | None:
    if text is None:
        return None
    return int(text) if text.isdecimal() else Moment(micros(text))


async def _pieces(app: AppContext, caller: Caller, export: Export) -> AsyncGenerator[bytes, None]:
    async def why_stop() -> str | None:
        if app.stopping.is_set():
            return "the service is stopping"
        # A revoked key must not read on for as long as its stream lasts.
        if not await caller.live(app.clock.now()):
            return "the key of this export is not valid any longer"
        return None

    async with app.exporting:
        async for piece in export.pieces(why_stop):
            yield piece
