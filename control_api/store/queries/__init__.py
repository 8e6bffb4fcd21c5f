"""The queries, by subject. Most take a connection or a transaction from their caller."""
