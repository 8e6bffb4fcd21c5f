"""The fields that gateways without a test of their own document, for what the recipes use of them.

Each is a JSON Schema that accepts these fields and no others. They are taken from what the projects
published by August 2026: Istio's `MeshConfig` and custom resources, Envoy Gateway's, agentgateway's
schema, the schemas of APISIX's plugins `forward-auth` and `serverless-pre-function`, Kong's
declarative format, and ingress-nginx's annotations.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]
_TEXT: Schema = {"type": "string"}
_NUMBER: Schema = {"type": "integer"}
_TEXTS: Schema = {"type": "array", "items": _TEXT, "minItems": 1}
_NO: Schema = {"const": False}
"""A switch that opens: it may only be there to be off."""


def _of(required: str = "", **fields: Schema) -> Schema:
    return {
        "type": "object",
        "properties": fields,
        "additionalProperties": False,
        "required": required.split(),
    }


def _list(item: Schema) -> Schema:
    return {"type": "array", "items": item, "minItems": 1}


def _map(value: Schema) -> Schema:
    return {"type": "object", "additionalProperties": value}


def _object(spec: Schema, api: str, kind: str) -> Schema:
    metadata = _of("name namespace", name=_TEXT, namespace=_TEXT)
    fixed: dict[str, Schema] = {"apiVersion": {"const": api}, "kind": {"const": kind}}
    return _of("apiVersion kind metadata spec", **fixed, metadata=metadata, spec=spec)


_ISTIO_BODY = _of(
    "maxRequestBytes", maxRequestBytes=_NUMBER, allowPartialMessage=_NO, packAsBytes={"const": True}
)
_ISTIO_CHECK: dict[str, Schema] = {
    "service": _TEXT,
    "port": _NUMBER,
    "timeout": _TEXT,
    "failOpen": _NO,
    "statusOnError": {"const": "503"},
    "includeRequestBodyInCheck": _ISTIO_BODY,
}
_ISTIO_HTTP = _of(
    "service port pathPrefix failOpen statusOnError includeAdditionalHeadersInCheck",
    **_ISTIO_CHECK,
    pathPrefix=_TEXT,
    includeAdditionalHeadersInCheck=_map(_TEXT),
    includeRequestHeadersInCheck=_TEXTS,
    headersToUpstreamOnAllow=_TEXTS,
    headersToDownstreamOnDeny=_TEXTS,
)
_ISTIO_PROVIDER = _of(
    "name",
    name=_TEXT,
    envoyExtAuthzHttp=_ISTIO_HTTP,
    envoyExtAuthzGrpc=_of("service port failOpen statusOnError", **_ISTIO_CHECK),
)
_ISTIO_RULE = _of(
    "",
    **{"from": _list(_of("source", source=_of("", principals=_TEXTS)))},
    when=_list(_of("key values", key=_TEXT, values=_TEXTS)),
)
_AUTHORIZATION_POLICY = _object(
    _of(
        "selector action rules",
        selector=_of("matchLabels", matchLabels=_map(_TEXT)),
        action={"enum": ["ALLOW", "CUSTOM", "DENY"]},
        provider=_of("name", name=_TEXT),
        rules=_list(_ISTIO_RULE),
    ),
    "security.istio.io/v1",
    "AuthorizationPolicy",
)
_ISTIO_ROUTE = _object(
    _of(
        "hosts gateways http",
        hosts=_TEXTS,
        gateways=_TEXTS,
        http=_list(
            _of(
                "rewrite headers route",
                rewrite=_of("authority", authority=_TEXT),
                headers=_of("request", request=_of("remove", remove=_TEXTS)),
                route=_list(
                    _of(
                        "destination",
                        destination=_of(
                            "host port", host=_TEXT, port=_of("number", number=_NUMBER)
                        ),
                    )
                ),
            )
        ),
    ),
    "networking.istio.io/v1",
    "VirtualService",
)
_TARGETS = _list(_of("group kind name", group=_TEXT, kind=_TEXT, name=_TEXT))
_EXT_AUTH = _of(
    "http headersToExtAuth failOpen statusOnError",
    http=_of(
        "backendRefs path",
        backendRefs=_list(_of("name port", name=_TEXT, port=_NUMBER)),
        path=_TEXT,
        headersToBackend=_TEXTS,
    ),
    headersToExtAuth=_TEXTS,
    bodyToExtAuth=_of("maxRequestBytes", maxRequestBytes=_NUMBER),
    timeout=_TEXT,
    failOpen=_NO,
    statusOnError={"const": 503},
)
_REFERENCE = _of("kind name", group=_TEXT, kind=_TEXT, name=_TEXT, namespace=_TEXT)
_ENVOY_GATEWAY = "gateway.envoyproxy.io/v1alpha1"
_CLIENT_TRAFFIC = _of(
    "targetRefs path headers",
    targetRefs=_TARGETS,
    path=_of("", escapedSlashesAction={"const": "RejectRequest"}, disableMergeSlashes=_NO),
    headers=_of(
        "withUnderscoresAction earlyRequestHeaders",
        withUnderscoresAction={"const": "DropHeader"},
        earlyRequestHeaders=_of("remove", remove=_TEXTS),
    ),
)
_LUA_POLICY = _of(
    "targetRefs lua",
    targetRefs=_TARGETS,
    lua=_list(_of("type inline", type={"const": "Inline"}, inline=_TEXT)),
)
_TLS_POLICY = _of(
    "targetRefs validation",
    targetRefs=_TARGETS,
    validation=_of(
        "caCertificateRefs hostname", caCertificateRefs=_list(_REFERENCE), hostname=_TEXT
    ),
)
_FORWARD_AUTH = _of(
    "uri extra_headers allow_degradation status_on_error",
    uri=_TEXT,
    request_method={"enum": ["GET", "POST"]},
    extra_headers=_map(_TEXT),
    request_headers=_TEXTS,
    upstream_headers=_TEXTS,
    client_headers=_TEXTS,
    timeout=_NUMBER,
    allow_degradation=_NO,
    status_on_error={"const": 503},
)
_APISIX_ROUTE = _of(
    "uri plugins upstream",
    id=_TEXT,
    uri=_TEXT,
    plugins=_of(
        "serverless-pre-function forward-auth",
        **{
            "serverless-pre-function": _of(
                "phase functions", phase={"const": "rewrite"}, functions=_TEXTS
            ),
            "forward-auth": _FORWARD_AUTH,
        },
    ),
    upstream=_of(
        "type pass_host nodes", type=_TEXT, pass_host={"const": "node"}, nodes=_map(_NUMBER)
    ),
)
_KONG_SERVICE = _of(
    "name url routes plugins",
    name=_TEXT,
    url=_TEXT,
    routes=_list(
        _of(
            "name paths strip_path preserve_host",
            name=_TEXT,
            paths=_TEXTS,
            strip_path=_NO,
            preserve_host=_NO,
        )
    ),
    plugins=_list(
        _of("name config", name={"const": "pre-function"}, config=_of("access", access=_TEXTS))
    ),
)
_AGENTGATEWAY_CHECK = _of(
    "host failureMode includeRequestBody",
    host=_TEXT,
    failureMode=_of("denyWithStatus", denyWithStatus={"const": 503}),
    includeRequestBody=_of(
        "maxRequestBytes",
        maxRequestBytes=_NUMBER,
        allowPartialMessage=_NO,
        packAsBytes={"const": True},
    ),
)
_AGENTGATEWAY_ROUTE = _of(
    "policies backends",
    policies=_of(
        "extAuthz requestHeaderModifier urlRewrite",
        extAuthz=_AGENTGATEWAY_CHECK,
        requestHeaderModifier=_of("remove", remove=_TEXTS),
        urlRewrite=_of("authority", authority=_of("full", full=_TEXT)),
    ),
    backends=_list(_of("host", host=_TEXT)),
)
_ANY_OBJECT: Schema = {"type": "object", "required": ["apiVersion", "kind", "metadata"]}

FIELDS: dict[str, dict[str, list[Schema]]] = {
    "apisix": {"apisix.yaml": [_of("routes", routes=_list(_APISIX_ROUTE))]},
    "envoy-gateway": {
        "security-policy.yaml": [
            _object(
                _of("targetRefs extAuth", targetRefs=_TARGETS, extAuth=_EXT_AUTH),
                _ENVOY_GATEWAY,
                "SecurityPolicy",
            ),
            _object(_TLS_POLICY, "gateway.networking.k8s.io/v1", "BackendTLSPolicy"),
            _object(
                _of("backendTLS", backendTLS=_of("", clientCertificateRef=_REFERENCE)),
                _ENVOY_GATEWAY,
                "EnvoyProxy",
            ),
            _object(_CLIENT_TRAFFIC, _ENVOY_GATEWAY, "ClientTrafficPolicy"),
            _object(_LUA_POLICY, _ENVOY_GATEWAY, "EnvoyExtensionPolicy"),
        ]
    },
    "ingress-nginx": {"ingress.yaml": [_ANY_OBJECT] * 4},
    "istio": {
        "authorization-policy.yaml": [*[_AUTHORIZATION_POLICY] * 3, _ISTIO_ROUTE],
        "mesh.yaml": [_of("extensionProviders", extensionProviders=_list(_ISTIO_PROVIDER))],
    },
    "kong": {
        "kong.yaml": [
            _of(
                "_format_version services",
                _format_version={"const": "3.0"},
                services=_list(_KONG_SERVICE),
            )
        ]
    },
    "mcp": {
        "agentgateway.yaml": [
            _of(
                "binds",
                binds=_list(
                    _of(
                        "port listeners",
                        port=_NUMBER,
                        listeners=_list(_of("routes", routes=_list(_AGENTGATEWAY_ROUTE))),
                    )
                ),
            )
        ]
    },
}
"""Recipe and file: a schema for each of its documents."""

INGRESS_ANNOTATIONS = {
    f"nginx.ingress.kubernetes.io/{name}"
    for name in (
        "auth-url",
        "auth-proxy-set-headers",
        "auth-response-headers",
        "connection-proxy-header",
        "upstream-vhost",
    )
}
