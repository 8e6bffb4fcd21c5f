"""Defines the tables of the audit trail (specified in `FORMAT.md`), of the counts that are kept in
step with it, and of its proofs.

Behind the proofs are signed checkpoints, nodes of the tree, and what else outlives the entries that
it belongs to. All of it can be derived or checked; none of it is trusted by verification.
"""

from sqlalchemy import Index

from control_api.store.schema.statements import of_tenant
from control_api.store.schema.tables import (
    binary,
    integer,
    integer_or_null,
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
# `control_api.store.counters.counters` lists the dimensions and their bucket lengths.
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


# The checkpoints that were stored outside and then published, in that order (`number`). `frontier`
# is the tree's at `size`: with it, consistency can be proven from this size after the entries below
# were purged. `note` grows by the witnesses' cosignatures; `witnesses` counts them.
checkpoints = table(
    "checkpoints",
    integer("number"),
    string("origin"),
    integer("size"),
    binary("root_hash"),
    binary("frontier"),
    string("note"),
    timestamp("signed_at"),
    small_integer("witnesses"),
    Index("ux_checkpoints_size", "tenant_id", "size", "origin", unique=True),
    key=("number",),
)

# Roots of complete subtrees. A node of level `n` at `place` covers the 256**n leaves from
# `place * 256**n`; the leaves themselves (level 0) are the hashes of `log_entries`. Kept when
# retention removes the entries below: a hash of hashes shows nothing of them.
tree_nodes = table(
    "tree_nodes",
    small_integer("level"),
    integer("place"),
    binary("hash"),
    key=("level", "place"),
    sqlite_with_rowid=False,
)

# Each time an operator accepted that a log is behind its checkpoints. From then on the log's
# checkpoints have the origin `origin`; `cited_note` is the last one of the origin before; `seq` is
# the `incarnation` entry.
incarnations = table(
    "incarnations",
    integer("number"),
    string("origin"),
    integer("seq"),
    string("cited_note"),
    timestamp("accepted_at"),
    key=("number",),
)

# Every document of a role that was ever in force, by the digest that decisions cite, so that they
# can be derived again. `replaced_at` is None while it is in force.
cited_documents = table(
    "cited_documents",
    string("digest"),
    string("name"),
    binary("body"),
    timestamp("published_at"),
    timestamp_or_null("replaced_at"),
    key=("digest",),
)

# Legal holds: what neither retention nor an erasure may remove. `object_type` is `session`, `agent`
# or `user`; `seq` is the entry that placed the hold.
holds = table(
    "holds",
    string("hold_id"),
    string("object_type"),
    string("object_id"),
    string("reason"),
    string("placed_by"),
    timestamp("placed_at"),
    integer("seq"),
    string_or_null("released_by"),
    timestamp_or_null("released_at"),
    key=("hold_id",),
)

# For each sidecar and each revision at which it advanced: the first entry of its own records that
# was decided, or beat, at that revision.
acknowledgements = table(
    "acknowledgements",
    string("source"),
    integer("revision"),
    integer("seq"),
    timestamp("acknowledged_at"),
    key=("source", "revision"),
)

# How far the scheduled verification of each log has come, and what it found. The walk continues
# from `size` with `frontier` and `last_leaf`; `finished_at` is when it last reached the end. One
# process at a time verifies a log: the one that holds the lease. `verified_at` is when the round
# began that last came to the end without a finding that stops it.
self_checks = table(
    "self_checks",
    integer("size"),
    binary("frontier"),
    binary("last_leaf"),
    timestamp("started_at"),
    timestamp_or_null("finished_at"),
    integer_or_null("finished_size"),
    string_or_null("broken_at"),
    string_or_null("reason"),
    timestamp_or_null("leased_until"),
    timestamp_or_null("verified_at"),
    key=(),
)

# When the counts of each log were last compared with its entries, and how they differ. One process
# at a time compares them: the one that holds the lease.
count_checks = table(
    "count_checks",
    timestamp_or_null("checked_at"),
    string_or_null("reason"),
    timestamp_or_null("leased_until"),
    key=(),
)
