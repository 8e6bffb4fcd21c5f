"""The signed checkpoints that are kept, one of them with what its signatures prove, and its note as
a file."""

from http import HTTPStatus

from control_api.console.page import ROOT, Html, Page
from control_api.console.views.audit.log_state import Signed, read_signed
from control_api.console.visit import Visit, address
from control_api.responses.audit import Document
from control_api.responses.checkpoints import KeptCheckpoint
from control_api.responses.paging import Page as Kept
from control_api.responses.proofs import LogKeys
from control_api.use_cases.audit.list_checkpoints import list_checkpoints
from control_api.use_cases.audit.show_checkpoint import show_checkpoint
from control_api.use_cases.audit.show_log_keys import show_log_keys
from policies.ground.canonical import unb64
from policies.ground.errors import Conflict, SluiceError
from policies.trail.checkpoint import BadNote


async def show_checkpoints(visit: Visit) -> Html:
    """The checkpoints that are kept, newest first."""
    try:
        page = await visit.call(list_checkpoints, limit="50", **visit.given("cursor"))
    except SluiceError as error:
        return Html("audit/checkpoints.html", _listed(Kept([]), error), error.status)
    return Html("audit/checkpoints.html", _listed(page, None))


async def show_one_checkpoint(visit: Visit) -> Html:
    """One checkpoint: its note, and what its signatures prove."""
    size = visit.required("size")
    signed: Signed | None = None
    problem: SluiceError | None = None
    try:
        signed = await _signed(visit, await visit.call(show_checkpoint, size=size))
    except SluiceError as error:
        problem = error
    values = {
        "size": size,
        "signed": signed,
        "problem": problem,
        "witnesses": [each.key for each in visit.app.settings.witnesses],
        "growth": address("/decision/growth", **{"from": size}),
    }
    status = HTTPStatus.OK if problem is None else problem.status
    return Html("audit/checkpoint.html", values, status)


async def download_checkpoint(visit: Visit) -> Document:
    """A checkpoint's signed note, as a file."""
    note: Document = await visit.call(show_checkpoint, size=visit.required("size"))
    return note


def _listed(page: Kept[KeptCheckpoint], problem: SluiceError | None) -> dict[str, object]:
    return {"checkpoints": page.rows, "next": page.next, "problem": problem}


async def latest(visit: Visit) -> Signed | None:
    """The latest checkpoint with what its signatures prove; None before the first one."""
    page = await visit.call(list_checkpoints, limit="1")
    if not page.rows:
        return None
    note = await visit.call(show_checkpoint, size=str(page.rows[0].size))
    return await _signed(visit, note, page.rows[0].signed_at)


async def _signed(visit: Visit, note: Document, signed_at: str | None = None) -> Signed:
    keys: LogKeys = await visit.call(show_log_keys)
    # A former key's signatures stay valid after a rotation.
    publics = {unb64(keys.log_key), *(unb64(each["from"]) for each in keys.log_key_history)}
    settings = visit.app.settings
    witnesses = [each.key for each in settings.witnesses]
    text = note.body.decode()
    try:
        return read_signed(text, publics, witnesses, settings.witness_quorum, signed_at)
    except BadNote as error:
        raise Conflict(f"FAILED: the stored checkpoint can't be read: {error}") from error


PAGES = (
    Page("GET", f"{ROOT}/audit/checkpoints", list_checkpoints, show_checkpoints),
    Page("GET", f"{ROOT}/audit/checkpoint", show_checkpoint, show_one_checkpoint),
    Page("GET", f"{ROOT}/audit/checkpoint.txt", show_checkpoint, download_checkpoint),
)
