"""Which relations of the server's own schemas are closed."""

from __future__ import annotations

from sidecar.protocols.postgres.catalog import closed_reason, is_catalog, read_through
from sidecar.protocols.postgres.names import QualifiedName

# By schema, and a part of the reason; empty if it is open.
RELATIONS = {
    "": """
        pg_catalog.pg_class pg_catalog.pg_attribute pg_catalog.pg_type pg_catalog.pg_proc
        pg_catalog.pg_cursors pg_catalog.pg_statistic_ext pg_catalog.pg_roles pg_catalog.pg_views
        pg_catalog.pg_user pg_catalog.pg_sequence pg_catalog.pg_prepared_statements
        information_schema.tables information_schema.columns information_schema.sequences
        public.pg_stats public.pg_authid hr.payroll""",
    "samples": """
        pg_catalog.pg_statistic pg_catalog.pg_stats pg_catalog.pg_stats_ext
        pg_catalog.pg_stats_ext_exprs pg_catalog.pg_statistic_ext_data""",
    "counts": """
        pg_catalog.pg_stat_user_tables pg_catalog.pg_stat_xact_all_tables
        pg_catalog.pg_stat_all_indexes pg_catalog.pg_statio_user_tables
        pg_catalog.pg_stat_activity""",
    "sequences": "pg_catalog.pg_sequences",
    "secrets": """
        pg_catalog.pg_authid pg_catalog.pg_shadow pg_catalog.pg_user_mapping
        pg_catalog.pg_user_mappings pg_catalog.pg_subscription information_schema.user_mappings
        information_schema.user_mapping_options information_schema._pg_user_mappings""",
    "large objects": "pg_catalog.pg_largeobject pg_catalog.pg_largeobject_metadata",
    "configuration": """
        pg_catalog.pg_hba_file_rules pg_catalog.pg_file_settings pg_catalog.pg_settings""",
    "other sessions": """
        pg_catalog.pg_locks public.pg_stat_statements ext.pg_stat_statements_info""",
    "another relation": "pg_toast.pg_toast_1234 pg_toast_temp_3.pg_toast_1",
}


def names(text: str) -> list[QualifiedName]:
    return [QualifiedName(*each.split(".")) for each in text.split()]


def test_a_relation_of_the_server_is_open_or_closed_for_a_reason() -> None:
    for reason, relations in RELATIONS.items():
        for name in names(relations):
            found = closed_reason(name)
            assert (found is None) == (not reason), name
            assert reason in (found or ""), name
    assert is_catalog(QualifiedName("information_schema", "tables"))
    assert not is_catalog(QualifiedName("public", "pg_class"))


def test_an_open_view_may_read_closed_relations() -> None:
    read = read_through(names("pg_catalog.pg_user pg_catalog.pg_class"))
    assert read == {"pg_authid", "pg_shadow"}
    assert read_through(names("information_schema.schemata")) == {"pg_authid"}
    assert not read_through(names("information_schema.user_mappings public.pg_user"))
