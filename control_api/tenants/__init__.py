"""Steps that several use cases on tenants share: claiming a session, changing settings."""
