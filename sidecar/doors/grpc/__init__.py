"""The gRPC check door: Envoy's `envoy.service.auth.v3.Authorization/Check`.

    check_messages    reads a CheckRequest and writes the CheckResponse to it, in protocol buffers'
                      encoding
    service           one call: its key, its judgement, its answer
    server            the port: HTTP/2, TLS, limits, drain

`authorization.proto` lists the messages. Only `server` imports grpcio, and only if a door of this
protocol is configured.
"""
