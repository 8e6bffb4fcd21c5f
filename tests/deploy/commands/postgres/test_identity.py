"""`sluice postgres identity` on a real server: row policies know the user whom a key signed for
this backend, and no other."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import asyncpg
import pytest

from deploy.commands.postgres.sql_text import literal
from policies.ground.postgres_identity import PostgresIdentity, parse_key, sign_identity
from tests.deploy.commands.postgres.world import World
from tests.policies.ground.test_postgres_identity import KEY

pytestmark = pytest.mark.deep(
    stands_in="tests/deploy/commands/postgres/test_commands.py::"
    "test_the_identity_s_sql_holds_no_key_and_a_new_key_is_written_to_a_file"
)
OLD = bytes(32)


@pytest.fixture
def governed(crm: World) -> World:
    """A world with the functions, the keys `1` and `2`, and a row policy by them."""
    crm.apply("--revoke-public")
    for words in (
        ["--login", crm.login],
        ["--key-file", _key(crm, "old", OLD), "--key-id", "1"],
        ["--key-file", _key(crm, "new", KEY), "--key-id", "2"],
    ):
        code, out, err = crm.run("identity", *words)
        assert (code, err) == (0, "")
        crm.sql(out)
    crm.sql(
        "ALTER TABLE public.tickets ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY of_the_user ON public.tickets FOR SELECT TO :login "
        "USING (customer = (SELECT sluice.user_id()))",
    )
    return crm


def _key(crm: World, name: str, key: bytes) -> str:
    path = crm.folder / name
    path.write_text(f"{key.hex()}\n")
    path.chmod(0o600)
    return str(path)


@asynccontextmanager
async def session(crm: World) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(crm.of(crm.login))
    try:
        yield connection
    finally:
        await connection.close()


def identity(connection: asyncpg.Connection, user: str = "ada") -> PostgresIdentity:
    pid, expires = connection.get_server_pid(), int(time.time()) + 60
    return PostgresIdentity(user, "ses_1", "claimed", pid, expires)


async def customers(connection: asyncpg.Connection, value: str | None) -> list[str]:
    """Return whose tickets a transaction with this value sees."""
    async with connection.transaction():
        if value is not None:
            await connection.execute("SELECT set_config('sluice.identity', $1, true)", value)
        rows = await connection.fetch("SELECT customer FROM public.tickets ORDER BY 1")
    return [row["customer"] for row in rows]


async def test_a_signed_user_sees_own_rows_until_the_transaction_ends(governed: World) -> None:
    async with session(governed) as connection:
        for user in ("ada", "bob"):
            signed = sign_identity(identity(connection, user), "2", KEY)
            assert await customers(connection, signed) == [user]
            assert await customers(connection, None) == []


async def test_a_rotated_key_holds_until_it_is_deleted(governed: World) -> None:
    async with session(governed) as connection:
        signed = sign_identity(identity(connection), "1", OLD)
        assert await customers(connection, signed) == ["ada"]
        governed_keys = "DELETE FROM sluice.identity_keys WHERE key_id = '1'"
        await _as_superuser(governed, governed_keys)
        assert await customers(connection, signed) == []
        assert await customers(connection, sign_identity(identity(connection), "2", KEY)) == ["ada"]


async def _as_superuser(crm: World, text: str) -> None:
    connection = await asyncpg.connect(crm.url)
    try:
        await connection.execute(text)
    finally:
        await connection.close()


Change = Callable[[PostgresIdentity], str]


def tampered(old: str, new: str) -> Change:
    def change(given: PostgresIdentity) -> str:
        signed = sign_identity(given, "2", KEY)
        assert old in signed
        return signed.replace(old, new, 1)

    return change


HEX = {name: name.encode().hex() for name in ("ada", "bob", "ses_1", "ses_2")}
WRONG: dict[str, Change] = {
    "expired": lambda i: sign_identity(i._replace(expires=int(time.time()) - 1), "2", KEY),
    "far from expiry": lambda i: sign_identity(i._replace(expires=i.expires + 3600), "2", KEY),
    "of another backend": lambda i: sign_identity(i._replace(backend_pid=1), "2", KEY),
    "by another key": lambda i: sign_identity(i, "2", OLD),
    "by the key of another id": lambda i: sign_identity(i, "1", KEY),
    "by an unknown key": lambda i: sign_identity(i, "3", KEY),
    "with another user": tampered(HEX["bob"], HEX["ada"]),
    "with another session": tampered(HEX["ses_1"], HEX["ses_2"]),
    "with another state": tampered("claimed", "verified"),
    "with a line break at its end": lambda i: sign_identity(i, "2", KEY) + "\n",
    "with upper-case digits": lambda i: (
        sign_identity(i, "2", KEY).upper().replace("CLAIMED", "claimed")
    ),
    "cut short": lambda i: sign_identity(i, "2", KEY)[:-1],
    "without a MAC": lambda i: sign_identity(i, "2", KEY).rpartition(":")[0] + ":",
    "of another version": lambda i: "2" + sign_identity(i, "2", KEY)[1:],
    "with a long number": lambda _: "1:2:" + "9" * 30 + ":1:claimed:61::" + "0" * 64,
    "empty": lambda _: "",
    "very long": lambda _: "1:" * 5000,
    "of other characters": lambda _: "1:2:1:1:claimed:zz::" + "ü" * 64,
}


async def test_a_wrong_value_is_no_user_and_no_error(governed: World) -> None:
    async with session(governed) as connection:
        given = identity(connection, "bob")
        assert await customers(connection, sign_identity(given, "2", KEY)) == ["bob"]
        for name, change in WRONG.items():
            assert await customers(connection, change(given)) == [], name


async def test_a_value_is_of_no_use_in_another_session(governed: World) -> None:
    async with session(governed) as one, session(governed) as other:
        signed = sign_identity(identity(one), "2", KEY)
        assert await customers(other, signed) == []
        assert await customers(one, signed) == ["ada"]


async def test_a_transaction_keeps_its_user_past_the_expiry(governed: World) -> None:
    async with session(governed) as connection:
        given = identity(connection)._replace(expires=int(time.time()) + 4)
        signed = sign_identity(given, "2", KEY)
        async with connection.transaction():
            await connection.execute("SELECT set_config('sluice.identity', $1, true)", signed)
            await connection.execute("SELECT pg_sleep(4.5)")
            assert await connection.fetchval("SELECT customer FROM public.tickets") == "ada"
        assert await customers(connection, signed) == []


async def test_only_a_verified_user_is_the_verified_one(governed: World) -> None:
    await _as_superuser(
        governed,
        "ALTER POLICY of_the_user ON public.tickets "
        "USING (customer = (SELECT sluice.verified_user_id()))",
    )
    async with session(governed) as connection:
        given = identity(connection)
        assert await customers(connection, sign_identity(given, "2", KEY)) == []
        verified = sign_identity(given._replace(state="verified"), "2", KEY)
        assert await customers(connection, verified) == ["ada"]


async def test_the_login_reads_no_key_and_no_plan_shows_one(governed: World) -> None:
    async with session(governed) as connection:
        signed = sign_identity(identity(connection), "2", KEY)
        for statement in (
            "SELECT * FROM sluice.identity_keys",
            "SELECT * FROM sluice.identity()",
            "COPY sluice.identity_keys TO STDOUT",
            "SET session_replication_role = replica",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(statement)
        async with connection.transaction():
            await connection.execute("SELECT set_config('sluice.identity', $1, true)", signed)
            plan = await connection.fetch("EXPLAIN (ANALYZE, VERBOSE) SELECT * FROM public.tickets")
        text = "\n".join(row[0] for row in plan)
        assert "user_id()" in text
        assert "identity_keys" not in text
        assert KEY.hex() not in text
        assert signed.rpartition(":")[2] not in text
        samples = await connection.fetch(
            "SELECT tablename FROM pg_stats WHERE schemaname = 'sluice'"
        )
        assert samples == []


def test_the_check_knows_its_own_functions_and_no_others(governed: World) -> None:
    assert governed.check() == []
    governed.sql("GRANT SELECT ON sluice.identity_keys TO :login")
    [found] = governed.check()
    assert (found["check"], found["severity"]) == ("wide_grants", "high")
    governed.sql(found["do"])
    governed.sql(
        "CREATE OR REPLACE FUNCTION sluice.user_id() RETURNS text LANGUAGE sql STABLE "
        "SECURITY DEFINER AS $$ SELECT current_setting('app.user', true) $$"
    )
    assert {each["check"] for each in governed.check()} == {"definer_functions", "plain_settings"}


def test_no_plan_opens_the_schema_of_the_keys(governed: World) -> None:
    everything = """\
policies:
  - {name: all, agent_role: support, allowed_sources: ["*"], max_sensitivity: critical}
"""
    plan = governed.plan(policies=everything)
    assert '"hr"."payroll"' in plan
    assert 'GRANT USAGE ON SCHEMA "sluice"' not in plan
    assert "identity_keys" not in plan


def test_a_key_file_that_is_absent_is_made_with_a_new_key(crm: World) -> None:
    path = crm.folder / "made"
    code, first, err = crm.run("identity", "--key-file", str(path))
    assert (code, err) == (0, "")
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(parse_key(path.read_text())) == 32
    assert crm.run("identity", "--key-file", str(path))[1] == first
    assert path.read_text().strip() not in first  # only the pads, from which it follows


async def test_every_character_of_a_user_arrives(governed: World) -> None:
    async with session(governed) as connection:
        for user in ("okta:Zoë", 'O\'Hara \\ "x"', "用户", "x" * 256):
            await _as_superuser(
                governed,
                "DELETE FROM public.tickets WHERE id = 3; INSERT INTO public.tickets VALUES "
                f"(3, {literal(user)}, '')",
            )
            assert await customers(
                connection, sign_identity(identity(connection, user), "2", KEY)
            ) == [user]
