"""Looks up API keys in the local policy set, to find who is calling and as which agent. Counts and
logs the keys that are refused: for a refused call no decision is made, so neither a record nor a
decision's metric shows it.

A key is known only by its digest. It is looked up for every request, so a revocation takes effect
as soon as it is in the policy set. Knows no header.
"""

import logging
from collections.abc import Callable
from typing import NamedTuple

from policies.definitions.model import Key
from policies.ground.clock import Clock
from policies.ground.errors import Forbidden, SluiceError, Unauthorized
from policies.ground.keys import key_digest
from policies.ground.process.outage_logger import RepeatingOutageLogger
from policies.sets.policy_set import NoPolicySet, PolicySet
from sidecar.control.identity import NOT_ENROLLED, EnrolledIdentity
from sidecar.metrics.metrics import Counter
from sidecar.policy_cache.policy_store import CacheDamaged
from sidecar.policy_cache.policy_view import MissingDocument

EVALUATING_SCOPES = ("evaluate", "admin")
"""The scopes of keys that may ask for a decision (`CONTRACT.md`, Scopes)."""


class InvalidKey(Forbidden):
    """the API key is unknown, revoked or expired"""

    def __init__(self, message: str | None = None, *, expired: bool = False) -> None:
        super().__init__(message)
        self.expired = expired


class ForeignKey(Forbidden):
    """the key is bound to an agent for which this sidecar may not decide"""


class WrongScope(Forbidden):
    """the scope of the API key does not allow this"""


class LiveKeys:
    """Looks up the tenant's keys that are neither revoked nor expired. `speaks_for` returns whether
    the sidecar's own key speaks for an agent."""

    def __init__(
        self,
        policy_set: PolicySet,
        clock: Clock,
        speaks_for: Callable[[str | None], bool] = lambda _: True,
    ) -> None:
        self.policy_set = policy_set
        self._speaks_for = speaks_for
        self._now = clock.now
        self.monotonic = clock.monotonic
        """A monotonic clock in seconds, which spaces out repeated log lines about refused keys."""

    def find(self, digest: bytes) -> Key | None:
        """Return the key with this SHA-256 digest, None if it is unknown, revoked or expired.
        Raises `NoPolicySet`, `MissingDocument` or `CacheDamaged` if that can't be determined."""
        # INVARIANT: looked up for every request, also on a connection that was good a moment ago.
        # Nothing above may remember the result: this is where a revoked key stops working.
        key = self.policy_set.key(digest)
        return key if key is not None and key.live(self._now()) else None

    def now(self, key: Key) -> Key | None:
        """Return the current state of a key that was found before: None if it was revoked, has
        expired, has another scope than before, or can't be looked up. Raises `MissingDocument`."""
        try:
            found = self.find(key.digest)
        except (NoPolicySet, CacheDamaged):
            return None
        return found if found is not None and found.scope == key.scope else None

    def expired(self, digest: bytes) -> bool:
        """Return whether a key that `find` did not return has expired. False means that it is
        unknown or revoked."""
        return self.policy_set.key(digest) is not None

    def of_caller(self, digest: bytes | None) -> Key:
        """Return the key that a caller presents, by its digest; None as `digest` means that the
        caller presents no key. Raises `Unauthorized` without a key, `InvalidKey` if the key is not
        found, `ForeignKey` if it is bound to an agent that this sidecar may not decide for, and the
        errors of `find`."""
        # 401 without a key, 403 with one that is not valid (`CONTRACT.md`, Errors).
        if digest is None:
            raise Unauthorized
        key = self.find(digest)
        if key is None:
            raise InvalidKey(expired=self.expired(digest))
        bound = key.bound_agent_id
        if bound is not None and not self._speaks_for(bound):
            raise ForeignKey(
                f"the key is bound to agent `{bound}`, for which this sidecar may not decide"
            )
        return key


class KeyFault(NamedTuple):
    """The reason why a key can't be used for an agent, and the policy name of the denials that
    follow. `owner` says which key it is and whose, for the log alone; it is empty if that is not
    known."""

    why: str
    denial: str
    owner: str = ""


