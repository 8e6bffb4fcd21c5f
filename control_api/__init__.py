"""The control API: decides for callers without a sidecar, keeps the audit trail, and publishes the
policy sets. INTERNALS.md follows one request through it; pyproject.toml lists its layers.
"""
