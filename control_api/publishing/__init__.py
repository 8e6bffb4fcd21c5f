"""The policy set in Redis: pushed after each commit, repaired where it differs from the store, and
attested by heartbeats. README.md follows one document from the commit to a sidecar.
"""
