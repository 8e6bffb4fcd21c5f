"""The tables of the audit trail (`audit-trail.md`)."""

from sqlalchemy import Column, Index, PrimaryKeyConstraint, SmallInteger, Table, text

from control_api.store.schema.columns import (
    binary,
    count,
    metadata,
    time,
    time_or_null,
    words,
    words_or_null,
)

# Where a tenant's log ends. `last_ts` is 0 and `last_leaf` empty while there is no entry.
log_heads = Table(
    "log_heads",
    metadata,
    words("tenant_id"),
    words("log"),
    count("size"),
    binary("last_leaf"),
    time("last_ts"),
    binary("frontier"),
    PrimaryKeyConstraint("tenant_id"),
)

# `entry` is the authority; the columns before it are `policies.trail.entry.Index` of it, in its
# order.
# What lists are filtered by is in `log_index`; `ref` is here, since a lineage entry has no more.
log_entries = Table(
    "log_entries",
    metadata,
    words("tenant_id"),
    count("seq"),
    words("eid"),
    words("kind"),
    time("ts"),
    words_or_null("agent_role"),
    words_or_null("agent_id"),
    words_or_null("source_id"),
    words_or_null("decision"),
    words_or_null("policy_name"),
    words_or_null("session_id"),
    words_or_null("ref"),
    binary("entry"),
    binary("hash"),
    PrimaryKeyConstraint("tenant_id", "seq"),
    Index("ux_log_entries_eid", "tenant_id", "eid", unique=True),
    Index(
        "ix_log_entries_ref",
        "tenant_id",
        "ref",
        "seq",
        sqlite_where=text("ref IS NOT NULL"),
        postgresql_where=text("ref IS NOT NULL"),
    ),
)

# Salts and values of what entries commit to. Rows may go: every hash still verifies.
openings = Table(
    "openings",
    metadata,
    words("tenant_id"),
    count("seq"),
    words_or_null("user_id"),
    binary("openings"),
    PrimaryKeyConstraint("tenant_id", "seq"),
)

# Which entries say what: `control_api.store.log.index` writes it, thousands of entries at a time.
log_index = Table(
    "log_index",
    metadata,
    words("tenant_id"),
    Column("facet", SmallInteger, nullable=False, autoincrement=False),
    words("value"),
    count("seq"),
    PrimaryKeyConstraint("tenant_id", "facet", "value", "seq"),
    sqlite_with_rowid=False,
)

# The earliest and the latest time of the entries from `seq` to before `until_seq`.
log_spans = Table(
    "log_spans",
    metadata,
    words("tenant_id"),
    count("seq"),
    count("until_seq"),
    time("first_ts"),
    time("last_ts"),
    PrimaryKeyConstraint("tenant_id", "seq"),
    sqlite_with_rowid=False,
)

# What retention took from a log's beginning, of each log the last time: the anchor. Its `purge`
# entry stands at `seq`, and says the same. `anchor_note` is the signed checkpoint of the size that
# was cut at, `cover_note` the one of a size with the `purge` entry in it; rows are deleted only
# once that is here (`audit-trail.md`, Purge), and all are once `finished_at` is.
purges = Table(
    "purges",
    metadata,
    words("tenant_id"),
    count("seq"),
    count("tree_size"),
    binary("root_hash"),
    binary("frontier"),
    binary("last_hash"),
    time("purged_before"),
    count("purged_count"),
    time("purged_at"),
    words("anchor_note"),
    words_or_null("cover_note"),
    time_or_null("finished_at"),
    PrimaryKeyConstraint("tenant_id", "seq"),
)

# The last record held of each spool, and its hash: what the next one must cite.
sources = Table(
    "sources",
    metadata,
    words("tenant_id"),
    words("source"),
    words("instance"),
    count("n"),
    binary("hash"),
    time("updated_at"),
    PrimaryKeyConstraint("tenant_id", "source", "instance"),
)
