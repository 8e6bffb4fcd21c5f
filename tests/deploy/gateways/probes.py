"""Ways in which a client could get past a gateway. Each probe says whether it did.

A probe sends real requests, and looks at what the upstream got, what the log says, and what the
client was told. Its name is that of the safety lines that stop it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.deploy.gateways.protected import AGENT, Protected
from tests.deploy.gateways.raw_requests import exchange, get, one, status
from tests.deploy.gateways.recording_upstream import FAILING

OVERRIDES = (
    "X-HTTP-Method: DELETE", "X-HTTP-Method-Override: DELETE", "X-Method-Override: DELETE",
    "X-Rewrite-URL: /admin", "X-Forwarded-Method: DELETE", "X-Forwarded-Uri: /admin",
    "X-Original-Method: DELETE", "X-Original-URI: /admin", "X-Original-URL: /admin",
    "X-Original-Path: /admin", "X-Envoy-Original-Path: /admin", "X-Forwarded-Path: /admin",
    "X-Forwarded-Prefix: /admin", "X-HTTP-Path-Override: /admin", "X-Override-URL: /admin",
    "X-Original-Host: admin", "X-Envoy-Original-Host: admin", "Forwarded: host=admin",
    "X-Forwarded-Server: admin", "X-Host: admin", "X-HTTP-Host-Override: admin",
    "X_Original_URL: /admin", "X-Original_URL: /admin", "X_Rewrite_URL: /admin",
    "X.Rewrite.URL: /admin", "X_Host: admin", "X.Host: admin", "X.HTTP.Host.Override: admin",
)  # fmt: skip
FORWARDED_HOSTS = (
    "X-Forwarded-Host", "X_Forwarded_Host", "X.Forwarded.Host", "X-Forwarded_Host",
)  # fmt: skip
UPGRADES = (
    ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
     "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="),
    ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAA"),
    ("Connection: Upgrade", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAA"),
    ("HTTP2-Settings: AAMAAABkAARAAAAA",),
    ("Connection: Upgrade", "Upgrade: TLS/1.2"),
    ("Connection: keep-alive, upgrade", "Upgrade: other/1, websocket"),
)  # fmt: skip
Probe = Callable[[Protected, int], bool]


def _passing(world: Protected, port: int, *fields: str) -> dict[str, Any]:
    """The event of a request that passes."""
    world.upstream.take()
    answer = one(port, get("/pub/passing", *fields))
    assert status(answer) == 200, answer
    (seen,) = world.upstream.take()
    return world.event(seen)


def unchecked(world: Protected, port: int) -> bool:
    """A request that is denied reaches the upstream."""
    world.upstream.take()
    one(port, get("/admin"))
    return bool(world.upstream.take())


def attributed(world: Protected, port: int) -> bool:
    """A client says for whom it asks, and the record repeats it."""
    for fields in (
        ("X-Sluice-User: mallory", "X-Sluice-Session: mallorys", "X-Sluice-Task: mallorys"),
        ("baggage: sluice.user=mallory,sluice.session=mallorys,sluice.task=mallorys",),
    ):
        world.upstream.take()
        if status(one(port, get("/pub/passing", *fields))) != 200:
            return True  # a word of the client's is why
        (seen,) = world.upstream.take()
        if "mallory" in str(world.event(seen)):
            return True
    return False


def claimed_key(world: Protected, port: int) -> bool:
    """The client's key speaks: a wrong one denies, or another's allows."""
    wrong = one(port, get("/pub/a", "X-API-Key: sk_wrong"))
    anothers = one(port, get("/pub/a", f"X-API-Key: {world.others_key}"))
    plain = one(port, get("/pub/a"))
    return len({status(each) for each in (wrong, anothers, plain)}) > 1


def claimed_method(world: Protected, port: int) -> bool:
    """A client says of a write that it is a read."""
    world.upstream.take()
    one(port, get("/pub/a", "X-Forwarded-Method: GET", "X-Original-Method: GET", method="DELETE"))
    return any(each.method == "DELETE" for each in world.upstream.take())


def claimed_uri(world: Protected, port: int) -> bool:
    """A client says of a path that it is another."""
    world.upstream.take()
    for name in ("X-Forwarded-Uri", "X-Original-URI", "X-Original-URL", "X-Envoy-Original-Path"):
        one(port, get("/admin", f"{name}: /pub/a"))
    return bool(world.upstream.take())


def forged_event(world: Protected, port: int) -> bool:
    """The upstream gets an event's id from a client."""
    world.upstream.take()
    one(port, get("/pub/a", "X-Sluice-Event-Id: forged"))
    return any("forged" in each.all("x-sluice-event-id") for each in world.upstream.take())


