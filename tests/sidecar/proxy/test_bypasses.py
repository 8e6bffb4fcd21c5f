"""The bypasses of `proxy/RULES.md`, row by row, over every way in. What is refused gets its status,
is in the log as a denial, and never reached the data source; what is allowed reached it exactly as
it was decided."""

import asyncio
import importlib
from collections.abc import Iterator

import pytest
import uvloop

from tests.runner import tiers
from tests.sidecar.own_loop import kept_open
from tests.sidecar.proxy.bypass_setups import WAYS
from tests.sidecar.proxy.bypasses import (
    BEHIND,
    BYPASSES,
    ELSEWHERE,
    HOST,
    PASSING,
    READER,
    Bypass,
    Passing,
    get,
    request,
)
from tests.sidecar.proxy.raw_client import Answered, ask
from tests.support import waiting
from tests.support.proxy import ProxySetup
from tests.support.scripted_source import answer


class WayIn:
    """One way in, for as long as this module runs."""

    def __init__(self, runner: asyncio.Runner, setup: ProxySetup, way: str) -> None:
        self.runner, self.setup, self.way = runner, setup, way
        self._known = 0

    def ask(self, *data: bytes) -> Answered:
        """On one connection, each part once what was sent before it was read. A plain request has
        gone before, so that there is a connection to the data source."""
        return self.runner.run(self._ask(data))

    def decisions(self) -> list[tuple[str, str, str]]:
        """Those that came of the last `ask`."""
        return self.runner.run(self.setup.sidecar.decisions())[self._known :]

    async def _ask(self, data: tuple[bytes, ...]) -> Answered:
        await ask(self.setup.port, get("/info/first"))
        self._known = len(await self.setup.sidecar.decisions())
        self.setup.upstream.begun.clear()
        self.setup.upstream.seen.clear()
        if len(data) == 1:
            return await ask(self.setup.port, data[0])
        reader, writer = await asyncio.open_connection("127.0.0.1", self.setup.port)
        try:
            for part in data:
                writer.write(part)
                await waiting.turns()
            if not writer.is_closing():
                writer.write_eof()
            async with asyncio.timeout(20):
                return Answered(await reader.read())
        finally:
            writer.close()


@pytest.fixture(scope="module", params=WAYS)
def way_in(request: pytest.FixtureRequest) -> Iterator[WayIn]:
    way = WAYS[request.param]
    with kept_open(lambda folder: way(folder, READER), uvloop.new_event_loop) as (runner, setup):
        yield WayIn(runner, setup, request.param)


def _name(case: Bypass | Passing) -> str:
    line = case.data.split(b"\r\n")
    shown = line[0] if len(line) < 3 else b" | ".join(line[:1] + line[2:4])
    return f"{case.row}. {case.public}: {shown.decode('latin-1')[:60]!r}"


def check_refused(way_in: WayIn, answered: Answered, status: int, by: str | None) -> None:
    assert answered.status == status, answered.raw[:300]
    assert answered.fields["x-sluice-decision"] == "DENY"
    assert way_in.setup.upstream.begun == []
    [(decision, policy_name, source)] = way_in.decisions()
    assert decision == "DENY"
    assert by is None or policy_name == by
    assert source.startswith((*way_in.setup.unread, "rest://kb"))
    told = answered.json["decision"]
    assert (told["decision"], told["policy_name"]) == ("DENY", policy_name)


@tiers.sampled("case", "way_in", each=2)
@pytest.mark.parametrize("case", BYPASSES, ids=_name)
def test_every_bypass_of_the_table_is_refused(way_in: WayIn, case: Bypass) -> None:
    answered = way_in.ask(case.data + BEHIND.encode() if case.last else case.data)
    assert answered.raw.count(b"HTTP/1.1 ") == 1, "nothing behind it is read"
    check_refused(way_in, answered, case.status, case.by)


@tiers.sampled("case", "way_in", each=2)
@pytest.mark.parametrize("case", PASSING, ids=_name)
def test_an_allowed_request_arrives_as_it_was_judged(way_in: WayIn, case: Passing) -> None:
    answered = way_in.ask(case.data)
    assert answered.status == 200, answered.raw[:300]
    [seen] = way_in.setup.upstream.begun
    host = f"Host: 127.0.0.1:{way_in.setup.upstream.port}"
    lines = [f"GET {case.target} HTTP/1.1", host, *case.fields]
    assert seen.head == "\r\n".join(lines).encode() + b"\r\n\r\n"
    assert way_in.decisions()[-1][::2] == ("ALLOW", "rest://kb" + case.target.partition("?")[0])


@pytest.mark.parametrize("upstreams", ["X-Sluice-Decision: ALLOW", "X_Sluice_Event_Id: forged"])
def test_row_10_the_data_source_cannot_set_headers_in_our_name(
    way_in: WayIn, upstreams: str
) -> None:
    way_in.setup.upstream.script = answer("HTTP/1.1 200 OK", b"ok", upstreams)
    try:
        answered = way_in.ask(get("/info/a"))
    finally:
        way_in.setup.upstream.script = answer()
    assert answered.fields["x-sluice-event-id"] != "forged"
    assert "x-sluice-decision" not in answered.fields
    assert b"x_sluice" not in answered.raw.lower()


