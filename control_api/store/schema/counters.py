"""The tables of what is counted while the log grows (`control_api/store/counters/counters.py`)."""

from sqlalchemy import Column, Index, PrimaryKeyConstraint, SmallInteger, Table

from control_api.store.schema.columns import count, metadata, ordered_words, time, words

# How many decisions of a facet's value were allowed and denied in a bucket of time. Which facets
# there are, and how long a bucket of each is, stands in `control_api/store/counters/dimensions.py`.
tallies = Table(
    "tallies",
    metadata,
    words("tenant_id"),
    Column("facet", SmallInteger, nullable=False, autoincrement=False),
    ordered_words("value"),
    count("bucket"),
    count("allowed"),
    count("denied"),
    time("last_ts"),
    PrimaryKeyConstraint("tenant_id", "facet", "value", "bucket"),
    sqlite_with_rowid=False,
)

# When a role was first allowed to read a source, in event time.
first_accesses = Table(
    "first_accesses",
    metadata,
    words("tenant_id"),
    words("agent_role"),
    words("source_id"),
    time("first_ts"),
    PrimaryKeyConstraint("tenant_id", "agent_role", "source_id"),
    Index(None, "tenant_id", "first_ts"),
    sqlite_with_rowid=False,
)
