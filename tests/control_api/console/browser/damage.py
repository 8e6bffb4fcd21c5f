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


def rename_user(api: ControlApi, event_id: str) -> None:
    """Another user stands beside the entry, which has only a hash of the name."""
    with sqlite3.connect(api.directory / "data" / "sluice.db") as connection:
        where = "WHERE seq = (SELECT seq FROM log_entries WHERE eid = ?)"
        found = connection.execute(f"SELECT openings FROM openings {where}", (event_id,))
        held = bytes(found.fetchone()[0])
        changed = held.replace(b'"ann"', b'"bob"')
        assert changed != held
        connection.execute(f"UPDATE openings SET openings = ? {where}", (changed, event_id))
