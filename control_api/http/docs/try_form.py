"""Renders the form that sends an operation's request: an input for each parameter, and the example
body to edit.

`docs.js` reveals the forms and sends them. Knows OpenAPI's structure and no operation.
"""

from html import escape
from typing import Any

import orjson

from control_api.http.reply import JSON


def try_form(method: str, path: str, operation: dict[str, Any]) -> str:
    """The operation's form, hidden until the script runs."""
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
    text = orjson.dumps(example, option=orjson.OPT_INDENT_2).decode()
    rows = min(text.count("\n") + 2, 20)
    return (
        "<label>Body <small>JSON</small>"
        f'<textarea data-in="body" rows="{rows}" spellcheck="false">{escape(text)}</textarea>'
        "</label>"
    )
