"""The description of the API (OpenAPI 3.1), made from the table of routes and from the declarations
that validate. Knows no operation; a test compares it with what the routes really answer.
"""

from collections.abc import Iterable
from http import HTTPStatus
from types import UnionType
from typing import Any, get_args, get_origin

import orjson
from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from control_api.http.route import Route
from policies.ground.errors import error_body

_REFERENCE = "#/components/schemas/{model}"
_JSON = "application/json"
_ABOUT = (
    "Decides whether an agent may retrieve from a data source, and keeps a record of every "
    "decision that can be proven. A `DENY` is a decision, not an error: it is answered with 200."
)

_WHEN = {
    400: "the request can't be read: not JSON, a key twice, bytes that are no UTF-8",
    401: "the header `X-API-Key` is missing",
    403: "the key is invalid, revoked, expired, of the wrong scope, or its tenant is deactivated",
    404: "no such resource in this tenant",
    405: "the path has no such method",
    409: "the request conflicts with the present state",
    412: "the version in `If-Match` is not the present one",
    413: "the body has more than 1 MiB",
    422: "well-formed, and not what the declaration says; `details` has a line for each field",
    500: "a fault of the service; the message holds the request's id and nothing else",
    503: "the service can't keep its promises at the moment; nothing was decided",
}


def describe(routes: Iterable[Route], version: str) -> bytes:
    """The description as JSON."""
    table = tuple(routes)
    schemas = _schemas(table)
    paths: dict[str, dict[str, Any]] = {}
    for route in table:
        operation = _operation(route, schemas.references)
        paths.setdefault(route.path, {})[route.method.lower()] = operation
    return orjson.dumps(
        {
            "openapi": "3.1.0",
            "info": {"title": "Sluice", "version": version, "description": _ABOUT},
            "servers": [{"url": "/"}],
            "paths": paths,
            "components": {
                "schemas": {**schemas.definitions, "Error": _ERROR},
                "securitySchemes": {
                    "ApiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"}
                },
            },
        }
    )


_ERROR = {
    "type": "object",
    "required": ["error", "message", "code"],
    "properties": {
        "error": {"type": "string", "description": "the reason phrase of the status"},
        "message": {"type": "string"},
        "code": {"type": "integer", "description": "the status"},
        "details": {"type": "string", "description": "a line for each fault"},
    },
}


class _schemas:  # noqa: N801  # a record of two values, used here alone
    """The schemas of all declarations and answers, and how each is referred to."""

    def __init__(self, table: tuple[Route, ...]) -> None:
        inputs: list[tuple[str, JsonSchemaMode, TypeAdapter[Any]]] = []
        for route in table:
            inputs.append((f"{route.name} asks", "validation", TypeAdapter(route.asks)))
            if route.answers is not None:
                adapter: TypeAdapter[Any] = TypeAdapter(route.answers)
                inputs.append((f"{route.name} answers", "serialization", adapter))
        found, rest = TypeAdapter.json_schemas(inputs, ref_template=_REFERENCE)
        self.references: dict[str, Any] = {name: schema for (name, _), schema in found.items()}
        self.definitions: dict[str, Any] = rest.get("$defs", {})
        self._resolve_asked(table)

    def _resolve_asked(self, table: tuple[Route, ...]) -> None:
        """A declaration mixes path, query and body: its fields are wanted one by one."""
        names = set()
        for route in table:
            schema = self.references[f"{route.name} asks"]
            if "$ref" in schema:
                name = schema["$ref"].rpartition("/")[2]
                names.add(name)
                self.references[f"{route.name} asks"] = self.definitions[name]
        for name in names:
            self.definitions.pop(name)


def _operation(route: Route, references: dict[str, Any]) -> dict[str, Any]:
    asked = references[f"{route.name} asks"]
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "tags": [_tag(route)],
        "parameters": _parameters(route, asked),
        "responses": _responses(route, references),
        "security": [] if route.scopes is None else [{"ApiKey": []}],
    }
    if route.scopes is not None:
        operation["x-sluice-scopes"] = sorted(route.scopes)
    if route.body:
        operation["requestBody"] = _body(route, asked)
    return operation


def _tag(route: Route) -> str:
    return route.parts[1] if route.parts[0] == "v1" else "service"


def _parameters(route: Route, asked: dict[str, Any]) -> list[dict[str, Any]]:
    required = asked.get("required", ())
    parameters = []
    for place, names in (("path", route.parameters), ("query", route.query)):
        for name in names:
            schema = dict(asked["properties"][name])
            parameter: dict[str, Any] = {"name": name, "in": place, "schema": schema}
            if place == "path" or name in required:
                parameter["required"] = True
            if "description" in schema:
                parameter["description"] = schema.pop("description")
            parameters.append(parameter)
    for name, header in route.asks.in_header.items():
        schema = dict(asked["properties"][name])
        about = schema.pop("description", None)
        parameter = {"name": header, "in": "header", "schema": schema}
        parameters.append(parameter | ({"description": about} if about else {}))
    return parameters


def _body(route: Route, asked: dict[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "title": asked.get("title", route.asks.__name__),
        "type": "object",
        "properties": {name: asked["properties"][name] for name in route.body},
        "required": [name for name in route.body if name in asked.get("required", ())],
        "additionalProperties": route.asks.model_config.get("extra") == "ignore",
    }
    media: dict[str, Any] = {"schema": schema}
    if route.asks.example:
        media["example"] = route.asks.example
    return {"required": True, "content": {_JSON: media}}


def _responses(route: Route, references: dict[str, Any]) -> dict[str, Any]:
    responses = {str(route.status): _success(route, references)}
    for status in sorted(statuses(route)):
        body = error_body(status, _WHEN[status])
        responses[str(status)] = {
            "description": _WHEN[status],
            "content": {_JSON: {"schema": {"$ref": "#/components/schemas/Error"}, "example": body}},
        }
    return responses


def _success(route: Route, references: dict[str, Any]) -> dict[str, Any]:
    success: dict[str, Any] = {"description": HTTPStatus(route.status).phrase}
    if route.answers is None:
        success["content"] = {route.media: {}}
        return success
    media: dict[str, Any] = {"schema": references[f"{route.name} answers"]}
    example = example_of(route.answers)
    if example is not None:
        media["example"] = example
    success["content"] = {_JSON: media}
    headers = {"Link": "where to go on, where more follow"} if route.listed else {}
    headers |= getattr(route.answers, "with_headers", {})
    if headers:
        success["headers"] = {
            name: {"description": about, "schema": {"type": "string"}}
            for name, about in headers.items()
        }
    return success


def example_of(answers: Any) -> Any:
    """The example that an answer's type carries; of a list, a list of its one."""
    if get_origin(answers) is list:
        return [example_of(get_args(answers)[0])]
    if isinstance(answers, UnionType):
        return example_of(get_args(answers)[0])
    return getattr(answers, "example", None)


def statuses(route: Route) -> set[int]:
    """The error statuses that a route may answer with."""
    found = {500, *route.errors}
    if route.scopes is not None:
        # Every operation of a tenant needs the store, if only to know the key.
        found |= {401, 403, 503}
    if route.parameters:
        found |= {400, 404}
    if route.asks.model_fields:
        found |= {400, 422}
    if route.carries_body:
        found |= {400, 413, 422}
    return found
