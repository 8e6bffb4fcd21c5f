"""The fields of requests and answers, as a table of the page. Knows JSON Schema's form, and no
operation."""

from html import escape
from typing import Any

JSON = "application/json"
Schema = dict[str, Any]
Row = tuple[str, str, Schema, bool]
"""Name, place, schema, whether it must be given."""


def asked(operation: dict[str, Any]) -> list[Row]:
    """All that an operation takes."""
    return [*map(_of_parameter, operation["parameters"]), *_of_body(operation)]


def _of_parameter(parameter: dict[str, Any]) -> Row:
    about = {"description": parameter.get("description", "")}
    schema = parameter["schema"] | about
    return parameter["name"], parameter["in"], schema, parameter.get("required", False)


def _of_body(operation: dict[str, Any]) -> list[Row]:
    if "requestBody" not in operation:
        return []
    return members(operation["requestBody"]["content"][JSON]["schema"], "body")


def members(schema: Schema, place: str) -> list[Row]:
    required = schema.get("required", ())
    return [
        (name, place, member, name in required)
        for name, member in schema.get("properties", {}).items()
    ]


def table(document: dict[str, Any], rows: list[Row]) -> str:
    if not rows:
        return ""
    lines = [
        f"<tr><td><code>{escape(name)}</code></td><td>{place}</td>"
        f"<td>{escape(kind(document, schema))}{', required' if required else ''}</td>"
        f"<td>{escape(schema.get('description', ''))}</td></tr>"
        for name, place, schema, required in rows
    ]
    head = "<tr><th>field</th><th>in</th><th>is</th><th></th></tr>"
    return f"<table>{head}{''.join(lines)}</table>"


def kind(document: dict[str, Any], schema: Schema) -> str:
    """What a schema takes, in a few words."""
    if "$ref" in schema:
        return kind(document, resolved(document, schema))
    if alternatives := schema.get("anyOf"):
        return " or ".join(dict.fromkeys(kind(document, each) for each in alternatives))
    if values := schema.get("enum") or ([schema["const"]] if "const" in schema else None):
        return " | ".join(map(str, values))
    if schema.get("type") == "array":
        return f"list of {kind(document, schema.get('items', {}))}"
    text = str(schema.get("format") or schema.get("type", "anything"))
    least, most = schema.get("minimum"), schema.get("maximum")
    return (
        text if least is None else f"{text} {least} to {most}" if most else f"{text} from {least}"
    )


def resolved(document: dict[str, Any], schema: Schema) -> Schema:
    found: Schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return found
