"""The protocols of the data sources: they say which requests retrieve, and from which source
(`protocols/RULES.md`). `registry.py` lists them; `protocol.py` is their interface to
`sidecar.proxy`."""
