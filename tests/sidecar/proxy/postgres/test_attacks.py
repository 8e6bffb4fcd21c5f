"""Attacks on a session that found a way once: by an agent that knows how the sidecar works, and by
another user who may create functions, but may not change what the login may do.

Each is tried against a database in which ordinary statements are proven plain, so that the short
way through the sidecar is taken too.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from policies.ground.addresses import ListenAddress
from sidecar.settings.model import Defaults
from sidecar.settings.model import Source as SourceSettings
from sidecar.settings.postgres import AllowedFunctions, Login
from tests.support import postgres_wire as wire
from tests.support.postgres_source import LOGIN, Source, running_source
from tests.support.postgres_wire import bind, close, execute, parse, query, sync
from tests.support.proxy import policy, sidecar

PAY = "SELECT qpayee FROM secret.payroll WHERE id = 1"
FAILED = ("BEGIN", "SELECT 1/0 FROM public.tickets")
SETUP = """
CREATE SCHEMA evil;
CREATE FUNCTION evil.peek() RETURNS text LANGUAGE plpgsql AS $$
DECLARE found text;
BEGIN
    BEGIN
        SELECT qpayee INTO found FROM secret.payroll WHERE id = 1;
        RAISE EXCEPTION 'the locks go';
    EXCEPTION WHEN OTHERS THEN NULL;
    END;
    RETURN found;
