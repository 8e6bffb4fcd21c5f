"""What the provider says of itself (OpenID Connect Discovery 1.0, section 3), as far as it is used
here. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from control_api.oidc.refusal import ProviderUnavailable, shown
from control_api.security.oidc_settings import OidcSettings, address_fault

_WITH_SECRET = ("client_secret_basic", "client_secret_post")


@dataclass(frozen=True, slots=True)
class Metadata:
    """`names_issuer` says whether each answer names its issuer (RFC 9207). `client_auth` is how we
    prove at the token endpoint who we are."""

    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str | None
    end_session_endpoint: str | None
    names_issuer: bool
    client_auth: str
    scopes: tuple[str, ...]


def parse_metadata(body: Mapping[str, Any], settings: OidcSettings) -> Metadata:
    """Raises `ProviderUnavailable` if it is not the configured provider's, or can't be used."""
    if body.get("issuer") != settings.issuer:
        # Another issuer's document would let its keys vouch for our people.
        raise ProviderUnavailable(
            f"`{settings.discovery_url}` is that of the issuer `{shown(body.get('issuer'))}`, and "
            f"SLUICE_OIDC_ISSUER says `{settings.issuer}`"
        )
    methods = body.get("code_challenge_methods_supported")
    if isinstance(methods, list) and "S256" not in methods:
        raise ProviderUnavailable("it does not support PKCE by S256")
    return Metadata(
        authorization_endpoint=_address(body, "authorization_endpoint", settings),
        token_endpoint=_address(body, "token_endpoint", settings),
        jwks_uri=_address(body, "jwks_uri", settings),
        userinfo_endpoint=_optional(body, "userinfo_endpoint", settings),
        end_session_endpoint=_optional(body, "end_session_endpoint", settings),
        names_issuer=body.get("authorization_response_iss_parameter_supported") is True,
        client_auth=_client_auth(body, settings),
        scopes=settings.scopes or _scopes(body),
    )


def _address(body: Mapping[str, Any], name: str, settings: OidcSettings) -> str:
    url = body.get(name)
    if not isinstance(url, str):
        raise ProviderUnavailable(f"its description has no `{name}`")
    if fault := address_fault(url):
        raise ProviderUnavailable(f"its `{name}`, `{shown(url)}`, {fault}")
    if urlsplit(url).scheme != "https" == urlsplit(settings.issuer).scheme:
        # Plain HTTP leads to this host alone, where only a provider on this host may send us.
        raise ProviderUnavailable(f"its `{name}`, `{shown(url)}`, is not HTTPS as its issuer is")
    return url


def _optional(body: Mapping[str, Any], name: str, settings: OidcSettings) -> str | None:
    return _address(body, name, settings) if body.get(name) is not None else None


def _client_auth(body: Mapping[str, Any], settings: OidcSettings) -> str:
    if settings.client_secret is None:
        return "none"
    # Where the provider does not say, it is the first one (Discovery 1.0, section 3).
    supported = body.get("token_endpoint_auth_methods_supported", _WITH_SECRET[:1])
    for method in _WITH_SECRET:
        if isinstance(supported, list | tuple) and method in supported:
            return method
    raise ProviderUnavailable(f"it supports neither {' nor '.join(_WITH_SECRET)}")


def _scopes(body: Mapping[str, Any]) -> tuple[str, ...]:
    """What to ask for. Many providers refuse a request with a scope that they don't know, and
    `groups` is no standard one."""
    supported = body.get("scopes_supported")
    known = isinstance(supported, list) and "groups" in supported
    return ("openid", "profile", "email", *(("groups",) if known else ()))
