"""Makes the `change` entries of the log. Each tells who changed an object, and its state before and
after. Also those of a legal hold, which keeps a session, an agent or a user from retention and
erasure until it is released.

Beside the fields of every change, an entry holds the SHA-256 of the object before and after, the
members that changed if they fit in `MAX_SHOWN` bytes, and the documents of the policy set that the
change published. `policies.trail.recompute` compares the facts of later decisions with those
documents. Knows no kind of object: its form, and the members that must not be shown, are arguments.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from policies.ground.canonical import encode, rfc3339
from policies.trail.commitment import commit
from policies.trail.record import Record, make_record

MAX_SHOWN = 8 * 1024
"""The most bytes that the changed members may take in an entry, before and after together."""


class PublishedAs(NamedTuple):
    """A document of the policy set that a change published: its name, its SHA-256 in hex (None if
    it was removed), and the revision from which it has been in force. A key's document is called
    `key/<key_id>` here: its real name would reveal the digest of the secret."""

    name: str
    digest: str | None
    revision: int


class ObjectChange(NamedTuple):
    """An object before and after a change, in the form that the API's route shows it; None where it
    does not exist.

    `hidden` are the members that are never shown in clear, because they may be personal or secret.
    They do count for the digests. `published` are the documents that the change published.
    """

    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    hidden: Collection[str] = ()
    published: Sequence[PublishedAs] = ()


def change_record(
    what: str,
    target: str,
    by: str,
    detail: dict[str, Any],
    *,
    record_id: str,
    change: ObjectChange | None = None,
    committed: tuple[bytes, bytes] = (b"{}", b"{}"),
) -> Record:
    """Return the record of a change to the configuration. `what` is a name like `policy.updated`;
    `target` is the id of the changed object; `by` is the id of the key that changed it, or `disk`,
    `enrolment` or `system`. `detail` must be within the log's encoding, and never holds a secret.
    `change` is None if no object changed. `committed` are the commitments to values that may be
    personal, and their openings."""
    pub: dict[str, Any] = {"what": what, "target": target, "by": by, "detail": detail}
    if change is not None:
        pub |= _members(change)
    return make_record("change", record_id, encode(pub), *committed)


def object_digest(shown: Mapping[str, Any] | None) -> str | None:
    """Return the SHA-256, in hex, of an object in the form that the API's route shows it; None if
    it does not exist."""
    return None if shown is None else hashlib.sha256(encode(dict(shown))).hexdigest()


def _members(change: ObjectChange) -> dict[str, Any]:
    members: dict[str, Any] = {
        "before_sha256": object_digest(change.before),
        "after_sha256": object_digest(change.after),
    }
    shown = _changed(change)
    # All or nothing: a part of the members would read as if nothing else had changed.
    if len(encode(shown)) <= MAX_SHOWN:
        members |= shown
    if change.published:
        members["published"] = [list(each) for each in change.published]
    return members


def _changed(change: ObjectChange) -> dict[str, Any]:
    """Return the members of the object that differ before and after, without the values of hidden
    ones. For an object that was created or deleted, all its members."""
    before, after = change.before, change.after
    names = [
        name
        for name in sorted({*(before or {}), *(after or {})})
        if before is None or after is None or before.get(name) != after.get(name)
    ]
    visible = [name for name in names if name not in change.hidden]
    shown: dict[str, Any] = {
        "before": None if before is None else {name: before.get(name) for name in visible},
        "after": None if after is None else {name: after.get(name) for name in visible},
    }
    if hidden := [name for name in names if name in change.hidden]:
        shown["hidden"] = hidden
    return shown


class Hold(NamedTuple):
    """A legal hold, which keeps an object from retention and erasure. `object_type` is `session`,
    `agent` or `user`. Times are in microseconds since 1970 UTC; `released_by` and `released_at` are
    None while the hold is active."""

    hold_id: str
    object_type: str
    object_id: str
    reason: str
    placed_by: str
    placed_at: int
    released_by: str | None = None
    released_at: int | None = None

    def shown(self) -> dict[str, Any]:
        """Return the hold in the form that the API's route shows it, without `seq`, which is not
        known before the entry is placed. A user's id is empty, as the route shows it once the user
        is erased: an entry can't be erased, and a digest of a user's id could be guessed."""
        return {
            **self._asdict(),
            "object_id": "" if self.object_type == "user" else self.object_id,
            "placed_at": rfc3339(self.placed_at),
            "released_at": None if self.released_at is None else rfc3339(self.released_at),
        }


def hold_placed(hold: Hold, *, record_id: str, salt: bytes) -> Record:
    """Return the record of a new hold. A user's id is not in clear in it: like the user of a
    decision, it is a commitment whose opening can be erased once the hold is released. `salt` is 32
    random bytes, used for this record only."""
    detail = {"object_type": hold.object_type, "reason": hold.reason}
    committed = b"{}", b"{}"
    if hold.object_type == "user":
        committed = commit(salt, {"user_id": hold.object_id})
    else:
        detail["object_id"] = hold.object_id
    return change_record(
        "hold.placed",
        hold.hold_id,
        hold.placed_by,
        detail,
        record_id=record_id,
        change=ObjectChange(None, hold.shown()),
        committed=committed,
    )


def hold_released(hold: Hold, by: str, at: int, reason: str, *, record_id: str) -> Record:
    """Return the record of the release of an active hold by the key with the id `by`. `at` is in
    microseconds since 1970 UTC."""
    released = hold._replace(released_by=by, released_at=at)
    return change_record(
        "hold.released",
        hold.hold_id,
        by,
        {"reason": reason},
        record_id=record_id,
        change=ObjectChange(hold.shown(), released.shown()),
    )
