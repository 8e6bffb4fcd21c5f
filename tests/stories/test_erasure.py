"""A person's values pass through a whole installation, and are erased: afterwards they are in no
byte of what the control API, the sidecar, Redis and the database have on disk, nor in a dump, an
export or a log line."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from control_api.log import erasure
from policies.ground.addresses import RedisUrl
from sidecar.settings.model import AgentSettings
from tests.support import redis
from tests.support.control_api import ControlApi, running_control_api
from tests.support.open_store import sql
from tests.support.postgres import Server, owned, serving
from tests.support.redis import running_redis
from tests.support.sidecar import RunningSidecar, running_sidecar
from tests.support.waiting import until as until_now
from tests.support.waiting import until_async

SEED = "seeded-5be0-person"
NEEDLES = tuple(form.encode() for form in (SEED, SEED.encode().hex()))
"""The value as it is, and as a dump writes binary columns."""
EVENTS = 40
REWRITES = (
    "VACUUM (FULL, ANALYZE, VERBOSE) openings, log_index, sessions, holds",
    "VACUUM (FULL, VERBOSE) pg_statistic",
)


@dataclass
class Place:
    address: str
    redis_url: RedisUrl | None


def found_in(directory: Path) -> list[str]:
    """The files that hold the value, or that were renamed or removed during the search."""
    found = []
    for path in (each for each in directory.rglob("*") if each.is_file()):
        try:
            if holds(path.read_bytes()):
                found.append(path.name)
        except FileNotFoundError:
            found.append(path.name)
    return found


def holds(data: bytes) -> bool:
    return any(needle in data for needle in NEEDLES)


@asynccontextmanager
async def governed(
    api: ControlApi, directory: Path, redis_url: str | None
) -> AsyncIterator[RunningSidecar]:
    """A sidecar of this control API, whose spool counts as quiet at once."""
    directory.mkdir()
    for name, scope in (("own.key", "sidecar"), ("evaluate.key", "evaluate")):
        (directory / name).write_text(api.new_key(scope))
    place = Place(
        f"http://127.0.0.1:{api.port}", None if redis_url is None else RedisUrl.parse(redis_url)
    )
    async with running_sidecar(
        directory,
        place,
        ships=True,
        quiet_seconds=0.05,
        key_file=directory / "own.key",
        agent=AgentSettings("agt_1", "support", directory / "evaluate.key"),
    ) as running:
        yield running


async def used(api: ControlApi, running: RunningSidecar, directory: Path) -> None:
    """Decisions of both services, their lineage, sessions, and a hold that was released."""
    key = (directory / "evaluate.key").read_text()
    person: dict[str, Any] = {"user_id": SEED, "session_id": "s-1"}
    asked = {"agent_role": "support", "agent_id": "agt_1", "source_id": "handbook"}
    decided: list[dict[str, Any]] = []
    for number in range(EVENTS):
        body = {**person, "sensitivity_level": "low", "query": f"{number} of {SEED}"}
        decided.append(await running.evaluate(key=key, **asked, **body))
    await until_async("all is shipped", lambda: not running.spool.depth)
    for _ in range(EVENTS):
        decided.append(api.evaluate(**person, query=f"of {SEED}", agent_id="agt_1"))
    for each in (decided[0], decided[-1]):
        detail = {"event_id": each["event_id"], "action_type": "sent", "detail": {"to": SEED}}
        api.admin("POST", "/v1/audit/lineage", detail)
    held = api.admin(
        "POST",
        "/v1/audit/holds",
        {"object_type": "user", "object_id": SEED, "reason": "litigation"},
    )
    api.admin("POST", f"/v1/audit/holds/{held['hold_id']}/release", {"reason": "settled"})


@pytest.mark.parametrize("database", ["sqlite", pytest.param("redis", marks=redis.needs_redis)])
async def test_an_erased_value_is_in_no_byte_of_an_installation(
    database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for service in ("sluice", "sidecar"):  # the levels that an operator can set
        caplog.set_level(logging.DEBUG, service)
    monkeypatch.setattr(erasure, "GATHER_SECONDS", 0.05)
    monkeypatch.setattr(erasure, "RETRY_SECONDS", 0.05)
    with ExitStack() as stack:
        environ, server = {}, None
        if database == "redis":
            # Uncompressed, so that the value can be found in the file.
            options = {"rdbcompression": "no"}
            server = stack.enter_context(running_redis(tmp_path / "redis", **options))
            environ["SLUICE_REDIS_URL"] = server.url
        api = stack.enter_context(running_control_api(tmp_path / "control", **environ))
        api.approved("agt_1")
        directory = tmp_path / "sidecar"
        async with governed(api, directory, server.url if server else None) as running:
            await used(api, running, directory)
            assert found_in(tmp_path / "control")
            assert holds(api.call("GET", "/v1/audit/export").raw)
            body = {"user_id": SEED, "reason": "erasure request 1"}
            erased = 2 * EVENTS + 3  # with two actions, and the hold
            assert api.admin("POST", "/v1/audit/redact", body)["redacted"] == erased
            await until_async("the sidecar has none of it", lambda: not found_in(directory))
            until_now("the WAL is folded", lambda: not found_in(tmp_path / "control"))
            if server is not None:
                assert server.command("SAVE") == b"+OK\r\n"
            assert found_in(tmp_path) == []
            assert not holds(api.call("GET", "/v1/audit/export").raw)
            api.verified()
    assert any(each.name.startswith("sidecar") for each in caplog.records)
    assert any(each.name.startswith("sluice") for each in caplog.records)
    assert not holds(caplog.text.encode())


@pytest.fixture
def on_postgresql(tmp_path: Path, migrated_url: str) -> Iterator[ControlApi]:
    with running_control_api(tmp_path, database_url=serving(migrated_url)) as api:
        yield api


@pytest.mark.deep(stands_in="test_an_erased_value_is_in_no_byte_of_an_installation")
async def test_an_erased_value_is_in_no_dump_and_after_vacuum_in_no_file_of_postgresql(
    on_postgresql: ControlApi, postgres_server: Server
) -> None:
    """The steps are those of `deploy/README.md`, "An erasure request from start to end"."""
    if not postgres_server.can_dump():
        pytest.skip("this PostgreSQL came without `pg_dump`")
    api, url = on_postgresql, on_postgresql.settings.database_url
    for number in range(EVENTS):
        api.evaluate(user_id=SEED, session_id=f"s-{number % 3}", query=f"of {SEED}")
        api.evaluate(user_id="ann", session_id="s-other")
    # What the planner knows of the columns: it keeps the most common values.
    await sql(url, "ANALYZE")
    assert holds(postgres_server.dump(url))
    assert found_in(postgres_server.files(url))
    body = {"user_id": SEED, "reason": "erasure request 1"}

    def kept() -> list[int]:
        return [postgres_server.vacuum(owned(url), command) for command in REWRITES]

    async with reading(url):
        assert api.admin("POST", "/v1/audit/redact", body)["redacted"] == EVENTS
        assert not holds(postgres_server.dump(url))
        assert all(kept())
        assert found_in(postgres_server.files(url))
    # Others may read too, such as the control API, or autovacuum while it analyzes.
    until_now("VACUUM keeps no row", lambda: not any(kept()))
    assert found_in(postgres_server.files(url)) == []
    api.verified()


@asynccontextmanager
async def reading(url: str) -> AsyncIterator[None]:
    """A transaction that may still read what others delete meanwhile."""
    connection = await asyncpg.connect(url.replace("+asyncpg", ""))
    try:
        async with connection.transaction(isolation="repeatable_read"):
            await connection.execute("SELECT FROM pg_class")
            yield
    finally:
        await connection.close()
