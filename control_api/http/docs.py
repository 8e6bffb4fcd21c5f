"""A page to read the API's description at. One file of HTML: no script, nothing from the network.

Knows the description's form (OpenAPI 3.1) and no operation. Of each operation: what it does, a
`curl` to copy, its fields, its answer, its errors.
"""

from html import escape
from typing import Any

import orjson

from control_api.http.docs_fields import JSON, asked, members, resolved, table
from control_api.http.docs_style import STYLE

_KEY = """\
A key goes in `X-API-Key`, or in `Authorization: Bearer`. In the examples `$SLUICE` is the \
service's address and `$KEY` a key."""


def page(description: bytes) -> bytes:
    """The page of a description."""
    document = orjson.loads(description)
    info = document["info"]
    scheme = document["components"]["securitySchemes"]["ApiKey"]
    parts = [
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>",
        _prose(info["description"]),
        _prose(_KEY),
        _prose(scheme["description"]),
        '<p>The same for machines: <a href="/openapi.json">openapi.json</a></p>',
        "<nav>" + "".join(_entries(document, tag) for tag in document["tags"]) + "</nav>",
        *(_section(document, *operation) for operation in _operations(document)),
    ]
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(info['title'])}</title><style>{STYLE}</style></head><body>"
    )
    return (head + "".join(parts) + "</body></html>").encode()


def _operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


def _entries(document: dict[str, Any], tag: dict[str, str]) -> str:
    lines = [
        f'<li><a href="#{escape(operation["operationId"])}">'
        f"<code>{method.upper()} {escape(path)}</code></a></li>"
        for method, path, operation in _operations(document)
        if tag["name"] in operation["tags"]
    ]
    about = f"<h2>{escape(tag['name'])}</h2><p>{escape(tag['description'])}</p>"
    return about + f"<ul>{''.join(lines)}</ul>"


def _section(document: dict[str, Any], method: str, path: str, operation: dict[str, Any]) -> str:
    parts = [
        f'<section id="{escape(operation["operationId"])}">',
        f'<h3><span class="method">{method.upper()}</span> <code>{escape(path)}</code></h3>',
        f"<p>{escape(operation['summary'])}</p>",
        _prose(operation["description"]),
        f"<pre>{escape(curl(method, path, operation))}</pre>",
        table(document, asked(operation)),
        *(_answer(document, *each) for each in operation["responses"].items() if each[0] < "4"),
        _errors(operation["responses"]),
    ]
    return "".join(parts) + "</section>"


def curl(method: str, path: str, operation: dict[str, Any]) -> str:
    """The operation as a command, with the values of its examples."""
    for parameter in operation["parameters"]:
        if parameter["in"] == "path":
            value = str(parameter.get("example", parameter["name"]))
            path = path.replace("{" + parameter["name"] + "}", value)
    verb = "" if method == "get" else f" -X {method.upper()}"
    lines = [f'curl{verb} "$SLUICE{path}"']
    if operation["security"]:
        lines.append('-H "X-API-Key: $KEY"')
    if body := operation.get("requestBody"):
        text = orjson.dumps(body["content"][JSON]["example"]).decode().replace("'", "'\\''")
        lines += ["-H 'Content-Type: application/json'", f"-d '{text}'"]
    return " \\\n  ".join(lines)


def _answer(document: dict[str, Any], status: str, answer: dict[str, Any]) -> str:
    media = answer["content"].get(JSON, {})
    schema = media.get("schema", {})
    schema = schema.get("items", schema)
    schema = (schema.get("anyOf") or [schema])[0]
    if "$ref" in schema:
        schema = resolved(document, schema)
    rows = members(schema, "answer")
    example = _pretty(media["example"]) if "example" in media else ""
    line = f"<p><strong>{status}</strong> {escape(answer['description'])}</p>"
    fields = table(document, rows)
    return (
        line + example + (f"<details><summary>fields</summary>{fields}</details>" if rows else "")
    )


def _errors(responses: dict[str, Any]) -> str:
    lines = [
        f"<tr><td><strong>{status}</strong></td><td>{escape(answer['description'])}</td></tr>"
        for status, answer in responses.items()
        if status >= "4"
    ]
    return f"<table>{''.join(lines)}</table>"


def _prose(text: str) -> str:
    """Paragraphs, lists and `code`: as much Markdown as the description uses."""
    parts = []
    for block in escape(text).split("\n\n"):
        pieces = block.split("`")
        odd = [f"<code>{each}</code>" if at % 2 else each for at, each in enumerate(pieces)]
        joined = "".join(odd)
        if joined.startswith("- "):
            items = "".join(f"<li>{line[2:]}</li>" for line in joined.split("\n"))
            parts.append(f"<ul>{items}</ul>")
        else:
            parts.append(f"<p>{joined}</p>")
    return "".join(parts)


def _pretty(value: Any) -> str:
    text = orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    return f"<pre>{escape(text)}</pre>"
