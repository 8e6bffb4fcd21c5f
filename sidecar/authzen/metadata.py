"""The metadata of the decision point (AuthZEN Authorization API 1.0, section 9): which endpoints it
has, signed if there is a key.

Everything is made once, from the settings: nothing in it comes from a request, which could name
another host (`Host`, `X-Forwarded-Host`) and so have a client take one decision point for another.
"""

from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import urlsplit

import orjson

from sidecar.api.route import ApiReply, ApiRequest, ApiRoute

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
    """A `SigningKey`, whose library is loaded only where there is a key."""

    @property
    def jwk(self) -> dict[str, str]: ...
    def sign(self, claims: dict[str, Any]) -> str: ...


def metadata_routes(url: str, key: Signer | None, now: int) -> Mapping[str, ApiRoute]:
    """The routes of the metadata, and of the key set where there is a key. `now` is when it is
    signed, in microseconds since 1970."""
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
