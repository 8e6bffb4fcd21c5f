"""A WSGI origin, served by waitress: `python -m tests.support.origin_apps.wsgi PORT`.

Writes one line a request: the field `X-Case`, method and target."""

import http
import sys
from collections.abc import Callable
from typing import Any

from waitress import serve

from tests.support.origin_apps.answers import answer


def app(environ: dict[str, Any], start: Callable[..., Any]) -> list[bytes]:
    fields = [
        (name.removeprefix("HTTP_").replace("_", "-").lower(), value)
        for name, value in environ.items()
        if name.startswith("HTTP_") or name in ("CONTENT_TYPE", "CONTENT_LENGTH")
    ]
    target = environ["REQUEST_URI"]
    print(environ.get("HTTP_X_CASE", "-"), environ["REQUEST_METHOD"], target, flush=True)
    body = environ["wsgi.input"].read()
    made = answer(environ["REQUEST_METHOD"], target, fields, body)
    sent = list(made.fields)
    if made.length and made.status not in (204, 304):
        sent.append(("Content-Length", str(sum(map(len, made.parts)))))
    start(f"{made.status} {http.HTTPStatus(made.status).phrase}", sent)
    return [] if environ["REQUEST_METHOD"] == "HEAD" else made.parts


if __name__ == "__main__":
    serve(app, host="127.0.0.1", port=int(sys.argv[1]), threads=8, backlog=1024, ident="waitress")
