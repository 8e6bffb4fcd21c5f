"""The routes of an MCP server's own OAuth authorization server (MCP, basic/authorization; RFC 8414,
RFC 9728, RFC 7591, RFC 6749). Discovery is open: it reveals no data. Requests that register a
client, ask for authorization or obtain a token are judged as the source
`mcp://<alias>/authorization`. All of them are forwarded with known header fields only, so that none
of the agent's other credentials reach the server."""

from base64 import b64decode
from binascii import Error
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote_plus

from policies.ground.canonical import is_json
from policies.ground.errors import Malformed
from policies.ground.keys import well_formed
from sidecar.http.request_target import Target
from sidecar.protocols.protocol import (
    FieldIterable,
    Fields,
    ForwardPlan,
    PlanForward,
    ProtocolRoute,
    RouteClass,
    RoutedRequest,
    RouteMatch,
    SourceRef,
    Sources,
    without_waiting,
)
from sidecar.protocols.strict_body import Budget, json_object

Pairs = list[tuple[str, str]]

_WELL_KNOWN = ".well-known"
_DISCOVERED = frozenset((
    "oauth-authorization-server", "oauth-protected-resource", "openid-configuration",
))  # fmt: skip
_FORM = "application/x-www-form-urlencoded"
_MOST_FIELDS = 64

_HEADERS = frozenset((
    b"accept", b"accept-encoding", b"accept-language", b"content-type", b"dpop",
    b"if-modified-since", b"if-none-match", b"mcp-protocol-version", b"user-agent",
))  # fmt: skip
_AUTHORIZE = frozenset((
    "acr_values", "audience", "claims", "client_id", "code_challenge", "code_challenge_method",
    "display", "id_token_hint", "login_hint", "max_age", "nonce", "prompt", "redirect_uri",
    "request", "request_uri", "resource", "response_mode", "response_type", "scope", "state",
    "ui_locales",
))  # fmt: skip
_TOKEN = frozenset((
    "actor_token", "actor_token_type", "assertion", "audience", "client_assertion",
    "client_assertion_type", "client_id", "client_secret", "code", "code_verifier", "device_code",
    "grant_type", "redirect_uri", "refresh_token", "requested_token_type", "resource", "scope",
    "subject_token", "subject_token_type",
))  # fmt: skip
# RFC 8707 section 2 and RFC 8693 section 2.1 allow several of these.
_REPEATED = frozenset(("audience", "resource"))
_REGISTER = frozenset((
    "application_type", "authorization_details_types", "client_name", "client_uri", "contacts",
    "default_acr_values", "default_max_age", "dpop_bound_access_tokens", "grant_types",
    "id_token_signed_response_alg", "initiate_login_uri", "jwks", "jwks_uri", "logo_uri",
    "policy_uri", "post_logout_redirect_uris", "redirect_uris", "request_object_signing_alg",
    "request_uris", "require_auth_time", "response_modes", "response_types", "scope",
    "sector_identifier_uri", "software_id", "software_statement", "software_version",
    "subject_type", "tls_client_certificate_bound_access_tokens", "token_endpoint_auth_method",
    "token_endpoint_auth_signing_alg", "tos_uri", "userinfo_signed_response_alg",
))  # fmt: skip


class HasAuthorization(Protocol):
    """The interface of a protocol whose server has an authorization server of its own."""

    def authorization_source(self) -> SourceRef:
        """Return the source under which requests to the authorization server are judged."""


def match(method: str, target: Target) -> RouteMatch | None:
    """Return the route of a request to the authorization server; None if the request isn't for
    it."""
    if method == "GET" and target.query is None and _is_discovery(target.segments):
        return _DISCOVERY
    return _ROUTES.get((method, target.path))


def _is_discovery(segments: tuple[str, ...]) -> bool:
    if segments[0] == _WELL_KNOWN:
        # The path of the resource or issuer may follow (RFC 8414 section 3.1).
        return len(segments) > 1 and segments[1] in _DISCOVERED
    # OpenID Connect appends it to the path of the issuer.
    return segments[-2:] == (_WELL_KNOWN, "openid-configuration")


def is_oauth_endpoint(target: Target) -> bool:
    """Return whether `target` is an endpoint of the authorization server other than discovery, so
    that a refusal has the form that OAuth clients read."""
    return any(target.path == path for _, path in _ROUTES)


