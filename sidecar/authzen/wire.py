"""Reads and writes the formats of AuthZEN (Authorization API 1.0): the bodies and errors of
`/access/v1/*` (section 10), and the metadata (section 9), which name the endpoints and are signed
if there is a key.

Bodies and errors differ from the rest of the API where the standard's clients expect it. The
metadata are made once, from the settings: nothing in them comes from a request, which could name
another host (`Host`, `X-Forwarded-Host`) and so make a client take one decision point for another.
Base64 is the alphabet that is safe in URLs, without padding (RFC 7515, section 2).
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import urlsplit

import orjson

from policies.ground.errors import Malformed, SluiceError, Unauthorized
from policies.ground.keys import KeysDiffer
from sidecar.api.route import ApiReply, ApiRequest, ApiRoute, ErrorReply, describe_error
from sidecar.live_keys import InvalidKey
from sidecar.protocols.strict_body import short_object


def base64url_encode(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def base64url_decode(text: str) -> bytes:
    """Decode base64url, skipping characters outside the alphabet. Raises `ValueError` if the rest
    can't be decoded."""
    return urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))


MAX_DEPTH = 64
"""The most nested levels in a body (`INTEGRATIONS.md`, Rules for every door)."""

_NO_KEY = b'WWW-Authenticate: Bearer realm="sluice"\r\n'
_BAD_KEY = b'WWW-Authenticate: Bearer realm="sluice", error="invalid_token"\r\n'


def read_body(raw: bytes, content_type: str | None) -> dict[str, Any]:
    """Return the JSON object in the body. Raises `Malformed` for a body that two readers could
    understand differently."""
    if content_type != "application/json":  # nearly every request: no parsing
        media = (content_type or "").partition(";")[0].strip()
        if media.lower() != "application/json":
            raise Malformed(f"the content type is `{media[:64]}`; send `application/json`")
    return short_object(raw, MAX_DEPTH)


def describe(error: SluiceError) -> ErrorReply:
    """Return the error in the form that a client of the standard expects: status 401 for every key
    that is not valid, with the challenge of RFC 6750."""
    if isinstance(error, InvalidKey | KeysDiffer):
        return ErrorReply(401, Unauthorized(error.message).encoded(), _BAD_KEY)
    reply = describe_error(error)
    return reply._replace(extra_lines=_NO_KEY) if isinstance(error, Unauthorized) else reply


EVALUATION = "/access/v1/evaluation"
EVALUATIONS = "/access/v1/evaluations"
SEARCH_SUBJECT = "/access/v1/search/subject"
SEARCH_RESOURCE = "/access/v1/search/resource"
SEARCH_ACTION = "/access/v1/search/action"
CONFIGURATION = "/.well-known/authzen-configuration"
KEY_SET = "/.well-known/jwks.json"

_ENDPOINTS = {
    "access_evaluation_endpoint": EVALUATION,
    "access_evaluations_endpoint": EVALUATIONS,
    "search_subject_endpoint": SEARCH_SUBJECT,
    "search_resource_endpoint": SEARCH_RESOURCE,
    "search_action_endpoint": SEARCH_ACTION,
}
_READ = ("GET", "HEAD")
_CACHED = b"max-age=300"


class Signer(Protocol):
    """The interface of `SigningKey`, so that its library is loaded only if there is a key."""

    @property
    def jwk(self) -> dict[str, str]: ...
    def sign(self, claims: dict[str, Any]) -> str: ...


def metadata_routes(url: str, key: Signer | None, now: int) -> Mapping[str, ApiRoute]:
    """Return the routes of the metadata, and that of the key set if there is a key. `now` is the
    time of the signature, in microseconds since 1970."""
    documents: dict[str, object] = {CONFIGURATION + urlsplit(url).path: _metadata(url, key, now)}
    if key is not None:
        documents[KEY_SET] = {"keys": [key.jwk]}
    return {path: _route(orjson.dumps(document)) for path, document in documents.items()}


def _metadata(url: str, key: Signer | None, now: int) -> dict[str, str]:
    members = {"policy_decision_point": url}
    members |= {name: url + path for name, path in _ENDPOINTS.items()}
    if key is None:
        return members
    members["jwks_uri"] = url + KEY_SET
    claims = {**members, "iss": url, "iat": now // 1_000_000}
    return {**members, "signed_metadata": key.sign(claims)}


def _route(body: bytes) -> ApiRoute:
    reply = ApiReply(body, cache=_CACHED)

    async def show(_request: ApiRequest, _body: bytes) -> ApiReply:
        return reply

    return ApiRoute("metadata", _READ, None, show)
