"""Finds or registers the agent of a pod, issues the pod's API keys, and ends these keys when the
agent changes.

Pods that arrive together share a transaction. What a pod gets depends on its agent's status:

    approved                  two new keys, which live an hour, and a record of them
    draft, pending approval   nothing yet: an admin has to approve the agent
    suspended, deprecated     refused
    unknown workload          a draft is registered

Each issued key belongs to a generation, an id that the agent has while its pods may enrol. The
agent's enrolment document publishes the current generation:

    approved, with a workload     pods may enrol: the document names the agent's generation
    anything else                 no document: the keys of every earlier generation are dead

A key is live only while its agent's document names the generation that the key was issued in. So
one document, published with the change itself, ends the keys of any number of pods at once, in this
service and in every connected sidecar.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from control_api.metrics.labels import Enrolling
from control_api.registry import queries
from control_api.registry.enrolment.token import Pod, TokenRefused
from control_api.registry.queries import StoredAgent
from control_api.store.group_commit import GroupCommit
from control_api.store.queries import key_rows, tenant_rows
from control_api.store.queries.key_rows import EnrolledKey
from control_api.store.store import Store
from control_api.store.transaction import Transaction
from policies.definitions.model import Scope
from policies.ground.errors import SluiceError
from policies.ground.ids import prefixed
from policies.ground.keys import key_digest, make_key
from policies.sets.policy_set import (
    agent_document,
    agent_name,
    document_digest,
    enrolment_document,
    enrolment_name,
    key_document,
)
from policies.trail.change import ObjectChange, PublishedAs, change_record


def with_generation(before: StoredAgent | None, after: StoredAgent, entropy: bytes) -> StoredAgent:
    """Return `after` with the generation that its pods' keys belong to: the same as before, a new
    one, or None if pods may not enrol. `entropy` is 16 random bytes for a new one."""
    if after.workload is None or after.status != "approved":
        return replace(after, enrolment=None)
    # INVARIANT: a generation never comes back. An agent that was suspended gets a new one when it
    # is approved again, so a key that was copied before stays dead.
    if before is not None and before.enrolment and before.workload == after.workload:
        return replace(after, enrolment=before.enrolment)
    return replace(after, enrolment=prefixed("enr_", entropy))


def agent_documents(before: StoredAgent | None, after: StoredAgent) -> dict[str, bytes | None]:
    """Return the documents to publish after a change of an agent, by name. None means to remove a
    document."""
    documents: dict[str, bytes | None] = {
        agent_name(after.agent_id): agent_document(after.published())
    }
    if after.enrolment is not None:
        body = enrolment_document(after.enrolment, after.agent_role)
        documents[enrolment_name(after.agent_id)] = body
    elif before is not None and before.enrolment is not None:
        documents[enrolment_name(after.agent_id)] = None
    return documents


FREE_TEXT = ("description", "display_name", "framework", "owner")
"""The fields of an agent that the log never shows: no decision depends on them, and each may name a
person."""


def given_reason(reason: str | None) -> dict[str, str]:
    """Return `{"reason": reason}` for the detail of a change's record, or an empty dictionary if
    the caller gave no reason."""
    return {} if reason is None else {"reason": reason}


def agent_change(tx: Transaction, before: StoredAgent | None, after: StoredAgent) -> ObjectChange:
    """Return the change of an agent as the log records it. `tx` must have published the agent's
    document."""
    published = tx.published(agent_name(after.agent_id))
    shown = None if before is None else before.shown()
    return ObjectChange(shown, after.shown(), FREE_TEXT, published)


def issued_keys(tx: Transaction, *keys: EnrolledKey) -> ObjectChange:
    """Return the issued keys as the log records them, with the digests by which decisions cite
    them. These keys have no published document, but a verifier compares the facts of decisions with
    this record in the same way."""
    revision = tx.revision or 0
    issued = [
        PublishedAs(f"key/{row.key_id}", document_digest(key_document(row.key())), revision)
        for row in keys
    ]
    return ObjectChange(None, None, published=issued)


ACTOR = "enrolment"
LIFETIME_SECONDS = 3600
MAX_PENDING = 100
"""The most agents with a workload that may wait for approval in a tenant. Anyone who can make
service accounts in a cluster can register drafts, and an admin has to read them."""
_PENDING = ("draft", "pending_approval")


@dataclass(frozen=True, slots=True)
class ProvenPod:
    """A pod whose token was verified. `token_hash` is the hash of that token, for the log."""

    pod: Pod
    token_hash: str


@dataclass(frozen=True, slots=True)
class IssuedKeys:
    """The two API keys of a pod, one for its sidecar and one for its agent: their secrets, shown
    once, and the rows that are stored."""

    sidecar_secret: str
    agent_secret: str
    sidecar: EnrolledKey
    agent: EnrolledKey

    def __repr__(self) -> str:
        return f"IssuedKeys({self.sidecar.key_id!r}, {self.agent.key_id!r})"


@dataclass(frozen=True, slots=True)
class Enrolled:
    """The result of an enrolment: the pod's agent and its keys. `keys` is None while the agent
    waits for approval."""

    tenant_id: str
    agent: StoredAgent
    keys: IssuedKeys | None


class PodRegistry:
    """Enrols pods whose tokens were verified. `new_id` makes the ids of log entries."""

    def __init__(
        self, store: Store, entropy: Callable[[int], bytes], new_id: Callable[[], str]
    ) -> None:
        self._store, self._entropy, self._new_id = store, entropy, new_id
        self._group_commit: GroupCommit[ProvenPod, Enrolled] = GroupCommit(
            store.group, self._commit
        )

    async def enrol(
        self, tenant_id: str, proven: ProvenPod, admit: Callable[[Pod], None]
    ) -> Enrolled:
        """Find or register the pod's agent, and issue keys if the agent is approved. `admit` is
        called before anything is written, and may raise. Raise `TokenRefused` if the pod may not
        enrol, and `WriteFault` if the database fails."""
        # A pod that waits for its agent asks every few seconds: that must cost no transaction.
        async with self._store.reading(tenant_id) as connection:
            agent = await queries.of_workload(connection, tenant_id, proven.pod.workload)
        if agent is not None:
            if agent.status in _PENDING:
                return Enrolled(tenant_id, agent, None)
            _require_approved(agent, proven)
        admit(proven.pod)
        # One batch per tenant, so that a transaction locks one tenant's row.
        return await self._group_commit.submit(tenant_id, proven)

    async def _commit(self, tenant_id: str, batch: list[ProvenPod]) -> list[Enrolled | SluiceError]:
        async def work(tx: Transaction) -> list[Enrolled | SluiceError]:
            return await _Batch(tx, self._entropy, self._new_id).enrol(batch)

        return await self._store.write(tenant_id, work)


class _Batch:
    """Pods of one tenant that are enrolled together in one transaction."""

    def __init__(
        self, tx: Transaction, entropy: Callable[[int], bytes], new_id: Callable[[], str]
    ) -> None:
        self._tx, self._entropy, self._new_id = tx, entropy, new_id
        self._agents: dict[str, StoredAgent] = {}
        self._keys: list[EnrolledKey] = []

    async def enrol(self, batch: list[ProvenPod]) -> list[Enrolled | SluiceError]:
        # INVARIANT: everything is read again here, under the lock on the tenant's row. Another
        # replica may have registered the same workload, or suspended the agent, since.
        tenant = await tenant_rows.get(self._tx.connection, self._tx.tenant_id)
        answers: list[Enrolled | SluiceError] = []
        for proven in batch:
            try:
                if tenant is None or not tenant.active:
                    raise _refused(Enrolling.tenant, "its issuer's tenant is not active", proven)
                answers.append(await self._enrol(proven))
            except TokenRefused as refused:
                answers.append(refused)
        await key_rows.add_enrolled(self._tx.connection, self._tx.tenant_id, self._keys)
        return answers

    async def _enrol(self, proven: ProvenPod) -> Enrolled:
        agent = await self._agent_of(proven)
        if agent.status in _PENDING:
            return Enrolled(self._tx.tenant_id, agent, None)
        _require_approved(agent, proven)
        if agent.enrolment is None:
            agent = await self._begin_generation(agent)
        keys = self._issue(agent, proven.pod)
        change = issued_keys(self._tx, keys.sidecar, keys.agent)
        issued: dict[str, str | int] = {
            "sidecar_key_id": keys.sidecar.key_id,
            "agent_key_id": keys.agent.key_id,
            "expires_at": keys.agent.expires_at,
        }
        await self._log("sidecar.enrolled", agent.agent_id, proven, change, **issued)
        return Enrolled(self._tx.tenant_id, agent, keys)

    async def _agent_of(self, proven: ProvenPod) -> StoredAgent:
        workload, tx = proven.pod.workload, self._tx
        agent = self._agents.get(workload)
        if agent is None:
            agent = await queries.of_workload(tx.connection, tx.tenant_id, workload)
        if agent is None:
            agent = await self._register(proven)
        self._agents[workload] = agent
        return agent

    async def _register(self, proven: ProvenPod) -> StoredAgent:
        tx, workload = self._tx, proven.pod.workload
        if await queries.count_pending(tx.connection, tx.tenant_id) >= MAX_PENDING:
            why = f"{MAX_PENDING} agents of this tenant wait for approval already"
            raise _refused(Enrolling.too_many, why, proven)
        agent_id = await self._new_agent_id(proven.pod)
        agent = StoredAgent(
            agent_id=agent_id,
            # No policy is written for it: a service account's name must not give it a role.
            agent_role=agent_id,
            display_name=None,
            description=f"Registered by the enrolment of pod {proven.pod.name}",
            owner=None,
            framework=None,
            permitted_roles=(),
            credential_type="jwt_oidc",
            bound_key_id=None,
            status="draft",
            created_at=tx.now,
            updated_at=tx.now,
            workload=workload,
        )
        await queries.add(tx.connection, tx.tenant_id, agent)
        await tx.publish(agent_documents(None, agent))
        await self._log("agent.registered", agent_id, proven, agent_change(tx, None, agent))
        return agent

    async def _new_agent_id(self, pod: Pod) -> str:
        """Return an unused id for the pod's agent: `<namespace>.<service account>` if that is free.
        Another cluster may have the same names, and an admin may have chosen the id for another
        agent."""
        name = f"{pod.namespace}.{pod.service_account}"[:200]
        mark = hashlib.sha256(pod.workload.encode()).hexdigest()[:12]
        for agent_id in (name, f"{name}-{mark}"):
            if await queries.get(self._tx.connection, self._tx.tenant_id, agent_id) is None:
                return agent_id
        return prefixed("agt_", self._entropy(16))

    async def _begin_generation(self, agent: StoredAgent) -> StoredAgent:
        """Give a generation to an approved agent that has none, because a replica of an older
        version approved it."""
        begun = with_generation(None, agent, self._entropy(16))
        await queries.put(self._tx.connection, self._tx.tenant_id, begun)
        await self._tx.publish(agent_documents(agent, begun))
        self._agents[str(agent.workload)] = begun
        return begun

    def _issue(self, agent: StoredAgent, pod: Pod) -> IssuedKeys:
        secrets = make_key(self._entropy(32)), make_key(self._entropy(32))
        scopes: tuple[Scope, Scope] = ("sidecar", "evaluate")
        rows = [self._row(*each, agent, pod) for each in zip(scopes, secrets, strict=True)]
        self._keys += rows
        return IssuedKeys(*secrets, *rows)

    def _row(self, scope: Scope, secret: str, agent: StoredAgent, pod: Pod) -> EnrolledKey:
        return EnrolledKey(
            key_id=prefixed("key_", self._entropy(16)),
            # The secret itself is never stored, so a copy of the database opens nothing.
            digest=key_digest(secret),
            scope=scope,
            agent_id=agent.agent_id,
            generation=str(agent.enrolment),
            pod=f"{pod.namespace}/{pod.name}",
            pod_uid=pod.uid,
            created_at=self._tx.now,
            expires_at=self._tx.now + LIFETIME_SECONDS * 1_000_000,
        )

    async def _log(
        self, what: str, agent_id: str, proven: ProvenPod, change: ObjectChange, **issued: str | int
    ) -> None:
        # Every key that is issued is in the log, with the pod and the token that got it: a token
        # that was copied can be used until it expires, and this is where that shows.
        detail = {**proven.pod.detail(), "token_sha256": proven.token_hash, **issued}
        new_id = self._new_id()
        record = change_record(what, agent_id, ACTOR, detail, record_id=new_id, change=change)
        await self._tx.append(record)


def _require_approved(agent: StoredAgent, proven: ProvenPod) -> None:
    if agent.status != "approved":
        raise _refused(Enrolling.agent, f"agent `{agent.agent_id}` is {agent.status}", proven)


def _refused(reason: Enrolling, why: str, proven: ProvenPod) -> TokenRefused:
    return TokenRefused(reason, why, proven.pod.issuer, proven.pod)