class AgentIdentity:
    """The agent behind the proxy listeners. Its requests carry no key, so its key is looked up by
    `digest`. `file_fault` is the reason why the key in its key file is not in use; None if that key
    is in use."""

    def __init__(self, agent_id: str | None, role: str, digest: bytes, keys: LiveKeys) -> None:
        self._id = agent_id
        self._role = role
        self.digest = digest
        self.file_fault: str | None = None
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
        """The user of a request that names no user: the agent's id, or its role if it has no id."""
        return self._id or self._role

    def key(self) -> Key | None:
        """Return the agent's key. Returns None if the key may not be used to ask for decisions: it
        is revoked or expired, lacks the scope, or can't be looked up at the moment. Every retrieval
        is then denied."""
        try:
            return self.known_key()
        except (NoPolicySet, MissingDocument, CacheDamaged):
            # In doubt the proxy denies, and the denial is recorded.
            return None

    def fault_of(self, digest: bytes) -> KeyFault | None:
        """Return the reason why the key with this digest may not ask for decisions as this agent in
        this role, whatever the source; None if it may. Raises the errors of `LiveKeys.find`."""
        key = self._keys.find(digest)
        if key is None:
            expired = self._keys.expired(digest)
            why = "has expired" if expired else "is unknown or revoked"
            return KeyFault(why, "key_not_valid")
        # If the files of two agents are swapped, this tells which was taken for which.
        bound = "" if key.bound_agent_id is None else f" of agent `{key.bound_agent_id}`"
        owner = f"key `{key.key_id}`{bound}"
        if key.scope not in EVALUATING_SCOPES:
            return KeyFault("has another scope than `evaluate` or `admin`", "key_not_valid", owner)
        # The same conditions as in checks 3 and 4 of each request. The texts have no ids, since
        # `/health/ready` shows them to anyone.
        if key.permitted_roles and self._role not in key.permitted_roles:
            return KeyFault("is not for the role `agent.role`", "key_role_restriction", owner)
        if key.bound_agent_id is not None and key.bound_agent_id != self._id:
            return KeyFault("is bound to another agent than `agent.id`", "key_agent_binding", owner)
        agent = None if self._id is None else self._keys.policy_set.agent(self._id)
        if agent is not None and agent.bound_key_id not in (None, key.key_id):
            why = "is not the one that `agent.id` is bound to"
            return KeyFault(why, "key_agent_binding", owner)
        return None

    def role_fault(self) -> str | None:
        """Return the reason why the agent may not act in its role, with any key; None if it may, or
        if it is not registered. Raises the errors of `PolicySet.agent`."""
        agent = None if self._id is None else self._keys.policy_set.agent(self._id)
        # The same condition as in check 3 of each request. Without ids, as above.
        if agent is None or self._role in agent.permitted_roles:
            return None
        return "`agent.role` is not among the roles that `agent.id` is registered with"

    def known_key(self) -> Key | None:
        """Return the same key as `key`, but raise the errors of `LiveKeys.find`."""
        # A key that lost its scope is like one that was revoked: the operator took the right away.
        key = self._keys.find(self.digest)
        return key if key is not None and key.scope in EVALUATING_SCOPES else None


class EnrolledAgent(AgentIdentity):
    """The agent that this sidecar enrolled as. Its id, role and key may change with each renewal.
    `user` is the user of requests that name no user."""

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
        """Return the agent's key; None if it is no longer valid. An enrolled agent's key has no
        document of its own: the document of the enrolment says whether it is valid."""
        enrolment = self._identity.valid_enrolment(self._keys.policy_set)
        return None if enrolment is None else enrolment.agent_key


log = logging.getLogger(__name__)

REFUSAL_REASONS = {
    "missing": "the call carries none",
    "unknown": "it is unknown or revoked",
    "expired": "it has expired",
    "scope": "its scope does not allow this",
    "foreign": "it is bound to an agent for which this sidecar may not decide",
}
"""The reasons for which a key is refused: the metric's label, and the words for the log."""


class RefusedKeys:
    """Counts and logs refused keys. `count` counts by entry point and reason. `what` names the
    component that refuses in the log, such as "check door". `monotonic` is a clock in seconds."""

    def __init__(self, count: Counter, what: str, monotonic: Callable[[], float]) -> None:
        self._count = count
        self._what = what
        self._monotonic = monotonic
        self._states: dict[str, RepeatingOutageLogger] = {}

    def refused(self, entry_point: str, name: str, error: SluiceError) -> None:
        """Count and log a key that was refused with `error`. `entry_point` names the entry
        point in the metric, and `name` in the log; both come from a closed set."""
        reason = _reason(error)
        self._count.add(entry_point, reason)
        state = self._states.get(name)
        if state is None:
            where = f"the {self._what} `{name}`"
            state = self._states[name] = RepeatingOutageLogger(
                log, f"{where} refused a call for its key", f"{where} took a key", self._monotonic
            )
        state.failing(REFUSAL_REASONS[reason])

    def taken(self, name: str) -> None:
        """Note that the entry point `name` has accepted a key, which ends the log's series of
        refusals."""
        state = self._states.get(name)
        if state is not None and state.problem is not None:
            state.recovered()


def _reason(error: SluiceError) -> str:
    if isinstance(error, InvalidKey):
        return "expired" if error.expired else "unknown"
    if isinstance(error, WrongScope):
        return "scope"
    return "foreign" if isinstance(error, ForeignKey) else "missing"
