"""Shows the console's pages of the log's state, its verification, and the signed checkpoints.

INVARIANT: damage is shown before anything else, and nothing is shown as checked that was not.
"""

from collections.abc import Collection
from http import HTTPStatus
from typing import Any, NamedTuple

from control_api.audit.event_operations import show_event
from control_api.audit.proof_models import KeptCheckpoint, LogKeys, Verification
from control_api.audit.proof_operations import list_checkpoints, show_checkpoint, show_log_keys
from control_api.audit.verification_operations import show_verification, start_verification
from control_api.console.page import HtmlPage, JsonAnswer, PageRedirect, Visit, address, get, post
from control_api.edge.answers import Document, Page
from control_api.log.checkpoints.agreement import level_of
from policies.ground.canonical import b64, micros, unb64
from policies.ground.distribution import WHEEL, install_command, wheel_digest
from policies.ground.errors import Conflict, NotFound, SluiceError
from policies.trail import checkpoint
from policies.trail.checkpoint import BadNote
from policies.trail.proofs import signed_note
from policies.trail.proofs.signed_note import ED25519, VerifierKey

UNSIGNED_FOR = 300_000_000
"""Microseconds that new entries may wait for a checkpoint, which follows within seconds."""
STALE = 86_400_000_000
"""Microseconds after which a verification without findings is shown as old."""
_WORST_FIRST = ("bad", "warn", "info", "good")


class Verdict(NamedTuple):
    """A statement about the log's state, for a person. `tone` is the kind of notice that shows
    it."""

    tone: str
    title: str
    text: str


class VerifiedCheckpoint(NamedTuple):
    """A checkpoint with the content of its note, its level according to its signatures, which are
    verified again, and the time of each witness's cosignature in microseconds. `signed_at` is None
    if only the note is known."""

    origin: str
    size: int
    root: str
    note: str
    level: str
    cosigned: dict[VerifierKey, int]
    signed_at: str | None = None


def read_signed(
    note: str,
    publics: Collection[bytes],
    witnesses: Collection[VerifierKey],
    quorum: int,
    signed_at: str | None = None,
) -> VerifiedCheckpoint:
    """Read a checkpoint's note and verify its signatures. Raises `BadNote` if the note can't be
    read."""
    found = checkpoint.unverified(note)
    level, _ = level_of(note, found.origin, publics, witnesses, quorum)
    by = cosigned(note, witnesses)
    return VerifiedCheckpoint(
        found.origin, found.size, b64(found.root), note, level.value, by, signed_at
    )


def cosigned(note: str, witnesses: Collection[VerifierKey]) -> dict[VerifierKey, int]:
    """Return when each witness cosigned the note, in microseconds. Only cosignatures that verify
    are included."""
    try:
        found = signed_note.verified_cosignatures(signed_note.parse(note), witnesses)
    except BadNote:
        return {}
    return {each.key: each.signed_at * 1_000_000 for each in found}


def verdicts(
    found: Verification | None,
    signed: VerifiedCheckpoint | None,
    unread: SluiceError | None,
    now: int,
) -> list[Verdict]:
    """Return the statements that a person must see about the log, the worst first. `found` and
    `signed` are None if they could not be read, for the reason `unread`, or if there is no
    checkpoint."""
    rows = []
    if unread is not None:
        text = f"{unread.message}. What is missing on this page was not looked at."
        rows.append(Verdict("bad", "THE LOG CAN'T BE READ", text))
    if found is not None:
        rows.append(_verified(found, now))
    if found is not None and signed is not None:
        rows += _compared(found, signed, now)
    return sorted(rows, key=lambda each: _WORST_FIRST.index(each.tone))


