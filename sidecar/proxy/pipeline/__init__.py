"""The steps of a request, in order: classify, resolve, authorize, forward, record the lineage.

The folder is larger than others because each step is a file of its own, and WebSocket
and passthrough share those steps.
"""
