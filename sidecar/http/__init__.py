"""HTTP/1.1 as every port of the sidecar speaks it: connections, request targets, header fields,
authorities, bodies and response heads. Knows nothing of data sources or decisions.
"""
