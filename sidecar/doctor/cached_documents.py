"""Reads documents of the policy set that is on disk, beside a sidecar that may be running."""

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson

from policies.definitions.model import Key, Policy, TenantSettings
from policies.ground.keys import key_digest
from policies.sets.policy_set import ROLE, TENANT, key_name
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
    """The documents in a sidecar's `cache`. Without a cache, the sidecar has not run yet, and there
    are none. Reading raises `sqlite3.Error`, and `ValueError` for a document of unknown form."""

    def __init__(self, settings: SidecarSettings) -> None:
        self._settings = settings

    def own_key(self) -> Key | None:
        """The key in the file `key_file`; None for a pod's, or if its document is not there. Raises
        `ValueError` too if the file can't be read."""
        if self._settings.key_file is None or not self._path.exists():
            return None
        name = key_name(key_digest(read_key(self._settings.key_file)))
        found = self._named(name).get(name)
        return None if found is None else Key.from_wire(found)

    def tenant(self) -> TenantSettings | None:
        """The tenant's settings."""
        found = self._named(TENANT).get(TENANT)
        return None if found is None else TenantSettings.from_wire(found)

    def roles(self) -> list[list[Policy]]:
        """The policies of each role that this sidecar's decisions have used."""
        return [
            [Policy.from_wire(wire) for wire in each] for each in self._named(f"{ROLE}*").values()
        ]

    @property
    def _path(self) -> Path:
        return self._settings.cache / "policy.db"

    def _named(self, names: str) -> Mapping[str, Any]:
        """The decoded documents whose names match a pattern of SQLite's GLOB."""
        if not self._path.exists():
            return {}
        address = f"{self._path.resolve().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True)) as connection:
            rows = dict(connection.execute(_NEWEST, {"names": names}))
        return {name: orjson.loads(body) for name, body in sorted(rows.items()) if body}
