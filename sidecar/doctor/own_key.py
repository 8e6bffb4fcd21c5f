"""Checks for which agents the sidecar's own key speaks, by the policy set that is on disk."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import orjson

from policies.definitions.model import Key
from policies.ground.keys import key_digest
from policies.sets.policy_set import key_name
from sidecar.doctor.context import DoctorContext
from sidecar.doctor.finding import DoctorFinding, Severity
from sidecar.platform.key_file import read_key

_NEWEST = """
SELECT body FROM (SELECT body FROM documents WHERE name = :name ORDER BY generation, revision)
UNION ALL SELECT body FROM held WHERE name = :name
"""
_WHY = "its holder can record, claim and report as every agent of the tenant"
_DO = "sluice keys bind KEY_ID --for-agent AGENT"


def own_key(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Report a key of the sidecar's that speaks for every agent."""
    settings = context.settings
    cache = settings.cache / "policy.db"
    # A pod's key speaks for its agent. Without a cache, the sidecar has not run yet.
    if settings.key_file is None or not cache.exists():
        return
    try:
        key = _stored(cache, key_name(key_digest(read_key(settings.key_file))))
    except (ValueError, sqlite3.Error) as error:
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


def _stored(cache: Path, name: str) -> Key | None:
    """The key's document in the cache; None if it is not there."""
    address = f"{cache.resolve().as_uri()}?mode=ro"
    with closing(sqlite3.connect(address, uri=True)) as connection:
        bodies = [row[0] for row in connection.execute(_NEWEST, {"name": name}) if row[0]]
    return Key.from_wire(orjson.loads(bodies[-1])) if bodies else None
