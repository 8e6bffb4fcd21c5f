"""The bypasses of `proxy/RULES.md` that can be written as bytes: ways past proxies that became
public, each with its row. The agent may read `/info/…`, `/pub/…` and `/mypath`, and nothing else.
"""

from typing import NamedTuple

from tests.support.proxy import policy

READER = policy(allowed_sources=("rest://kb/info/*", "rest://kb/pub/*", "rest://kb/mypath"))

HOST = "Host: kb.test"
UNREADABLE = "unreadable_request"
BEHIND = "GET /info/behind HTTP/1.1\r\nHost: kb.test\r\n\r\n"


class Bypass(NamedTuple):
    """A request that is to be refused with `status`, recorded as denied by `by`, None for whatever
    check says so. `last` where nothing behind it may be read."""

    row: int
    public: str
    data: bytes
    status: int
    by: str | None = None
    last: bool = False


class Passing(NamedTuple):
    """A request that is allowed, and `fields` of its head as the data source is to get it, without
    its `Host`."""

    row: int
    public: str
    data: bytes
    target: str
    fields: tuple[str, ...] = ()


def request(*lines: str, body: str = "") -> bytes:
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode("latin-1")


def get(target: str, *fields: str) -> bytes:
    return request(f"GET {target} HTTP/1.1", HOST, *fields)


def _unreadable(row: int, public: str, *targets: str) -> list[Bypass]:
    return [Bypass(row, public, get(target), 400, UNREADABLE) for target in targets]


def _denied(row: int, public: str, *targets: str) -> list[Bypass]:
    return [Bypass(row, public, get(target), 403) for target in targets]


def _broken(row: int, public: str, *data: bytes, last: bool = True) -> list[Bypass]:
    return [Bypass(row, public, each, 400, UNREADABLE, last) for each in data]


def _framed(*fields: str, body: str = "", version: str = "1.1") -> bytes:
    return request(f"POST /info/a HTTP/{version}", HOST, *fields, body=body)


CLAIMS = (
    "Forwarded: for=127.0.0.1;host=admin;proto=https", "X-Forwarded-For: 127.0.0.1",
    "X-Forwarded-Host: admin", "X-Forwarded-Uri: /info/a", "X-Forwarded-Prefix: /info",
    "X-Forwarded-Method: GET", "X-Forwarded-Client-Cert: x", "X-Original-URL: /admin",
    "X-Original-Uri: /admin", "X-Original-Host: admin", "X-Rewrite-URL: /admin",
    "X-Real-IP: 127.0.0.1", "X-Sluice-Decision: ALLOW", "X-Sluice-Event-Id: forged",
    "x-sluice-anything: 1",
)  # fmt: skip
OVERRIDES = (
    "X-HTTP-Method-Override: DELETE", "X-HTTP-Method: DELETE", "X-Method-Override: DELETE",
    "X_HTTP_Method_Override: DELETE",
)  # fmt: skip
ALIASES = (
    "X_Sluice_User: root", "X-Sluice_User: root", "X_SLUICE-Session: s", "x_forwarded_host: admin",
    "X_Original_URL: /admin", "x_real_ip: 127.0.0.1", "Content_Length: 5", "Transfer_Encoding: x",
)  # fmt: skip
ROLES = (
    ("x-role: user", "x-role: admin"), ("x-role: admin", "x-role: user"),
    ("x-role: user, admin",), ("Cookie: a=1", "Cookie: a=2"),
)  # fmt: skip

