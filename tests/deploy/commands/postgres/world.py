"""A database with a few relations, a login role of its own, and the files that `sluice postgres`
reads."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg
import pytest

from deploy.commands.postgres.__main__ import main
from tests.support.postgres import SERVICE, Server, unbound

POLICIES = """\
policies:
  - name: support-reads
    agent_role: support
    allowed_sources: [tickets, "postgres://crm/*/public/*", "postgres://crm/*/api/*"]
    denied_sources: ["postgres://crm/*/public/salaries", "postgres://crm/*/public/events_2020"]
    max_sensitivity: high
"""
SETTINGS = """\
sources:
  - alias: crm
    kind: postgres
    upstream: postgres://127.0.0.1:5432/{database}
    login: {{user: {login}}}
    sensitivity: medium
    relations:
      - {{match: public.tickets, source_id: tickets, sensitivity: high}}
      - {{match: public.plans, sensitivity: critical}}
      - {{through_views: [api.headcount]}}
"""
TABLES = """\
CREATE TABLE public.tickets (id int PRIMARY KEY, customer text, note text);
INSERT INTO public.tickets VALUES (1, 'ada', 'printer'), (2, 'bob', 'screen');
CREATE TABLE public."Order lines" (id int, "a ""b" text);
CREATE TABLE public.salaries (name text, amount int);
CREATE TABLE public.plans (name text);
CREATE SEQUENCE public.numbers;
CREATE SCHEMA api;
CREATE VIEW api.open_tickets WITH (security_invoker) AS SELECT id, note FROM public.tickets;
CREATE VIEW api.headcount AS SELECT count(*) AS count FROM public.salaries;
CREATE VIEW api.pay AS SELECT name, amount FROM public.salaries;
CREATE VIEW api.pay_again AS SELECT name FROM api.pay;
CREATE TABLE public.logs (at int) PARTITION BY RANGE (at);
CREATE TABLE public.logs_1 PARTITION OF public.logs FOR VALUES FROM (0) TO (100);
CREATE TABLE public.events (at int) PARTITION BY RANGE (at);
CREATE TABLE public.events_2020 PARTITION OF public.events FOR VALUES FROM (0) TO (100);
CREATE SCHEMA hr;
CREATE TABLE hr.payroll (name text, amount int);
"""
OPEN = {
    "api.headcount", "api.open_tickets", "public.Order lines", "public.logs", "public.logs_1",
    "public.numbers", "public.tickets",
}  # fmt: skip
"""What the policies open."""


class World(NamedTuple):
    """A database at `url`, a superuser's, and the role `login` with its password."""

    server: Server
    url: str
    login: str
    folder: Path
    capsys: pytest.CaptureFixture[str]

    @property
    def database(self) -> str:
        return self.url.rpartition("/")[2]

    def of(self, role: str) -> str:
        """The address for another role, which has the same password."""
        return f"postgresql://{role}:{self.server.password}@127.0.0.1:{self.server.port}/" + (
            self.database
        )

    def sql(self, *texts: str) -> None:
        """Run statements as the superuser; `:login` in a text stands for the role."""
        asyncio.run(_execute(self.url, [text.replace(":login", self.login) for text in texts]))

    def sql_of_login(self, *texts: str) -> None:
        """Run statements as the login, in one session."""
        asyncio.run(_execute(self.of(self.login), [*texts]))

    def rows(self, query: str, role: str | None = None) -> list[tuple[Any, ...]]:
        """Return the rows of one query by the login."""
        return asyncio.run(_fetch(self.of(role or self.login), query))

    def run(self, *words: str) -> tuple[int, str, str]:
        try:
            code = main([*words])
        except SystemExit as ended:
            code = int(str(ended.code))
        return (code, *self.capsys.readouterr())

    def options(self, policies: str = POLICIES) -> list[str]:
        """Write the files, and return the options that name them."""
        written = {
            "policies.yaml": policies,
            "sidecar.yaml": SETTINGS.format(database=self.database, login=self.login),
            "dsn": self.of(SERVICE),
        }
        for name, text in written.items():
            path = self.folder / name
            path.write_text(text)
            path.chmod(0o600)
        files = {"settings": "sidecar.yaml", "policies": "policies.yaml", "dsn-file": "dsn"}
        named = [f"--{option}={self.folder / name}" for option, name in files.items()]
        return ["--alias=crm", "--role=support", *named]

    def plan(self, *more: str, policies: str = POLICIES) -> str:
        """Return the SQL that `plan` prints."""
        code, out, err = self.run("plan", *self.options(policies), *more)
        assert (code, err) == (0, ""), err
        return out

    def apply(self, *more: str, policies: str = POLICIES) -> None:
        """Run the plan, and give the role its password."""
        self.sql(self.plan(*more, policies=policies))
        self.sql(f"ALTER ROLE :login PASSWORD '{self.server.password}'")

    def check(self, *more: str, policies: str = POLICIES) -> list[dict[str, str]]:
        """Return the findings of `check`."""
        code, out, err = self.run("check", *self.options(policies), "--json", *more)
        assert err == "", err
        findings: list[dict[str, str]] = json.loads(out)["findings"]
        assert code == int(bool(findings))
        return findings

    def readable(self) -> set[str]:
        """Return the relations of which the login can read a row count."""
        found = self.rows(
            "SELECT n.nspname, c.relname, format('%I.%I', n.nspname, c.relname) "
            "FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace "
            "WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') "
            "AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')"
        )
        return {f"{schema}.{name}" for schema, name, quoted in found if self._reads(quoted)}

    def _reads(self, name: str) -> bool:
        try:
            self.rows(f"SELECT count(*) FROM {name}")  # a name of the catalog
        except asyncpg.InsufficientPrivilegeError:
            return False
        return True


@contextmanager
def world(server: Server, folder: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[World]:
    """Yield a world whose database and role are dropped at the end."""
    with server.database() as url:
        address = unbound(url).replace("+asyncpg", "")
        made = World(server, address, f"agent_{secrets.token_hex(6)}", folder, capsys)
        made.sql(TABLES)
        try:
            yield made
        finally:
            made.sql(
                *(
                    f"DO $$ BEGIN IF EXISTS (SELECT FROM pg_roles WHERE rolname = '{role}') THEN "
                    f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}; END IF; END $$"
                    for role in (":login_group", ":login")  # a test may have made the group
                )
            )


async def _execute(url: str, texts: list[str]) -> None:
    connection = await asyncpg.connect(url)
    try:
        for text in texts:
            await connection.execute(text)
    finally:
        await connection.close()


async def _fetch(url: str, query: str) -> list[tuple[Any, ...]]:
    connection = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(query)]
    finally:
        await connection.close()
