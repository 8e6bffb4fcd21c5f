"""The tables of impact runs: recorded decisions that are made again by other policies
(`policy-tools.md` section 4)."""

from control_api.store.schema.columns import (
    binary,
    integer,
    integer_or_null,
    partial_index,
    string,
    string_or_null,
    table,
    tenant_foreign_key,
    timestamp,
    timestamp_or_null,
)

# A run reads the entries from `first_seq` up to `until_seq` (exclusive). `next_seq`, `last_leaf`
# (the hash of the entry before it), `last_eid` and `counts` are how far it has come, always saved
# together. One process at a time continues it: the one that holds the `lease`. `attempts` counts
# those that took it up since anything was saved. `checkpoint_size` is that of the signed checkpoint
# that the entries were proven by.
impact_runs = table(
    "impact_runs",
    string("impact_id"),
    string("state"),
    string_or_null("reason"),
    string("created_by"),
    timestamp("created_at"),
    timestamp_or_null("ended_at"),
    integer("first_seq"),
    integer("until_seq"),
    integer("next_seq"),
    binary("last_leaf"),
    string_or_null("last_eid"),
    binary("counts"),
    integer_or_null("checkpoint_size"),
    integer("attempts"),
    string_or_null("lease"),
    timestamp_or_null("leased_until"),
    tenant_foreign_key(),
    # Only runs that go on: the index stays small.
    partial_index("ix_impact_runs_due", "leased_until", where="state = 'running'"),
    key=("impact_id",),
)

# The policies of a run that goes on, as JSON. Apart from it, since SQLite writes a whole row at
# each change, and these may have 32 MiB.
impact_policies = table(
    "impact_policies",
    string("impact_id"),
    binary("body"),
    tenant_foreign_key(),
    key=("impact_id",),
)
