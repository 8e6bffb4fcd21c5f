"""The tables behind the proofs of the audit trail: signed checkpoints, nodes of the tree, and what
else outlives the entries that it belongs to. All of it can be derived or checked; none of it is
trusted by verification.
"""

from sqlalchemy import Index

from control_api.store.schema.columns import (
    binary,
    integer,
    integer_or_null,
    small_integer,
    string,
    string_or_null,
    table,
    timestamp,
    timestamp_or_null,
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
