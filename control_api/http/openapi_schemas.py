"""The schemas of all declarations and answers (JSON Schema 2020-12), made by what validates. Knows
no route's method and no status."""

import re
from collections.abc import Iterable
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from control_api.http.field_descriptions import describe_fields
from control_api.http.route import Route

Schema = dict[str, Any]
_REFERENCE = "#/components/schemas/{model}"
_CITED = re.compile(r" \((?:(?:`service\.md`|contract)[^()]*|[\d.]+(?:, [^()]*)?)\)")


def words(docstring: str | None) -> str:
    """A docstring's first paragraph, without what it cites of ours: what comes after is for whoever
    reads the code."""
    return _CITED.sub("", " ".join((docstring or "").partition("\n\n")[0].split()))


class Schemas:
    """`definitions` is what several refer to; `asked` and `answered` give one route's."""

    def __init__(self, table: Iterable[Route]) -> None:
        routes = tuple(table)
        inputs: list[tuple[str, JsonSchemaMode, TypeAdapter[Any]]] = []
        for route in routes:
            inputs.append((_asks(route), "validation", TypeAdapter(route.asks)))
            if route.answers is not None:
                adapter: TypeAdapter[Any] = TypeAdapter(route.answers)
                inputs.append((_answers(route), "serialization", adapter))
        found, rest = TypeAdapter.json_schemas(inputs, ref_template=_REFERENCE)
        self._found: dict[str, Schema] = {name: schema for (name, _), schema in found.items()}
        self.definitions: dict[str, Schema] = rest.get("$defs", {})
        self._resolve(routes)
        for name, schema in self.definitions.items():
            describe_fields(name, schema)
        for route in routes:
            describe_fields(route.asks.__name__, self.asked(route))
        for schema in (*self._found.values(), *self.definitions.values()):
            if "description" in schema:
                schema["description"] = words(schema["description"])

    def asked(self, route: Route) -> Schema:
        """The declaration, whose fields come from path, query, headers and body."""
        return self._found[_asks(route)]

    def answered(self, route: Route) -> Schema:
        return self._found[_answers(route)]

    def _resolve(self, routes: tuple[Route, ...]) -> None:
        """A declaration's fields are wanted one by one, and by no name."""
        names = set()
        for route in routes:
            schema = self.asked(route)
            if "$ref" in schema:
                names.add(name := schema["$ref"].rpartition("/")[2])
                self._found[_asks(route)] = self.definitions[name]
        for name in names:
            self.definitions.pop(name)


def _asks(route: Route) -> str:
    return f"{route.name} asks"


def _answers(route: Route) -> str:
    return f"{route.name} answers"
