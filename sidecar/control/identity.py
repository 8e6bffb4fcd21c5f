"""Defines the sidecar's identity at the control API, from the settings or from an enrolment: its
own key, its agent, and the documents of the policy set that show whether both are still valid."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

from policies.definitions.model import Key
from policies.ground.clock import Clock
from policies.ground.keys import key_digest
from policies.sets.policy_set import (
    TENANT,
    PolicySet,
    agent_name,
    enrolment_name,
    key_name,
    role_name,
)
from sidecar.platform.key_file import read_key
from sidecar.settings.model import SidecarSettings

NOT_ENROLLED, NOT_APPROVED = "not_enrolled", "agent_not_approved"
"""The policy names of denials while the sidecar has no keys: it could not enrol, or its agent is
not approved."""


class NoKey(Exception):
    """the sidecar has no key of its own yet"""


class KeyHolder:
    """Holds the sidecar's current own key for its requests to the control API. `on_refused` is
    called when the control API refuses a key."""

    def __init__(self, key: str | None = None, missing: str = "") -> None:
        self.on_refused: Callable[[], None] = lambda: None
        self._present = asyncio.Event()
        self.put(key, missing)

    def __repr__(self) -> str:
        return f"KeyHolder({self._missing or 'a key'!r})"  # never the key

    def put(self, key: str | None, missing: str = "") -> None:
        """Use this key from now on. If it is None, `missing` is the reason. A request in progress
        keeps the key that it was sent with, which stays valid."""
        self._key, self._missing = key, missing
        if key is None:
            self._present.clear()
        else:
            self._present.set()

    async def current(self, seconds: float) -> str:
        """Return the key. If there is none, wait up to `seconds` for the first one. Raises
        `NoKey`."""
        if self._key is None:
            # Loops wait here, instead of failing again and again, and start at once with the key.
            try:
                async with asyncio.timeout(seconds):
                    await self._present.wait()
            except TimeoutError:
                raise NoKey(self._missing) from None
        assert self._key is not None
        return self._key


class Identity(ABC):
    """The sidecar's identity at the control API. `key` holds the sidecar's own key. `required` are
    the names of the documents that every decision needs; the list is changed in place."""

    def __init__(self, key: KeyHolder) -> None:
        self.key = key
        self.required: list[str] = [TENANT]

    @abstractmethod
    def invalid(self, policy_set: PolicySet, now: int) -> str | None:
        """Return the reason why the sidecar's own key is no longer valid according to the documents
        held; None if it is valid. `now` is in microseconds. Raises `MissingDocument`."""

    @abstractmethod
    def speaks_for(self, policy_set: PolicySet, agent_id: str | None) -> bool:
        """Return whether the sidecar's own key speaks for this agent; None stands for a call
        without an agent. Raises `MissingDocument` and `NoPolicySet`."""


class ConfiguredIdentity(Identity):
    def __init__(self, settings: SidecarSettings) -> None:
        assert settings.key_file is not None
        key = read_key(settings.key_file)
        super().__init__(KeyHolder(key))
        self.own_digest = key_digest(key)
        self.required.append(key_name(self.own_digest))
        self._agent_key = ""
        self.agent_id = None if settings.agent is None else settings.agent.id
        if (agent := settings.agent) is not None:
            self._agent_key = key_name(key_digest(read_key(agent.key_file)))
            self.required += [role_name(agent.role), self._agent_key]
            if agent.id is not None:
                self.required.append(agent_name(agent.id))

    def hold_own_key(self, key: str) -> None:
        former, self.own_digest = key_name(self.own_digest), key_digest(key)
        self.required[self.required.index(former)] = key_name(self.own_digest)
        self.key.put(key)

    def hold_agent_key(self, digest: bytes) -> None:
        name = key_name(digest)
        self.required[self.required.index(self._agent_key)] = name
        self._agent_key = name

    def invalid(self, policy_set: PolicySet, now: int) -> str | None:
        key = policy_set.key(self.own_digest)
        return None if key and key.live(now) else "the key in `key_file` is no longer valid"

    def speaks_for(self, policy_set: PolicySet, agent_id: str | None) -> bool:
        key = policy_set.key(self.own_digest)
        # Without a document the key is revoked, and the control API says so at the next poll.
        return key is None or key.may_speak_for_agent(agent_id)


@dataclass(frozen=True, slots=True)
class Enrolment:
    """The control API's answer to an enrolment. `generation`, the keys and `until` are None while
    the agent waits for approval. `until` is the keys' expiry in monotonic seconds, so that setting
    a clock can't make a key live longer."""

    workload: str
    agent_id: str
    agent_role: str
    status: str
    generation: str | None = None
    sidecar_key: str | None = field(default=None, repr=False)
    agent_key: Key | None = None
    until: float | None = None
    expires_at: str | None = None


class EnrolledIdentity(Identity):
    """The identity of a sidecar that enrols: its keys and its agent come from the last enrolment,
    `answer`, and are renewed. `problem` is the policy name and the reason of all denials while
    there are no keys; None if there are keys."""

    def __init__(self, clock: Clock) -> None:
        self._monotonic = clock.monotonic
        self.answer: Enrolment | None = None
        self.problem: tuple[str, str] | None = (NOT_ENROLLED, "waiting to enrol")
        super().__init__(KeyHolder(None, "waiting to enrol"))

    def accept(self, answer: Enrolment) -> None:
        self.answer = answer
        if answer.sidecar_key is None:
            why = f"agent `{answer.agent_id}` is `{answer.status}`: an admin has to approve it"
            self.withdraw(NOT_APPROVED, why)
            return
        self.problem = None
        own = agent_name(answer.agent_id), enrolment_name(answer.agent_id)
        self.required[:] = [TENANT, role_name(answer.agent_role), *own]
        self.key.put(answer.sidecar_key)

    def withdraw(self, denial: str, why: str) -> None:
        """Forget the keys. From now on everything is denied with the policy name `denial` and the
        reason `why`."""
        self.problem = denial, why
        self.key.put(None, why)

    @property
    def seconds_left(self) -> float:
        """The seconds for which the keys are still valid: negative if they have expired, 0 if there
        are no keys."""
        until = None if self.answer is None else self.answer.until
        return 0.0 if until is None else until - self._monotonic()

    def valid_enrolment(self, policy_set: PolicySet) -> Enrolment | None:
        """Return the enrolment if the policy set says that its keys are still valid; otherwise
        None. Raises `MissingDocument`."""
        answer = self.answer
        if self.problem is not None or answer is None or self.seconds_left <= 0:
            return None
        # INVARIANT: looked up for every request. The document is how the control API ends the keys
        # of all pods of an agent at once.
        named = policy_set.enrolment(answer.agent_id)
        return answer if named is not None and named.generation == answer.generation else None

    def invalid(self, policy_set: PolicySet, now: int) -> str | None:  # noqa: ARG002
        if self.problem is not None:
            return self.problem[1]
        valid = self.valid_enrolment(policy_set) is not None
        return None if valid else "the keys that this sidecar enrolled for are dead"

    def speaks_for(self, policy_set: PolicySet, agent_id: str | None) -> bool:  # noqa: ARG002
        return self.answer is None or agent_id == self.answer.agent_id
