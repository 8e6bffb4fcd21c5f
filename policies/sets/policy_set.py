"""The data by which decisions are made: a tenant's policies, agents and keys as documents, each
compiled when it is first used.

Knows the documents' names and bytes. Doesn't know where they are stored: `fetch` reads them (from a
table in the control API, from a local file in a sidecar). Memory grows with what is used, not with
the tenant.
"""

import hashlib
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import orjson

from policies.definitions.model import Agent, Key, Policy, TenantSettings
from policies.ground.canonical import encode
from policies.retrieval import Retrieval
from policies.sets.role import Role, compile_role
from policies.sets.source_levels import SOURCES, SourceLevels

Fetch = Callable[[str], bytes | None]

TENANT = "tenant"
ROLE = "role/"


def role_name(role: str) -> str:
    return ROLE + role


def agent_name(agent_id: str) -> str:
    return f"agent/{agent_id}"


KEY = "key/"


def key_name(digest: bytes) -> str:
    """Return the name of a key's document. `digest` is the key's SHA-256, so that the name finds a
    key without revealing it."""
    return KEY + digest.hex()


def enrolment_name(agent_id: str) -> str:
    """Return the name of the document about an agent's enrolment. Only an approved agent with a
    workload (pods that enrol) has one."""
    return f"enrolment/{agent_id}"


def enrolment_document(generation: str, role: str) -> bytes:
    """Return the document on which all keys depend that an agent's pods enrolled for: such a key is
    live only while `generation` stays the same."""
    return encode({"agent_role": role, "generation": generation})


CANDIDATE = "candidate/"


def candidate_name(candidate: str, role: str) -> str:
    """Return the name of the document that holds a candidate's policies of one role. The document
    is absent if the candidate has no policy of that role. No candidate's name contains `/`."""
    return f"{CANDIDATE}{candidate}/{role}"


SESSION = "session/"


def session_name(session_id: str) -> str:
    """Return the name of a revoked session's document. Sessions that are not revoked have none."""
    return SESSION + session_id


def session_document(session_id: str) -> bytes:
    """Return the document that tells every sidecar that this session is revoked."""
    return encode({"session_id": session_id, "state": "revoked"})


def tenant_document(settings: TenantSettings) -> bytes:
    return encode(settings.to_wire())


def role_document(policies: Iterable[Policy]) -> bytes | None:
    """Return the document of a role's active policies; None if the role has no active policy."""
    # Sorted: the same policies must always have the same bytes, and so the same digest.
    ordered = sorted(policies, key=lambda policy: policy.name)
    return encode([policy.to_wire() for policy in ordered]) if ordered else None


def agent_document(agent: Agent) -> bytes:
    return agent.wire


def key_document(key: Key) -> bytes:
    return key.wire


def document_digest(body: bytes) -> str:
    """Return the SHA-256 of a document's bytes in hex, by which it is addressed and checked."""
    return hashlib.sha256(body).hexdigest()


def documents_for(retrieval: Retrieval) -> list[str]:
    """Return the names of the documents that a decision on `retrieval` reads, except the key's."""
    names = [TENANT, SOURCES, role_name(retrieval.agent_role)]
    if retrieval.agent_id is not None:
        names.append(agent_name(retrieval.agent_id))
    if retrieval.session_id is not None:
        names.append(session_name(retrieval.session_id))
    return names


def candidate_documents(settings: TenantSettings, retrieval: Retrieval) -> list[str]:
    """Return the names of the documents that the tenant's candidates read for a decision on
    `retrieval`."""
    return [candidate_name(each.name, retrieval.agent_role) for each in settings.candidates]


class Enrolment(NamedTuple):
    """The document about an agent's enrolment, on which its enrolled keys depend. Such a key is
    live while `generation` is the one in which it was issued. `agent_role` is the role in which the
    agent's pods act."""

    generation: str
    agent_role: str


class NoPolicySet(LookupError):
    """no policy set has arrived yet"""