def revealed(world: Protected, port: int) -> bool:
    """The upstream gets what is between gateway and sidecar: a key, or words about the agent."""
    world.upstream.take()
    names = ("X-API-Key", "X-Sluice-User", "X-Sluice-Session", "X-Sluice-Task")
    sent = [f"{name}: client" for name in (*names, "X-Sluice-Sensitivity")]
    one(port, get("/pub/a"))
    for field in sent:
        one(port, get("/pub/a", field.replace("client", "low") if "Sens" in field else field))
    return any(
        name == "x-api-key" or (name.startswith("x-sluice-") and name != "x-sluice-event-id")
        for each in world.upstream.take()
        for name, _ in each.fields
    )


def repeated(world: Protected, port: int) -> bool:
    """One decision lets several requests reach the upstream."""
    world.upstream.take()
    inside = "X-Forwarded-For: 10.0.0.1"
    one(port, get(FAILING, inside, "x-envoy-retry-on: 5xx", "x-envoy-max-retries: 2"))
    return len(world.upstream.take()) > 1


def relayed_whole(world: Protected, port: int) -> bool:
    """The upstream gets a target of another form than was judged."""
    world.upstream.take()
    one(port, get("http://kb.test/pub/a"))
    return any(not each.target.startswith("/") for each in world.upstream.take())


def tunnelled(world: Protected, port: int) -> bool:
    """A request for another protocol opens a tunnel to the upstream, in which nothing is judged."""
    world.upstream.take()
    hidden = b"GET /admin HTTP/1.1\r\nHost: kb.test\r\nConnection: close\r\n\r\n"
    for fields in UPGRADES:
        asked = "\r\n".join(("GET /pub/a HTTP/1.1", "Host: kb.test", *fields)) + "\r\n\r\n"
        exchange(port, asked.encode(), hidden)
    return any(
        each.path == "/admin" or each.protocol or each.all("http2-settings")
        for each in world.upstream.take()
    )


def overridden(world: Protected, port: int) -> bool:
    """The upstream gets a header that could make it act on another request."""
    world.upstream.take()
    for field in OVERRIDES:
        one(port, get("/pub/a", field))
    names = {_as_read(each.partition(":")[0]) for each in OVERRIDES}
    return any(_as_read(name) in names for each in world.upstream.take() for name, _ in each.fields)


def _as_read(name: str) -> str:
    """A header's name as the least careful program behind CGI reads it."""
    return re.sub(r"[^a-z0-9]", "-", name.lower())


def chosen_host(world: Protected, port: int) -> bool:
    """The upstream gets a host that the client chose."""
    world.upstream.take()
    one(port, get("/pub/a"))
    one(port, get("http://admin.test/pub/a"))
    own = [f"127.0.0.1:{world.upstream.port}"]
    return any(each.all("host") != own for each in world.upstream.take())


def forwarded_host(world: Protected, port: int) -> bool:
    """The upstream gets a host that the client chose as the one that it asked for."""
    world.upstream.take()
    one(port, get("/pub/a"))
    for name in FORWARDED_HOSTS:
        one(port, get("/pub/a", f"{name}: admin.test"))
    seen = world.upstream.take()
    return any(_as_read(name) == "x-forwarded-host" for each in seen for name, _ in each.fields)


PROBES: dict[str, Probe] = {
    "attribution": attributed,
    "check": unchecked,
    "event id": forged_event,
    "forwarded host": forwarded_host,
    "host": chosen_host,
    "key": claimed_key,
    "method": claimed_method,
    "override": overridden,
    "repeats": repeated,
    "target": relayed_whole,
    "upgrade": tunnelled,
    "upstream": revealed,
    "uri": claimed_uri,
}
IDENTITY = (
    "X-API-Key: {key}", "X-Sluice-Agent: agt_other", "X-Sluice-Role: other_reader",
    "X-Sluice-Agent-Id: agt_other", "X-Sluice-User: mallory", "X-Sluice-Session: mallorys",
    "X-Sluice-Task: mallorys", "X-Sluice-Decision: ALLOW", "X-Sluice-Event-Id: forged",
    "Authorization: Bearer {key}", "baggage: sluice.user=mallory,sluice.agent=agt_other",
    "X-Forwarded-Uri: /pub/a", "X-Forwarded-Method: GET", "X-Forwarded-For: 10.0.0.1",
    "X-Forwarded-Host: admin", "X-Forwarded-Proto: https", "X-Original-URI: /pub/a",
    "X-Original-URL: http://kb.test/pub/a", "X-Original-Method: GET",
    "x-envoy-auth-partial-body: true", "x-envoy-original-path: /pub/a", "x-envoy-internal: true",
    "x-envoy-original-method: GET", "x-envoy-decorator-operation: x",
    "x-envoy-auth-headers-to-remove: host", "X-Forwarded-Client-Cert: By=x",
    "Forwarded: for=1.1.1.1;host=admin",
)  # fmt: skip
"""What a client could say of itself. None of it may let it read what it may not, nor name it."""


def spoken_for(event: dict[str, Any]) -> bool:
    """True if anyone but the gateway's agent is recorded."""
    return event["agent_id"] != AGENT or "mallory" in str(event) or "agt_other" in str(event)