def _registration(raw: bytes, media: str | None, budget: Budget) -> Pairs:
    """Return the members of a client's registration metadata, with an empty string in place of each
    value that isn't text. Raises `Malformed` for an unknown member."""
    value = json_object(raw, media, budget)
    # A name may state a language, as in `client_name#de` (RFC 7591 section 2.2).
    _refuse_unknown((name.partition("#")[0] for name in value), _REGISTER)
    return [(name, each if isinstance(each, str) else "") for name, each in value.items()]


def _token_request(raw: bytes, media: str | None, budget: Budget) -> Pairs:
    kind = "" if media is None else media.partition(";")[0].strip().lower()
    if kind != _FORM and media is not None and is_json(media):
        value = json_object(raw, media, budget)
        if not all(isinstance(each, str) for each in value.values()):
            raise Malformed("the members of a token request must be strings")
        pairs = list(value.items())
    elif kind == _FORM:
        pairs = _form(raw)
    else:
        raise Malformed(f"the body's content type must be `{_FORM}` or `application/json`")
    _refuse_unknown((name for name, _ in pairs), _TOKEN)
    return pairs


def _form(raw: bytes) -> Pairs:
    """Return the fields of a URL-encoded form. Raises `Malformed` if it could be read in two ways,
    or if a field that may occur only once occurs twice."""
    # Some servers end a field at a `;` too, and would find fields that are not checked here.
    if b";" in raw:
        raise Malformed("the form has a bare `;`: write it as `%3B`")
    try:
        text = raw.decode("ascii")
        pairs = parse_qsl(text, True, True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError as error:
        raise Malformed("the form can't be read in one way only") from error
    once = [name for name, _ in pairs if name not in _REPEATED]
    if len(set(once)) < len(once):
        raise Malformed("a field of the form occurs twice")
    return pairs


def _refuse_unknown(names: Iterable[str], known: frozenset[str]) -> None:
    for name in names:
        if name not in known:
            raise Malformed(f"`{name[:64]}` is not a field of OAuth that is known to be harmless")


def _of_body(mcp: HasAuthorization, request: RoutedRequest) -> Sources:
    _refuse_key((value for _, value in request.body), "the body")
    _refuse_key(_basic(request.fields), "the header `authorization`")
    return (mcp.authorization_source(),)


def _of_query(mcp: HasAuthorization, request: RoutedRequest) -> Sources:
    pairs = _form((request.target.query or "").encode())
    _refuse_unknown((name for name, _ in pairs), _AUTHORIZE)
    _refuse_key((value for _, value in pairs), "the query")
    return (mcp.authorization_source(),)


def _refuse_key(values: Iterable[str], where: str) -> None:
    if any(map(well_formed, values)):
        raise Malformed(f"{where} holds an API key of Sluice, which is not for this server")


def _basic(fields: FieldIterable) -> list[str]:
    found: list[str] = []
    for name, value in fields:
        if name.lower() == b"authorization" and _is_basic(value):
            try:
                text = b64decode(value[6:].strip(), validate=True).decode()
            except (Error, ValueError) as error:
                raise Malformed("the header `authorization` can't be read") from error
            # Both parts are encoded as in a form (RFC 6749 section 2.3.1).
            found += [unquote_plus(each) for each in text.split(":")]
    return found


def _is_basic(value: bytes) -> bool:
    return value[:6].lower() == b"basic "


def _chosen(fields: FieldIterable, *, client: bool) -> Fields:
    """Return the header fields that are forwarded to the authorization server; with `client`, also
    the client's own HTTP Basic credentials."""
    named = [(name.lower(), (name, value)) for name, value in fields]
    basic = client and b"authorization"
    return [f for name, f in named if name in _HEADERS or (name == basic and _is_basic(f[1]))]


def _plan(*, client: bool) -> PlanForward:
    plan = ForwardPlan(forward_fields=partial(_chosen, client=client))
    return lambda _mcp, _request, _sources, _visibility: plan


def _route_match(
    method: str, path: str, find: Callable[[Any, RoutedRequest], Sources], **more: Any
) -> RouteMatch:
    route = ProtocolRoute(method, path, RouteClass.METADATA, without_waiting(find), **more)
    return RouteMatch(replace(route, plan_forward=_plan(client=path == "/token")), ())


_DISCOVERY = RouteMatch(
    ProtocolRoute("GET", f"/{_WELL_KNOWN}", RouteClass.OPEN, plan_forward=_plan(client=False)), ()
)
_ROUTES = {
    ("GET", "/authorize"): _route_match("GET", "/authorize", _of_query),
    ("POST", "/register"): _route_match("POST", "/register", _of_body, parse_body=_registration),
    ("POST", "/token"): _route_match("POST", "/token", _of_body, parse_body=_token_request),
}
