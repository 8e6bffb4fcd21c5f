"""Tells which documents were in force at each revision of the policy set, from the log's `change`
entries.

A `change` entry names each document that it published: its SHA-256, and the revision from which it
has been in force. So the document that a decision at some revision must have used is known, unless

    the change is outside of the range walked, or was forgotten here to bound memory
    the change was made by a version that recorded no documents
    the store was restored to an older state since (`incarnation`)

Where it is unknown, nothing is claimed. Memory is bounded: the document that was not used longest
is forgotten.
"""

from collections import OrderedDict
from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

from policies.ground.canonical import micros

SLACK = 120_000_000
"""The tolerance, in microseconds, around the time of a decision: a fact that was in force within it
counts too. A key is looked up when a request arrives, before the decision; and a service that
shares its store with others may read a document a moment before it learns of its revision."""
MAX_NAMES, MAX_STATES = 32_768, 16
CUT_OFF = 86_400_000_000
"""The longest time, in microseconds, for which a sidecar may decide by a policy set that it can't
refresh."""

# The kinds of objects whose changes publish documents, and the beginning of their names. A change
# of one that names no document was made by an older version, and may have published any.
_PUBLISHING = {
    "agent": "agent/",
    "key": "key/",
    "policy": "role/",
    "session": "session/",
    "source": "sources",
    "sidecar": "key/",
    "tenant": "tenant",
}
FREEZE = "tenant freeze"
"""The name under which a tenant's freeze is kept here, as if it were a document: its value is the
time of the freeze as text."""


class Held(Enum):
    """The result of comparing a fact with the documents that were in force by the `change`
    entries."""

    AGREES = "agrees"
    UNKNOWN = "unknown"
    CONTRADICTS = "contradicts"


class _State(NamedTuple):
    """The digest of a document that was in force from `revision` on and was published at `time`, in
    microseconds; None if there was no document."""

    revision: int
    time: int
    value: str | None


def unkept_until(entry: Mapping[str, Any]) -> int:
    """Return the time, in microseconds, until which a decision may lack its document because of
    this `change` entry: it replaced the policies of a role, and the version that recorded it kept
    no documents. 0 if it excuses nothing."""
    try:
        pub = entry["pub"]
        if "before_sha256" in pub or not pub["what"].startswith("policy."):
            return 0
        return micros(entry["ts"]) + CUT_OFF
    except (LookupError, TypeError, ValueError, AttributeError):
        return 0


class DocumentHistory:
    """The digests of the documents in force over time, from the `change` entries that were fed in
    order."""

    def __init__(self) -> None:
        self._states: OrderedDict[str, list[_State]] = OrderedDict()
        # True if every document of the log is known: then one that is not here does not exist.
        self._complete = False

    def change(self, entry: Mapping[str, Any]) -> bool:
        """Take in a `change` entry. Return False if it can't be read; then every document becomes
        unknown."""
        pub = entry["pub"]
        try:
            what, target = str(pub["what"]), str(pub["target"])
            if entry["seq"] == 0:
                self._complete = what == "tenant.created" and "published" in pub
            if "before_sha256" not in pub:
                self._forget(what.partition(".")[0], target)
                return True
            time = micros(entry["ts"])
            for name, digest, revision in pub.get("published", ()):
                self._put(name, _State(revision, time, digest))
                if name == "tenant" and what in ("tenant.frozen", "tenant.unfrozen"):
                    since = pub["after"].get("frozen_at")
                    value = None if since is None else str(micros(since))
                    self._put(FREEZE, _State(revision, time, value))
        except (LookupError, TypeError, ValueError, AttributeError):
            self.restart()
            return False
        return True

    def restart(self) -> None:
        """Forget all documents, because the store went back to an older or unknown state."""
        self._states.clear()
        self._complete = False

    def holds(self, name: str, value: str | None, revision: int, time: int) -> Held:
        """Tell if the document `name` had this digest at `revision`, or within `SLACK` of `time`.
        `value` is None to ask if there was no such document."""
        states = self._states.get(name)
        if states is None:
            if not self._complete:
                return Held.UNKNOWN
            return Held.AGREES if value is None else Held.CONTRADICTS
        self._states.move_to_end(name)
        until: int | None = None
        beyond = True  # whether all states so far are later than `revision`
        for state in reversed(states):
            near = state.time <= time + SLACK and (until is None or until >= time - SLACK)
            current = beyond and state.revision <= revision
            if state.value == value and (current or near):
                return Held.AGREES
            beyond, until = beyond and not current, state.time
        # The state in force before the first known one would count too.
        return Held.UNKNOWN if beyond or states[0].time >= time - SLACK else Held.CONTRADICTS

    def _put(self, name: str, state: _State) -> None:
        states = self._states.get(name)
        if states is None:
            states = self._states[name] = [_State(0, 0, None)] if self._complete else []
        states.append(state)
        self._states.move_to_end(name)
        del states[:-MAX_STATES]
        if len(self._states) > MAX_NAMES:
            self._states.popitem(last=False)
            self._complete = False

    def _forget(self, kind: str, target: str) -> None:
        prefix = _PUBLISHING.get(kind)
        if prefix is None:
            return
        self._complete = False
        # A rotation moves agents to the new key, and a policy's change does not say which role.
        wide = {
            "key": ("key/", "agent/"),
            "policy": ("role/",),
            "tenant": ("tenant",),
            "source": ("sources",),
        }
        gone = wide.get(kind, (prefix + target,))
        for name in [each for each in self._states if each.startswith(gone)]:
            del self._states[name]
