"""Describes a route's request, as OpenAPI parameters and body. Knows no operation."""

from collections.abc import Iterator
from typing import Any

from control_api.http.openapi_schemas import Schema
from control_api.http.reply import JSON
from control_api.http.route import Route


def parameters(route: Route, request: Schema, examples: dict[str, Any]) -> list[dict[str, Any]]:
    """Path, query and header parameters. Path parameters take their example from `examples`."""
    found = []
    for location, field, name in _locations(route):
        schema = _as_parameter(request["properties"][field])
        parameter: dict[str, Any] = {"name": name, "in": location, "schema": schema}
        if location == "path" or field in request.get("required", ()):
            parameter["required"] = True
        if about := schema.pop("description", None):
            parameter["description"] = about
        if location == "path" and field in examples:
            parameter["example"] = examples[field]
        found.append(parameter)
    return found


def body(route: Route, request: Schema) -> dict[str, Any]:
    schema: Schema = {
        "title": request.get("title", route.request_type.__name__),
        "type": "object",
        "properties": {
            **{name: request["properties"][name] for name in route.body},
            **{name: _put_back(route, request, name) for name in route.put_back},
        },
        "required": [name for name in route.body if name in request.get("required", ())],
        "additionalProperties": route.request_type.model_config.get("extra") == "ignore",
    }
    return {
        "required": True,
        "content": {JSON: {"schema": schema, "example": route.request_type.example}},
    }


def _put_back(route: Route, request: Schema, name: str) -> Schema:
    """The schema of a member that is there because a `GET` shows it."""
    # Not `readOnly`: then a client should leave it out (OpenAPI 3.1, section 4.8.24), and tools
    # expect a refusal. Without a type, since it is not read.
    if name not in route.parameters:
        return {"description": "Ignored: the service sets it. What a `GET` shows may come back."}
    about = "May be left out. Otherwise it must be the path's."
    return {**request["properties"][name], "description": about}


def _locations(route: Route) -> Iterator[tuple[str, str, str]]:
    """For each parameter, where it is sent, the field it fills, and its name there."""
    yield from (("path", name, name) for name in route.parameters)
    yield from (("query", name, name) for name in route.query)
    yield from (
        ("header", name, header)
        for name, header in route.request_type.in_header.items()
        # OpenAPI describes it by the responses' media types, and forbids it as a parameter.
        if header != "Accept"
    )


def _as_parameter(field: Schema) -> Schema:
    """A field's schema as a parameter, outside a body, where a value can't be null."""
    # A parameter has a name already; pydantic's title would only repeat it.
    schema = {name: value for name, value in field.items() if name != "title"}
    if schema.get("default", schema) is None:
        del schema["default"]  # None only means that the field is not sent
    options = [each for each in schema.pop("anyOf", ()) if each != {"type": "null"}]
    if len(options) > 1:
        schema["anyOf"] = options
    return {**options[0], **schema} if len(options) == 1 else schema
