"""The `change` entries of a legal hold: what keeps a session, an agent or a user from retention and
erasure, until it is released. Knows no table."""

from policies.ground.canonical import encode
from policies.trail.commitment import commit
from policies.trail.record import Record, make_record


def hold_placed(
    hold_id: str,
    object_type: str,
    object_id: str,
    by: str,
    reason: str,
    *,
    record_id: str,
    salt: bytes,
) -> Record:
    """`object_type` is `session`, `agent` or `user`. A user's id is only committed to, like that of
    a decision: its opening can be erased once the hold is released. `salt` is 32 random bytes, used
    for this record only."""
    detail = {"object_type": object_type, "reason": reason}
    cm, openings = b"{}", b"{}"
    if object_type == "user":
        cm, openings = commit(salt, {"user_id": object_id})
    else:
        detail["object_id"] = object_id
    pub = {"what": "hold.placed", "target": hold_id, "by": by, "detail": detail}
    return make_record("change", record_id, encode(pub), cm, openings)


def hold_released(hold_id: str, by: str, reason: str, *, record_id: str) -> Record:
    pub = {"what": "hold.released", "target": hold_id, "by": by, "detail": {"reason": reason}}
    return make_record("change", record_id, encode(pub))
