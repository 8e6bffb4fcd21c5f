"""Statements to PostgreSQL through the sidecar: `python -m tests.benchmarks.postgres_statements
[REQUESTS [ROUNDS [CASE …]]]`, by itself.

In turn, on the same server: without anything between, through PgBouncer, and through the sidecar,
which judges each statement and has its record on disk before a row leaves. Sidecar and PgBouncer
have one core; the other has the client, the server and the control API. The client sends one
statement after the other as bytes, and looks at nothing but the end of the answer, so that what is
shown as added is the middle's. What is added is taken within a round; shown is the median. On a
machine with other work each wake-up may wait for another process, so the tenth percentile is shown
beside the median: it is nearer to what an idle machine gives.

The server has its default settings. Busy sessions hold 82 locks each, in open transactions; for 100
and 300 of them the server takes 400 connections, which makes each look dearer by itself.
"""

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import make_url

from tests import servers
from tests.benchmarks.measure import CORES, LOAD, SERVER, Figure, directory
from tests.benchmarks.turns import Rounds, median, rounds_of
from tests.benchmarks.two_cores import shipped
from tests.support import pgbouncer
from tests.support import postgres_wire as wire
from tests.support.ports import free_port
from tests.support.postgres_source import LOGIN, Source, running_source
from tests.support.stack import POLICIES, Stack

REQUESTS, ROUNDS = 400, 5
BUSY = (10, 100, 300)
MANY = 400
"""The connections of a server that more than a few busy sessions need."""
DATABASE = "shop"
DEFAULTS = {
    "max_connections": "100", "shared_buffers": "128MB", "debug_print_plan": "off",
    "min_parallel_table_scan_size": "8MB", "parallel_setup_cost": "1000",
    "parallel_tuple_cost": "0.1", "autovacuum": "on",
}  # fmt: skip
"""The server's own defaults, in place of what the tests' server is set to."""
TABLES = f"""
CREATE SCHEMA api;
CREATE TABLE public.tickets (id int PRIMARY KEY, title text, body text);
INSERT INTO public.tickets
    SELECT n, 'Ticket ' || n, 'The printer on floor ' || n % 7 || ' is out of paper.'
    FROM generate_series(1, 10000) AS n;
CREATE TABLE public.numbers AS SELECT n, 'row ' || n AS label FROM generate_series(1, 10000) AS n;
CREATE VIEW api.tickets_by_key AS SELECT id, title, body FROM public.tickets;
CREATE FUNCTION public.search_articles(int) RETURNS TABLE (id int, title text)
    LANGUAGE plpgsql STABLE AS
    $$ BEGIN RETURN QUERY SELECT t.id, t.title FROM public.tickets AS t WHERE t.id = $1; END $$;
CREATE TABLE public.held (n int PRIMARY KEY) PARTITION BY RANGE (n);
DO $$ BEGIN FOR n IN 0..39 LOOP
    EXECUTE format(
        'CREATE TABLE held_%s PARTITION OF held FOR VALUES FROM (%s) TO (%s)', n, n, n + 1);
END LOOP; END $$;
GRANT USAGE ON SCHEMA public, api TO {LOGIN};
GRANT SELECT ON ALL TABLES IN SCHEMA public, api TO {LOGIN};
"""
VECTORS = f"""
CREATE EXTENSION vector;
CREATE TABLE public.articles (id int PRIMARY KEY, title text, place vector(384));
INSERT INTO public.articles
    SELECT n, 'Article ' || n,
        (SELECT array_agg(sin(n * i)) FROM generate_series(1, 384) AS i)::vector
    FROM generate_series(1, 2000) AS n;
CREATE INDEX ON public.articles USING hnsw (place vector_l2_ops);
GRANT SELECT ON public.articles TO {LOGIN};
"""


class Case(NamedTuple):
    """A statement: what is sent once before, and for each request; the most milliseconds that the
    sidecar may add, or the least share of PgBouncer's rows a second."""

    data: bytes
    before: bytes = b""
    added: float | None = None
    share: float | None = None
    rows: int = 1
    needs: str | None = None
    """The extension that it needs."""


def fresh(sql: str, *values: bytes) -> bytes:
    """Return the messages with which a driver runs a statement once."""
    data = wire.parse(sql) + wire.bind(values) + wire.describe("P") + wire.execute()
    return data + wire.sync()


def prepared(sql: str) -> bytes:
    """Return the messages that prepare a statement; PgBouncer's session may still have another."""
    return wire.close("S", "kept") + wire.parse(sql, "kept") + wire.sync()


def again(*values: bytes) -> bytes:
    """Return the messages with which a driver runs a prepared statement again."""
    return wire.bind(values, name="kept") + wire.execute() + wire.sync()


