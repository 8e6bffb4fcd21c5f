"""Handlers of OpenSearch's routes: they find a request's sources, and filter or compose its
response. Each handler takes the server as its first argument, as `ProtocolRoute` passes it."""
