"""Asks the server which relations the transaction has touched.

A look is a statement of ours, in the agent's transaction, between the agent's own messages:

    locks       what this backend has locked: every relation that a statement names or reaches stays
                locked until the transaction ends, so it can't be replaced or renamed in between
    counters    which relations were scanned, or had blocks fetched: a function that catches its own
                error releases its locks, but is still counted
    names       what relations are called, by their oids
    resolve     which relations the names in a text stand for
    probe       whether a name in a text may stand for code that is not the server's own

Every name in these statements is qualified: the agent may change `search_path`, and a database may
have namesakes. Knows what is asked and how the answer reads. Knows nothing of what is allowed.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from sidecar.postgres import frontend
from sidecar.postgres.backend import rows
from sidecar.postgres.frames import Frame
from sidecar.protocols.postgres.names import QualifiedName
from sidecar.protocols.postgres.statement import Statement
from sidecar.proxy.postgres.conversation import COMPLETE, ROW, OwnStatements, Step

FIRST_NORMAL_OID = 16384
"""The first oid that is not one of the server's own catalog (PostgreSQL, access/transam.h)."""

_PARTS = ("i", "I", "t", "c")


class Relation(NamedTuple):
    """A relation that the server reports."""

    oid: int
    schema: str | None
    """The name of its schema; None if the server can't name the relation."""
    name: str | None
    kind: str
    """The letter of its kind in `pg_class.relkind`; empty if it is unknown."""
    plain: bool
    """True for a table or a materialized view that is read without anything else being read or run:
    it has no row policies, rules, partitions or children, and no code but the server's own in its
    columns, checks, indexes and statistics."""

    @property
    def part(self) -> bool:
        """True for what holds no rows of its own: an index, or what holds the long values of a
        table, whose table is locked too; and a composite type."""
        return self.kind in _PARTS


TRUSTED_EXTENSIONS = (
    "btree_gin", "btree_gist", "citext", "cube", "fuzzystrmatch", "hstore", "intarray", "ltree",
    "pg_trgm", "pgcrypto", "unaccent", "uuid-ossp", "vector",
)  # fmt: skip
"""The extensions whose code reads no relation, so that it counts as the server's own."""

_OF_EXTENSION = """EXISTS (SELECT 1 FROM pg_catalog.pg_depend AS d
  JOIN pg_catalog.pg_extension AS e ON e.oid OPERATOR(pg_catalog.=) d.refobjid
  WHERE d.classid OPERATOR(pg_catalog.=) 'pg_catalog.{catalog}'::pg_catalog.regclass
    AND d.objid OPERATOR(pg_catalog.=) {oid}
    AND d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_extension'::pg_catalog.regclass
    AND d.deptype OPERATOR(pg_catalog.=) 'e'::pg_catalog."char"
    AND e.extname OPERATOR(pg_catalog.=) ANY ('{{extensions}}'::pg_catalog.name[]))""".replace(
    "{{extensions}}", "{{" + ",".join(f'"{each}"' for each in TRUSTED_EXTENSIONS) + "}}"
)
_TRUSTED_TYPE = _OF_EXTENSION.format(catalog="pg_type", oid="t.atttypid")

# The names are those in the text, and of the operators behind its syntax. A namesake may be chosen
# in place of the server's own, by the types of its arguments or by `search_path`.
_PROBE = f"""
SELECT pg_catalog.current_setting('sluice.snapshot', true)
    OPERATOR(pg_catalog.<>) pg_catalog.pg_current_snapshot()::pg_catalog.text,
  pg_catalog.current_setting('transaction_isolation')
    OPERATOR(pg_catalog.<>) 'read committed'
  OR EXISTS (SELECT 1 FROM pg_catalog.pg_proc AS p
    WHERE p.proname OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.name[])
      AND p.oid OPERATOR(pg_catalog.>=) '16384'::pg_catalog.oid
      AND NOT {_OF_EXTENSION.format(catalog="pg_proc", oid="p.oid")})
  OR EXISTS (SELECT 1 FROM pg_catalog.pg_operator AS o
    WHERE o.oprname OPERATOR(pg_catalog.=) ANY ($2::pg_catalog.name[])
      AND o.oid OPERATOR(pg_catalog.>=) '16384'::pg_catalog.oid
      AND NOT {_OF_EXTENSION.format(catalog="pg_operator", oid="o.oid")})
  OR EXISTS (SELECT 1 FROM pg_catalog.pg_type AS y
    WHERE y.typname OPERATOR(pg_catalog.=) ANY ($3::pg_catalog.name[])
      AND y.oid OPERATOR(pg_catalog.>=) '16384'::pg_catalog.oid
      AND NOT {_OF_EXTENSION.format(catalog="pg_type", oid="y.oid")})
  OR EXISTS (SELECT 1 FROM pg_catalog.unnest($4::pg_catalog.oid[]) AS u(oid)
    WHERE NOT {_OF_EXTENSION.format(catalog="pg_type", oid="u.oid")})
  OR EXISTS (SELECT 1 FROM pg_catalog.pg_cast AS k
    WHERE k.castfunc OPERATOR(pg_catalog.>=) '16384'::pg_catalog.oid
      AND NOT {_OF_EXTENSION.format(catalog="pg_cast", oid="k.oid")})"""  # noqa: S608

