"""What each process caches of its tenants: policy sets, keys and sessions."""
