"""A PostgreSQL database at the newest schema: migrated once a test run, and copied for each test.

A copy costs a tenth of a migration. Tests of migrations themselves start from an empty database,
`postgres_url`.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from control_api.store.migrate import migrate
from tests import postgres
from tests.postgres import Server, serving


@contextlib.contextmanager
def database(folder: Path, owner: int) -> Iterator[str]:
    """The URL of a fresh copy, as its owner; `serving` gives the role that owns nothing in it.
    `folder` and `owner` are those of the run, as for `postgres.running`."""
    server = postgres.running(folder, owner)
    with server.database(template=_template(server, folder)) as url:
        yield url


def _template(server: Server, folder: Path) -> str:
    """The name of the database to copy; made if this is the first to ask, in whichever worker."""
    answer = folder / "migrated"
    with (folder / "migrated.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not answer.exists():
            name, url = server.create()
            asyncio.run(migrate(url, serving(url)))
            answer.write_text(name)
    return answer.read_text()
