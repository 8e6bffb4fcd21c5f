"""Asks a PostgreSQL server what its catalog holds: in one transaction that can only read, with
names of the server's own catalog alone.

The address comes from a file or from the environment, never from an argument, since every user of
the machine can read a process's arguments.
"""

from __future__ import annotations

import argparse
import asyncio
import ssl
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from deploy.commands.policy.sources import Unusable
from deploy.commands.postgres.relations import QUERY
from policies.ground.distribution import how_to_install
from policies.ground.process import secret_file
from policies.ground.process.api_client import LOOPBACK

DSN = "SLUICE_POSTGRES_DSN"
SECONDS = 30.0
OLDEST = 150000
"""The oldest version that is supported, as `server_version_num` counts."""

Rows = Sequence[Mapping[str, Any]]


def add_server(command: argparse.ArgumentParser) -> None:
    """Add the option that names the server."""
    command.add_argument(
        "--dsn-file",
        metavar="FILE",
        help="a file with `postgres://user:password@host:port/database` of a role that may log in "
        f"at the server; it needs no further right ({DSN})",
    )


def read_dsn(options: argparse.Namespace) -> str:
    """Return the server's address and credentials. Raises `Unusable`, whose message has none of
    them."""
    name = options.dsn_file
    try:
        dsn = (
            secret_file.read_mounted(Path(name)).decode() if name else options.environ.get(DSN, "")
        ).strip()
    except secret_file.UnusableFile as error:
        raise Unusable(f"--dsn-file: {error}") from error
    except UnicodeDecodeError:
        raise Unusable(f"--dsn-file: `{name}` is not text") from None
    if not dsn:
        raise Unusable(f"name the server: --dsn-file FILE, or {DSN} in the environment")
    if not dsn.startswith(("postgres://", "postgresql://")):
        raise Unusable(f"--dsn-file or {DSN} is not postgres://user:password@host:port/database")
    return dsn


class CatalogState(NamedTuple):
    """What the catalog holds: the relations, as `relations.QUERY` returns them, and the rows of
    each further query, by its name; all as of one moment."""

    relations: str
    rows: Mapping[str, Rows]


def fetch(
    dsn: str, database: str, login: str | None = None, queries: Mapping[str, str] | None = None
) -> CatalogState:
    """Ask the server for its relations, and each of the queries, whose argument is the oid of the
    role `login`. Raises `Unusable` if the server can't be asked, if the address leads to another
    database than `database`, or if there is no such role."""
    if find_spec("asyncpg") is None:
        raise Unusable(
            "asking the server needs what the extra `server` installs, and `asyncpg` can't be "
            f"found; {how_to_install('server')}"
        )
    return asyncio.run(_fetch(dsn, database, login, queries or {}))


async def _fetch(
    dsn: str, database: str, login: str | None, queries: Mapping[str, str]
) -> CatalogState:
    import asyncpg  # only where a server is asked

    try:
        connection = await asyncpg.connect(
            dsn,
            timeout=SECONDS,
            command_timeout=SECONDS,
            server_settings={
                "application_name": "sluice postgres",
                "default_transaction_read_only": "on",
                "search_path": "pg_catalog",
            },
            **_tls(dsn),
        )
    except asyncpg.exceptions.ClientConfigurationError as error:
        raise Unusable(f"--dsn-file or {DSN}: {_worded(error)}") from error
    except ValueError:
        # Its text may repeat a part of the password, so it is not shown.
        raise Unusable(
            f"the address in --dsn-file or {DSN} can't be read; write `/`, `@`, `#` and `?` in a "
            "password as `%2F`, `%40`, `%23` and `%3F`"
        ) from None
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise Unusable(f"the server can't be asked: {_worded(error)}") from error
    try:
        version = connection.get_server_version()
        if version.major * 10000 < OLDEST:
            raise Unusable(f"the server has version {version.major}; 15 is the oldest supported")
        # One snapshot, so that the checks see the same roles, relations and rights.
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            current = await connection.fetchval("SELECT current_database()::text")
            if current != database:
                raise Unusable(
                    f"the address leads to the database `{current}`, the source is `{database}`"
                )
            relations = await connection.fetchval(QUERY)
            if login is None:
                return CatalogState(relations, {})
            oid = await connection.fetchval("SELECT oid FROM pg_roles WHERE rolname = $1", login)
            if oid is None:
                raise Unusable(f"there is no role `{login}`: `sluice postgres plan` makes it")
            rows = {name: await connection.fetch(query, oid) for name, query in queries.items()}
            return CatalogState(relations, rows)
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise Unusable(f"the server did not answer: {_worded(error)}") from error
    finally:
        await connection.close(timeout=SECONDS)


def _tls(dsn: str) -> dict[str, Any]:
    """Return the option that makes TLS certain, unless the address has an `sslmode` or leads to
    this host. By itself asyncpg would fall back to plain text, where others could pose as the
    server."""
    parts = urlsplit(dsn)
    query = parse_qs(parts.query)
    if "sslmode" in query or parts.hostname in (None, *LOOPBACK):
        return {}
    # With `verify-full`, asyncpg knows no authorities but those that the address names.
    return {"ssl": "verify-full" if "sslrootcert" in query else ssl.create_default_context()}


def _worded(error: BaseException) -> str:
    text = str(error) or type(error).__name__
    return " ".join(text.split())
