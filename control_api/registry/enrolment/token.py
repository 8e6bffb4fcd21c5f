"""Reads and verifies a Kubernetes ServiceAccount token (RFC 7515, RFC 7519) against a key set (RFC
7517), and says why a token is refused.

    read      three parts of strict base64url, three known header members, unambiguous JSON
    key       found by (issuer, `kid`); the key itself says the algorithm, the header only agrees
    verify    signature, audience, times, and the binding to a pod

Refuses what a lenient reader would accept: padding, a second copy of a member, times that are not
integers, several audiences, any other header member (`jku`, `x5u`, `jwk`, `crit`, …).

Every key fixes its own algorithm: an RSA key verifies RS256, a P-256 key ES256, nothing else.

Also defines the name of a workload: a Kubernetes service account, with the cluster that issued its
tokens.
"""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from pydantic import AfterValidator, WithJsonSchema

from control_api.metrics.labels import Enrolling
from policies.ground.canonical import parse_object
from policies.ground.errors import Forbidden, Malformed

# Issuers are URLs without a space. Names of namespaces are DNS labels, and those of service
# accounts DNS subdomains (Kubernetes, "Object Names and IDs").
_PATTERN = "[!-~]{1,256}:system:serviceaccount:[a-z0-9-]{1,63}:[a-z0-9][a-z0-9.-]{0,252}"
_FORM = re.compile(_PATTERN + r"\Z")
_NAMESPACE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\Z")
_ACCOUNT = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?\Z")


def _workload(text: str) -> str:
    if not _FORM.match(text):
        raise ValueError("must be `<issuer>:system:serviceaccount:<namespace>:<service account>`")
    return text


Workload = Annotated[
    str,
    AfterValidator(_workload),
    WithJsonSchema({"type": "string", "maxLength": 1024, "pattern": f"^{_PATTERN}$"}),
]
"""The name of a workload: `<issuer>:system:serviceaccount:<namespace>:<service account>`."""


def workload_of(issuer: str, namespace: str, account: str) -> str:
    return f"{issuer}:{subject_of(namespace, account)}"


def subject_of(namespace: str, account: str) -> str:
    """Return the `sub` claim of a service account's token."""
    return f"system:serviceaccount:{namespace}:{account}"


def is_namespace(text: object) -> bool:
    return isinstance(text, str) and bool(_NAMESPACE.match(text))


def is_account(text: object) -> bool:
    """Return whether the value is a valid name of a service account or of a pod."""
    return isinstance(text, str) and bool(_ACCOUNT.match(text))


RS256, ES256 = "RS256", "ES256"
ALGORITHMS = (RS256, ES256)
MAX_KEYS = 64
MAX_BYTES = 256 * 1024
_RSA_BITS = range(2048, 8192 + 1)
_P256_BYTES = 32
_PRIVATE = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})


class UnusableKeySet(Exception):
    """the key set can't be used"""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A public key that verifies signatures of one algorithm."""

    key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey

    @property
    def algorithm(self) -> str:
        return RS256 if isinstance(self.key, rsa.RSAPublicKey) else ES256

    def verifies(self, signature: bytes, message: bytes) -> bool:
        try:
            if isinstance(self.key, rsa.RSAPublicKey):
                self.key.verify(signature, message, padding.PKCS1v15(), SHA256())
            else:
                self.key.verify(_der(signature), message, ec.ECDSA(SHA256()))
        except InvalidSignature:
            return False
        return True


def parse_key_set(raw: bytes) -> dict[str, PublicKey]:
    """Parse a JWK set, and return its keys by `kid`. Keys of other types and uses are left out.
    Raise `UnusableKeySet` if the set can't be parsed, or holds no key that could verify a token."""
    try:
        keys = parse_object(raw, None, unique=True).get("keys")
    except Malformed as error:
        raise UnusableKeySet(f"it is not a JSON object: {error.message}") from None
    if not isinstance(keys, list) or len(keys) > MAX_KEYS:
        raise UnusableKeySet(f"`keys` is not a list of at most {MAX_KEYS} keys")
    found: dict[str, PublicKey] = {}
    several = set()
    for jwk in keys:
        kid = jwk.get("kid") if isinstance(jwk, dict) else None
        if not isinstance(kid, str) or not kid or not _verifies_signatures(jwk):
            continue
        key = _public_key(jwk)
        if key is not None:
            several.update({kid} & found.keys())
            found[kid] = key
    # Which of two keys a `kid` means would depend on the order in which they are listed.
    usable = {kid: key for kid, key in found.items() if kid not in several}
    if not usable:
        raise UnusableKeySet("it holds no RSA key of 2048 bits or more and no P-256 key")
    return usable