@pytest.mark.parametrize("data", [
    b"POST /admin HTTP/1.1\r\nHost: kb.test\r\nContent-Length: %d\r\n\r\n%b",
    b"POST /info/../admin HTTP/1.1\r\nHost: kb.test\r\nContent-Length: %d\r\n\r\n%b",
])  # fmt: skip
def test_row_14_the_body_of_a_denied_request_is_not_read_as_a_request(
    way_in: WayIn, data: bytes
) -> None:
    """CVE-2025-4366: what was not read of a body is no request."""
    body = b"GET http://kb.test/info/smuggled HTTP/1.1\r\nHost: kb.test\r\n\r\n"
    for parts in ((data % (len(body), body) + get("/info/next"),),
                  (data % (len(body), b""), body, get("/info/next"))):  # fmt: skip
        answered = way_in.ask(*parts)
        assert answered.raw.split(b" ")[1] in (b"400", b"403")
        assert [seen.target for seen in way_in.setup.upstream.begun] in ([], ["/info/next"])
        assert [each[0] for each in way_in.decisions()] in (["DENY"], ["DENY", "ALLOW"])


@pytest.mark.parametrize("parts", [1, 2])
def test_row_15_data_after_a_refused_connect_is_not_read(way_in: WayIn, parts: int) -> None:
    """RFC 9931: one decision, whether the rest comes in the same segment or later."""
    first = request("CONNECT evil.test:443 HTTP/1.1", "Host: evil.test:443")
    behind = get("/info/a")
    answered = way_in.ask(first + behind) if parts == 1 else way_in.ask(first, behind)
    assert answered.raw.count(b"HTTP/1.1 ") == 1
    assert answered.status in (400, 403)
    assert answered.fields["connection"] == "close"
    assert way_in.setup.upstream.begun == []
    assert [each[0] for each in way_in.decisions()] == ["DENY"]


def test_row_19_each_request_on_a_connection_is_judged_by_itself(way_in: WayIn) -> None:
    targets = ["/info/a", "/admin", "/info/b", "/info/../admin", "/mypath"]
    answered = way_in.ask(*map(get, targets))
    statuses = [part.split(b" ")[0] for part in answered.raw.split(b"HTTP/1.1 ")[1:]]
    expected = [b"200", b"403", b"200", b"400", b"200"]
    assert statuses == expected[: len(statuses)]
    assert [seen.target for seen in way_in.setup.upstream.begun] == [
        target for target, status in zip(targets, statuses, strict=False) if status == b"200"
    ]


def test_row_19_another_host_on_the_same_connection_is_another_destination(way_in: WayIn) -> None:
    other = request("GET /info/b HTTP/1.1", "Host: evil.test")
    answered = way_in.ask(get("/info/a"), other)
    second = answered.raw.split(b"HTTP/1.1 ")[2]
    assert second.startswith((b"403", b"400"))
    assert len(way_in.setup.upstream.begun) == 1
    assert way_in.decisions()[-1][0] == "DENY"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_row_22_a_redirect_is_relayed_and_not_followed(way_in: WayIn, status: int) -> None:
    to = f"Location: http://127.0.0.1:{way_in.setup.upstream.port}/admin"
    way_in.setup.upstream.script = answer(f"HTTP/1.1 {status} Elsewhere", b"", to)
    try:
        answered = way_in.ask(get("/info/a"))
    finally:
        way_in.setup.upstream.script = answer()
    assert answered.status == status
    assert [seen.target for seen in way_in.setup.upstream.begun] == ["/info/a"]


def test_row_23_a_denied_request_cannot_upgrade_its_connection(way_in: WayIn) -> None:
    """An upgrade is judged as what it is, or refused: not as the GET that it looks like."""
    for method in ("GET", "POST", "DELETE"):
        answered = way_in.ask(
            request(
                f"{method} /admin HTTP/1.1", HOST, "Connection: Upgrade", "Upgrade: websocket",
                "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13",
            )
        )  # fmt: skip
        assert answered.status in (400, 403)
        assert way_in.setup.upstream.begun == []
        assert way_in.decisions()[-1][0] == "DENY"


def test_row_26_no_port_of_ours_is_reached_through_the_sidecar(way_in: WayIn) -> None:
    """mitmproxy CVE-2025-23217: by its address in the target, and by its address in `Host`."""
    port = way_in.setup.port
    for lines in (
        (f"GET http://127.0.0.1:{port}/metrics HTTP/1.1", f"Host: 127.0.0.1:{port}"),
        (f"GET http://localhost:{port}/info/a HTTP/1.1", HOST),
        (f"CONNECT 127.0.0.1:{port} HTTP/1.1", f"Host: 127.0.0.1:{port}"),
    ):
        answered = way_in.ask(request(*lines))
        assert answered.status in (400, 403)
        assert way_in.setup.upstream.begun == []
        assert way_in.decisions()[-1][0] == "DENY"


def test_every_row_of_the_rules_has_a_test() -> None:
    rows = {each.row for each in BYPASSES} | {each.row for each in PASSING}
    rows |= {10, 11, 14, 15, 19, 22, 23, 26}
    for row, module, name in ELSEWHERE:
        found = importlib.import_module(f"tests.sidecar.{module}")
        assert callable(getattr(found, name))
        rows.add(row)
    assert rows == set(range(1, 28))
