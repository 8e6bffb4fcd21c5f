"""Sends requests to the identity provider, within limits of time and bytes, and verifies the ID
token in its response (OpenID Connect Core 1.0, section 3.1.3.7) with Authlib."""

import ssl
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector
from authlib.oidc.core import CodeIDToken
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from joserfc import jwt
from joserfc.errors import BadSignatureError, InvalidKeyIdError, JoseError, SecurityWarning
from joserfc.jwk import JWKRegistry, Key, KeySet
from joserfc.jws import JWSRegistry

from control_api.signin.attempt import ProviderUnavailable, SignInRefusal, SignInRefused, shown
from policies.ground.canonical import parse_object
from policies.ground.errors import Malformed

CONNECT_SECONDS = 3.0
TOTAL_SECONDS = 5.0
MAX_BYTES = 256 * 1024
"""The most bytes in a response of the provider. A key set with certificates has some 10 kB, and a
person's token with 200 groups as much."""
_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "sluice"}
_FORM = "application/x-www-form-urlencoded"


@dataclass(frozen=True, slots=True)
class Fetched:
    """A response of the provider: its status and its JSON object."""

    status: int
    body: dict[str, Any]


class ProviderClient:
    """An HTTP client for the identity provider. `ca` holds the certificate authorities that are
    trusted instead of the system's."""

    def __init__(self, ca: Path | None) -> None:
        self._tls = ssl.create_default_context(cafile=ca)

    async def get(self, url: str, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the JSON object at `url`. Raise `ProviderUnavailable` if there is no such
        response."""
        found = await self._request("GET", url, headers or {}, None)
        if found.status != 200:
            raise ProviderUnavailable(f"`{url}` answered {found.status}")
        return found.body

    async def post(self, url: str, headers: Mapping[str, str], form: str) -> Fetched:
        """Post a form and return the response. Raise `ProviderUnavailable` if the response is not a
        JSON object."""
        return await self._request("POST", url, {**headers, "Content-Type": _FORM}, form)

    async def _request(
        self, method: str, url: str, headers: Mapping[str, str], form: str | None
    ) -> Fetched:
        try:
            status, raw = await self._read(method, url, headers, form)
        except TimeoutError:
            raise ProviderUnavailable(f"no answer from `{url}` in {TOTAL_SECONDS:g} s") from None
        except (ClientError, OSError, ValueError) as error:
            # Not the headers or the form: they hold secrets.
            raise ProviderUnavailable(
                f"`{url}` can't be asked: {str(error) or type(error).__name__}"
            ) from None
        try:
            return Fetched(status, parse_object(raw, None, unique=True))
        except Malformed:
            raise ProviderUnavailable(
                f"`{url}` answered {status}, and not with a JSON object"
            ) from None

    async def _read(
        self, method: str, url: str, headers: Mapping[str, str], form: str | None
    ) -> tuple[int, bytes]:
        # No redirect and no proxy from the environment: both lead elsewhere, and what is read here
        # decides who a person is.
        async with (
            ClientSession(
                connector=TCPConnector(ssl=self._tls, force_close=True, limit=1),
                cookie_jar=DummyCookieJar(),
                trust_env=False,
                auto_decompress=False,  # a small answer must not become a large one in memory
                timeout=ClientTimeout(total=TOTAL_SECONDS, sock_connect=CONNECT_SECONDS),
                headers=_HEADERS,
            ) as session,
            session.request(
                method, url, headers=headers, data=form, allow_redirects=False
            ) as answer,
        ):
            raw = b""
            while chunk := await answer.content.readany():
                raw += chunk
                if len(raw) > MAX_BYTES:
                    raise ProviderUnavailable(f"`{url}` answered more than {MAX_BYTES} bytes")
            return answer.status, raw


# INVARIANT: signatures only. With `none` or HMAC, what the provider publishes would be enough to
# make a token (RFC 8725, section 2.1).
ALGORITHMS = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA", "Ed25519",
)  # fmt: skip
LEEWAY = 30
"""The seconds by which the provider's clock and ours may differ."""
MAX_KEYS = 64
_MAX_SUBJECT = 255  # OpenID Connect Core 1.0, section 2
_RSA_BITS = (2048, 8192)
_PUBLIC = ("kty", "kid", "alg", "use", "key_ops", "n", "e", "crv", "x", "y")
_KEY_TYPES = ("RSA", "EC", "OKP")


class UnknownKey(SignInRefused):
    """no key of the set made the token's signature: newer keys may help"""


@dataclass(frozen=True, slots=True)
class Expected:
    """The values that an ID token must have. `access_token` is the access token that came with
    it."""

    issuer: str
    client_id: str
    nonce: str
    access_token: str | None


def parse_keys(body: Mapping[str, Any]) -> KeySet:
    """Return the keys of a JWKS that can verify a signature. Anything else in it is ignored, as RFC
    7517, section 5, says."""
    listed = body.get("keys")
    found = [] if not isinstance(listed, list) else [_key(each) for each in listed[:MAX_KEYS]]
    return KeySet([key for key in found if key is not None])


def _key(value: object) -> Key | None:
    if not isinstance(value, dict) or value.get("kty") not in _KEY_TYPES:
        return None
    if value.get("use", "sig") != "sig" or "verify" not in value.get("key_ops", ("verify",)):
        return None
    try:
        with warnings.catch_warnings(action="ignore", category=SecurityWarning):
            key = JWKRegistry.import_key({name: value[name] for name in _PUBLIC if name in value})
            raw = key.raw_value
    except (JoseError, ValueError, TypeError, KeyError, OverflowError):
        return None
    # A short key can be factored, and a huge one costs each sign-in seconds.
    if isinstance(raw, RSAPublicKey) and not _RSA_BITS[0] <= raw.key_size <= _RSA_BITS[1]:
        return None
    return key


def verify_id_token(token: str, keys: KeySet, expected: Expected, now: int) -> Mapping[str, Any]:
    """Verify the ID token and return its claims. `now` is in seconds. Raise `SignInRefused` if the
    token is not valid, and its subclass `UnknownKey` if a newer key set may help."""
    try:
        # EdDSA is the name that most providers still use for Ed25519 (RFC 9864).
        with warnings.catch_warnings(action="ignore", category=SecurityWarning):
            registry = JWSRegistry(algorithms=ALGORITHMS, strict_check_header=False)
            decoded = jwt.decode(token, keys, registry=registry)
        claims = CodeIDToken(
            decoded.claims,
            decoded.header,
            {
                "iss": {"essential": True, "value": expected.issuer},
                "aud": {"essential": True, "value": expected.client_id},
                "sub": {"essential": True},
            },
            {
                "nonce": expected.nonce,
                "client_id": expected.client_id,
                "access_token": expected.access_token,
            },
        )
        claims.validate(now=now, leeway=LEEWAY)
    except (InvalidKeyIdError, BadSignatureError):
        # A provider may give its next key the name of the one before, or no name.
        raise UnknownKey(
            SignInRefusal.id_token, "the ID token is not signed by a key of the identity provider"
        ) from None
    except (JoseError, ValueError, TypeError, RecursionError) as error:
        raise _refused(f"its ID token is not valid: {shown(error)}") from None
    subject = claims["sub"]
    if len(subject) > _MAX_SUBJECT or not subject.isprintable():
        raise _refused("the subject of its ID token is too long, or not a printable text")
    return decoded.claims


def _refused(why: str) -> SignInRefused:
    return SignInRefused(SignInRefusal.id_token, f"the identity provider answered, but {why}")
