"""Enrols sidecars, sends them policy sets and documents, takes their reports, and lists them.

If the set has changed since the sidecar's revision, `fetch_policy_set` answers at once; otherwise
it waits for a publication, at most as long as the sidecar requested. A sidecar that reads its
documents from Redis fetches them by `look_up_documents` while Redis is unavailable.
"""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, cast

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema

from control_api.auth import Caller
from control_api.edge.answers import Page, page_of
from control_api.edge.field_descriptions import says
from control_api.edge.requests import (
    Identifier,
    ListRequest,
    QueryInt,
    RequestModel,
    Text,
    json_integer,
)
from control_api.fleet.bundle import MAX_WAITERS, Fleet
from control_api.fleet.isolation import enrolled_agent
from control_api.fleet.models import (
    MAX_PAGE_BYTES,
    REPORTED,
    SIDECAR_VERSION,
    EnrolledSidecar,
    Heard,
    PolicySetPage,
    SetDocument,
    SidecarResponse,
)
from control_api.fleet.set_pages import EncodedPage, encoded
from control_api.log.proofs import prove_growth
from control_api.registry.enrolment.pods import LIFETIME_SECONDS, Enrolled
from control_api.registry.enrolment.token import MAX_TOKEN
from control_api.registry.queries import refused_for_key
from control_api.store.queries import documents, log_keys, sidecar_rows
from control_api.store.queries.checkpoints import readable_latest
from control_api.store.queries.sidecar_rows import StoredSidecar
from policies.ground.canonical import b64, rfc3339
from policies.ground.errors import SluiceError, Unavailable
from policies.ground.signing import Endorsement


def policy_set_page(
    fleet: Fleet,
    caller: Caller,
    found: EncodedPage,
    *,
    reset: bool,
    chain: Sequence[Endorsement] | None = None,
) -> PolicySetPage:
    """Return a page of the policy set in the form that a sidecar reads.

    `reset` tells the sidecar to drop its copy first. `chain` holds the endorsements that lead to
    the log key to show; by default, those of this process's own key.
    """
    chain = fleet.ring.history if chain is None else chain
    return PolicySetPage(
        epoch=fleet.epoch,
        revision=found.page.revision,
        reset=reset,
        more=found.page.more,
        now=rfc3339(fleet.clock.now()),
        tenant_id=caller.tenant.tenant_id,
        log_key=b64(chain[-1].next if chain else fleet.ring.signer.public),
        log_key_history=[each.to_wire() for each in chain],
        # Encoded once for all sidecars that get the page.
        documents=cast("list[SetDocument]", found.documents),
    )


# The description says what a token looks like. The check of the request does not: one of another
# form is refused and recorded like any that is hostile.
Token = Annotated[
    str,
    Field(min_length=1),
    WithJsonSchema(
        {
            "type": "string",
            "minLength": 1,
            "maxLength": MAX_TOKEN,
            "pattern": r"^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$",
        }
    ),
]


class SidecarToken(RequestModel):
    """The projected token of the pod's service account, with the audience `sluice`."""

    example: ClassVar[dict[str, Any]] = {"token": "eyJhbGciOiJSUzI1NiIsImtpZCI6InMxIn0.e30.c2ln"}

    token: Annotated[
        Token, says("The projected token of the pod's service account, with the audience `sluice`.")
    ]


async def enrol_sidecar(fleet: Fleet, _: None, request: SidecarToken) -> EnrolledSidecar:
    """Exchange a pod's ServiceAccount token for a sidecar's key and its agent's key.

    The keys live an hour and die with the agent: when it is suspended or deprecated, or its
    workload is changed. A workload that no agent has registers one as a draft. While the agent
    waits for approval the keys are null: ask again.
    """
    return _enrolled(await fleet.enrolments.enrol(request.token))


