"""Checks for which agents the sidecar's own key speaks, by the policy set that is on disk."""

import sqlite3
from collections.abc import Iterator

from sidecar.doctor.cached_documents import CachedDocuments
from sidecar.doctor.context import DoctorContext
from sidecar.doctor.finding import DoctorFinding, Severity

_WHY = "its holder can record, claim and report as every agent of the tenant"
_DO = "sluice keys bind KEY_ID --for-agent AGENT"


def own_key(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Report a key of the sidecar's that speaks for every agent."""
    try:
        key = CachedDocuments(context.settings).own_key()
    except (ValueError, LookupError, TypeError, sqlite3.Error) as error:
        yield DoctorFinding(Severity.UNKNOWN, f"the key can't be looked up: {error}", _WHY, _DO)
        return
    if key is None:
        return
    do = _DO.replace("KEY_ID", key.key_id)
    if key.agent_ids is None:
        seen = f"the sidecar's key `{key.key_id}` is from before keys had agents: it has `*`"
        yield DoctorFinding(Severity.MEDIUM, seen, _WHY, do)
    elif "*" in key.agent_ids:
        seen = f"the sidecar's key `{key.key_id}` speaks for every agent: its `agent_ids` have `*`"
        yield DoctorFinding(Severity.LOW, seen, _WHY, do)
