"""What sidecars ask for on their way by Redis, read from a stream that anybody may write to: what
is no challenge is passed over. Knows no command."""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import orjson

MOST_DOUBTED = 16
"""Fields that one challenge may name."""
MOST_NONCES = 1000
"""Nonces that one heartbeat answers."""
_LONGEST = 1024
_NONCE = re.compile(rb"[A-Za-z0-9_.:+/=-]{8,128}\Z")
_FIELD = re.compile(
    r"head\Z|d/[^\0]{1,600}\Z|n/(?:root|[0-9a-f]{2}(?:\.[0-9a-f]{2})?)\Z", re.DOTALL
)


@dataclass(slots=True)
class Asked:
    """Of one tenant: what is to be answered, and which fields of its set are not as they should
    be."""

    nonces: list[str] = field(default_factory=list)
    doubted: set[bytes] = field(default_factory=set)


def gathered(entries: Iterable[object]) -> tuple[dict[str, Asked], int]:
    """By tenant; and how many entries were no challenge."""
    asked: defaultdict[str, Asked] = defaultdict(Asked)
    unreadable = 0
    for entry in entries:
        found = _read(entry)
        if found is None:
            unreadable += 1
            continue
        tenant_id, nonce, doubted = found
        of_tenant = asked[tenant_id]
        if len(of_tenant.nonces) < MOST_NONCES:
            of_tenant.nonces.append(nonce)
        of_tenant.doubted.update(doubted)
    return dict(asked), unreadable


def _read(entry: object) -> tuple[str, str, list[bytes]] | None:
    if not isinstance(entry, dict):
        return None
    tenant, nonce = entry.get(b"t"), entry.get(b"n")
    if not isinstance(tenant, bytes) or not 0 < len(tenant) <= _LONGEST or b"\0" in tenant:
        return None
    if not isinstance(nonce, bytes) or not _NONCE.match(nonce):
        return None
    try:
        return tenant.decode(), nonce.decode(), _doubted(entry.get(b"m"))
    except (UnicodeDecodeError, orjson.JSONDecodeError):
        return None


def _doubted(listed: object) -> list[bytes]:
    """Too many are cut: whoever asks again names the rest."""
    if not isinstance(listed, bytes) or len(listed) > MOST_DOUBTED * _LONGEST:
        return []
    names = orjson.loads(listed)
    if not isinstance(names, list):
        return []
    fields = [name for name in names[:MOST_DOUBTED] if isinstance(name, str)]
    return [name.encode() for name in fields if _FIELD.match(name)]
