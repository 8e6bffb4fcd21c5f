"""The queries, by subject. Each takes a connection or a transaction; none begins one."""
