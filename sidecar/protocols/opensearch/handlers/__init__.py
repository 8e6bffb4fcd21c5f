"""Handlers of OpenSearch's routes: the sources of a request, and its response. Each handler takes
the server as its first argument, as `ProtocolRoute` passes it."""
