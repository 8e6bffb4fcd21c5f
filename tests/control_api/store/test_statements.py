"""The statements that the service sends to PostgreSQL when every operation runs once: each names
one tenant, except a short list that has to find the tenants first. Distribution by `tenant_id`
requires this."""

from __future__ import annotations

import ast
import asyncio
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from sqlalchemy import Engine, event

from control_api.alerts.deliver import delete_old_deliveries
from control_api.log.ingest import ingest
from control_api.log.rebuild import rebuild
from control_api.log.scheduled.loop import CountChecker
from control_api.log.scheduled.self_check import SelfChecker
from control_api.purge import purge
from control_api.registry.key_expiry import forget_expired_keys
from control_api.rollback_recovery import RollbackRecovery
from control_api.settings import Settings
from control_api.store.postgresql.engine import GRANTS
from control_api.store.queries import tree_nodes
from control_api.store.schema.tables import metadata
from control_api.store.transaction import Transaction
from policies.ground.clock import Clock
from policies.ground.ids import RandomBuffer
from policies.sets.policy_set import TENANT as TENANT_DOCUMENT
from policies.sets.policy_set import agent_name, key_name, session_name
from policies.trail.proofs.nodes import Node
from policies.trail.record import heartbeat_record
from tests.architecture.tree import ROOT
from tests.control_api.console.reader import Visitor
from tests.control_api.test_readme_curl import asked_by_commands
from tests.support import migrated
from tests.support.clusters import ISSUER, key_set, pod_token
from tests.support.control_api import ControlApi
from tests.support.open_store import TENANT, OpenStore, Spool, event_id, opened
from tests.support.postgres import serving, unbound
from tests.support.waiting import until

DAY, FIRED = 86_400, "/v1/alerts/fired"
TABLES = sorted(metadata.tables, key=len, reverse=True)
NAMED = re.compile(r"\b(?:FROM|JOIN|INTO|UPDATE) (" + "|".join(TABLES) + r")\b")
NOT_OF_ONE_TENANT = {
    "tenants.ids": r"SELECT tenants\.tenant_id FROM tenants ORDER BY tenants\.tenant_id",
    "tenants.known": r"SELECT tenants\.tenant_id, .*\.active FROM tenants ORDER BY .*tenant_id",
    "tenants.states": r"SELECT tenants\.tenant_id, .* WHERE tenants\.tenant_id IN \(",
    "tenants.page": r"SELECT tenants\.tenant_id, tenants\.name, .* ORDER BY tenants\.created_at",
    "tenants.find_by_name": r"SELECT tenants\.tenant_id FROM tenants WHERE tenants\.name = ",
    "alerts.watched": r"SELECT anon_1\.tenant_id, log_heads\.size FROM \(SELECT DISTINCT",
    "deliveries.due": r"SELECT alert_deliveries\.tenant_id, .* WHERE .*\.next_attempt_at <=",
    "export_positions.waiting": r"SELECT log_heads\.tenant_id, .* OUTER JOIN export_positions ",
    "impact_runs.due": r"SELECT impact_runs\.tenant_id, .* WHERE .*\.leased_until <=",
    "keys.tenant_of": r"SELECT api_keys\.tenant_id FROM api_keys WHERE api_keys\.digest = ",
    "loop.CheckpointLoop": r"SELECT log_heads\.tenant_id, .* WHERE log_heads\.last_ts >= ",
    "head_check.check_heads": r"SELECT log_heads\.tenant_id FROM log_heads WHERE .*tenant_id > ",
}
"""Keyed by the function that sends it."""


