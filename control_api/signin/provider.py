"""Signs people in by the identity provider: discovery (OpenID Connect Discovery 1.0), keys, and the
authorization code flow.

    a sign-in begins    > metadata > the URL that the browser goes to
    the browser is back > state > `iss` > code > tokens > ID token > groups

The provider's metadata and keys are cached, and fetched again after some time, by one request at a
time. A fetch that failed is remembered for seconds, so that waiting requests don't each repeat it.
"""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, TypeVar
from urllib.parse import quote_plus, urlsplit

from authlib.oauth2 import ClientAuth, OAuth2Client
from authlib.oauth2.rfc6749.parameters import prepare_token_request
from joserfc.jwk import KeySet

from control_api.security.console_settings import OidcSettings, address_fault
from control_api.signin.attempt import (
    MAX_SECONDS,
    Attempt,
    Person,
    ProviderUnavailable,
    SignInRefusal,
    SignInRefused,
    groups_of,
    log_name,
    shown,
)
from control_api.signin.provider_answers import (
    Expected,
    ProviderClient,
    UnknownKey,
    parse_keys,
    verify_id_token,
)
from policies.ground.clock import Clock

_WITH_SECRET = ("client_secret_basic", "client_secret_post")


@dataclass(frozen=True, slots=True)
class Metadata:
    """The provider's endpoints and abilities, from its discovery document. `names_issuer` is True
    if each authorization response names its issuer (RFC 9207). `client_auth` is the method by which
    we authenticate at the token endpoint."""

    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str | None
    end_session_endpoint: str | None
    names_issuer: bool
    client_auth: str
    scopes: tuple[str, ...]


