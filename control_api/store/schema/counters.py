"""The tables of decision counts (`control_api.store.counters`)."""

from sqlalchemy import Column, Index, PrimaryKeyConstraint, SmallInteger, Table

from control_api.store.schema.columns import integer, metadata, ordered_string, string, timestamp

# How many decisions were allowed and denied, by dimension (`facet`), value and time bucket.
# `control_api.store.counters.dimensions` lists the dimensions and their bucket lengths.
tallies = Table(
    "tallies",
    metadata,
    string("tenant_id"),
    Column("facet", SmallInteger, nullable=False, autoincrement=False),
    ordered_string("value"),
    integer("bucket"),
    integer("allowed"),
    integer("denied"),
    timestamp("last_ts"),
    PrimaryKeyConstraint("tenant_id", "facet", "value", "bucket"),
    sqlite_with_rowid=False,
)

# When a role was first allowed to read a source (event time).
first_accesses = Table(
    "first_accesses",
    metadata,
    string("tenant_id"),
    string("agent_role"),
    string("source_id"),
    timestamp("first_ts"),
    PrimaryKeyConstraint("tenant_id", "agent_role", "source_id"),
    Index(None, "tenant_id", "first_ts"),
    sqlite_with_rowid=False,
)
