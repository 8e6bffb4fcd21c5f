"""What each process remembers of its tenants: policy sets, keys, sessions, until they change."""