def _verified(found: Verification, now: int) -> Verdict:
    if found.state == "damaged":
        where = "" if found.broken_seq is None else f" at entry {found.broken_seq:,}"
        return Verdict("bad", f"DAMAGED{where}", found.reason or "the verification found a fault")
    if not found.total:
        return Verdict("info", "Empty", "No entry is in the log yet.")
    if found.state == "pending" or found.finished_at is None:
        text = "The service has not verified this log to its end yet. Nothing is known of the rest."
        return Verdict("warn", "Not verified yet", text)
    size = found.finished_size or 0
    newer = max(0, found.total - size)
    text = f"The service found nothing wrong in the {size - found.first:,} entries that it read. "
    if newer:
        text += f"What came later ({newer:,}) is not verified yet."
    else:
        text += "These are all."
    if now - micros(found.finished_at) > STALE:
        return Verdict("warn", "Verified more than a day ago", text)
    return Verdict("good", "Valid when the service last verified it", text)


def _compared(found: Verification, signed: VerifiedCheckpoint, now: int) -> list[Verdict]:
    rows = []
    if signed.level == "unsigned":
        text = f"No signature of the log's key fits the checkpoint of {signed.size:,} entries."
        rows.append(Verdict("bad", "NOT SIGNED", text))
    if signed.size > found.total:
        text = (
            f"The checkpoint is of {signed.size:,} entries, and the log has {found.total:,}: "
            "entries were removed, or an older copy was put back."
        )
        rows.append(Verdict("bad", "ENTRIES ARE MISSING", text))
    elif (
        signed.size < found.total
        and signed.signed_at is not None
        and now - micros(signed.signed_at) > UNSIGNED_FOR
    ):
        text = (
            f"The newest entries ({found.total - signed.size:,}) are under no checkpoint, though "
            "one follows within seconds as a rule."
        )
        rows.append(Verdict("warn", "Signing is behind", text))
    return rows


async def show_checkpoints(visit: Visit) -> HtmlPage:
    problem: SluiceError | None = None
    page: Page[KeptCheckpoint] = Page([])
    try:
        page = await visit.call(list_checkpoints, limit="50", **visit.filled("cursor"))
    except SluiceError as error:
        problem = error
    values = {"checkpoints": page.rows, "next": page.next}
    return HtmlPage("audit/checkpoints.html", values, problem)


async def show_one_checkpoint(visit: Visit) -> HtmlPage:
    size = visit.required("size")
    signed: VerifiedCheckpoint | None = None
    problem: SluiceError | None = None
    try:
        signed = await _signed(visit, await visit.call(show_checkpoint, size=size))
    except SluiceError as error:
        problem = error
    values = {
        "size": size,
        "signed": signed,
        "witnesses": [each.key for each in visit.console.audit.witnesses],
        "growth": address("/decision/growth", **{"from": size}),
    }
    return HtmlPage("audit/checkpoint.html", values, problem)


async def download_checkpoint(visit: Visit) -> Document:
    note: Document = await visit.call(show_checkpoint, size=visit.required("size"))
    return note


async def latest(visit: Visit) -> VerifiedCheckpoint | None:
    """Return the latest checkpoint with what its signatures prove; None if there is no checkpoint
    yet."""
    page = await visit.call(list_checkpoints, limit="1")
    if not page.rows:
        return None
    note = await visit.call(show_checkpoint, size=str(page.rows[0].size))
    return await _signed(visit, note, page.rows[0].signed_at)


async def _signed(visit: Visit, note: Document, signed_at: str | None = None) -> VerifiedCheckpoint:
    keys: LogKeys = await visit.call(show_log_keys)
    # A former key's signatures stay valid after a rotation.
    publics = {unb64(keys.log_key), *(unb64(each["from"]) for each in keys.log_key_history)}
    audit = visit.console.audit
    witnesses = [each.key for each in audit.witnesses]
    text = note.body.decode()
    try:
        return read_signed(text, publics, witnesses, audit.witness_quorum, signed_at)
    except BadNote as error:
        raise Conflict(f"FAILED: the stored checkpoint can't be read: {error}") from error


