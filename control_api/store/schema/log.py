"""Defines the tables of the audit trail (specified in `FORMAT.md`), of the counts that are kept in
step with it, and of its proofs.

The tables of proofs hold signed checkpoints, nodes of the tree, and other data that outlives the
entries that it belongs to. All of it can be derived or checked; none of it is trusted by
verification.
"""

from sqlalchemy import Index

from control_api.store.schema.statements import of_tenant
from control_api.store.schema.tables import (
    binaries,
    integers,
    integers_or_null,
    ordered_strings,
    partial_index,
    small_integers,
    small_integers_or_null,
    strings,
    strings_or_null,
    table,
    timestamps,
    timestamps_or_null,
)

# The end of each tenant's log. Until it has an entry, `last_ts` is 0 and `last_leaf` is empty.
# `candidates` repeats the tenant's for those who append, who lock only this row; null without any.
log_heads = table(
    "log_heads",
    *strings("log"),
    *integers("size"),
    *binaries("last_leaf"),
    *timestamps("last_ts"),
    *binaries("frontier"),
    *strings_or_null("candidates"),
)

# `entry` is authoritative. The columns before it are derived from it: they are the fields of
# `policies.trail.entry.Index`, in order. `log_index` serves the filters of lists; `ref` has an
# ordinary index here, because it is the only column by which lineage entries are found.
log_entries = table(
    "log_entries",
    *integers("seq"),
    *strings("eid", "kind"),
    *timestamps("ts"),
    *strings_or_null(
        "agent_role", "agent_id", "source_id", "decision", "policy_name", "session_id", "ref"
    ),
    *binaries("entry", "hash"),
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
    *integers("seq"),
    *strings_or_null("user_id"),
    *binaries("openings"),
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
    *small_integers("facet"),
    *strings("value"),
    *integers("seq"),
    small_integers_or_null("more"),
    key=("facet", "value", "seq"),
    sqlite_with_rowid=False,
)

# The earliest and latest event time of the entries from `seq` up to, not including, `until_seq`.
log_spans = table(
    "log_spans",
    *integers("seq", "until_seq"),
    *timestamps("first_ts", "last_ts"),
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
    *integers("seq", "tree_size"),
    *binaries("root_hash", "frontier", "last_hash"),
    *timestamps("purged_before"),
    *integers("purged_count"),
    *timestamps("purged_at"),
    *strings("anchor_note"),
    *strings_or_null("cover_note"),
    *timestamps_or_null("finished_at"),
    key=("seq",),
)

# The last record of each spool that the log holds. The spool's next record must cite its hash.
sources = table(
    "sources",
    *strings("source", "instance"),
    *integers("n"),
    *binaries("hash"),
    *timestamps("updated_at"),
    key=("source", "instance"),
)

# The numbers of allowed and denied decisions, by dimension (`facet`), value and time bucket.
# `control_api.store.counters.counters` lists the dimensions and their bucket lengths.
tallies = table(
    "tallies",
    *small_integers("facet"),
    *ordered_strings("value"),
    *integers("bucket", "allowed", "denied"),
    *timestamps("last_ts"),
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
    *strings("name"),
    *integers("revision"),
    *binaries("group_digest"),
    *strings("outcome", "agent_role", "source_id", "policy_name_before", "policy_name_after"),
    *integers("counted"),
    *timestamps("first_ts", "last_ts"),
    *strings("examples"),
    key=("name", "revision", "group_digest"),
)

# The time at which a role was first allowed to read a source (event time).
first_accesses = table(
    "first_accesses",
    *strings("agent_role", "source_id"),
    *timestamps("first_ts"),
    Index(None, "tenant_id", "first_ts"),
    key=("agent_role", "source_id"),
    sqlite_with_rowid=False,
)


# The checkpoints that were put into the checkpoint store and then published, in that order
# (`number`). `frontier` is the tree's at `size`: with it, consistency can be proven from this size
# after the entries below were purged. `note` grows by the witnesses' cosignatures; `witnesses`
# counts them.
checkpoints = table(
    "checkpoints",
    *integers("number"),
    *strings("origin"),
    *integers("size"),
    *binaries("root_hash", "frontier"),
    *strings("note"),
    *timestamps("signed_at"),
    *small_integers("witnesses"),
    Index("ux_checkpoints_size", "tenant_id", "size", "origin", unique=True),
    key=("number",),
)

# Roots of complete subtrees. A node of level `n` at `place` covers the 256**n leaves from
# `place * 256**n`; the leaves themselves (level 0) are the hashes of `log_entries`. Kept when
# retention removes the entries below: a hash of hashes shows nothing of them.
tree_nodes = table(
    "tree_nodes",
    *small_integers("level"),
    *integers("place"),
    *binaries("hash"),
    key=("level", "place"),
    sqlite_with_rowid=False,
)

# Each time an operator accepted that a log is behind its checkpoints. From then on the log's
# checkpoints have the origin `origin`; `cited_note` is the last one of the origin before; `seq` is
# the `incarnation` entry.
incarnations = table(
    "incarnations",
    *integers("number"),
    *strings("origin"),
    *integers("seq"),
    *strings("cited_note"),
    *timestamps("accepted_at"),
    key=("number",),
)

# Every document of a role that was ever in force, by the digest that decisions cite, so that they
# can be derived again. `replaced_at` is None while it is in force.
cited_documents = table(
    "cited_documents",
    *strings("digest", "name"),
    *binaries("body"),
    *timestamps("published_at"),
    *timestamps_or_null("replaced_at"),
    key=("digest",),
)

# Legal holds: what neither retention nor an erasure may remove. `object_type` is `session`, `agent`
# or `user`; `seq` is the entry that placed the hold.
holds = table(
    "holds",
    *strings("hold_id", "object_type", "object_id", "reason", "placed_by"),
    *timestamps("placed_at"),
    *integers("seq"),
    *strings_or_null("released_by"),
    *timestamps_or_null("released_at"),
    key=("hold_id",),
)

# For each sidecar and each revision at which it advanced: the first entry of its own records that
# was decided, or beat, at that revision.
acknowledgements = table(
    "acknowledgements",
    *strings("source"),
    *integers("revision", "seq"),
    *timestamps("acknowledged_at"),
    key=("source", "revision"),
)

# How far the scheduled verification of each log has come, and what it found. The walk continues
# from `size` with `frontier` and `last_leaf`; `finished_at` is when it last reached the end. One
# process at a time verifies a log: the one that holds the lease. `verified_at` is when the round
# began that last came to the end without a finding that stops it.
self_checks = table(
    "self_checks",
    *integers("size"),
    *binaries("frontier", "last_leaf"),
    *timestamps("started_at"),
    *timestamps_or_null("finished_at"),
    *integers_or_null("finished_size"),
    *strings_or_null("broken_at", "reason"),
    *timestamps_or_null("leased_until", "verified_at"),
    key=(),
)

# When the counts of each log were last compared with its entries, and how they differ. One process
# at a time compares them: the one that holds the lease.
count_checks = table(
    "count_checks",
    *timestamps_or_null("checked_at"),
    *strings_or_null("reason"),
    *timestamps_or_null("leased_until"),
    key=(),
)
