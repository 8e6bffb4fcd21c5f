"""Lists administrative changes, the sidecars that have applied them, and records of sidecars that
were refused, and defines the responses about these."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field

from control_api.audit.bundle import Audit
from control_api.auth import Caller
from control_api.current_request import ends_with_client
from control_api.edge.answers import Page, PagedPart
from control_api.edge.field_descriptions import says
from control_api.edge.requests import Identifier, ListRequest, QueryInt, Time
from control_api.log import change_history
from control_api.log.change_history import Change, ChangeFilters
from control_api.log.judging import rejected_records
from control_api.store.queries import key_rows, sidecar_rows
from policies.ground.canonical import micros, rfc3339

_NOW = "2026-01-31T12:00:00.000000Z"
_HASH = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

OBJECT_TYPE = says(
    "The kind of object: `policy`, `agent`, `key`, `session`, `alert`, `settings`, "
    "`tenant`, `candidate`, `guardrail`, `source`, `sidecar`, `enrolment` or `log`."
)
OBJECT_ID = says("The id of what was changed.")


@dataclass(frozen=True, slots=True)
class ChangeResponse:
    """An administrative change. `before` and `after` are null if the object did not exist, if the
    change was recorded by an older version, or if what differs is too large; `reason` is null if
    none was recorded; `hash` is the leaf hash of its entry, in hex."""

    seq: int
    event_id: str
    hash: str
    timestamp: str
    object_type: Annotated[str, OBJECT_TYPE]
    object_id: Annotated[str, OBJECT_ID]
    action: str
    actor: str
    actor_name: Annotated[
        str | None,
        says("The name of the key that did it, also of a revoked one; null if no key did."),
    ]
    before: Annotated[dict[str, Any] | None, says("The object before, as in `after`.")]
    after: Annotated[
        dict[str, Any] | None,
        says("The object afterwards: a whole policy, or the members that differ."),
    ]
    reason: Annotated[str | None, says("Why it was made. `null` if no reason was recorded.")]

    example: ClassVar[dict[str, Any]] = {
        "seq": 17,
        "event_id": "0194bd6e-7c00-7a1b-8c2d-3e4f5a6b7c8d",
        "hash": _HASH,
        "timestamp": _NOW,
        "object_type": "agent",
        "object_id": "agt_loans",
        "action": "status",
        "actor": "key_3nB7xGvQ2mT5kWc8LpR0aZ",
        "actor_name": "Ann Okafor",
        "before": {"status": "pending_approval", "updated_at": _NOW},
        "after": {"status": "approved", "updated_at": _NOW},
        "reason": "the review board asked for it",
    }


@dataclass(frozen=True, slots=True)
class Applied:
    """A sidecar that has applied a revision, and the first entry of its own records that shows it:
    decided, or beat, at that revision or later. `at` is by the sidecar's clock; `hash` is the leaf
    hash in hex, null once retention has removed the entry."""

    sidecar_id: str
    seq: int
    hash: str | None
    at: Annotated[str, says("When the sidecar made the record, by its own clock (RFC 3339, UTC).")]

    example: ClassVar[dict[str, Any]] = {
        "sidecar_id": "sidecar-1",
        "seq": 18,
        "hash": _HASH,
        "at": _NOW,
    }


@dataclass(frozen=True, slots=True)
class NotApplied:
    """A live sidecar whose records do not show the revision yet; `last_revision` is the newest that
    they show, null if there is none."""

    sidecar_id: str
    last_revision: Annotated[
        int | None, says("The newest revision that the sidecar's records show. `null` for none.")
    ]
    last_seen: str

    example: ClassVar[dict[str, Any]] = {
        "sidecar_id": "sidecar-2",
        "last_revision": 41,
        "last_seen": _NOW,
    }


@dataclass(frozen=True, slots=True)
class Acknowledgements:
    """The live sidecars that have applied a revision and those that have not, by their own
    records."""

    revision: int
    applied: Annotated[
        list[Applied], says("The live sidecars whose records show the revision, by id.")
    ]
    missing: Annotated[
        list[NotApplied],
        says("The live sidecars whose records do not show the revision yet, by id."),
    ]

    example: ClassVar[dict[str, Any]] = {
        "revision": 42,
        "applied": [Applied.example],
        "missing": [NotApplied.example],
    }


SpoolNumber = Annotated[int, says("The number of the record in its spool.")]
RefusalWord = Annotated[str, says("Why, in a word: see `control_api/log/README.md`.")]


@dataclass(frozen=True, slots=True)
class RejectedRecord:
    """A sidecar's record that was refused, as an entry of the log: when it arrived, its place in
    the spool that delivered it, by which key, and what it said. `record` is null if it was too
    large to be kept; `hash` is the leaf hash of the entry, in hex."""

    seq: int
    hash: str
    timestamp: str
    sidecar_id: str
    instance: str
    n: SpoolNumber
    key_id: str
    reason: RefusalWord
    record: Annotated[
        dict[str, Any] | None,
        says(
            "The record as its sidecar spooled it: its fields in clear, and commitments. `null` if "
            "it was too large to be kept."
        ),
    ]

    example: ClassVar[dict[str, Any]] = {
        "seq": 18,
        "hash": _HASH,
        "timestamp": _NOW,
        "sidecar_id": "sidecar-1",
        "instance": "6f1d2a9c",
        "n": 126,
        "key_id": "key_3nB7xGvQ2mT5kWc8LpR0aZ",
        "reason": "foreign_agent",
        "record": None,
    }


class ChangesRequest(ListRequest):
    """The changes to list: those that match every given filter, each by a whole value. `from` is
    inclusive, `to` exclusive."""

    object_type: Annotated[Identifier | None, OBJECT_TYPE] = None
    object_id: Annotated[Identifier | None, OBJECT_ID] = None
    action: Identifier | None = None
    actor: Identifier | None = None
    since: Time | None = Field(None, alias="from")
    until: Time | None = Field(None, alias="to")


@ends_with_client
async def list_changes(
    audit: Audit, caller: Caller, request: ChangesRequest
) -> Page[ChangeResponse]:
    """List administrative changes, newest first.

    `before` and `after` are the whole policy, from its history, if it has the digest that the audit
    trail holds; of other objects the members that differ. Where the database was put back to an
    older state, that is a change of the object type `log`: `restored` if the service noticed,
    `incarnation_accepted` if an operator accepted that the log goes on. A page may be shorter than
    `limit`, or empty, and still have a next one.
    """
    filters = ChangeFilters(
        request.object_type,
        request.object_id,
        request.action,
        request.actor,
        None if request.since is None else micros(request.since),
        None if request.until is None else micros(request.until),
    )
    page = await change_history.changes(
        audit.store, caller.tenant_id, filters, request.limit, request.seq()
    )
    after = None if page.next is None else (page.next,)
    names: dict[str, str] = {}
    if actors := {each.actor for each in page.changes}:
        async with audit.store.reading(caller.tenant_id) as connection:
            names = await key_rows.names(connection, caller.tenant_id, actors)
    return Page([_change(each, names.get(each.actor)) for each in page.changes], after)


def _change(change: Change, actor_name: str | None) -> ChangeResponse:
    shown = {name: getattr(change, name) for name in Change._fields if name != "leaf_hash"}
    return ChangeResponse(hash=change.leaf_hash.hex(), actor_name=actor_name, **shown)


@ends_with_client
async def list_rejected_records(
    audit: Audit, caller: Caller, request: ListRequest
) -> Page[RejectedRecord]:
    """List the records of sidecars that were refused, newest first.

    Each is an entry of the log. A page may be shorter than `limit` and still have a next one.
    """
    page = await rejected_records(audit.store, caller.tenant_id, request.limit, request.seq())
    after = None if page.next is None else (page.next,)
    return Page([_rejected_record(*each) for each in page.entries], after)


def _rejected_record(entry: dict[str, Any], leaf_hash: bytes) -> RejectedRecord:
    spool = (entry["src"][name] for name in ("id", "inst", "n"))
    refusal = (entry["pub"][name] for name in ("key_id", "reason", "core"))
    return RejectedRecord(entry["seq"], leaf_hash.hex(), entry["ts"], *spool, *refusal)


class AcknowledgementsRequest(ListRequest):
    """A request that asks which sidecars have applied `revision`, for example one from
    `X-Sluice-Revision`. `limit` and `cursor` select the page of sidecars."""

    revision: QueryInt | None = Field(
        None, ge=0, lt=1 << 53, description="The revision to look for; the tenant's by default."
    )


async def show_acknowledgements(
    audit: Audit, caller: Caller, request: AcknowledgementsRequest
) -> PagedPart[Acknowledgements]:
    """Show which sidecars have applied a revision, and when, by their own hash-chained records.

    Lists the sidecars that reported within the last 15 seconds, by id. Each is in one of the two
    lists; a page holds `limit` of both together.
    """
    after, revision = request.after(str), request.revision
    if revision is None:
        revision = caller.tenant.policy_set.revision
    last, now = "" if after is None else str(after[0]), audit.clock.now()
    async with audit.store.reading(caller.tenant_id) as connection:
        rows = await sidecar_rows.acknowledged_of_live(
            connection, caller.tenant_id, revision, now, last, request.limit + 1
        )
    page, applied, missing = rows[: request.limit], [], []
    for row in page:
        if row.seq is None or row.at is None:
            missing.append(NotApplied(row.sidecar_id, row.newest, rfc3339(row.last_seen)))
        else:
            leaf = None if row.hash is None else row.hash.hex()
            applied.append(Applied(row.sidecar_id, row.seq, leaf, rfc3339(row.at)))
    more = (page[-1].sidecar_id,) if len(rows) > request.limit else None
    return PagedPart(Acknowledgements(revision, applied, missing), more)
