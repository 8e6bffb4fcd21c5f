"""Handles well-formed requests from which no retrieval can be made, and requests that can't be
read.

Describes the missing part, so that `Enforcer.deny` can record the denial like any other. Finds the
agent and the role that a key stands for if a request names none; they are then judged as if the
request had named them.

Logs the paths of requests that can't be read. A record has no place for one: it would stay in the
audit trail for good, and may name a person. Decides and records nothing.
"""

import logging
from collections.abc import Callable
from urllib.parse import unquote

from policies.definitions.model import Key
from policies.ground.canonical import identifier_fault
from policies.ground.log_line import printable
from policies.ground.masking import MaskingTurns
from policies.retrieval import Retrieval
from policies.sets.policy_set import PolicySet

UNMAPPED = "unmapped_request"
"""The policy name of denials of requests from which no retrieval can be made."""
UNKNOWN = "unknown"
"""The text recorded in place of a name that could not be read."""


class Unmapped(ValueError):
    """Raised for a request from which no retrieval can be made. The message says what is missing,
    and which setting or field supplies it. The names are those that could be read; the others are
    None."""

    def __init__(
        self,
        reason: str,
        *,
        agent_role: str | None = None,
        user_id: str | None = None,
        agent_id: str | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self._names = (agent_role, user_id, agent_id)

    def retrieval(self, door: str) -> Retrieval:
        """Return the retrieval to record with the denial. `door` is the source type that its events
        show."""
        role, user, agent = map(_readable, self._names)
        # The highest level: what could not be read is not known to be harmless.
        return Retrieval(
            role, user, f"{door}://unmapped", "critical", None, None, agent, None, door
        )


def _readable(name: str | None) -> str:
    """Return `name` if a record may hold it, otherwise `UNKNOWN`."""
    return UNKNOWN if name is None or identifier_fault(name) else name


def agent_of(key: Key) -> str | None:
    """Return the id of the agent that the key is bound to; None if it is bound to none."""
    return key.bound_agent_id


def role_of(
    key: Key,
    agent_id: str | None,
    policy_set: PolicySet,
    speaks_for: Callable[[str | None], bool],
) -> str | None:
    """Return the role to use for a request that names none: the registered agent's own role, or
    else the only role that the key permits; None if there is neither. Raises `MissingDocument`
    while the agent's document is not here.

    If the sidecar's own key does not speak for the agent, return the key's only role, or `UNKNOWN`.
    """
    if not speaks_for(agent_id):
        # Such a call is denied in any case. The agent's document may not be here.
        return key.permitted_roles[0] if len(key.permitted_roles) == 1 else UNKNOWN
    agent = None if agent_id is None else policy_set.agent(agent_id)
    if agent is not None:
        return agent.permitted_roles[0]  # the publisher puts the agent's own role first
    return key.permitted_roles[0] if len(key.permitted_roles) == 1 else None


LOG_SECONDS = 1.0
"""The minimum seconds between two log lines, because an agent may send any number of such
requests."""
LONGEST = 200
"""The most characters of a path in a log line, counted before escaping."""
log = logging.getLogger(__name__)


class UnreadableRequests:
    """Logs requests that can't be read: at most one line in `LOG_SECONDS`, with the number of
    requests left out before it. `masks` returns whether to mask personal data now."""

    def __init__(
        self, monotonic: Callable[[], float], masks: Callable[[], bool], masking: MaskingTurns
    ) -> None:
        self._monotonic = monotonic
        self._masks = masks
        self._masking = masking
        self._next = float("-inf")
        self._left_out = 0

    async def note(self, method: str, target: str, event_id: str) -> None:
        """Log a refused request. `target` is the request target as it arrived; its query, which may
        hold keys and texts, is left out."""
        now = self._monotonic()
        if now < self._next:
            self._left_out += 1
            return
        left_out, self._left_out, self._next = self._left_out, 0, now + LOG_SECONDS
        log.warning(
            "event `%s` is an unreadable request: %s `%s`%s",
            event_id,
            printable(method[:20]),
            await self._shown(_path(target)),
            f"; {left_out} before it were not logged" if left_out else "",
        )

    async def _shown(self, whole: str) -> str:
        path = whole[:LONGEST]
        if self._masks():
            # Masking would not recognize half an address, or an escaped one.
            path = path if path == whole else path.rpartition("/")[0]
            plain = unquote(path)
            masked = (await self._masking.text(plain)).text
            path = path if masked == plain else masked
        return printable(path) + ("…" if len(whole) > LONGEST else "")


def _path(target: str) -> str:
    """Return the path of a request target, without the authority, which may contain a password, and
    without the query."""
    before = target.partition("?")[0]
    _, mark, rest = before.partition("://")
    return "/" + rest.partition("/")[2] if mark and not before.startswith("/") else before