def _enrolled(enrolled: Enrolled) -> EnrolledSidecar:
    """Return the response to an enrolment, which is the only place where the keys' secrets are
    shown."""
    agent, keys = enrolled.agent, enrolled.keys
    return EnrolledSidecar(
        tenant_id=enrolled.tenant_id,
        workload=str(agent.workload),
        agent_id=agent.agent_id,
        agent_role=agent.agent_role,
        status=agent.status,
        enrolment=None if keys is None else keys.agent.generation,
        sidecar_key=None if keys is None else keys.sidecar_secret,
        agent_key=None if keys is None else keys.agent_secret,
        agent_key_id=None if keys is None else keys.agent.key_id,
        expires_at=None if keys is None else rfc3339(keys.agent.expires_at),
        # A lifetime as well as a time: the pod's clock may be wrong.
        expires_in=None if keys is None else LIFETIME_SECONDS,
    )


# A report to this process wakes a wait at once. One that another process received does not, so a
# wait also polls.
POLL_SECONDS = 0.1
"""The most seconds between two reads of the store while a request waits for a change."""


class SidecarsRequest(ListRequest):
    """A request for the list of sidecars. With `wait_for`, a revision such as that in
    `X-Sluice-Revision`, the response waits until every live sidecar has it."""

    wait_for: QueryInt | None = Field(
        None, ge=0, lt=1 << 53, description="Wait until every live sidecar has this revision."
    )
    timeout: QueryInt = Field(10, ge=0, le=30, description="The most seconds to wait for that.")


async def list_sidecars(
    fleet: Fleet, caller: Caller, request: SidecarsRequest
) -> Page[SidecarResponse]:
    """List sidecars, newest first; with `wait_for`, those that do not have its revision yet.

    With `wait_for` the response is sent once every live sidecar has the revision, and is an empty
    list, or after `timeout` seconds, and lists the live sidecars without it. A sidecar is live if
    it reported within the last 15 seconds.
    """
    if request.wait_for is not None:
        rows = await _wait_for_revision(fleet, caller, request.wait_for, request.timeout)
        return Page([_sidecar(row, fleet.clock.now()) for row in rows])
    async with fleet.store.reading(caller.tenant_id) as connection:
        after = request.after(int, str)
        rows = await sidecar_rows.page(connection, caller.tenant_id, after, request.limit + 1)
        rows = await refused_for_key(connection, caller.tenant_id, rows)
    return page_of(
        rows,
        request.limit,
        lambda row: (row.first_seen, row.sidecar_id),
        lambda row: _sidecar(row, fleet.clock.now()),
    )


async def _wait_for_revision(
    fleet: Fleet, caller: Caller, revision: int, seconds: int
) -> list[StoredSidecar]:
    tenant = caller.tenant
    until = fleet.clock.monotonic() + seconds
    while True:
        async with fleet.store.reading(tenant.tenant_id) as connection:
            rows = await sidecar_rows.behind(
                connection, tenant.tenant_id, fleet.epoch, revision, fleet.clock.now()
            )
        # A drain ends the wait like its timeout: the response lists the sidecars still behind.
        left = until - fleet.clock.monotonic()
        if not rows:
            return rows
        if left <= 0 or fleet.stopping.is_set():
            async with fleet.store.reading(tenant.tenant_id) as connection:
                return await refused_for_key(connection, tenant.tenant_id, rows)
        await tenant.wait_report(min(left, POLL_SECONDS))


def _sidecar(row: StoredSidecar, now: int) -> SidecarResponse:
    shown: dict[str, Any] = {name: getattr(row, name) for name in REPORTED}
    return SidecarResponse(
        **shown,
        first_seen=rfc3339(row.first_seen),
        last_seen=rfc3339(row.last_seen),
        live=row.live(now),
        duplicate=row.duplicate(now),
        source_levels=bool(row.source_levels),
    )


# RFC 7493, section 2.2: a reader that treats numbers as doubles loses precision beyond 2**53.
Count = Annotated[int, Field(ge=0, lt=1 << 53), BeforeValidator(json_integer)]


