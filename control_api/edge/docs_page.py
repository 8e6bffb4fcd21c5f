"""Renders the API's description (OpenAPI 3.1) as one HTML page to read, search and try.

The page contains its own style and script and loads nothing else; its links lead only to http(s)
URLs and to places on the page. Without the script it is readable too: `docs.js` only reveals the
search field, the key field and the forms, and sends the forms.
"""

from base64 import b64encode
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any, NamedTuple

import orjson
from markdown_it import MarkdownIt

from control_api.edge.answers import JSON, Document

# `html: False`: a docstring with `<b>` shows it, and nothing from a description can become markup.
_RENDERER = MarkdownIt("commonmark", {"html": False})


def markdown(text: str) -> str:
    """Render `text` as HTML blocks: paragraphs, lists, code."""
    return str(_RENDERER.render(text))


def inline(text: str) -> str:
    """Render `text` as inline HTML, for a table cell."""
    return str(_RENDERER.renderInline(text))


Schema = dict[str, Any]


class FieldRow(NamedTuple):
    """A row of a field table: the field's name, its location (`path`, `query`, `header`, `body`,
    `response`), its schema, and whether it is required."""

    name: str
    location: str
    schema: Schema
    required: bool


def operation_fields(operation: dict[str, Any]) -> list[FieldRow]:
    """List all fields of an operation's request: first the parameters, then the fields of the
    body."""
    rows = [_parameter(each) for each in operation["parameters"]]
    if "requestBody" in operation:
        rows += members(operation["requestBody"]["content"][JSON]["schema"], "body")
    return rows


def _parameter(parameter: dict[str, Any]) -> FieldRow:
    schema = parameter["schema"] | {"description": parameter.get("description", "")}
    return FieldRow(parameter["name"], parameter["in"], schema, parameter.get("required", False))


def members(schema: Schema, location: str) -> list[FieldRow]:
    required = schema.get("required", ())
    return [
        FieldRow(name, location, member, name in required)
        for name, member in schema.get("properties", {}).items()
    ]


def field_table(document: dict[str, Any], rows: list[FieldRow]) -> str:
    """Render the rows as an HTML table. Return an empty string if there are no rows."""
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
    """Describe a schema's type in a few words, for example `list of string` or `integer 1 to
    1000`."""
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
    """Return the schema that the `$ref` in `schema` points to."""
    found: Schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return found


def try_form(method: str, path: str, operation: dict[str, Any]) -> str:
    """Render the "Try it" form of the operation. It is hidden until the page's script runs."""
    fields = [_input(parameter) for parameter in operation["parameters"]]
    if body := operation.get("requestBody"):
        fields.append(_body(body["content"][JSON]["example"]))
    button = f'<button type="submit">Send {method.upper()}</button>'
    return (
        '<details class="try" hidden><summary>Try it</summary>'
        f'<form data-method="{method.upper()}" data-path="{escape(path)}">'
        f"{''.join(fields)}{button}<output hidden></output></form></details>"
    )


def _input(parameter: dict[str, Any]) -> str:
    name, location = escape(parameter["name"]), escape(parameter["in"])
    required = " required" if parameter.get("required") else ""
    return (
        f"<label>{name} <small>{location}</small>"
        f'<input data-in="{location}" data-name="{name}" autocomplete="off"{required}></label>'
    )


def _body(example: Any) -> str:
    text = _json(example)
    rows = min(text.count("\n") + 2, 20)
    return (
        "<label>Body <small>JSON</small>"
        f'<textarea data-in="body" rows="{rows}" spellcheck="false">{escape(text)}</textarea>'
        "</label>"
    )


_INTRODUCTION = """\
A key goes in `X-API-Key`, or in `Authorization: Bearer`. In the examples `$SLUICE` is the \
service's address and `$KEY` a key."""

_TOOLS = """\
<div class="tools" hidden>
<label>Search <input id="search" type="search" placeholder="path, field or word"></label>
<label>API key <input id="key" type="password" autocomplete="off" spellcheck="false"
placeholder="slc_…"></label>
<p class="hint">The key stays in this tab's memory and is gone when you leave the page.</p>
<p class="hint" id="found" role="status"></p>
</div>"""

Operation = tuple[str, str, dict[str, Any]]
"""An operation of the API: HTTP method, path and OpenAPI operation object."""


