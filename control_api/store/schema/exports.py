"""How far each target of `SLUICE_EXPORT_URLS` has got each tenant's decisions."""

from control_api.store.schema.columns import integer, string, table, tenant_foreign_key, timestamp

# `target` is `security.export_targets.ExportTarget.identity`. Entries below `next_seq` are pushed
# and acknowledged. One process at a time pushes: the one that holds the `lease`.
export_positions = table(
    "export_positions",
    string("target"),
    integer("next_seq"),
    string("lease"),
    timestamp("leased_until"),
    tenant_foreign_key(),
    key=("target",),
)
