"""Which source a request is for, by the listener, host and path that it came by, and the endpoint
that
guards this source.
"""
