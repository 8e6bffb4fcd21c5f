"""The nodes that a query may consist of, compared with all that libpg_query has."""

from __future__ import annotations

from postgast.pg_query_pb2 import DESCRIPTOR

from sidecar.protocols.postgres.node_types import QUERY_NODES, TYPED_MEMBERS, words_of
from sidecar.protocols.postgres.reader import read_statements
from sidecar.protocols.protocol import RouteClass

EVERY = {
    field.message_type.name: field.message_type
    for field in DESCRIPTOR.message_types_by_name["Node"].fields
}


def plain(name: str) -> str:
    return name.replace("_", "").lower()


def test_the_nodes_of_the_table_exist() -> None:
    assert EVERY.keys() | {"Alias"} >= QUERY_NODES
    assert TYPED_MEMBERS.keys() <= QUERY_NODES


def test_each_member_that_is_no_wrapped_node_has_its_type() -> None:
    """A new one would close what has it, so this says when the grammar has grown."""
    for name in QUERY_NODES - {"A_Const", "SelectStmt"}:
        expected = {
            plain(field.name): field.message_type.name
            for field in EVERY[name].fields
            if field.message_type is not None and field.message_type.name != "Node"
        }
        declared = {plain(key): value for key, value in TYPED_MEMBERS.get(name, {}).items()}
        # A member that no text can have.
        expected.pop("identitysequence", None)
        assert declared == expected, name


# How the nodes that a text can have outside of the table are reached, and closed.
OTHERS = (
    "CREATE TABLE a (b int PRIMARY KEY, LIKE c)",
    "CREATE TABLE a PARTITION OF b FOR VALUES IN (1)",
    "CREATE TABLE a (b int) PARTITION BY RANGE (b)",
    "CREATE INDEX ON a (b)",
    "CREATE FUNCTION f(a int) RETURNS int RETURN 1",
    "CREATE TRIGGER a AFTER INSERT ON b REFERENCING NEW TABLE AS c EXECUTE FUNCTION d()",
    "ALTER TABLE a ADD COLUMN b int",
    "DROP TABLE a",
    "IMPORT FOREIGN SCHEMA a FROM SERVER b INTO c",
    "CREATE PUBLICATION a FOR TABLE b",
    "REASSIGN OWNED BY a TO b",
    "CHECKPOINT",
)


def test_a_statement_of_another_node_is_closed_by_its_words() -> None:
    for text in OTHERS:
        [statement] = read_statements(text)
        assert statement.route_class is RouteClass.ADMIN, text
    assert words_of("AlterSystemStmt") == "ALTER SYSTEM"
    assert words_of("DoStmt") == "DO"
    assert words_of("CreateTableAsStmt") == "CREATE TABLE AS"
    assert words_of("DefineStmt") == "CREATE"
