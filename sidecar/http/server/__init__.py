"""The server's side of HTTP/1, the same for every port of the sidecar: connections, the requests on
them, and the set of a port's connections. Knows nothing of what a request asks for."""