BYPASSES = (
    *_unreadable(1, "Envoy CVE-2019-9901", "/info/../private", "/info/%2e%2e/private",
                 "/info/..;/private", "/info/.%2E/private", "/info/./../private", "/info/..",
                 "/info/%2e", "/info/..%3bx/private", "/info/a/%2e%2e%2f%2e%2e/private"),
    *_unreadable(2, "Envoy CVE-2021-29492, Istio CVE-2021-31920", "//admin", "/%2fadmin",
                 "/x%5c..%5cadmin", "/info//../admin", "/info%2f..%2fadmin", "/info/%2Fadmin",
                 "/info\\..\\admin", "/info/a//b", "/info/%252fadmin", "/info/%255cadmin"),
    *_unreadable(3, "OPA-Envoy CVE-2026-26205", "//admin/secret", "///admin", "//h@x/admin",
                 "//kb.test/info/a", "/%2f/admin"),
    *_unreadable(4, "Envoy CVE-2021-32779", "/admin#x", "/info/a#", "/pub#/../admin",
                 "/info/#/../../admin", "/info/a?x#/admin", "/pub%23/../admin"),
    *_denied(5, "Heimdall CVE-2026-32811", "/mypath%3Ffoo", "/mypath%3ffoo=/info/a", "/mypath%3F"),
    *(Bypass(6, "Envoy CVE-2026-26308, aiohttp CVE-2026-34525", get("/info/a", *fields), 400,
             UNREADABLE, last)
      for fields, last in (
          (("Host: kb.test",), True), (("Host: admin",), True), (("host: kb.test",), True),
          (("X-Sluice-User: a", "x-sluice-user: b"), False),
          (("X-Sluice-Sensitivity: low", "X-Sluice-Sensitivity: low"), False),
          (("baggage: sluice.user=a", "baggage: sluice.user=b"), False))),
    *(Bypass(8, "oauth2-proxy CVE-2026-40575, Traefik GHSA-6384-m2mw-rf54, Envoy CVE-2024-45806",
             get("/admin", claim.replace("/admin", "/info/a")), 403) for claim in CLAIMS),
    *(Bypass(9, "Traefik CVE-2026-39858, Caddy CVE-2026-52845", get("/admin", alias), 403)
      for alias in ALIASES if not alias.startswith("X_Original")),
    *_broken(12, "Go CVE-2021-33197 and 50580, kube-rbac-proxy 320, teleport 42800",
             *(get("/info/a", "X-Sluice-User: ada", *lines) for lines in (
                 ("Connection: close, X-Sluice-User",), ("Connection: x_sluice_user",),
                 ("Connection:", "Connection: X-Sluice-User"),
                 ("Connection: keep-alive", "connection: , ,x-sluice-session"),
                 ("Connection: Host",), ("Connection: Content-Length",),
                 ("Connection: authorization", "Authorization: x"),
                 ("Connection: content-type",), ("Connection: content-encoding",)))),
    *_broken(13, "Pingora CVE-2026-2833",
             *(get("/info/a", *lines) for lines in (
                 ("Upgrade: websocket, foo", "Connection: upgrade"), ("Upgrade: websocket",),
                 ("Upgrade: foo, websocket", "Connection: upgrade"),
                 ("upgrade: WebSocket/13", "Connection: Upgrade")))),
    *_broken(14, "Pingora CVE-2026-2835, CVE-2025-4366",
             _framed("Content-Length: 4", "Transfer-Encoding: chunked", body="0\r\n\r\n"),
             _framed("Transfer-Encoding: chunked", "Content-Length: 4", body="0\r\n\r\n"),
             _framed("Transfer-Encoding: chunked", version="1.0", body="0\r\n\r\n"),
             _framed("Transfer-Encoding: gzip, chunked", body="0\r\n\r\n"),
             _framed("Transfer-Encoding: ,chunked", body="0\r\n\r\n"),
             _framed("Transfer-Encoding: identity", body="0\r\n\r\n"),
             _framed("Transfer-Encoding : chunked", body="0\r\n\r\n"),
             _framed("Transfer-Encoding:\x0bchunked", body="0\r\n\r\n"),
             _framed("Content-Length: 1", "Content-Length: 2", body="xx"),
             _framed("Content-Length: 1, 1", body="x"), _framed("Content-Length: +1", body="x"),
             _framed("Content-Length: 0x1", body="x"), _framed("Content-Length: 1\r\n ", body="x"),
             _framed("Content-Length:", body="x"), _framed("Content-Length: 1\x0b", body="x")),
    *_broken(24, "Envoy CVE-2019-9900", request("GET /info/a HTTP/1.1", "Host: kb.test\0.evil"),
             request("GET /info/a HTTP/1.1", HOST, "X-A: a\0b"),
             request("GET /info/a HTTP/1.1", HOST, "X\0A: a"),
             request("GET /info/a\0 HTTP/1.1", HOST),
             request("GET /info/a HTTP/1.1", HOST, "X: \x7f")),
    *_unreadable(24, "Envoy CVE-2019-9900", "/info/a%00", "/info/%0d%0aX-A:%20b", "/info/%c2%85"),
    *_broken(25, "a method in another spelling", request("get /info/a HTTP/1.1", HOST),
             request("FOO /info/a HTTP/1.1", HOST), request("GET\t/info/a HTTP/1.1", HOST)),
    *(Bypass(25, "a method override", get("/admin", field), 403) for field in OVERRIDES),
    *(Bypass(25, "a method that no reader needs", request(f"{method} /admin HTTP/1.1", HOST), 403)
      for method in ("TRACE", "PURGE", "PROPFIND", "OPTIONS", "SEARCH")),
)  # fmt: skip

