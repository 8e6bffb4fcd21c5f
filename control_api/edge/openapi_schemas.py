"""Makes the JSON schemas (2020-12) of all requests and responses from the types that validate them.

Knows no route's method and no status.
"""

import re
from collections.abc import Iterable
from typing import Any

import orjson
from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from control_api.edge.field_descriptions import describe_fields
from control_api.edge.route import Route

Schema = dict[str, Any]
_REFERENCE = "#/components/schemas/{model}"
_CITED = re.compile(r" \((?:`(?:CONTRACT|TOOLS|INTEGRATIONS)\.md`[^()]*|[\d.]+(?:, [^()]*)?)\)")


def words(docstring: str | None) -> str:
    """A docstring's first paragraph, without citations of our own specifications.

    The rest of the docstring is for readers of the code.
    """
    return _CITED.sub("", " ".join((docstring or "").partition("\n\n")[0].split()))


class Schemas:
    """The schemas of a table of routes; `definitions` holds those that others refer to."""

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
        """The request's schema, with the fields of path, query, headers and body."""
        return self._found[_request_key(route)]

    def response(self, route: Route) -> Schema:
        return self._found[_response_key(route)]

    def _resolve(self, routes: tuple[Route, ...]) -> None:
        """Inline the schemas of requests: their fields are described one by one."""
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
