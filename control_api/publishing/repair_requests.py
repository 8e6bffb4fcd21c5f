"""Which fields of a tenant's set its sidecars did not find as they should be. They stand in a
stream of the tenant's own: names of sessions and roles are no other tenant's to read. A sidecar
writes there, or somebody else does: what is no doubt is passed over. Sends nothing.
"""

import re

import orjson

from control_api.publishing.redis_client import Command
from control_api.publishing.stream_ids import Id, entry_id
from policies.sets.redis_keys import doubts_key

KEPT_MS = 60_000
"""For so long after it was read last: what is still wrong by then is told anew."""
MOST = 16
"""Entries that are read, the newest; and fields of one."""
_LONGEST = MOST * 1024
_FIELD = re.compile(
    r"head\Z|d/[^\0]{1,600}\Z|n/(?:root|[0-9a-f]{2}(?:\.[0-9a-f]{2})?)\Z", re.DOTALL
)


def queries(tenant_id: str) -> tuple[Command, Command]:
    """The first is answered with the entries; the second lets go of them in time."""
    key = doubts_key(tenant_id)
    return ("XREVRANGE", key, "+", "-", "COUNT", MOST), ("PEXPIRE", key, KEPT_MS)


def doubted(answer: object) -> set[bytes]:
    """What the first query's answer names. Too many are cut: whoever looks again names the rest."""
    found: set[bytes] = set()
    for _, fields in _entries(answer):
        if isinstance(fields, dict):
            found.update(_fields(fields.get(b"f")))
    return found


def newest(answer: object) -> Id | None:
    """The id of its newest entry; None where there is none."""
    return next((entry_id(each) for each, _ in _entries(answer)), None)


def _entries(answer: object) -> list[tuple[object, object]]:
    if not isinstance(answer, list):
        return []
    return [(e[0], e[1]) for e in answer if isinstance(e, tuple | list) and len(e) == 2]


def _fields(listed: object) -> list[bytes]:
    if not isinstance(listed, bytes) or len(listed) > _LONGEST:
        return []
    try:
        names = orjson.loads(listed)
    except orjson.JSONDecodeError:
        return []
    if not isinstance(names, list):
        return []
    fields = [name for name in names[:MOST] if isinstance(name, str)]
    return [name.encode() for name in fields if _FIELD.match(name)]
