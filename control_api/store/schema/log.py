"""The tables of the audit trail (specified in `audit-trail.md`)."""

from sqlalchemy import Column, Index, PrimaryKeyConstraint, SmallInteger, Table, text

from control_api.store.schema.columns import (
    binary,
    integer,
    metadata,
    string,
    string_or_null,
    timestamp,
    timestamp_or_null,
)

# Where a tenant's log ends. While it has no entries, `last_ts` is 0 and `last_leaf` is empty.
log_heads = Table(
    "log_heads",
    metadata,
    string("tenant_id"),
    string("log"),
    integer("size"),
    binary("last_leaf"),
    timestamp("last_ts"),
    binary("frontier"),
    PrimaryKeyConstraint("tenant_id"),
)

# `entry` is authoritative. The columns before it are derived from it: they are the fields of
# `policies.trail.entry.Index`, in order. `log_index` serves the filters of lists; `ref` has an
# ordinary index here, because lineage entries have nothing else to be found by.
log_entries = Table(
    "log_entries",
    metadata,
    string("tenant_id"),
    integer("seq"),
    string("eid"),
    string("kind"),
    timestamp("ts"),
    string_or_null("agent_role"),
    string_or_null("agent_id"),
    string_or_null("source_id"),
    string_or_null("decision"),
    string_or_null("policy_name"),
    string_or_null("session_id"),
    string_or_null("ref"),
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

# The salts and values that entries commit to. Rows may be deleted: every hash still verifies.
openings = Table(
    "openings",
    metadata,
    string("tenant_id"),
    integer("seq"),
    string_or_null("user_id"),
    binary("openings"),
    PrimaryKeyConstraint("tenant_id", "seq"),
)

# Finds entries by value. `control_api.store.log.index` writes it, thousands of entries at a time.
log_index = Table(
    "log_index",
    metadata,
    string("tenant_id"),
    Column("facet", SmallInteger, nullable=False, autoincrement=False),
    string("value"),
    integer("seq"),
    PrimaryKeyConstraint("tenant_id", "facet", "value", "seq"),
    sqlite_with_rowid=False,
)

# The earliest and latest event time of the entries from `seq` up to, not including, `until_seq`.
log_spans = Table(
    "log_spans",
    metadata,
    string("tenant_id"),
    integer("seq"),
    integer("until_seq"),
    timestamp("first_ts"),
    timestamp("last_ts"),
    PrimaryKeyConstraint("tenant_id", "seq"),
    sqlite_with_rowid=False,
)

# The anchor of each log: what retention last removed from its beginning. The `purge` entry at `seq`
# says the same. `anchor_note` is the signed checkpoint of the tree at the cut. `cover_note` is the
# signed checkpoint of a size that includes the `purge` entry; rows are deleted only once it is
# stored (`audit-trail.md`, Purge). `finished_at` is set when all of them are deleted.
purges = Table(
    "purges",
    metadata,
    string("tenant_id"),
    integer("seq"),
    integer("tree_size"),
    binary("root_hash"),
    binary("frontier"),
    binary("last_hash"),
    timestamp("purged_before"),
    integer("purged_count"),
    timestamp("purged_at"),
    string("anchor_note"),
    string_or_null("cover_note"),
    timestamp_or_null("finished_at"),
    PrimaryKeyConstraint("tenant_id", "seq"),
)

# The last record of each spool that the log holds. The spool's next record must cite its hash.
sources = Table(
    "sources",
    metadata,
    string("tenant_id"),
    string("source"),
    string("instance"),
    integer("n"),
    binary("hash"),
    timestamp("updated_at"),
    PrimaryKeyConstraint("tenant_id", "source", "instance"),
)
