"""Parses the requests for a heartbeat that sidecars write to a Redis stream ("challenges").

Anyone who can reach Redis may write to that stream, so malformed entries are counted and skipped.
Sends nothing.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

MAX_NONCES = 1000
"""The maximum number of nonces that one heartbeat answers."""
_MAX_TENANT_ID = 1024
"""In bytes."""
_NONCE = re.compile(rb"[A-Za-z0-9_.:+/=-]{8,128}\Z")


@dataclass(slots=True)
class HeartbeatRequests:
    """One tenant's requests: the nonces to answer, and whether its sidecars also ask for repairs to
    the policy set."""

    nonces: list[str] = field(default_factory=list)
    repairs: bool = False


def parse_requests(entries: Iterable[object]) -> tuple[dict[str, HeartbeatRequests], int]:
    """The requests by tenant, and the number of malformed entries."""
    by_tenant: defaultdict[str, HeartbeatRequests] = defaultdict(HeartbeatRequests)
    unreadable = 0
    for entry in entries:
        parsed = _parse(entry)
        if parsed is None:
            unreadable += 1
            continue
        tenant_id, nonce, repairs = parsed
        requests = by_tenant[tenant_id]
        # Further nonces are dropped, so that a flood of requests can't make a heartbeat huge.
        if len(requests.nonces) < MAX_NONCES:
            requests.nonces.append(nonce)
        requests.repairs |= repairs
    return dict(by_tenant), unreadable


def _parse(entry: object) -> tuple[str, str, bool] | None:
    if not isinstance(entry, dict):
        return None
    tenant, nonce = entry.get(b"t"), entry.get(b"n")
    # PostgreSQL would refuse a NUL in the query for the tenants' revisions.
    if not isinstance(tenant, bytes) or not 0 < len(tenant) <= _MAX_TENANT_ID or b"\0" in tenant:
        return None
    if not isinstance(nonce, bytes) or not _NONCE.match(nonce):
        return None
    try:
        return tenant.decode(), nonce.decode(), b"m" in entry
    except UnicodeDecodeError:
        return None