# What is committed in between changes the snapshot.
_NOTED = """
SELECT pg_catalog.set_config('sluice.snapshot',
  pg_catalog.pg_current_snapshot()::pg_catalog.text, true)"""

# `pg_identify_object_as_address` names a relation as it is now, and takes its names apart. A join
# with `pg_class` would name it as of the transaction's snapshot, or not at all.
_NAMED = """
SELECT l.oid, a.object_names[1], a.object_names[2],
  c.relkind, c.relkind OPERATOR(pg_catalog.=) ANY ('{r,m}'::pg_catalog."char"[])
    AND NOT (c.relrowsecurity OR c.relhasrules OR c.relhassubclass)
    AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_attribute AS t
      WHERE t.attrelid OPERATOR(pg_catalog.=) c.oid AND t.attnum OPERATOR(pg_catalog.>) 0
        AND (t.attgenerated OPERATOR(pg_catalog.=) 'v'::pg_catalog."char"
          OR (t.atttypid OPERATOR(pg_catalog.>=) '16384'::pg_catalog.oid
            AND NOT $type)))
    AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_index AS x
      WHERE x.indrelid OPERATOR(pg_catalog.=) c.oid
        AND (x.indexprs IS NOT NULL OR x.indpred IS NOT NULL))
    AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_statistic_ext AS x
      WHERE x.stxrelid OPERATOR(pg_catalog.=) c.oid AND x.stxexprs IS NOT NULL)
    AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_constraint AS x
      JOIN pg_catalog.pg_depend AS d ON d.objid OPERATOR(pg_catalog.=) x.oid
        AND d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_constraint'::pg_catalog.regclass
      WHERE x.conrelid OPERATOR(pg_catalog.=) c.oid
        AND x.contype OPERATOR(pg_catalog.=) 'c'::pg_catalog."char"
        AND d.refclassid OPERATOR(pg_catalog.=) ANY
          ('{pg_catalog.pg_proc,pg_catalog.pg_operator}'::pg_catalog.regclass[]))
FROM (@) AS l LEFT JOIN pg_catalog.pg_class AS c ON c.oid OPERATOR(pg_catalog.=) l.oid
CROSS JOIN LATERAL
  pg_catalog.pg_identify_object_as_address('pg_catalog.pg_class'::pg_catalog.regclass, l.oid, 0)
  AS a""".replace("$type", _TRUSTED_TYPE)

# The function behind the view `pg_locks`, which would itself be locked.
_LOCKED = """
SELECT DISTINCT k.relation AS oid FROM pg_catalog.pg_lock_status() AS k
WHERE k.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()
  AND k.locktype OPERATOR(pg_catalog.=) 'relation'
  AND (k.relation OPERATOR(pg_catalog.>=) '16384'::pg_catalog.oid
    OR k.relation OPERATOR(pg_catalog.=) ANY ('{closed}'::pg_catalog.oid[]))"""

# The owner of an index, or of a relation that holds long values of another, is what was read.
_OWNED = """
SELECT DISTINCT COALESCE(
  (SELECT x.indrelid FROM pg_catalog.pg_index AS x
   WHERE x.indexrelid OPERATOR(pg_catalog.=) o.oid),
  (SELECT t.oid FROM pg_catalog.pg_class AS t
   WHERE t.reltoastrelid OPERATOR(pg_catalog.=) o.oid),
  (SELECT t.oid FROM pg_catalog.pg_index AS x, pg_catalog.pg_class AS t
   WHERE x.indexrelid OPERATOR(pg_catalog.=) o.oid
     AND t.reltoastrelid OPERATOR(pg_catalog.=) x.indrelid),
  o.oid) AS oid
FROM pg_catalog.unnest($1::pg_catalog.oid[]) AS o(oid)"""

