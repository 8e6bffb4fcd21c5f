"""The tables of what surrounds policies: guardrails."""

from control_api.store.schema.columns import (
    binary,
    string,
    string_or_null,
    table,
    tenant_foreign_key,
    timestamp,
)

# `body` is `policies.definitions.guardrail.Guardrail.to_wire`. `file` is the file that defines the
# guardrail; null if the API made it.
guardrails = table(
    "guardrails",
    string("name"),
    binary("body"),
    string_or_null("file"),
    timestamp("created_at"),
    timestamp("updated_at"),
    tenant_foreign_key(),
    key=("name",),
)