def _verifies_signatures(jwk: Mapping[str, Any]) -> bool:
    """Return whether the JWK is a public key that is meant for signatures. A private key in the set
    was published by mistake, so it can't be trusted any more."""
    if not _PRIVATE.isdisjoint(jwk):
        return False
    operations = jwk.get("key_ops")
    may_verify = operations is None or (isinstance(operations, list) and "verify" in operations)
    return jwk.get("use", "sig") == "sig" and may_verify


def _public_key(jwk: Mapping[str, Any]) -> PublicKey | None:
    try:
        if jwk.get("kty") == "RSA" and jwk.get("alg", RS256) == RS256:
            modulus, exponent = _number(jwk["n"]), _number(jwk["e"])
            if modulus.bit_length() not in _RSA_BITS:
                return None
            return PublicKey(rsa.RSAPublicNumbers(exponent, modulus).public_key())
        if jwk.get("kty") == "EC" and jwk.get("crv") == "P-256" and jwk.get("alg", ES256) == ES256:
            point = ec.EllipticCurvePublicNumbers(
                _number(jwk["x"]), _number(jwk["y"]), ec.SECP256R1()
            )
            return PublicKey(point.public_key())
    except (KeyError, TypeError, ValueError):
        # A damaged key verifies nothing; the others of the set stay in use.
        return None
    return None


def _number(text: object) -> int:
    if not isinstance(text, str) or not text.isascii():
        raise TypeError("not base64url")
    digits = text.rstrip("=")
    return int.from_bytes(base64.urlsafe_b64decode(digits + "=" * (-len(digits) % 4)))


def _der(signature: bytes) -> bytes:
    """Convert a token's ECDSA signature, which is R and S of 32 bytes each (RFC 7518, section 3.4),
    to DER."""
    if len(signature) != 2 * _P256_BYTES:
        raise InvalidSignature
    r, s = signature[:_P256_BYTES], signature[_P256_BYTES:]
    return encode_dss_signature(int.from_bytes(r), int.from_bytes(s))


class TokenRefused(Forbidden):
    """the token is refused

    `issuer` is set once the token's is known, and `pod` once its signature holds: before that,
    everything that the token says is a stranger's text.
    """

    def __init__(
        self, reason: Enrolling, why: str, issuer: str | None = None, pod: "Pod | None" = None
    ) -> None:
        # A sidecar reads the reason, and an operator the sentence.
        super().__init__(f"the token is refused: {why}", details=str(reason))
        self.reason = reason
        self.why = why
        self.issuer = issuer
        self.pod = pod


AUDIENCE = "sluice"
MAX_TOKEN = 8192
"""The most characters in a token. The tokens of the API server have about 1,200."""
MAX_LIFETIME = 3610
"""The most seconds for which a token may be valid. The chart asks for 600; the kubelet asks for at
least that, and the API server adds up to 10. A token that is valid for a year, as some clusters
issue for old clients, is not one of ours."""
LEEWAY = 30
"""The seconds by which the cluster's clock and ours may differ."""