# An empty table has no blocks, and is scanned all the same.
_COUNTED = """
SELECT s.oid, s.count FROM (
  SELECT c.oid, pg_catalog.pg_stat_get_xact_blocks_fetched(c.oid)
    OPERATOR(pg_catalog.+) pg_catalog.pg_stat_get_xact_numscans(c.oid) AS count
  FROM pg_catalog.pg_class AS c
  WHERE c.relkind OPERATOR(pg_catalog.=) ANY ('{r,m,i,t,S}'::pg_catalog."char"[])
    AND c.oid OPERATOR(pg_catalog.>=) '16384'::pg_catalog.oid) AS s
WHERE s.count OPERATOR(pg_catalog.>) 0"""

_RESOLVED = """
SELECT DISTINCT r.oid FROM
  (SELECT pg_catalog.to_regclass(n.name)::pg_catalog.oid AS oid
   FROM pg_catalog.unnest($1::pg_catalog.text[]) AS n(name)) AS r
WHERE r.oid IS NOT NULL
UNION
SELECT y.typrelid FROM pg_catalog.pg_proc AS p
JOIN pg_catalog.pg_type AS y ON y.oid OPERATOR(pg_catalog.=) p.prorettype
WHERE p.proname OPERATOR(pg_catalog.=) ANY ($2::pg_catalog.name[])
  AND y.typrelid OPERATOR(pg_catalog.>=) '16384'::pg_catalog.oid"""

# What the rules of a view name. A function in it may read more, which no look at an error can tell.
_BEHIND = """
WITH RECURSIVE r(oid) AS (
  SELECT pg_catalog.to_regclass(n.name)::pg_catalog.oid
  FROM pg_catalog.unnest($1::pg_catalog.text[]) AS n(name)
  UNION
  SELECT d.refobjid FROM r
  JOIN pg_catalog.pg_rewrite AS w ON w.ev_class OPERATOR(pg_catalog.=) r.oid
  JOIN pg_catalog.pg_depend AS d ON d.objid OPERATOR(pg_catalog.=) w.oid
    AND d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_rewrite'::pg_catalog.regclass
    AND d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass)
SELECT r.oid FROM r WHERE r.oid IS NOT NULL"""

_FUNCTIONS = """
SELECT DISTINCT n.nspname, p.proname FROM pg_catalog.pg_proc AS p
JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) p.pronamespace
WHERE p.proname OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.name[])"""

# Relations of the catalog; and what has an oid of the catalog's, but is not in its schemas. Only a
# server in single-user mode makes such things, so there are none later if there are none now.
_CATALOG = """
SELECT o.oid, n.nspname, o.name, o.kind, false FROM (
  SELECT c.oid, c.relnamespace AS space, c.relname AS name, c.relkind AS kind
  FROM pg_catalog.pg_class AS c
  UNION ALL SELECT p.oid, p.pronamespace, p.proname, 'x' FROM pg_catalog.pg_proc AS p
  UNION ALL SELECT p.oid, p.oprnamespace, p.oprname, 'x' FROM pg_catalog.pg_operator AS p
  UNION ALL SELECT y.oid, y.typnamespace, y.typname, 'x' FROM pg_catalog.pg_type AS y) AS o
JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) o.space
WHERE o.oid OPERATOR(pg_catalog.<) '16384'::pg_catalog.oid
  AND (o.kind OPERATOR(pg_catalog.=) ANY ('{r,v}'::pg_catalog."char"[])
    OR n.nspname OPERATOR(pg_catalog.<>) ALL
      ('{pg_catalog,information_schema,pg_toast}'::pg_catalog.name[]))"""

OWN_SCHEMAS = ("pg_catalog", "information_schema", "pg_toast")
"""The schemas of the server's own catalog."""


def texts(closed: Iterable[int]) -> dict[str, str]:
    """Return the texts of the looks by their names. `closed` are the oids of the catalog's
    relations that a look has to report."""
    oids = ",".join(map(str, sorted(closed)))
    locked = _LOCKED.replace("{closed}", f"{{{oids}}}")
    return {
        "locks": _NAMED.replace("@", locked),
        "counters": _COUNTED,
        "names": _NAMED.replace("@", _OWNED),
        "resolve": _NAMED.replace("@", _RESOLVED),
        "behind": _NAMED.replace("@", _BEHIND),
        "note": _NOTED,
        "probe": _PROBE,
        "functions": _FUNCTIONS,
    }


