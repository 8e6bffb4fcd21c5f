"""The gRPC check door: Envoy's `envoy.service.auth.v3.Authorization/Check`.

    check_messages    reads a CheckRequest and writes the CheckResponse to it, in protocol buffers'
                      encoding
    service           one check: its judgement, its outcome, its errors
    server            the calls on the port: their methods, keys, messages and answers

`authorization.proto` lists the messages.
"""
