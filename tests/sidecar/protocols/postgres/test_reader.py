"""What a text of SQL is taken for: class, verb, names. Tables of texts, without a server."""

from __future__ import annotations

import pytest

from sidecar.protocols.postgres.calls import value_refusal
from sidecar.protocols.postgres.functions import AllowedFunctions
from sidecar.protocols.postgres.names import QualifiedName
from sidecar.protocols.postgres.parameters import Setting
from sidecar.protocols.postgres.parser import Unreadable
from sidecar.protocols.postgres.query import Rules
from sidecar.protocols.postgres.reader import read_statements
from sidecar.protocols.postgres.statement import Fetch, Statement, Verb
from sidecar.protocols.protocol import RouteClass


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
    "SELECT XMLELEMENT(NAME x, XMLATTRIBUTES((TABLE a) AS y), (TABLE b)), XMLFOREST((TABLE c) AS z)"
    ", XMLSERIALIZE(CONTENT (TABLE d) AS text), XMLPARSE(DOCUMENT (TABLE e))": "a b c d e",
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


def test_what_current_setting_shows_is_judged_by_its_value() -> None:
    [statement] = read_statements("SELECT current_setting($2::varchar), $1, current_setting('jit')")
    assert statement.shown_parameters == (2,)
    for value in (None, b"default_table_access_method", b"TimeZone"):
        assert value_refusal(value) is None
    for value in (b"app.tenant", b"all", b"", b"\x01jit", b"16384", "größe".encode()):
        assert value_refusal(value)


def test_explain_says_which_prepared_statement_it_executes() -> None:
    for text in ("EXECUTE kept(1)", "EXPLAIN VERBOSE EXECUTE kept(1)"):
        [statement] = read_statements(text)
        assert statement.executed == "kept"
    [statement] = read_statements("PREPARE kept AS SELECT 1")
    assert statement.executed is None


def test_a_statement_names_the_relations_that_the_grammar_sees() -> None:
    for text, named in RELATIONS.items():
        found = sorted(map(str, one(text).relations))
        assert found == sorted(named.split()), text


OPEN, RETRIEVE, WRITE = RouteClass.OPEN, RouteClass.RETRIEVE, RouteClass.WRITE
BULK, CLOSED = RouteClass.BULK, RouteClass.ADMIN

