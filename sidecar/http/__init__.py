"""Speaks HTTP/1.1 and HTTP/2 for every port of the sidecar, and to data sources: connections,
request targets, header fields, authorities (host and port), bodies and response heads. Knows
nothing of the data sources' protocols, or of decisions."""
