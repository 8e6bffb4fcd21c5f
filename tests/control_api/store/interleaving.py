"""Forces the order of two replicas' statements: one replica works between two statements of the
other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, event


@contextmanager
def after_statement(part: str, meanwhile: Callable[[], Awaitable[object]]) -> Iterator[None]:
    """Awaits `meanwhile()` once: after the first statement that contains `part` has been answered,
    and before its transaction goes on. PostgreSQL only. Fails if there is no such statement, and if
    `meanwhile()` fails, after which the transaction may have been tried again without it."""
    met: list[str] = []
    failed: list[BaseException] = []

    async def noted(_: object) -> None:
        try:
            await meanwhile()
        except BaseException as error:
            failed.append(error)
            raise

    def pause(connection: Connection, _cursor: Any, statement: str, *_: Any) -> None:
        if part in statement and not met:
            met.append(statement)
            driver: Any = connection.connection.dbapi_connection
            driver.run_async(noted)

    event.listen(Engine, "after_cursor_execute", pause)
    try:
        yield
    finally:
        event.remove(Engine, "after_cursor_execute", pause)
        if failed:  # the reason, whatever the test found then
            raise failed[0]
    assert met, f"no statement contains `{part}`"
