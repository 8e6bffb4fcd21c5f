"""The enforcement point that runs beside one agent. It decides each retrieval, records the
decision, and forwards the retrieval only if it is allowed.

Knows its agent, its data sources and a replica of the tenant's policy set. Knows the control API
only as an HTTP address, and works without it for as long as the staleness limit allows.
"""
