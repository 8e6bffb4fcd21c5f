"""Steps that several use cases on sessions share: claiming a session, reading one in detail."""
