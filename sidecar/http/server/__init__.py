"""The server side of HTTP/1, the same for every port of the sidecar: its connections and the
requests on them. Knows nothing of what a request asks for."""
