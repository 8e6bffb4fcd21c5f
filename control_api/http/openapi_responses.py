"""What a route answers, as OpenAPI says it: success, and every error that follows from the table.
Knows no operation; a test compares it with what the routes really answer."""

from collections.abc import Iterable
from http import HTTPStatus
from types import UnionType
from typing import Any, get_args, get_origin

from control_api.http.openapi_requests import JSON
from control_api.http.openapi_schemas import Schemas
from control_api.http.route import Route, Scope
from policies.ground.errors import error_body

WHEN = {
    400: "The request can't be read: it is not JSON, names a key twice, or is not UTF-8.",
    401: "The API key is missing, or `X-API-Key` and `Authorization` hold different keys.",
    403: "The key is invalid, revoked, expired or of the wrong scope, or its tenant inactive.",
    404: "There is no such resource in this tenant.",
    409: "The request conflicts with the current state.",
    412: "The version in `If-Match` is not the current one.",
    413: "The body is larger than 1 MiB.",
    422: "A field is missing, unknown or invalid. `details` has a line for each.",
    429: "The key is over its rate limit. Never sent if no limit is configured.",
    500: "An internal error. The message holds the request's id, and nothing else.",
    503: "The service is temporarily unable to answer. Nothing was decided or changed.",
}

LIMITED = frozenset({Scope.evaluate, Scope.read, Scope.admin})
"""Whose requests a rate limit counts. A sidecar's are bounded by what it decides; the superadmin
must be able to help."""

ERROR = {
    "type": "object",
    "required": ["error", "message", "code"],
    "properties": {
        "error": {"type": "string", "description": "The status's reason phrase."},
        "message": {"type": "string", "description": "What went wrong, in a sentence."},
        "code": {"type": "integer", "description": "The HTTP status."},
        "details": {"type": "string", "description": "One line for each fault."},
    },
    "additionalProperties": False,
}

HEADERS: dict[str, dict[str, Any]] = {
    "X-Request-ID": {
        "description": "The request's id: yours if it was valid, else one made here.",
        "required": True,
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9._:/+=@-]{1,128}$"},
    },
    "Link": {
        "description": 'Where the list continues, if it does: `<…>; rel="next"` (RFC 8288).',
        "schema": {"type": "string"},
    },
    "Location": {
        "description": "Where to go, relative to this path.",
        "required": True,
        "schema": {"type": "string"},
    },
    "ETag": {
        "description": "The version, as `If-Match` takes it.",
        "schema": {"type": "string"},
    },
    "Retry-After": {
        "description": "Seconds to wait before trying again.",
        "required": True,
        "schema": {"type": "integer", "minimum": 1},
    },
    "X-Sluice-Decision": {
        "description": "The decision, as in the body.",
        "required": True,
        "schema": {"type": "string", "enum": ["ALLOW", "DENY"]},
    },
    "X-Sluice-Event-Id": {
        "description": "The audit event's id, as in the body.",
        "required": True,
        "schema": {"type": "string"},
    },
    "X-Sluice-Revision": {
        "description": "The tenant's revision after the write, as `wait_for` takes it.",
        "required": True,
        "schema": {"type": "integer", "minimum": 0},
    },
    "WWW-Authenticate": {
        "description": "How to authenticate.",
        "required": True,
        "schema": {"type": "string"},
    },
}
_WITH = {401: ("WWW-Authenticate",), 429: ("Retry-After",), 503: ("Retry-After",)}


def statuses(route: Route) -> set[int]:
    """The error statuses that a route may answer with."""
    # An operation that asks nothing refuses a query all the same.
    found = {400, 422, 500, *route.errors}
    if route.scopes is not None:
        # Every operation of a tenant needs the store, if only to know the key.
        found |= {401, 403, 503}
        found |= {429} if route.scopes & LIMITED else set()
    if route.parameters:
        found |= {404}
    if route.carries_body:
        found |= {413}
    return found


def responses(route: Route, schemas: Schemas) -> dict[str, Any]:
    """By status: the success first."""
    found = {str(route.status): _success(route, schemas)}
    return found | {str(status): _error(route, status) for status in sorted(statuses(route))}


def example_of(answers: Any) -> Any:
    """The example that an answer's type carries; of a list, a list of its one."""
    if get_origin(answers) is list:
        return [example_of(get_args(answers)[0])]
    if isinstance(answers, UnionType):
        return example_of(get_args(answers)[0])
    return getattr(answers, "example", None)


def path_examples(routes: Iterable[Route]) -> dict[str, str]:
    """What stands for a path's parameter: the member of that name in the first answer that has it,
    so that examples fit together."""
    found: dict[str, str] = {}
    for route in routes:
        example = example_of(route.answers)
        shown = example[0] if isinstance(example, list) else example
        texts = {name: text for name, text in (shown or {}).items() if isinstance(text, str)}
        found = texts | found
    return found


def _success(route: Route, schemas: Schemas) -> dict[str, Any]:
    about = HTTPStatus(route.status).phrase
    names = ("Link",) if route.listed else _own_headers(route.answers)
    names += ("X-Sluice-Revision",) if route.manages else ()
    names += ("Location",) if route.status == HTTPStatus.FOUND else ()
    if route.answers is None:
        return {"description": about, "headers": _headers(*names), "content": {route.media: {}}}
    media = {"schema": schemas.answered(route), "example": example_of(route.answers)}
    return {"description": about, "headers": _headers(*names), "content": {JSON: media}}


def _own_headers(answers: Any) -> tuple[str, ...]:
    """The headers that an answer's type adds; of several types, those of the first."""
    first = get_args(answers)[0] if isinstance(answers, UnionType) else answers
    return tuple(getattr(first, "with_headers", ()))


def _error(route: Route, status: int) -> dict[str, Any]:
    field = next(iter((*route.body, *route.query, *route.parameters)), "colour")
    details = f"{field}: is not known here" if status == HTTPStatus.UNPROCESSABLE_ENTITY else None
    media = {
        "schema": {"$ref": "#/components/schemas/Error"},
        "example": error_body(status, WHEN[status], details),
    }
    return {
        "description": WHEN[status],
        "headers": _headers(*_WITH.get(status, ())),
        "content": {JSON: media},
    }


def _headers(*names: str) -> dict[str, Any]:
    every = ("X-Request-ID", *names)
    return {name: {"$ref": f"#/components/headers/{name}"} for name in every}