class PolicySet:
    """One tenant's policy set at `revision`.

    At most `keep` documents stay compiled. The document compiled longest ago is evicted first, and
    `fetch` reads it again on its next use.
    """

    def __init__(self, fetch: Fetch, *, keep: int = 4096) -> None:
        self.revision = 0
        self._fetch = fetch
        self._keep = keep
        self._compiled: dict[str, Any] = {}

    def apply(self, names: Iterable[str], revision: int) -> None:
        """Take note that these documents changed in `revision`: drop their compiled forms."""
        # The next decision that needs one reads it again; the others stay compiled.
        for name in names:
            self._compiled.pop(name, None)
        self.revision = revision

    def reset(self, revision: int) -> None:
        """Take note that any document may have changed: drop every compiled form."""
        self._compiled.clear()
        self.revision = revision

    def settings(self) -> TenantSettings:
        """Return the tenant's settings. Raises `NoPolicySet` if there is no document of them, or
        any error if the document has an unknown format."""
        found: TenantSettings | None = self._get(TENANT, _settings)
        if found is None:
            raise NoPolicySet(f"the policy set has no document `{TENANT}`")
        return found

    def masks(self) -> bool:
        """Return whether personal data is masked before it is recorded. If the setting can't be
        read, masking is on: a record can't be taken back."""
        try:
            return self.settings().pii_masking
        except Exception:  # noqa: BLE001  # any failure means that masking was not switched off
            return True

    def frozen(self) -> bool:
        """Return whether the tenant is frozen (`CONTRACT.md`, Incident controls). Without a policy
        set, return False. If the settings can't be read, return True: they may come from a newer
        version."""
        try:
            return self.settings().frozen_at is not None
        except NoPolicySet:
            # No other `LookupError`: a document without a member that we expect raises one, too.
            return False
        except Exception:  # noqa: BLE001  # any fault in the document fails closed
            return True

    def role(self, name: str) -> Role | None:
        """Return the role with this name; None if it has no active policy."""
        # Join the name here and below as `role_name` and its like do, but without a call: each
        # decision looks up three.
        found: Role | None = self._get("role/" + name, _role)
        return found

    def sources(self) -> SourceLevels | None:
        """Return the sensitivity levels that the tenant states for its sources; None if it states
        none."""
        found: SourceLevels | None = self._get(SOURCES, SourceLevels)
        return found

    def candidate_role(self, candidate: str, role: str) -> Role | None:
        """Return the role `role` as the policies of `candidate` define it; None if the candidate
        has no policy of that role."""
        found: Role | None = self._get(f"candidate/{candidate}/{role}", _role)
        return found

    def agent(self, agent_id: str) -> Agent | None:
        found: Agent | None = self._get("agent/" + agent_id, _agent)
        return found

    def key(self, digest: bytes) -> Key | None:
        """Return the API key with this SHA-256; None if there is none. Doesn't check its expiry,
        which needs the caller's clock."""
        found: Key | None = self._get("key/" + digest.hex(), partial(_key, digest))
        return found

    def enrolment(self, agent_id: str) -> Enrolment | None:
        """Return the agent's enrolment; None if no pod may hold a key of this agent now."""
        found: Enrolment | None = self._get(enrolment_name(agent_id), _enrolment)
        return found

    def _get(self, name: str, compiled: Callable[[bytes], Any]) -> Any:
        try:
            return self._compiled[name]
        except KeyError:
            pass
        body = self._fetch(name)
        # If this raises, nothing is cached: every use of the document fails until it can be read.
        found = None if body is None else compiled(body)
        # Cache absence too: a stranger guessing names must not cause a fetch for each guess.
        while len(self._compiled) >= self._keep:
            self._compiled.pop(next(iter(self._compiled)))
        self._compiled[name] = found
        return found


def _settings(body: bytes) -> TenantSettings:
    return TenantSettings.from_wire(orjson.loads(body))


def _role(body: bytes) -> Role:
    policies = [Policy.from_wire(wire) for wire in orjson.loads(body)]
    return compile_role(policies[0].agent_role, policies, document_digest(body))


def _agent(body: bytes) -> Agent:
    return Agent.from_wire(orjson.loads(body))


def _key(digest: bytes, body: bytes) -> Key:
    return Key.from_wire(orjson.loads(body), digest)


def _enrolment(body: bytes) -> Enrolment:
    wire = orjson.loads(body)
    return Enrolment(wire["generation"], wire["agent_role"])
