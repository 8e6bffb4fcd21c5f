"""The protocols of the data sources: which requests retrieve, and from which source
(`protocols/RULES.md`).

Each protocol has a table of routes and the functions that find a request's sources. `registry.py`
lists the protocols; `protocol.py`, `route_table.py` and `messages.py` are their interface to
`sidecar.proxy`. Knows paths and bodies. Knows nothing of connections, policies or the audit trail.
"""
