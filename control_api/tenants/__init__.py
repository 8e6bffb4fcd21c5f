"""Steps that several use cases on tenants share: changing a tenant, publishing its settings."""
