"""Says which relations of the server's own schemas an agent may read.

Drivers need `pg_catalog` and `information_schema`, so these are open, except what holds data of
tables (statistics), secrets, or the state of other sessions.
"""

from __future__ import annotations

from collections.abc import Iterable

from policies.definitions.wildcard import Matcher, matcher
from sidecar.protocols.postgres.names import CATALOG, INFORMATION_SCHEMA, QualifiedName

# The first pattern that covers a name says why it is closed.
_CLOSED: dict[str, str] = {
    "holds samples of the data of tables": "pg_statistic pg_stats* pg_statistic_ext_data",
    "counts what is in tables and who uses them": "pg_stat_* pg_statio_*",
    "tells where sequences stand": "pg_sequences",
    "holds passwords or other secrets": """
        pg_authid pg_shadow pg_user_mapping* pg_subscription user_mapping* _pg_user_mapping*""",
    "holds large objects": "pg_largeobject*",
    "shows the server's configuration": """
        pg_hba_file_rules pg_file_settings pg_ident_file_mappings pg_settings pg_config""",
    "shows other sessions or the inside of the server": """
        pg_locks pg_prepared_xacts pg_replication_* pg_shmem_allocations* pg_aios
        pg_backend_memory_contexts""",
}
_CLOSED_NAMES: tuple[tuple[str, Matcher], ...] = tuple(
    (reason, matcher(patterns.split())) for reason, patterns in _CLOSED.items()
)
# Views of an extension, in any schema: they show the texts of other sessions' statements.
_STATEMENTS = "pg_stat_statements"

# Open views that show a part of a closed relation, without what it is closed for.
_READ_BY_VIEW: dict[str, frozenset[str]] = {
    "pg_user": frozenset({"pg_authid", "pg_shadow"}),
    "pg_seclabels": frozenset({"pg_authid", "pg_largeobject_metadata", "pg_subscription"}),
    **dict.fromkeys(("pg_group", "pg_policies", "pg_roles"), frozenset({"pg_authid"})),
}
_READ_BY_INFORMATION_SCHEMA = frozenset({"pg_authid"})


def is_catalog(name: QualifiedName) -> bool:
    """Return whether a relation is in one of the server's own schemas."""
    return name.schema in {CATALOG, INFORMATION_SCHEMA}


def closed_reason(name: QualifiedName) -> str | None:
    """Return why an agent may not read a relation, whatever the policies say; None if it may, or
    if policies decide. `name` is that of the relation on the server, with its schema."""
    if name.name.startswith(_STATEMENTS):
        return f"`{name}` shows the statements of other sessions"
    if name.schema is not None and name.schema.startswith("pg_toast"):
        return f"`{name}` holds a part of another relation's data"
    if not is_catalog(name):
        return None
    for reason, covers in _CLOSED_NAMES:
        if covers(name.name):
            return f"`{name}` {reason}"
    return None


def read_through(views: Iterable[QualifiedName]) -> frozenset[str]:
    """Return the closed relations of `pg_catalog` that some open views of the server read. A lock
    on one of them counts as the view's, unless the text names the relation itself."""
    found: frozenset[str] = frozenset()
    for view in views:
        if view.schema == CATALOG:
            found |= _READ_BY_VIEW.get(view.name, frozenset())
        elif view.schema == INFORMATION_SCHEMA and closed_reason(view) is None:
            found |= _READ_BY_INFORMATION_SCHEMA
    return found
