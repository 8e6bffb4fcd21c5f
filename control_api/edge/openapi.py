"""Generates the API's OpenAPI 3.1 description from the table of routes and the types of requests
and responses.

    schemas of all requests and responses > for each route its request, its responses, its links

The description is rendered at the first request for it: rendering takes longer than the rest of the
start, and most processes are never asked for it.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from control_api.edge.answers import JSON, Document
from control_api.edge.openapi_responses import (
    ERROR,
    HEADERS,
    Schema,
    Schemas,
    example_of,
    path_examples,
    responses,
    words,
)
from control_api.edge.route import Route, Scope


def parameters(route: Route, request: Schema, examples: dict[str, Any]) -> list[dict[str, Any]]:
    """Describe a route's path, query and header parameters. Path parameters get an example value
    from `examples`, which is keyed by field name."""
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
    """Describe a body member that a `PUT` accepts only because a `GET` shows it, so that a client
    can send back the object that it read."""
    # Not `readOnly`: then a client should leave it out (OpenAPI 3.1, section 4.8.24), and tools
    # expect a refusal. Without a type, since it is not read.
    if name not in route.parameters:
        return {"description": "Ignored: the service sets it. What a `GET` shows may come back."}
    about = "May be left out. Otherwise it must be the path's."
    return {**request["properties"][name], "description": about}


def _locations(route: Route) -> Iterator[tuple[str, str, str]]:
    """Yield each parameter as `(location, field that it fills, name in that location)`."""
    yield from (("path", name, name) for name in route.parameters)
    yield from (("query", name, name) for name in route.query)
    yield from (
        ("header", name, header)
        for name, header in route.request_type.in_header.items()
        # OpenAPI describes it by the responses' media types, and forbids it as a parameter.
        if header != "Accept"
    )


def _as_parameter(field: Schema) -> Schema:
    """Turn a field's schema into the schema of a parameter, which has no title and can't be
    null."""
    # A parameter has a name already; pydantic's title would only repeat it.
    schema = {name: value for name, value in field.items() if name != "title"}
    if schema.get("default", schema) is None:
        del schema["default"]  # None only means that the field is not sent
    options = [each for each in schema.pop("anyOf", ()) if each != {"type": "null"}]
    if len(options) > 1:
        schema["anyOf"] = options
    return {**options[0], **schema} if len(options) == 1 else schema


_ABOUT = """\
Decides whether an agent may retrieve from a data source, and keeps a provable record of every \
decision. A `DENY` is a decision, not an error: it is answered with 200.

Every error has the same body, `{error, message, code, details?}`. An unknown path is 404. A \
method that the path does not support is 405, and `Allow` lists those it does. Under `/v1/` the \
key is checked first, so a call without one is always 401.

What a `GET` returned can be put back: a `PUT` ignores the members that only the service sets, \
such as times, versions and counts, and refuses a name or id that is not the path's."""

_TAGS = {
    "context": "Decisions: may this agent read that source?",
    "audit": "The record of every decision, and the proof that it is complete.",
    "policies": "What each role may read.",
    "guardrails": "What must hold whatever a policy says.",
    "sources": "How sensitive sources are, whatever a request or a sidecar states.",
    "agents": "The agent registry: which agents may evaluate.",
    "keys": "API keys: who may call, and what they may do.",
    "console": "Who is signed in to the console, and links that sign a browser in.",
    "sessions": "Retrievals that belong together. Each session belongs to one agent.",
    "freeze": "For an incident: while the tenant is frozen, every evaluation is denied.",
    "settings": "How long a tenant's data is kept.",
    "alerts": "Rules that watch decisions, and the alerts they fired.",
    "sidecars": "What sidecars use: the policy set, sessions, and delivery of their records.",
    "admin": "Tenant administration, with the superadmin key.",
    "service": "The service itself.",
}

_SCOPES = {
    Scope.evaluate: "may evaluate, and record what followed",
    Scope.read: "may read everything of its tenant except secrets",
    Scope.admin: "may do everything in its tenant",
    Scope.sidecar: "is for sidecars: fetch the policy set, claim sessions, deliver records",
    Scope.superadmin: "administers tenants, and belongs to none of them",
}