def parse_metadata(body: Mapping[str, Any], settings: OidcSettings) -> Metadata:
    """Parse the discovery document. Raise `ProviderUnavailable` if it is not the configured
    provider's, or lacks something that is needed."""
    if body.get("issuer") != settings.issuer:
        # Another issuer's document would let its keys vouch for our people.
        raise ProviderUnavailable(
            f"`{settings.discovery_url}` is that of the issuer `{shown(body.get('issuer'))}`, and "
            f"SLUICE_OIDC_ISSUER says `{settings.issuer}`"
        )
    methods = body.get("code_challenge_methods_supported")
    if isinstance(methods, list) and "S256" not in methods:
        raise ProviderUnavailable("it does not support PKCE by S256")
    # Many providers refuse a request with a scope that they don't know, and `groups` is no
    # standard one.
    known = body.get("scopes_supported")
    groups = ("groups",) if isinstance(known, list) and "groups" in known else ()
    return Metadata(
        authorization_endpoint=_address(body, "authorization_endpoint", settings),
        token_endpoint=_address(body, "token_endpoint", settings),
        jwks_uri=_address(body, "jwks_uri", settings),
        userinfo_endpoint=_optional(body, "userinfo_endpoint", settings),
        end_session_endpoint=_optional(body, "end_session_endpoint", settings),
        names_issuer=body.get("authorization_response_iss_parameter_supported") is True,
        client_auth=_client_auth(body, settings),
        scopes=settings.scopes or ("openid", "profile", "email", *groups),
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


Value = TypeVar("Value")
METADATA_SECONDS = 3600.0
KEYS_SECONDS = 300.0
"""The seconds for which the provider's keys are cached, and so a key that it has removed is still
trusted."""
RETRY_SECONDS = 5.0
MAX_EXCHANGES = 16
"""The most codes that are exchanged for tokens at a time. It is limited because anyone may call the
callback, and each call costs a request to the provider."""
MAX_USED_STATES = 65_536
_MAX_CODE = 4096


class Cached(Generic[Value]):
    """A value that is fetched at the first use, and again when it is too old."""

    def __init__(self, fetch: Callable[[], Awaitable[Value]], seconds: float, clock: Clock) -> None:
        self._fetch = fetch
        self._seconds = seconds
        self._monotonic = clock.monotonic
        self._lock = asyncio.Lock()
        self._held: tuple[float, Value] | None = None
        self._failed: tuple[float, ProviderUnavailable] | None = None

    async def get(self, newer_than: Value | None = None) -> Value:
        """Return the value. Fetch it first if it is too old, or if it is still the value in
        `newer_than`. Raise `ProviderUnavailable` if it can't be fetched."""
        async with self._lock:
            now = self._monotonic()
            held = self._held
            if held and held[1] is not newer_than and now - held[0] < self._seconds:
                return held[1]
            if self._failed and now - self._failed[0] < RETRY_SECONDS:
                raise self._failed[1]
            try:
                value = await self._fetch()
            except ProviderUnavailable as error:
                self._failed = (self._monotonic(), error)
                raise
            self._held, self._failed = (self._monotonic(), value), None
            return value


class IdentityProvider:
    """The identity provider that people sign in at. `authorization_url` begins a sign-in, and
    `person` ends it."""

    def __init__(self, settings: OidcSettings, clock: Clock) -> None:
        self.settings = settings
        self._clock = clock
        self._client = ProviderClient(settings.ca)
        self._metadata = Cached(self._fetch_metadata, METADATA_SECONDS, clock)
        self._keys = Cached(self._fetch_keys, KEYS_SECONDS, clock)
        self._exchanges = asyncio.Semaphore(MAX_EXCHANGES)
        self._used_states: dict[str, float] = {}

    async def authorization_url(self, attempt: Attempt) -> str:
        """Return the URL where the browser signs in at the provider. Raise `ProviderUnavailable` if
        the metadata can't be fetched."""
        metadata = await self._metadata.get()
        client = OAuth2Client(
            None,
            client_id=self.settings.client_id,
            redirect_uri=self.settings.redirect_uri,
            scope=" ".join(metadata.scopes),
            code_challenge_method="S256",
        )
        url, _ = client.create_authorization_url(
            metadata.authorization_endpoint,
            state=attempt.state,
            code_verifier=attempt.verifier,
            nonce=attempt.nonce,
        )
        return str(url)

    async def sign_out_url(self, back: str) -> str | None:
        """Return the URL that ends the browser's session at the provider and then leads to the URL
        `back`, or None if the provider has no such page. Raise `ProviderUnavailable` if the
        metadata can't be fetched."""
        endpoint = (await self._metadata.get()).end_session_endpoint
        if endpoint is None:
            return None
        mark = "&" if "?" in endpoint else "?"
        client_id, back = quote_plus(self.settings.client_id), quote_plus(back)
        return f"{endpoint}{mark}client_id={client_id}&post_logout_redirect_uri={back}"

    async def person(self, answer: Mapping[str, str], attempt: Attempt | None) -> Person:
        """Return the person who came back from the provider. `answer` holds the query parameters.
        Raise `SignInRefused` if the answer is not valid, and `ProviderUnavailable` if the provider
        can't be asked."""
        # INVARIANT: state before anything else. Without it anyone could have a browser show what
        # they wrote into `error_description`, or sign it in as themselves.
        if attempt is None or not hmac.compare_digest(
            answer.get("state", "").encode(), attempt.state.encode()
        ):
            raise SignInRefused(
                SignInRefusal.state,
                "this answer does not belong to a sign-in that this browser began in the last 10 "
                "minutes",
            )
        self._use_once(attempt)
        if self._exchanges.locked():
            raise ProviderUnavailable("too many people sign in at the moment; try again")
        async with self._exchanges:
            metadata = await self._metadata.get()
            self._check_issuer(answer, metadata)
            return await self._exchange(_code(answer), attempt, metadata)

    def _use_once(self, attempt: Attempt) -> None:
        """Mark the attempt as answered, and raise `SignInRefused` if it was answered before.
        Another process may have handled the same answer, but the provider accepts each code only
        once."""
        now = self._clock.monotonic()
        for state, since in tuple(islice(self._used_states.items(), 2)):
            if now - since > MAX_SECONDS or len(self._used_states) > MAX_USED_STATES:
                del self._used_states[state]
        if attempt.state in self._used_states:
            raise SignInRefused(
                SignInRefusal.state, "this sign-in was answered already: begin it again"
            )
        self._used_states[attempt.state] = now

    def _check_issuer(self, answer: Mapping[str, str], metadata: Metadata) -> None:
        issuer = answer.get("iss")
        # RFC 9207, section 2.4: another provider's answer must not be taken for ours.
        if issuer is None and not metadata.names_issuer:
            return
        if issuer != self.settings.issuer:
            raise SignInRefused(SignInRefusal.issuer, f"the answer is from `{shown(issuer)}`")

    async def _exchange(self, code: str, attempt: Attempt, metadata: Metadata) -> Person:
        tokens = await self._tokens(code, attempt, metadata)
        id_token, access_token = tokens.get("id_token"), tokens.get("access_token")
        if not isinstance(id_token, str):
            raise SignInRefused(SignInRefusal.id_token, "the identity provider gave no ID token")
        access_token = access_token if isinstance(access_token, str) else None
        expected = Expected(
            self.settings.issuer, self.settings.client_id, attempt.nonce, access_token
        )
        claims = await self._verified(id_token, expected)
        groups = groups_of(claims, self.settings.groups_claim)
        if groups is None and access_token and metadata.userinfo_endpoint:
            claims = await self._with_user_info(claims, access_token, metadata.userinfo_endpoint)
            groups = groups_of(claims, self.settings.groups_claim)
        return Person(claims["iss"], claims["sub"], log_name(claims), groups or frozenset())

    async def _tokens(self, code: str, attempt: Attempt, metadata: Metadata) -> dict[str, Any]:
        form = prepare_token_request(
            "authorization_code",
            code=code,
            redirect_uri=self.settings.redirect_uri,
            code_verifier=attempt.verifier,
        )
        client_id, secret = self.settings.client_id, self.settings.client_secret
        if metadata.client_auth == "client_secret_basic":
            # Form-encoded first (RFC 6749, section 2.3.1), which Authlib leaves to its caller.
            client_id, secret = quote_plus(client_id), quote_plus(secret or "")
        auth = ClientAuth(client_id, secret, metadata.client_auth)
        url, headers, body = auth.prepare("POST", metadata.token_endpoint, {}, form)
        answer = await self._client.post(url, headers, body)
        if answer.status == 200:
            return answer.body
        error = answer.body.get("error", f"status {answer.status}")
        if error == "invalid_grant":
            raise SignInRefused(
                SignInRefusal.code,
                "the identity provider does not accept the code: it may be used once",
            )
        why = f"the exchange of the code was answered `{shown(error)}`"
        if description := answer.body.get("error_description"):
            why += f": {shown(description)}"
        raise ProviderUnavailable(why)

    async def _verified(self, id_token: str, expected: Expected) -> Mapping[str, Any]:
        keys = await self._keys.get()
        now = self._clock.now() // 1_000_000
        try:
            return verify_id_token(id_token, keys, expected, now)
        except UnknownKey:
            # The provider may have changed its keys since.
            keys = await self._keys.get(newer_than=keys)
        return verify_id_token(id_token, keys, expected, now)

    async def _with_user_info(
        self, claims: Mapping[str, Any], access_token: str, url: str
    ) -> Mapping[str, Any]:
        """Return the claims together with those that the provider's UserInfo endpoint returns.
        Raise `SignInRefused` if these are about another person."""
        found = await self._client.get(url, {"Authorization": f"Bearer {access_token}"})
        # OpenID Connect Core 1.0, section 5.3.2: it may be another person's.
        if found.get("sub") != claims["sub"]:
            raise SignInRefused(
                SignInRefusal.id_token, "the UserInfo endpoint answered for someone else"
            )
        return {**found, **claims}

    async def _fetch_metadata(self) -> Metadata:
        body = await self._client.get(self.settings.discovery_url)
        return parse_metadata(body, self.settings)

    async def _fetch_keys(self) -> KeySet:
        metadata = await self._metadata.get()
        keys = parse_keys(await self._client.get(metadata.jwks_uri))
        if not keys:
            raise ProviderUnavailable(f"`{metadata.jwks_uri}` has no key that can be used")
        return keys


def _code(answer: Mapping[str, str]) -> str:
    if error := answer.get("error"):
        description = answer.get("error_description")
        more = f": {shown(description)}" if description else ""
        raise SignInRefused(
            SignInRefusal.provider, f"the identity provider says `{shown(error)}`{more}"
        )
    code = answer.get("code", "")
    if not 0 < len(code) <= _MAX_CODE:
        raise SignInRefused(SignInRefusal.code, "the identity provider's answer has no code")
    return code
