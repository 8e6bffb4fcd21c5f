"""The enforcement point beside one agent: decides each retrieval, records it, lets it pass or not.

Knows its agent, its data sources and a copy of the tenant's policy set. Knows the centre only as an
HTTP address, and works on without it for as long as its staleness limit allows.
"""
