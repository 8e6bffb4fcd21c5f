"""The gRPC check door: Envoy's `envoy.service.auth.v3.Authorization/Check`.

    wire             protocol buffers' encoding, for any message
    check_request    what a CheckRequest says of the checked request
    check_response   the CheckResponse of each outcome
    service          one call: its key, its judgement, its answer
    server           the port: HTTP/2, TLS, limits, drain

`authorization.proto` lists the messages. grpcio is imported by `server` alone, and only where a
door of this protocol is configured.
"""
