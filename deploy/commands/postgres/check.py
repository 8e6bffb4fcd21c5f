"""`sluice postgres check`, also `sluice doctor --postgres`: compares what the login can reach in
the server with what the policies allow.

Asks the server's catalog alone, in one transaction that can only read. Exit code 0 without
findings, 1 with findings, 2 if policies or the server can't be read.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from deploy.commands.client import output
from deploy.commands.client.output import safe
from deploy.commands.policy.text import AddCommand
from deploy.commands.postgres.catalog_check import CatalogCheck, CheckContext
from deploy.commands.postgres.code_checks import CODE_CHECKS
from deploy.commands.postgres.permitted import add_policies, read_permissions
from deploy.commands.postgres.plan import add_columns
from deploy.commands.postgres.relation_checks import RELATION_CHECKS
from deploy.commands.postgres.relations import decide, parse_relations, read_columns
from deploy.commands.postgres.role_checks import ATTRIBUTES, MEMBERSHIPS, ROLE_CHECKS
from deploy.commands.postgres.server import Rows, add_server, fetch, read_dsn
from deploy.commands.postgres.source import add_source, read_source
from policies.ground.doctor_finding import DoctorFinding, as_lines, ordered

CHECKS: tuple[CatalogCheck, ...] = (*ROLE_CHECKS, *RELATION_CHECKS, *CODE_CHECKS)
# A superuser has every right, so only these say something about one.
_OF_SUPERUSERS = (ATTRIBUTES, MEMBERSHIPS)
MOST = 100
"""The most findings of one check that are shown."""


def add(add_command: AddCommand) -> None:
    """Add the command `check` and its options."""
    command = add_command("check", "compare a server with the policies, and find ways around them")
    add_source(command)
    add_policies(command)
    add_columns(command)
    add_server(command)
    command.add_argument("--json", action="store_true", help="print the findings as JSON")
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    source = read_source(options)
    permissions = read_permissions(options)
    columns = read_columns(options.columns)
    queries = {check.name: check.query for check in CHECKS}
    state = fetch(read_dsn(options), source.database, source.login, queries)
    relations = parse_relations(state.relations)
    context = CheckContext(source, decide(relations, source, permissions, columns))
    findings = examine(state.rows, context)
    print((_as_json if options.json else _as_text)(findings))
    return 1 if findings else 0


def examine(rows: Mapping[str, Rows], context: CheckContext) -> list[DoctorFinding]:
    """Return the findings in the rows of all checks, which are keyed by the check's name; the most
    severe first."""
    superuser = any(row["rolsuper"] for row in rows[ATTRIBUTES.name])
    checks = _OF_SUPERUSERS if superuser else CHECKS
    return ordered(found for check in checks for found in _found(check, rows[check.name], context))


def _found(check: CatalogCheck, rows: Rows, context: CheckContext) -> Iterator[DoctorFinding]:
    findings = iter(check.findings([*rows], context))
    for each in islice(findings, MOST):
        yield each._replace(check=check.name)
    if left := sum(1 for _ in findings):
        yield each._replace(
            check=check.name,
            seen=f"{left:,} more like these",
            do="repair those that are shown, and run this again",
        )


def _as_text(findings: Sequence[DoctorFinding]) -> str:
    if not findings:
        return "found nothing that the policies don't allow"
    # Names in a database have many authors.
    return as_lines(findings, safe)


def _as_json(findings: Sequence[DoctorFinding]) -> str:
    rows = [
        {
            "check": each.check,
            "severity": each.severity.value,
            "seen": each.seen,
            "why": each.why,
            "do": each.do,
        }
        for each in findings
    ]
    return output.as_json({"findings": rows})
