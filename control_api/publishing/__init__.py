"""The policy set in Redis: pushed after each commit, mended where it is not the store's, attested
by heartbeats. The README beside this follows one document from the commit to a sidecar.
"""