class Report(RequestModel):
    """A sidecar's status. Fields added by a newer sidecar are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    example: ClassVar[dict[str, Any]] = {
        **REPORTED,
        "run_id": "9f1c2a7b00d1",
        "pinned_size": None,
        "source_levels": True,
    }

    sidecar_id: Identifier
    run_id: Annotated[Identifier, says("The id of one run of the sidecar's process.")]
    version: Annotated[Identifier, SIDECAR_VERSION]
    agent_id: Identifier | None = None
    agent_role: Identifier | None = None
    epoch: Text
    revision: Count
    policy_set_age_ms: Count | None = None
    spool_depth: Count
    oldest_unshipped_ms: Count | None = None
    refusing: Text | None = None
    workload: Text | None = None
    enrolled_until: Text | None = None
    pinned_size: Annotated[
        Count | None,
        says(
            "The size of the checkpoint that the sidecar has pinned, 0 for none. With it, the "
            "answer shows the latest checkpoint."
        ),
    ] = None
    forked: Text | None = None
    source_levels: bool = False


async def report_sidecar(fleet: Fleet, caller: Caller, request: Report) -> Heard:
    """Report a sidecar's status."""
    await fleet.isolation.require_sidecar(caller, request.sidecar_id, "report_sidecar")
    if request.agent_id is not None:
        await fleet.isolation.require_agent(caller, request.agent_id, "report_sidecar")
    now = fleet.clock.now()
    # `first_seen` is used only for a new sidecar; otherwise `fleet` keeps the first report's.
    row = StoredSidecar(
        **request.model_dump(exclude={"pinned_size"}), first_seen=now, last_seen=now
    )
    await fleet.reports.report(caller.tenant_id, row)
    # An operator's request may be waiting for this sidecar to reach a revision (`list_sidecars`).
    caller.tenant.wake_report_waiters()
    note, hashes = await _checkpoint(fleet, caller.tenant_id, request.pinned_size)
    return Heard(
        now=rfc3339(fleet.clock.now()),
        revision=caller.tenant.policy_set.revision,
        checkpoint=note,
        consistency=hashes,
    )


async def _checkpoint(
    fleet: Fleet, tenant_id: str, pinned: int | None
) -> tuple[str | None, list[str] | None]:
    """Return the latest checkpoint, and the proof that it continues the one of `pinned` entries.
    Both are None if the sidecar did not ask, or the log has no checkpoint."""
    if pinned is None:
        return None, None
    async with fleet.store.reading(tenant_id) as connection:
        latest = await readable_latest(connection, tenant_id)
    if latest is None:
        return None, None
    if not 0 < pinned < latest.size:
        return latest.note, []
    try:
        publics = await log_keys.trusted(fleet.store, fleet.ring)
        grown = await prove_growth(fleet.store, tenant_id, pinned, latest.size, publics)
    except SluiceError:
        # Purged, say, or of another incarnation. The sidecar keeps what it has pinned, and asks
        # again; `verify` says what is wrong with the log.
        return latest.note, None
    return grown.note, [b64(each) for each in grown.hashes]


MAX_WAIT = 25  # seconds


def _seconds(value: object) -> object:
    """Turn a number in a query into a float. Return any other value unchanged, so that the strict
    type refuses it."""
    try:
        return float(value) if isinstance(value, str) and len(value) < 32 else value
    except ValueError:
        return value


class PolicySetRequest(RequestModel):
    """The revision the sidecar has, the store it came from, and how long to wait for a change."""

    since: QueryInt = Field(0, ge=0, description="The revision the sidecar has.")
    epoch: str | None = Field(None, max_length=256)
    wait: Annotated[float, BeforeValidator(_seconds)] = Field(
        0, ge=0, le=MAX_WAIT, description="The most seconds to wait for a change."
    )