_BASE64URL = re.compile(r"[A-Za-z0-9_-]+\Z")
_UID = re.compile(r"[A-Za-z0-9_.-]{1,128}\Z")
_HEADER = frozenset({"alg", "kid", "typ"})
_MAX_KID = 256


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod as a verified token proves it: it runs as this service account of this cluster."""

    issuer: str
    namespace: str
    service_account: str
    service_account_uid: str
    name: str
    uid: str
    node: str | None

    @property
    def workload(self) -> str:
        return workload_of(self.issuer, self.namespace, self.service_account)

    def detail(self) -> dict[str, str | None]:
        """Return the fields that identify the pod in a log entry."""
        return {
            "workload": self.workload,
            "service_account_uid": self.service_account_uid,
            "pod": self.name,
            "pod_uid": self.uid,
            "node": self.node,
        }


@dataclass(frozen=True, slots=True)
class UnverifiedToken:
    """A token that was parsed but not verified. INVARIANT: until `verify` has returned, `issuer`
    and `kid` may only be looked up, and nothing else in the token may be used."""

    algorithm: str
    kid: str
    issuer: str
    signed: bytes
    signature: bytes
    claims: dict[str, Any]


def read_token(text: str) -> UnverifiedToken:
    """Parse a token. Raise `TokenRefused` if it is not exactly of the form that is accepted."""
    if len(text) > MAX_TOKEN:
        raise _malformed(f"it has {len(text)} characters; the limit is {MAX_TOKEN}")
    parts = text.split(".")
    if len(parts) != 3:
        raise _malformed("it is not a signed token of three parts")
    header, claims = _object(parts[0], "header"), _object(parts[1], "claims")
    unknown = sorted(header.keys() - _HEADER)
    if unknown:
        # RFC 7515 says to ignore what is unknown, unless `crit` names it. A verifier that takes no
        # key, URL or rule from a token needs none of them, so a token that has one is not ours.
        raise TokenRefused(Enrolling.header, f"its header has `{_short(unknown[0])}`")
    if header.get("typ", "JWT") != "JWT":
        raise TokenRefused(Enrolling.header, "the `typ` of its header is not `JWT`")
    algorithm, kid, issuer = header.get("alg"), header.get("kid"), claims.get("iss")
    if algorithm not in ALGORITHMS:
        raise TokenRefused(Enrolling.algorithm, f"its `alg` is not {' or '.join(ALGORITHMS)}")
    if not isinstance(kid, str) or not 0 < len(kid) <= _MAX_KID:
        raise TokenRefused(Enrolling.header, "its header names no key (`kid`)")
    if not isinstance(issuer, str) or not issuer:
        raise TokenRefused(Enrolling.issuer, "it has no issuer (`iss`)")
    signed = f"{parts[0]}.{parts[1]}".encode()
    return UnverifiedToken(algorithm, kid, issuer, signed, _bytes(parts[2]), claims)


def verify(token: UnverifiedToken, key: PublicKey, now: int) -> Pod:
    """Verify the token with the key, and return the pod that it belongs to. `now` is in
    microseconds. Raise `TokenRefused` if the token is not valid."""
    # INVARIANT: the key decides how a signature is verified. If the header did, an attacker could
    # choose HMAC with the public key as the secret (RFC 8725, section 2.1).
    if token.algorithm != key.algorithm:
        raise TokenRefused(
            Enrolling.algorithm, f"its key is for {key.algorithm}, not for {token.algorithm}"
        )
    if not key.verifies(token.signature, token.signed):
        raise TokenRefused(Enrolling.signature, "its signature does not verify")
    pod = _pod(token)
    try:
        _check_audience(token.claims)
        _check_times(token.claims, now // 1_000_000)
    except TokenRefused as refused:
        # The signature holds, so the log may say whose token it was.
        raise TokenRefused(refused.reason, refused.why, token.issuer, pod) from None
    return pod


def _pod(token: UnverifiedToken) -> Pod:
    claims = token.claims
    bound = _member(claims, "kubernetes.io")
    namespace = bound.get("namespace")
    account, pod = _member(bound, "serviceaccount"), _member(bound, "pod")
    node = bound.get("node")
    node_name = node.get("name") if isinstance(node, dict) else None
    names = is_namespace(namespace) and is_account(account.get("name"))
    if not names or not is_account(pod.get("name")):
        raise TokenRefused(Enrolling.binding, "it names no namespace, service account or pod")
    if not _is_uid(account.get("uid")) or not _is_uid(pod.get("uid")):
        raise TokenRefused(Enrolling.binding, "it lacks the uid of its service account or pod")
    if node_name is not None and not is_account(node_name):
        raise TokenRefused(Enrolling.binding, "the name of its node is not a name")
    if claims.get("sub") != subject_of(str(namespace), account["name"]):
        raise TokenRefused(Enrolling.subject, "its `sub` is not its service account")
    return Pod(
        issuer=token.issuer,
        namespace=str(namespace),
        service_account=account["name"],
        service_account_uid=account["uid"],
        name=pod["name"],
        uid=pod["uid"],
        node=node_name,
    )


def _member(claims: dict[str, Any], name: str) -> dict[str, Any]:
    found = claims.get(name)
    if not isinstance(found, dict):
        raise TokenRefused(Enrolling.binding, f"it has no `{name}`: it is not bound to a pod")
    return found


def _is_uid(value: object) -> bool:
    return isinstance(value, str) and bool(_UID.match(value))


def _check_audience(claims: dict[str, Any]) -> None:
    # A token for several audiences could be presented here by any of the others.
    if claims.get("aud") not in (AUDIENCE, [AUDIENCE]):
        raise TokenRefused(Enrolling.audience, f"its `aud` is not `{AUDIENCE}` alone")


def _check_times(claims: dict[str, Any], now: int) -> None:
    exp, nbf, iat = (_time(claims, name) for name in ("exp", "nbf", "iat"))
    if exp <= iat or exp - iat > MAX_LIFETIME:
        raise TokenRefused(
            Enrolling.lifetime, f"it is valid for {exp - iat} s; the limit is {MAX_LIFETIME} s"
        )
    if now >= exp + LEEWAY:
        raise TokenRefused(Enrolling.expired, f"it expired {now - exp} s ago")
    if max(nbf, iat) > now + LEEWAY:
        raise TokenRefused(Enrolling.early, f"it is not valid for {max(nbf, iat) - now} s yet")


def _time(claims: dict[str, Any], name: str) -> int:
    value = claims.get(name)
    # Not `isinstance`: `true` is an `int` to Python. The limit is the year 36812.
    if type(value) is not int or not 0 < value < 1 << 40:
        raise TokenRefused(Enrolling.malformed, f"its `{name}` is missing or not a time in seconds")
    return value


def _object(part: str, what: str) -> dict[str, Any]:
    try:
        return parse_object(_bytes(part), None, unique=True)
    except Malformed as error:
        raise _malformed(f"its {what} can't be read: {_short(error.message)}") from None


def _bytes(part: str) -> bytes:
    """Decode a part of a token from base64url without padding (RFC 7515, section 2). Raise
    `TokenRefused` unless it is the canonical encoding."""
    if not _BASE64URL.match(part):
        raise _malformed("a part of it is not base64url without padding")
    try:
        raw = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except ValueError:
        raise _malformed("a part of it has the wrong length") from None
    # Several spellings decode to the same bytes, if the last character's unused bits are set.
    if base64.urlsafe_b64encode(raw).rstrip(b"=").decode() != part:
        raise _malformed("a part of it is not canonical base64url")
    return raw


def _malformed(why: str) -> TokenRefused:
    return TokenRefused(Enrolling.malformed, why)


def _short(text: str) -> str:
    return ascii(text[:64])[1:-1]
