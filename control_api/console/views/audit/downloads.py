"""The log as a file that proves itself, or its decisions alone in a format of other tools."""

from control_api.console.page import ROOT, Answer, Html, Page
from control_api.console.views.audit.checkpoints import latest
from control_api.console.views.audit.installing import installing
from control_api.console.views.audit.keys import key_text
from control_api.console.views.decisions import FORMS, VALUES
from control_api.console.visit import Visit
from control_api.responses.stream import Stream
from control_api.use_cases.audit.export_log import export_log
from policies.ground.errors import SluiceError

PLACES, TIMES = ("from", "to"), ("since", "before")
REST = ("openings", "limit", "format", *VALUES)
FIELDS = (*PLACES, *TIMES, *REST)
"""What a download may be asked by: all fields of the export, but none twice."""


async def show_downloads(visit: Visit, problem: SluiceError | None = None) -> Html:
    """What can be downloaded, and how it is verified offline."""
    key = None
    try:
        signed = await latest(visit)
        key = None if signed is None else await key_text(visit, signed.origin)
    except SluiceError as error:
        problem = problem or error
    values = {
        **installing(),
        "given": visit.given(*FIELDS),
        "problem": problem,
        "key": key,
        "forms": list(FORMS.items()),
        "names": VALUES[1:],
    }
    return Html("audit/downloads.html", values, 200 if problem is None else problem.status)


async def download_log(visit: Visit) -> Answer:
    """The log, or a part of it; or the decisions that match, if a format is given."""
    try:
        # `from` and `to` may be the number of an entry, which is no time.
        times = [name for name in PLACES if not _is_entry(visit.query.get(name, ""))]
        fields = visit.given(*FIELDS) | visit.times(*times, *TIMES)
        stream: Stream = await visit.call(export_log, **fields)
    except SluiceError as error:
        return await show_downloads(visit, error)
    return stream


def _is_entry(text: str) -> bool:
    return text.isascii() and text.isdecimal()


PAGES = (
    Page("GET", f"{ROOT}/audit/downloads", export_log, show_downloads),
    Page("GET", f"{ROOT}/audit/download", export_log, download_log),
)
