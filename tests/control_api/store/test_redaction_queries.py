"""A page of erasures takes as long in a long log as in a short one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event

from control_api.store.queries import redactions
from tests.support import migrated
from tests.support.open_store import TENANT, opened


async def test_erasures_are_listed_by_the_index_of_rare_kinds(tmp_path: Path) -> None:
    path, asked = tmp_path / "sluice.db", list[tuple[str, Any]]()
    migrated.sqlite(path)

    def note(_: Any, __: Any, statement: str, values: Any, *___: Any) -> None:
        if "redact" in statement:
            asked.append((statement, values))

    async with opened(f"sqlite+aiosqlite:///{path}") as world:
        event.listen(Engine, "before_cursor_execute", note)
        try:
            async with world.store.reading(TENANT) as connection:
                found = await redactions.page(connection, TENANT, before=None, after=None, limit=51)
        finally:
            event.remove(Engine, "before_cursor_execute", note)
        assert found == []
        [(statement, values)] = asked
        async with world.store.reading(TENANT) as connection:
            plan = await connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values)
            steps = [str(row.detail) for row in plan]
    assert any("USING INDEX ix_log_entries_rare_kinds" in step for step in steps), steps
