"""Shows the console's page of the log's state, its verification, and how far that has come."""

from http import HTTPStatus
from typing import Any, NamedTuple

from control_api.audit.event_operations import show_event
from control_api.audit.proof_models import Verification
from control_api.audit.proof_operations import list_checkpoints, show_checkpoint
from control_api.audit.verification_operations import show_verification, start_verification
from control_api.console.page import Data, Html, Page, See
from control_api.console.routes import ROOT
from control_api.console.views.audit.checkpoints import Signed, cosigned, key_text, latest, verdicts
from control_api.console.visit import Visit, address
from control_api.edge.answers import Document
from policies.ground.errors import NotFound, SluiceError
from policies.trail.proofs.signed_note import VerifierKey

DONE = {"begun": "The verification has begun."}
LOOKED_BACK = 20
"""Kept checkpoints that are searched for the last cosignature of a witness that is behind."""


class WitnessResponse(NamedTuple):
    """A witness that is asked, and the newest kept checkpoint that it cosigned, if there is one
    among those that were looked at. `log_size` is that of the newest."""

    name: str
    key: str
    size: int | None
    signed_at: int | None
    log_size: int


async def show_audit(visit: Visit, problem: SluiceError | None = None) -> Html:
    """What is known of the log. What can't be read is told, and hides nothing else."""
    unread: SluiceError | None = None
    found: Verification | None = None
    signed: Signed | None = None
    key: str | None = None
    witnesses: list[WitnessResponse] = []
    try:
        found = await visit.call(show_verification)
        signed = await latest(visit)
        if signed is not None:
            key = await key_text(visit, signed.origin)
            witnesses = await _witnesses(visit, signed)
    except SluiceError as error:
        unread = error
    values = {
        "problem": problem,
        "done_text": DONE.get(visit.query.get("done", "")),
        "verdicts": verdicts(found, signed, unread, visit.console.clock.now()),
        "found": found,
        "broken": await _broken(visit, found),
        "signed": signed,
        "witnesses": witnesses,
        "quorum": visit.console.audit.witness_quorum,
        "key": key,
        "may_verify": visit.may(start_verification),
        "tenant": visit.signed_in.tenant_id,
    }
    return Html("audit/state.html", values, _status(problem or unread))


async def send_progress(visit: Visit) -> Data:
    """How far the verification has come, for the page above."""
    return Data(await visit.call(show_verification))


async def verify(visit: Visit) -> Html | See:
    """Begin a verification."""
    try:
        await visit.call(start_verification)
    except SluiceError as error:
        return await show_audit(visit, error)
    return See(address("/audit", done="begun"))


def _status(error: SluiceError | None) -> int:
    if error is None:
        return HTTPStatus.OK
    # A log that is damaged is what the page is for, and no fault of the service.
    is_damage = error.status == HTTPStatus.INTERNAL_SERVER_ERROR
    return HTTPStatus.CONFLICT if is_damage else error.status


async def _broken(visit: Visit, found: Verification | None) -> dict[str, Any] | None:
    """The entry that fails, with the page of its decision if it is one."""
    if found is None or found.broken_at is None:
        return None
    page: str | None = address("/decision", id=found.broken_at)
    try:
        await visit.call(show_event, event_id=found.broken_at)
    except NotFound:
        page = None
    except SluiceError:
        pass  # It is damaged, and the page says how.
    return {"id": found.broken_at, "page": page}


async def _witnesses(visit: Visit, signed: Signed) -> list[WitnessResponse]:
    keys = [each.key for each in visit.console.audit.witnesses]
    newest = {key: (signed.size, at) for key, at in signed.cosigned.items()}
    if len(newest) < len(keys):
        newest = await _looked_back(visit, keys) | newest
    shown = []
    for key in keys:
        size, at = newest.get(key, (None, None))
        shown.append(WitnessResponse(key.name, key.text(), size, at, signed.size))
    return shown


async def _looked_back(visit: Visit, keys: list[VerifierKey]) -> dict[VerifierKey, tuple[int, int]]:
    """The size and the time of the last cosignature of each, among the newest checkpoints."""
    newest: dict[VerifierKey, tuple[int, int]] = {}
    kept = await visit.call(list_checkpoints, limit=str(LOOKED_BACK))
    for size in dict.fromkeys(each.size for each in kept.rows):
        note: Document = await visit.call(show_checkpoint, size=str(size))
        for key, at in cosigned(note.body.decode(), keys).items():
            newest.setdefault(key, (size, at))
    return newest


PAGES = (
    Page("GET", f"{ROOT}/audit", list_checkpoints, show_audit),
    Page("GET", f"{ROOT}/audit/progress", show_verification, send_progress),
    Page("POST", f"{ROOT}/audit/verify", start_verification, verify),
)