BY_KEY = "SELECT id, title, body FROM public.tickets WHERE id = $1"
VIEW = "SELECT id, title, body FROM api.tickets_by_key WHERE id = $1"
CALL = "SELECT id, title FROM public.search_articles($1)"
NEAREST = "SELECT id, title FROM public.articles ORDER BY place <-> $1 LIMIT 5"
VECTOR = b"[" + b",".join(b"%.4f" % (each / 384) for each in range(384)) + b"]"
CASES = {
    "by key, fresh": Case(fresh(BY_KEY, b"7"), added=0.5),
    "by key, prepared": Case(again(b"7"), prepared(BY_KEY), added=0.3),
    "by key, simple protocol": Case(wire.query(BY_KEY.replace("$1", "7"))),
    "pgvector top 5, fresh": Case(fresh(NEAREST, VECTOR), added=0.5, needs="vector"),
    "pgvector top 5, prepared": Case(again(VECTOR), prepared(NEAREST), added=0.3, needs="vector"),
    "10,000 rows": Case(fresh("SELECT n, label FROM public.numbers"), share=0.5, rows=10_000),
    "view, fresh": Case(fresh(VIEW, b"7"), added=1.0),
    "view, prepared": Case(again(b"7"), prepared(VIEW), added=1.0),
    "function, fresh": Case(fresh(CALL, b"7"), added=1.0),
    "function, prepared": Case(again(b"7"), prepared(CALL), added=1.0),
}
BESIDE_OTHERS = ("by key, fresh", "by key, prepared", "function, fresh")
"""The cases that are tried beside busy sessions."""


