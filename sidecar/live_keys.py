"""Who may call, and as which agent: looks up keys in the local policy set. Knows no header.

A key is known only by its digest. It is looked up for every request, so a revocation takes effect
as soon as it is in the policy set.
"""

from dataclasses import dataclass, field

from policies.definitions.model import Key
from policies.ground.clock import Clock
from policies.ground.keys import key_digest
from policies.sets.policy_set import NoPolicySet, PolicySet
from sidecar.policy_cache.document_fetcher import MissingDocument
from sidecar.policy_cache.policy_store import CacheDamaged

EVALUATING_SCOPES = ("evaluate", "admin")
"""Scopes that may ask for a decision (contract, section 2)."""


class LiveKeys:
    """Looks up the tenant's live keys."""

    def __init__(self, policy_set: PolicySet, clock: Clock) -> None:
        self._policy_set = policy_set
        self._now = clock.now

    def find(self, digest: bytes) -> Key | None:
        """The key with this SHA-256 digest, None if it is unknown, revoked or expired. Raises
        `NoPolicySet`, `MissingDocument` or `CacheDamaged` if that can't be determined."""
        # INVARIANT: looked up for every request, also on a connection that was good a moment ago.
        # Nothing above may remember the result: this is where a revoked key stops working.
        key = self._policy_set.key(digest)
        return key if key is not None and key.live(self._now()) else None


@dataclass(frozen=True, slots=True)
class AgentIdentity:
    """The agent behind the proxy listeners, whose requests carry no key."""

    id: str | None
    role: str
    _digest: bytes = field(repr=False)
    _keys: LiveKeys = field(repr=False)

    @classmethod
    def of(cls, agent_id: str | None, role: str, key: str, keys: LiveKeys) -> "AgentIdentity":
        return cls(agent_id, role, key_digest(key), keys)

    def key(self) -> Key | None:
        """The agent's key, or None if it may not evaluate: it is not live, lacks the scope, or
        can't be looked up at the moment. Every retrieval is then denied."""
        try:
            return self.known_key()
        except (NoPolicySet, MissingDocument, CacheDamaged):
            # In doubt the proxy denies, and the denial is recorded.
            return None

    def known_key(self) -> Key | None:
        """Like `key`, but raises what `LiveKeys.find` raises."""
        # A key that lost its scope is like one that was revoked: the operator took the right away.
        key = self._keys.find(self._digest)
        return key if key is not None and key.scope in EVALUATING_SCOPES else None
