"""Describes a route's responses for OpenAPI: its success, and every error that follows from the
table of routes. Makes the JSON schemas (2020-12) of requests and responses from the types that
validate them."""

import re
from collections.abc import Iterable
from http import HTTPStatus
from types import UnionType
from typing import Any, get_args, get_origin

import orjson
from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from control_api.edge.answers import JSON
from control_api.edge.field_descriptions import describe_fields
from control_api.edge.route import Route, Scope
from policies.ground.errors import error_body

Schema = dict[str, Any]
_REFERENCE = "#/components/schemas/{model}"
_CITED = re.compile(r" \((?:`(?:CONTRACT|TOOLS|INTEGRATIONS)\.md`[^()]*|[\d.]+(?:, [^()]*)?)\)")


def words(docstring: str | None) -> str:
    """Return a docstring's first paragraph on one line, without citations of our own
    specifications.

    The other paragraphs are for readers of the code, not of the API's description.
    """
    return _CITED.sub("", " ".join((docstring or "").partition("\n\n")[0].split()))


class Schemas:
    """The JSON schemas of the requests and responses of a table of routes. `definitions` holds the
    shared schemas that others refer to by `$ref`."""

    def __init__(self, table: Iterable[Route]) -> None:
        routes = tuple(table)
        inputs: list[tuple[str, JsonSchemaMode, TypeAdapter[Any]]] = []
        for route in routes:
            inputs.append((_request_key(route), "validation", TypeAdapter(route.request_type)))
            if route.response_type is not None:
                adapter: TypeAdapter[Any] = TypeAdapter(route.response_type)
                inputs.append((_response_key(route), "serialization", adapter))
        # All in one call, so that a type used several times is defined once, under one name.
        found, rest = TypeAdapter.json_schemas(inputs, ref_template=_REFERENCE)
        self._found: dict[str, Schema] = {name: schema for (name, _), schema in found.items()}
        self.definitions: dict[str, Schema] = rest.get("$defs", {})
        self._resolve(routes)
        for name, schema in self.definitions.items():
            describe_fields(name, schema)
        for route in routes:
            describe_fields(route.request_type.__name__, self.request(route))
        for schema in (*self._found.values(), *self.definitions.values()):
            if "description" in schema:
                schema["description"] = words(schema["description"])

    def request(self, route: Route) -> Schema:
        """Return the schema of the route's request, with the fields of path, query, headers and
        body."""
        return self._found[_request_key(route)]

    def response(self, route: Route) -> Schema:
        return self._found[_response_key(route)]

    def _resolve(self, routes: tuple[Route, ...]) -> None:
        """Replace each `$ref` to a request's schema by the schema itself, because each of its
        fields is described as a parameter or a body member."""
        names = set()
        for route in routes:
            name = self.request(route)["$ref"].rpartition("/")[2]
            self._found[_request_key(route)] = self.definitions[name]
            names.add(name)
        # Removed only after the loop, because several routes may share a request; and not if
        # another request holds it, as a set of policies holds policies.
        cited = orjson.dumps([*self._found.values(), *self.definitions.values()])
        for name in names:
            if f'"{_REFERENCE.format(model=name)}"'.encode() not in cited:
                self.definitions.pop(name)


def _request_key(route: Route) -> str:
    return f"{route.name} request"


def _response_key(route: Route) -> str:
    return f"{route.name} response"


WHEN = {
    400: "The request can't be parsed: it is not JSON, has a duplicate key, or is not UTF-8.",
    401: "The API key is missing, or `X-API-Key` and `Authorization` hold different keys.",
    403: "The key is invalid, revoked, expired or of the wrong scope, or its tenant deactivated.",
    404: "There is no such resource in this tenant.",
    409: "The request conflicts with the current state.",
    412: "The version in `If-Match` is not the current one.",
    413: "The body is larger than 1 MiB, or 32 MiB where it holds a set of policies.",
    422: "A field is missing, unknown or invalid. `details` has a line for each.",
    429: "The key is over its rate limit, or begins more spools than it may: `Retry-After` says "
    "when to try again.",
    500: "An internal error. The message contains only the request's id.",
    503: "The service is temporarily unavailable. Nothing was decided or changed.",
}

LIMITED = frozenset({Scope.evaluate, Scope.read, Scope.admin})
"""The scopes that a rate limit applies to. `control_api.auth` says why the other scopes have
none."""

ERROR = {
    "type": "object",
    "required": ["error", "message", "code"],
    "properties": {
        "error": {"type": "string", "description": "The status's reason phrase."},
        "message": {"type": "string", "description": "What went wrong, in a sentence."},
        "code": {"type": "integer", "description": "The HTTP status."},
        "details": {"type": "string", "description": "One line for each problem."},
    },
    "additionalProperties": False,
}


def _header(about: str, kind: str = "string", *, required: bool = True, **more: Any) -> Schema:
    needed = {"required": True} if required else {}
    return {"description": about, **needed, "schema": {"type": kind, **more}}


