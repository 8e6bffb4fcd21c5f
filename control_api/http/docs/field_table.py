"""Renders the fields of a request or response as an HTML table. Knows JSON Schema, and no
operation."""

from html import escape
from typing import Any, NamedTuple

from control_api.http.docs.markdown import inline
from control_api.http.reply import JSON

Schema = dict[str, Any]


class FieldRow(NamedTuple):
    """A field: its name, its location (`path`, `query`, `header`, `body`, `response`), its schema,
    and whether it is required."""

    name: str
    location: str
    schema: Schema
    required: bool


def operation_fields(operation: dict[str, Any]) -> list[FieldRow]:
    """All fields of an operation's request: the parameters, then the body's."""
    rows = [_parameter(each) for each in operation["parameters"]]
    if "requestBody" in operation:
        rows += members(operation["requestBody"]["content"][JSON]["schema"], "body")
    return rows


def _parameter(parameter: dict[str, Any]) -> FieldRow:
    schema = parameter["schema"] | {"description": parameter.get("description", "")}
    return FieldRow(parameter["name"], parameter["in"], schema, parameter.get("required", False))


def members(schema: Schema, location: str) -> list[FieldRow]:
    """The fields of an object's schema."""
    required = schema.get("required", ())
    return [
        FieldRow(name, location, member, name in required)
        for name, member in schema.get("properties", {}).items()
    ]


def field_table(document: dict[str, Any], rows: list[FieldRow]) -> str:
    """The rows as an HTML table; an empty string if there are none."""
    if not rows:
        return ""
    lines = [
        f"<tr><td><code>{escape(row.name)}</code></td><td>{row.location}</td>"
        f"<td>{escape(kind(document, row.schema))}{', required' if row.required else ''}</td>"
        f"<td>{inline(row.schema.get('description', ''))}</td></tr>"
        for row in rows
    ]
    head = "<tr><th>Field</th><th>In</th><th>Type</th><th>Meaning</th></tr>"
    return f"<table>{head}{''.join(lines)}</table>"


def kind(document: dict[str, Any], schema: Schema) -> str:
    """The type in a few words, for example `list of string` or `integer 1 to 1000`."""
    if "$ref" in schema:
        return kind(document, resolved(document, schema))
    if alternatives := schema.get("anyOf"):
        # Alternatives that differ only in their limits read the same: name them once.
        return " or ".join(dict.fromkeys(kind(document, each) for each in alternatives))
    if values := schema.get("enum") or ([schema["const"]] if "const" in schema else None):
        return " | ".join(map(str, values))
    if schema.get("type") == "array":
        return f"list of {kind(document, schema.get('items', {}))}"
    text = str(schema.get("format") or schema.get("type", "anything"))
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is None:
        return text
    return f"{text} from {least}" if most is None else f"{text} {least} to {most}"


def resolved(document: dict[str, Any], schema: Schema) -> Schema:
    """The schema that a `$ref` names."""
    found: Schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return found
