"""An ASGI origin, for uvicorn. Writes one line a request: the field `X-Case`, method and target."""

from collections.abc import Awaitable, Callable
from typing import Any

from tests.support.origin_apps.answers import answer

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


async def app(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    assert scope["type"] == "http"
    body = b""
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            return
        body += event.get("body", b"")
        if not event.get("more_body"):
            break
    fields = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
    query = scope["query_string"].decode("latin-1")
    target = scope["raw_path"].decode("latin-1") + (f"?{query}" if query else "")
    print(dict(fields).get("x-case", "-"), scope["method"], target, flush=True)
    made = answer(scope["method"], target, fields, body)
    sent = [(name.lower().encode(), value.encode("latin-1")) for name, value in made.fields]
    if made.length and made.status not in (204, 304):
        sent.append((b"content-length", str(sum(map(len, made.parts))).encode()))
    await send({"type": "http.response.start", "status": made.status, "headers": sent})
    parts = [] if scope["method"] == "HEAD" else made.parts
    for part in parts:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
