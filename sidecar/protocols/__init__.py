"""The data sources' protocols: which requests retrieve, and from what (data-sources.md). One file a
protocol: its table of routes, and how a request says which source it means.

Knows paths and bodies. Knows no connection, no policy and no audit trail: `sidecar.proxy` does.
"""