def send(address: wire.Address, case: Case, requests: int) -> dict[str, Any]:
    """Send the statement one time after the other; return the latencies in ms, and rows/s."""
    taken = []
    with wire.Connection(address) as connection:
        if case.before:
            connection.exchange(case.before)
        connection.send_raw(case.data)
        answer = connection.messages()
        assert not wire.errors(answer), wire.errors(answer)
        assert wire.rows(answer), "an answer without a row"
        size = 0
        for number in range(requests + requests // 5):
            at = time.perf_counter()
            arrived = connection.exchange(case.data)
            assert arrived == (size or arrived), "not every answer is the same"
            size = arrived
            if number >= requests // 5:  # the first ones warm up
                taken.append((time.perf_counter() - at) * 1e3)
    taken.sort()
    return {
        "p10": taken[len(taken) // 10],
        "p50": statistics.median(taken),
        "p99": taken[len(taken) * 99 // 100],
        "rows": case.rows * len(taken) / sum(taken) * 1e3,
    }


@contextmanager
def on(cores: set[int]) -> Iterator[None]:
    """Start what is started inside on these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def filled(source: Source) -> wire.Address:
    """Create the database that is read; return its superuser's address."""
    source.execute(f"CREATE DATABASE {DATABASE}")
    address = source.superuser._replace(database=DATABASE)
    texts = [TABLES, *([VECTORS] if "vector" in source.features else []), "VACUUM ANALYZE"]
    with wire.Connection(address) as connection:
        for text in texts:
            answer = connection.simple(text)
            assert not wire.errors(answer), wire.errors(answer)
    return address


def started_stack(root: Path, source: Source) -> tuple[Stack, wire.Address]:
    """Start the sidecar in front of the server, and return it and its address."""
    port = free_port()
    login = {"user": source.login.user, "password_file": str(source.password_file)}
    stack = Stack(
        root,
        policies=POLICIES.replace("rest://files/*", f'"postgres://{DATABASE}/{DATABASE}/*"'),
        control_cores=LOAD,
        sidecar_cores=SERVER,
        sources=[
            {
                "alias": DATABASE,
                "kind": "postgres",
                "upstream": f"postgres://127.0.0.1:{source.login.port}/{DATABASE}",
                "login": login,
                "listen": f"127.0.0.1:{port}",
                "sensitivity": "low",
                "functions": {"allow": ["public.search_articles"]},
            }
        ],
    )
    stack.start()
    return stack, wire.Address("127.0.0.1", port, DATABASE, "anyone", "")


class World(NamedTuple):
    """A server, and the contenders' addresses."""

    source: Source
    superuser: wire.Address
    stack: Stack
    contenders: dict[str, wire.Address]

    def runs(self, case: Case, requests: int) -> dict[str, Callable[[], dict[str, Any]]]:
        def ours() -> dict[str, Any]:
            found = send(self.contenders["ours"], case, requests)
            shipped(self.stack)
            return found

        runs = {name: partial(send, at, case, requests) for name, at in self.contenders.items()}
        return {**runs, "ours": ours}


@contextmanager
def world(root: Path, connections: int) -> Iterator[World]:
    """Start a server that takes so many connections, and what stands in front of it."""
    root.mkdir()
    settings = DEFAULTS | {"max_connections": str(connections)}
    with ExitStack() as made:
        with on(LOAD):
            source = made.enter_context(running_source(settings=settings))
        superuser = filled(source)
        direct = source.login._replace(database=DATABASE)
        url = make_url("postgresql://").set(
            username=direct.user, password=direct.password, host=direct.host, port=direct.port,
            database=DATABASE,
        )  # fmt: skip
        with on(SERVER):
            # One session, so that what the client has prepared is there.
            pooled = made.enter_context(
                pgbouncer.before(url.render_as_string(hide_password=False), sessions=1)
            )
        port = make_url(pooled).port
        assert port is not None
        stack, ours = started_stack(root / "stack", source)
        made.callback(stack.stop)
        contenders = {"direct": direct, "pgbouncer": direct._replace(port=port), "ours": ours}
        os.sched_setaffinity(0, LOAD)
        yield World(source, superuser, stack, contenders)
        assert stack.verify()["valid"]


@contextmanager
def busy(address: wire.Address, sessions: int) -> Iterator[None]:
    """Keep that many sessions in transactions that hold locks."""
    with ExitStack() as made:
        for _ in range(sessions):
            connection = made.enter_context(wire.Connection(address))
            connection.simple("BEGIN")
            assert not wire.errors(connection.simple("SELECT count(*) FROM public.held"))
        yield


def added(found: Rounds, name: str, what: str) -> float:
    """The median over the rounds of the milliseconds that a contender adds to the server's."""
    more = (each[name][what] - each["direct"][what] for each in found)
    return float(statistics.median(more))


def figure(name: str, case: Case, found: Rounds) -> Figure:
    if case.rows > 1:
        rates = [statistics.median(each[who]["rows"] for each in found) for who in found[0]]
        value = " ".join(f"{who} {rate:,.0f}/s" for who, rate in zip(found[0], rates, strict=True))
        share = statistics.median(
            each["ours"]["rows"] / each["pgbouncer"]["rows"] for each in found
        )
        target = case.share or 0.0
        return Figure(name, value, share, f">= {target}", share >= target)
    direct = median(found, "direct", "p50")
    parts = [
        " ".join([who, *(f"+{added(found, who, what):.2f}" for what in ("p10", "p50", "p99"))])
        for who in ("pgbouncer", "ours")
    ]
    value = f"direct {direct:.2f}; " + "; ".join(parts)
    if case.added is None:
        return Figure(name, value, None, "", True)
    mine = added(found, "ours", "p50")
    return Figure(name, value, None, f"<= {case.added} ms", mine <= case.added)


def figures(requests: int, rounds: int, only: list[str]) -> Iterator[Figure]:
    if servers.find("pgbouncer") is None:
        yield Figure("statements", f"no PgBouncer: {servers.how('pgbouncer')}", None, "", True)
        return

    def wanted(name: str) -> bool:
        return not only or any(each in name for each in only)

    with directory() as root:
        # The server runs as another user.
        root.chmod(0o755)
        with world(root / "idle", 100) as idle:
            for name, case in CASES.items():
                if wanted(name) and case.needs in (None, *idle.source.features):
                    times = max(requests // 10, 1) if case.rows > 1 else requests
                    yield figure(name, case, rounds_of(idle.runs(case, times), rounds))
            with busy(idle.superuser, BUSY[0]):
                yield from beside(idle, BUSY[0], requests, rounds, wanted)
        os.sched_setaffinity(0, CORES)
        with world(root / "many", MANY) as many:
            for sessions in (0, *BUSY[1:]):
                with busy(many.superuser, sessions):
                    yield from beside(many, sessions, requests, rounds, wanted)


def beside(
    world: World, sessions: int, requests: int, rounds: int, wanted: Callable[[str], bool]
) -> Iterator[Figure]:
    """The figures beside so many busy sessions, which have no target."""
    for name in BESIDE_OTHERS:
        title = f"{name}; {sessions} busy sessions"
        if wanted(title):
            case = CASES[name]._replace(added=None)
            yield figure(title, case, rounds_of(world.runs(case, requests // 2), rounds))


def main() -> None:
    given = [int(each) for each in sys.argv[1:3]]
    requests, rounds = given[0] if given else REQUESTS, given[1] if given[1:] else ROUNDS
    print(
        f"{len(CORES)} cores, {requests} requests a turn, {rounds} rounds; ms at p10, p50 and p99"
    )
    for each in figures(requests, rounds, sys.argv[3:]):
        print(each.row(), flush=True)


if __name__ == "__main__":
    main()