def describe(routes: Iterable[Route], version: str) -> bytes:
    table = tuple(routes)
    schemas, examples = Schemas(table), path_examples(table)
    paths: dict[str, dict[str, Any]] = {}
    for route in table:
        operation = _operation(route, table, schemas, examples)
        paths.setdefault(route.path, {})[route.method.lower()] = operation
    tags = dict.fromkeys(_tag(route) for route in table)
    # Describe only the headers that some response has.
    used = {name: HEADERS[name] for name in HEADERS if f"headers/{name}" in str(paths)}
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Sluice", "version": version, "description": _ABOUT},
        "servers": [{"url": "/"}],
        "tags": [{"name": tag, "description": _TAGS[tag]} for tag in tags],
        "paths": paths,
        "components": {
            "schemas": {**schemas.definitions, "Error": ERROR},
            "headers": used,
            "securitySchemes": {"ApiKey": _api_key(), "Bearer": _bearer()},
        },
    }
    return orjson.dumps(document)


def _api_key() -> dict[str, str]:
    # OpenAPI 3.1 can describe a scope only for OAuth, so the scopes' meaning goes into the text.
    lines = [f"- `{scope}` {may}" for scope, may in _SCOPES.items()]
    about = "Each key has one scope:\n\n" + "\n".join(lines)
    return {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": about}


def _bearer() -> dict[str, str]:
    about = (
        "The same key as in `X-API-Key`, for clients and gateways that expect this header. Send "
        "one of the two: different keys in both are answered with 401."
    )
    return {"type": "http", "scheme": "bearer", "description": about}


def _operation(
    route: Route, table: tuple[Route, ...], schemas: Schemas, examples: dict[str, Any]
) -> dict[str, Any]:
    schema = schemas.request(route)
    scopes = sorted(route.scopes or ())
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "description": _description(route, scopes),
        "tags": [_tag(route)],
        "parameters": parameters(route, schema, examples),
        "responses": responses(route, schemas),
        "security": [{name: [scope]} for name in ("ApiKey", "Bearer") for scope in scopes],
    }
    if scopes:
        operation["x-sluice-scopes"] = scopes
    if route.body:
        operation["requestBody"] = body(route, schema)
    if links := _links(route, table):
        operation["responses"][str(route.status)]["links"] = links
    return operation


def _description(route: Route, scopes: list[Scope]) -> str:
    # A path parameter describes itself: only query and body need the model's docstring.
    about = route.request_type.__doc__ if route.query or route.body else None
    needs = f"Needs a key of scope {_or(scopes)}." if scopes else "Needs no key."
    return "\n\n".join(part for part in (words(route.details), words(about), needs) if part)


def _or(names: list[Scope]) -> str:
    return " or ".join(f"`{name}`" for name in names)


def _tag(route: Route) -> str:
    return route.parts[1] if route.parts[0] == "v1" else "service"


def _links(route: Route, table: tuple[Route, ...]) -> dict[str, Any]:
    """Link the creation of an object to the operations whose path takes an id from its response
    (OpenAPI links)."""
    # The example has every field of the response, so its names are those that can be linked.
    members = example_of(route.response_type)
    if route.method != "POST" or route.parameters or not isinstance(members, dict):
        return {}
    return {
        other.name: {"operationId": other.name, "parameters": {name: f"$response.body#/{name}"}}
        for other in table
        for name in other.parameters
        if name in members
    }


@dataclass(frozen=True, slots=True)
class Description:
    openapi: Document
    page: Document


class Describer:
    """Renders the API's description once, in a thread, so that other requests are served meanwhile.
    `render` is the function that does it."""

    def __init__(self, render: Callable[[], Description]) -> None:
        self._render = render
        self._rendered: asyncio.Future[Description] | None = None

    async def describe(self) -> Description:
        """Return the description, rendered at the first call. Requests that arrive during the
        rendering wait for it."""
        if self._rendered is None:
            self._rendered = asyncio.get_running_loop().run_in_executor(None, self._render)
        # Shielded: a client that hangs up leaves the rendering to the others.
        return await asyncio.shield(self._rendered)
