"""Why a check has no body that can be judged, and which setting of the gateway would bring it."""

from sidecar.settings.doors import DoorProtocol

_OF_ENVOY = (
    "the check carries no body: have the gateway send it along (Envoy: `with_request_body`; Envoy "
    "Gateway: `bodyToExtAuth`; Istio: `includeRequestBodyInCheck`; agentgateway: "
    "`includeRequestBody`)"
)
# Which gateway asks is not known here, so each is named, with those that can't.
NO_BODY: dict[DoorProtocol, str] = {
    "envoy_http": _OF_ENVOY,
    "envoy_grpc": _OF_ENVOY,
    "forward_auth": (
        "the check carries no body: have the gateway send it along (Traefik: `forwardBody`; "
        "APISIX: `request_method: POST`; HAProxy: a body with a `Content-Length` that fits "
        "`tune.bufsize`). nginx, Caddy and Kong can't: ask by another gateway, or use the "
        "sidecar's proxy"
    ),
}
PARTIAL_BODY = (
    "the check carries only a part of the body, or does not say that it is whole: raise "
    "`max_request_bytes` of the gateway's `with_request_body`, and let its header "
    "`x-envoy-auth-partial-body` reach the door"
)
