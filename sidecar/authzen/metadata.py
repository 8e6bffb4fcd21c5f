"""The metadata of the decision point (AuthZEN Authorization API 1.0, section 9): which endpoints it
has, signed if there is a key.

Everything is made once, from the settings: nothing in it comes from a request, which could name
another host (`Host`, `X-Forwarded-Host`) and so have a client take one decision point for another.
"""

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

import orjson

from sidecar.api.route import ApiReply, ApiRequest, ApiRoute
from sidecar.authzen.signing_key import SigningKey

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
# The host of a URL, and segments that every reader reads alike: no escapes, none empty.
_AUTHORITY = re.compile(
    r"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?\Z", re.IGNORECASE
)
_PATH = re.compile(r"(?:/(?!\.{1,2}(?:/|\Z))[A-Za-z0-9._~-]+)*\Z")


def url_fault(url: str) -> str | None:
    """What is wrong with `authzen.url`; None if it is usable."""
    expected = "expected https://HOST[:PORT][/PATH], such as `https://pdp.example.com`"
    # `urlsplit` drops an empty query or fragment, and strips control characters.
    if "?" in url or "#" in url or not url.isascii() or not url.isprintable() or " " in url:
        return f"`{url}` has a query, a fragment or unusual characters; {expected}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return f"`{url}` is no URL: {error}; {expected}"
    if parts.scheme != "https" or not url.startswith("https://"):
        return f"`{url}` does not begin with `https://`; {expected}"
    if url.endswith("/"):
        return f"`{url}` ends in a slash; {expected}"
    if "@" in parts.netloc or not _AUTHORITY.match(parts.netloc) or port == 0:
        return f"`{parts.netloc.rpartition('@')[2]}` is no host and port; {expected}"
    if not _PATH.match(parts.path):
        return f"`{parts.path}` is no path of plain segments; {expected}"
    return None


def metadata_routes(url: str, key: SigningKey | None, now: int) -> Mapping[str, ApiRoute]:
    """The routes of the metadata, and of the key set where there is a key. `now` is when it is
    signed, in microseconds since 1970."""
    documents: dict[str, object] = {CONFIGURATION + urlsplit(url).path: _metadata(url, key, now)}
    if key is not None:
        documents[KEY_SET] = {"keys": [key.jwk]}
    return {path: _route(orjson.dumps(document)) for path, document in documents.items()}


def _metadata(url: str, key: SigningKey | None, now: int) -> dict[str, str]:
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
