"""The tables of the audit trail (specified in `FORMAT.md`), and of the counts that are kept in
step with it."""

from sqlalchemy import Index

from control_api.store.schema.columns import (
    binary,
    integer,
    ordered_string,
    partial_index,
    small_integer,
    small_integers_or_null,
    string,
    string_or_null,
    table,
    timestamp,
    timestamp_or_null,
)
from control_api.store.schema.statements import of_tenant

# The end of each tenant's log. Until it has an entry, `last_ts` is 0 and `last_leaf` is empty.
# `candidates` repeats the tenant's for those who append, who lock only this row; null without any.
log_heads = table(
    "log_heads",
    string("log"),
    integer("size"),
    binary("last_leaf"),
    timestamp("last_ts"),
    binary("frontier"),
    string_or_null("candidates"),
)

# `entry` is authoritative. The columns before it are derived from it: they are the fields of
# `policies.trail.entry.Index`, in order. `log_index` serves the filters of lists; `ref` has an
# ordinary index here, because it is the only column by which lineage entries are found.
log_entries = table(
    "log_entries",
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
    Index("ux_log_entries_eid", "tenant_id", "eid", unique=True),
    partial_index("ix_log_entries_ref", "tenant_id", "ref", "seq", where="ref IS NOT NULL"),
    partial_index(
        "ix_log_entries_rare_kinds",
        "tenant_id",
        "kind",
        "seq",
        where="kind NOT IN ('decision', 'lineage')",
    ),
    key=("seq",),
)

# The salts and values that entries commit to. When rows are deleted, every hash still verifies.
openings = table(
    "openings",
    integer("seq"),
    string_or_null("user_id"),
    binary("openings"),
    key=("seq",),
)

# Each entry with the openings of its commitments, if these are still stored.
entries_with_openings = log_entries.outerjoin(
    openings,
    of_tenant(openings, log_entries.c.tenant_id) & (openings.c.seq == log_entries.c.seq),
)

# Finds entries by value. `control_api.store.log.index` writes it for thousands of entries at a
# time, because an ordinary index dirties a page for nearly every value
# (`control_api/store/README.md`). A row names the entry `seq`, and on PostgreSQL those at the
# distances `more` after it.
log_index = table(
    "log_index",
    small_integer("facet"),
    string("value"),
    integer("seq"),
    small_integers_or_null("more"),
    key=("facet", "value", "seq"),
    sqlite_with_rowid=False,
)

# The earliest and latest event time of the entries from `seq` up to, not including, `until_seq`.
log_spans = table(
    "log_spans",
    integer("seq"),
    integer("until_seq"),
    timestamp("first_ts"),
    timestamp("last_ts"),
    key=("seq",),
    sqlite_with_rowid=False,
)

# The anchor of each log, at which verification starts: the last purge of its oldest entries. The
# `purge` entry at `seq` records the same facts. `anchor_note` is the signed checkpoint of the tree
# at the cut. `cover_note` is the signed checkpoint of a size that includes the `purge` entry; rows
# are deleted only once it is stored (`FORMAT.md`, Purge). `finished_at` is set when all of
# them are deleted.
purges = table(
    "purges",
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
    key=("seq",),
)

# The last record of each spool that the log holds. The spool's next record must cite its hash.
sources = table(
    "sources",
    string("source"),
    string("instance"),
    integer("n"),
    binary("hash"),
    timestamp("updated_at"),
    key=("source", "instance"),
)

# The numbers of allowed and denied decisions, by dimension (`facet`), value and time bucket.
# `control_api.store.counters.dimensions` lists the dimensions and their bucket lengths.
tallies = table(
    "tallies",
    small_integer("facet"),
    ordered_string("value"),
    integer("bucket"),
    integer("allowed"),
    integer("denied"),
    timestamp("last_ts"),
    key=("facet", "value", "bucket"),
    sqlite_with_rowid=False,
)

# What the entries say of a candidate at a revision (`control_api.store.counters.candidates`): how
# many decided it, in the row whose `group_digest` is empty, and those that differ, by group.
# `group_digest` is the SHA-256 of `outcome` to `policy_name_after`, too long for an index.
# `examples` are ids of events, separated by spaces. No foreign key: a writer that has locked a head
# must not wait for the tenant's row.
candidate_counts = table(
    "candidate_counts",
    string("name"),
    integer("revision"),
    binary("group_digest"),
    string("outcome"),
    string("agent_role"),
    string("source_id"),
    string("policy_name_before"),
    string("policy_name_after"),
    integer("counted"),
    timestamp("first_ts"),
    timestamp("last_ts"),
    string("examples"),
    key=("name", "revision", "group_digest"),
)

# The time at which a role was first allowed to read a source (event time).
first_accesses = table(
    "first_accesses",
    string("agent_role"),
    string("source_id"),
    timestamp("first_ts"),
    Index(None, "tenant_id", "first_ts"),
    key=("agent_role", "source_id"),
    sqlite_with_rowid=False,
)