PASSING = (
    Passing(4, "Envoy CVE-2021-32779", get("/info/a%23b"), "/info/a%23b"),
    Passing(5, "Heimdall CVE-2026-32811", get("/mypath?foo"), "/mypath?foo"),
    Passing(5, "Heimdall CVE-2026-32811", get("/mypath?/../admin"), "/mypath?/../admin"),
    *(Passing(6, "Envoy CVE-2021-32777", get("/info/a", *lines), "/info/a", lines)
      for lines in ROLES),
    *(Passing(7, "aiohttp 3.14, unreported", get("/info/a", *lines), "/info/a", lines)
      for lines in (("x-role: admin", "X-Role: user"), ("X-ROLE: a", "x-role: b", "X-Role: c"),
                    ("cookie: a=1", "Cookie: a=2"))),
    *(Passing(8, "oauth2-proxy CVE-2026-40575 and others", get("/info/a", claim), "/info/a")
      for claim in CLAIMS),
    *(Passing(9, "Traefik CVE-2026-39858 and others", get("/info/a", alias), "/info/a")
      for alias in ALIASES),
    Passing(10, "Caddy CVE-2026-30851", get("/info/a", "X-Sluice-User: root"), "/info/a"),
    *(Passing(12, "Go CVE-2021-33197", get("/info/a", *lines, "X-Hop: 1", "X-Stay: 2"), "/info/a",
              ("X-Stay: 2",))
      for lines in (("Connection:", "Connection: X-Hop"), ("Connection: keep-alive, x-hop",))),
    *(Passing(13, "RFC 9110 section 7.8", get("/info/a", *lines), "/info/a")
      for lines in (("Upgrade: foo", "Connection: upgrade"), ("Upgrade: foo",),
                    ("Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: x"),
                    ("upgrade: TLS/1.0", "Connection: Upgrade"))),
    *(Passing(25, "a method override", get("/info/a", field), "/info/a") for field in OVERRIDES),
)  # fmt: skip

ELSEWHERE = (
    (16, "proxy.test_bypasses_inside", "test_where_nothing_can_be_judged_nothing_passes"),
    (17, "proxy.test_bypasses_inside", "test_a_body_that_is_not_judged_whole_is_not_forwarded"),
    (18, "proxy.test_bypasses_inside", "test_a_body_that_is_encoded_is_not_forwarded"),
    (20, "proxy.tunnel.test_connect_passthrough", "test_a_hello_for_another_server_is_denied"),
    (
        21,
        "proxy.upstream.test_egress_guard",
        "test_a_name_that_later_resolves_elsewhere_is_refused_then",
    ),
    (27, "doctor.test_namespace", "test_a_hole_in_the_rules_is_real_and_is_found"),
    (27, "doctor.test_checks", "test_an_agent_that_could_be_the_sidecar_is_found"),
)
"""Rows that are no request, and where they are tested: a module of `tests.sidecar`, and a test."""
