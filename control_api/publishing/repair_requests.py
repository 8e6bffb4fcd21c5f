"""Parses sidecars' reports of missing or wrong fields of their tenant's policy set.

Each tenant has its own stream of reports, because they contain names of sessions and roles, which
must not reach other tenants. Other clients may write to the stream too, so malformed entries are
skipped. Sends nothing.
"""

import re

import orjson

from control_api.publishing.redis_client import Command
from control_api.publishing.stream_ids import Id, entry_id
from policies.sets.redis_keys import doubts_key

KEPT_MS = 60_000
"""How long the stream is kept after the last read. Sidecars report again what is still wrong."""
MAX_ENTRIES = 16
"""The maximum number of entries to read, newest first, and of fields to take from one entry."""
_MAX_BYTES = MAX_ENTRIES * 1024
# Anyone who can reach Redis may write a report, so only names that a set can contain are looked up.
_FIELD = re.compile(
    r"head\Z|d/[^\0]{1,600}\Z|n/(?:root|[0-9a-f]{2}(?:\.[0-9a-f]{2})?)\Z", re.DOTALL
)


def commands(tenant_id: str) -> tuple[Command, Command]:
    """The command that reads the entries, and the one that lets the stream expire."""
    # The stream is not deleted after the read, because every replica reads it. Repairing a field
    # twice does no harm.
    key = doubts_key(tenant_id)
    return ("XREVRANGE", key, "+", "-", "COUNT", MAX_ENTRIES), ("PEXPIRE", key, KEPT_MS)


def suspect_fields(answer: object) -> set[bytes]:
    """The fields named in the answer to the first of `commands`. Fields beyond the limits are
    dropped, since sidecars report them again."""
    found: set[bytes] = set()
    for _, fields in _entries(answer):
        if isinstance(fields, dict):
            found.update(_fields(fields.get(b"f")))
    return found


def newest(answer: object) -> Id | None:
    """The id of the newest entry, or None in an empty stream."""
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