END $$;
CREATE FUNCTION evil.pg_advisory_unlock_all() RETURNS text LANGUAGE sql AS 'SELECT evil.peek()';
CREATE FUNCTION evil.upper(text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    PERFORM set_config('application_name', evil.peek(), false);
    RETURN 'x';
END $$;
CREATE FUNCTION evil.lower(text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS
    $$ BEGIN RETURN evil.peek(); END $$;
ALTER FUNCTION evil.lower(text) RENAME TO lower_later;
CREATE FUNCTION evil.tell(text) RETURNS bool LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION '%', evil.peek(); END $$;
CREATE DOMAIN public.telling AS text CHECK (evil.tell(VALUE));
CREATE FUNCTION evil.fill() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN NEW.told := evil.peek(); RETURN NEW; END $$;
CREATE TABLE public.filled (told text);
CREATE TRIGGER fill BEFORE INSERT ON public.filled FOR EACH ROW EXECUTE FUNCTION evil.fill();
CREATE FUNCTION api.stash() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    BEGIN
        DEALLOCATE mine;
    EXCEPTION WHEN OTHERS THEN NULL;
    END;
    EXECUTE format('PREPARE mine AS SELECT %L AS a', evil.peek());
    EXECUTE format('PREPARE kept AS SELECT %L AS a', evil.peek());
    RETURN 'done';
END $$;
CREATE TABLE secret.nothing (id int);
CREATE FUNCTION api.is_empty() RETURNS text LANGUAGE plpgsql AS $$
DECLARE found text;
BEGIN
    BEGIN
        SELECT count(*) INTO found FROM secret.nothing;
        RAISE EXCEPTION 'the locks go';
    EXCEPTION WHEN OTHERS THEN NULL;
    END;
    RETURN found;
END $$;
CREATE FUNCTION evil.fixed(int) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS
    $$ BEGIN RETURN true; END $$;
CREATE TABLE public.constant_check (id int CHECK (evil.fixed(1)));
CREATE OR REPLACE FUNCTION evil.fixed(int) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS
    $$ BEGIN RETURN evil.peek() LIKE 'x'; END $$;
CREATE VIEW api.open_titles AS SELECT title FROM public.tickets;
GRANT USAGE ON SCHEMA evil TO PUBLIC;
GRANT ALL ON secret.nothing, public.constant_check, public.filled, api.open_titles TO PUBLIC;
"""
# With a cast by a function, or a range, which has one, no statement is plain.
PLAIN = """
DO $do$
DECLARE each text;
BEGIN
    FOR each IN SELECT t.oid::regtype FROM pg_type AS t WHERE typtype = 'r' AND oid >= 16384 LOOP
        EXECUTE 'DROP TYPE ' || each || ' CASCADE';
    END LOOP;
    FOR each IN SELECT format('%s AS %s', castsource::regtype, casttarget::regtype)
        FROM pg_cast AS k WHERE castfunc >= 16384 AND NOT EXISTS (
            SELECT FROM pg_depend AS d WHERE d.objid = k.oid AND d.deptype = 'e') LOOP
        EXECUTE 'DROP CAST (' || each || ')';
    END LOOP;
END $do$;
"""

Sent = str | bytes
TOO_LONG = "a" * 63

# By name: what is sent, message by message. A text is one of the simple protocol.
ATTACKS: dict[str, tuple[Sent, ...]] = {
    "a pipeline that ends a failed transaction": (
        *FAILED,
        parse("ROLLBACK") + bind() + execute() + parse(PAY) + bind() + execute() + sync(),
    ),
    "a pipeline that goes back to a savepoint": (
        "BEGIN",
        "SAVEPOINT a",
        FAILED[1],
        parse("ROLLBACK TO a") + bind() + execute() + parse(PAY) + bind() + execute() + sync(),
    ),
    "an unnamed statement that was denied": (
        parse("SELECT 1") + sync(),
        parse(PAY) + sync(),
        bind() + execute() + sync(),
    ),
    "a statement whose name the server cuts off": (
        parse("SELECT 1", TOO_LONG + "x") + sync(),
        close("S", TOO_LONG + "z") + sync(),
        parse(PAY, TOO_LONG + "y") + sync(),
        bind(name=TOO_LONG + "x") + execute() + sync(),
    ),
    "a namesake of the function that pools call": (
        "SET search_path = evil, pg_catalog",
        "SELECT pg_advisory_unlock_all()",
        parse("SELECT pg_advisory_unlock_all()") + bind() + execute() + sync(),
    ),
    "a parameter that the server reports": (
        "SET search_path = evil, pg_catalog",
        "SELECT upper('x')",
        parse("SELECT upper('x')") + bind() + execute() + sync(),
    ),
    "a trigger": (
        "INSERT INTO public.filled VALUES ('x') RETURNING told",
        "SELECT told FROM public.filled",
    ),
    "a caught read of an empty table": ("SELECT api.is_empty()",),
    "a check that the planner evaluates": (
        "SET constraint_exclusion = on",
        "SELECT id FROM public.constant_check WHERE id = 1",
    ),
    "a cursor over a function": (
        "BEGIN",
        "DECLARE c CURSOR FOR SELECT api.peek_plpgsql_volatile_unsafe()",
        parse("FETCH c") + bind() + execute() + sync(),
    ),
    "a prepared statement over a view": (
        parse("PREPARE v AS SELECT qpayee FROM api.payroll_view") + bind() + execute() + sync(),
        parse("EXECUTE v") + bind() + execute() + sync(),
    ),
    "a function that replaces what the agent has prepared": (
        "PREPARE mine AS SELECT 'a' AS a",
        "SELECT api.stash()",
        bind(name="mine") + execute() + sync(),
        "EXECUTE mine",
        "EXPLAIN (VERBOSE) EXECUTE mine",
        "EXPLAIN (VERBOSE) EXECUTE kept",
    ),
    "a view that reads a closed catalog beside it": (
        "SELECT a.rolname, a.rolpassword AS qpay FROM pg_authid a, pg_roles r",
    ),
}


@pytest.fixture(scope="module")
def source() -> Iterator[Source]:
    with running_source() as running:
        running.execute(SETUP)
        running.execute(PLAIN)
        yield running


@pytest.fixture(scope="module")
def agent(source: Source) -> Iterator[wire.Address]:
    with sidecar_in_front_of(source) as address:
        yield address


@contextmanager
def sidecar_in_front_of(source: Source) -> Iterator[wire.Address]:
    """Yield the address of a sidecar that denies the schema `secret`, in a thread of its own."""
    loop = asyncio.new_event_loop()
    started: list[int] = []
    ready, done = threading.Event(), asyncio.Event()

    async def serve() -> None:
        denied = policy(denied_sources=("postgres://crm/crm/secret/*",))
        settings = SourceSettings(
            alias="crm",
            kind="postgres",
            upstream=f"postgres://127.0.0.1:{source.login.port}/crm",
            listen=ListenAddress("127.0.0.1", 0),
            sensitivity="medium",
            writes="allow",
            login=Login(LOGIN, source.password_file),
            functions=AllowedFunctions(("api.*",)),
            defaults=Defaults(user="u"),
        )
        with tempfile.TemporaryDirectory() as folder:
            async with sidecar(Path(folder), denied) as running:
                proxy = running.proxy([settings])
                await proxy.start()
                started.append(proxy.port("crm"))
                ready.set()
                await done.wait()
                await proxy.close(1)

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert ready.wait(30)
    yield source.login._replace(port=started[0])
    loop.call_soon_threadsafe(done.set)
    thread.join()
    loop.close()


def answers(connection: wire.Connection, sent: tuple[Sent, ...]) -> list[wire.Message]:
    """Send each, and return all answers."""
    found = []
    for each in sent:
        connection.send_raw(query(each) if isinstance(each, str) else each)
        found += connection.messages()
    return found


def codes(found: list[wire.Message]) -> list[str]:
    return [each["C"] for each in wire.errors(found)]


DEEP = pytest.mark.deep(
    stands_in="tests/support/test_postgres.py::test_a_connection_needs_the_password"
)


@DEEP
@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_shows_nothing_and_is_answered_with_an_error(
    agent: wire.Address, name: str
) -> None:
    with wire.Connection(agent) as connection:
        found = answers(connection, ATTACKS[name])
        shown = bytes(connection.received)
    assert b"SECRET_7f3a" not in shown
    assert b"SCRAM-SHA-256$" not in shown
    assert codes(found), found


@DEEP
def test_the_code_of_a_parameters_type_is_judged(source: Source, agent: wire.Address) -> None:
    [[oid]] = source.execute("SELECT 'public.telling'::regtype::oid")
    asked = parse("SELECT $1", types=[int(str(oid))]) + bind([b"x"]) + execute() + sync()
    prepared = bind([b"x"], name="p") + execute() + sync()
    for sent in ((asked,), ("PREPARE p (public.telling) AS SELECT $1", prepared)):
        with wire.Connection(agent) as connection:
            assert codes(answers(connection, sent)) == ["42501"]
            assert b"SECRET_7f3a" not in bytes(connection.received)


@DEEP
def test_code_that_a_plan_would_keep_is_judged_before_it_is_planned(
    source: Source, agent: wire.Address
) -> None:
    run = bind(name="kept") + execute() + sync()
    with wire.Connection(agent) as connection:
        answers(connection, (parse("SELECT lower('x')", "kept") + sync(),))
        source.execute("ALTER FUNCTION evil.lower_later(text) RENAME TO lower")
        found = answers(connection, ("SET search_path = evil, pg_catalog", run, run, run))
        source.execute("ALTER FUNCTION evil.lower(text) RENAME TO lower_later")
        assert b"SECRET_7f3a" not in bytes(connection.received)
    assert codes(found)[0] == "42501"


@DEEP
def test_nothing_is_executed_behind_a_denied_message_up_to_sync(
    source: Source, agent: wire.Address
) -> None:
    denied = parse(PAY) + query("COMMIT") + sync()
    with wire.Connection(agent) as connection:
        found = answers(connection, ("BEGIN", "INSERT INTO notes (note) VALUES ('a')", denied))
    assert codes(found) == ["42501"]
    assert source.execute("SELECT count(*) FROM notes WHERE note = 'a'") == [["0"]]


@DEEP
def test_what_a_pipeline_has_done_is_undone_with_the_statement_that_fails(
    source: Source, agent: wire.Address
) -> None:
    pipeline = b"".join(
        parse(each) + bind() + execute()
        for each in ("SELECT 1", "INSERT INTO notes (note) VALUES ('b')", "SELECT nosuch")
    )
    with wire.Connection(agent) as connection:
        answers(connection, (pipeline + sync(),))
    assert source.execute("SELECT count(*) FROM notes WHERE note = 'b'") == [["0"]]


@DEEP
def test_a_named_statement_over_a_view_can_be_prepared_and_prepared_again_after_a_denial(
    agent: wire.Address,
) -> None:
    view = "SELECT title FROM api.open_titles LIMIT 1"
    over_view = parse(view, "n") + bind(name="n") + execute() + sync()
    denied = parse(PAY, "m") + sync()
    again = parse("SELECT 1", "m") + bind(name="m") + execute() + sync()
    with wire.Connection(agent) as connection:
        found = answers(connection, (over_view, denied, again))
    assert codes(found) == ["42501"]
    assert len(wire.rows(found)) == 2


@DEEP
def test_copy_from_is_refused_and_the_session_goes_on(agent: wire.Address) -> None:
    with wire.Connection(agent) as connection:
        found = answers(connection, ("COPY public.notes FROM STDIN", "SELECT 1"))
    assert codes(found) == ["0A000"]
    assert wire.rows(found) == [[b"1"]]
