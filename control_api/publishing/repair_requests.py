"""Parses the fields of a tenant's policy set that its sidecars report as missing or wrong.

They come in a stream of the tenant's own, since names of sessions and roles must not reach other
tenants. Other clients may write to it too, so malformed entries are skipped. Sends nothing.
"""

import re

import orjson

from control_api.publishing.redis_client import Command
from control_api.publishing.stream_ids import Id, entry_id
from policies.sets.redis_keys import doubts_key

KEPT_MS = 60_000
"""How long the stream is kept after the last read. What is still wrong is reported again."""
MAX_ENTRIES = 16
"""Entries to read, newest first; and fields of one entry."""
_MAX_BYTES = MAX_ENTRIES * 1024
_FIELD = re.compile(
    r"head\Z|d/[^\0]{1,600}\Z|n/(?:root|[0-9a-f]{2}(?:\.[0-9a-f]{2})?)\Z", re.DOTALL
)


def commands(tenant_id: str) -> tuple[Command, Command]:
    """The first reads the entries; the second lets the stream expire."""
    # Not deleted after the read: every replica reads it, and repairs are idempotent.
    key = doubts_key(tenant_id)
    return ("XREVRANGE", key, "+", "-", "COUNT", MAX_ENTRIES), ("PEXPIRE", key, KEPT_MS)


def suspect_fields(answer: object) -> set[bytes]:
    """The fields named in the first command's answer. Any beyond the limits are dropped: sidecars
    report them again."""
    found: set[bytes] = set()
    for _, fields in _entries(answer):
        if isinstance(fields, dict):
            found.update(_fields(fields.get(b"f")))
    return found


def newest(answer: object) -> Id | None:
    """The id of the newest entry; None if there is no entry."""
    return next((entry_id(each) for each, _ in _entries(answer)), None)


def _entries(answer: object) -> list[tuple[object, object]]:
    if not isinstance(answer, list):
        return []
    return [(e[0], e[1]) for e in answer if isinstance(e, tuple | list) and len(e) == 2]


def _fields(listed: object) -> list[bytes]:
    if not isinstance(listed, bytes) or len(listed) > _MAX_BYTES:
        return []
    try:
        names = orjson.loads(listed)
    except orjson.JSONDecodeError:
        return []
    if not isinstance(names, list):
        return []
    fields = [name for name in names[:MAX_ENTRIES] if isinstance(name, str)]
    return [name.encode() for name in fields if _FIELD.match(name)]
