"""What runs beside the requests: the first start, policy files, retention, warnings of expiring
keys, and recovery after the database was restored to an older state."""
