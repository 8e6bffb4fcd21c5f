"""The indices of SQL, PPL and ES|QL are those that the servers' grammars would read
(opensearch-project/sql, Elasticsearch's EsqlBaseParser); an unclear query is denied."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sidecar.protocols.opensearch.languages.piped import indices_of_esql, indices_of_ppl
from sidecar.protocols.opensearch.languages.sql import indices_of_sql
from sidecar.protocols.protocol import Unresolved
from tests.sidecar.protocols.minimal import Minimal
from tests.sidecar.protocols.opensearch.front import fronting, named_server, refused


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("SELECT * FROM a", ["a"]),
        ("select x from Logs-2024.01.01-000001 where y = 'from b'", ["Logs-2024.01.01-000001"]),
        ("SELECT * FROM `a b`, \"c*\" t, d AS u;", ["a b", "c*", "d"]),
        ("SELECT * FROM a*", ["a*"]),
        ("SELECT *from a", ["a"]),
        ("SELECT a.x FROM a JOIN b ON a.x = b.x, c WHERE a.y IN (SELECT z FROM d)", ["a", "b",
        "c", "d"]),
        ("SELECT x FROM (SELECT x FROM a, b) t, c", ["a", "b", "c"]),
        ("SELECT x FROM a LEFT JOIN (SELECT y FROM b) u ON u.y = a.x", ["a", "b"]),
        ("SELECT x FROM a UNION ALL SELECT x FROM b", ["a", "b"]),
        ("SELECT x FROM a e, e.parts p", ["a", "e.parts"]),
        ("SELECT EXTRACT(YEAR FROM ts) FROM a", ["ts", "a"]),
        ("SELECT 'it''s from b' FROM a GROUP BY x, y ORDER BY x, y", ["a"]),
        ("SELECT x FROM a WHERE MATCH(text, \"letters from b, c\") AND f(x, y) > 1", ["a"]),
    ],
)  # fmt: skip
def test_the_indices_of_an_sql_query_are_found(query: str, found: list[str]) -> None:
    assert indices_of_sql(query) == found


@pytest.mark.parametrize(
    "query",
    [
        "", "SHOW TABLES LIKE '%'", "DESCRIBE TABLES LIKE 'a'", "DELETE FROM a", "SELECT 1",
        "SELECT * FROM a -- , b", "SELECT * /*! HINT */ FROM a", "SELECT * FROM a # b",
        "SELECT * FROM a; SELECT * FROM b", "SELECT * FROM FROZEN b", "SELECT 1from b FROM a",
        "SELECT 1.from b", "SELECT 'a\\' FROM b --' FROM a", "SELECT * FROM a/type",
        "SELECT * FROM c:a",
        "SELECT * FROM a . b", "SELECT * FROM \"a\".b", "SELECT * FROM f('a')",
        "SELECT * FROM a TABLESAMPLE (1)",
        "SELECT * FROM a PIVOT (x FOR y IN (1))", "SELECT * FROM (a)", "SELECT * FROM a b c",
        "SELECT * FROM", "SELECT * FROM a,", "SELECT * FROM a JOIN", "SELECT x FROM a)",
        "SELECT x FROM (SELECT y FROM a",
        "ſELECT * FROM a", "SELECT * ﬀROM a", "SELECT * FROM\u00a0a", "SELECT 'a\n' FROM a",
        "SELECT 0x1 FROM a",
        "SELECT * INTO b FROM a", "WITH x AS (SELECT 1) SELECT * FROM a", "SELECT * FROM {oj a}",
        "SELECT * FROM 'a",
        "EXPLAIN SELECT * FROM a", "SELECT * FROM a LATERAL VIEW x", "SELECT * FROM <a-{now/d}>",
    ],
)  # fmt: skip
def test_an_unclear_sql_query_is_unresolved(query: str) -> None:
    with pytest.raises(Unresolved):
        indices_of_sql(query)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("source=a", ["a"]),
        ("search source = a, b-2024.01* | where x = 'source=c' | head 5 from 10", ["a",
        "b-2024.01*"]),
        ("index=`a b` as t | fields x, y", ["a b"]),
        ("source=a status=200 OR (x = 'y') | stats count() by x", ["a"]),
        ("source=a | where source = 'web'", ["a"]),
        ("source=a | lookup b id as x replace name | sort - x", ["a", "b"]),
        ("source=a | where x in [ source=b | fields x ] | top 3 x", ["a", "b"]),
        ("source=a | where exists [ search source=b | where y in [ source=c ] ]", ["a", "b", "c"]),
        ("source=[ source=a | head 1 ] as t | fields x", ["a"]),
        ("source=a | join left=l, right=r on l.x = r.x b", ["a", "b"]),
        ("source=a | left join on l.x = r.x [ source=b | fields x ] as t", ["a", "b"]),
        ("source=a | inner join on x = 'c d' b, c as t | head 1", ["a", "b", "c"]),
        ("source=a | join b as t", ["a", "b"]),
        ("source=a | join x, y b", ["a", "b"]),
        ("source=a | where multi_match([x, y^2], 'source=b')", ["a"]),
        ("source=a | parse m '.+@(?<h>.+)' | eval y = x * 2 | rename y as z", ["a"]),
    ],
)  # fmt: skip
def test_the_indices_of_a_ppl_query_are_found(query: str, found: list[str]) -> None:
    assert indices_of_ppl(query) == found


@pytest.mark.parametrize(
    "query",
    [
        "", "describe a", "show datasources", "explain source=a", "x = 1 source=a",
        "source=a source=b",
        "source=a | append [ source=b ]", "source=a | appendcol [ stats count() ]",
        "source=a | ml x=1",
        "source=a | join on x = y", "source=a | join on x = y . b",
        "source=a | where x in [ y = 1 source=b ]",
        "source=a // | lookup b x", "source=a /* */ | lookup b x", "source=f(x)", "source=c:a",
        "source=a . b",
        "source=a | where x in [ source=b", "source=a ] | lookup b x", "source=a as | lookup b x",
        "ſource=a",
        "source=a | search source=b", "source=a; source=b", "source=a | lookup b",
        "source=a | lookup b, c x",
        "source=a | where x = 'a\\' | lookup b x'", "source=a | newcommand b",
        "source=a | graphlookup b x",
        "| source=a", "source=`a`.b", "source=\"a", "source=a | join as t",
        "source=a | left join on x = y [ source=b ] c",
    ],
)  # fmt: skip
def test_an_unclear_ppl_query_is_unresolved(query: str) -> None:
    with pytest.raises(Unresolved):
        indices_of_ppl(query)


@pytest.mark.parametrize(
    ("query", "found", "policies"),
    [
        ("FROM a", ["a"], []),
        ('from a-2024.01.01, "b", c METADATA _id, _index | LIMIT 1', ["a-2024.01.01", "b",
        "c"], []),
        ('FROM a | WHERE t == "it\'s FROM b | LOOKUP JOIN c" | KEEP x, y*', ["a"], []),
        ("FROM a | LOOKUP JOIN b ON x | STATS n = COUNT(*) BY y", ["a", "b"], []),
        ("FROM a | ENRICH p ON x WITH y | INLINE STATS z = MAX(y)", ["a"], ["p"]),
        ("FROM a | ENRICH p", ["a"], ["p"]),
        ("FROM a | EVAL b = `x y` + 1 | RENAME b AS c | SORT c DESC NULLS LAST", ["a"], []),
    ],
)  # fmt: skip
def test_the_indices_and_policies_of_an_esql_query_are_found(
    query: str, found: list[str], policies: list[str]
) -> None:
    assert indices_of_esql(query) == (found, policies)


@pytest.mark.parametrize(
    "query",
    [
        "", "ROW x = 1", "SHOW INFO", "TS a", "SET x = 1; FROM a", "FROM a; FROM b",
        "EXPLAIN [FROM a]",
        "FROM a, (FROM b)", "FROM a | FORK (WHERE x) (LOOKUP JOIN b ON y)",
        "FROM a | WHERE x IN (FROM b)",
        "FROM a // | LOOKUP JOIN b ON x", "FROM a /* */ | LIMIT 1", "FROM a b",
        "FROM a 'x , secret'",
        "FROM `a , secret`", "FROM 'x', b", "FROM c:a", "FROM a::data", "FROM <a-{now/d}>",
        "FROM a [METADATA _id]",
        'FROM a | WHERE x == """a"b""" | LOOKUP JOIN b ON x | WHERE y == """c"""',
        'FROM a | WHERE x == "a\\" | LOOKUP JOIN b ON x | WHERE y == "', "FROM a | LOOKUP b ON x",
        "FROM a | LOOKUP JOIN b AS c ON x", "FROM a | ENRICH _any:p", "FROM a | ENRICH ?p",
        "FROM ?a",
        "FROM a | COMPLETION x = y WITH z", "FROM a | RERANK x", "FROM a | NEWCOMMAND b",
        "FROM a |",
        "FROM a | KEEP x' | LOOKUP JOIN b ON y | WHERE c == '", "PROMQL index=b x",
        "FROM a | WHERE lookup",
    ],
)  # fmt: skip
def test_an_unclear_esql_query_is_unresolved(query: str) -> None:
    with pytest.raises(Unresolved):
        indices_of_esql(query)


