"""What someone with the database's password changes behind the service's back."""

from __future__ import annotations

import sqlite3

from tests.support.control_api import ControlApi


def turn_into_permission(api: ControlApi, event_id: str) -> None:
    """The stored denial says ALLOW from here on."""
    with sqlite3.connect(api.directory / "data" / "sluice.db") as connection:
        found = connection.execute("SELECT entry FROM log_entries WHERE eid = ?", (event_id,))
        entry = bytes(found.fetchone()[0])
        changed = entry.replace(b'"decision":"DENY"', b'"decision":"ALLOW"')
        assert changed != entry
        connection.execute("UPDATE log_entries SET entry = ? WHERE eid = ?", (changed, event_id))
