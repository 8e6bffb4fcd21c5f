"""The `change` entries of a legal hold: what keeps a session, an agent or a user from retention and
erasure, until it is released. Knows no table."""

from typing import Any, NamedTuple

from policies.ground.canonical import rfc3339
from policies.trail.change import ObjectChange, change_record
from policies.trail.commitment import commit
from policies.trail.record import Record


class Hold(NamedTuple):
    """A hold. `object_type` is `session`, `agent` or `user`. Times in microseconds since 1970
    UTC; None while it is active."""

    hold_id: str
    object_type: str
    object_id: str
    reason: str
    placed_by: str
    placed_at: int
    released_by: str | None = None
    released_at: int | None = None

    def shown(self) -> dict[str, Any]:
        """The hold as its route shows it, without `seq`, which is not known before the entry is
        placed. A user's id is empty, as it is there once the user is erased: an entry can't be
        erased, and a digest of a user's id could be guessed."""
        return {
            **self._asdict(),
            "object_id": "" if self.object_type == "user" else self.object_id,
            "placed_at": rfc3339(self.placed_at),
            "released_at": None if self.released_at is None else rfc3339(self.released_at),
        }


def hold_placed(hold: Hold, *, record_id: str, salt: bytes) -> Record:
    """A user's id is only committed to, like that of a decision: its opening can be erased once the
    hold is released. `salt` is 32 random bytes, used for this record only."""
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
    """The release of an active hold, by the key `by` at the time `at`."""
    released = hold._replace(released_by=by, released_at=at)
    return change_record(
        "hold.released",
        hold.hold_id,
        by,
        {"reason": reason},
        record_id=record_id,
        change=ObjectChange(hold.shown(), released.shown()),
    )
