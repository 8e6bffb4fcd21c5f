"""The gRPC check door: Envoy's `envoy.service.auth.v3.Authorization/Check`.

    wire              protocol buffers' encoding, for any message
    check_messages    what a CheckRequest says of the checked request, the CheckResponse to it
    service           one call: its key, its judgement, its answer
    server            the port: HTTP/2, TLS, limits, drain

`authorization.proto` lists the messages. grpcio is imported by `server` alone, and only where a
door of this protocol is configured.
"""
