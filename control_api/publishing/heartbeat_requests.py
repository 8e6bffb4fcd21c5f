"""What sidecars ask for on their way by Redis, read from a stream that anybody may write to: what
is no challenge is passed over. Knows no command."""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

MOST_NONCES = 1000
"""Nonces that one heartbeat answers."""
_LONGEST = 1024
"""Bytes of a tenant's id."""
_NONCE = re.compile(rb"[A-Za-z0-9_.:+/=-]{8,128}\Z")


@dataclass(slots=True)
class HeartbeatRequests:
    """Of one tenant: what is to be answered, and whether its sidecars say that something of its
    set is not as it should be (`doubts`)."""

    nonces: list[str] = field(default_factory=list)
    doubts: bool = False


def gathered(entries: Iterable[object]) -> tuple[dict[str, HeartbeatRequests], int]:
    """By tenant; and how many entries were no challenge."""
    asked: defaultdict[str, HeartbeatRequests] = defaultdict(HeartbeatRequests)
    unreadable = 0
    for entry in entries:
        found = _read(entry)
        if found is None:
            unreadable += 1
            continue
        tenant_id, nonce, doubts = found
        of_tenant = asked[tenant_id]
        if len(of_tenant.nonces) < MOST_NONCES:
            of_tenant.nonces.append(nonce)
        of_tenant.doubts |= doubts
    return dict(asked), unreadable


def _read(entry: object) -> tuple[str, str, bool] | None:
    if not isinstance(entry, dict):
        return None
    tenant, nonce = entry.get(b"t"), entry.get(b"n")
    if not isinstance(tenant, bytes) or not 0 < len(tenant) <= _LONGEST or b"\0" in tenant:
        return None
    if not isinstance(nonce, bytes) or not _NONCE.match(nonce):
        return None
    try:
        return tenant.decode(), nonce.decode(), b"m" in entry
    except UnicodeDecodeError:
        return None