def test_a_query_is_of_limited_length() -> None:
    for read, query in (
        (indices_of_sql, "SELECT * FROM a"),
        (indices_of_ppl, "source=a"),
        (indices_of_esql, "FROM a"),
    ):
        with pytest.raises(Unresolved, match="longer than 16384"):
            read(query + " " * 16_384)


@pytest.fixture
async def front(tmp_path: Path) -> AsyncIterator[Minimal]:
    server = named_server()
    server.policies = {"mine": ["open_more"], "theirs": ["shut_docs"]}
    async with fronting(tmp_path, server) as front:
        yield front


async def test_a_query_is_judged_by_what_it_reads(front: Minimal) -> None:
    for target, query in (
        ("/_plugins/_sql", "SELECT page FROM open_docs, docs"),
        ("/_sql?format=json", "SELECT page FROM open_d*"),
        ("/_plugins/_ppl", "source=open_docs | fields page"),
        ("/_query", "FROM open_docs | ENRICH mine | LIMIT 1"),
    ):
        assert (await front.ask("POST", target, {"query": query})).status == 200, query
    assert {decision for decision, _ in await front.sources()} == {"ALLOW"}
    front.upstream.seen.clear()
    for target, query in (
        ("/_plugins/_sql", "SELECT page FROM open_docs JOIN shut_docs ON x = y"),
        ("/_opendistro/_sql", "SELECT page FROM open_alias"),
        ("/_plugins/_sql/_explain", "SELECT page FROM shut_docs"),
        ("/_sql", 'SELECT page FROM "shut_d*"'),
        ("/_sql/translate", "SELECT page FROM shut_docs"),
        ("/_plugins/_ppl", "source=open_docs | lookup shut_docs page"),
        ("/_plugins/_ppl/_explain", "source=shut_docs"),
        ("/_query", "FROM open_docs, shut_docs"),
        ("/_query/async", "FROM open_docs | LOOKUP JOIN shut_docs ON page"),
        ("/_query", "FROM open_docs | ENRICH theirs"),
    ):
        before = [line for line in front.lines if "_enrich" not in line]
        assert (await front.ask("POST", target, {"query": query})).status == 403, query
        assert [
            line for line in front.lines if "_enrich" not in line and "_resolve" not in line
        ] == []
        assert (await front.sources())[-1] == ("DENY", "opensearch://kb/shut_docs"), (query, before)


