"""Two control API processes on one PostgreSQL: what one changes is in force at the other, whose
listening connection ends and comes back; and settings of that connection that can't work."""

from __future__ import annotations

import asyncio
import shutil
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.control_api.store.databases import postgresql_url
from tests.support.control_api import asked
from tests.support.control_api_process import ControlApiProcess, call, process
from tests.support.open_store import sql
from tests.support.waiting import until

__all__ = ["postgresql_url", "process"]
KEYS = "/v1/keys"


@contextmanager
def replicas(folder: Path, url: str) -> Iterator[list[ControlApiProcess]]:
    """Two processes of one installation."""
    made: list[ControlApiProcess] = []
    try:
        for name in ("a", "b"):
            (folder / name).mkdir()
            if made:
                made[0].ready()
                (folder / name / "data").mkdir(mode=0o700)
                shutil.copy(folder / "a" / "data" / "log.key", folder / name / "data")
            made.append(ControlApiProcess(folder / name, SLUICE_DATABASE_URL=url))
        yield made
    finally:
        for each in made:
            each.process.kill()
            each.ended()
            each.output.close()


def listens(port: int) -> bool:
    """Whether `/metrics` says that notices arrive."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        return b"\nsluice_change_notices 1.0\n" in answer.read()


def allowed(port: int, key: str) -> bool:
    return call(port, key, "POST", "/v1/context/evaluate", asked())[0] == 200


@pytest.mark.deep(
    stands_in="tests/control_api/console/test_replicas.py::test_sessions_of_a_key_end_with_it_at_every_replica"
)
def test_a_change_at_one_replica_is_in_force_at_the_other(
    tmp_path: Path, postgresql_url: str
) -> None:
    with replicas(tmp_path, postgresql_url) as both:
        here, there = (each.ready() for each in both)
        admin = both[0].first_keys()["admin_key"]
        for port in (here, there):
            until("it listens", partial(listens, port))
        revoked_at_the_other(here, there, admin)
        ended = asyncio.run(
            sql(
                postgresql_url,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'sluice notices' AND datname = current_database()",
            )
        )
        assert len(ended) == 2
        for each in both:
            until("it listens again", partial(says, each, "changes arrive again"))
            assert says(each, "SLUICE_DATABASE_URL: the connection was closed")
        revoked_at_the_other(here, there, admin)
        revoked_at_the_other(there, here, admin)


def says(process: ControlApiProcess, what: str) -> bool:
    return what in process.said()


def revoked_at_the_other(here: int, there: int, admin: str) -> None:
    """A key made at one is accepted at the other, and refused there once it is revoked here."""
    status, made = call(here, admin, "POST", KEYS, {"name": "k", "scope": "evaluate"})
    assert status == 201
    assert allowed(there, made["key"])
    assert call(here, admin, "DELETE", f"{KEYS}/{made['key_id']}")[0] == 200
    until("it is refused", lambda: not allowed(there, made["key"]))


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("mysql://u:s3cret@db/sluice", "must begin with postgresql+asyncpg://"),
        ("postgresql+asyncpg://u:s3cret@db:port/sluice", "the database URL can't be parsed"),
        ("postgresql+asyncpg://u:s3@cret@db/sluice", "contains `@`: write it as `%40`"),
        ("postgresql+asyncpg://u:s3cret@127.0.0.1/sluice?a=b", "the host or the parameters"),
    ],
)
def test_a_url_that_can_never_work_ends_the_start(
    process: Any, postgresql_url: str, url: str, told: str
) -> None:
    started = process(SLUICE_DATABASE_URL=postgresql_url, SLUICE_LISTEN_DATABASE_URL=url)
    assert started.ended() in (1, 2)
    said = started.said()
    assert "SLUICE_LISTEN_DATABASE_URL: " in said
    assert told in said
    assert "Traceback" not in said
    assert "s3" not in said