HEADERS: dict[str, Schema] = {
    "X-Request-ID": _header(
        "The request's id: yours if it is valid, otherwise a new one.",
        pattern="^[A-Za-z0-9._:/+=@-]{1,128}$",
    ),
    "Link": _header(
        'The next page, if there is one: `<…>; rel="next"` (RFC 8288).', required=False
    ),
    "Location": _header("The new location, relative to this path."),
    "ETag": _header("The version, in the form that `If-Match` takes.", required=False),
    "Retry-After": _header("Seconds to wait before trying again.", "integer", minimum=1),
    "X-Sluice-Decision": _header("The decision, as in the body.", enum=["ALLOW", "DENY"]),
    "X-Sluice-Event-Id": _header("The audit event's id, as in the body."),
    "X-Sluice-Revision": _header(
        "The tenant's revision after the write, for `wait_for`.", "integer", minimum=0
    ),
    "X-Sluice-Verification": _header(
        "What the service's own verification of the log found last: `ok`, `never` "
        "if it was not at the log's end yet, or the code of a finding. With `column_mismatch` or "
        "`index_incomplete`, lists may lack events and counts be wrong.",
        pattern="^[a-z_]+$",
    ),
    "X-Sluice-Verified-At": _header(
        "When all entries and counts of the log were last verified; absent if they never were.",
        required=False,
        format="date-time",
    ),
    "WWW-Authenticate": _header("How to authenticate."),
}
# Headers by status, as `request_pipeline` and the rate limit set them.
_WITH = {401: ("WWW-Authenticate",), 429: ("Retry-After",), 503: ("Retry-After",)}


def statuses(route: Route) -> set[int]:
    """Return the error statuses that a route may respond with."""
    # 400 and 422 always: even an operation without fields refuses an unknown query field.
    found = {400, 422, 500, *route.errors}
    if route.scopes is not None:
        # Every operation of a tenant needs the store, if only to look up the key.
        found |= {401, 403, 503}
        found |= {429} if route.scopes & LIMITED else set()
    if route.parameters:
        found |= {404}
    if route.has_body:
        found |= {413}
    return found


def responses(route: Route, schemas: Schemas) -> dict[str, Any]:
    """Describe a route's responses, keyed by status: the success first, then the errors."""
    found = {str(route.status): _success(route, schemas)}
    return found | {str(status): _error(route, status) for status in sorted(statuses(route))}


def example_of(response_type: Any) -> Any:
    """Return the example of a response type. For a list type, that is a list with one example."""
    if get_origin(response_type) is list:
        return [example_of(get_args(response_type)[0])]
    if isinstance(response_type, UnionType):
        return example_of(get_args(response_type)[0])
    return getattr(response_type, "example", None)


def path_examples(routes: Iterable[Route]) -> dict[str, str]:
    """Return example values of path parameters, by name. Each value is taken from the first
    response example that has a field of that name, so that the examples fit together."""
    found: dict[str, str] = {}
    for route in routes:
        example = example_of(route.response_type)
        row = example[0] if isinstance(example, list) else example
        # The first example that has a field wins, so that the links between operations lead on.
        texts = {name: text for name, text in (row or {}).items() if isinstance(text, str)}
        found = texts | found
    return found


def _success(route: Route, schemas: Schemas) -> dict[str, Any]:
    about = HTTPStatus(route.status).phrase
    names = ("Link",) if route.paged else _own_headers(route.response_type)
    names += ("X-Sluice-Revision",) if route.returns_revision else ()
    names += ("X-Sluice-Verification", "X-Sluice-Verified-At") if route.of_log else ()
    names += ("Location",) if route.status == HTTPStatus.FOUND else ()
    if route.response_type is None:
        return {
            "description": about,
            "headers": _headers(*names),
            "content": {each: {} for each in (route.content_type, *route.other_content_types)},
        }
    media = {"schema": schemas.response(route), "example": example_of(route.response_type)}
    # A route of another content type answers in JSON only if `Accept` asks for it.
    content = {JSON: media} if route.content_type == JSON else {route.content_type: {}, JSON: media}
    return {"description": about, "headers": _headers(*names), "content": content}


def _own_headers(response_type: Any) -> tuple[str, ...]:
    """Return the names of the headers that a response type adds. For a union, these are the headers
    of its first type."""
    union = isinstance(response_type, UnionType)
    first = get_args(response_type)[0] if union else response_type
    return tuple(getattr(first, "with_headers", ()))


def _error(route: Route, status: int) -> dict[str, Any]:
    # If the route has no field, the example names an unknown one, which is refused even there.
    field = next(iter((*route.body, *route.query, *route.parameters)), "colour")
    details = (
        f"{field}: is not a known field" if status == HTTPStatus.UNPROCESSABLE_ENTITY else None
    )
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