async def test_a_query_with_unknown_sources_is_denied(front: Minimal) -> None:
    for target, body in (
        # No index has this name: the language may have a view or another data source of that name.
        ("/_plugins/_sql", {"query": "SELECT * FROM open_none"}),
        ("/_plugins/_ppl", {"query": "source=prometheus.open"}),
        ("/_query", {"query": "FROM open_d*"}),
        ("/_query", {"query": "FROM open_docs | ENRICH unknown"}),
        ("/_query", {"query": "FROM open_docs", "tables": {}}),
        ("/_query", {"query": "FROM open_docs", "project_routing": "x"}),
        ("/_sql", {"query": "SELECT * FROM open_docs", "catalog": "other"}),
    ):
        assert (await front.ask("POST", target, body)).status == 403, body
    records = await front.sidecar.decisions()
    assert {name for _, name, _ in records} == {"unresolved_source"}
    front.upstream.seen.clear()
    looked = {"terms": {"page": {"index": "shut_docs", "id": "1", "path": "page"}}}
    beside = {"query": "SELECT page FROM open_docs", "filter": looked}
    await refused(front, ("POST", "/_plugins/_sql", beside), source="shut_docs")
    for target in ("/_plugins/_sql", "/_plugins/_ppl", "/_sql", "/_query"):
        for unreadable in (b"{}", b'{"query": null}', b'{"query": 1}', b'{"query": ["FROM a"]}'):
            await refused(front, ("POST", target, unreadable), "unreadable_request", 400)
