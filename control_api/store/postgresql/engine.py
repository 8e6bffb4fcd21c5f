"""Opens PostgreSQL, with one lane per tenant. If the URL names several hosts, connects to the one
that serves. Grants the privileges of the service's role, and checks that it has no dangerous ones.

Within this process, a lane's writers queue on a lock here, without holding a connection. Between
processes, they queue on the row that each locks first (`control_api.store.transaction`). Every
query names its `tenant_id`; row-level security is the backup, which the role must not bypass.

A machine that is gone may not even refuse a connection, and the driver's time limit is for all
hosts together. So each host is tried on its own, with a share of the time, and the one that
answered last comes first.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import asyncpg
from sqlalchemy import URL, Connection, Dialect, event, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from control_api.database_limits import LIMITS, POOL_SECONDS, DatabaseLimits
from control_api.store.postgresql import transaction as begin
from control_api.store.postgresql.transaction import ALL_TENANTS, TransactionPool
from control_api.store.schema.version import require_head
from control_api.store.url import UnusableDatabase, translate_error

READ = "SELECT"
APPEND = "SELECT, INSERT"
CHANGE = "SELECT, INSERT, UPDATE"
REPLACE = "SELECT, INSERT, DELETE"
ALL = "SELECT, INSERT, UPDATE, DELETE"

GRANTS = {
    "acknowledgements": REPLACE,
    "agents": CHANGE,
    "alembic_version": READ,
    "alert_deliveries": ALL,
    "alert_rules": ALL,
    "api_keys": CHANGE,
    "candidate_counts": ALL,
    "checkpoints": ALL,
    "cited_documents": ALL,
    "console_sessions": ALL,
    "count_checks": CHANGE,
    "documents": ALL,
    "ended_sessions": APPEND,
    "enrolled_keys": REPLACE,
    "export_positions": CHANGE,
    "first_accesses": CHANGE,
    "guardrails": ALL,
    "holds": CHANGE,
    "impact_policies": REPLACE,
    "impact_runs": ALL,
    "incarnations": APPEND,
    "installation": CHANGE,
    "log_entries": REPLACE,
    "log_heads": CHANGE,
    "log_index": REPLACE,
    "log_keys": APPEND,
    "log_spans": REPLACE,
    "openings": REPLACE,
    "policies": CHANGE,
    "policy_versions": APPEND,
    "purges": ALL,
    "self_checks": CHANGE,
    "sessions": ALL,
    "set_nodes": REPLACE,
    "sidecar_owners": ALL,
    "sidecars": ALL,
    "sign_in_links": ALL,
    "sources": CHANGE,
    "tallies": ALL,
    "tenants": CHANGE,
    "tree_nodes": CHANGE,
}
"""The privileges that the service uses on each table; a test compares them with the statements that
it sends. On `installation`, `UPDATE` only permits `FOR UPDATE`: the row-level policy refuses every
change."""


async def require_row_security(connection: AsyncConnection) -> None:
    """Raise `UnusableDatabase` if this role, or one that it can become, bypasses row-level
    security."""
    exempt = (await connection.execute(_EXEMPT)).scalar()
    if exempt is not None:
        raise UnusableDatabase(
            f"its role is, or may become, `{exempt}`, which row-level "
            "security does not bind: create a role for the service (CREATE ROLE … LOGIN "
            "NOSUPERUSER NOBYPASSRLS), and run `sluice migrate` with the owner's URL in "
            "SLUICE_MIGRATE_DATABASE_URL, which grants it what it needs"
        )


async def require_grants(connection: AsyncConnection) -> None:
    """Raise `UnusableDatabase` if this role lacks a privilege on an existing table."""
    # Check at the start: a missing privilege would otherwise show up later, as a 500 on some route.
    # For a missing table the check yields NULL, not false; `require_head` then reports the schema.
    wanted = [(table, verb) for table, verbs in GRANTS.items() for verb in verbs.split(", ")]
    tables, verbs = zip(*wanted, strict=True)
    query = {"tables": list(tables), "verbs": list(verbs)}
    lacking = (await connection.execute(_LACKING, query)).first()
    if lacking is not None:
        raise UnusableDatabase(
            f"its role lacks {lacking.verb} on `{lacking.name}`: run "
            "`sluice migrate` with the owner's URL in SLUICE_MIGRATE_DATABASE_URL, which grants it"
        )


def grant_privileges(connection: Connection, role: str) -> None:
    """Grant `role` the privileges that the service needs, and revoke all others. Run it as the
    owner."""
    owner = connection.execute(text("SELECT current_user")).scalar_one()
    if role == owner:
        return
    if connection.execute(_KNOWN, {"role": role}).first() is None:
        raise UnusableDatabase(
            f"there is no role `{role}`, which SLUICE_DATABASE_URL names: create it first (CREATE "
            "ROLE … LOGIN PASSWORD … NOSUPERUSER NOBYPASSRLS)"
        )
    name = connection.dialect.identifier_preparer.quote_identifier(role)
    schema = connection.dialect.identifier_preparer.quote_identifier(
        connection.execute(text("SELECT current_schema()")).scalar_one()
    )
    # Revoke first, so that a privilege that a later version no longer needs goes away.
    connection.exec_driver_sql(f"REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM {name}")
    connection.exec_driver_sql(f"GRANT USAGE ON SCHEMA {schema} TO {name}")
    for table, verbs in GRANTS.items():
        connection.exec_driver_sql(f"GRANT {verbs} ON {table} TO {name}")


_EXEMPT = text(
    "SELECT rolname FROM pg_roles WHERE (rolsuper OR rolbypassrls)"
    " AND pg_has_role(current_user, oid, 'MEMBER') ORDER BY rolname = current_user DESC LIMIT 1"
)
_LACKING = text(
    "SELECT name, verb"
    " FROM unnest(CAST(:tables AS text[]), CAST(:verbs AS text[])) AS w(name, verb)"
    " WHERE NOT has_table_privilege(current_user, to_regclass(name), verb) LIMIT 1"
)
_KNOWN = text("SELECT 1 FROM pg_roles WHERE rolname = :role")


_UNUSABLE = (
    OSError,  # refused, or no answer in time
    asyncpg.PostgresConnectionError,  # closed at once, by a proxy without a server
    asyncpg.CannotConnectNowError,  # it starts or stops
    asyncpg.TargetServerAttributeNotMatched,  # a standby, with `target_session_attrs=read-write`
)


def connect_to_hosts(engine: AsyncEngine, url: URL) -> None:
    """Make the engine try the hosts one by one as described above, if `url` has several."""
    if isinstance(url.query.get("host"), tuple):
        event.listen(engine.sync_engine, "do_connect", Hosts().connect)


class Hosts:
    def __init__(self) -> None:
        self._last: tuple[str, int] | None = None

    def connect(
        self, dialect: Dialect, _record: object, cargs: Sequence[Any], cparams: dict[str, Any]
    ) -> DBAPIConnection:
        """Return a connection to the first host that can be used. Raises the last host's error, a
        fault that may pass (`control_api.store.errors`)."""
        hosts = list(zip(cparams["host"], cparams["port"], strict=True))
        hosts.sort(key=lambda each: each != self._last)
        seconds = cparams["timeout"] / len(hosts)
        fault: Exception | None = None
        for host, port in hosts:
            try:
                one = {**cparams, "host": host, "port": port, "timeout": seconds}
                made = dialect.connect(*cargs, **one)
            except _UNUSABLE as error:
                fault = error
            else:
                self._last = (host, port)
                return made
        if isinstance(fault, OSError):
            raise fault
        # No error of SQLAlchemy's: it would not count as a fault of the database.
        raise ConnectionError(f"no host can be used: {fault}") from fault


T = TypeVar("T")


@asynccontextmanager
async def connected(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """Open the engine's first connection. Raises `UnusableDatabase` if the driver rejects the host
    name or a parameter of the URL."""
    try:
        connection = await engine.connect().start()
    except (TypeError, ValueError) as error:
        if isinstance(error, OSError):
            raise  # a failed certificate check: `SSLCertVerificationError` is a ValueError too
        # The driver's message may repeat a parameter's value, so it is not shown.
        raise UnusableDatabase(
            "the host or the parameters can't be used: after `?`, give arguments of asyncpg's "
            "`connect`, such as `ssl=verify-full`. Instead of `sslmode` write `ssl`; instead of "
            "`sslrootcert`, set the variable PGSSLROOTCERT"
        ) from error
    try:
        yield connection
    finally:
        await connection.close()


class PostgresqlDatabase:
    """A PostgreSQL database. It never migrates: opening fails unless `sluice migrate` has upgraded
    the schema."""

    def __init__(self, engine: AsyncEngine, limits: DatabaseLimits) -> None:
        self._engine = engine
        self._limits = limits
        self._pool = TransactionPool(engine, limits)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        # It leaves the tenant set in the session, which behind a pooler is the next client's too.
        self.autocommit = None if limits.pooled else self._autocommit

    @classmethod
    async def open(cls, url: URL, limits: DatabaseLimits = LIMITS) -> "PostgresqlDatabase":
        engine = create_async_engine(
            url,
            isolation_level="AUTOCOMMIT",  # `TransactionPool` sends BEGIN itself
            pool_size=limits.connections,
            max_overflow=0,  # an operator counts on `limits.connections` being the most
            pool_timeout=POOL_SECONDS,
            hide_parameters=True,  # values belong to callers, and an error may reach a log
            connect_args=limits.of_connection(),
        )
        connect_to_hosts(engine, url)
        try:
            async with connected(engine) as connection:
                # Check this before the first request: without row-level security, a query that
                # forgets its tenant would return every tenant's rows.
                await require_row_security(connection)
                await require_grants(connection)
                await connection.run_sync(require_head)
        except BaseException as error:
            await engine.dispose()
            if (known := translate_error(error, url)) is None:
                raise
            raise known from error
        return cls(engine, limits)

    def lane(self, tenant_id: str) -> str:
        return tenant_id

    def reading(self, tenant_id: str) -> AbstractAsyncContextManager[AsyncConnection]:
        return self._pool.transaction(begin.reading(tenant_id))

    def reading_all_tenants(self) -> AbstractAsyncContextManager[AsyncConnection]:
        return self._pool.transaction(begin.reading(ALL_TENANTS))

    def reading_key(self, digest: bytes) -> AbstractAsyncContextManager[AsyncConnection]:
        return self._pool.transaction(begin.reading("", digest))

    def snapshot(self, tenant_id: str) -> AbstractAsyncContextManager[AsyncConnection]:
        return self._pool.transaction(begin.snapshot(tenant_id))

    async def run_reading(self, tenant_id: str, work: Callable[[Connection], T]) -> T:
        async with self.reading(tenant_id) as connection:
            return await connection.run_sync(work)

    async def run_snapshot(self, tenant_id: str, work: Callable[[Connection], T]) -> T:
        async with self.snapshot(tenant_id) as connection:
            return await connection.run_sync(work)

    @asynccontextmanager
    async def writing(self, lane: str) -> AsyncIterator[AsyncConnection]:
        async with (
            self._lock(lane),
            self._pool.transaction(begin.writing(lane, self._limits.silent_seconds)) as connection,
        ):
            yield connection

    async def run(self, lane: str, work: Callable[[Connection], T]) -> T:
        async with self.writing(lane) as connection:
            return await connection.run_sync(work)

    async def _autocommit(self, lane: str, statement: str, values: tuple[Any, ...]) -> bool:
        # Take the same lock as `writing`, so that a lane's writes stay in order in this process.
        async with self._lock(lane):
            return await self._pool.autocommit(lane, statement, values)

    def _lock(self, lane: str) -> asyncio.Lock:
        # Locks are weakly referenced: one lives only while it is held or awaited, so their number
        # does not grow with the number of tenants.
        lock = self._locks.get(lane)
        if lock is None:
            lock = self._locks[lane] = asyncio.Lock()
        return lock

    async def fold(self) -> bool:
        # Deleted rows are unreadable, and vacuum removes them; the service may not run it.
        return True

    async def close(self) -> None:
        await self._engine.dispose()