async def fetch_policy_set(
    fleet: Fleet, caller: Caller, request: PolicySetRequest
) -> PolicySetPage:
    """Fetch what changed in the policy set since a revision; if nothing has, wait for a change.

    An enrolled sidecar is given the documents of its own agent and the tenant's: each page is
    complete, and after a change of the agent begins anew (`reset`).
    """
    # Revisions of another store mean nothing here: the sidecar must drop its copy and start over.
    foreign = request.epoch != fleet.epoch
    since = 0 if foreign else request.since
    found = await _changes(fleet, caller, since)
    page = found.page
    if since > page.revision or 0 < since < page.reset_below:
        # The sidecar is ahead of the store, or has a revision from before the store was restored to
        # an older state.
        foreign, found = True, await _changes(fleet, caller, 0)
    elif not (page.documents or foreign) and request.wait and not fleet.stopping.is_set():
        # Wait without a connection: thousands of sidecars may wait, and by default a pool has 16.
        await _wait_for_change(fleet, caller, request.wait, page.revision)
        found = await _changes(fleet, caller, since)
    # A sidecar that asks without waiting may have met the signature of another replica, whose key
    # was rotated while this process still has the old one. Long polls do without this read.
    chain = None if request.wait else await log_keys.continued(fleet.store, fleet.ring)
    # Send a page even without documents: it is the heartbeat that tells a sidecar that it is not
    # cut off.
    return policy_set_page(fleet, caller, found, reset=foreign or found.whole, chain=chain)


async def _changes(fleet: Fleet, caller: Caller, since: int) -> EncodedPage:
    agent_id = enrolled_agent(caller)
    if agent_id is None:
        return await fleet.pages.since(caller.tenant_id, since)
    return await fleet.agent_pages.since(caller.tenant_id, agent_id, since)


async def _wait_for_change(fleet: Fleet, caller: Caller, seconds: float, revision: int) -> None:
    """Wait until the tenant's set moves beyond `revision`, or the time is up. Raise `Unavailable`
    if too many sidecars wait already, and `Forbidden` if the key is no longer valid after the
    wait."""
    if fleet.waiters.locked():
        raise Unavailable(
            f"{MAX_WAITERS} sidecars are waiting already, the most allowed: try again later"
        )
    async with fleet.waiters:
        with fleet.waiting.track_inprogress():
            # A change published since the read has already moved the set: then don't wait.
            if caller.tenant.policy_set.revision <= revision:
                await caller.tenant.wait(seconds)
    # The change that woke us may be the revocation of this very key.
    await caller.require_live(fleet.clock.now())


MAX_NAMES = 256
MAX_NAME = 1024
"""The most characters in a document's name. The longest names are those of roles: a prefix and 256
characters."""


class AskedDocuments(RequestModel):
    """The names of the documents."""

    example: ClassVar[dict[str, Any]] = {"names": ["tenant", "role/loan_underwriter"]}

    # No NUL, because PostgreSQL can't look one up.
    names: list[
        Annotated[str, Field(min_length=1, max_length=MAX_NAME, pattern="^[^\\u0000]*$")]
    ] = Field(
        min_length=1,
        max_length=MAX_NAMES,
        description="The names of documents, for example `role/support`.",
    )


async def look_up_documents(fleet: Fleet, caller: Caller, request: AskedDocuments) -> PolicySetPage:
    """Look up documents of the policy set by name, all as of the revision in the response.

    If the tenant has no document of a name, its `digest` and `body` are null. If `more` is true,
    the response would have been too large: ask again for the names it lacks. To an enrolled
    sidecar, the documents of other agents look like missing ones.
    """
    agent_id = enrolled_agent(caller)
    if agent_id is not None:
        found = await fleet.agent_pages.named(caller.tenant_id, agent_id, request.names)
        return policy_set_page(fleet, caller, found, reset=False)
    async with fleet.store.reading(caller.tenant_id) as connection:
        names, most = request.names, MAX_PAGE_BYTES
        page = await documents.by_name(connection, caller.tenant_id, names, max_bytes=most)
    return policy_set_page(fleet, caller, encoded(page), reset=False)
