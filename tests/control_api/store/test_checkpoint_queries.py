"""Looking a checkpoint up takes as long among a day's checkpoints as among few."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, event

from control_api.store.queries import checkpoints
from tests.support import migrated
from tests.support.open_store import TENANT


def test_a_size_is_looked_up_in_its_index(tmp_path: Path) -> None:
    path, asked = tmp_path / "sluice.db", list[tuple[str, Any]]()
    migrated.sqlite(path)
    engine = create_engine(f"sqlite:///{path}")

    @event.listens_for(engine, "before_cursor_execute")
    def note(_: Any, __: Any, statement: str, values: Any, *___: Any) -> None:
        asked.append((statement, values))

    with closing(engine.raw_connection()) as raw, engine.connect() as connection:
        assert checkpoints.read_at(connection, TENANT, 7) is None
        [(statement, values)] = asked
        plan = raw.cursor().execute(f"EXPLAIN QUERY PLAN {statement}", values).fetchall()
    assert "USING INDEX ux_checkpoints_size" in plan[0][3]
    engine.dispose()
