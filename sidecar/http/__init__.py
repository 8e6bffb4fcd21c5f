"""HTTP/1.1 as every port of the sidecar uses it: connections, request targets, header fields, the
authority, bodies and response heads. Knows nothing of data sources or decisions.
"""
