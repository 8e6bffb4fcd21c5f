"""What the checks of a server are made of: a query of its catalog, and a function that turns its
rows into findings.

Each query has one argument, the login's oid, and begins with `REACH`: the login, and every role
that it is a member of, directly or through others, whether or not it inherits their rights, since
`SET ROLE` may give them.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from deploy.commands.postgres.relations import AccessByName
from deploy.commands.postgres.source import PostgresSource
from deploy.commands.postgres.sql_text import identifier
from policies.ground.doctor_finding import DoctorFinding

Row = Mapping[str, Any]

REACH = """\
WITH RECURSIVE reach(oid) AS (
  SELECT $1::oid
  UNION SELECT m.roleid FROM pg_auth_members AS m JOIN reach ON m.member = reach.oid)
"""
IN_REACH = "(a.grantee = 0 OR a.grantee IN (SELECT oid FROM reach))"
"""Whether a right, a row `a` of `aclexplode`, is PUBLIC's or that of a role in reach."""
GRANTEE = "CASE a.grantee WHEN 0 THEN NULL ELSE pg_get_userbyid(a.grantee)::text END AS grantee"
"""The role that has a right; null for PUBLIC."""
NOT_SYSTEM = "n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')"


def not_of_extension(catalog: str, oid: str) -> str:
    """Return a condition: the object `oid` of the system table `catalog` belongs to no
    extension."""
    return (
        "NOT EXISTS (SELECT FROM pg_depend AS e WHERE e.deptype = 'e' "
        f"AND e.classid = '{catalog}'::regclass AND e.objid = {oid})"
    )


class CheckContext(NamedTuple):
    """What the checks compare the server with."""

    source: PostgresSource
    access: AccessByName

    @property
    def login(self) -> str:
        """The login, quoted."""
        return identifier(self.source.login)


class CatalogCheck(NamedTuple):
    """One check: its name, the query, and what its rows mean."""

    name: str
    query: str
    findings: Callable[[list[Row], CheckContext], Iterable[DoctorFinding]]


def to_whom(row: Row) -> str:
    """Return the role that has a right, for a message."""
    return "PUBLIC" if row["grantee"] is None else f"the role `{row['grantee']}`"


def from_whom(row: Row) -> str:
    """Return the role that has a right, for a `REVOKE`."""
    return "PUBLIC" if row["grantee"] is None else identifier(row["grantee"])
