"""Whose code a name is, and the tables of names against those of a real server."""

from __future__ import annotations

import asyncpg
import pytest

from sidecar.protocols.postgres import catalog, extension_tables, function_tables
from sidecar.protocols.postgres.functions import (
    AllowedFunctions,
    Origin,
    judge_function,
    judge_operator,
    judge_type,
)
from sidecar.protocols.postgres.names import QualifiedName
from tests.sidecar.protocols.postgres import server_tables
from tests.support.postgres import unbound

NONE_ALLOWED = AllowedFunctions()

# The name, whose it is, and a part of the reason why it is closed; empty if it is open.
FUNCTIONS = (
    ("upper", Origin.BUILT_IN, ""),
    ("pg_catalog.upper", Origin.BUILT_IN, ""),
    ("public.upper", Origin.FOREIGN, "not known"),
    ("information_schema._pg_expandarray", Origin.BUILT_IN, ""),
    ("_pg_expandarray", Origin.FOREIGN, "not known"),
    ("pg_read_server_files", Origin.BUILT_IN, "files"),
    ("table_to_xml_and_xmlschema", Origin.BUILT_IN, "runs a query"),
    ("pg_advisory_unlock_all", Origin.BUILT_IN, ""),
    ("pg_advisory_unlock", Origin.BUILT_IN, "other sessions"),
    ("pg_try_advisory_xact_lock_shared", Origin.BUILT_IN, "other sessions"),
    ("pg_stat_file", Origin.BUILT_IN, "files"),
    ("pg_stat_reset", Origin.BUILT_IN, "statistics"),
    ("pg_drop_replication_slot", Origin.BUILT_IN, "replication"),
    ("pg_get_viewdef", Origin.BUILT_IN, ""),
    ("jsonb", Origin.BUILT_IN, ""),
    ("nextval", Origin.BUILT_IN, ""),
    ("Upper", Origin.FOREIGN, "not known"),
    ("similarity", Origin.EXTENSION, ""),
    ("ext.l2_distance", Origin.EXTENSION, ""),
    ("pg_catalog.l2_distance", Origin.EXTENSION, ""),
    ("set_limit", Origin.FOREIGN, "not known"),
    ("ext.dblink_exec", Origin.FOREIGN, "runs a query"),
    ("crosstab4", Origin.FOREIGN, "runs a query"),
)


def name_of(text: str) -> QualifiedName:
    schema, dot, name = text.rpartition(".")
    return QualifiedName(schema if dot else None, name)


def test_a_function_is_open_or_closed_for_a_reason() -> None:
    for text, origin, reason in FUNCTIONS:
        verdict = judge_function(name_of(text), NONE_ALLOWED)
        assert verdict.origin is origin, text
        assert (verdict.closed is None) == (not reason), text
        assert reason in (verdict.closed or ""), text


def test_a_pattern_covers_a_name_with_its_schema_or_without_any() -> None:
    allowed = AllowedFunctions(("public.search_articles", "api.*"))
    for text in ("public.search_articles", "search_articles", "api.anything", "anything"):
        assert judge_function(name_of(text), allowed).origin is Origin.ALLOWED, text
    narrow = AllowedFunctions(("public.search_articles",))
    for text in ("hr.search_articles", "public.search", "search", "public.dblink"):
        assert judge_function(name_of(text), narrow).closed, text
    # What the server has itself stays closed, whatever a pattern covers.
    assert judge_function(name_of("pg_sleep"), allowed).closed


def test_an_operator_or_a_type_is_the_server_s_an_extension_s_or_foreign() -> None:
    for text, origin in (
        ("=", Origin.BUILT_IN),
        ("pg_catalog.||", Origin.BUILT_IN),
        ("<=>", Origin.EXTENSION),
        ("<<<<", Origin.FOREIGN),
    ):
        assert judge_operator(name_of(text)) is origin, text
    assert judge_operator(QualifiedName("mine", "=")) is Origin.FOREIGN
    for text, origin in (
        ("pg_catalog.int4", Origin.BUILT_IN),
        ("_int4", Origin.BUILT_IN),
        ("regclass", Origin.BUILT_IN),
        ("vector", Origin.EXTENSION),
        ("hr.payroll", Origin.FOREIGN),
        ("pg_authid", Origin.FOREIGN),
        ("mine.int4", Origin.FOREIGN),
    ):
        assert judge_type(name_of(text)) is origin, text


def test_no_name_is_in_two_tables() -> None:
    open_functions = function_tables.OPEN_FUNCTIONS
    assert not open_functions & extension_tables.FUNCTIONS
    assert not function_tables.TYPES & extension_tables.TYPES
    # These patterns are for administrators' functions, and one of them is open.
    for name in open_functions - {"pg_advisory_unlock_all"}:
        verdict = judge_function(QualifiedName(None, name), NONE_ALLOWED)
        assert verdict == (Origin.BUILT_IN, None)


@pytest.mark.deep(stands_in="test_a_function_is_open_or_closed_for_a_reason")
async def test_each_function_of_a_server_is_open_or_closed_for_a_reason(postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url.replace("+asyncpg", ""))
    try:

        async def names(query: str) -> set[str]:
            return {row[0] for row in await connection.fetch(query)}

        callable_ones = await names(server_tables.FUNCTIONS)
        every = await names(server_tables.EVERY_FUNCTION)
        operators = await names(server_tables.OPERATORS)
        types = await names(server_tables.TYPES)
    finally:
        await connection.close()
    assert len(callable_ones) > 800
    for name in callable_ones:
        verdict = judge_function(QualifiedName(None, name), NONE_ALLOWED)
        assert verdict.origin is Origin.BUILT_IN, name
    assert operators <= function_tables.OPERATORS
    assert len(function_tables.TYPES & types) > 70
    # Only what a newer server has may be missing.
    assert len(function_tables.OPEN_FUNCTIONS - every) < 40


@pytest.mark.deep(
    stands_in="tests/sidecar/protocols/postgres/test_catalog.py::"
    "test_a_relation_of_the_server_is_open_or_closed_for_a_reason"
)
async def test_an_open_view_of_a_server_reads_no_closed_relation(postgres_url: str) -> None:
    connection = await asyncpg.connect(unbound(postgres_url).replace("+asyncpg", ""))
    try:
        views = [row[0] for row in await connection.fetch(server_tables.VIEWS)]
        assert len(views) > 100
        for view in views:
            name = name_of(view)
            if catalog.closed_reason(name) is not None:
                continue
            async with connection.transaction():
                await connection.fetch(f"EXPLAIN SELECT * FROM {view}")
                locked = [name_of(row[0]) for row in await connection.fetch(server_tables.LOCKED)]
            through = catalog.read_through([name])
            for relation in locked:
                if relation.name in {"pg_locks", "pg_class", "pg_namespace"}:
                    continue  # of the question itself
                assert catalog.closed_reason(relation) is None or relation.name in through, view
    finally:
        await connection.close()