# The class, its verb, and texts that have both.
CLASSES: list[tuple[RouteClass, Verb, list[str]]] = [
    (
        RETRIEVE,
        Verb.QUERY,
        [
            "SELECT a FROM t",
            "VALUES (1 + 1)",
            "TABLE t",
            "WITH x AS (SELECT 1) SELECT * FROM x, t",
            "SELECT now()",
            "SELECT set_config('search_path', '', false)",
            "SELECT current_setting($1), current_setting($2::varchar, true)",
            "SELECT current_setting('jit') AS cur, set_config('jit', $1::text, false) AS new",
            "SELECT pg_catalog.set_config('jit'::pg_catalog.text, 'off', true)",
            "SELECT pg_get_viewdef('v'::regclass), has_table_privilege('t', 'select')",
            "SELECT (information_schema._pg_expandarray(ARRAY[1])).n",
            "SELECT ts_rewrite('a'::tsquery, 'a'::tsquery, 'b'::tsquery)",
            "SELECT unaccent(a) % b, embedding <=> $1::vector(3) FROM t",
        ],
    ),
    (OPEN, Verb.QUERY, ["SELECT 1", "SELECT pg_catalog.pg_advisory_unlock_all()", "SELECT $1"]),
    (
        WRITE,
        Verb.QUERY,
        [
            "INSERT INTO t VALUES (1)",
            "INSERT INTO t SELECT 1 ON CONFLICT (a) DO UPDATE SET a = 1 RETURNING *",
            "UPDATE t SET a = 1 WHERE CURRENT OF c",
            "DELETE FROM t",
            "MERGE INTO t USING u ON true WHEN MATCHED THEN DELETE RETURNING merge_action(), t.*",
            "WITH x AS (DELETE FROM t RETURNING *) SELECT * FROM x",
            "SELECT * FROM t FOR UPDATE",
            "SELECT * FROM t FOR NO KEY UPDATE OF t SKIP LOCKED",
            "SELECT (SELECT 1 FROM t FOR SHARE)",
            "WITH x AS (SELECT 1 FROM t FOR KEY SHARE) SELECT * FROM x",
            "SELECT 1 UNION (SELECT a FROM t FOR UPDATE)",
            "SELECT nextval('s')",
        ],
    ),
    (
        CLOSED,
        Verb.QUERY,
        [
            "SELECT * INTO x FROM t",
            "(SELECT * INTO TEMP x FROM t)",
            "SELECT pg_read_file('/etc/passwd')",
            "SELECT * FROM pg_ls_dir('.')",
            "SELECT pg_catalog.lo_import('/etc/passwd')",
            "SELECT dblink('', 'SELECT 1')",
            "SELECT * FROM public.dblink('', '') AS t(a int)",
            "SELECT query_to_xml('TABLE t', true, false, '')",
            "SELECT ts_stat('TABLE t')",
            "SELECT ts_rewrite('a'::tsquery, 'TABLE t')",
            "SELECT pg_sleep(1)",
            "SELECT pg_advisory_lock(1)",
            "SELECT currval('s'), setval('s', 1)",
            "SELECT pg_relation_size('t')",
            "SELECT pg_stat_get_live_tuples(1)",
            "SELECT pg_input_is_valid('a', 'int')",
            "SELECT pg_notify('a', 'b')",
            "SELECT pg_export_snapshot()",
            "SELECT pg_terminate_backend(1)",
            "SELECT my_function()",
            "SELECT public.upper('a')",
            "SELECT set_config('role', 'other', false)",
            "SELECT set_config('ROLE', 'other', false)",
            "SELECT set_config('app.tenant', '1', false)",
            "SELECT set_config('sluice.user_id', 'bob', false)",
            "SELECT set_config('max_parallel_workers_per_gather', '2', true)",
            "SELECT set_config('standard_conforming_strings', 'off', true)",
            "SELECT set_config('statement_timeout', $1, true)",
            "SELECT set_config('jit', (SELECT a FROM t), true)",
            "SELECT set_config($1, 'x', false)",
            "SELECT set_config('ro' || 'le', 'x', false)",
            "SELECT set_config('role'::mine.text, 'x', false)",
            "SELECT set_config(is_local => false, new_value => 'x', setting_name => 'role')",
            "SELECT set_config(VARIADIC ARRAY['role', 'x'])",
            "SELECT current_setting('app.key')",
            "SELECT current_setting($1 || 'x')",
            "SELECT current_setting('app.jit'::varchar(3))",
            "SELECT current_setting($1::varchar(3))",
            "SELECT current_setting('app.' || $1)",
            "SELECT * FROM t TABLESAMPLE mine(1)",
        ],
    ),
    (
        CLOSED,
        Verb.CLOSED,
        [
            "CREATE TABLE x AS SELECT 1",
            "CREATE VIEW v AS SELECT 1",
            "REFRESH MATERIALIZED VIEW v",
            "DO $$ BEGIN END $$",
            "CALL p()",
            "LISTEN c",
            "NOTIFY c",
            "LOCK t",
            "GRANT SELECT ON t TO PUBLIC",
            "ALTER SYSTEM SET jit = off",
            "ALTER ROLE a SET search_path = b",
            "VACUUM t",
            "ANALYZE t",
            "LOAD 'x'",
            "TRUNCATE t",
            "SET CONSTRAINTS ALL DEFERRED",
            "PREPARE TRANSACTION 'x'",
            "COMMIT PREPARED 'x'",
            "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; END",
            "SECURITY LABEL ON TABLE t IS 'x'",
            "COPY t TO '/tmp/x'",
            "COPY t FROM PROGRAM 'x'",
            "COPY (SELECT 1) TO PROGRAM 'x'",
            "RESET role",
            "RESET app.x",
        ],
    ),
    (RETRIEVE, Verb.EXPLAIN, ["EXPLAIN TABLE t", "EXPLAIN (ANALYZE, FORMAT json) TABLE t"]),
    (
        WRITE,
        Verb.EXPLAIN,
        ["EXPLAIN DELETE FROM t", "EXPLAIN ANALYZE VERBOSE INSERT INTO t TABLE u"],
    ),
    (
        RETRIEVE,
        Verb.EXPLAIN,
        ["EXPLAIN ANALYZE EXECUTE p(1)", "EXPLAIN DECLARE c CURSOR FOR TABLE t"],
    ),
    (
        CLOSED,
        Verb.EXPLAIN,
        [
            "EXPLAIN CREATE TABLE x AS TABLE t",
            "EXPLAIN REFRESH MATERIALIZED VIEW v",
            "EXPLAIN (NEWER) TABLE t",
            "EXPLAIN SELECT pg_sleep(1)",
            "EXPLAIN DECLARE c CURSOR WITH HOLD FOR TABLE t",
        ],
    ),
    (RETRIEVE, Verb.DECLARE, ["DECLARE c BINARY SCROLL CURSOR FOR TABLE t"]),
    (WRITE, Verb.DECLARE, ["DECLARE c CURSOR FOR SELECT * FROM t FOR UPDATE"]),
    (
        CLOSED,
        Verb.DECLARE,
        ["DECLARE c CURSOR WITH HOLD FOR TABLE t", "DECLARE c CURSOR FOR SELECT lastval()"],
    ),
    (RETRIEVE, Verb.FETCH, ["FETCH 5 FROM c"]),
    (RETRIEVE, Verb.MOVE, ["MOVE ALL IN c"]),
    (OPEN, Verb.CLOSE, ["CLOSE c", "CLOSE ALL"]),
    (RETRIEVE, Verb.PREPARE, ["PREPARE p (int) AS SELECT $1"]),
    (CLOSED, Verb.PREPARE, ["PREPARE p AS SELECT current_setting($1)"]),
    (WRITE, Verb.PREPARE, ["PREPARE p AS DELETE FROM t"]),
    (RETRIEVE, Verb.EXECUTE, ["EXECUTE p", "EXECUTE p(1, upper('a'))"]),
    (CLOSED, Verb.EXECUTE, ["EXECUTE p(pg_read_file('x'))"]),
    (OPEN, Verb.DEALLOCATE, ["DEALLOCATE p", "DEALLOCATE PREPARE ALL"]),
    (OPEN, Verb.BEGIN, ["BEGIN", "START TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY"]),
    (OPEN, Verb.COMMIT, ["COMMIT", "END", "COMMIT AND CHAIN"]),
    (OPEN, Verb.ROLLBACK, ["ROLLBACK", "ABORT"]),
    (OPEN, Verb.SAVEPOINT, ["SAVEPOINT s"]),
    (OPEN, Verb.RELEASE, ["RELEASE s"]),
    (OPEN, Verb.ROLLBACK_TO, ["ROLLBACK TO SAVEPOINT s"]),
    (
        OPEN,
        Verb.SET,
        [
            "SET search_path = a, b",
            "SET LOCAL TIME ZONE 'UTC'",
            "SET TIME ZONE INTERVAL '1' HOUR TO MINUTE",
            "SET NAMES 'utf8'",
            "SET SCHEMA 'a'",
            "SET TRANSACTION READ ONLY",
            "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ",
            "SET statement_timeout = '5s'",
            "SET hnsw.ef_search = 40",
            "SET sluice.\"user\" = 'a b'",
            "SET LOCAL sluice.task = 'x'",
            "SET sluice.session_id TO DEFAULT",
        ],
    ),
    (
        CLOSED,
        Verb.SET,
        [
            "SET ROLE other",
            "SET LOCAL ROLE NONE",
            'SET "Role" = x',
            "SET SESSION AUTHORIZATION other",
            "SET NAMES 'latin1'",
            "SET client_encoding TO sjis",
            "SET standard_conforming_strings = off",
            "SET backslash_quote = on",
            "SET max_parallel_workers_per_gather = 2",
            "SET session_replication_role = replica",
            "SET TRANSACTION SNAPSHOT 'x'",
            "SET app.tenant = 1",
            "SET sluice.other = 1",
            "SET sluice.user_id = ''",
        ],
    ),
    (OPEN, Verb.RESET, ["RESET ALL", "RESET statement_timeout", "RESET sluice.user_id"]),
    (OPEN, Verb.SHOW, ["SHOW search_path", "SHOW TRANSACTION ISOLATION LEVEL"]),
    (CLOSED, Verb.SHOW, ["SHOW ALL", "SHOW app.key"]),
    (OPEN, Verb.DISCARD, ["DISCARD ALL", "DISCARD PLANS"]),
    (OPEN, Verb.UNLISTEN, ["UNLISTEN *"]),
    (BULK, Verb.COPY_OUT, ["COPY t TO STDOUT", "COPY (SELECT 1) TO STDOUT (FORMAT csv)"]),
    (BULK, Verb.COPY_IN, ["COPY t (a) FROM STDIN WHERE a > 1"]),
    (CLOSED, Verb.COPY_OUT, ["COPY (SELECT pg_sleep(1)) TO STDOUT"]),
]


