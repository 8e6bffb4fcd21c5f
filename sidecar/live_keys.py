"""Who may call, and as which agent: looks up keys in the local policy set. Knows no header.

A key is known only by its digest. It is looked up for every request, so a revocation takes effect
as soon as it is in the policy set.
"""

from collections.abc import Callable

from policies.definitions.model import Key
from policies.ground.clock import Clock
from policies.ground.errors import Forbidden
from policies.ground.keys import key_digest
from policies.sets.policy_set import NoPolicySet, PolicySet
from sidecar.control.identity import NOT_ENROLLED, EnrolledIdentity
from sidecar.policy_cache.document_fetcher import MissingDocument
from sidecar.policy_cache.policy_store import CacheDamaged

EVALUATING_SCOPES = ("evaluate", "admin")
"""Scopes that may ask for a decision (contract, section 2)."""


class ForeignKey(Forbidden):
    """the key is bound to an agent for which this sidecar may not decide"""


class LiveKeys:
    """Looks up the tenant's live keys. `speaks_for` says whether the sidecar's own key speaks for
    an agent."""

    def __init__(
        self,
        policy_set: PolicySet,
        clock: Clock,
        speaks_for: Callable[[str | None], bool] = lambda _: True,
    ) -> None:
        self.policy_set = policy_set
        self._speaks_for = speaks_for
        self._now = clock.now

    def find(self, digest: bytes) -> Key | None:
        """The key with this SHA-256 digest, None if it is unknown, revoked or expired. Raises
        `NoPolicySet`, `MissingDocument` or `CacheDamaged` if that can't be determined."""
        # INVARIANT: looked up for every request, also on a connection that was good a moment ago.
        # Nothing above may remember the result: this is where a revoked key stops working.
        key = self.policy_set.key(digest)
        return key if key is not None and key.live(self._now()) else None

    def now(self, key: Key) -> Key | None:
        """What has become of a key that was found: None if it was revoked or has expired, lost its
        scope, or can't be looked up. Raises `MissingDocument`."""
        try:
            found = self.find(key.digest)
        except (NoPolicySet, CacheDamaged):
            return None
        return found if found is not None and found.scope == key.scope else None

    def find_callers(self, digest: bytes) -> Key | None:
        """Like `find`, for a key that a caller presents. Raises `ForeignKey` too."""
        key = self.find(digest)
        bound = None if key is None else key.bound_agent_id
        if bound is not None and not self._speaks_for(bound):
            raise ForeignKey(
                f"the key is bound to agent `{bound}`, for which this sidecar may not decide"
            )
        return key


class AgentIdentity:
    """The agent behind the proxy listeners, whose requests carry no key."""

    def __init__(self, agent_id: str | None, role: str, digest: bytes, keys: LiveKeys) -> None:
        self._id = agent_id
        self._role = role
        self._digest = digest
        self._keys = keys

    @classmethod
    def of(cls, agent_id: str | None, role: str, key: str, keys: LiveKeys) -> "AgentIdentity":
        return cls(agent_id, role, key_digest(key), keys)

    @property
    def id(self) -> str | None:
        return self._id

    @property
    def role(self) -> str:
        return self._role

    @property
    def default_user(self) -> str:
        """Who a request is for that names no user."""
        return self._id or self._role

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


class EnrolledAgent(AgentIdentity):
    """The agent that this sidecar enrolled as. Its id, role and key may change with each renewal.
    `user` is whom requests are for that name no user."""

    def __init__(self, identity: EnrolledIdentity, user: str, keys: LiveKeys) -> None:
        super().__init__(None, NOT_ENROLLED, b"", keys)
        self._identity = identity
        self._user = user

    @property
    def id(self) -> str | None:
        answer = self._identity.answer
        return None if answer is None else answer.agent_id

    @property
    def role(self) -> str:
        answer = self._identity.answer
        return NOT_ENROLLED if answer is None else answer.agent_role

    @property
    def default_user(self) -> str:
        # Not the agent's id: it is not known when the listeners are made.
        return self._user

    def known_key(self) -> Key | None:
        """The agent's key. It has no document of its own: its agent's enrolment says whether it is
        alive."""
        live = self._identity.live(self._keys.policy_set)
        return None if live is None else live.agent_key