def installing() -> dict[str, str]:
    """Return the values for the template's section `installing`: the wheel's file, its SHA-256 and
    the command that installs it."""
    return {"wheel": WHEEL, "digest": wheel_digest(), "install": install_command()}


async def key_text(visit: Visit, origin: str) -> str:
    """Return the verifier key (C2SP) of the log `origin`, as the service states it now. It is not
    proven by anything else."""
    keys: LogKeys = await visit.call(show_log_keys)
    return VerifierKey(origin, ED25519, unb64(keys.log_key)).text()


DONE = {"begun": "The verification has begun."}
LOOKED_BACK = 20
"""The number of newest checkpoints that are searched for the last cosignature of a witness that
lacks the latest."""


class WitnessResponse(NamedTuple):
    """A configured witness, and the newest checkpoint that it cosigned, None if there is none among
    those that were searched. `log_size` is the size of the newest checkpoint."""

    name: str
    key: str
    size: int | None
    signed_at: int | None
    log_size: int


async def show_audit(visit: Visit, problem: SluiceError | None = None) -> HtmlPage:
    """Show the state of the log. If a part of it can't be read, the page says so and still shows
    the rest."""
    unread: SluiceError | None = None
    found: Verification | None = None
    signed: VerifiedCheckpoint | None = None
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
        "done_text": DONE.get(visit.query.get("done", "")),
        "verdicts": verdicts(found, signed, unread, visit.console.clock.now()),
        "found": found,
        "broken": await _broken(visit, found),
        "signed": signed,
        "witnesses": witnesses,
        "quorum": visit.console.audit.witness_quorum,
        "key": key,
        "may_verify": visit.may_call(start_verification),
        "tenant": visit.signed_in.tenant_id,
    }
    refused = problem or unread
    # A log that is damaged is what the page is for, and no fault of the service.
    status = None if refused is None else refused.status
    if status == HTTPStatus.INTERNAL_SERVER_ERROR:
        status = HTTPStatus.CONFLICT
    return HtmlPage("audit/state.html", values, problem, status)


async def send_progress(visit: Visit) -> JsonAnswer:
    return JsonAnswer(await visit.call(show_verification))


async def verify(visit: Visit) -> PageRedirect:
    await visit.call(start_verification)
    return PageRedirect(address("/audit", done="begun"))


async def _broken(visit: Visit, found: Verification | None) -> dict[str, Any] | None:
    """Return the entry at which verification fails, with the address of its decision's page if it
    is a decision."""
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


async def _witnesses(visit: Visit, signed: VerifiedCheckpoint) -> list[WitnessResponse]:
    keys = [each.key for each in visit.console.audit.witnesses]
    newest = {key: (signed.size, at) for key, at in signed.cosigned.items()}
    if len(newest) < len(keys):
        newest = await _looked_back(visit, keys) | newest
    rows = []
    for key in keys:
        size, at = newest.get(key, (None, None))
        rows.append(WitnessResponse(key.name, key.text(), size, at, signed.size))
    return rows


async def _looked_back(visit: Visit, keys: list[VerifierKey]) -> dict[VerifierKey, tuple[int, int]]:
    """Return the size and the time of each witness's last cosignature among the newest
    checkpoints."""
    newest: dict[VerifierKey, tuple[int, int]] = {}
    kept = await visit.call(list_checkpoints, limit=str(LOOKED_BACK))
    for size in dict.fromkeys(each.size for each in kept.rows):
        note: Document = await visit.call(show_checkpoint, size=str(size))
        for key, at in cosigned(note.body.decode(), keys).items():
            newest.setdefault(key, (size, at))
    return newest


PAGES = (
    get("/audit/checkpoints", list_checkpoints, show_checkpoints),
    get("/audit/checkpoint", show_checkpoint, show_one_checkpoint),
    get("/audit/checkpoint.txt", show_checkpoint, download_checkpoint),
    get("/audit", list_checkpoints, show_audit),
    get("/audit/progress", show_verification, send_progress),
    post("/audit/verify", start_verification, verify, show_audit),
)