@contextmanager
def recorded() -> Iterator[set[str]]:
    """Every distinct statement that the store sends to PostgreSQL."""
    sent: set[str] = set()

    def note(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if connection.dialect.name == "postgresql":
            sent.add(" ".join(statement.split()))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(Engine, "before_cursor_execute", note)


@pytest.fixture(scope="module")
def walked(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[set[str]]:
    """Runs every operation of the README, a sidecar's records, retention and a second start."""
    from tests.support.run_servers import SERVERS

    directory = tmp_path_factory.mktemp("walked")
    with migrated.database(*pytestconfig.stash[SERVERS]) as owner:
        url = serving(owner)
        with recorded() as sent:
            walk(directory, url)
        yield {each for each in sent if NAMED.search(each)}


def walk(directory: Path, url: str) -> None:
    keys = directory / "jwks.json"
    keys.write_bytes(key_set())
    issuers = f"{ISSUER}={keys}"
    exports = f"file://{directory}/decisions.ndjson?format=ecs"
    settings = {"SLUICE_ENROL_ISSUERS": issuers, "SLUICE_EXPORT_URLS": exports}
    api = ControlApi(directory, database_url=url, **settings)
    api.time.ahead = -40 * DAY  # long enough ago that replaced documents go
    api.start()
    try:
        asked_by_commands(api, directory, "")
        rule = {
            "name": "any",
            "rule_type": "denial_spike",
            "threshold": 1,
            "email": "a@example.org",
        }
        api.admin("POST", "/v1/alerts/rules", rule)
        api.evaluate(session_id="s-old")
        api.evaluate(source_id="payroll")
        enrol(api)
        api.admin(
            "PUT",
            "/v1/settings/retention",
            {"retention_days": 1, "session_retention_days": 1},
        )
        # Before the console's steps move the clock on, and the denial out of the rule's window.
        until("an alert", lambda: any(each["last_error"] for each in api.admin("GET", FIRED)))
        use_console(api)
        time.sleep(1.2)  # let the background loops run
    finally:
        api.stop()
    clock = Clock(lambda: time.time_ns() // 1000, time.monotonic)
    assert asyncio.run(purge(api.settings, clock, RandomBuffer(os.urandom), None, lambda _: None))
    asyncio.run(_more(url, api.settings))


def enrol(api: ControlApi) -> None:
    """A pod enrols. Its two keys expire in the past, so `forget_expired_keys` deletes them."""
    workload = f"{ISSUER}:system:serviceaccount:lending:loans"
    api.approved("agt_pod", workload=workload)
    now = api.time.now() // 1_000_000
    token = pod_token(iat=now, nbf=now, exp=now + 600)
    answer = api.call("POST", "/v1/sidecars/enrol", {"token": token}, key=None)
    assert answer.status == 200, answer.raw
    assert answer.body["agent_key"]


def use_console(api: ControlApi) -> None:
    """A person signs in by a key and by a link, comes back later, and signs out; another session
    and a link reach their limits of time."""
    visitor = Visitor(api).sign_in(api.admin_key)
    api.time.ahead += 120  # so that the next use is noted
    page = visitor.get("/console/account")
    link, unused = (api.admin("POST", "/v1/console/sign-in-links") for _ in range(2))
    by_link = Visitor(api)
    code = link["url"].partition("#code=")[2]
    assert by_link.post("/console/sign-in/link", {"code": code}).status == 200
    visitor.submit(page, "/console/sign-out")
    assert unused["url"] != link["url"]
    api.time.ahead += DAY
    assert by_link.get("/console/account", follow=False).status == 303


async def _more(url: str, settings: Settings) -> None:
    async with opened(url) as world:
        spool = Spool()
        beat = spool.record(heartbeat_record(1, record_id=event_id()))
        await ingest(world.store, TENANT, spool.source, spool.instance, [beat])
        for records in (spool.records(count) for count in (3, *[1000] * 4)):
            for _ in range(2):  # the second time the rows exist
                await ingest(world.store, TENANT, spool.source, spool.instance, records)
        state, _ = await SelfChecker(world.store).step(TENANT, ())
        assert state is not None
        await compare_and_rebuild(world)
        await delete_old_deliveries(world.store, TENANT)
        await world.store.write(TENANT, store_node)
        assert await forget_expired_keys(world.store, TENANT) == 2
        # As if a head had been signed at revision 1,000,000, and the database put back since.
        lost = [key_name(bytes(32)), agent_name("agt_pod"), session_name("s-lost"), TENANT_DOCUMENT]
        await RollbackRecovery(world.store, settings, event_id).recover(TENANT, 1_000_000, lost)


async def compare_and_rebuild(world: OpenStore) -> None:
    """Lists and counts that somebody changed, by a connection that is not looked at."""
    connection = await asyncpg.connect(unbound(world.url).replace("+asyncpg", ""))
    for statement in (
        "UPDATE log_entries SET ts = ts - 1 WHERE seq % 1000 = 7",
        "UPDATE openings SET user_id = 'u-9' WHERE seq % 1000 = 7",
        "UPDATE log_entries SET eid = 'x' WHERE seq = 2000",
        "UPDATE log_spans SET last_ts = 0",
        "DELETE FROM tallies",
    ):
        await connection.execute(statement)
    await connection.close()
    assert (await CountChecker(world.store, os.urandom, 0.0).step(TENANT)).reason is not None
    done = await rebuild(world.store, TENANT, event_id, lambda _: None)
    assert min(done.rows, done.spans, done.counts) > 0


async def store_node(tx: Transaction) -> None:
    """As after 256 entries. Of no size that a proof needs: the log is shorter."""
    await tree_nodes.extend(tx.connection, tx.tenant_id, [(Node(8, 1_000_000), bytes(32))])


def test_every_statement_names_one_tenant_or_is_listed(walked: set[str]) -> None:
    assert len(walked) > 100
    used = set()
    for statement in walked:
        names = [n for n, form in NOT_OF_ONE_TENANT.items() if re.match(form, statement)]
        used.update(names)
        if not names:
            assert of_one_tenant(statement), statement
    # Every listed pattern is needed.
    assert used == set(NOT_OF_ONE_TENANT)


def of_one_tenant(statement: str) -> bool:
    """Whether a parameter gives the tenant, and every table is restricted to it."""
    if re.match(r"INSERT INTO \w+ \(tenant_id, .* VALUES", statement):
        return True
    said = re.search(r"\btenant_id = \$\d|\btenant_id\) = \$\d|\(tenant_id, |'' *$", statement)
    said = said or re.search(r"\.tenant_id, \w+\.\w+\) IN \(\(\$\d", statement)
    tables = set(NAMED.findall(statement)) - {"installation"}
    tied = all(
        re.search(rf"\b{table}(_\d)?\.tenant_id\b|\btenant_id\b", statement) for table in tables
    )
    return (said is not None or not tables) and tied


def test_no_statement_moves_a_row_to_another_tenant(walked: set[str]) -> None:
    for statement in walked:
        changed = re.search(r"\bUPDATE \w+ SET (.*?)( WHERE |$)", statement)
        assert changed is None or not re.search(r"\btenant_id *=", changed[1]), statement


def test_joins_do_not_cross_tenants(walked: set[str]) -> None:
    joins = [each for each in walked if " JOIN " in each]
    assert len(joins) > 5
    for statement in joins:
        for condition in re.findall(
            r" JOIN .*? ON (.*?)(?= LEFT| JOIN| WHERE| ORDER|$)", statement
        ):
            assert re.search(r"tenant_id = \w+\.tenant_id", condition), statement


def test_conflicts_do_not_cross_tenants(walked: set[str]) -> None:
    for statement in walked:
        for columns in re.findall(r"ON CONFLICT \((.*?)\)", statement):
            assert columns.startswith("tenant_id"), statement


def test_every_privilege_that_the_code_uses_is_granted() -> None:
    """Of statements that run rarely too: the walk above may miss one."""
    code = "\n".join(
        path.read_text()
        for path in sorted((ROOT / "control_api").rglob("*.py"))
        if "migrations" not in path.parts
    )
    # SQLAlchemy's functions take the table alone; an operation may be called `delete` too.
    form = r"(?<![.\w])(insert|update|delete)(?:_(?:into|if_absent)\(\s*(\w+)|\(\s*(\w+)\s*\))"
    written = [(verb, one or other) for verb, one, other in re.findall(form, code)]
    found = {(table, verb.upper()) for verb, table in written if table in GRANTS}
    assert len(found) > 60
    assert [each for each in sorted(found) if each[1] not in GRANTS[each[0]].split(", ")] == []


_BY_HAND = re.compile(r"tenant_id\)?\s*(?:==|!=)|(?:==|!=)\s*\(?[\w.]*tenant_id")
NO_QUERY = {"tx.tenant_id == SUPERADMIN_REALM", "keys.tenant_id == DEFAULT_TENANT"}


def test_no_query_compares_its_tenant_by_hand() -> None:
    """It goes through `of_tenant`, which alone knows the column."""
    found = set()
    for path in sorted((ROOT / "control_api").rglob("*.py")):
        code = path.read_text()
        # Few files have such text, and parsing all would take seconds.
        if "migrations" not in path.parts and _BY_HAND.search(code):
            found |= {ast.unparse(each) for each in ast.walk(ast.parse(code)) if _by_hand(each)}
    assert found - NO_QUERY == {"table.c.tenant_id == tenant_id"}


def _by_hand(node: ast.AST) -> bool:
    """Whether it compares an attribute or item `tenant_id`."""
    return isinstance(node, ast.Compare) and any(
        isinstance(side, ast.Attribute | ast.Subscript) and "tenant_id" in ast.unparse(side)
        for side in (node.left, *node.comparators)
        if isinstance(node.ops[0], ast.Eq | ast.NotEq)
    )


def test_only_used_privileges_are_granted(walked: set[str]) -> None:
    used: set[tuple[str, str]] = set()
    for statement in walked:
        for verb, form in (
            ("INSERT", r"INSERT INTO (\w+)"),
            ("UPDATE", r"UPDATE (\w+) SET"),
            ("DELETE", r"DELETE FROM (\w+)"),
        ):
            used.update((table, verb) for table in re.findall(form, statement))
        updating = re.findall(r"INSERT INTO (\w+)(?:(?!INSERT INTO).)*? DO UPDATE", statement)
        used.update((table, "UPDATE") for table in updating)
        if "FOR UPDATE" in statement:
            used.update((table, "UPDATE") for table in re.findall(r"FROM (\w+)", statement))
    granted = {
        (table, verb)
        for table, verbs in GRANTS.items()
        for verb in verbs.split(", ")
        if verb != "SELECT"
    }
    # Deletions after days or months of silence have tests of their own.
    later = {("alert_deliveries", "DELETE"), ("sidecars", "DELETE"), ("checkpoints", "DELETE")}
    # An id that moves to another key, and one that is free again after days.
    later |= {("sidecar_owners", "UPDATE"), ("sidecar_owners", "DELETE")}
    # The witnesses' cosignatures will come with this.
    later.add(("checkpoints", "UPDATE"))
    # Tables that no statement uses yet: each goes from here with the code that uses it.
    unused = {
        "incarnations",
    }
    assert sorted(each for each in granted - used - later if each[0] not in unused) == []
    assert {(table, verb) for table, verb in used if table in GRANTS} <= granted
