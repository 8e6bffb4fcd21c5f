"""Makes evidence reports and downloads of the log, and shows the console's pages that ask for them.

    export > a file, at most MAX_EXPORT bytes > sluice report > report.html and report.json > a ZIP

The program that makes the report is a verifier of its own, which this service starts and does not
import.
"""

import asyncio
import contextlib
import io
import os
import tempfile
import zipfile
from collections.abc import AsyncGenerator
from pathlib import Path

from control_api.audit.event_operations import list_events, show_lineage, show_session_trail
from control_api.audit.export_operations import export_log
from control_api.console.page import Answer, HtmlPage, Visit, get
from control_api.console.views.audit.checkpoints import installing, key_text, latest
from control_api.console.views.decisions import FORMS, VALUES
from control_api.edge.answers import Stream
from control_api.this_program import this_program
from policies.ground.errors import Conflict, Invalid, SluiceError, TooLarge, Unavailable, invalid

PLACES, TIMES = ("from", "to"), ("since", "before")
REST = ("openings", "limit", "format", *VALUES)
FIELDS = (*PLACES, *TIMES, *REST)
"""The query fields of a download: those of the export, each once."""


async def show_downloads(visit: Visit, problem: SluiceError | None = None) -> HtmlPage:
    key = None
    try:
        signed = await latest(visit)
        key = None if signed is None else await key_text(visit, signed.origin)
    except SluiceError as error:
        problem = problem or error
    values = {
        **installing(),
        "given": visit.filled(*FIELDS),
        "key": key,
        "forms": list(FORMS.items()),
        "names": VALUES[1:],
    }
    return HtmlPage("audit/downloads.html", values, problem)


async def download_log(visit: Visit) -> Answer:
    """Send the log, or a part of it. If a format is given, send the decisions that match
    instead."""
    # `from` and `to` may be the number of an entry, which is no time.
    times = [name for name in PLACES if not _is_entry(visit.query.get(name, ""))]
    fields = visit.filled(*FIELDS) | visit.times(*times, *TIMES)
    stream: Stream = await visit.call(export_log, **fields)
    return stream


def _is_entry(text: str) -> bool:
    return text.isascii() and text.isdecimal()


MODULE = "deploy.commands.report"
SECONDS = 60.0
"""Seconds that the export and the report may take together."""
MAX_EXPORT = 256 * 1024 * 1024
"""The most bytes of an export that a report is made from."""
MAX_REPORT = 64 * 1024 * 1024
"""The most bytes that a report may have."""
NICE = 10
NAMES = ("report.html", "report.json")
_FAILED = 1
"""The exit code of `sluice report` if the export does not verify."""
_MAX_OUTPUT = 4000
_PIECE = 1024 * 1024


async def make_report(export: Stream, by: str, name: str, seconds: float = SECONDS) -> Stream:
    """Return a ZIP of the report on the event or session (`by`) with this id. Raises `Conflict` if
    the export does not verify or can't be proven yet, `TooLarge`, and `Unavailable` if it takes too
    long."""
    with tempfile.TemporaryDirectory(prefix="sluice-report-") as made:
        folder = Path(made)
        try:
            async with asyncio.timeout(seconds):
                await _write(export, folder / "log.ndjson")
                await _run(folder, f"--{by}={name}")
        except TimeoutError:
            raise Unavailable(
                f"the report was not made within {seconds:.0f} s: download the log, and make it "
                "by `sluice report`"
            ) from None
        zipped = await asyncio.to_thread(_zipped, folder)
    return Stream("application/zip", _pieces(zipped), f"evidence-{by}.zip")


async def _write(export: Stream, path: Path) -> None:
    written = 0
    with path.open("wb") as file:
        async with contextlib.aclosing(export.pieces) as pieces:
            async for piece in pieces:
                written += len(piece)
                if written > MAX_EXPORT:
                    raise TooLarge(
                        f"the report needs more than {MAX_EXPORT >> 20} MiB of the log: download "
                        "it, and make the report by `sluice report`"
                    )
                await asyncio.to_thread(file.write, piece)


async def _run(folder: Path, selection: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *this_program(MODULE),
        str(folder / "log.ndjson"),
        selection,
        "-o",
        str(folder),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        # A Ctrl-C in a terminal is for the service, which then ends this process.
        start_new_session=True,
    )
    try:
        with contextlib.suppress(OSError):  # where a sandbox forbids it, or it has ended already
            os.setpriority(os.PRIO_PROCESS, process.pid, NICE)  # evaluations come first
        out, err = await process.communicate()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode == 0:
        return
    output = (out if process.returncode == _FAILED else err)[:_MAX_OUTPUT].decode(errors="replace")
    output = output.replace(f"{folder}/", "").strip()
    if process.returncode == _FAILED:
        raise Conflict("FAILED: the log does not hold, so there is no report", details=output)
    raise Conflict("the report can't be made", details=output)


def _zipped(folder: Path) -> bytes:
    if sum((folder / name).stat().st_size for name in NAMES) > MAX_REPORT:
        raise TooLarge(
            f"the report has more than {MAX_REPORT >> 20} MiB: download the log, and make it by "
            "`sluice report` for a shorter time"
        )
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in NAMES:
            archive.write(folder / name, name)
    return made.getvalue()


async def _pieces(whole: bytes) -> AsyncGenerator[bytes, None]:
    for begin in range(0, len(whole), _PIECE):
        yield whole[begin : begin + _PIECE]


KINDS = {"event": "Event", "session": "Session"}
MAX_ENTRIES = 50_000
"""The most entries of the log that a report is made from."""


async def show_evidence(visit: Visit, problem: SluiceError | None = None) -> HtmlPage:
    values = {
        **installing(),
        "kinds": list(KINDS.items()),
        "kind": visit.query.get("kind", "event"),
        "id": visit.query.get("id", ""),
        "most": MAX_ENTRIES,
    }
    return HtmlPage("audit/evidence.html", values, problem)


async def download_report(visit: Visit) -> Answer:
    return await _report(visit)


async def _report(visit: Visit) -> Stream:
    kind = visit.query.get("kind")
    if kind not in KINDS:
        raise invalid([f"kind: must be one of {', '.join(KINDS)}"], "query")
    name = visit.required("id")
    part = await (_part_of_event if kind == "event" else _part_of_session)(visit, name)
    # One at a time of a tenant, as of its analyses: each is a process, and a file on the disk.
    with visit.console.analyses.room(visit.signed_in.tenant_id or ""):
        export: Stream = await visit.call(export_log, **part)
        return await make_report(export, kind, name)


async def _part_of_event(visit: Visit, event_id: str) -> dict[str, str]:
    """Return the export's fields for the part of the log that holds the event and the actions that
    were recorded on it."""
    page = await visit.call(show_lineage, event_id=event_id, limit="1000")
    first = last = page.response.event.seq
    if page.response.actions:
        last = page.response.actions[-1].seq
    if page.next is not None or last - first >= MAX_ENTRIES:
        raise _too_large()
    return {"from": str(first), "to": str(last + 1)}


async def _part_of_session(visit: Visit, session_id: str) -> dict[str, str]:
    """Return the export's fields for the part of the log from the session's first event on."""
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
    get("/audit/downloads", export_log, show_downloads),
    get("/audit/download", export_log, download_log, show_downloads),
    get("/audit/evidence", export_log, show_evidence),
    get("/audit/report", export_log, download_report, show_evidence),
)