def catalog() -> Step:
    """Return the step that lists the relations of the server's own catalog."""
    data = frontend.prepare(b"", _CATALOG.encode()) + frontend.bind(b"", b"")
    return Step(data + frontend.execute(b""), (COMPLETE,))


class Looks:
    """Makes the steps of a session's looks. `own` are our statements, by the names in `texts`."""

    def __init__(self, own: OwnStatements) -> None:
        self._own = own

    def locks(self) -> Step:
        """Return the step that lists the relations which this backend has locked."""
        return self._own.run("locks")

    def counters(self) -> Step:
        """Return the step that counts the scans of each relation, and the blocks fetched."""
        return self._own.run("counters")

    def names(self, oids: Iterable[int]) -> Step:
        """Return the step that names relations by their oids; an index counts as its table."""
        return self._own.run("names", "{" + ",".join(map(str, oids)) + "}")

    def resolve(self, named: Iterable[QualifiedName], functions: Iterable[str] = ()) -> Step:
        """Return the step that finds the relations which names in a text stand for, and those whose
        rows the functions of the database with these names return. A name that stands for none is
        left out of the answer."""
        return self._own.run("resolve", _array(map(_quoted, named)), _array(functions))

    def behind(self, named: Iterable[QualifiedName]) -> Step:
        """Return the step that finds, besides those, the relations that views among them are made
        from, and so on."""
        return self._own.run("behind", _array(_quoted(each) for each in named))

    def functions(self, names: Iterable[str]) -> Step:
        """Return the step that lists the schemas and names of all functions with these names."""
        return self._own.run("functions", _array(names))

    def note(self) -> Step:
        """Return the step that notes what is committed now, for a later `probe`."""
        return self._own.run("note")

    def probe(self, statement: Statement, parameters: Iterable[int]) -> Step:
        """Return the step that tells whether a name in a statement may stand for code that is
        neither the server's own nor that of a trusted extension. `parameters` are the oids of types
        of its parameters that are not the server's own."""
        # `t.f` calls the function `f`, if `t` has no such column.
        functions = {*(each.name for each in statement.functions), *statement.fields}
        operators = {each.name for each in statement.operators}
        types = {each.name for each in statement.types}
        oids = "{" + ",".join(map(str, parameters)) + "}"
        return self._own.run(
            "probe", *(_array(sorted(each)) for each in (functions, operators, types)), oids
        )


class Probed(NamedTuple):
    """The answer to `probe`."""

    foreign: bool
    """True if a name may stand for foreign code."""
    changed: bool
    """True if something was committed since the last `note`."""


def probed(frames: Iterable[Frame]) -> Probed:
    """Return the answer to `probe`; both are true if there is none."""
    answers = list(_rows(frames))
    if len(answers) != 1:
        return Probed(foreign=True, changed=True)
    changed, foreign = answers[0]
    return Probed(foreign=foreign != "f", changed=changed != "f")


def qualified(frames: Iterable[Frame]) -> list[QualifiedName]:
    """Return the names in the answer to `functions`."""
    return [QualifiedName(schema, name or "") for schema, name in _rows(frames)]


def relations(frames: Iterable[Frame]) -> list[Relation]:
    """Return the relations in the answer to `locks`, `names` or `resolve`."""
    found = []
    for oid, schema, name, kind, plain in _rows(frames):
        found.append(Relation(int(oid or 0), schema, name, kind or "", plain == "t"))
    return found


def counts(frames: Iterable[Frame]) -> dict[int, int]:
    """Return the counts in the answer to `counters`, by oid."""
    return {int(oid or 0): int(count or 0) for oid, count in _rows(frames)}


def risen(before: Mapping[int, int], after: Mapping[int, int]) -> list[int]:
    """Return the oids whose count rose."""
    # A count may also fall: the server adds it to its statistics now and then, and starts anew.
    return [oid for oid, count in after.items() if count != before.get(oid, 0)]


def _rows(frames: Iterable[Frame]) -> Iterator[tuple[str | None, ...]]:
    for frame in frames:
        if frame.kind == ROW:
            for values in rows(frame):
                yield tuple(map(_text, values))


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "surrogateescape")


def _quoted(name: QualifiedName) -> str:
    parts = (part for part in name if part is not None)
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def _array(texts: Iterable[str]) -> str:
    return "{" + ",".join(_element(each) for each in texts) + "}"


def _element(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
