"""What a route asks, as OpenAPI says it: parameters and body. Knows no operation."""

from collections.abc import Iterator
from typing import Any

from control_api.http.openapi_schemas import Schema
from control_api.http.route import Route

JSON = "application/json"


def parameters(route: Route, asked: Schema, examples: dict[str, Any]) -> list[dict[str, Any]]:
    """Path, query and headers; a path's parameter has the example of `examples`."""
    found = []
    for place, field, name in _places(route):
        schema = _given(asked["properties"][field])
        parameter: dict[str, Any] = {"name": name, "in": place, "schema": schema}
        if place == "path" or field in asked.get("required", ()):
            parameter["required"] = True
        if about := schema.pop("description", None):
            parameter["description"] = about
        if place == "path" and field in examples:
            parameter["example"] = examples[field]
        found.append(parameter)
    return found


def body(route: Route, asked: Schema) -> dict[str, Any]:
    schema: Schema = {
        "title": asked.get("title", route.asks.__name__),
        "type": "object",
        "properties": {name: asked["properties"][name] for name in route.body},
        "required": [name for name in route.body if name in asked.get("required", ())],
        "additionalProperties": route.asks.model_config.get("extra") == "ignore",
    }
    return {"required": True, "content": {JSON: {"schema": schema, "example": route.asks.example}}}


def _places(route: Route) -> Iterator[tuple[str, str, str]]:
    """Where, which field, and what it is called there."""
    yield from (("path", name, name) for name in route.parameters)
    yield from (("query", name, name) for name in route.query)
    yield from (("header", name, header) for name, header in route.asks.in_header.items())


def _given(field: Schema) -> Schema:
    """The schema of a field where it is given: text outside a body can't be null."""
    schema = {name: value for name, value in field.items() if name != "title"}
    if schema.get("default", schema) is None:
        del schema["default"]
    given = [each for each in schema.pop("anyOf", ()) if each != {"type": "null"}]
    if len(given) > 1:
        schema["anyOf"] = given
    return {**given[0], **schema} if len(given) == 1 else schema
