"""The centre: decides for callers without a sidecar, keeps the audit trail, publishes policy sets.

From top to bottom: `__main__` > `serve` > `http` > `use_cases` > `store`, `log`, `tenants` > the
pure parts. README.md follows one request through it.
"""
