"""A page to read the API's description at. One file of HTML: no script, nothing from the network.

Knows the description's form (OpenAPI 3.1) and no operation.
"""

from html import escape
from typing import Any

import orjson

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;"
    "color:#1b1f24;background:#fff}"
    "code,pre{font:14px/1.4 ui-monospace,monospace}"
    "pre{background:#f3f4f6;padding:.75rem;overflow-x:auto;border-radius:4px}"
    "section{border-top:1px solid #d0d7de;padding:.5rem 0}"
    "h2{font-size:1rem;margin:.5rem 0}h2 code{font-size:1rem}"
    ".method{display:inline-block;min-width:4rem;font-weight:700}"
    "table{border-collapse:collapse;width:100%}"
    "td,th{text-align:left;padding:.2rem .6rem .2rem 0;vertical-align:top}"
    "@media(prefers-color-scheme:dark){body{background:#14171a;color:#e6e8ea}"
    "pre{background:#1f2428}section{border-color:#333a41}a{color:#7ab7ff}}"
)


def page(description: bytes) -> bytes:
    """The page of a description."""
    document = orjson.loads(description)
    info = document["info"]
    operations = [
        (method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    parts = [
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>",
        f"<p>{escape(info['description'])}</p>",
        '<p>The same for machines: <a href="/openapi.json">openapi.json</a></p>',
        "<nav><ul>",
        *(_entry(*operation) for operation in operations),
        "</ul></nav>",
        *(_section(*operation) for operation in operations),
    ]
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(info['title'])}</title><style>{_STYLE}</style></head><body>"
    )
    return (head + "".join(parts) + "</body></html>").encode()


def _entry(method: str, path: str, operation: dict[str, Any]) -> str:
    name = escape(operation["operationId"])
    return f'<li><a href="#{name}"><code>{method.upper()} {escape(path)}</code></a></li>'


def _section(method: str, path: str, operation: dict[str, Any]) -> str:
    scopes = operation.get("x-sluice-scopes")
    needs = f"A key of scope {' or '.join(scopes)}." if scopes else "Needs no key."
    parts = [
        f'<section id="{escape(operation["operationId"])}">',
        f'<h2><span class="method">{method.upper()}</span> <code>{escape(path)}</code></h2>',
        f"<p>{escape(operation['summary'])} {escape(needs)}</p>",
        _parameters(operation["parameters"]),
    ]
    if body := operation.get("requestBody"):
        media = body["content"]["application/json"]
        parts.append("<p>Body</p>" + _pretty(media.get("example") or media["schema"]))
    parts += [_response(status, answer) for status, answer in operation["responses"].items()]
    return "".join(parts) + "</section>"


def _parameters(parameters: list[dict[str, Any]]) -> str:
    if not parameters:
        return ""
    rows = "".join(
        f"<tr><td><code>{escape(each['name'])}</code></td><td>{each['in']}</td>"
        f"<td>{'required' if each.get('required') else ''}</td>"
        f"<td>{escape(each.get('description', ''))}</td></tr>"
        for each in parameters
    )
    return f"<table><tr><th>parameter</th><th>in</th><th></th><th></th></tr>{rows}</table>"


def _response(status: str, answer: dict[str, Any]) -> str:
    line = f"<p><strong>{status}</strong> {escape(answer['description'])}</p>"
    media = answer.get("content", {}).get("application/json", {})
    return line + _pretty(media["example"]) if status < "400" and "example" in media else line


def _pretty(value: Any) -> str:
    text = orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    return f"<pre>{escape(text)}</pre>"
