"""Speaks HTTP/1.1 for every port of the sidecar: connections, request targets, header fields,
authorities (host and port), bodies and response heads. Knows nothing of data sources or
decisions."""