def render_page(description: bytes) -> Document:
    """Render an OpenAPI document, given as JSON, as one HTML page."""
    document = orjson.loads(description)
    info = document["info"]
    style, script = _file("docs.css"), _file("docs.js")
    scheme = document["components"]["securitySchemes"]["ApiKey"]
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>{escape(info['title'])} API</title><style>{style}</style></head><body>",
        f'<nav aria-label="Operations"><h1>{escape(info["title"])}</h1>{_TOOLS}',
        *(_navigation(document, tag) for tag in document["tags"]),
        "</nav><main>",
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>",
        markdown(info["description"]),
        markdown(_INTRODUCTION),
        markdown(scheme["description"]),
        '<p>For machines: <a href="openapi.json">openapi.json</a></p>',
        *(_operation(document, operation) for operation in _operations(document)),
        f"</main><script>{script}</script></body></html>",
    ]
    return Document(
        "text/html; charset=utf-8", "".join(parts).encode(), _security_policy(style, script)
    )


def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _security_policy(style: str, script: str) -> str:
    # Only these two may run, by their hashes: markup smuggled into a description could not.
    # `connect-src 'self'`: the forms may call this service, and a key typed in can't go elsewhere.
    return (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _operations(document: dict[str, Any]) -> list[Operation]:
    return [
        (method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


def _navigation(document: dict[str, Any], tag: dict[str, str]) -> str:
    lines = [
        f'<li><a href="#{escape(operation["operationId"])}">'
        f'<span class="method">{method.upper()}</span> <code>{escape(path)}</code></a></li>'
        for method, path, operation in _operations(document)
        if tag["name"] in operation["tags"]
    ]
    about = f"<h2>{escape(tag['name'])}</h2><p>{escape(tag['description'])}</p>"
    return f'<div class="group">{about}<ul>{"".join(lines)}</ul></div>'


def _operation(document: dict[str, Any], found: Operation) -> str:
    method, path, operation = found
    responses = operation["responses"].items()
    parts = [
        f'<section id="{escape(operation["operationId"])}">',
        f'<h3><span class="method">{method.upper()}</span> <code>{escape(path)}</code></h3>',
        markdown(operation["summary"]),
        markdown(operation["description"]),
        f"<pre>{escape(curl(method, path, operation))}</pre>",
        field_table(document, operation_fields(operation)),
        try_form(method, path, operation),
        *(_response(document, *each) for each in responses if each[0] < "4"),
        _errors(operation["responses"]),
    ]
    return "".join(parts) + "</section>"


def curl(method: str, path: str, operation: dict[str, Any]) -> str:
    """Write a curl command that calls the operation with example values."""
    for parameter in operation["parameters"]:
        if parameter["in"] == "path":
            value = str(parameter.get("example", parameter["name"]))
            path = path.replace("{" + parameter["name"] + "}", value)
    verb = "" if method == "get" else f" -X {method.upper()}"
    lines = [f'curl{verb} "$SLUICE{path}"']
    if operation["security"]:
        lines.append('-H "X-API-Key: $KEY"')
    if body := operation.get("requestBody"):
        # The text goes inside a shell's single quotes, where only the quote itself is special.
        text = orjson.dumps(body["content"][JSON]["example"]).decode().replace("'", "'\\''")
        lines += ["-H 'Content-Type: application/json'", f"-d '{text}'"]
    return " \\\n  ".join(lines)


def _response(document: dict[str, Any], status: str, response: dict[str, Any]) -> str:
    media = response.get("content", {}).get(JSON, {})
    schema = media.get("schema", {})
    # For a list, show the fields of its items; for a union, those of its first type.
    schema = schema.get("items", schema)
    schema = (schema.get("anyOf") or [schema])[0]
    if "$ref" in schema:
        schema = resolved(document, schema)
    rows = members(schema, "response")
    example = f"<pre>{escape(_json(media['example']))}</pre>" if "example" in media else ""
    line = f"<p><strong>{status}</strong> {escape(response['description'])}</p>"
    table = field_table(document, rows)
    fields = f"<details><summary>Fields</summary>{table}</details>" if rows else ""
    return line + example + fields


def _errors(responses: dict[str, Any]) -> str:
    lines = [
        f"<tr><td><strong>{status}</strong></td><td>{markdown(response['description'])}</td></tr>"
        for status, response in responses.items()
        if status >= "4"
    ]
    table = f"<table>{''.join(lines)}</table>"
    return f"<details><summary>Errors</summary>{table}</details>"


def _json(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