def test_a_statement_has_its_class_and_its_verb() -> None:
    for route_class, verb, texts in CLASSES:
        for text in texts:
            statement = one(text)
            assert (statement.route_class, statement.verb) == (route_class, verb), text
            assert (statement.closed is not None) == (route_class is CLOSED), text


# A text, and what is expected of its statement.
MEMBERS: list[tuple[str, dict[str, object]]] = [
    ("INSERT INTO a.t SELECT * FROM u", {"targets": (QualifiedName("a", "t"),)}),
    ("SELECT * FROM t FOR SHARE", {"row_lock": True, "targets": (), "returns_rows": True}),
    ("DELETE FROM t RETURNING a", {"returns_rows": True}),
    ("DELETE FROM t", {"returns_rows": False}),
    ("EXPLAIN DELETE FROM t", {"returns_rows": True, "analyze": False}),
    ("EXPLAIN (ANALYZE ON) TABLE t", {"analyze": True}),
    ("EXPLAIN (ANALYZE, ANALYZE 0) TABLE t", {"analyze": True}),
    ("EXPLAIN (ANALYZE off, TIMING) TABLE t", {"analyze": False}),
    ("EXPLAIN (ANALYZE 0) TABLE t", {"analyze": False}),
    ("SELECT $3, $1", {"parameters": 3}),
    ("SELECT current_setting($2::varchar), $1", {"shown_parameters": (2,), "parameters": 2}),
    ("FETCH c", {"fetch": Fetch("forward", 1), "name": "c", "returns_rows": True}),
    ("FETCH BACKWARD ALL FROM c", {"fetch": Fetch("backward", None)}),
    ("MOVE ABSOLUTE 0 IN c", {"fetch": Fetch("absolute", 0), "returns_rows": False}),
    ("CLOSE ALL", {"name": None}),
    ('CLOSE "C"', {"name": "C"}),
    ("DEALLOCATE ALL", {"name": None}),
    ("DISCARD TEMP", {"name": "temp"}),
    ("SAVEPOINT S", {"name": "s"}),
    ("RESET ALL", {"name": None}),
    ("SHOW TimeZone", {"name": "timezone", "returns_rows": True}),
    ("SET search_path = a, 'B c'", {"setting": Setting("search_path", "a, B c")}),
    ("SET LOCAL jit TO off", {"setting": Setting("jit", "off", local=True)}),
    ("SET extra_float_digits = -1", {"setting": Setting("extra_float_digits", "-1")}),
    ("SET geqo_threshold = 0", {"setting": Setting("geqo_threshold", "0")}),
    ("SET jit = true", {"setting": Setting("jit", "true")}),
    ("SET jit TO DEFAULT", {"setting": Setting("jit", None)}),
    ("SET SESSION sluice.user_id = 'bob'", {"setting": Setting("sluice.user_id", "bob")}),
    ("SELECT upper(a)", {"functions": (QualifiedName(None, "upper"),), "foreign": False}),
    ("SELECT CURRENT_USER", {"functions": (), "operators": ()}),
    ("SELECT JSON_SCALAR(1)", {"functions": (QualifiedName(None, "json_scalar"),)}),
    ("SELECT a OPERATOR(x.+) b", {"operators": (QualifiedName("x", "+"),), "foreign": True}),
    ("SELECT a <=> b", {"foreign": False, "extension_names": (QualifiedName(None, "<=>"),)}),
    ("SELECT a <<<< b", {"foreign": True}),
    ("SELECT a IN (1)", {"operators": (QualifiedName(None, "="),)}),
    ("SELECT a LIKE 'b'", {"operators": (QualifiedName(None, "~~"),)}),
    ("SELECT CASE a WHEN 1 THEN 2 END", {"operators": (QualifiedName(None, "="),)}),
    ("SELECT 1 FROM t JOIN u USING (a)", {"operators": (QualifiedName(None, "="),)}),
    ("SELECT a > ANY (TABLE t)", {"operators": (QualifiedName(None, ">"),)}),
    ("SELECT a FROM t ORDER BY a USING <<<", {"operators": (QualifiedName(None, "<<<"),)}),
    ("SELECT a::hr.payroll", {"types": (QualifiedName("hr", "payroll"),), "foreign": True}),
    ("SELECT a::int[]", {"types": (QualifiedName("pg_catalog", "int4"),), "foreign": False}),
    ("SELECT a::int2vector, a::_text", {"foreign": False}),
    ("SELECT t.a, (t).b, t.*, c FROM t", {"fields": ("a", "b")}),
    ("PREPARE p (hr.x) AS SELECT 1", {"name": "p", "foreign": True, "returns_rows": False}),
]


