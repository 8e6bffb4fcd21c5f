"""What a text of SQL is taken for: class, verb, names. Tables of texts, without a server."""

from __future__ import annotations

from sidecar.protocols.postgres.query import Rules
from sidecar.protocols.postgres.reader import read_statements
from sidecar.protocols.postgres.statement import Statement


def one(text: str, rules: Rules | None = None) -> Statement:
    [statement] = read_statements(text) if rules is None else read_statements(text, rules)
    return statement


# Text: the relations that it names.
RELATIONS = {
    "SELECT 1": "",
    "SELECT * FROM t": "t",
    "SELECT * FROM ONLY s.t AS u": "s.t",
    "SELECT * FROM db.s.t": "s.t",
    'SELECT * FROM "a.b"."C.d"': "a.b.C.d",
    r'SELECT * FROM U&"s\0065cret"."t"': "secret.t",
    r"""SELECT * FROM U&"s!0065cret" UESCAPE '!'.t""": "secret.t",
    "SELECT * FROM Secret.T": "secret.t",
    "TABLE t": "t",
    "SELECT 1 WHERE 1 IN (TABLE t)": "t",
    "SELECT EXISTS (SELECT FROM t)": "t",
    "SELECT ARRAY(SELECT a FROM t)": "t",
    "SELECT 1 WHERE (1, 2) = (SELECT a, b FROM t)": "t",
    "SELECT 1 FROM a JOIN b USING (x) NATURAL JOIN c CROSS JOIN (d JOIN e ON true)": "a b c d e",
    "SELECT 1 FROM a, LATERAL (SELECT * FROM b WHERE b.x = a.x) c": "a b",
    "SELECT 1 UNION SELECT 2 FROM a EXCEPT (SELECT 3 FROM b INTERSECT TABLE c)": "a b c",
    "SELECT 1 ORDER BY (SELECT 1 FROM a) LIMIT (SELECT 1 FROM b) OFFSET (SELECT 1 FROM c)": "a b c",
    "SELECT 1 GROUP BY GROUPING SETS ((a), (SELECT 1 FROM t)) HAVING (SELECT true FROM u)": "t u",
    "SELECT sum(a) FILTER (WHERE (SELECT true FROM t)) OVER (ORDER BY (SELECT 1 FROM u))": "t u",
    "SELECT 1 FROM t WINDOW w AS (PARTITION BY (SELECT 1 FROM u))": "t u",
    "SELECT DISTINCT ON ((SELECT 1 FROM t)) 1": "t",
    "SELECT CASE (SELECT 1 FROM a) WHEN (SELECT 1 FROM b) THEN (TABLE c) ELSE (TABLE d) END": (
        "a b c d"
    ),
    "SELECT COALESCE((TABLE a), GREATEST((TABLE b))), ROW((TABLE c)), (TABLE d)::text": "a b c d",
    "SELECT x[(SELECT 1 FROM a):(SELECT 1 FROM b)] FROM t": "a b t",
    "SELECT lower(x => (SELECT 1 FROM t))": "t",
    "SELECT string_agg('a', ',' ORDER BY (SELECT 1 FROM t))": "t",
    "SELECT * FROM generate_series(1, (SELECT 1 FROM t))": "t",
    "SELECT * FROM ROWS FROM (upper((TABLE a)), lower((TABLE b))) WITH ORDINALITY": "a b",
    "SELECT * FROM t TABLESAMPLE system ((SELECT 1 FROM u))": "t u",
    "SELECT * FROM JSON_TABLE((TABLE a), '$' PASSING (TABLE b) AS v COLUMNS (x int PATH '$.x'"
    " DEFAULT (TABLE c) ON EMPTY, NESTED PATH '$.y' COLUMNS (y int DEFAULT (TABLE d) ON ERROR)))": (
        "a b c d"
    ),
    "SELECT JSON_VALUE((TABLE a), '$' DEFAULT (TABLE b) ON ERROR), JSON_QUERY((TABLE c), '$'),"
    " JSON_EXISTS((TABLE d), '$'), JSON_OBJECT((TABLE e): (TABLE f)), JSON_ARRAY(SELECT g FROM g),"
    " JSON_ARRAYAGG((TABLE h)), JSON_OBJECTAGG('k': (TABLE i)), JSON((TABLE j)),"
    " JSON_SCALAR((TABLE k)), JSON_SERIALIZE((TABLE l)), (TABLE m) IS JSON": (
        "a b c d e f g h i j k l m"
    ),
    "SELECT * FROM XMLTABLE(XMLNAMESPACES('u' AS u), (TABLE a) PASSING (TABLE b)"
    " COLUMNS x int PATH '@x' DEFAULT (TABLE c))": "a b c",
    "SELECT XMLELEMENT(NAME x, XMLATTRIBUTES((TABLE a) AS y), (TABLE b)), XMLFOREST((TABLE c) AS z),"
    " XMLSERIALIZE(CONTENT (TABLE d) AS text), XMLPARSE(DOCUMENT (TABLE e))": "a b c d e",
    "VALUES ((SELECT 1 FROM a)), ((TABLE b))": "a b",
    # CTEs.
    "WITH a AS (SELECT 1) SELECT * FROM a": "",
    "WITH a AS (SELECT 1) SELECT * FROM s.a": "s.a",
    "WITH a AS (SELECT * FROM a) SELECT * FROM a": "a",
    "WITH a AS (SELECT * FROM b), b AS (SELECT * FROM a) SELECT * FROM a, b": "b",
    "WITH RECURSIVE a AS (SELECT * FROM b), b AS (SELECT * FROM a) SELECT * FROM a, b": "",
    "WITH RECURSIVE a AS (SELECT 1 UNION SELECT x FROM a, c) SELECT * FROM a": "c",
    "SELECT * FROM a, (WITH a AS (SELECT 1) SELECT * FROM a) b": "a",
    "WITH a AS (WITH b AS (SELECT 1) TABLE b) SELECT * FROM a, b": "b",
    "(WITH a AS (SELECT 1) TABLE a) UNION TABLE a": "a",
    "WITH a AS (SELECT 1) SELECT (SELECT x FROM (SELECT * FROM a JOIN t ON true) b)": "t",
    "WITH a(x) AS (SELECT 1) SEARCH DEPTH FIRST BY x SET o SELECT * FROM a": "",
    'WITH "A" AS (SELECT 1) SELECT * FROM a, "A"': "a",
    "WITH a AS (SELECT 1) INSERT INTO a SELECT * FROM a": "a",
    "WITH a AS (SELECT 1) UPDATE a SET x = 1 FROM a b": "a",
    "WITH a AS (SELECT 1) DELETE FROM a USING a b": "a",
    "WITH a AS (SELECT 1) MERGE INTO a USING a b ON true WHEN MATCHED THEN DO NOTHING": "a",
    "WITH a AS (SELECT 1) SELECT * FROM t FOR UPDATE OF t": "t",
    "EXPLAIN WITH a AS (TABLE b) TABLE a": "b",
    "DECLARE c CURSOR FOR TABLE t": "t",
    "PREPARE p AS TABLE t": "t",
    "COPY (TABLE t) TO STDOUT": "t",
    "COPY s.t (a) TO STDOUT": "s.t",
    "SELECT 'hr.payroll'::regclass, $$TABLE a$$, $x$;TABLE b$x$ /* TABLE c /* d */ */ -- TABLE": "",
}


def test_a_statement_names_the_relations_that_the_grammar_sees() -> None:
    for text, named in RELATIONS.items():
        found = sorted(map(str, one(text).relations))
        assert found == sorted(named.split()), text
