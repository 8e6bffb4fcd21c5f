"""The relations of a database, and which of them the login may read by the policies.

A relation may be read if it is allowed itself, and so is everything that reading it reaches: the
relations of a view, and the partitions and children of a table, whose rows the server gives out
without asking for rights on them. A view that `through_views` names stands for what it reads.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from deploy.commands.policy.sources import Unusable
from deploy.commands.postgres.permitted import Permissions
from deploy.commands.postgres.source import PostgresSource

Name = tuple[str, str]
"""The name of a schema, and that of an object in it."""

OWN_SCHEMA = "sluice"
"""The schema that `sluice postgres identity` makes. No policy opens anything in it."""

SECRET_CATALOGS = (
    "pg_authid", "pg_hba_file_rules", "pg_file_settings", "pg_largeobject", "pg_shadow",
    "pg_statistic", "pg_statistic_ext_data", "pg_subscription", "pg_user_mapping",
)  # fmt: skip
"""Relations of `pg_catalog` that hold data or secrets, which the server opens to no one."""

_SECRET = ", ".join(f"'{each}'" for each in SECRET_CATALOGS)
# The server notes no dependency on its own catalogs, so those are looked for in the view's tree.
QUERY = f"""\
SELECT coalesce(json_agg(json_build_object(
  'schema', n.nspname, 'name', c.relname, 'kind', c.relkind,
  'columns', ARRAY(
    SELECT a.attname FROM pg_catalog.pg_attribute AS a
    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum),
  'reaches', ARRAY(
    SELECT ARRAY[rn.nspname, r.relname] FROM (
      SELECT i.inhrelid AS oid FROM pg_catalog.pg_inherits AS i WHERE i.inhparent = c.oid
      UNION
      SELECT d.refobjid FROM pg_catalog.pg_rewrite AS w
      JOIN pg_catalog.pg_depend AS d
        ON d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass AND d.objid = w.oid
        AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass
      WHERE w.ev_class = c.oid AND d.refobjid <> c.oid
      UNION
      SELECT s.oid FROM pg_catalog.pg_rewrite AS w, pg_catalog.pg_class AS s
      WHERE w.ev_class = c.oid AND s.relnamespace = 'pg_catalog'::pg_catalog.regnamespace
        AND s.relname IN ({_SECRET})
        AND w.ev_action::pg_catalog.text LIKE '% :relid ' || s.oid || ' %') AS reached
    JOIN pg_catalog.pg_class AS r ON r.oid = reached.oid
    JOIN pg_catalog.pg_namespace AS rn ON rn.oid = r.relnamespace
    WHERE rn.nspname NOT IN ('pg_catalog', 'information_schema')
      OR r.relname IN ({_SECRET})
    ORDER BY 1)
) ORDER BY n.nspname, c.relname), '[]')::pg_catalog.text
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
  AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
  AND n.nspname !~ '^pg_(toast_)?temp_'"""
"""Lists the database's relations as one JSON text, in the form that `parse_relations` reads. Each
name is qualified: whatever the session's `search_path` is, it asks the server's own catalog."""


class Relation(NamedTuple):
    """A table, view, materialized view, foreign table, sequence or partition. `kind` is its
    `relkind`; `reaches` names the relations that are read with it."""

    name: Name
    kind: str
    columns: tuple[str, ...]
    reaches: tuple[Name, ...]


class RelationAccess(NamedTuple):
    """What the policies say about a relation. `policy` is the name of one that allows it, None if
    none does. `barred_by` is a relation that is reached through it and not allowed. `columns` are
    those that were asked for, None for all."""

    relation: Relation
    source_id: str
    level: str
    policy: str | None
    barred_by: Name | None = None
    columns: tuple[str, ...] | None = None

    @property
    def granted(self) -> bool:
        return self.policy is not None and self.barred_by is None


AccessByName = Mapping[Name, RelationAccess]


def parse_relations(text: str) -> list[Relation]:
    """Parse what `QUERY` returns. Raises `Unusable` for another form."""
    try:
        return [
            Relation(
                (str(row["schema"]), str(row["name"])),
                str(row["kind"]),
                tuple(map(str, row["columns"])),
                tuple((str(schema), str(name)) for schema, name in row["reaches"]),
            )
            for row in json.loads(text)
        ]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Unusable(
            "the list of relations has another form: make it with `sluice postgres relations`"
        ) from error


def decide(
    relations: Iterable[Relation],
    source: PostgresSource,
    permissions: Permissions,
    columns: Mapping[Name, tuple[str, ...]],
) -> dict[Name, RelationAccess]:
    """Return what the policies say about each relation. Raises `Unusable` if `columns` names what
    is not there or not granted."""
    found: dict[Name, RelationAccess] = {}
    for each in relations:
        named = source.named(*each.name)
        own = each.name[0] == OWN_SCHEMA
        policy = None if own else permissions.allowed_by(named.source_id, named.level)
        found[each.name] = RelationAccess(each, named.source_id, named.level, policy)
    allowed = {name for name, each in found.items() if each.policy is not None}
    known = {name: each.relation for name, each in found.items()}
    for name in allowed:
        barred = next((each for each in _reached(name, known, source) if each not in allowed), None)
        found[name] = found[name]._replace(barred_by=barred)
    for name, chosen in columns.items():
        _check_columns(name, chosen, found)
        found[name] = found[name]._replace(columns=chosen)
    return found


def _reached(name: Name, known: Mapping[Name, Relation], source: PostgresSource) -> Iterator[Name]:
    """Yield the relations that reading `name` reaches, in order, each once."""
    seen = {name}
    waiting = [name]
    while waiting:
        current = waiting.pop()
        relation = known.get(current)
        if relation is None or (relation.kind in "vm" and source.through(*current)):
            continue
        for each in relation.reaches:
            if each not in seen:
                seen.add(each)
                waiting.append(each)
                yield each


def _check_columns(
    name: Name, chosen: tuple[str, ...], found: Mapping[Name, RelationAccess]
) -> None:
    told = ".".join(name)
    if name not in found or not found[name].granted:
        raise Unusable(f"--columns: the policies don't open a relation `{told:.130}`")
    unknown = [each for each in chosen if each not in found[name].relation.columns]
    if unknown:
        raise Unusable(f"--columns: `{told:.130}` has no column `{unknown[0]:.63}`")


def read_columns(texts: Iterable[str]) -> dict[Name, tuple[str, ...]]:
    """Parse the values of `--columns`, each `SCHEMA.RELATION=COLUMN,…`. Raises `Unusable`."""
    found: dict[Name, tuple[str, ...]] = {}
    for text in texts:
        relation, _, listed = text.partition("=")
        schema, _, name = relation.partition(".")
        columns = tuple(each.strip() for each in listed.split(","))
        if not schema or not name or not all(columns):
            raise Unusable(f"--columns: `{text:.130}` is not SCHEMA.RELATION=COLUMN,…")
        if (schema, name) in found:
            raise Unusable(f"--columns: `{relation:.130}` is named twice")
        found[schema, name] = columns
    return found


def row_of(access: RelationAccess) -> dict[str, Any]:
    """Return what the policies say about a relation as a JSON object."""
    return {
        "schema": access.relation.name[0],
        "relation": access.relation.name[1],
        "source_id": access.source_id,
        "level": access.level,
        "granted": access.granted,
        "policy": access.policy,
        "barred_by": None if access.barred_by is None else list(access.barred_by),
        "columns": None if access.columns is None else list(access.columns),
    }
