"""Steps that several use cases on tenants share: changing one, publishing its settings."""