def test_a_statement_has_what_a_session_needs_to_know_of_it() -> None:
    for text, expected in MEMBERS:
        statement = one(text)
        assert {name: getattr(statement, name) for name in expected} == expected, text
    inner = one("DECLARE c CURSOR FOR TABLE t").inner
    assert inner is not None
    assert (inner.verb, list(map(str, inner.relations))) == (Verb.QUERY, ["t"])


def test_the_operator_s_own_functions_and_limits_count() -> None:
    rules = Rules(AllowedFunctions(["public.search_*", "api.find"]), {"statement_timeout": 5000})
    called = one("SELECT search_articles('a'), api.find(1)", rules)
    assert called.route_class is RETRIEVE
    assert called.foreign
    assert list(map(str, called.allowed_names)) == ["search_articles", "api.find"]
    for text in (
        "SELECT hr.search_articles('a')",
        "SELECT api.finder(1)",
        "SELECT public.dblink()",
    ):
        assert one(text, rules).route_class is CLOSED, text
    for value in ("'5s'", "4999", "1"):
        assert one(f"SET statement_timeout = {value}", rules).route_class is OPEN, value
    for value in ("'6s'", "5001", "0", "'0.4'", "'1 h'", "-1", "'x'"):
        assert one(f"SET statement_timeout = {value}", rules).route_class is CLOSED, value
    assert one("SET statement_timeout TO DEFAULT", rules).route_class is OPEN
    closed = one("SELECT set_config('statement_timeout', '0', false)", rules).closed
    assert closed is not None
    assert closed.reason == "`statement_timeout` may only be lowered, below 5000 ms"


def test_several_statements_are_read_only_if_all_are_open() -> None:
    reset = "SELECT pg_advisory_unlock_all();\nCLOSE ALL;\nUNLISTEN *;\nRESET ALL; -- end"
    found = read_statements(reset)
    assert [each.verb for each in found] == [Verb.QUERY, Verb.CLOSE, Verb.UNLISTEN, Verb.RESET]
    assert [each.text for each in found[:2]] == [
        "SELECT pg_advisory_unlock_all()",
        "CLOSE ALL",
    ]
    assert read_statements(" /* none */ ;; -- none") == ()
    for text in ("SELECT 1; TABLE t", "BEGIN; DELETE FROM t; COMMIT", "COMMIT; DO 'x'"):
        with pytest.raises(Unreadable, match="several statements"):
            read_statements(text)


def test_a_statement_s_own_limits() -> None:
    many = "SELECT 1 FROM " + ", ".join(f"t{number}" for number in range(65))
    for text in ("SELECT $1001", many, ";".join(["BEGIN"] * 101)):
        with pytest.raises(Unreadable, match="more than"):
            read_statements(text)
