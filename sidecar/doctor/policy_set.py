"""Checks the policy set on disk, beside a sidecar that may be running: the agents that the
sidecar's own key speaks for, and the denials that a call escapes by naming no agent."""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson

from policies.analysis.callers import Escape, escapes
from policies.definitions.model import Key, Policy, TenantSettings
from policies.ground.doctor_finding import DoctorFinding, Severity
from policies.ground.keys import key_digest
from policies.sets.policy_set import ROLE, TENANT, key_name
from sidecar.doctor.examination import DoctorContext
from sidecar.platform.key_file import read_key
from sidecar.settings.model import SidecarSettings

# Later rows replace earlier ones.
_NEWEST = """
SELECT name, body FROM (
    SELECT name, body FROM documents WHERE name GLOB :names ORDER BY generation, revision
)
UNION ALL SELECT name, body FROM held WHERE name GLOB :names
"""


class CachedDocuments:
    """The documents of the policy set in a sidecar's `cache`. If there is no cache, the sidecar has
    not run yet, and there are no documents. Reading raises `sqlite3.Error`, and `ValueError` for a
    document of unknown form."""

    def __init__(self, settings: SidecarSettings) -> None:
        self._settings = settings

    def own_key(self) -> Key | None:
        """Return the key in the file `key_file`; None if the sidecar enrols instead, or if the
        key's document is not in the cache. Raises `ValueError` too if the file can't be read."""
        if self._settings.key_file is None or not self._path.exists():
            return None
        name = key_name(key_digest(read_key(self._settings.key_file)))
        found = self._named(name).get(name)
        return None if found is None else Key.from_wire(found)

    def tenant(self) -> TenantSettings | None:
        found = self._named(TENANT).get(TENANT)
        return None if found is None else TenantSettings.from_wire(found)

    def roles(self) -> list[list[Policy]]:
        """Return the policies of each role that this sidecar's decisions have used."""
        return [[*map(Policy.from_wire, each)] for each in self._named(f"{ROLE}*").values()]

    @property
    def _path(self) -> Path:
        return self._settings.cache / "policy.db"

    def _named(self, names: str) -> Mapping[str, Any]:
        """Return the decoded documents whose names match `names`, a pattern of SQLite's GLOB."""
        if not self._path.exists():
            return {}
        address = f"{self._path.resolve().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True)) as connection:
            rows = dict(connection.execute(_NEWEST, {"names": names}))
        return {name: orjson.loads(body) for name, body in sorted(rows.items()) if body}


_WHY_OWN_KEY = "its holder can record, claim and report as every agent of the tenant"
_BIND_OWN_KEY = "sluice keys bind KEY_ID --for-agent AGENT"


def own_key(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Report a sidecar's own key that speaks for every agent."""
    try:
        key = CachedDocuments(context.settings).own_key()
    except (ValueError, LookupError, TypeError, sqlite3.Error) as error:
        seen = f"the key can't be looked up: {error}"
        yield DoctorFinding(Severity.UNKNOWN, seen, _WHY_OWN_KEY, _BIND_OWN_KEY)
        return
    if key is None:
        return
    do = _BIND_OWN_KEY.replace("KEY_ID", key.key_id)
    if key.agent_ids is None:
        seen = f"the sidecar's key `{key.key_id}` is from before keys had agents: it has `*`"
        yield DoctorFinding(Severity.MEDIUM, seen, _WHY_OWN_KEY, do)
    elif "*" in key.agent_ids:
        seen = f"the sidecar's key `{key.key_id}` speaks for every agent: its `agent_ids` have `*`"
        yield DoctorFinding(Severity.LOW, seen, _WHY_OWN_KEY, do)


_WHY_ESCAPED = "a key that is bound to no agent reads there by leaving out its `agent_id`"
_CLOSE_ESCAPE = (
    "set the tenant's `require_agent_id`, or deny it in a policy without `permitted_agent_ids`; "
    "`sluice policy lint` names all"
)
_SHOWN = 3
"""The most denials of a role that a finding names."""


def escaped_denials(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Report the roles with denials that a call escapes by naming no agent, unless calls without an
    agent are denied anyway."""
    documents = CachedDocuments(context.settings)
    try:
        tenant, key, roles = documents.tenant(), documents.own_key(), documents.roles()
        if tenant is None or tenant.require_agent_id:
            return
        if key is not None and not key.may_speak_for_agent(None):
            return  # this sidecar denies calls that name none
        found = [(each[0].agent_role, list(escapes(each))) for each in roles if each]
    except (ValueError, LookupError, TypeError, sqlite3.Error) as error:
        seen = f"the policies can't be looked up: {error}"
        yield DoctorFinding(Severity.UNKNOWN, seen, _WHY_ESCAPED, _CLOSE_ESCAPE)
        return
    for role, escaped in found:
        if escaped:
            yield DoctorFinding(Severity.MEDIUM, _seen(role, escaped), _WHY_ESCAPED, _CLOSE_ESCAPE)


def _seen(role: str, escaped: list[Escape]) -> str:
    named = [f"`{each.entry}` of policy `{each.policy.name}`" for each in escaped[:_SHOWN]]
    if len(escaped) > _SHOWN:
        named.append(f"{len(escaped) - _SHOWN} more")
    return f"in role `{role}`, a call that names no agent is not denied: {', '.join(named)}"
