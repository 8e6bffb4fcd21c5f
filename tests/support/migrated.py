"""A database at the newest schema: migrated once, and copied for each test.

A copy costs a tenth of a migration. Tests of migrations themselves start from an empty database,
`postgres_url`.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import functools
import tempfile
from collections.abc import Iterator
from pathlib import Path

from control_api.store import sqlite as sqlite_store
from control_api.store.migrate import migrate
from control_api.store.url import parse_url
from tests.support import postgres
from tests.support.postgres import Server, serving


@contextlib.contextmanager
def database(folder: Path, owner: int) -> Iterator[str]:
    """Yield the URL of a fresh copy, as its owner; `serving` returns that of the role that owns
    nothing in it. `folder` and `owner` are the run's, as for `postgres.shared_server`."""
    server = postgres.shared_server(folder, owner)
    with server.database(template=_template(server, folder)) as url:
        yield url


def sqlite(path: Path) -> None:
    """Write a SQLite file at `path`, with the modes that the store sets when it creates one."""
    sqlite_store.make_file(path)
    path.write_bytes(_sqlite_file())


@functools.cache
def _sqlite_file() -> bytes:
    """Return the bytes of a migrated file, made once per process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sluice.db"
        sqlite_store.migrate(parse_url(f"sqlite:///{path}"))
        return path.read_bytes()


def _template(server: Server, folder: Path) -> str:
    """Return the name of the database to copy. The first caller, in any worker, creates it."""
    answer = folder / "migrated"
    with (folder / "migrated.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not answer.exists():
            name, url = server.create()
            asyncio.run(migrate(url, serving(url)))
            answer.write_text(name)
    return answer.read_text()
